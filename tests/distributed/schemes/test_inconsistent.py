import numpy as np
import pytest

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.communicators.wrapping import Delays
from levelbench.distributed.scheme import Worker
from levelbench.distributed.schemes.gossip import Gossip
from levelbench.distributed.schemes.neighbours import Neighbours
from levelbench.distributed.schemes.parameter_server import AsynchronousParameterServer, StaleSynchronous
from levelbench.distributed.schemes.periodic import DiLoCo, LocalSGD, ModelAveraging
from levelbench.networks import zoo
from levelbench.operators.frameworks import load_framework
from levelbench.training import SGD, Momentum

EPOCHS, RANKS, LEAST = 6, 4, 0.9
"""One process reaches 0.958 to 0.967 on the validation split (three seeds). A scheme loses some points, and an
asynchronous one more or fewer, as its threads take turns."""


@pytest.mark.parametrize(
    "scheme",
    [
        AsynchronousParameterServer(),
        StaleSynchronous(),
        ModelAveraging(),
        LocalSGD(),
        DiLoCo(),
        Neighbours(),
        Neighbours(graph="one-peer", mix="after"),
        Gossip(),
    ],
    ids=repr,
)
def test_digits_are_learned(training, scheme):
    assert training.accuracy(scheme, RANKS, 64, EPOCHS) >= LEAST


LOCKSTEP = [
    ModelAveraging(),
    LocalSGD(period=2),
    DiLoCo(period=2),
    Neighbours(),
    Neighbours(graph="one-peer", mix="after"),
    Gossip(ahead=0),
]
FREE = [
    Gossip(),
    Gossip(peers="random", ahead=1),
    AsynchronousParameterServer(),
    AsynchronousParameterServer(servers=2),
    StaleSynchronous(stale=1),
    StaleSynchronous(servers=2, stale=0),
]


def late(seed):
    return Delays(seed, 0.0002, slow={seed % 5: 0.0002})


@pytest.mark.parametrize("scheme", FREE, ids=repr)
def test_no_rank_waits_for_ever_with_late_messages(play, scheme):
    for seed in range(8):
        ends = play(scheme, 4, 4, delays=late(seed), meet=3, optimizer=Momentum(0.1, 0.5))
        assert all(np.isfinite(end.parameters["w"]).all() for end in ends)


@pytest.mark.parametrize("scheme", LOCKSTEP, ids=repr)
def test_late_messages_change_nothing_in_lockstep(play, scheme):
    punctual = play(scheme, 4, 4, meet=3)
    for seed in range(8):
        ends = play(scheme, 4, 4, delays=late(seed), meet=3)
        for end, other in zip(ends, punctual, strict=True):
            assert (end.parameters["w"] == other.parameters["w"]).all()
            assert (end.averaged["w"] == other.averaged["w"]).all()


TEAM, STEPS = 3, 4
SCHEMES = [
    ModelAveraging(every=2, optimizer_state=True),
    DiLoCo(period=2),
    Neighbours(),
    Gossip(ahead=0),
    AsynchronousParameterServer(servers=2),
    StaleSynchronous(stale=0),
]


def trained(scheme, framework, size, network):
    """The evaluated weights after a few steps with gradients that depend only on rank and step."""

    def work(communicator):
        backend, workers, rank = load_framework(framework).open("cpu"), scheme.workers(size), communicator.rank
        executor = backend.executor(network, network.initialise(rank))
        # Plain SGD gives the same sum for any order of arrival.
        optimizer = Momentum(0.1, 0.9) if scheme.lockstep else SGD(0.1)
        stepper = scheme.start(Worker(communicator, backend, executor, optimizer))
        if rank >= workers:
            stepper.serve(1, STEPS, lambda step: 1.0)
        for step in range(1, STEPS + 1) if rank < workers else ():
            stepper.share = 1 / workers
            gradients = {
                name: backend.array(np.full(each.shape, (rank + 1) / step, np.float32))
                for name, each in executor.parameters.items()
            }
            stepper.step(gradients, step, 1.0)
        stepper.meet()
        found = stepper.averaged() if rank < workers else {}
        stepper.close()
        return {name: backend.host(each) for name, each in found.items()}

    return run_ranks(size, work)[0]


def agrees_with_numpy(scheme, framework, size, network):
    expected, found = (trained(scheme, each, size, network.with_loss()) for each in ("numpy", framework))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_a_scheme_does_the_same_on_pytorch_as_on_numpy(scheme):
    pytest.importorskip("torch")
    agrees_with_numpy(scheme, "torch", TEAM, zoo.mlp(3, 2, 2))


def test_on_jax_an_anchor_survives_the_donation_of_parameters():
    pytest.importorskip("jax")
    # One rank and few shapes: JAX compiles each function for each shape, on each thread that needs it first.
    agrees_with_numpy(DiLoCo(period=2), "jax", 1, zoo.mlp(1, 1, 1))
