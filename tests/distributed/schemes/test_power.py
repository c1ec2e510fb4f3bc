"""PowerSGD: the paper's iteration, compared with its definition and PyTorch's hook."""

import numpy as np
import pytest

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.scheme import Worker
from levelbench.distributed.schemes.power import PowerSGD
from levelbench.errors import DefinitionError
from levelbench.operators.frameworks import load_framework
from levelbench.training.optimizers.rules import SGD

SHAPES = {"matrix": (12, 9), "vector": (5,), "kernel": (6, 2, 3, 3)}


class Executor:
    """Live parameters, initially zero, so that with SGD of rate 1 they are minus the sum of updates."""

    def __init__(self, dtype=np.float64):
        self.parameters = {name: np.zeros(shape, dtype) for name, shape in SHAPES.items()}
        self.buffers = {}


def gradients(rank, step, rank_of_matrix=None):
    draws = np.random.default_rng((rank, step))
    made = {name: draws.standard_normal(shape) for name, shape in SHAPES.items()}
    if rank_of_matrix is not None:
        # The same column space on all ranks.
        basis = np.random.default_rng(0).standard_normal((12, rank_of_matrix))
        made["matrix"] = basis @ draws.standard_normal((rank_of_matrix, 9))
    return made


def applied(scheme, ranks, steps, **options):
    """The sum of all updates, and the residuals, by rank."""

    def work(communicator):
        executor = Executor()
        stepper = scheme.start(Worker(communicator, load_framework("numpy").open(), executor, SGD(1.0), 3))
        stepper.share = 1 / ranks
        for step in range(1, steps + 1):
            stepper.step(gradients(communicator.rank, step, **options), step, 1.0)
        sums = {name: -value for name, value in executor.parameters.items()}
        return sums, {name: each.copy() for name, each in stepper.residuals.items()}

    return run_ranks(ranks, work)


def whole(ranks, steps, **options):
    parts = [gradients(rank, step, **options) for rank in range(ranks) for step in range(1, steps + 1)]
    return {name: sum(each[name] for each in parts) / ranks for name in SHAPES}


def test_updates_and_residuals_sum_to_all_gradients():
    results = applied(PowerSGD(rank=2), 3, 6)
    for name, expected in whole(3, 6).items():
        found = results[0][0][name] + sum(left[name].reshape(expected.shape) for _, left in results if name in left)
        np.testing.assert_allclose(found, expected, atol=1e-12)
    assert set(results[0][1]) == {"matrix", "kernel"}


@pytest.mark.parametrize(("rank", "exact"), [(2, False), (3, True), (4, True)])
def test_a_matrix_of_lower_rank_is_exact(rank, exact):
    scheme = PowerSGD(rank=rank, least_ratio=0.0, error_feedback=False)
    found = applied(scheme, 2, 1, rank_of_matrix=3)[0][0]["matrix"]
    expected = whole(2, 1, rank_of_matrix=3)["matrix"]
    assert (np.abs(found - expected).max() < 1e-12) == exact


def test_a_warm_start_converges_to_the_best_approximation():
    """With a constant matrix and no feedback, the iteration's limit is the truncated decomposition."""
    matrix = np.random.default_rng(0).standard_normal((12, 9))
    left, values, right = np.linalg.svd(matrix)
    best = (left[:, :2] * values[:2]) @ right[:2]
    errors = {}
    for warm in (True, False):

        def work(communicator, warm=warm):
            executor = Executor()
            scheme = PowerSGD(rank=2, warm_start=warm, error_feedback=False)
            stepper = scheme.start(Worker(communicator, load_framework("numpy").open(), executor, SGD(1.0)))
            for step in range(1, 101):
                before = executor.parameters["matrix"].copy()
                stepper.step({**gradients(0, 1), "matrix": matrix.copy()}, step, 1.0)
            return before - executor.parameters["matrix"]

        errors[warm] = np.abs(run_ranks(1, work)[0] - best).max()
    assert errors[True] < 1e-6 < 1e-2 < errors[False]


def test_16_bit_gradients_are_refused():
    def work(communicator):
        return PowerSGD().start(Worker(communicator, load_framework("numpy").open(), Executor(np.float16), SGD(1.0)))

    with pytest.raises(DefinitionError, match="float32"):
        run_ranks(1, work)
