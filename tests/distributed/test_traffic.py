"""Closed forms, compared with the totals in the papers; communicators/test_algorithmic.py compares counted messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.distributed import traffic
from levelbench.distributed.scheme import Traffic
from levelbench.distributed.traffic import ALGORITHMS, Algorithms
from levelbench.errors import UnknownNameError, UsageError


def whole(form, size, **arguments):
    return sum((form(size=size, rank=rank, **arguments) for rank in range(size)), Traffic(0, 0))


@given(st.integers(1, 40), st.integers(2, 20))
def test_a_ring_sends_two_p_minus_one_over_p_of_the_array(length, size):
    elements = length * size
    sent = traffic.all_reduce(elements, 4, size, size - 1)
    assert sent.sent_bytes == 4 * 2 * (size - 1) * elements // size
    assert sent.messages == 2 * (size - 1)


@given(st.integers(0, 60), st.integers(1, 20))
def test_bandwidth_optimal_all_reduces_send_each_element_twice_p_minus_one_times(elements, size):
    least = 2 * (size - 1) * elements * 8
    for algorithm in ("ring", "tree", "direct"):
        assert whole(traffic.all_reduce, size, elements=elements, itemsize=8, algorithm=algorithm).sent_bytes == least


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_halving_and_doubling_sends_as_few_bytes_as_the_ring_in_log_p_messages(size):
    for rank in range(size):
        ring = traffic.all_reduce(32, 4, size, rank)
        other = traffic.all_reduce(32, 4, size, rank, "halving-doubling")
        assert other.sent_bytes == ring.sent_bytes
        assert other.messages == 2 * (size.bit_length() - 1)


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_recursive_doubling_sends_everything_log_p_times(size):
    assert traffic.all_reduce(10, 4, size, 1, "recursive-doubling") == Traffic(40, 1) * (size.bit_length() - 1)


@given(st.integers(1, 60), st.integers(2, 20), st.data())
def test_a_tree_sends_p_minus_one_messages_in_all_from_any_root(elements, size, data):
    root = data.draw(st.integers(0, size - 1))
    sent = whole(traffic.broadcast, size, elements=elements, itemsize=4, root=root)
    assert sent == Traffic(4 * elements * (size - 1), size - 1)


@pytest.mark.parametrize(("operation", "algorithm"), [(o, a) for o, all_ in ALGORITHMS.items() for a in all_])
def test_one_rank_and_empty_arrays_send_nothing(operation, algorithm):
    form = getattr(traffic, operation)
    if operation == "barrier":
        assert form(1, 0, algorithm) == Traffic(0, 0)
        return
    arguments = {"elements": 9, "itemsize": 4, "algorithm": algorithm}
    assert form(size=1, rank=0, **arguments) == Traffic(0, 0)
    for rank in range(5):
        assert form(size=5, rank=rank, **{**arguments, "elements": 0}) == Traffic(0, 0)


def test_a_scatter_of_different_sizes_sends_all_but_the_roots_own():
    assert traffic.scatter([5, 3, 0, 2], 4, 4, 0) == Traffic(20, 2)
    assert traffic.scatter([5, 3, 0, 2], 4, 4, 1) == Traffic(0, 0)


def test_a_binomial_scatter_of_different_sizes_is_refused():
    with pytest.raises(UsageError, match="only the root knows them"):
        traffic.scatter([5, 3], 4, 2, 0, algorithm="binomial")


def test_an_algorithm_without_a_closed_form_is_refused_with_those_that_have_one():
    with pytest.raises(UnknownNameError, match="recursive-doubling"):
        Algorithms(all_reduce="recursive-halving")
    with pytest.raises(UnknownNameError, match="dissemination"):
        traffic.barrier(3, 0, "tournament")


def test_closed_forms_are_integers_and_fast_at_any_size():
    sent = traffic.all_reduce(25_557_032, 4, 4096, 4095, "halving-doubling")
    assert sent.messages == 24
    assert isinstance(sent.sent_bytes, int)
