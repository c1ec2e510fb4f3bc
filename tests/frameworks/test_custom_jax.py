"""A custom operator on JAX works under jit, vmap and grad, whichever way it runs."""

from pathlib import Path

import numpy as np
import pytest

from levelbench.errors import CheckFailedError, MissingError, UnsupportedError, UsageError
from levelbench.operators.custom import CustomOperator, Spec, load_file, namespace
from levelbench.operators.custom.definition import node_of

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from levelbench.frameworks.jax import custom  # noqa: E402

SOURCE = Path(__file__).parents[1] / "operators" / "custom" / "operators.cpp"


@pytest.fixture(scope="module", autouse=True)
def compiled(request):
    """The compiled classes by name, in pytest's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(request.config.cache.mkdir("levelbench")))
        patch.setenv("LEVELBENCH_CXXFLAGS", "-O0")
        yield {each.name: each for each in load_file(SOURCE)}


@pytest.fixture(autouse=True)
def wide():
    """64-bit types, as Level 0 uses JAX."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


class Power(CustomOperator):
    """x^y over rows, and its sum; written for the Array API standard."""

    array_api = True
    outputs = ("power", "total")

    def infer(self, x, y):
        return x, Spec((), x.dtype)

    def forward(self, x, y):
        power = x**y
        return power, namespace(x).sum(power)

    def backward(self, gradients, inputs, outputs):
        xp = namespace(*inputs)
        slope = gradients[0] + gradients[1]
        axes = tuple(range(slope.ndim - 1))
        x, y = inputs
        return slope * y * x ** (y - 1), xp.sum(slope * outputs[0] * xp.log(x), axis=axes)


class NumpyPower(Power):
    """The same, called back."""

    array_api = False


def sum_product(a, b):
    return a + b, a * b


def power(x, y):
    return x**y, (x**y).sum()


def cases(compiled):
    """The operator, its equivalent in JAX, and inputs for both."""
    x, y = (jnp.asarray(np.random.default_rng(seed).uniform(0.5, 2, (3, 4))) for seed in range(2))
    return {
        "foreign": (compiled["SumProduct"], sum_product, (x, y)),
        "foreign with workspace": (compiled["RowSum"], lambda x: (x.sum(1),), (x,)),
        "traced": (Power, power, (x, y[0])),
        "called back": (NumpyPower, power, (x, y[0])),
    }


CASES = ["foreign", "foreign with workspace", "traced", "called back"]


def loss_of(function):
    def loss(*inputs):
        found = function(*inputs)
        found = found if isinstance(found, tuple) else (found,)
        return sum((jnp.arange(1.0, each.size + 1).reshape(each.shape) * each).sum() for each in found)

    return loss


def assert_close(found, expected):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-9)
        assert one.dtype == other.dtype


@pytest.mark.parametrize("case", CASES)
def test_it_computes_and_differentiates_under_jit(compiled, case):
    operator, reference, inputs = cases(compiled)[case]
    function = custom.function(operator)
    assert_close(jax.jit(function)(*inputs), reference(*inputs))
    at = tuple(range(len(inputs)))
    assert_close(jax.jit(jax.grad(loss_of(function), at))(*inputs), jax.grad(loss_of(reference), at)(*inputs))


@pytest.mark.parametrize("case", CASES)
def test_it_is_vectorised_by_vmap_forward_and_backward(compiled, case):
    operator, reference, inputs = cases(compiled)[case]
    many = [jnp.stack([each, 1.5 * each]) for each in inputs]
    at = tuple(range(len(inputs)))
    ours = jax.vmap(jax.value_and_grad(loss_of(custom.function(operator)), at))
    theirs = jax.vmap(jax.value_and_grad(loss_of(reference), at))
    assert_close(ours(*many), theirs(*many))


def test_an_integer_input_and_an_integer_output_have_no_gradient(compiled):
    pick, largest = custom.function(compiled["Pick"]), custom.function(compiled["Largest"])
    table, indices = jnp.arange(6.0).reshape(3, 2), jnp.array([2, 0, 2])
    slope = jax.grad(lambda table: pick(table, indices).sum())(table)
    assert slope.tolist() == [[1, 1], [0, 0], [2, 2]]
    assert jax.grad(lambda x: largest(x)[0])(jnp.array([1.0, 5.0, 2.0])).tolist() == [0, 1, 0]


def test_cpp_runs_on_the_buffers_of_xla(compiled):
    assert custom._handler()
    x = jnp.ones(1000, jnp.float32)
    at = custom.function(compiled["Address"])(x)
    assert at.tolist() == [x.unsafe_buffer_pointer(), at.unsafe_buffer_pointer()]


def test_without_the_foreign_interface_cpp_is_called_back(compiled, monkeypatch):
    monkeypatch.setattr(custom, "_handler", lambda: False)
    a = jnp.arange(3.0)
    function = custom.function(compiled["SumProduct"])
    assert_close(function(a, a), (2 * a, a * a))
    assert_close(jax.grad(loss_of(function))(a, a), jnp.arange(1.0, 4) * (1 + a))


def test_a_gradient_is_refused_where_there_is_no_backward(compiled):
    square = custom.function(compiled["Square"])
    with pytest.raises(UnsupportedError, match="no backward"):
        jax.grad(lambda x: square(x).sum())(jnp.ones(3))


def test_what_is_known_before_it_runs_is_refused_as_ours(compiled):
    with pytest.raises(UsageError, match="a and b must be of one shape"):
        custom.function(compiled["SumProduct"])(jnp.ones(2), jnp.ones(3))
    with pytest.raises(UsageError, match="it takes 2: a, b"):
        custom.function(compiled["SumProduct"])(jnp.ones(2))
    with pytest.raises(UnsupportedError, match="written for float32, float64, float16"):
        custom.function(compiled["Square"])(jnp.ones(1, jnp.int32))


def test_what_cpp_throws_while_it_runs_is_raised_as_elsewhere(compiled):
    with pytest.raises(CheckFailedError, match="forward of Throws: it threw: 100% of x must be negative"):
        jax.block_until_ready(custom.function(compiled["Throws"])(jnp.ones(1, jnp.float32)))
    with pytest.raises(UsageError, match="forward of SumProduct: input 1 is not of type float64"):
        jax.block_until_ready(custom.function(compiled["SumProduct"])(jnp.ones(1), jnp.ones(1, jnp.float32)))


def test_in_a_program_of_the_users_an_error_names_the_operator(compiled):
    function = jax.jit(custom.function(compiled["Throws"]))
    with pytest.raises(jax.errors.JaxRuntimeError, match="forward of Throws: 100% of x must be negative"):
        jax.block_until_ready(function(jnp.ones(1, jnp.float32)))


@pytest.mark.parametrize("error", [KeyError("oh"), CheckFailedError("this", "that is so", "look")])
def test_what_python_raises_while_it_runs_is_raised_as_elsewhere(error):
    class Raises(CustomOperator):
        def forward(self, x):
            raise error

    with pytest.raises(type(error)) as found:
        jax.block_until_ready(custom.function(Raises)(jnp.ones(1)))
    assert found.value is error


def test_outputs_and_gradients_of_another_shape_are_never_read(compiled):
    node, x = custom.custom_operator(node_of(compiled["RowSum"]())), jnp.ones((4, 2))
    (y,) = node.forward(x)
    for gradients, outputs in (((y,), (y[:3],)), ((y[:3],), (y,)), ((y, y), (y,)), ((y,), ())):
        with pytest.raises(UsageError, match="outputs"):
            node.backward(gradients, (x,), outputs)


def test_a_traced_backward_is_differentiated_again():
    class Cube(CustomOperator):
        array_api = True

        def forward(self, x):
            return x**3

        def backward(self, gradients, inputs, outputs):
            return gradients[0] * 3 * inputs[0] ** 2

    slope = jax.grad(lambda x: custom.function(Cube)(x).sum())
    assert jax.grad(lambda x: slope(x).sum())(jnp.array([1.0, 2.0])).tolist() == [6, 12]


def test_a_handler_that_cannot_be_made_is_said(compiled, monkeypatch):
    def refuse(*_, **__):
        raise MissingError("a C++ compiler", "there is none", "install one")

    monkeypatch.setattr(custom, "compile_source", refuse)
    custom._handler.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="called back through Python"):
            custom.function(compiled["SumProduct"])
    finally:
        custom._handler.cache_clear()


def test_a_traced_operator_that_returns_another_shape_is_found_out():
    class Wrong(CustomOperator):
        array_api = True

        def forward(self, x):
            return x[:1]

    with pytest.raises(CheckFailedError, match="output output of Wrong"):
        custom.function(Wrong)(jnp.ones(3))


def test_64_bits_are_refused_where_jax_is_set_to_32(compiled):
    jax.config.update("jax_enable_x64", False)
    with pytest.raises(UnsupportedError, match="set to 32 bits"):
        custom.function(compiled["Largest"])(jnp.ones(3, jnp.float32))

    class Wide(CustomOperator):
        array_api = True

        def infer(self, x):
            return Spec(x.shape, np.dtype("int64"))

        def forward(self, x):
            return namespace(x).argsort(x)

    with pytest.raises(UnsupportedError, match="set to 32 bits"):
        custom.function(Wide)(jnp.ones(3, jnp.float32))


def test_a_node_runs_forward_and_backward(compiled):
    node = custom.custom_operator(node_of(compiled["SumProduct"]()))
    outputs, pullback = node.vjp(jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0]))
    assert [each.tolist() for each in outputs] == [[4, 6], [3, 8]]
    assert [each.tolist() for each in pullback(None, jnp.ones(2))] == [[3, 4], [1, 2]]
