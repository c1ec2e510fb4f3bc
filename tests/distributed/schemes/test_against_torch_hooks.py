"""PowerSGD and half precision, compared with PyTorch's communication hooks for DDP step by step."""

from types import SimpleNamespace

import numpy as np
import pytest

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.scheme import Worker
from levelbench.distributed.schemes.compressed import FP16
from levelbench.distributed.schemes.power import PowerSGD
from levelbench.operators.frameworks import load_framework
from levelbench.training.optimizers.rules import SGD

torch = pytest.importorskip("torch", reason="torch is not installed")

SHAPE, STEPS, SEED = (12, 9), 6, 7


@pytest.fixture(scope="module")
def group():
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def gradient(step):
    return torch.from_numpy(np.random.default_rng(step).standard_normal(SHAPE).astype(np.float32))


def hooked(register):
    """What PyTorch's hook turns each step's gradient into."""

    class Product(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(SHAPE))

        def forward(self, other):
            return (self.weight * other).sum()

    model = torch.nn.parallel.DistributedDataParallel(Product())
    register(model)
    found = []
    for step in range(1, STEPS + 1):
        model.zero_grad()
        model(gradient(step)).backward()
        found.append(model.module.weight.grad.clone())
    return found


def ours(scheme, prepare=lambda stepper: None):
    """What the scheme turns them into, measured by what SGD with rate 1 subtracts."""

    def work(communicator):
        weight = torch.zeros(SHAPE)
        executor = SimpleNamespace(parameters={"weight": weight}, buffers={})
        stepper = scheme.start(Worker(communicator, load_framework("torch").open(), executor, SGD(1.0)))
        prepare(stepper)
        found = []
        for step in range(1, STEPS + 1):
            before = weight.clone()
            stepper.step({"weight": gradient(step)}, step, 1.0)
            found.append(before - weight)
        return found

    return run_ranks(1, work)[0]


@pytest.mark.parametrize("rank", [1, 3])
def test_power_sgd_with_pytorchs_start_equals_pytorchs_hook(group, rank):
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as hooks

    state = hooks.PowerSGDState(
        None, matrix_approximation_rank=rank, start_powerSGD_iter=2, min_compression_rate=1, random_seed=SEED
    )
    expected = hooked(lambda model: model.register_comm_hook(state, hooks.powerSGD_hook))

    def start_as_pytorch(stepper):
        torch.manual_seed(np.random.RandomState(SEED).randint(1_000_000_000))
        stepper.right["weight"] = torch.randn(SHAPE[1], rank)

    found = ours(PowerSGD(rank=rank, dense_steps=2), start_as_pytorch)
    for step, (mine, theirs) in enumerate(zip(found, expected, strict=True), 1):
        # Differences of a sum over steps are exact to the rounding of the sum.
        torch.testing.assert_close(mine, theirs, rtol=0, atol=2e-5, msg=f"step {step}")
    assert (expected[-1] - gradient(STEPS)).abs().max() > 0.1


@pytest.mark.parametrize("narrow", [False, True])
def test_half_precision_equals_pytorchs_hook(group, narrow):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    expected = hooked(lambda model: model.register_comm_hook(None, default_hooks.fp16_compress_hook))
    found = ours(FP16(narrow=narrow, error_feedback=False))
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=2e-6)
