"""Compressors on their own: their array functions, what they keep, their errors, and their bytes."""

from itertools import combinations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.compression import compressors
from levelbench.distributed.compression.compressors import (
    CastCompressor,
    Key,
    QSGDCompressor,
    RandomKCompressor,
    SignCompressor,
    ThresholdCompressor,
    TopKCompressor,
    as_bytes,
    uniform,
)
from levelbench.distributed.compression.exchange import Gathered
from levelbench.distributed.schemes.power import Factors, orthonormal, start
from levelbench.errors import UnsupportedError

KEY = Key()
COMPRESSORS = {
    "top-k": TopKCompressor(0.1),
    "random-k": RandomKCompressor(0.1),
    "threshold": ThresholdCompressor(1.0, True),
    "qsgd": QSGDCompressor(7, 16),
    "qsgd max": QSGDCompressor(100, 16, "max"),
    "sign": SignCompressor(16),
    "means": SignCompressor(16, "means"),
    "vote": SignCompressor(16, "vote"),
    "fp16": CastCompressor("float16"),
    "bf16": CastCompressor("bfloat16"),
}


def normal(size, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(size).astype(dtype)


def estimate(compressor, values, key=KEY):
    return compressor.decompress(compressor.compress(values, key), values)


@given(bits=st.integers(1, 17), count=st.integers(0, 40), seed=st.integers(0, 99))
def test_packed_codes_round_trip_in_the_fewest_bytes(bits, count, seed):
    codes = np.random.default_rng(seed).integers(0, 1 << bits, count).astype(np.int32)
    packed = compressors.pack_codes(codes, bits)
    assert packed.dtype == np.uint8
    assert packed.size == compressors.packed_size(count, bits) < (count * bits) / 8 + bits
    np.testing.assert_array_equal(compressors.unpack_codes(packed, bits, count), codes)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8, 11])
def test_codes_are_packed_to_the_same_bytes_on_each_framework(framework, bits):
    codes = np.random.default_rng(bits).integers(0, 1 << bits, 37).astype(np.int32)
    packed = compressors.pack_codes(framework.array(codes), bits)
    np.testing.assert_array_equal(framework.host(packed), compressors.pack_codes(codes, bits))
    np.testing.assert_array_equal(framework.host(compressors.unpack_codes(packed, bits, 37)), codes)


@pytest.mark.parametrize("count", [1, 7, 50, 60])
def test_the_largest_elements_are_found_in_any_order(framework, count):
    values = np.random.default_rng(0).permutation(50).astype(np.float32)
    found = framework.host(compressors.largest(framework.array(values), count))
    np.testing.assert_array_equal(np.sort(values[found]), np.arange(50)[max(0, 50 - count) :])


def test_values_are_only_added_at_their_places(framework):
    target = framework.array(np.zeros(5, np.float32))
    places, values = framework.array(np.array([3, 1])), framework.array(np.array([2.0, 4.0], np.float32))
    result = framework.host(compressors.add_at(target, places, values))
    np.testing.assert_array_equal(result, np.array([0, 4, 0, 2, 0], np.float32))


def test_parts_of_any_types_come_back_from_their_bytes(framework):
    parts = [np.array([1, 2, 3], np.uint8), np.array([0.5, -1], np.float32), np.array([7], np.int32)]
    native = [framework.array(part) for part in parts]
    data = compressors.as_bytes(native)
    assert data.shape == (3 + 8 + 4,)
    kinds = [(part.shape[0], part.dtype, host.itemsize) for part, host in zip(native, parts, strict=True)]
    for found, expected in zip(compressors.from_bytes(data, kinds), parts, strict=True):
        np.testing.assert_array_equal(framework.host(found), expected)


LIKE = np.zeros(1, np.float64)


def test_each_framework_draws_the_same_bits(framework):
    like = framework.array(np.zeros(1, np.float32))
    found = framework.host(uniform(1000, like, Key(3, 1, 7)))
    np.testing.assert_array_equal(found, uniform(1000, np.zeros(1, np.float32), Key(3, 1, 7)))
    assert found.dtype == np.float32


@pytest.mark.parametrize("key", [Key(), Key(1, 0, 1), Key(0, 5, 1234567)])
def test_draws_are_uniform_in_the_open_interval(key):
    draws = uniform(20_000, LIKE, key)
    assert draws.min() > 0
    assert draws.max() < 1
    assert stats.kstest(draws, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 4 / np.sqrt(20_000)


def test_draws_of_different_keys_are_independent():
    keys = [Key(0, 0, 1), Key(1, 0, 1), Key(0, 1, 1), Key(0, 0, 2), Key(0, 0, 1, 1), Key(0, 0, 1, 0, 1)]
    for first, second in combinations([uniform(10_000, LIKE, key) for key in keys], 2):
        assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(10_000)
        # Nor are they the same numbers in another order.
        assert np.intersect1d(first, second).size < 50


@pytest.mark.parametrize("name", COMPRESSORS)
def test_each_framework_compresses_a_gradient_equally(framework, name):
    compressor, values = COMPRESSORS[name], normal(101)
    native = framework.array(values)
    payload = compressor.compress(native, Key(5))
    found = framework.host(compressor.decompress(payload, native))
    np.testing.assert_array_equal(framework.host(native), values)
    # Norms are summed in another order, which may move an element between two levels to the other one.
    expected = estimate(compressor, values, Key(5))
    far = np.abs(found - expected) > 1e-5
    assert far.sum() <= (1 if isinstance(compressor, QSGDCompressor) else 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", sorted(set(COMPRESSORS) - {"threshold", "random-k"}))
def test_a_payload_round_trips_through_the_declared_bytes(name, dtype):
    compressor, values = COMPRESSORS[name], normal(101, dtype=dtype)
    payload = compressor.compress(values, Key())
    data = as_bytes(payload)
    assert data.nbytes == compressor.nbytes(101, values.itemsize)
    again = compressor.decompress(compressor.parted(data, values), values)
    np.testing.assert_array_equal(again, compressor.decompress(payload, values))


@pytest.mark.parametrize("name", COMPRESSORS)
@pytest.mark.parametrize("size", [1, 16, 17])
def test_any_number_of_zeros_stays_zero(name, size):
    values = np.zeros(size, np.float32)
    np.testing.assert_array_equal(estimate(COMPRESSORS[name], values), values)


def test_top_k_keeps_the_largest_magnitudes_unchanged():
    values = normal(100)
    found = estimate(TopKCompressor(0.07), values)
    kept = np.argsort(-np.abs(values))[:7]
    np.testing.assert_array_equal(np.sort(np.flatnonzero(found)), np.sort(kept))
    np.testing.assert_array_equal(found[kept], values[kept])


def test_random_k_uses_the_same_places_on_all_ranks_and_new_ones_each_step():
    compressor, values = RandomKCompressor(0.2), normal(100)
    places = [compressor.compress(values, Key(3, rank, step))[1] for rank, step in ((0, 1), (7, 1), (0, 2))]
    np.testing.assert_array_equal(places[0], places[1])
    assert len(np.unique(places[0])) == 20
    assert set(places[0]) != set(places[2])


def test_random_k_chooses_all_places_equally_often():
    compressor, values = RandomKCompressor(0.1), np.ones(50, np.float32)
    counts = sum(estimate(compressor, values, Key(0, 0, step)) for step in range(500))
    # Binomial(500, 0.1): mean 50, standard deviation 6.7.
    assert np.abs(counts - 50).max() < 5 * 6.7


@pytest.mark.parametrize(("threshold", "relative", "kept"), [(2.0, False, 2), (2.0, True, 1), (0.0, True, 4)])
def test_a_threshold_keeps_what_reaches_it_and_never_a_zero(threshold, relative, kept):
    values = np.array([0, 1, -2, 1, 0, 0, 0, 4], np.float32)  # root mean square 1.66
    assert np.count_nonzero(estimate(ThresholdCompressor(threshold, relative), values)) == kept


@pytest.mark.parametrize("unit", [1e20, 1e-25])
def test_a_relative_threshold_is_the_same_where_squares_overflow_or_vanish(unit):
    values = np.array([0, 1, -2, 1, 0, 0, 0, 4], np.float32) * np.float32(unit)
    assert np.nonzero(estimate(ThresholdCompressor(2.0, True), values))[0].tolist() == [7]


@pytest.mark.parametrize(
    "compressor", [QSGDCompressor(1, 8), QSGDCompressor(5, 8), QSGDCompressor(3, 8, "max")], ids=str
)
def test_qsgd_is_unbiased_and_its_variance_within_the_bound(compressor):
    values, trials = normal(8, dtype=np.float64), 5000
    # A bucket is a trial.
    found = estimate(compressor, np.tile(values, trials)).reshape(trials, 8)
    error = found.mean(0) - values
    spread = found.std(0, ddof=1) / np.sqrt(trials)
    assert (np.abs(error) < 4.5 * spread + 1e-12).all()
    variance = ((found - values) ** 2).sum(1).mean()
    assert variance <= compressor.variance * (values**2).sum()


def test_qsgd_is_as_exact_as_its_levels():
    values = normal(64)
    norm = np.linalg.norm(values)
    assert np.abs(estimate(QSGDCompressor(1 << 15, 64), values) - values).max() <= norm / (1 << 15) * 1.01


@pytest.mark.parametrize("norm", ["l2", "max"])
def test_levels_of_a_vanishing_gradient_are_finite(framework, norm):
    values = np.array([1e-38, -3e-39, 0.0, 0.0], np.float32)
    compressor, native = QSGDCompressor(127, 4, norm), framework.array(values)
    found = framework.host(compressor.decompress(compressor.compress(native, KEY), native))
    assert np.abs(found).max() <= 1.1e-38
    assert not found[2:].any()


def test_scales_of_signs_are_per_bucket():
    values = np.array([1, -3, 2, -2, 10, -20, 30], np.float32)
    np.testing.assert_allclose(estimate(SignCompressor(4), values), [2, -2, 2, -2, 20, -20, 20])
    np.testing.assert_allclose(estimate(SignCompressor(4, "means"), values), [1.5, -2.5, 1.5, -2.5, 20, -20, 20])
    np.testing.assert_allclose(estimate(SignCompressor(4, "vote"), values), np.sign(values))


def test_means_are_the_best_two_values_for_signs():
    values = normal(32, dtype=np.float64)
    best = ((estimate(SignCompressor(32, "means"), values) - values) ** 2).sum()
    high, low = values[values >= 0].mean(), values[values < 0].mean()
    for change in (-0.01, 0.01):
        for pair in ((high + change, low), (high, low + change)):
            assert ((np.where(values >= 0, *pair) - values) ** 2).sum() > best


def test_bfloat16_rounding_agrees_with_others(framework):
    values = np.concatenate(
        [normal(500) * 10.0 ** np.arange(-250, 250).clip(-40, 37), [0, -0.0, np.inf, -np.inf, np.nan]]
    )
    values = values.astype(np.float32)
    # Halfway between two neighbours: rounded to the even one.
    values = np.concatenate([values, (np.arange(64, dtype=np.uint32) * 0x8000 + 0x3F800000).view(np.float32)])
    native = framework.array(values)
    compressor = CastCompressor("bfloat16")
    found = framework.host(compressor.compress(native, Key())[0]).view(np.uint16)
    np.testing.assert_array_equal(
        found.view(ml_dtypes.bfloat16).astype(np.float32), values.astype(ml_dtypes.bfloat16).astype(np.float32)
    )
    finite = framework.array(values[np.isfinite(values)])
    expected = values[np.isfinite(values)].astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(
        framework.host(compressor.decompress(compressor.compress(finite, Key()), finite)), expected
    )


def test_half_precision_saturates_instead_of_becoming_infinite():
    values = np.array([1e6, -1e6, 1.0, 65504.0], np.float32)
    np.testing.assert_array_equal(estimate(CastCompressor("float16"), values), [65504, -65504, 1, 65504])


def test_a_sum_in_bfloat16_is_refused_where_the_arrays_have_none():
    with pytest.raises(UnsupportedError, match="bfloat16"):
        CastCompressor("bfloat16", summed=True).compress(normal(4), Key())


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
def test_a_matrix_without_savings_is_not_compressed(shape, rank, least_ratio, expected):
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


EXCHANGES = {
    "top-k": Gathered(TopKCompressor(0.25)),
    # With the largest element as scale no sum is rounded, so draws have the same effect.
    "qsgd": Gathered(QSGDCompressor(127, 32, "max")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXCHANGES)
def test_jax_ranks_get_the_same_as_numpy_ranks(jax_arrays, name):
    def work(communicator, array, host):
        given = np.random.default_rng(communicator.rank).standard_normal(64).astype(np.float32)
        total, left = EXCHANGES[name](communicator, array(given), Key(1, communicator.rank, 1))
        return host(total), host(left)

    # A single rank runs first, because two would compile everything twice.
    for ranks in (1, 2):
        ours = run_ranks(ranks, lambda communicator: work(communicator, jax_arrays.array, jax_arrays.host))
    expected = run_ranks(2, lambda communicator: work(communicator, np.array, np.array))
    assert ours[0][0].tobytes() == ours[1][0].tobytes()
    for found, wanted in zip(ours, expected, strict=True):
        np.testing.assert_allclose(found[0], wanted[0], atol=1e-6)
        np.testing.assert_allclose(found[1], wanted[1], atol=1e-6)
