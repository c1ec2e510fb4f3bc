"""Synchronous all-reduce equals one process, and overlaps if gradients come one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.communicators.wrapping import CountingCommunicator, Delays
from levelbench.distributed.schemes.all_reduce import AllReduce, Reducer, assign, ready_order
from levelbench.distributed.traffic import ALGORITHMS
from levelbench.errors import DefinitionError, UnknownNameError, UsageError
from levelbench.frameworks.numpy import framework
from levelbench.networks import zoo
from levelbench.training import EMA, Adam, Clip, Momentum

FRAMEWORKS = ["numpy", "torch"]
SMALL = AllReduce(bucket_mb=200 / 2**20)
"""Buckets of 200 bytes: several per network."""


@pytest.fixture(autouse=True)
def _frameworks(request):
    if "torch" in request.node.name:
        pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("framework", "kind", "ranks", "optimizer"),
    [
        ("numpy", "mlp", 3, Momentum(0.05, 0.9)),
        ("numpy", "cnn", 2, Adam(1e-3)),
        ("torch", "mlp", 3, Adam(1e-3)),
        ("torch", "cnn", 2, Momentum(0.05, 0.9)),
    ],
)
def test_ranks_equal_one_process_after_100_steps(training, framework, kind, ranks, optimizer):
    network = training.network(kind)
    expected = training.alone(framework, network, optimizer, 100)
    for rank in training.together(framework, network, optimizer, 100, AllReduce(), ranks):
        assert training.distance(rank.parameters, expected) <= 1e-6


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_in_float64_they_are_equal_to_rounding(training, framework):
    network = training.network("float64")
    expected = training.alone(framework, network, Adam(1e-3), 100)
    for rank in training.together(framework, network, Adam(1e-3), 100, SMALL, 3):
        assert training.distance(rank.parameters, expected) <= 1e-13


@pytest.mark.parametrize("optimizer", [Clip(Momentum(0.05, 0.9), 0.1), EMA(Adam(1e-3), 0.9)], ids=["clip", "average"])
def test_optimizers_that_combine_or_average_parameters_are_equal_too(training, optimizer):
    network = training.network("mlp")
    expected = training.alone("numpy", network, optimizer, 20)
    for rank in training.together("numpy", network, optimizer, 20, SMALL, 3):
        assert training.distance(rank.parameters, expected) <= 1e-6


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("scheme", [AllReduce(), SMALL, AllReduce(overlap=False)], ids=["one", "many", "after"])
def test_ranks_hold_the_same_bits(training, framework, scheme):
    first, *others = training.together(framework, training.network("cnn"), Adam(1e-3), 6, scheme, 3)
    for other in others:
        for name, array in first.parameters.items():
            np.testing.assert_array_equal(other.parameters[name], array)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_neither_buckets_nor_overlap_nor_delays_change_a_bit(training, framework):
    network = training.network("cnn")

    def trained(scheme, **options):
        return training.together(framework, network, Momentum(0.1, 0.9), 6, scheme, 3, **options)[0].parameters

    expected = trained(AllReduce(overlap=False))
    late = Delays(seed=3, most_s=0.001, slow={1: 0.001})
    for found in (trained(SMALL), trained(AllReduce()), trained(SMALL, delays=late)):
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)


def test_over_gloo_many_buckets_in_progress_equal_one_process(training):
    pytest.importorskip("torch")
    from tests.distributed.communicators.test_torch import gloo_ranks

    network = training.network("cnn")
    expected = training.alone("torch", network, Adam(1e-3), 10)
    first, *others = training.together("torch", network, Adam(1e-3), 10, SMALL, 3, start=gloo_ranks)
    assert training.distance(first.parameters, expected) <= 1e-6
    for other in others:
        for name, array in first.parameters.items():
            np.testing.assert_array_equal(other.parameters[name], array)


def test_an_update_is_in_phase_update_and_the_wait_in_phase_communicate(training):
    found = training.together("numpy", training.network("mlp"), Momentum(0.1), 2, AllReduce(), 2)[0]
    phase = training.Phase
    assert found.phases == [phase.COMMUNICATE, *[phase.COMMUNICATE, phase.UPDATE] * 2]


def test_the_overlap_of_each_step_is_noted_as_a_share(training):
    unit, values = training.together("numpy", training.network("mlp"), Momentum(0.1), 4, SMALL, 2)[0].noted["overlap"]
    assert unit == "1"
    assert len(values) == 4
    assert all(0 <= value <= 1 for value in values)


def test_times_come_from_the_workers_clock(training):
    noted = training.together("numpy", training.network("mlp"), Momentum(0.1), 2, SMALL, 2, clock=training.Still())[
        0
    ].noted
    assert noted["overlap"][1] == [0, 0]


def test_one_rank_sends_nothing(training):
    found = training.together("numpy", training.network("mlp"), Momentum(0.1), 3, AllReduce(), 1)[0]
    expected = training.alone("numpy", training.network("mlp"), Momentum(0.1), 3)
    assert training.distance(found.parameters, expected) == 0
    assert "overlap" not in found.noted


def test_gradients_that_come_twice_before_a_step_are_refused(training):
    torch_backward_twice(training, lambda executor, stepper, batch: _backward(executor, batch), "came twice")


def test_gradients_other_than_those_in_progress_are_refused(training):
    def step(executor, stepper, batch):
        stepper.step({name: each.clone() for name, each in executor.parameters.items()}, 1, 1.0)

    torch_backward_twice(training, step, "differs")


def test_a_share_that_changes_after_the_backward_pass_is_refused(training):
    def step(executor, stepper, batch):
        gradients = _backward(executor, batch)
        stepper.share = 0.25
        stepper.step(gradients, 1, 1.0)

    torch_backward_twice(training, step, "its share was", once=False)


def _backward(executor, batch):
    executor.forward(*batch)
    return executor.backward()


def torch_backward_twice(training, then, message, once=True):
    """One rank of two is enough: its error is raised before it waits."""
    pytest.importorskip("torch")
    from levelbench.distributed.communicators.threads import run_ranks
    from levelbench.distributed.scheme import Worker
    from levelbench.operators.frameworks import load_framework

    network = training.network("mlp")

    def work(communicator):
        backend = load_framework("torch").open()
        executor = backend.executor(network, network.initialise(0))
        stepper = SMALL.start(Worker(communicator, backend, executor, Momentum(0.1)))
        batch = [backend.array(each) for each in network.make_inputs(4).values()]
        stepper.share = 0.5
        if once:
            _backward(executor, batch)
        then(executor, stepper, batch)

    with pytest.raises(UsageError, match=message):
        run_ranks(2, work)


@pytest.mark.parametrize(
    ("framework", "algorithm"), [("torch", ""), *(("numpy", each) for each in ("", *ALGORITHMS["all_reduce"]))]
)
def test_ranks_send_what_the_scheme_declares(training, framework, algorithm):
    network, scheme = training.network("cnn"), AllReduce(bucket_mb=200 / 2**20, algorithm=algorithm)
    shapes = {each.name: each.shape for each in network.parameters if each.trainable}
    counters = {}

    def counted(communicator):
        counters[communicator.rank] = CountingCommunicator(communicator)
        return counters[communicator.rank]

    found = {}
    # The difference of two runs excludes what the common start sends.
    for steps in (2, 5):
        training.together(framework, network, Momentum(0.1), steps, scheme, 3, wrap=counted)
        for rank, counter in counters.items():
            totals = counter.take()
            found.setdefault(rank, []).append(np.array([totals.sent_bytes, totals.messages]))
    for rank, (few, many) in found.items():
        declared = scheme.traffic(shapes, 4, 3, rank)
        assert ((many - few) / 3).tolist() == [declared.sent_bytes, declared.messages]


@pytest.mark.parametrize("algorithm", ALGORITHMS["all_reduce"])
def test_each_of_our_algorithms_equals_one_process(training, algorithm):
    network = training.network("mlp")
    expected = training.alone("torch", network, Momentum(0.05, 0.9), 10)
    scheme = AllReduce(bucket_mb=200 / 2**20, algorithm=algorithm)
    for rank in training.together("torch", network, Momentum(0.05, 0.9), 10, scheme, 3):
        assert training.distance(rank.parameters, expected) <= 1e-6


def test_an_unknown_algorithm_is_refused():
    with pytest.raises(UnknownNameError, match="ring"):
        AllReduce(algorithm="rign")


def test_a_bucket_size_must_be_positive():
    with pytest.raises(DefinitionError, match="not positive"):
        AllReduce(bucket_mb=0)


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
def test_buckets_are_in_the_order_of_completion(given, most):
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
    """The results of ``work(reducer, gradients, rank)`` on two ranks, whose gradients are 1s and 2s."""
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


def test_gradients_may_become_ready_in_any_order_or_not_at_all():
    def work(reducer, gradients, rank):
        for name in ("a", "c", "b") if rank == 0 else ():
            reducer.ready(name, gradients[name], 0.5)
        return reducer.finish(gradients, 0.5)

    for each in reduced(work):
        assert all((array == 1.5).all() for array in each.values())


def test_gradients_are_not_changed():
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


def test_gradients_may_be_overwritten_after_use():
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
def test_mixed_dtypes_are_preserved(dtypes):
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


def test_no_overlap_is_noted_over_nccl_whose_waits_return_at_once(training):
    def as_nccl(communicator):
        communicator.name = "nccl"
        return communicator

    found = training.together("numpy", training.network("mlp"), Momentum(0.1), 2, SMALL, 2, wrap=as_nccl)
    assert all("overlap" not in each.noted for each in found)
