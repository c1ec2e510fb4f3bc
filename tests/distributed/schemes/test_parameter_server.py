"""The consistent parameter server computes what one process does, with its parameters dealt out over servers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.communicators.wrapping import Delays
from levelbench.distributed.scheme import Traffic, Worker
from levelbench.distributed.schemes.parameter_server import ParameterServer, require_separable, shards
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
def test_averages_that_servers_keep_reach_the_workers_when_all_meet(training, scheme):
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
def test_one_server_takes_optimizers_that_look_at_all_parameters(training, optimizer):
    network = training.network("mlp")
    expected = training.alone("numpy", network, optimizer, 12)
    for rank in training.together("numpy", network, optimizer, 12, ParameterServer(), 3)[:2]:
        assert training.distance(rank.parameters, expected) <= 1e-6


@pytest.mark.parametrize("optimizer", [Clip(SGD(0.1), 1.0), EMA(Clip(SGD(0.1), 1.0), 0.9), Groups(SGD(0.1), {})])
def test_several_servers_refuse_them(optimizer):
    with pytest.raises(UnsupportedError, match="looks at all parameters"):
        require_separable(optimizer, "two servers")


@pytest.mark.parametrize(
    "optimizer", [Adam(1e-3), Decay(EMA(ClipValue(SGD(0.1)), 0.9)), Native("torch.optim.SGD", lr=1)]
)
def test_several_servers_take_others(optimizer):
    require_separable(optimizer, "two servers")


def test_more_servers_than_parameters_leave_some_idle(training):
    scheme = ParameterServer(servers=6)
    expected = training.alone("numpy", training.network("mlp"), Momentum(0.1, 0.9), 3)
    found = training.together("numpy", training.network("mlp"), Momentum(0.1, 0.9), 3, scheme, 7)[0]
    assert training.distance(found.parameters, expected) <= 1e-6


def test_a_server_without_parameters_needs_no_optimizer(training):
    pytest.importorskip("torch")
    # PyTorch's own refuse to work on nothing.
    found = training.together("torch", training.network("mlp"), Native("torch.optim.SGD", lr=0.1), 2, FIVE, 6)[0]
    expected = training.alone("torch", training.network("mlp"), SGD(0.1), 2)
    assert training.distance(found.parameters, expected) <= 1e-6


def test_somebody_has_to_train_and_somebody_to_serve():
    assert TWO.workers(5) == 3
    with pytest.raises(UsageError, match="leaves none to train"):
        TWO.workers(2)
    with pytest.raises(DefinitionError, match="Choose servers >= 1"):
        ParameterServer(servers=0)


@given(st.lists(st.integers(0, 100), max_size=20), st.integers(1, 5))
def test_shards_hold_each_name_once_and_are_as_even_as_the_largest_allows(sizes, servers):
    named = {str(at): size for at, size in enumerate(sizes)}
    dealt = shards(named, servers)
    assert sorted(name for names in dealt for name in names) == sorted(named)
    held = [sum(named[name] for name in names) for names in dealt]
    assert max(held) - min(held) <= max(sizes, default=0)


def test_what_ranks_send_is_what_the_scheme_declares(training):
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
