"""Matrices of low rank."""

import numpy as np
import pytest

from levelbench.distributed.compression.arrays import Key
from levelbench.distributed.schemes.power import Factors, orthonormal, start


@pytest.mark.parametrize(
    ("shape", "rank", "least_ratio", "expected"),
    [
        ((), 2, 1.0, None),
        ((100,), 2, 1.0, None),
        ((0, 5), 2, 1.0, None),
        ((4, 4), 2, 1.0, None),
        ((4, 4), 1, 1.0, (4, 4, 1)),
        ((4, 4), 1, 2.0, None),
        ((4, 4), 9, 0.0, (4, 4, 4)),
        ((16, 3, 3, 3), 2, 1.0, (16, 27, 2)),
    ],
)
def test_what_gains_nothing_travels_as_it_is(shape, rank, least_ratio, expected):
    found = Factors.of(shape, rank, least_ratio)
    assert found == (None if expected is None else Factors(*expected))


def test_a_basis_is_orthonormal_and_of_the_same_columns(framework):
    matrix = np.random.default_rng(0).standard_normal((9, 3)).astype(np.float32)
    basis = framework.host(orthonormal(framework.array(matrix)))
    np.testing.assert_allclose(basis.T @ basis, np.eye(3), atol=1e-6)
    np.testing.assert_allclose(basis @ (basis.T @ matrix), matrix, atol=1e-5)


def test_a_start_is_orthonormal_and_the_same_on_all_ranks(framework):
    like = framework.array(np.zeros((9, 5), np.float32))
    first, second = (framework.host(start(Factors(9, 5, 2), like, Key(4, rank, 1))) for rank in (0, 3))
    np.testing.assert_array_equal(first, second)
    assert first.dtype == np.float32
    np.testing.assert_allclose(first.T @ first, np.eye(2), atol=1e-6)
