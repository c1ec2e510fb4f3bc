"""Compression of JAX's arrays, which cannot be written to: what NumPy's have, in new arrays."""

import numpy as np
import pytest

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.compression.arrays import Key
from levelbench.distributed.compression.compressors import QSGDCompressor, TopKCompressor
from levelbench.distributed.compression.exchange import Gathered

EXCHANGES = {
    "top-k": Gathered(TopKCompressor(0.25)),
    # With the largest element as scale no sum is rounded, and draws decide alike.
    "qsgd": Gathered(QSGDCompressor(127, 32, "max")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXCHANGES)
def test_ranks_of_jax_get_what_ranks_of_numpy_get(jax_arrays, name):
    def work(communicator, array, host):
        given = np.random.default_rng(communicator.rank).standard_normal(64).astype(np.float32)
        total, left = EXCHANGES[name](communicator, array(given), Key(1, communicator.rank, 1))
        return host(total), host(left)

    # A rank alone comes first, as two of them would compile everything twice.
    for ranks in (1, 2):
        ours = run_ranks(ranks, lambda communicator: work(communicator, jax_arrays.array, jax_arrays.host))
    expected = run_ranks(2, lambda communicator: work(communicator, np.array, np.array))
    assert ours[0][0].tobytes() == ours[1][0].tobytes()
    for found, wanted in zip(ours, expected, strict=True):
        np.testing.assert_allclose(found[0], wanted[0], atol=1e-6)
        np.testing.assert_allclose(found[1], wanted[1], atol=1e-6)
