import importlib
import inspect
import pkgutil

import numpy as np
import pytest

from levelbench.distributed import schemes
from levelbench.distributed.scheme import Scheme
from levelbench.distributed.schemes.all_reduce import AllReduce
from levelbench.distributed.schemes.asynchronous import AsynchronousParameterServer
from levelbench.distributed.schemes.compressed import TopK
from levelbench.distributed.schemes.gossip import Gossip
from levelbench.distributed.schemes.local import LocalSGD
from levelbench.distributed.schemes.neighbours import Neighbours
from levelbench.distributed.schemes.parameter_server import ParameterServer
from levelbench.distributed.simulation import predict as predicting
from levelbench.distributed.simulation import running
from levelbench.distributed.simulation.calibration import Known, Uncertain
from levelbench.distributed.simulation.collectives import collective_s
from levelbench.distributed.simulation.model import Compute, Model, stand_in
from levelbench.distributed.simulation.networks import Network
from levelbench.distributed.simulation.predict import predict
from levelbench.distributed.simulation.running import simulate, trace_of
from levelbench.distributed.simulation.tracing import replay
from levelbench.distributed.simulation.working import work
from levelbench.errors import CommunicationError, UsageError

pytest.importorskip("greenlet")

ALPHA, BETA = 1e-5, 1e9
NETWORK = Network(ALPHA, BETA)
MODEL = Model({f"weight {at}": (250, 1000) for at in range(16)})
N = MODEL.nbytes
STEP = Compute(0.1)


def test_one_rank_only_computes():
    run = simulate(AllReduce(), 1, MODEL, Compute(0.1, update_s=0.02), NETWORK)
    assert run.step_s == pytest.approx(0.12)
    assert run.communication_share == 0


def test_without_overlap_a_step_is_its_parts_one_after_another():
    run = simulate(AllReduce(bucket_mb=1e3, overlap=False), 8, MODEL, STEP, NETWORK, algorithm="ring")
    talking = 2 * 7 * (ALPHA + N / 8 / BETA)
    assert run.step_s == pytest.approx(0.1 + talking, rel=1e-3)
    assert run.communication_share == pytest.approx(talking / (0.1 + talking), rel=1e-3)


def test_overlap_hides_all_but_the_last_bucket_where_the_network_is_fast_enough():
    buckets = 8
    scheme = AllReduce(bucket_mb=N / buckets / 2**20)
    run = simulate(scheme, 4, MODEL, STEP, NETWORK, algorithm="ring")
    assert run.step_s == pytest.approx(0.1 + collective_s(NETWORK, "all_reduce", N / buckets, 4, "ring"), rel=0.01)


def test_overlap_hides_the_backward_pass_where_the_network_is_slow():
    slow = Network(0.0, 1e7)
    run = simulate(AllReduce(bucket_mb=N / 8 / 2**20), 4, MODEL, STEP, slow, algorithm="ring")
    first_bucket_is_there = 0.1 / 3 + 0.1 * 2 / 3 / 8
    assert run.step_s == pytest.approx(first_bucket_is_there + 2 * 3 / 4 * N / 1e7, rel=0.01)


def test_a_consistent_server_takes_in_and_sends_out_all_gradients_one_after_another():
    workers = 7
    run = simulate(ParameterServer(), workers + 1, MODEL, STEP, NETWORK, steps=1)
    assert run.step_s == pytest.approx(0.1 + 2 * (workers * N / BETA + ALPHA), rel=1e-3)


def test_after_the_first_step_gradients_come_as_far_apart_as_parameters_went():
    workers = 7
    run = simulate(ParameterServer(), workers + 1, MODEL, STEP, NETWORK, steps=5)
    steady = np.diff(run.outcomes[workers - 1].ended_s)
    assert steady == pytest.approx([0.1 + (workers + 1) * N / BETA + 2 * ALPHA] * 4, rel=1e-3)


def test_a_server_at_its_limit_is_as_fast_as_its_link():
    workers, slow = 8, Network(0.0, 1e8)
    run = simulate(AsynchronousParameterServer(), workers + 1, MODEL, STEP, slow, steps=20)
    assert run.step_s == pytest.approx(workers * N / 1e8, rel=0.1)


def test_asynchronous_workers_with_a_fast_server_wait_only_for_their_own_messages():
    run = simulate(AsynchronousParameterServer(), 4, Model({"small": (1000,)}), STEP, NETWORK, steps=20)
    assert run.step_s == pytest.approx(0.1 + 2 * (ALPHA + 4000 / BETA), rel=1e-3)


def test_staleness_in_turn_is_the_number_of_the_others():
    run = simulate(AsynchronousParameterServer(), 6, Model({"small": (1000,)}), STEP, NETWORK, steps=10)
    assert np.median(run.notes("staleness")) == 4


def test_a_straggler_holds_up_all_who_wait_for_it_and_no_others():
    straggler = Compute(0.1, slow={1: 3.0})
    waiting = simulate(AllReduce(), 4, MODEL, straggler, NETWORK)
    apart = simulate(AsynchronousParameterServer(), 5, MODEL, straggler, NETWORK, steps=10)
    assert waiting.step_s > 0.3
    ended = [each.ended_s[-1] - each.began_s for each in apart.outcomes[:4]]
    assert ended[1] > 2 * max(ended[0], ended[2], ended[3])


def test_who_talks_every_eighth_step_talks_an_eighth_as_much():
    often = simulate(AllReduce(bucket_mb=1e3, overlap=False), 8, MODEL, STEP, NETWORK, steps=16)
    seldom = simulate(LocalSGD(period=8), 8, MODEL, STEP, NETWORK, steps=16)
    assert seldom.step_s - 0.1 == pytest.approx((often.step_s - 0.1) / 8, rel=0.05)


@pytest.mark.parametrize("scheme", [AllReduce(), AsynchronousParameterServer(), Gossip(), LocalSGD(period=2)], ids=str)
def test_the_same_seed_gives_the_same_times_to_the_last_bit(scheme):
    runs = [simulate(scheme, 6, MODEL, Compute(0.1, 0.02), NETWORK, steps=4, seed=3) for _ in range(2)]
    other = simulate(scheme, 6, MODEL, Compute(0.1, 0.02), NETWORK, steps=4, seed=4)
    assert runs[0].outcomes == runs[1].outcomes or _times(runs[0]) == _times(runs[1])
    assert _times(other) != _times(runs[0])


def _times(run):
    return [each.ended_s for each in run.outcomes]


@pytest.mark.parametrize("scheme", [AsynchronousParameterServer(), ParameterServer(), Gossip()], ids=str)
def test_bytes_sent_are_bytes_received(scheme):
    run = simulate(scheme, 6, MODEL, Compute(0.1, 0.02), NETWORK, steps=4)
    assert sum(run.sent_bytes) > 4 * 5 * N
    assert sum(run.sent_bytes) == pytest.approx(sum(run.received_bytes), rel=1e-12)


def test_a_small_model_sends_the_large_ones_bytes():
    run = simulate(ParameterServer(), 3, MODEL, STEP, NETWORK, steps=5)
    assert run.sent_bytes[0] == pytest.approx(5 * N, rel=1e-3)


def test_a_replayed_trace_ends_when_the_simulation_does():
    compute = Compute(0.1, 0.02, update_s=0.003, encode_s=0.002)
    run = simulate(AllReduce(bucket_mb=4), 5, MODEL, compute, NETWORK, steps=6, seed=1, algorithm="ring")
    times = np.stack([compute.draw(rank, 6, 1) for rank in range(5)])[None]
    again = replay(
        run.trace.actions, times, [lambda operation, nbytes: collective_s(NETWORK, operation, nbytes, 5, "ring")]
    )
    assert run.trace.regular
    assert again.ended_s[0] / 6 == pytest.approx(run.step_s, rel=1e-12)
    assert again.communication_share[0] == pytest.approx(run.communication_share, rel=1e-6)


def test_what_depends_on_who_comes_first_is_not_replayed():
    assert not simulate(AsynchronousParameterServer(), 4, MODEL, STEP, NETWORK, steps=2).trace.regular


def test_a_prediction_says_that_it_is_one_and_how_sure_it_is():
    uncertain = Uncertain(Known(0.1, 0.09, 0.12), Known(ALPHA, ALPHA / 2, ALPHA * 2), Known(BETA, 8e8, 1.1e9))
    told = predict(AllReduce(), 8, MODEL, Compute(0.1, batch=32), NETWORK, batch=256, uncertain=uncertain)
    sure = predict(AllReduce(), 8, MODEL, Compute(0.1, batch=32), NETWORK, batch=256)
    assert told.predicted is True
    assert told.step_s.interval.low < told.step_s.value < told.step_s.interval.high
    assert sure.step_s.interval.low == sure.step_s.value == sure.step_s.interval.high
    assert told.sent_bytes == AllReduce().traffic(MODEL.parameters, 4, 8, 0).sent_bytes
    assert 0 < told.efficiency.value < 1


def test_draws_without_replay_spread_too():
    uncertain = Uncertain(compute_s=Known(0.1, 0.09, 0.12))
    scheme = AsynchronousParameterServer()
    told = predict(scheme, 4, MODEL, STEP, NETWORK, batch=3, uncertain=uncertain, draws=8, steps=3)
    assert told.step_s.interval.low < told.step_s.value < told.step_s.interval.high


def test_strong_scaling_shares_the_batch_and_weak_scaling_multiplies_it():
    compute = Compute(0.1, batch=64, fixed_s=0.02)
    strong = predict(AllReduce(), 4, MODEL, compute, Network(0, 1e15), batch=64, draws=0)
    weak = predict(AllReduce(), 4, MODEL, compute, Network(0, 1e15), batch=64, scaling="weak", draws=0)
    assert (strong.batch, weak.batch) == (16, 64)
    assert strong.step_s.value == pytest.approx(0.02 + 0.08 / 4, rel=1e-3)
    assert weak.step_s.value == pytest.approx(0.1, rel=1e-3)
    assert weak.examples_per_s.value == pytest.approx(4 * 64 / 0.1, rel=1e-3)


def test_efficiency_counts_what_more_ranks_do_not_share():
    compute = Compute(0.1, batch=64, update_s=0.02)
    told = predict(AllReduce(), 4, MODEL, compute, Network(0, 1e15), batch=64, draws=0)
    assert told.efficiency.value == pytest.approx(0.12 / (4 * (0.1 / 4 + 0.02)), rel=1e-3)


def test_a_server_is_a_rank_that_efficiency_counts():
    told = predict(ParameterServer(), 2, MODEL, STEP, Network(0, 1e15), batch=8, draws=0)
    assert told.efficiency.value == pytest.approx(0.5, rel=1e-3)


def test_time_to_target_follows_from_the_examples_that_were_given():
    told = predict(
        AllReduce(), 2, MODEL, Compute(0.1, batch=50), Network(0, 1e15), batch=100, examples_to_target=1e6, draws=0
    )
    assert told.time_to_target_s.value == pytest.approx(1e6 / 100 * 0.1, rel=1e-3)


def test_more_ranks_than_examples_are_refused():
    with pytest.raises(UsageError, match="nothing to do"):
        predict(AllReduce(), 64, MODEL, STEP, NETWORK, batch=32)


def test_a_scheme_that_deadlocks_is_told_and_does_not_hang():
    class Waiting(AllReduce):
        def start(self, worker):
            if worker.communicator.rank == 1:
                worker.communicator.receive(np.zeros(3), 0, tag=5)
            return super().start(worker)

    with pytest.raises(CommunicationError, match=r"rank 0 waits in .*rank 1 waits in receive\(source=0, tag=5"):
        simulate(Waiting(), 3, MODEL, STEP, NETWORK)


@pytest.mark.parametrize("parts", [1, 4, 8])
def test_a_stand_in_keeps_the_bytes_and_the_order_of_the_model(parts):
    model = Model({"first": (10, 100), "large": (5000, 20), "last": (1000,)})
    small = stand_in(model, elements=500, parts=parts)
    elements = sum(shape[0] for shape in small.shapes.values())
    assert len(small.shapes) <= parts
    assert small.scale * 4 * elements == pytest.approx(model.nbytes)
    assert sum(small.weights.values()) == pytest.approx(1)


def test_a_small_model_stands_for_itself():
    model = Model({"weight": (3, 4), "bias": (4,)}, itemsize=2)
    small = stand_in(model)
    assert small.shapes == model.parameters
    assert small.scale == 0.5


def test_measured_steps_are_drawn_again():
    compute = Compute.measured((0.1, 0.2, 0.4), batch=8)
    assert set(compute.draw(0, 50, seed=1)) == {0.1, 0.2, 0.4}
    assert compute.at(16).mean_s == pytest.approx(2 * compute.mean_s)


def test_spread_steps_have_the_mean_and_the_spread_that_were_asked_for():
    drawn = Compute(0.1, 0.03).draw_all(200, 200, seed=0)
    assert drawn.mean() == pytest.approx(0.1, rel=0.01)
    assert drawn.std() == pytest.approx(0.03, rel=0.03)


def every_scheme():
    found = set()
    for module in pkgutil.iter_modules(schemes.__path__, f"{schemes.__name__}."):
        members = vars(importlib.import_module(module.name)).values()
        classes = [each for each in members if inspect.isclass(each) and issubclass(each, Scheme)]
        found |= {each for each in classes if not inspect.isabstract(each) and hasattr(each, "name")}
    return sorted(found, key=lambda each: each.name)


@pytest.mark.parametrize("scheme", every_scheme(), ids=lambda each: each.name)
def test_every_scheme_runs_unchanged(scheme):
    run = simulate(scheme(), 5, MODEL, STEP, NETWORK, steps=2)
    assert run.step_s >= 0.1 - 1e-9
    assert sum(run.received_bytes) == pytest.approx(sum(run.sent_bytes))


@pytest.mark.parametrize("scheme", [AllReduce(bucket_mb=4), LocalSGD(period=2), TopK()], ids=lambda each: each.name)
def test_where_all_do_the_same_a_few_are_played_and_it_comes_to_the_same(scheme):
    compute = Compute(0.1, 0.02, update_s=0.003)
    run = simulate(scheme, 40, MODEL, compute, NETWORK, steps=4, seed=3)
    trace = trace_of(scheme, 40, MODEL, compute, NETWORK, steps=4)
    assert trace.actions == run.trace.actions
    told = predict(scheme, 40, MODEL, compute, NETWORK, batch=1, scaling="weak", steps=4, draws=0, seed=3)
    assert told.step_s.value == pytest.approx(run.step_s, rel=1e-12)
    assert told.communicate_share == pytest.approx(run.communication_share, rel=1e-6)


@pytest.mark.parametrize(
    "scheme", [AsynchronousParameterServer(), ParameterServer(), Gossip(), Neighbours()], ids=lambda each: each.name
)
def test_where_ranks_send_to_one_another_all_are_played(scheme):
    assert trace_of(scheme, 40, MODEL, STEP, NETWORK, steps=2) is None


@pytest.mark.parametrize("scheme", [AllReduce(), TopK()], ids=lambda each: each.name)
def test_hundreds_of_ranks_cost_no_more_than_a_few_and_their_times(scheme, monkeypatch):
    played = []
    monkeypatch.setattr(
        running, "work", lambda communicator, *rest: played.append(communicator) or work(communicator, *rest)
    )
    told = predict(scheme, 300, MODEL, Compute(0.1, 0.01), NETWORK, batch=1, scaling="weak", steps=2)
    assert len(played) == 8
    assert told.step_s.interval.low < told.step_s.value < told.step_s.interval.high


def test_draws_that_cannot_be_replayed_are_fewer_and_say_so(monkeypatch):
    monkeypatch.setattr(predicting, "_DRAWN_RANK_STEPS", 1)
    uncertain = Uncertain(compute_s=Known(0.1, 0.09, 0.12))
    told = predict(AsynchronousParameterServer(), 4, MODEL, STEP, NETWORK, batch=3, uncertain=uncertain, steps=2)
    assert told.step_s.n == 3
    assert told.step_s.interval.method.startswith("3 draws")
    assert told.efficiency.low < told.efficiency.value < told.efficiency.high


@pytest.mark.parametrize("draws", [3, 8])
def test_the_interval_of_few_draws_holds_another_as_often_as_it_says(draws):
    generator = np.random.default_rng(0)
    held = 0
    for _ in range(500):
        central, another, *drawn = np.exp(0.1 * generator.standard_normal(2 + draws))
        held += another in predicting._estimate([central, *drawn]).interval
    assert held / 500 > 0.93
