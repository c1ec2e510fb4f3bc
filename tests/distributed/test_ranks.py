"""A team of ranks in the trainer: a recipe means the same on any number of ranks."""

import threading
import time

import numpy as np
import pytest
from tests.training.toy import watch

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.ranks import Ranks, heartbeat, lr_factor, scaled_batch
from levelbench.distributed.schemes.all_reduce import AllReduce
from levelbench.distributed.schemes.parameter_server import AsynchronousParameterServer, ParameterServer
from levelbench.distributed.schemes.periodic import ModelAveraging
from levelbench.errors import CommunicationError, UnknownNameError
from levelbench.frameworks.numpy import framework
from levelbench.measure.clocks import FakeClock
from levelbench.measure.timeline import Timeline
from levelbench.networks import Builder
from levelbench.networks.builder import GraphBuilder
from levelbench.networks.zoo.blocks import batch_norm, normal
from levelbench.training import Adam, Momentum, OneCycle, Quality, Recipe, Shuffled, Trainer
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.samplers import Repeated, Sequential
from levelbench.training.stopping import Evaluate, Stopping

EXAMPLES = 26
EPOCHS = 3
SENT = ("sent", "sent_at_start", "sent_between", "sent_serving")


class Loss(Quality):
    """The network's mean confidence, which changes with any parameter."""

    metric, direction, low, high = "sureness", "higher", 0.0, 99.0

    def __init__(self):
        object.__setattr__(self, "target", 98.0)

    def measure(self, executor, held):
        return float(np.mean([np.abs(executor.infer(inputs)[0]).mean() for inputs, _ in held.batches()]))


def make_dataset():
    generator = np.random.default_rng(0)

    def split(count):
        labels = np.arange(count) % 3
        inputs = generator.standard_normal((count, 5)) + labels[:, None]
        return Split.of(inputs.astype(np.float32), labels.astype(np.int64))

    return Dataset("toy", split(EXAMPLES), split(9), split(9), 3, {}, "none", "none", "made here", synthetic=True)


def normalising():
    graph = GraphBuilder("normalising")
    normalised = batch_norm(graph, "norm", graph.input("x", ("batch", 5)), 5)
    graph.output(graph.node("MatMul", normalised, graph.parameter("weight", (5, 3), normal(0.5))))
    return graph.build()


def make_recipe(batch=6, normalised=False, **parts):
    network = normalising() if normalised else Builder("small", (5,)).gemm(4).relu().gemm(3).build()
    return Recipe(
        network, parts.pop("sampler", Shuffled(batch)), **{"optimizer": Momentum(0.1), "epochs": EPOCHS, **parts}
    )


def make_trainer(recipe, team=None, seed=0):
    quality = Loss()
    stopping = Stopping(quality.as_target(), "final", Evaluate.parse("1 epoch"), recipe.epochs)
    return Trainer(
        framework.open(), make_dataset(), recipe, quality, stopping, seed=seed, timeline=Timeline(), team=team
    )


def trained(recipe):
    """The parameters, outcome and progress of one process."""
    trainer = make_trainer(recipe)
    outcome = trainer.run()
    return dict(trainer.executor.parameters), outcome, trainer.progress


def trained_by(size, recipe, scheme, **scaling):
    """The same for each rank, with its team."""

    def work(communicator):
        team = Ranks(communicator, scheme, **scaling)
        trainer = make_trainer(recipe, team)
        outcome = trainer.run()
        team.close()
        return dict(trainer.executor.parameters), outcome, trainer.progress, team

    return run_ranks(size, work)


def largest_difference(left, right):
    return max(float(np.abs(left[name] - right[name]).max() / np.abs(left[name]).max()) for name in left)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("optimizer", [Momentum(0.1), Adam(0.01)], ids=["momentum", "adam"])
def test_reducing_ranks_train_the_same_as_one_process(size, optimizer):
    """26 examples in batches of 6: not divisible by the ranks, and only two of five have some of the last batch."""
    recipe = make_recipe(optimizer=optimizer, schedule=OneCycle())
    alone, outcome, _ = trained(recipe)
    for parameters, theirs, _, _ in trained_by(size, recipe, AllReduce()):
        assert largest_difference(alone, parameters) < 1e-5
        assert theirs.quality == pytest.approx(outcome.quality, rel=1e-5)


def test_workers_of_a_server_train_the_same_as_one_process():
    recipe = make_recipe()
    alone, _, _ = trained(recipe)
    *workers, _ = trained_by(3, recipe, ParameterServer())
    for parameters, *_ in workers:
        assert largest_difference(alone, parameters) < 1e-5


def test_accumulated_batches_equal_one_larger_batch_on_several_ranks():
    whole, _, _ = trained(make_recipe(12))
    for parameters, *_ in trained_by(2, make_recipe(6, accumulate=2), AllReduce()):
        assert largest_difference(whole, parameters) < 1e-5


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_rank_does_not_hold_a_batch_while_the_next_one_is_prepared(accumulate):
    def work(communicator):
        trainer = make_trainer(make_recipe(6, accumulate=accumulate), Ranks(communicator, AllReduce()))
        alive = watch(trainer)
        trainer.run()
        return alive

    # The first of two accumulated batches waits for the second.
    expected = [0, 0, 0, 0, 0, 0] if accumulate == 1 else [0, 1, 0, 1, 0, 1]
    assert run_ranks(1, work) == [expected * EPOCHS]


def test_each_rank_counts_the_samples_of_all_ranks():
    for _, outcome, progress, _ in trained_by(3, make_recipe(), AllReduce()):
        assert progress.samples == EPOCHS * EXAMPLES
        assert [each.samples for each in outcome.evaluations] == [EXAMPLES, 2 * EXAMPLES, 3 * EXAMPLES]


def test_a_server_counts_the_steps_and_samples_of_its_workers():
    for _, _, progress, _ in trained_by(3, make_recipe(), AsynchronousParameterServer()):
        assert (progress.step, progress.samples) == (EPOCHS * 5, EPOCHS * EXAMPLES)


def test_all_ranks_get_the_first_ranks_measurements():
    outcomes = [outcome for _, outcome, _, _ in trained_by(3, make_recipe(), ModelAveraging())]
    assert len({outcome.quality["test"] for outcome in outcomes}) == 1
    assert len({outcome.stopped_by for outcome in outcomes}) == 1


def test_the_training_loss_is_the_mean_over_all_examples_of_all_ranks():
    _, outcome, _ = trained(make_recipe())
    expected = [each.loss for each in outcome.evaluations]
    for _, theirs, _, _ in trained_by(3, make_recipe(), AllReduce()):
        assert [each.loss for each in theirs.evaluations] == pytest.approx(expected, rel=1e-5)


def test_running_statistics_are_the_mean_of_the_workers_at_an_evaluation():
    def work(communicator):
        trainer = make_trainer(make_recipe(normalised=True), Ranks(communicator, AllReduce()))
        trainer.run()
        return {name: np.array(value) for name, value in trainer.executor.buffers.items()}

    first, *others = run_ranks(3, work)
    assert not np.array_equal(first["norm.running_mean"], np.zeros(5))
    for other in others:
        assert all(np.array_equal(first[name], other[name]) for name in first)


def test_weak_scaling_keeps_each_workers_batch_and_may_raise_the_rate():
    whole, _, _ = trained(make_recipe(12, optimizer=Momentum(0.2)))
    for parameters, *_ in trained_by(2, make_recipe(6), AllReduce(), scaling="weak", lr_scale="linear"):
        assert largest_difference(whole, parameters) < 1e-5


def test_each_rank_has_its_own_seed_and_the_first_one_the_runs():
    seeds = [team.seed(7) for *_, team in trained_by(3, make_recipe(epochs=1), AllReduce())]
    assert seeds[0] == 7
    assert len(set(seeds)) == 3


def test_a_step_sends_what_the_scheme_declares():
    for *_, team in trained_by(3, make_recipe(), AllReduce()):
        noted = team.ledger.take()
        (predicted,) = noted["sent_predicted"][1]
        assert set(noted["sent"][1][1:]) == {predicted}
        assert len(noted["step_time"][1]) == len(noted["communicate_time"][1]) == EPOCHS * 5


def test_an_unknown_learning_rate_rule_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match="linear"):
        lr_factor("liner", 2)
    assert (lr_factor("none", 4), lr_factor("linear", 4), lr_factor("sqrt", 4)) == (1, 4, 2)


def test_a_wrapped_samplers_batch_is_scaled():
    assert scaled_batch(Repeated(Sequential(4), 2), 3).batch == 12
    assert scaled_batch(Sequential(4), 3) == Sequential(12)


def test_a_nan_loss_on_one_rank_ends_all_with_the_same_reason():
    dataset = make_dataset()
    dataset.train.columns[0][3] = np.nan

    def work(communicator):
        quality = Loss()
        stopping = Stopping(quality.as_target(), "confirmed", Evaluate.parse("1 epoch"), EPOCHS)
        recipe = make_recipe(sampler=Sequential(6))
        trainer = Trainer(
            framework.open(),
            dataset,
            recipe,
            quality,
            stopping,
            seed=0,
            timeline=Timeline(),
            team=Ranks(communicator, ModelAveraging(every=100)),
        )
        return trainer.run().stopped_by

    reasons = run_ranks(2, work)
    assert len(set(reasons)) == 1
    assert reasons[0].startswith("diverged")


def test_a_time_budget_follows_the_first_ranks_clock():
    def work(communicator):
        quality = Loss()
        # The second rank's clock never ends the run, and the first one's ends it at once.
        clock = FakeClock(tick_ns=10**9 if communicator.rank == 0 else 1)
        stopping = Stopping(quality.as_target(), "confirmed", Evaluate.parse("1 epoch"), EPOCHS, budget_s=1.0)
        trainer = Trainer(
            framework.open(),
            make_dataset(),
            make_recipe(),
            quality,
            stopping,
            seed=0,
            timeline=Timeline(clock),
            team=Ranks(communicator, AllReduce()),
        )
        outcome = trainer.run()
        return outcome.stopped_by, len(outcome.evaluations)

    assert run_ranks(2, work) == [("budget of 1 s spent", 1)] * 2


def test_everything_sent_is_noted():
    for *_, team in trained_by(3, make_recipe(), ModelAveraging()):
        team.note_operations()
        noted = team.ledger.take()
        by_step = sum(sum(values) for name, (_, values) in noted.items() if name in SENT)
        by_operation = sum(sum(values) for name, (_, values) in noted.items() if name.startswith("sent:"))
        assert by_step == by_operation > 0


def test_a_short_block_has_no_heartbeat():
    beats = []
    with heartbeat(lambda: beats.append(1), every_s=60):
        pass
    assert not beats
    assert not [each for each in threading.enumerate() if each.name == "levelbench-heartbeat"]


def test_a_long_block_has_heartbeats_until_it_ends():
    beats = threading.Semaphore(0)
    with heartbeat(beats.release, every_s=0.001):
        assert all(beats.acquire(timeout=120) for _ in range(3))


def test_an_error_of_a_heartbeat_is_raised_at_the_end():
    failed = threading.Event()

    def fail():
        failed.set()
        raise CommunicationError("a", "b", "c")

    with pytest.raises(CommunicationError), heartbeat(fail, every_s=0.001):
        assert failed.wait(120)


def test_an_error_of_the_block_takes_precedence():
    def fail():
        raise CommunicationError("a", "b", "c")

    with pytest.raises(ZeroDivisionError), heartbeat(fail, every_s=0.001):
        _fail_later()


@pytest.mark.slow
def test_ranks_wait_longer_for_a_decision_than_their_timeout():
    """The first rank decides for two seconds, while a rank that is silent for one counts as lost."""

    def work(communicator):
        team = Ranks(communicator, AllReduce(), heartbeat_s=0.2)
        return team.decide(lambda: time.sleep(2.0) or {"quality": 0.5, "not a number": float("nan")})

    for found in run_ranks(3, work, timeout_s=1.0):
        assert found["quality"] == 0.5
        assert np.isnan(found["not a number"])


def test_ranks_notice_when_the_deciding_one_fails():
    def work(communicator):
        return Ranks(communicator, AllReduce(), heartbeat_s=0.2).decide(lambda: 1 // 0)

    with pytest.raises(ZeroDivisionError):
        run_ranks(3, work, timeout_s=5.0)


def _fail_later():
    time.sleep(0.05)
    raise ZeroDivisionError
