"""The consistent parameter server equals one process, with parameters distributed over servers."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.communicators.wrapping import Delays
from levelbench.distributed.scheme import Traffic, Worker
from levelbench.distributed.schemes.parameter_server import (
    AsynchronousParameterServer,
    ParameterServer,
    StaleSynchronous,
    StepCounts,
    require_separable,
    shards,
)
from levelbench.errors import DefinitionError, UnsupportedError, UsageError
from levelbench.frameworks.numpy import framework
from levelbench.networks import zoo
from levelbench.training import EMA, SGD, Adam, Clip, ClipValue, Decay, Groups, Momentum, Native

TWO = ParameterServer(servers=2)
FIVE = ParameterServer(servers=5)
"""More than the four parameters of the network."""


@pytest.mark.parametrize(
    ("on", "scheme", "ranks", "optimizer"),
    [("torch", ParameterServer(), 3, Momentum(0.05, 0.9)), ("numpy", TWO, 5, Adam(1e-3))],
    ids=["one", "two"],
)
def test_workers_equal_one_process_after_100_steps(training, on, scheme, ranks, optimizer):
    pytest.importorskip(on)
    network = training.network("mlp")
    expected = training.alone(on, network, optimizer, 100)
    for rank in training.together(on, network, optimizer, 100, scheme, ranks)[: scheme.workers(ranks)]:
        assert training.distance(rank.parameters, expected) <= 1e-6


def test_in_float64_they_are_equal_to_rounding(training):
    network = training.network("float64")
    expected = training.alone("numpy", network, Adam(1e-3), 100)
    for rank in training.together("numpy", network, Adam(1e-3), 100, TWO, 5)[:3]:
        assert training.distance(rank.parameters, expected) <= 1e-13


def test_workers_hold_the_same_bits_whatever_arrives_first(training):
    network = training.network("mlp")
    expected = training.together("numpy", network, Adam(1e-3), 6, TWO, 5)[0].parameters
    late = Delays(seed=1, most_s=0.001, slow={0: 0.001})
    for rank in training.together("numpy", network, Adam(1e-3), 6, TWO, 5, delays=late)[:3]:
        for name, array in expected.items():
            np.testing.assert_array_equal(rank.parameters[name], array)


@pytest.mark.parametrize("scheme", [ParameterServer(), TWO], ids=["one", "two"])
def test_servers_averages_reach_the_workers_at_a_meeting(training, scheme):
    network = training.network("mlp")
    expected = training.alone("numpy", network, EMA(Momentum(0.05, 0.9), 0.9), 12)
    found = training.together("numpy", network, EMA(Momentum(0.05, 0.9), 0.9), 12, scheme, 4)
    for rank in found[: scheme.workers(4)]:
        assert training.distance(rank.parameters, expected) <= 1e-6


@pytest.mark.parametrize(
    "optimizer",
    [Clip(Momentum(0.05, 0.9), 0.1), Groups(Momentum(0.05, 0.9), {"*.bias": SGD(0.1)})],
    ids=["clip", "groups"],
)
def test_one_server_accepts_optimizers_that_combine_parameters(training, optimizer):
    network = training.network("mlp")
    expected = training.alone("numpy", network, optimizer, 12)
    for rank in training.together("numpy", network, optimizer, 12, ParameterServer(), 3)[:2]:
        assert training.distance(rank.parameters, expected) <= 1e-6


@pytest.mark.parametrize("optimizer", [Clip(SGD(0.1), 1.0), EMA(Clip(SGD(0.1), 1.0), 0.9), Groups(SGD(0.1), {})])
def test_several_servers_refuse_them(optimizer):
    with pytest.raises(UnsupportedError, match="combines all parameters"):
        require_separable(optimizer, "two servers")


@pytest.mark.parametrize(
    "optimizer", [Adam(1e-3), Decay(EMA(ClipValue(SGD(0.1)), 0.9)), Native("torch.optim.SGD", lr=1)]
)
def test_several_servers_accept_others(optimizer):
    require_separable(optimizer, "two servers")


def test_more_servers_than_parameters_leave_some_idle(training):
    scheme = ParameterServer(servers=6)
    expected = training.alone("numpy", training.network("mlp"), Momentum(0.1, 0.9), 3)
    found = training.together("numpy", training.network("mlp"), Momentum(0.1, 0.9), 3, scheme, 7)[0]
    assert training.distance(found.parameters, expected) <= 1e-6


def test_a_server_without_parameters_needs_no_optimizer(training):
    pytest.importorskip("torch")
    # PyTorch's own optimizers refuse an empty list.
    found = training.together("torch", training.network("mlp"), Native("torch.optim.SGD", lr=0.1), 2, FIVE, 6)[0]
    expected = training.alone("torch", training.network("mlp"), SGD(0.1), 2)
    assert training.distance(found.parameters, expected) <= 1e-6


def test_there_must_be_workers_and_servers():
    assert TWO.workers(5) == 3
    with pytest.raises(UsageError, match="leaves none to train"):
        TWO.workers(2)
    with pytest.raises(DefinitionError, match="Choose servers >= 1"):
        ParameterServer(servers=0)


@given(st.lists(st.integers(0, 100), max_size=20), st.integers(1, 5))
def test_shards_hold_each_name_once_and_are_balanced(sizes, servers):
    named = {str(at): size for at, size in enumerate(sizes)}
    dealt = shards(named, servers)
    assert sorted(name for names in dealt for name in names) == sorted(named)
    held = [sum(named[name] for name in names) for names in dealt]
    assert max(held) - min(held) <= max(sizes, default=0)


def test_ranks_send_what_the_scheme_declares(training):
    network = training.network("mlp")
    shapes = {each.name: each.shape for each in network.parameters}
    sent = np.zeros(5)

    class Weighing:
        """Counts what goes through ``start_send``."""

        def __init__(self, inner):
            self.inner, self.rank, self.size = inner, inner.rank, inner.size

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def start_send(self, array, to, tag=0):
            sent[self.rank] += array.nbytes
            return self.inner.start_send(array, to, tag)

    training.together("numpy", network, SGD(0.1), 3, TWO, 5, wrap=Weighing)
    assert [3 * TWO.traffic(shapes, 4, 5, rank).sent_bytes for rank in range(5)] == sent.tolist()
    assert TWO.traffic(shapes, 4, 5, 0).messages == 2
    assert TWO.traffic(shapes, 4, 5, 4).messages == 3


def test_an_idle_server_sends_nothing():
    assert ParameterServer(servers=3).traffic({"a": (2, 2)}, 4, 5, 4) == Traffic(0, 0)


def test_servers_do_not_train():
    def work(communicator):
        backend = framework.open()
        network = zoo.mlp(2, 2, 2).with_loss()
        worker = Worker(communicator, backend, backend.executor(network), SGD(0.1))
        stepper = ParameterServer().start(worker)
        if communicator.rank == 1:
            with pytest.raises(NotImplementedError, match="serve"):
                stepper.step({}, 1, 1.0)

    run_ranks(2, work)


SERVED = [AsynchronousParameterServer, StaleSynchronous]
LR = 0.1


class RoundRobin:
    """Makes workers push in turn: 0, 1, ..., 0, 1, ..."""

    def __init__(self, workers):
        self._turn, self._workers, self._changed = 0, workers, threading.Condition()

    def gradient(self, rank, parameters, step):
        """The gradient of the worker's parameters, once it is its turn."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._turn == (step - 1) * self._workers + rank, timeout=20)
        return {name: each - (rank + 1) for name, each in parameters.items()}

    def after(self, rank, step, stepper):
        with self._changed:
            self._turn += 1
            self._changed.notify_all()


def in_turn(play, scheme, workers, steps, **settings):
    order = RoundRobin(workers)
    return play(scheme, workers + scheme.servers, steps, gradient=order.gradient, after=order.after, **settings)


def delayed(model, workers, steps, aware=False):
    """Sequential updates, each by a gradient of the model as its worker read it."""
    read = [model] * workers
    staleness = 0
    for step in range(steps):
        for rank in range(workers):
            staleness = rank if step == 0 else workers - 1
            model = model - LR / workers / (max(1, staleness) if aware else 1) * (read[rank] - (rank + 1))
            read[rank] = model
    return model


@pytest.mark.parametrize("kind", SERVED)
def test_a_single_worker_equals_one_process_without_staleness(play, begun, kind):
    worker, _ = play(kind(), 2, 10, meet=4)
    for name, value in begun.items():
        np.testing.assert_allclose(worker.parameters[name], 1 + 0.9**10 * (value - 1), rtol=1e-13)
        np.testing.assert_array_equal(worker.averaged[name], worker.parameters[name])
    assert worker.notes["staleness"] == [0] * 10
    assert worker.notes["divergence"] == [0, 0, 0]


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_in_turns_staleness_is_the_number_of_other_workers(play, workers):
    ends = in_turn(play, AsynchronousParameterServer(), workers, 6)
    for rank in range(workers):
        assert ends[rank].notes["staleness"] == [rank, *[workers - 1] * 5]


@pytest.mark.parametrize("aware", [False, True])
@pytest.mark.parametrize("servers", [1, 2])
def test_each_gradient_is_a_separate_update_at_a_share_of_the_rate(play, begun, aware, servers):
    scheme = AsynchronousParameterServer(servers=servers, staleness_aware=aware)
    ends = in_turn(play, scheme, 3, 5, meet=2)
    for name, value in begun.items():
        np.testing.assert_allclose(ends[0].averaged[name], delayed(value, 3, 5, aware), rtol=1e-13)
    assert len(ends[0].notes["staleness"]) == 5 * servers


def test_the_servers_parameters_are_evaluated_and_workers_differ(play):
    ends = in_turn(play, AsynchronousParameterServer(), 3, 4)
    for rank in range(3):
        for name in ("w", "b"):
            np.testing.assert_array_equal(ends[rank].averaged[name], ends[3].parameters[name])
    # The worker that is answered last has read them all.
    assert ends[2].notes["divergence"] == [0]
    assert ends[0].notes["divergence"][0] > ends[1].notes["divergence"][0] > 0


def test_an_optimizer_that_averages_does_so_on_the_server(play, begun):
    worker, server = play(AsynchronousParameterServer(), 2, 4, optimizer=EMA(SGD(LR), 0.5))
    model = average = begun["w"]
    for _ in range(4):
        model = 1 + 0.9 * (model - 1)
        average = 0.5 * average + 0.5 * model
    np.testing.assert_allclose(server.parameters["w"], model, rtol=1e-13)
    np.testing.assert_allclose(worker.averaged["w"], average, rtol=1e-13)
    assert worker.notes["divergence"] == [0]


@pytest.mark.parametrize("stale", [0, 1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_lag_and_staleness_stay_within_the_bound(play, stale, seed):
    workers = 3
    delays = Delays(seed, 0.0005, slow={seed % workers: 0.001})
    ends = play(StaleSynchronous(stale=stale), workers + 1, 12, delays=delays)
    notes = [end.notes for end in ends[:workers]]
    assert max(max(each["lag"]) for each in notes) <= stale
    assert max(max(each["staleness"]) for each in notes) <= (workers - 1) * (2 * stale + 1)


def test_only_the_bound_limits_fast_workers(play):
    delays = Delays(0, 0.0, slow={0: 0.002})
    bounded, free = (
        play(scheme, 4, 15, delays=delays) for scheme in (StaleSynchronous(stale=2), AsynchronousParameterServer())
    )
    assert max(bounded[1].notes["lag"]) == 2 < max(free[1].notes["lag"])


@pytest.mark.parametrize("servers", [1, 2])
def test_with_a_bound_of_zero_plain_sgd_equals_one_process(play, begun, servers):
    shares = [0.5, 0.3, 0.2]
    ends = play(StaleSynchronous(stale=0, servers=servers), 3 + servers, 12, shares=shares, delays=Delays(2, 0.0003))
    target = 0.5 * 1 + 0.3 * 2 + 0.2 * 3
    for end in ends[:3]:
        for name, value in begun.items():
            np.testing.assert_allclose(end.parameters[name], target + 0.9**12 * (value - target), rtol=1e-12)
        assert end.notes["divergence"] == [0]


@pytest.mark.parametrize("kind", SERVED)
def test_too_few_ranks_for_a_worker_are_refused(kind):
    with pytest.raises(UsageError, match="Start 3 ranks"):
        kind(servers=2).workers(2)


def test_an_optimizer_that_combines_parameters_needs_one_server(play):
    play(AsynchronousParameterServer(), 2, 1, optimizer=Clip(Adam(0.1), 1.0))
    with pytest.raises(UnsupportedError, match="Clip"):
        play(AsynchronousParameterServer(servers=2), 3, 1, optimizer=Clip(Adam(0.1), 1.0))


def test_a_server_without_parameters_is_idle(play, begun):
    ends = play(AsynchronousParameterServer(servers=3), 4, 5, meet=2)
    np.testing.assert_allclose(ends[0].averaged["w"], 1 + 0.9**5 * (begun["w"] - 1), rtol=1e-13)


@pytest.mark.parametrize("kind", SERVED)
def test_a_server_without_parameters_does_not_block_averages(play, begun, kind):
    ends = play(kind(servers=3), 4, 5, meet=2, optimizer=EMA(SGD(LR), 0.0))
    np.testing.assert_allclose(ends[0].averaged["w"], 1 + 0.9**5 * (begun["w"] - 1), rtol=1e-13)


@given(st.lists(st.integers(0, 4), max_size=60))
def test_the_slowest_worker_has_the_fewest_steps(pushes):
    counts, made = StepCounts([0] * 5), [0] * 5
    for worker in pushes:
        made[worker] += 1
        assert counts.count(worker) == made[worker]
        assert (counts.made, counts.slowest) == (made, min(made))


def test_step_counts_resume_from_saved_ones():
    counts = StepCounts([3, 1, 2])
    assert counts.slowest == 1
    counts.count(1)
    assert counts.slowest == 2
