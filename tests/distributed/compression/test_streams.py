"""Sparse arrays added up in pairs."""

import numpy as np
import pytest

from levelbench.distributed.communicators.counting import CountingCommunicator
from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.communicators.wrapping import Delays
from levelbench.distributed.compression.arrays import Key
from levelbench.distributed.compression.compressors import TopKCompressor
from levelbench.distributed.compression.exchange import Doubled, SparseStream, merged

LIKE = np.zeros(12, np.float32)


def stream(places, values):
    return SparseStream(np.array(values, np.float32), np.array(places, np.int64))


def test_values_at_one_place_are_added():
    found = merged(stream([5, 1], [1, 2]), stream([7, 5], [4, 8]), LIKE)
    np.testing.assert_array_equal(found.places, [1, 5, 7])
    np.testing.assert_array_equal(found.values, [2, 9, 4])


def test_a_stream_becomes_dense_where_that_takes_no_more_bytes():
    first, second = stream([0, 1, 2], [1, 1, 1]), stream([3, 4, 5], [1, 1, 1])
    assert merged(first, stream([3, 4], [1, 1]), LIKE).places is not None  # 5 of 8 bytes, 12 of 4
    assert merged(first, second, LIKE).places is None
    np.testing.assert_array_equal(merged(first, second, LIKE).values, [1] * 6 + [0] * 6)


@pytest.mark.parametrize("dense", [0, 1])
def test_a_dense_and_a_sparse_one_make_a_dense_one(dense):
    pair = [stream([2, 3], [1, 2]), stream([3, 4], [10, 20])]
    pair[dense] = SparseStream(pair[dense].dense(LIKE))
    np.testing.assert_array_equal(merged(*pair, LIKE).values, [0, 0, 1, 12, 20, *[0] * 7])


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("own", [5, 60])
def test_random_places_send_what_was_foretold(ranks, own):
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
        foretold = exchange.traffic(size, 4, ranks, rank) * steps
        assert sent.messages == foretold.messages, rank
        assert sent.sent_bytes == pytest.approx(foretold.sent_bytes, rel=0.06), rank


@pytest.mark.parametrize("seed", range(3))
def test_delays_lead_to_no_deadlock_and_no_other_bits(seed):
    def work(communicator):
        flat = np.random.default_rng(communicator.rank).standard_normal(30).astype(np.float32)
        return Doubled(TopKCompressor(0.2))(communicator, flat, Key())[0].tobytes()

    assert len(set(run_ranks(5, work, delays=Delays(seed=seed, most_s=0.001)))) == 1
    assert run_ranks(5, work) == run_ranks(5, work, delays=Delays(seed=seed, most_s=0.001))
