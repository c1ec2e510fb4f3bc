"""What a step takes on simulated ranks, against closed forms."""

import importlib
import inspect
import pkgutil

import numpy as np
import pytest

from levelbench.distributed import schemes
from levelbench.distributed.scheme import Scheme
from levelbench.distributed.schemes.all_reduce import AllReduce
from levelbench.distributed.schemes.gossip import Gossip
from levelbench.distributed.schemes.parameter_server import AsynchronousParameterServer, ParameterServer
from levelbench.distributed.schemes.periodic import LocalSGD
from levelbench.distributed.simulation.cluster import replay
from levelbench.distributed.simulation.model import Compute, ModelShape
from levelbench.distributed.simulation.networks import Interconnect, collective_s
from levelbench.distributed.simulation.running import simulate
from levelbench.errors import CommunicationError

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


def test_after_the_first_step_gradients_come_as_far_apart_as_parameters_went():
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


def test_staleness_in_turn_is_the_number_of_the_others():
    run = simulate(AsynchronousParameterServer(), 6, ModelShape({"small": (1000,)}), STEP, NETWORK, steps=10)
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
    again = replay(run.trace.actions, times, [NETWORK], "ring")
    assert run.trace.regular
    assert again.ended_s[0] / 6 == pytest.approx(run.step_s, rel=1e-12)
    assert again.communication_share[0] == pytest.approx(run.communication_share, rel=1e-6)


def test_what_depends_on_who_comes_first_is_not_replayed():
    assert not simulate(AsynchronousParameterServer(), 4, MODEL, STEP, NETWORK, steps=2).trace.regular


def test_a_scheme_that_deadlocks_is_told_and_does_not_hang():
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
