"""An operator in C++ computes, differentiates and refuses as defined in its file."""

import gc
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

from levelbench.errors import CheckFailedError, UnknownNameError, UnsupportedError, UsageError
from levelbench.operators.custom import Cost, Spec, host
from levelbench.operators.custom.compiled import CompiledOperator


def spec(shape, dtype="float32"):
    return Spec(shape, np.dtype(dtype))


@pytest.fixture
def operator(compiled_operators):
    return lambda name, **attributes: compiled_operators[name](**attributes)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(3, 4), (), (0, 2), (2, 1, 3)])
def test_several_outputs_come_in_order(operator, shape, dtype):
    random = np.random.default_rng(0)
    a, b = (np.asarray(random.standard_normal(shape)).astype(dtype) for _ in range(2))
    total, product = host.forward(operator("SumProduct"), (a, b))
    np.testing.assert_array_equal(total, a + b, strict=True)
    np.testing.assert_array_equal(product, a * b, strict=True)


def test_a_backward_sees_every_gradient_and_none_is_zero(operator):
    sums, (a, b, d) = operator("SumProduct"), np.arange(1.0, 10).reshape(3, 3)
    outputs = host.forward(sums, (a, b))
    da, db = host.backward(sums, (None, d), (a, b), outputs)
    np.testing.assert_array_equal(da, d * b)
    np.testing.assert_array_equal(db, d * a)


def test_inputs_that_are_not_contiguous_are_read_in_order(operator):
    a = np.arange(12.0).reshape(3, 4).T[::-1]
    total, _ = host.forward(operator("SumProduct"), (a, a))
    np.testing.assert_array_equal(total, 2 * a)


def test_arrays_of_the_other_byte_order_are_read_correctly(operator):
    a = np.arange(3.0).astype(">f8")
    total, _ = operator("SumProduct").forward(a, a)
    np.testing.assert_array_equal(total, [0.0, 2.0, 4.0])


def test_inputs_and_outputs_are_not_copied(operator):
    x = np.ones(5, np.float32)
    (at,) = host.forward(operator("Address"), (x,))
    assert at.tolist() == [x.ctypes.data, at.ctypes.data]


def test_attributes_of_every_kind_have_their_defaults_and_are_passed_on(operator):
    scale = operator("Scale")
    assert scale.attributes == {
        **{"factor": 2.0, "power": 1, "mode": 'plain "quoted"', "axes": [0, 1]},
        **{"taps": [0.5], "names": ["one", "two"]},
    }
    x = np.array([3.0])
    assert scale.forward(x)[0].item() == 2 * 3 + (0 + 1) + 0.5 + len("onetwo")
    other = operator("Scale", factor=1, power=2, axes=[5], taps=[1, 0.25], names=[])
    assert other.forward(x)[0].item() == 9 + 5 + 1.25
    assert operator("Scale", mode="bare").forward(x)[0].item() == 6


@pytest.mark.parametrize(
    ("attributes", "error", "text"),
    [
        ({"facto": 1.0}, UnknownNameError, "factor"),
        ({"power": 0.5}, UsageError, "0.5 is not of the default.s type, 64-bit int"),
        ({"mode": 3}, UsageError, "3 is not of the default.s type, str"),
        ({"power": -1}, UsageError, "power must not be negative"),
        ({"power": 2**63}, UsageError, "64-bit int"),
        ({"mode": "a\0b"}, UsageError, "zero byte"),
        ({"factor": {}}, UsageError, "Give a 64-bit int, a float"),
    ],
)
def test_an_invalid_attribute_is_refused(operator, attributes, error, text):
    with pytest.raises(error, match=text):
        operator("Scale", **attributes)


def test_a_workspace_is_aligned_and_of_the_requested_size(operator):
    sums = operator("RowSum")
    for rows in (1, 7, 1000):
        x = np.random.default_rng(rows).standard_normal((rows, 5)).astype(np.float32)
        outputs = host.forward(sums, (x,))
        np.testing.assert_allclose(outputs[0], x.sum(1, dtype=np.float64), rtol=1e-6)
        (dx,) = host.backward(sums, outputs, (x,), outputs)
        np.testing.assert_array_equal(dx, np.broadcast_to(outputs[0][:, None], x.shape))


def test_an_integer_input_has_no_gradient(operator):
    pick, table, indices = operator("Pick"), np.arange(6.0).reshape(3, 2), np.array([2, 0, 2])
    outputs = host.forward(pick, (table, indices))
    np.testing.assert_array_equal(outputs[0], table[indices])
    found = host.backward(pick, (np.ones((3, 2)),), (table, indices), outputs)
    np.testing.assert_array_equal(found[0], [[1, 1], [0, 0], [2, 2]])
    assert found[1] is None


def test_an_integer_output_has_no_gradient(operator):
    largest, x = operator("Largest"), np.array([1.0, 5.0, 2.0])
    outputs = host.forward(largest, (x,))
    assert [each.dtype.name for each in outputs] == ["float64", "int64"]
    (dx,) = host.backward(largest, (np.array(3.0), None), (x,), outputs)
    assert dx.tolist() == [0, 3, 0]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_short_types_are_rounded_to_nearest_even_for_all_their_values(operator, dtype):
    x = np.arange(2**16, dtype=np.uint16).view(dtype)
    (y,) = host.forward(operator("Square"), (x,))
    with np.errstate(over="ignore", invalid="ignore"):
        expected = np.square(x.astype(np.float32)).astype(dtype)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(y), ~known)
    np.testing.assert_array_equal(y.view(np.int16)[known], expected.view(np.int16)[known])


def test_a_type_without_a_kernel_is_unsupported(operator):
    with pytest.raises(UnsupportedError, match="written for float32, float64, float16"):
        host.forward(operator("Square"), (np.ones(2, np.int32),))


def test_a_gradient_is_unsupported_without_a_backward(operator):
    square, x = operator("Square"), np.ones(2)
    assert not square.has_backward
    with pytest.raises(UnsupportedError, match="no backward"):
        host.backward(square, (x,), (x,), (x,))


def test_shapes_that_do_not_fit_are_refused_before_anything_runs(operator):
    with pytest.raises(UsageError, match="a and b must be of one shape"):
        host.forward(operator("SumProduct"), (np.ones(2), np.ones(3)))


def test_a_wrong_number_of_inputs_is_refused(operator):
    with pytest.raises(UsageError, match="it takes 2: a, b"):
        host.forward(operator("SumProduct"), (np.ones(2),))


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "100% of x must be negative"), (-2.0, "no std::exception"), (-0.5, "input 0 is not of type float64")],
)
def test_a_thrown_exception_is_reported_without_crashing(operator, value, text):
    with pytest.raises(CheckFailedError, match=text):
        host.forward(operator("Throws"), (np.array([value], np.float32),))


def test_a_gradient_of_the_wrong_shape_is_never_read(operator):
    square = operator("RowSum")
    x = np.ones((4, 2))
    with pytest.raises(UsageError, match="the gradients of outputs of RowSum"):
        square.backward((np.ones(3),), (x,), square.forward(x))


@pytest.mark.parametrize(
    "outputs", [(np.ones(3),), (np.ones(4, np.float32),), (), (np.ones(4), np.ones(4))], ids=lambda each: f"{each}"
)
def test_wrong_outputs_are_never_read(operator, outputs):
    sums, x = operator("RowSum"), np.ones((4, 2))
    with pytest.raises(UsageError, match="outputs"):
        sums.backward((np.ones(4),), (x,), outputs)
    with pytest.raises(UsageError, match="outputs"):
        host.backward(sums, (np.ones(4),), (x,), outputs)


def test_inputs_are_counted_everywhere(operator):
    sums, x = operator("SumProduct"), np.ones(2)
    for call in (lambda: sums.forward(x), lambda: sums.infer(spec((2,))), lambda: sums.cost(spec((2,)))):
        with pytest.raises(UsageError, match="it takes 2: a, b"):
            call()
    with pytest.raises(UsageError, match="it takes 2: a, b"):
        sums.backward((x, x), (x,), (x, x))


@pytest.mark.parametrize("value", [[[1.0]], 1.0, None])
def test_anything_but_an_array_is_refused(operator, value):
    with pytest.raises(UsageError, match="it takes arrays"):
        host.forward(operator("Square"), (value,))


def test_a_numpy_scalar_is_an_array(operator):
    assert host.forward(operator("Square"), (np.float32(3),))[0] == 9


def test_inputs_of_mismatched_types_are_a_usage_error(operator):
    with pytest.raises(UsageError, match="input 1 is not of type float64"):
        host.forward(operator("SumProduct"), (np.ones(2), np.ones(2, np.float32)))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_short_types_can_be_changed_in_place(operator, dtype):
    x, z = (np.arange(4).astype(dtype) + dtype(start) for start in (0, 2))
    (y,) = host.forward(operator("Assigns"), (x, z))
    np.testing.assert_array_equal(y, ((x + z) * dtype(3) - dtype(1)) / dtype(2), strict=True)


def test_the_size_of_the_workspace_does_not_depend_on_what_ran_before(operator):
    scratch, x = operator("Scratch"), np.ones(1, np.float32)
    assert scratch.forward(x)[0] == 0
    assert scratch.backward((x,), (x,), (x,))[0] == 0
    assert scratch.forward(x)[0] == 0


def test_workspaces_of_many_shapes_share_one_block_of_memory(operator, monkeypatch):
    made = []
    empty = np.empty
    monkeypatch.setattr(np, "empty", lambda shape, *more: made.append(shape) or empty(shape, *more))
    monkeypatch.setattr(sys.modules[CompiledOperator.__module__], "_SCRATCH", threading.local())
    scratch = operator("Scratch")
    for size in (5, 4, 3, 2, 1):
        x = np.ones(size, np.float32)
        scratch.backward((x,), (x,), (x,))
    assert made == [5 * 1024 + 64]


def test_an_operator_in_a_namespace_has_its_last_name_and_a_list_without_default_its_type(operator):
    listed = operator("Listed", taps=[1, 2.5])
    assert listed.attributes == {"taps": [1.0, 2.5]}
    assert listed.forward(np.ones(1, np.float32))[0] == 3.5
    assert operator("Listed").forward(np.ones(1, np.float32))[0] == 0
    assert operator("Listed", taps=[1, 2]).forward(np.ones(1, np.float32))[0] == 3


def test_a_cost_is_returned_if_defined(operator):
    assert operator("RowSum").cost(spec((10, 4))) == Cost(40.0, 200.0)
    assert operator("Square").cost(spec((10, 4))) is None


def test_examples_have_the_shapes_of_the_file_in_each_type(operator):
    found = list(operator("SumProduct").examples(np.random.default_rng(0)))
    assert [(a.shape, a.dtype.name) for a, _ in found] == [
        (shape, dtype) for dtype in ("float32", "float64") for shape in ((3, 4), (), (0, 2))
    ]


def test_an_unwritten_border_shows_when_outputs_are_poisoned(operator):
    border = operator("Border")
    border.poison = True
    (y,) = border.forward(np.ones(4, np.float32))
    np.testing.assert_array_equal(y, [np.nan, 1, 1, np.nan])


def test_threads_do_not_share_structures(operator):
    sums, wrong = operator("RowSum"), []

    def work(seed):
        x = np.full((64, 32), float(seed))
        for _ in range(200):
            (y,) = sums.forward(x)
            if not (y == 32 * seed).all():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_an_output_outlives_its_operator(operator):
    scale = operator("Scale", mode="bare")
    (y,) = scale.forward(np.ones(3))
    del scale
    gc.collect()
    assert y.tolist() == [2, 2, 2]
