"""The functions that rules share: on NumPy and PyTorch arrays, on numbers, and on a type that implements them."""

import numpy as np
import pytest

from levelbench.training.optimizers import arrays

CALLS = {
    "add_product": (lambda x: arrays.add_product(x, x + 1, x + 2, 3.0), lambda x: x + 3 * (x + 1) * (x + 2)),
    "add_quotient": (lambda x: arrays.add_quotient(x, x + 1, x + 2, 3.0), lambda x: x + 3 * (x + 1) / (x + 2)),
    "add_scaled": (lambda x: arrays.add_scaled(x, x + 1, 3.0), lambda x: x + 3 * (x + 1)),
    "copy": (arrays.copy, lambda x: x),
    "maximum": (lambda x: arrays.maximum(x, 2.0), lambda x: np.maximum(x, 2)),
    "minimum": (lambda x: arrays.minimum(2.0, x), lambda x: np.minimum(x, 2)),
    "mix": (lambda x: arrays.mix(x, x + 1, 0.25), lambda x: x + 0.25),
    "sign": (lambda x: arrays.sign(x - 2), lambda x: np.sign(x - 2)),
    "sqrt": (arrays.sqrt, np.sqrt),
    "zeros_like": (arrays.zeros_like, np.zeros_like),
}
TARGETS = {"add_product", "add_quotient", "add_scaled", "mix"}


def made(framework, values):
    if framework == "numpy":
        return values.copy()
    return pytest.importorskip(framework, reason=f"{framework} is not installed").from_numpy(values.copy())


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("name", arrays.ELEMENTWISE)
def test_a_function_changes_only_its_target(name, framework):
    ours, expected = CALLS[name]
    values = np.array([0.5, 1.0, 2.0, 3.5], np.float32)
    given = made(framework, values)
    result = ours(given)
    np.testing.assert_allclose(np.asarray(result), expected(values), rtol=1e-6)
    assert np.asarray(result).dtype == np.float32
    assert (result is given) == (name in TARGETS)
    if name not in TARGETS:
        np.testing.assert_array_equal(np.asarray(given), values)


class Recording:
    """A list type that records its calls."""

    def __init__(self):
        self.calls = []

    def __levelbench_function__(self, name, *args):
        self.calls.append((name, args))
        return "answered"

    def __add__(self, other):
        return self

    __sub__ = __add__


@pytest.mark.parametrize("name", arrays.ELEMENTWISE)
def test_a_list_type_is_called_with_the_functions_name(name):
    given = Recording()
    assert CALLS[name][0](given) == "answered"
    assert [call for call, _ in given.calls] == [name]


def test_numbers_are_accepted_as_a_rules_rate_is_one():
    assert (arrays.sqrt(4.0), arrays.maximum(1.0, 2), arrays.minimum(1.0, 2)) == (2.0, 2, 1.0)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_norm_and_where_keep_the_dtype(framework):
    given = made(framework, np.array([3.0, 4.0], np.float32))
    chosen = arrays.where(given > 3, 1.0, given)
    assert float(arrays.norm(given)) == 5.0
    assert np.asarray(arrays.norm(given)).dtype == np.asarray(chosen).dtype == np.float32
    assert np.asarray(chosen).tolist() == [3.0, 1.0]
