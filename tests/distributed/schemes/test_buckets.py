"""Buckets are what the network says they are, and start in one order on all ranks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.schemes.all_reduce import Reducer, assign, ready_order
from levelbench.frameworks.numpy import framework
from levelbench.networks import zoo

FLOATS, DOUBLES = np.dtype("float32"), np.dtype("float64")
arrays = st.lists(st.tuples(st.sampled_from([FLOATS, DOUBLES]), st.integers(0, 50)), max_size=30)


def named(given):
    return [(str(at), dtype, nbytes) for at, (dtype, nbytes) in enumerate(given)]


@given(arrays, st.integers(1, 60), st.integers(1, 60))
def test_every_array_is_in_one_bucket_of_its_dtype_and_in_order(given, most, first):
    of = {name: dtype for name, dtype, _ in named(given)}
    buckets = assign(named(given), most, first)
    assert sorted(name for bucket in buckets for name in bucket) == sorted(of)
    for dtype in (FLOATS, DOUBLES):
        order = [int(name) for bucket in buckets for name in bucket if of[name] == dtype]
        assert order == sorted(order)
    assert all(len({of[name] for name in bucket}) == 1 for bucket in buckets)


@given(arrays, st.integers(1, 60))
def test_a_bucket_is_closed_as_soon_as_it_reaches_its_limit(given, most):
    size = {name: nbytes for name, _, nbytes in named(given)}
    for bucket in assign(named(given), most, most):
        assert sum(size[name] for name in bucket[:-1]) < most


@given(arrays, st.integers(1, 60))
def test_buckets_come_in_the_order_in_which_they_are_complete(given, most):
    last = [int(bucket[-1]) for bucket in assign(named(given), most)]
    assert last == sorted(last)


def test_the_first_bucket_is_smaller():
    given = [(str(at), FLOATS, 10) for at in range(8)]
    assert assign(given, most_bytes=30, first_bytes=10) == [["0"], ["1", "2", "3"], ["4", "5", "6"], ["7"]]


def test_gradients_are_ready_from_the_last_layer_to_the_first():
    network = zoo.mlp(4, 3, 2).with_loss().training()
    executor = framework.open().executor(network)
    assert ready_order(executor) == ["layer1.bias", "layer1.weight", "layer0.bias", "layer0.weight"]


def reduced(work, names=("a", "b", "c"), buckets=(("c",), ("b", "a"))):
    """What ``work(reducer, gradients, rank)`` answers on two ranks, whose gradients are 1s and 2s."""
    shapes = {"a": (2, 3), "b": (), "c": (4,)}

    def rank_work(communicator):
        parameters = {name: np.zeros(shapes[name], np.float32) for name in names}
        reducer = Reducer(communicator, framework.open(), parameters, buckets)
        gradients = {name: np.full(shapes[name], communicator.rank + 1, np.float32) for name in names}
        return work(reducer, gradients, communicator.rank)

    return run_ranks(2, rank_work)


def test_gradients_are_added_with_their_shares():
    found = reduced(lambda reducer, gradients, rank: reducer.finish(gradients, 0.75 if rank == 0 else 0.25))
    for each in found:
        assert [(name, array.shape) for name, array in each.items()] == [("a", (2, 3)), ("b", ()), ("c", (4,))]
        assert all((array == 0.75 * 1 + 0.25 * 2).all() for array in each.values())


def test_ranks_may_announce_in_any_order_or_not_at_all():
    def work(reducer, gradients, rank):
        for name in ("a", "c", "b") if rank == 0 else ():
            reducer.ready(name, gradients[name], 0.5)
        return reducer.finish(gradients, 0.5)

    for each in reduced(work):
        assert all((array == 1.5).all() for array in each.values())


def test_gradients_are_left_as_they_are():
    def work(reducer, gradients, rank):
        reducer.ready("c", gradients["c"], 0.5)
        reducer.finish(gradients, 0.5)
        return gradients, rank

    for gradients, rank in reduced(work):
        assert all((array == rank + 1).all() for array in gradients.values())


def test_a_parameter_without_gradient_on_one_rank_counts_as_zero_there():
    def work(reducer, gradients, rank):
        if rank == 0:
            del gradients["b"]
        return reducer.finish(gradients, 1.0)

    for each in reduced(work):
        assert each["b"] == 2
        assert (each["a"] == 3).all()


def test_what_is_not_used_any_more_may_be_overwritten():
    def work(reducer, gradients, rank):
        first = {name: array.copy() for name, array in reducer.finish(gradients, 0.5).items()}
        for array in gradients.values():
            array[...] = np.nan
        again = {name: np.full_like(array, rank + 1) for name, array in gradients.items()}
        return first, reducer.finish(again, 0.5)

    for first, second in reduced(work):
        for name, array in first.items():
            np.testing.assert_array_equal(array, second[name])


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("float16", "float32")])
def test_mixed_dtypes_keep_theirs(dtypes):
    def work(communicator):
        parameters = {f"{name}{dtype}": np.zeros(3, dtype) for name in "ab" for dtype in dtypes}
        buckets = assign([(name, each.dtype, each.nbytes) for name, each in parameters.items()], 1e6)
        reducer = Reducer(communicator, framework.open(), parameters, buckets)
        return reducer.finish({name: each + 2 for name, each in parameters.items()}, 0.5)

    for each in run_ranks(2, work):
        assert {name: str(array.dtype) for name, array in each.items()} == {
            f"{name}{dtype}": dtype for name in "ab" for dtype in dtypes
        }
        assert all((array == 2).all() for array in each.values())
