"""Checkpoints of a team: schemes resume with the same bits, and a checkpoint counts only if all ranks wrote it."""

from functools import partial

import msgspec
import numpy as np
import pytest

from levelbench import plugins
from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.finding import named_scheme
from levelbench.distributed.ranks import Ranks
from levelbench.distributed.scheme import Worker
from levelbench.distributed.schemes.all_reduce import AllReduce
from levelbench.distributed.schemes.base import BaseStepper
from levelbench.errors import CommunicationError, DataError, StoreError, UnsupportedError
from levelbench.experiments import rank
from levelbench.experiments.rank import RankCheckpoints
from levelbench.frameworks.numpy import framework
from levelbench.measure.timeline import Timeline
from levelbench.networks import Builder
from levelbench.planted.schemes_known import TakesInWhatIsUnderWay
from levelbench.training import EMA, Adam, Momentum, Observer, Quality, Recipe, Shuffled, Trainer
from levelbench.training.checkpoints import Saving, Snapshot, part_of
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.stopping import Evaluate, Stopping

SCHEMES = {
    "all-reduce": {},
    "async-parameter-server": {},
    "diloco": {"period": 4},
    "gossip": {"ahead": 0},
    "local-sgd": {"period": 4},
    "neighbours": {},
    "parameter-server": {},
    "power-sgd": {"rank": 1},
    "top-k": {"ratio": 0.2, "momentum": 0.9},
}
"""Rounds that are not over at the checkpoint, messages that come in a given order, and states of all kinds."""


class Sureness(Quality):
    metric, direction, low, high = "sureness", "higher", 0.0, 99.0

    def __init__(self):
        object.__setattr__(self, "target", 98.0)

    def measure(self, executor, held):
        return float(np.mean([np.abs(executor.infer(inputs)[0]).mean() for inputs, _ in held.batches()]))


class Killed(Exception):
    """Ends a run in the middle."""


class KillAt(Observer):
    def __init__(self, step):
        self.step = step

    def on_step(self, progress):
        if progress.step == self.step:
            raise Killed


def small():
    return Builder("small", (5,)).gemm(4).relu().gemm(3).build()


def dataset():
    random = np.random.default_rng(0)

    def split(count):
        labels = np.arange(count) % 3
        return Split.of((random.standard_normal((count, 5)) + labels[:, None]).astype(np.float32), labels)

    return Dataset("toy", split(26), split(9), split(9), 3, {}, "none", "none", "made here", synthetic=True)


def train(scheme, path, *, killed_at=None, resume=False, optimizer=None, every="3 steps"):
    """The final parameters, by name, and the observations of each of two ranks."""

    def work(communicator):
        ranks = Ranks(communicator, scheme)
        keeper = RankCheckpoints(ranks)
        _, kept = keeper.read(path if resume else None)

        def write(where, snapshot):
            keeper.observed(ranks.ledger.take())
            keeper.write(where, snapshot)

        recipe = Recipe(small(), Shuffled(6), optimizer or Momentum(0.1), epochs=2)
        stopping = Stopping(Sureness().as_target(), "final", Evaluate.parse("1 epoch"), recipe.epochs)
        watchers = (KillAt(killed_at),) if killed_at and ranks.trains else ()
        trainer = Trainer(
            framework.open(), dataset(), recipe, Sureness(), stopping, seed=0, timeline=Timeline(), team=ranks,
            saving=Saving(path, Evaluate.parse(every), "key", write), resume=kept, observers=watchers,
        )  # fmt: skip
        ranks.require_kept()
        if kept is not None:
            keeper.resume_observed(kept)
        outcome = trainer.run()
        ranks.close()
        parameters = {name: np.array(each) for name, each in trainer.executor.parameters.items()}
        keeper.observed(ranks.ledger.take())
        return outcome, parameters, keeper._observed

    return run_ranks(2, work, timeout_s=120.0)


def resume_observed(scheme, folder, optimizer=None):
    """The results of two ranks, without an interruption and killed between two checkpoints and resumed."""
    whole = train(scheme, folder / "whole.checkpoint.npz", optimizer=optimizer, every="100 steps")
    path = folder / "cut.checkpoint.npz"
    with pytest.raises((Killed, CommunicationError)):
        train(scheme, path, killed_at=5, optimizer=optimizer)
    assert part_of(path, 3, 1).is_file()
    return whole, train(scheme, path, resume=True, optimizer=optimizer)


def same_bits(whole, resumed):
    for (outcome, parameters, _), (found, others, _) in zip(whole, resumed, strict=True):
        assert {name: each.tobytes() for name, each in parameters.items()} == {
            name: each.tobytes() for name, each in others.items()
        }
        assert outcome.quality == found.quality
        assert [each.loss for each in outcome.evaluations] == [each.loss for each in found.evaluations]


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_of_each_kind_resumes_with_the_same_bits(tmp_path, name):
    same_bits(*resume_observed(named_scheme(name, SCHEMES[name]), tmp_path))


def test_all_schemes_declare_that_their_state_can_be_saved():
    def unkept(communicator, scheme):
        backend, network = framework.open(), small().with_loss().training()
        executor = backend.executor(network, network.initialise(0))
        stepper = scheme.start(Worker(communicator, backend, executor, Momentum(0.1)))
        found = stepper.unkept
        stepper.close()
        return found

    schemes = {each.name: each for each in map(named_scheme, plugins.names("scheme")) if each.counted}
    assert SCHEMES.keys() < schemes.keys()
    for scheme in schemes.values():
        assert run_ranks(2, partial(unkept, scheme=scheme)) == [None, None]


@pytest.mark.parametrize("name", ["all-reduce", "parameter-server"])
def test_optimizers_with_averages_resume_with_the_same_bits(tmp_path, name):
    same_bits(*resume_observed(named_scheme(name), tmp_path, EMA(Adam(0.01), 0.9)))


def test_earlier_observations_of_a_rank_survive_a_checkpoint(tmp_path):
    whole, resumed = resume_observed(AllReduce(), tmp_path)
    for (_, _, observed), (_, _, found) in zip(whole, resumed, strict=True):
        for name in ("step_time", "sent", "messages"):
            assert len(found[name][1]) == len(observed[name][1]) == 10
        assert found["sent"] == observed["sent"]


def test_a_checkpoint_that_one_rank_could_not_write_does_not_count(tmp_path, monkeypatch):
    path = tmp_path / "cut.checkpoint.npz"
    real = rank.save

    def full(where, snapshot):
        if where == part_of(path, 6, 1):
            raise StoreError("a checkpoint", "no space left", "make room")
        real(where, snapshot)

    monkeypatch.setattr(rank, "save", full)
    with pytest.raises(StoreError, match="no space left"):
        train(AllReduce(), path)
    assert rank.load(path).facts.step == 3
    assert part_of(path, 3, 1).is_file()


def test_a_new_checkpoint_replaces_the_parts_of_the_previous_one(tmp_path):
    path = tmp_path / "run.checkpoint.npz"
    train(AllReduce(), path, every="4 steps")
    assert sorted(tmp_path.iterdir()) == [path, part_of(path, 8, 1)]


def test_a_part_of_another_step_is_refused(tmp_path):
    path = tmp_path / "run.checkpoint.npz"
    train(AllReduce(), path, every="4 steps")
    part = part_of(path, 8, 1)
    train(AllReduce(), path, every="5 steps")
    part_of(path, 5, 1).rename(part)
    kept = rank.load(path)
    rank.save(path, Snapshot(msgspec.structs.replace(kept.facts, step=8), kept.arrays))
    with pytest.raises(DataError, match="another step"):
        train(AllReduce(), path, resume=True)


def test_a_state_that_is_merged_into_the_parameters_is_saved_with_them(tmp_path, monkeypatch):
    monkeypatch.setattr(AllReduce, "start", lambda self, worker: TakesInWhatIsUnderWay(worker))
    # As on an accelerator, where copies on the host do not change with the device.
    monkeypatch.setattr(type(framework.open()), "host", lambda self, array: np.array(array))
    whole, path = train(AllReduce(), tmp_path / "whole.checkpoint.npz"), tmp_path / "cut.checkpoint.npz"
    with pytest.raises((Killed, CommunicationError)):
        train(AllReduce(), path, killed_at=5)
    same_bits(whole, train(AllReduce(), path, resume=True))


@pytest.mark.parametrize("damage", [lambda part: part.unlink(), lambda part: part.write_bytes(b"no archive")])
def test_a_checkpoint_with_a_missing_or_damaged_part_is_refused(tmp_path, damage):
    path = tmp_path / "run.checkpoint.npz"
    train(AllReduce(), path, every="4 steps")
    damage(part_of(path, 8, 1))
    with pytest.raises(DataError, match=r"No such file|not an archive of arrays") as caught:
        train(AllReduce(), path, resume=True)
    assert caught.value.do == f"remove {path}; the run then starts over"


class Forgetful(BaseStepper):
    def step(self, gradients, step, factor):
        self.update(gradients, step, factor)


def test_a_scheme_that_does_not_declare_its_state_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(AllReduce, "start", lambda self, worker: Forgetful(worker))
    with pytest.raises(UnsupportedError, match="Forgetful does not declare"):
        train(AllReduce(), tmp_path / "run.checkpoint.npz")
