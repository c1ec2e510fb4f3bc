"""Error feedback: over any steps, what was applied and what is left make up all gradients."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.compression.arrays import Key
from levelbench.distributed.compression.exchange import ErrorFeedback


def gradient(seed, rank, step, size):
    draws = np.random.default_rng((seed, rank, step))
    return draws.standard_normal(size) * 10.0 ** draws.integers(-3, 3)


def after(exchange, ranks, steps, size, seed, enabled=True):
    """What was applied and what is left, by rank."""

    def work(communicator):
        feedback, applied = ErrorFeedback(enabled), np.zeros(size)
        for step in range(1, steps + 1):
            flat = gradient(seed, communicator.rank, step, size)
            before = flat.copy()
            applied += feedback.total(communicator, exchange, flat, Key(seed, communicator.rank, step))
            np.testing.assert_array_equal(flat, before)
        return applied, feedback.residual

    return run_ranks(ranks, work)


@pytest.mark.parametrize("name", ["top-k", "top-k doubling", "random-k", "threshold", "qsgd", "sign", "fp16", "bf16"])
@settings(max_examples=8, deadline=None)
@given(ranks=st.integers(1, 4), steps=st.integers(1, 5), size=st.integers(1, 40), seed=st.integers(0, 1000))
def test_nothing_is_ever_lost(exchanges, name, ranks, steps, size, seed):
    results = after(exchanges[name], ranks, steps, size, seed)
    whole = sum(gradient(seed, rank, step, size) for rank in range(ranks) for step in range(1, steps + 1))
    found = results[0][0] + sum(residual for _, residual in results)
    np.testing.assert_allclose(found, whole, rtol=0, atol=1e-11)


def test_without_it_what_is_left_out_is_gone(exchanges):
    (applied, residual), *_ = after(exchanges["top-k"], 2, 3, 40, 0, enabled=False)
    assert residual is None
    whole = sum(gradient(0, rank, step, 40) for rank in range(2) for step in range(1, 4))
    assert np.abs(applied - whole).max() > 1
