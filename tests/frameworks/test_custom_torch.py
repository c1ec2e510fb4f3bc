"""A custom operator on PyTorch works with autograd, opcheck, torch.compile and fake tensors."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from levelbench.errors import CheckFailedError, UnsupportedError, UsageError
from levelbench.operators.custom import CustomOperator, Spec, load_file, namespace
from levelbench.operators.custom.definition import node_of, register

torch = pytest.importorskip("torch")

from levelbench.frameworks.torch import custom  # noqa: E402

pytestmark = pytest.mark.sampled(3)


def leaf(*shape, seed=0, dtype=None):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=random, dtype=dtype or torch.float64).requires_grad_()


SOURCE = Path(__file__).parents[1] / "operators" / "custom" / "operators.cpp"


@pytest.fixture(scope="module")
def compiled(request):
    """The compiled classes by name, in pytest's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(request.config.cache.mkdir("levelbench")))
        patch.setenv("LEVELBENCH_CXXFLAGS", "-O0")
        yield {each.name: each for each in load_file(SOURCE)}


class SoftSign(CustomOperator):
    """x / (1 + |x|), and its bound as a second output; written for the Array API standard."""

    array_api = True
    outputs = ("y", "bound")

    def infer(self, x):
        return x, Spec((), x.dtype)

    def forward(self, x):
        xp = namespace(x)
        y = x / (1 + xp.abs(x))
        return y, xp.max(xp.abs(y))

    def backward(self, gradients, inputs, outputs):
        xp = namespace(*inputs)
        x, y = inputs[0], outputs[0]
        slope = gradients[0] + xp.where(xp.abs(y) == outputs[1], xp.sign(x) * gradients[1], 0.0)
        return slope / (1 + xp.abs(x)) ** 2


class Hypotenuse(CustomOperator):
    """Written for NumPy."""

    def infer(self, a, b):
        return Spec(np.broadcast_shapes(a.shape, b.shape), a.dtype)

    def forward(self, a, b):
        return np.hypot(a, b)

    def backward(self, gradients, inputs, outputs):
        full = [np.broadcast_to(each, outputs[0].shape) * gradients[0] / outputs[0] for each in inputs]
        return tuple(each if each.shape == x.shape else each.sum(0) for each, x in zip(full, inputs, strict=True))


def cases(compiled):
    """Operators of every kind with inputs."""
    return {
        "several outputs": (compiled["SumProduct"](), (leaf(3, 4), leaf(3, 4, seed=1))),
        "workspace": (compiled["RowSum"](), (leaf(3, 4),)),
        "integer input": (compiled["Pick"](), (leaf(3, 2), torch.tensor([2, 0, 2]))),
        "integer output": (compiled["Largest"](), (leaf(5),)),
        "array api": (SoftSign(), (leaf(3, 2),)),
        "numpy": (Hypotenuse(), (leaf(3, 2), leaf(2, seed=1))),
    }


CASES = ["several outputs", "workspace", "integer input", "integer output", "array api", "numpy"]


def floating(found):
    found = found if isinstance(found, tuple) else (found,)
    return tuple(each for each in found if each.is_floating_point())


@pytest.mark.parametrize("case", CASES)
def test_its_gradients_are_those_of_its_forward(compiled, case):
    operator, inputs = cases(compiled)[case]
    function = custom.function(operator)
    assert torch.autograd.gradcheck(lambda *given: floating(function(*given)), inputs)


@pytest.mark.parametrize("case", CASES)
def test_opcheck_finds_nothing(compiled, case):
    operator, inputs = cases(compiled)[case]
    found = torch.library.opcheck(custom._register(operator), inputs)
    assert set(found.values()) == {"SUCCESS"}


@pytest.mark.slow
@pytest.mark.parametrize("case", ["several outputs", "array api", "numpy"])
def test_it_compiles_as_one_graph_and_trains_there(compiled, case):
    operator, inputs = cases(compiled)[case]
    function = custom.function(operator)

    def loss(*given):
        return sum((2 * each).sum() for each in floating(function(*given)))

    expected = torch.autograd.grad(loss(*inputs), inputs)
    # "aot_eager" traces forward and backward like inductor, but does not compile C++.
    compiled_loss = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(torch.autograd.grad(compiled_loss(*inputs), inputs), expected)


@pytest.mark.slow
# Inductor itself imports deprecated modules of PyTorch.
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_inductor_calls_it_as_it_is(compiled, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    x = leaf(3, 4)
    sums = torch.compile(custom.function(compiled["RowSum"]), fullgraph=True)(x)
    torch.testing.assert_close(sums, x.sum(1))
    (slope,) = torch.autograd.grad(sums, x, torch.arange(3.0, dtype=torch.float64))
    assert slope[:, 0].tolist() == [0, 1, 2]


def test_a_fake_tensor_gets_its_shape_without_anything_run(compiled):
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        value, index = custom.function(compiled["Largest"])(torch.empty(3))
        assert (value.shape, value.dtype, index.dtype) == ((), torch.float32, torch.int64)


def test_cpp_runs_on_the_tensors_own_memory(compiled):
    x = torch.ones(5)
    at = custom.function(compiled["Address"])(x)
    assert at.tolist() == [x.data_ptr(), at.data_ptr()]


def test_inputs_that_are_not_contiguous_are_read_in_order(compiled):
    a = torch.arange(12.0).reshape(3, 4).T
    total, product = custom.function(compiled["SumProduct"])(a, a)
    torch.testing.assert_close((total, product), (2 * a, a * a))


def test_a_tensor_with_a_negative_bit_is_read_with_its_sign(compiled):
    x = torch.conj(torch.tensor([1 + 2j, 3 - 4j])).imag
    assert x.is_neg()
    total, _ = custom.function(compiled["SumProduct"])(x, x)
    assert total.tolist() == [-4, 8]


def test_outputs_and_gradients_of_another_shape_are_never_read(compiled):
    node, x = custom.custom_operator(node_of(compiled["RowSum"]())), torch.ones(4, 2)
    (y,) = node.forward(x)
    for gradients, outputs in (((y,), (y[:3],)), ((y[:3],), (y,)), ((y, y), (y,)), ((y,), ()), ((y,), (y.double(),))):
        with pytest.raises(UsageError, match="outputs"):
            node.backward(gradients, (x,), outputs)


def test_other_attributes_make_another_registered_operator(compiled):
    x = torch.ones(2)
    double, triple = (custom.function(compiled["Scale"](factor=each, mode="bare")) for each in (2.0, 3.0))
    assert (double(x).tolist(), triple(x).tolist()) == ([2, 2], [3, 3])


def test_a_gradient_is_refused_where_there_is_no_backward(compiled):
    y = custom.function(compiled["Square"])(leaf(3))
    with pytest.raises(UnsupportedError, match="no backward"):
        y.sum().backward()


def test_a_second_derivative_is_refused_not_wrong(compiled):
    x = leaf(3)
    total, product = custom.function(compiled["SumProduct"])(x, x)
    (slope,) = torch.autograd.grad((total + product).sum(), x, create_graph=True)
    with pytest.raises(UnsupportedError, match="second derivative"):
        torch.autograd.grad(slope.sum(), x)


def test_an_output_without_a_gradient_counts_as_zero(compiled):
    a, b = leaf(3), leaf(3, seed=1)
    _, product = custom.function(compiled["SumProduct"])(a, b)
    torch.testing.assert_close(torch.autograd.grad(product.sum(), (a, b)), (b.detach(), a.detach()))


def test_errors_arrive_as_ours(compiled):
    with pytest.raises(UsageError, match="a and b must be of one shape"):
        custom.function(compiled["SumProduct"])(torch.ones(2), torch.ones(3))
    with pytest.raises(CheckFailedError, match="must be negative"):
        custom.function(compiled["Throws"])(torch.ones(1))
    with pytest.raises(UnsupportedError, match="written for float32, float64, float16"):
        custom.function(compiled["Square"])(torch.ones(1, dtype=torch.int32))
    with pytest.raises(UnsupportedError, match="NumPy has no such type"):
        custom.function(Hypotenuse)(*[torch.ones(1).to(torch.float8_e5m2)] * 2)


def test_a_node_runs_forward_and_backward_without_autograd(compiled):
    node = custom.custom_operator(node_of(compiled["SumProduct"]()))
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    outputs, pullback = node.vjp(a, b)
    assert [each.tolist() for each in outputs] == [[4, 6], [3, 8]]
    assert [each.tolist() for each in pullback(None, torch.ones(2))] == [[3, 4], [1, 2]]


def test_a_node_can_be_trained_through_by_autograd():
    register(SoftSign)
    node = custom.custom_operator(node_of(SoftSign()))
    x = leaf(3)
    y, _ = node.forward(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, 1 / (1 + x.detach().abs()) ** 2)


@pytest.fixture(scope="module")
def twice(compiled):
    """An operator with entry points for CUDA."""
    (found,) = load_file(SOURCE.with_name("cuda_operator.cpp"))
    return found


def test_an_operator_with_cuda_code_runs_on_the_cpu_without_nvcc(twice):
    assert not twice.runs_on_cuda
    assert custom.function(twice)(torch.ones(2)).tolist() == [2, 2]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_cuda_code_runs_on_the_gpu_forward_and_backward(twice):
    x = torch.ones(1000, device="cuda", requires_grad=True)
    y = custom.function(twice)(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert y.device == x.device
    assert bool((y == 2).all())
    assert bool((slope == 2).all())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_an_operator_without_cuda_code_is_unsupported_on_the_gpu(compiled):
    with pytest.raises(UnsupportedError, match="no forward_cuda"):
        custom.function(compiled["Square"])(torch.ones(3, device="cuda"))
    with pytest.raises(UnsupportedError, match="written for NumPy"):
        custom.function(Hypotenuse())(*[torch.ones(3, device="cuda")] * 2)


# Operators written in Python run on PyTorch's own memory, each under its own name.


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_numpy_runs_on_the_tensors_own_memory(dtype):
    seen = []

    class Look(CustomOperator):
        def infer(self, x):
            return Spec((1,), np.dtype("f8"))

        def forward(self, x):
            seen.append((x.ctypes.data, x.dtype))
            return np.zeros(1)

    x = torch.ones(5, dtype=dtype)
    custom.function(Look())(x)
    known = {torch.bfloat16: np.dtype(ml_dtypes.bfloat16)}
    assert seen == [(x.data_ptr(), known.get(dtype, np.dtype(str(dtype).removeprefix("torch."))))]


def test_an_output_that_is_an_input_is_copied():
    class Same(CustomOperator):
        array_api = True

        def forward(self, x):
            return x

    x = torch.ones(3)
    assert custom.function(Same())(x).data_ptr() != x.data_ptr()


def test_results_of_one_call_never_share_memory():
    class Shared(CustomOperator):
        array_api = True
        outputs = ("a", "b")

        def infer(self, x, y):
            return x, x

        def forward(self, x, y):
            total = x + y
            return total, total

        def backward(self, gradients, inputs, outputs):
            slope = gradients[0] + gradients[1]
            return slope, slope

    x, y = leaf(3), leaf(3, seed=1)
    a, b = custom.function(Shared)(x, y)
    assert a.data_ptr() != b.data_ptr()
    (a.sum() + b.sum()).backward()
    x.grad.mul_(0.5)
    assert y.grad.tolist() == [2, 2, 2]


@pytest.mark.parametrize("first", [0, 1])
def test_the_name_of_a_backward_is_unique(first):
    def forward(self, x):
        return x * self.factor

    def backward(self, gradients, inputs, outputs):
        return gradients[0] * self.factor

    names = [f"Reserved{first}", f"Reserved{first}_backward"]
    made = [
        type(name, (CustomOperator,), {"factor": at + 2, "forward": forward, "backward": backward})
        for at, name in enumerate(names)
    ]
    functions = {at: custom.function(made[at]) for at in (first, 1 - first)}
    for at in range(2):
        x = leaf(2)
        (slope,) = torch.autograd.grad(functions[at](x).sum(), x)
        assert slope.tolist() == [at + 2] * 2


def test_a_class_that_is_redefined_takes_effect():
    def define(step):
        class Step(CustomOperator):
            def forward(self, x):
                return x + np.float32(step)

        return custom.function(Step)

    first, second = define(1), define(2)
    x = torch.zeros(1)
    assert (first(x).item(), second(x).item()) == (1, 2)


# The Array API on PyTorch tensors gives the same results as on NumPy arrays.


X = torch.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])
NAMESPACE = namespace(X)


@pytest.mark.parametrize(
    ("name", "arguments", "keywords"),
    [
        ("max", (), {"axis": -1, "keepdims": True}),
        ("min", (), {"axis": (0, 1)}),
        ("max", (), {}),
        ("sum", (), {"axis": (0, 1), "keepdims": True}),
        ("mean", (), {"axis": 0}),
        ("prod", (), {"axis": (0, 1)}),
        ("prod", (), {}),
        ("all", (), {"axis": 0}),
        ("any", (), {}),
        ("maximum", (0.0,), {}),
        ("minimum", (1.5,), {}),
        ("permute_dims", ((1, 0),), {}),
        ("matrix_transpose", (), {}),
        ("expand_dims", (), {"axis": 1}),
        ("flip", (), {}),
        ("cumulative_sum", (), {"axis": 1}),
        ("vecdot", (np.float32(2) * X.numpy(),), {}),
        ("tensordot", (X.numpy(),), {"axes": ((0,), (0,))}),
        ("take", (np.array([1, 0]),), {"axis": 1}),
        ("take_along_axis", (np.array([[0], [2]]),), {"axis": 1}),
        ("argmax", (), {"axis": 1}),
        ("std", (), {"axis": 0, "correction": 1}),
        ("exp", (), {}),
        ("sort", (), {"axis": 0}),
        ("argsort", (), {"axis": 1}),
    ],
)
def test_the_array_api_on_tensors_is_that_of_numpy(name, arguments, keywords):
    tensors = [torch.from_numpy(each) if isinstance(each, np.ndarray) else each for each in arguments]
    found = getattr(NAMESPACE, name)(X, *tensors, **keywords)
    expected = getattr(np, name)(X.numpy(), *arguments, **keywords)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


def test_sorting_is_stable_in_either_direction():
    x = torch.tensor([2.0, 1.0, 2.0, 3.0]).repeat(20)
    assert NAMESPACE.argsort(x).tolist() == sorted(range(80), key=lambda at: x[at])
    assert NAMESPACE.argsort(x, descending=True).tolist() == sorted(range(80), key=lambda at: -x[at])
    assert NAMESPACE.sort(x[None], descending=True)[0].tolist() == sorted(x.tolist(), reverse=True)


def test_types_are_distinguished_as_in_the_standard():
    assert NAMESPACE.isdtype(torch.float16, "real floating")
    assert NAMESPACE.isdtype(torch.uint8, ("bool", "integral"))
    assert not NAMESPACE.isdtype(torch.float32, torch.float64)
    assert NAMESPACE.astype(X, torch.int64).dtype == torch.int64
