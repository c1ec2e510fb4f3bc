import numpy as np
import pytest

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.scheme import Worker
from levelbench.distributed.schemes.gossip import Gossip
from levelbench.distributed.schemes.neighbours import Neighbours
from levelbench.distributed.schemes.parameter_server import AsynchronousParameterServer, StaleSynchronous
from levelbench.distributed.schemes.periodic import DiLoCo, ModelAveraging
from levelbench.networks import zoo
from levelbench.operators.frameworks import load_framework
from levelbench.training import SGD, Momentum

RANKS, STEPS = 3, 4
SCHEMES = [
    ModelAveraging(every=2, optimizer_state=True),
    DiLoCo(period=2),
    Neighbours(),
    Gossip(ahead=0),
    AsynchronousParameterServer(servers=2),
    StaleSynchronous(stale=0),
]


def trained(scheme, framework, size, network):
    """What is evaluated after a few steps with gradients that depend on the rank and the step alone."""

    def work(communicator):
        backend, workers, rank = load_framework(framework).open("cpu"), scheme.workers(size), communicator.rank
        executor = backend.executor(network, network.initialise(rank))
        # In any order of arrival, plain SGD comes to the same sum.
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
def test_on_pytorch_a_scheme_does_what_it_does_on_numpy(scheme):
    pytest.importorskip("torch")
    agrees_with_numpy(scheme, "torch", RANKS, zoo.mlp(3, 2, 2))


def test_on_jax_an_anchor_outlives_the_parameters_whose_memory_the_optimizer_takes():
    pytest.importorskip("jax")
    # One rank and few shapes: JAX compiles each function for each shape, on each of the threads that want it first.
    agrees_with_numpy(DiLoCo(period=2), "jax", 1, zoo.mlp(1, 1, 1))
