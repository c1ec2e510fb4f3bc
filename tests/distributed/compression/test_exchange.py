"""Exchanges: all ranks get the same bits, nothing is lost, and what is sent is what was foretold."""

import numpy as np
import pytest

from levelbench.distributed.communicators.counting import CountingCommunicator
from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.compression.arrays import Key
from levelbench.distributed.compression.compressors import (
    CastCompressor,
    QSGDCompressor,
    RandomKCompressor,
    SignCompressor,
    ThresholdCompressor,
    TopKCompressor,
)
from levelbench.distributed.compression.exchange import Doubled, Gathered, GatheredAnyLength, InPieces, Reduced, Voted

WHOLE = {
    "top-k": (Gathered(TopKCompressor(1.0)), 0),
    "top-k doubling": (Doubled(TopKCompressor(1.0)), 0),
    "random-k": (Reduced(RandomKCompressor(1.0)), 0),
    "threshold": (GatheredAnyLength(ThresholdCompressor(0.0, False), 1.0), 0),
    "qsgd": (Gathered(QSGDCompressor(1 << 15, 16)), 2e-3),
    "qsgd in pieces": (InPieces(QSGDCompressor(1 << 15, 16)), 4e-3),
    "sign": (Gathered(SignCompressor(1)), 0),
    "fp16": (InPieces(CastCompressor("float16")), 4e-3),
    "bf16": (InPieces(CastCompressor("bfloat16")), 3e-2),
}
EXACT = [name for name in WHOLE if name not in {"threshold"}]


def given(rank, size=53, dtype=np.float32):
    return np.random.default_rng(rank).standard_normal(size).astype(dtype)


def exchanged(exchange, ranks, array=np.array, host=np.array, **options):
    """Total, what is left, and what was sent, by rank."""

    def work(communicator):
        counting = CountingCommunicator(communicator)
        flat = array(given(communicator.rank, **options))
        total, left = exchange(counting, flat, Key(1, communicator.rank, 1))
        return host(total), host(left), counting.take()

    return run_ranks(ranks, work)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_all_ranks_get_the_same_bits_and_nothing_is_lost(exchange, ranks):
    results = exchanged(exchange, ranks, dtype=np.float64)
    totals = [total for total, _, _ in results]
    assert len({total.tobytes() for total in totals}) == 1
    put_in = sum(given(rank, dtype=np.float64) for rank in range(ranks))
    found = totals[0] + sum(left for _, left, _ in results)
    # A communicator that adds in 16 bits rounds, which nobody sees.
    lossy = isinstance(exchange, Reduced) and isinstance(exchange.compressor, CastCompressor)
    np.testing.assert_allclose(found, put_in, atol=5e-3 if lossy else 1e-14 * ranks)


@pytest.mark.parametrize("name", ["top-k", "top-k doubling", "random-k", "threshold", "qsgd", "sign", "bf16"])
def test_it_takes_any_frameworks_arrays(exchanges, framework, name):
    ours = exchanged(exchanges[name], 3, framework.array, framework.host)
    numpys = exchanged(exchanges[name], 3)
    assert len({total.tobytes() for total, _, _ in ours}) == 1
    # An element between two of QSGD's levels may go to the other one, where norms differ in their last bit.
    far = np.abs(ours[0][0] - numpys[0][0]) > 1e-5
    assert far.sum() <= (2 if name == "qsgd" else 0)


@pytest.mark.parametrize("name", WHOLE)
def test_with_nothing_left_out_it_is_an_all_reduce(name):
    exchange, tolerance = WHOLE[name]
    for total, _, _ in exchanged(exchange, 3):
        np.testing.assert_allclose(total, given(0) + given(1) + given(2), rtol=1e-6, atol=tolerance or 1e-6)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [1, 8, 53])
def test_what_is_sent_is_what_was_foretold(name, ranks, size):
    exchange = WHOLE[name][0]
    for rank, (_, _, sent) in enumerate(exchanged(exchange, ranks, size=size)):
        expected = exchange.traffic(size, 4, ranks, rank)
        assert (sent.sent_bytes, sent.messages) == (expected.sent_bytes, expected.messages), rank


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_a_sum_in_half_precision_is_never_infinite_and_feedback_keeps_the_rest(ranks):
    def work(communicator):
        flat = np.array([60000.0, -1e9, 1.0], np.float32)
        return Reduced(CastCompressor("float16", summed=True))(communicator, flat, Key())

    results = run_ranks(ranks, work)
    assert np.isfinite(results[0][0]).all()
    found = results[0][0] + sum(left for _, left in results)
    np.testing.assert_allclose(found, ranks * np.array([60000.0, -1e9, 1.0]), rtol=1e-3)


def test_the_majority_wins_and_a_tie_is_nothing():
    signs = np.array([[1, 1, -1], [1, -1, -1], [2, -9, 1]], np.float32)

    def work(communicator):
        total, left = Voted(SignCompressor(3, "vote"))(communicator, signs[communicator.rank].copy(), Key())
        return total, left

    for total, left in run_ranks(3, work):
        np.testing.assert_array_equal(total, [1, -1, -1])
        assert not left.any()
    np.testing.assert_array_equal(run_ranks(2, work)[0][0], [1, 0, -1])


def test_a_rank_of_zeros_has_no_vote():
    def work(communicator):
        flat = np.array([-1, 1], np.float32) * communicator.rank
        return Voted(SignCompressor(2, "vote"))(communicator, flat, Key())[0]

    np.testing.assert_array_equal(run_ranks(2, work)[0], [-1, 1])


def test_where_nothing_reaches_the_threshold_only_counts_are_sent():
    exchange = GatheredAnyLength(ThresholdCompressor(100.0, False), 0.05)
    for total, left, sent in exchanged(exchange, 3):
        assert not total.any()
        assert left.any()
        assert sent.sent_bytes == 2 * 8
