"""A user's own function runs and trains on JAX unchanged."""

import numpy as np
import pytest
from tests.frameworks.jax.networks import MODES, close

from levelbench.errors import DefinitionError, UnsupportedError
from levelbench.networks.native import NativeModel
from levelbench.networks.values import Value

jax = pytest.importorskip("jax")


def native(**changes):
    def function(parameters, x):
        hidden = x @ parameters["layers"][0]["w"] + jax.numpy.ones(3)
        return {"logits": hidden * parameters["scale"], "hidden": hidden}

    parameters = {"layers": [{"w": np.full((4, 3), 0.5, np.float32)}], "scale": np.ones(3, np.float32), "step": 7}
    parameters["step"] = np.array(7, np.int32)
    inputs = (Value("x", "float32", ("batch", 4)),)
    return NativeModel(
        **{"name": "f", "framework": "jax", "model": function, "inputs": inputs, "parameters": parameters} | changes
    )


@MODES
def test_a_function_of_the_user_runs_as_it_is(backend, mode):
    executor = backend.native(native(), mode)
    hidden, logits = executor.infer(backend.array(np.ones((2, 4), np.float32)))
    assert np.asarray(hidden).tolist() == np.asarray(logits).tolist() == [[3.0] * 3] * 2
    assert (list(executor.parameters), list(executor.buffers)) == (["layers.0.w", "scale"], ["step"])


@MODES
def test_a_function_of_the_user_is_trained_with_its_own_loss_or_cross_entropy(backend, mode):
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    labels = np.array([0, 1, 2, 0, 1])
    arrays = backend.array(x), backend.array(labels)
    loss, gradients = backend.native(native(), mode).infer_and_backprop(*arrays)
    # Outputs keep the dictionary's order, so "logits" is the first one; its scale is 1.
    hidden = x @ np.full((4, 3), 0.5) + 1
    share = np.exp(hidden) / np.exp(hidden).sum(1, keepdims=True)
    close(loss, -np.log(share[range(5), labels]).mean())
    close(gradients["layers.0.w"], x.T @ (share - np.eye(3)[labels]) / 5)
    close(gradients["scale"], ((share - np.eye(3)[labels]) * hidden).sum(0) / 5)
    own = native(loss=lambda found, labels: (found["logits"] ** 2).mean())
    loss, gradients = backend.native(own, mode).infer_and_backprop(*arrays)
    close(loss, (hidden**2).mean())
    close(gradients["scale"], 2 * (hidden**2).sum(0) / hidden.size)


@MODES
def test_a_function_of_the_user_computes_in_32_bits_as_jax_does_by_itself(backend, mode):
    model = native(model=lambda parameters, ids: (jax.numpy.arange(3) + ids, jax.numpy.ones(3) * parameters["scale"]))
    found = backend.native(model, mode).infer(backend.array(np.array([1, 2, 3])))
    assert [str(each.dtype) for each in found] == ["int32", "float32"]


@MODES
def test_a_function_whose_parameters_have_64_bits_computes_in_64(backend, mode):
    model = native(model=lambda parameters, x: x * parameters * jax.numpy.ones(3), parameters=np.ones(3))
    executor = backend.native(model, mode)
    assert executor.infer(backend.array(np.ones(3)))[0].dtype == np.float64
    assert list(executor.parameters) == ["parameters"]


@MODES
def test_a_parameter_of_a_function_that_is_replaced_takes_effect_at_once(backend, mode):
    executor, x = backend.native(native(), mode), backend.array(np.ones((2, 4), np.float32))
    executor.parameters["scale"] = np.zeros(3)
    assert not np.any(np.asarray(executor.infer(x)[0]))


@MODES
def test_a_function_without_parameters_takes_only_its_inputs(backend, mode):
    executor = backend.native(native(model=lambda x: x * 2, parameters=None), mode)
    assert np.asarray(executor.infer(backend.array(np.ones(2, np.float32)))[0]).tolist() == [2, 2]


def test_a_function_that_branches_on_a_value_runs_eagerly_and_is_refused_when_compiled(backend):
    model = native(model=lambda x: x if x.sum() > 0 else -x, parameters=None)
    x = backend.array(-np.ones(2, np.float32))
    assert np.asarray(backend.native(model, "eager").infer(x)[0]).tolist() == [1, 1]
    with pytest.raises(UnsupportedError, match=r"needs the value of an array.*Use mode eager"):
        backend.native(model).infer(x)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": 3}, "it is a int. Return a function"),
        ({"parameters": {"w": "text"}}, "w is not an array"),
    ],
)
def test_what_is_no_function_of_arrays_is_refused(backend, changes, says):
    with pytest.raises(DefinitionError, match=says):
        backend.native(native(**changes))


def test_an_answer_without_an_array_and_a_loss_that_is_no_scalar_are_refused(backend):
    x = backend.array(np.ones((2, 4), np.float32))
    with pytest.raises(DefinitionError, match="no array in a str"):
        backend.native(native(model=lambda *_: "nothing")).infer(x)
    with pytest.raises(DefinitionError, match="it is not a scalar array"):
        backend.native(native(loss=lambda found, _: found["logits"])).forward(x, x)
