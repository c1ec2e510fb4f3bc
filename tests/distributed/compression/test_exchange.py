"""Exchanges: all ranks get the same bits, nothing is lost, and traffic is as declared."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.communicators.wrapping import CountingCommunicator, Delays
from levelbench.distributed.compression.compressors import (
    CastCompressor,
    Key,
    QSGDCompressor,
    RandomKCompressor,
    SignCompressor,
    ThresholdCompressor,
    TopKCompressor,
)
from levelbench.distributed.compression.exchange import (
    Doubled,
    ErrorFeedback,
    Gathered,
    GatheredAnyLength,
    InPieces,
    Reduced,
    SparseStream,
    Voted,
    merged,
)

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


def gradient_of(rank, size=53, dtype=np.float32):
    return np.random.default_rng(rank).standard_normal(size).astype(dtype)


def exchanged(exchange, ranks, array=np.array, host=np.array, **options):
    """The total, what is left, and what was sent, by rank."""

    def work(communicator):
        counting = CountingCommunicator(communicator)
        flat = array(gradient_of(communicator.rank, **options))
        total, left = exchange(counting, flat, Key(1, communicator.rank, 1))
        return host(total), host(left), counting.take()

    return run_ranks(ranks, work)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_all_ranks_get_the_same_bits_and_nothing_is_lost(exchange, ranks):
    results = exchanged(exchange, ranks, dtype=np.float64)
    totals = [total for total, _, _ in results]
    assert len({total.tobytes() for total in totals}) == 1
    put_in = sum(gradient_of(rank, dtype=np.float64) for rank in range(ranks))
    found = totals[0] + sum(left for _, left, _ in results)
    # A communicator that adds in 16 bits rounds, and the residual does not contain that.
    lossy = isinstance(exchange, Reduced) and isinstance(exchange.compressor, CastCompressor)
    np.testing.assert_allclose(found, put_in, atol=5e-3 if lossy else 1e-14 * ranks)


@pytest.mark.parametrize("name", ["top-k", "top-k doubling", "random-k", "threshold", "qsgd", "sign", "bf16"])
def test_exchanges_work_with_any_frameworks_arrays(exchanges, framework, name):
    ours = exchanged(exchanges[name], 3, framework.array, framework.host)
    numpys = exchanged(exchanges[name], 3)
    assert len({total.tobytes() for total, _, _ in ours}) == 1
    # An element between two QSGD levels may be rounded differently if norms differ in the last bit.
    far = np.abs(ours[0][0] - numpys[0][0]) > 1e-5
    assert far.sum() <= (2 if name == "qsgd" else 0)


@pytest.mark.parametrize("name", WHOLE)
def test_a_lossless_exchange_is_an_all_reduce(name):
    exchange, tolerance = WHOLE[name]
    for total, _, _ in exchanged(exchange, 3):
        np.testing.assert_allclose(
            total, gradient_of(0) + gradient_of(1) + gradient_of(2), rtol=1e-6, atol=tolerance or 1e-6
        )


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [1, 8, 53])
def test_an_exchange_sends_what_it_declares(name, ranks, size):
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


def test_the_majority_wins_and_a_tie_is_zero():
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


def test_only_counts_are_sent_if_nothing_reaches_the_threshold():
    exchange = GatheredAnyLength(ThresholdCompressor(100.0, False), 0.05)
    for total, left, sent in exchanged(exchange, 3):
        assert not total.any()
        assert left.any()
        assert sent.sent_bytes == 2 * 8


LIKE = np.zeros(12, np.float32)


def stream(places, values):
    return SparseStream(np.array(values, np.float32), np.array(places, np.int64))


def test_values_at_one_place_are_added():
    found = merged(stream([5, 1], [1, 2]), stream([7, 5], [4, 8]), LIKE)
    np.testing.assert_array_equal(found.places, [1, 5, 7])
    np.testing.assert_array_equal(found.values, [2, 9, 4])


def test_a_stream_becomes_dense_if_that_takes_no_more_bytes():
    first, second = stream([0, 1, 2], [1, 1, 1]), stream([3, 4, 5], [1, 1, 1])
    assert merged(first, stream([3, 4], [1, 1]), LIKE).places is not None  # 5 of 8 bytes, 12 of 4
    assert merged(first, second, LIKE).places is None
    np.testing.assert_array_equal(merged(first, second, LIKE).values, [1] * 6 + [0] * 6)


@pytest.mark.parametrize("dense", [0, 1])
def test_a_dense_and_a_sparse_stream_make_a_dense_one(dense):
    pair = [stream([2, 3], [1, 2]), stream([3, 4], [10, 20])]
    pair[dense] = SparseStream(pair[dense].dense(LIKE))
    np.testing.assert_array_equal(merged(*pair, LIKE).values, [0, 0, 1, 12, 20, *[0] * 7])


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("own", [5, 60])
def test_random_places_send_about_the_expected_traffic(ranks, own):
    size, steps = 200, 8
    exchange = Doubled(TopKCompressor(own / size))

    def gradient(rank, step):
        return np.random.default_rng((rank, step)).standard_normal(size).astype(np.float32)

    def work(communicator):
        counting = CountingCommunicator(communicator)
        for step in range(steps):
            total, _ = exchange(counting, gradient(communicator.rank, step), Key())
        return total, counting.take()

    compressor = TopKCompressor(own / size)
    kept = [gradient(rank, steps - 1) for rank in range(ranks)]
    expected = sum(compressor.decompress(compressor.compress(each, Key()), each) for each in kept)
    for rank, (total, sent) in enumerate(run_ranks(ranks, work)):
        np.testing.assert_allclose(total, expected, atol=1e-6)
        declared = exchange.traffic(size, 4, ranks, rank) * steps
        assert sent.messages == declared.messages, rank
        assert sent.sent_bytes == pytest.approx(declared.sent_bytes, rel=0.06), rank


@pytest.mark.parametrize("seed", range(3))
def test_delays_cause_no_deadlock_and_change_no_bit(seed):
    def work(communicator):
        flat = np.random.default_rng(communicator.rank).standard_normal(30).astype(np.float32)
        return Doubled(TopKCompressor(0.2))(communicator, flat, Key())[0].tobytes()

    assert len(set(run_ranks(5, work, delays=Delays(seed=seed, most_s=0.001)))) == 1
    assert run_ranks(5, work) == run_ranks(5, work, delays=Delays(seed=seed, most_s=0.001))


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


def test_without_feedback_the_rest_is_discarded(exchanges):
    (applied, residual), *_ = after(exchanges["top-k"], 2, 3, 40, 0, enabled=False)
    assert residual is None
    whole = sum(gradient(0, rank, step, 40) for rank in range(2) for step in range(1, 4))
    assert np.abs(applied - whole).max() > 1
