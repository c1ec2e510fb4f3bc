"""The array functions of compression: the same results on each framework."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from levelbench.distributed.compression import compressors
from levelbench.distributed.compression.compressors import Key, uniform


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
