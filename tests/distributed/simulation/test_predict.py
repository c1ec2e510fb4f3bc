"""What a step takes on simulated ranks, compared with closed forms, and predictions with their intervals."""

import importlib
import inspect
import pkgutil

import numpy as np
import pytest

from levelbench.distributed import schemes
from levelbench.distributed.scheme import Scheme
from levelbench.distributed.schemes.all_reduce import AllReduce
from levelbench.distributed.schemes.compressed import SparseTopK, Threshold
from levelbench.distributed.schemes.gossip import Gossip
from levelbench.distributed.schemes.neighbours import Neighbours
from levelbench.distributed.schemes.parameter_server import AsynchronousParameterServer, ParameterServer
from levelbench.distributed.schemes.periodic import LocalSGD
from levelbench.distributed.simulation import predict as predicting
from levelbench.distributed.simulation.cluster import replay
from levelbench.distributed.simulation.model import Calibrated, Compute, ModelShape, Uncertain
from levelbench.distributed.simulation.networks import Interconnect, collective_s
from levelbench.distributed.simulation.predict import predict, run_rank, simulate, trace_of
from levelbench.errors import CommunicationError, UsageError

pytest.importorskip("greenlet")

ALPHA, BETA = 1e-5, 1e9
NETWORK = Interconnect(ALPHA, BETA)
MODEL = ModelShape({f"weight {at}": (250, 1000) for at in range(16)})
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


def test_a_threshold_sends_the_share_that_is_expected_of_it():
    run = simulate(Threshold(expected=0.05), 4, MODEL, STEP, NETWORK)
    counts, values_and_places = 3 * (ALPHA + 8 / BETA), 3 * (ALPHA + 0.05 * 2 * N / BETA)
    assert run.step_s == pytest.approx(0.1 + counts + values_and_places, rel=1e-3)


def test_overlap_hides_all_but_the_last_bucket_where_the_network_is_fast_enough():
    buckets = 8
    scheme = AllReduce(bucket_mb=N / buckets / 2**20)
    run = simulate(scheme, 4, MODEL, STEP, NETWORK, algorithm="ring")
    assert run.step_s == pytest.approx(0.1 + collective_s(NETWORK, "all_reduce", N / buckets, 4, "ring"), rel=0.01)


def test_overlap_hides_the_backward_pass_where_the_network_is_slow():
    slow = Interconnect(0.0, 1e7)
    run = simulate(AllReduce(bucket_mb=N / 8 / 2**20), 4, MODEL, STEP, slow, algorithm="ring")
    first_bucket_is_there = 0.1 / 3 + 0.1 * 2 / 3 / 8
    assert run.step_s == pytest.approx(first_bucket_is_there + 2 * 3 / 4 * N / 1e7, rel=0.01)


def test_a_consistent_server_takes_in_and_sends_out_all_gradients_one_after_another():
    workers = 7
    run = simulate(ParameterServer(), workers + 1, MODEL, STEP, NETWORK, steps=1)
    assert run.step_s == pytest.approx(0.1 + 2 * (workers * N / BETA + ALPHA), rel=1e-3)


def test_after_the_first_step_gradients_arrive_in_the_intervals_of_the_parameters():
    workers = 7
    run = simulate(ParameterServer(), workers + 1, MODEL, STEP, NETWORK, steps=5)
    steady = np.diff(run.outcomes[workers - 1].ended_s)
    assert steady == pytest.approx([0.1 + (workers + 1) * N / BETA + 2 * ALPHA] * 4, rel=1e-3)


def test_a_server_at_its_limit_is_as_fast_as_its_link():
    workers, slow = 8, Interconnect(0.0, 1e8)
    run = simulate(AsynchronousParameterServer(), workers + 1, MODEL, STEP, slow, steps=20)
    assert run.step_s == pytest.approx(workers * N / 1e8, rel=0.1)


def test_asynchronous_workers_with_a_fast_server_wait_only_for_their_own_messages():
    run = simulate(AsynchronousParameterServer(), 4, ModelShape({"small": (1000,)}), STEP, NETWORK, steps=20)
    assert run.step_s == pytest.approx(0.1 + 2 * (ALPHA + 4000 / BETA), rel=1e-3)


def test_typical_staleness_is_the_number_of_other_workers():
    run = simulate(AsynchronousParameterServer(), 6, ModelShape({"small": (1000,)}), STEP, NETWORK, steps=10)
    assert np.median(run.notes("staleness")) == 4


def test_a_straggler_delays_only_ranks_that_wait_for_it():
    straggler = Compute(0.1, slow={1: 3.0})
    waiting = simulate(AllReduce(), 4, MODEL, straggler, NETWORK)
    apart = simulate(AsynchronousParameterServer(), 5, MODEL, straggler, NETWORK, steps=10)
    assert waiting.step_s > 0.3
    ended = [each.ended_s[-1] - each.began_s for each in apart.outcomes[:4]]
    assert ended[1] > 2 * max(ended[0], ended[2], ended[3])


def test_communicating_every_eighth_step_takes_an_eighth_of_the_time():
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
    again = replay(run.trace.actions, times, [NETWORK], "ring")
    assert run.trace.regular
    assert again.ended_s[0] / 6 == pytest.approx(run.step_s, rel=1e-12)
    assert again.communication_share[0] == pytest.approx(run.communication_share, rel=1e-6)


def test_a_trace_that_depends_on_the_order_of_arrival_is_not_replayed():
    assert not simulate(AsynchronousParameterServer(), 4, MODEL, STEP, NETWORK, steps=2).trace.regular


def test_a_deadlock_in_a_scheme_is_reported():
    class Waiting(AllReduce):
        def start(self, worker):
            if worker.communicator.rank == 1:
                worker.communicator.receive(np.zeros(3), 0, tag=5)
            return super().start(worker)

    with pytest.raises(CommunicationError, match=r"rank 0 waits in .*rank 1 waits in receive\(source=0, tag=5"):
        simulate(Waiting(), 3, MODEL, STEP, NETWORK)


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


def test_a_prediction_is_marked_as_one_and_has_an_interval():
    uncertain = Uncertain(
        Calibrated(0.1, 0.09, 0.12), Calibrated(ALPHA, ALPHA / 2, ALPHA * 2), Calibrated(BETA, 8e8, 1.1e9)
    )
    predicted = predict(AllReduce(), 8, MODEL, Compute(0.1, batch=32), NETWORK, batch=256, uncertain=uncertain)
    sure = predict(AllReduce(), 8, MODEL, Compute(0.1, batch=32), NETWORK, batch=256)
    assert predicted.predicted is True
    assert predicted.step_s.interval.low < predicted.step_s.value < predicted.step_s.interval.high
    assert sure.step_s.interval.low == sure.step_s.value == sure.step_s.interval.high
    assert predicted.sent_bytes == AllReduce().traffic(MODEL.parameters, 4, 8, 0).sent_bytes
    assert 0 < predicted.efficiency.value < 1


@pytest.mark.parametrize("ranks", [4, 64])
def test_the_interval_holds_what_is_known_of_the_schemes_own_time(ranks):
    own = Compute(0.1, encode_s=0.05)
    known = Uncertain(encode_s=Calibrated(0.05, 0.04, 0.07))
    settings = {"batch": 64, "scaling": "weak"}
    without = predict(SparseTopK(), ranks, MODEL, own, NETWORK, **settings).step_s
    told = predict(SparseTopK(), ranks, MODEL, own, NETWORK, uncertain=known, **settings).step_s
    assert told.value == pytest.approx(without.value)
    assert without.interval.width == pytest.approx(0, abs=1e-9)
    assert 0.01 < told.interval.width < 0.05


def test_draws_without_replay_spread_too():
    uncertain = Uncertain(compute_s=Calibrated(0.1, 0.09, 0.12))
    scheme = AsynchronousParameterServer()
    predicted = predict(scheme, 4, MODEL, STEP, NETWORK, batch=3, uncertain=uncertain, draws=8, steps=3)
    assert predicted.step_s.interval.low < predicted.step_s.value < predicted.step_s.interval.high


def test_strong_scaling_shares_the_batch_and_weak_scaling_multiplies_it():
    compute = Compute(0.1, batch=64, fixed_s=0.02)
    strong = predict(AllReduce(), 4, MODEL, compute, Interconnect(0, 1e15), batch=64, draws=0)
    weak = predict(AllReduce(), 4, MODEL, compute, Interconnect(0, 1e15), batch=64, scaling="weak", draws=0)
    assert (strong.batch, weak.batch) == (16, 64)
    assert strong.step_s.value == pytest.approx(0.02 + 0.08 / 4, rel=1e-3)
    assert weak.step_s.value == pytest.approx(0.1, rel=1e-3)
    assert weak.examples_per_s.value == pytest.approx(4 * 64 / 0.1, rel=1e-3)


def test_efficiency_includes_work_that_ranks_do_not_share():
    compute = Compute(0.1, batch=64, update_s=0.02)
    predicted = predict(AllReduce(), 4, MODEL, compute, Interconnect(0, 1e15), batch=64, draws=0)
    assert predicted.efficiency.value == pytest.approx(0.12 / (4 * (0.1 / 4 + 0.02)), rel=1e-3)


def test_efficiency_counts_servers_as_ranks():
    predicted = predict(ParameterServer(), 2, MODEL, STEP, Interconnect(0, 1e15), batch=8, draws=0)
    assert predicted.efficiency.value == pytest.approx(0.5, rel=1e-3)


def test_time_to_target_follows_from_the_given_examples():
    predicted = predict(
        AllReduce(), 2, MODEL, Compute(0.1, batch=50), Interconnect(0, 1e15), batch=100, examples_to_target=1e6, draws=0
    )
    assert predicted.time_to_target_s.value == pytest.approx(1e6 / 100 * 0.1, rel=1e-3)


def test_more_ranks_than_examples_are_refused():
    with pytest.raises(UsageError, match="have no example"):
        predict(AllReduce(), 64, MODEL, STEP, NETWORK, batch=32)


@pytest.mark.parametrize(
    "scheme", [AllReduce(bucket_mb=4), LocalSGD(period=2), SparseTopK()], ids=lambda each: each.name
)
def test_playing_a_few_of_many_equal_ranks_gives_the_same_result(scheme):
    compute = Compute(0.1, 0.02, update_s=0.003)
    run = simulate(scheme, 40, MODEL, compute, NETWORK, steps=4, seed=3)
    trace = trace_of(scheme, 40, MODEL, compute, NETWORK, steps=4)
    assert trace.actions == run.trace.actions
    predicted = predict(scheme, 40, MODEL, compute, NETWORK, batch=1, scaling="weak", steps=4, draws=0, seed=3)
    assert predicted.step_s.value == pytest.approx(run.step_s, rel=1e-12)
    assert predicted.communicate_share == pytest.approx(run.communication_share, rel=1e-6)


@pytest.mark.parametrize(
    "scheme", [AsynchronousParameterServer(), ParameterServer(), Gossip(), Neighbours()], ids=lambda each: each.name
)
def test_all_ranks_are_played_if_they_send_messages(scheme):
    assert trace_of(scheme, 40, MODEL, STEP, NETWORK, steps=2) is None


@pytest.mark.parametrize("scheme", [AllReduce(), SparseTopK()], ids=lambda each: each.name)
def test_only_eight_of_hundreds_of_equal_ranks_are_played(scheme, monkeypatch):
    played = []
    monkeypatch.setattr(
        predicting, "run_rank", lambda cluster, *rest: played.append(cluster) or run_rank(cluster, *rest)
    )
    predicted = predict(scheme, 300, MODEL, Compute(0.1, 0.01), NETWORK, batch=1, scaling="weak", steps=2)
    assert len(played) == 8
    assert predicted.step_s.interval.low < predicted.step_s.value < predicted.step_s.interval.high


def test_draws_without_replay_are_fewer_and_the_interval_says_so(monkeypatch):
    monkeypatch.setattr(predicting, "_DRAWN_RANK_STEPS", 1)
    uncertain = Uncertain(compute_s=Calibrated(0.1, 0.09, 0.12))
    predicted = predict(AsynchronousParameterServer(), 4, MODEL, STEP, NETWORK, batch=3, uncertain=uncertain, steps=2)
    assert predicted.step_s.n == 3
    assert predicted.step_s.interval.method.startswith("3 draws")
    assert predicted.efficiency.low < predicted.efficiency.value < predicted.efficiency.high


@pytest.mark.parametrize("draws", [3, 8])
def test_the_interval_of_few_draws_has_its_nominal_coverage(draws):
    generator = np.random.default_rng(0)
    held = 0
    for _ in range(500):
        central, another, *drawn = np.exp(0.1 * generator.standard_normal(2 + draws))
        held += another in predicting._estimate([central, *drawn]).interval
    assert held / 500 > 0.93
