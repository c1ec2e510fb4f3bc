"""Users' Keras models in recipes, on each of Keras's backends, in a process each, because Keras has one a process."""

import json
import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from itertools import chain, islice

import numpy as np
import pytest

from levelbench.errors import DefinitionError, UsageError
from levelbench.frameworks import keras_on
from levelbench.networks import Draw, GraphBuilder
from levelbench.networks.native import NativeNetwork, load_native
from levelbench.operators.frameworks import load_framework
from levelbench.training import datasets
from levelbench.training.input import make_loader
from levelbench.training.optimizers import Momentum
from levelbench.training.samplers import Shuffled

PROGRAM = """
import json
import sys
from itertools import chain, islice

import numpy as np

from levelbench.operators.frameworks import load_framework
from levelbench.training import datasets
from levelbench.training.input import make_loader
from levelbench.training.optimizers import Momentum
from levelbench.training.samplers import Shuffled
from levelbench.training.task import Recipe

framework, mode = sys.argv[1:]


def build(seed):
    import keras

    layers = [keras.layers.Dense(32), keras.layers.BatchNormalization(), keras.layers.ReLU(), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input((64,)), *layers])
    # The same seed gives other weights on another backend, unless NumPy draws them.
    draw = np.random.default_rng(seed)
    for each in model.trainable_variables:
        if each.name == "kernel":
            each.assign(draw.normal(0, 0.2, each.shape))
    return model


recipe = Recipe(build, Shuffled(64), Momentum(0.05, 0.9), epochs=3)
backend, dataset = load_framework(framework).open(), datasets.digits.load()
executor = backend.build(recipe.trained_network(), backend.initialise(recipe.network, 0), mode=mode)
loader = make_loader(backend, dataset, dataset.train, recipe.sampler, seed=0)
stepper, path = recipe.optimizer.start(backend, executor.parameters), []
batches = chain.from_iterable(loader.batches(epoch) for epoch in range(10))
for step, columns in enumerate(islice(batches, 50), 1):
    loss, gradients = executor.infer_and_backprop(*columns)
    stepper.step(gradients, step, 1.0)
    path.append(backend.mean([loss]))
(scores,) = executor.infer(backend.array(np.full((2, 64), 0.5, np.float32)))
print(json.dumps([path, backend.host(scores).tolist(), len(executor.parameters), len(executor.buffers)]))
"""

CALLED = """
import json
import sys

import numpy as np

from levelbench.errors import DefinitionError, UnsupportedError
from levelbench.networks.native import NativeNetwork
from levelbench.operators.frameworks import load_framework

backend = load_framework(sys.argv[1]).open()

import keras


class Normalised(keras.Model):
    def __init__(self):
        super().__init__()
        self.normalise, self.dense = keras.layers.BatchNormalization(), keras.layers.Dense(4)

    def call(self, x):
        return self.dense(self.normalise(x))


class Listed(keras.Model):
    def call(self, inputs):
        first, second = inputs
        return first - second


class Adding(keras.layers.Layer):
    def call(self, x):
        self.add_loss(keras.ops.mean(x))
        return x


def scores(model, *arrays):
    executor = backend.native(NativeNetwork(lambda: model).model(0))
    found = executor.infer(*[backend.array(np.array(each, np.float32)) for each in arrays])
    return executor, backend.host(found[0]).tolist()


trained = Normalised()
trained(np.ones((8, 3), np.float32))
executor, _ = scores(trained, np.ones((8, 3)))
executor.forward(backend.array(np.full((8, 3), 2, np.float32)), backend.array(np.zeros(8, np.int64)))
mean = next(backend.host(each) for name, each in executor.buffers.items() if name.endswith("moving_mean"))
a, b = keras.Input((1,), name="a"), keras.Input((1,), name="b")
less = keras.layers.Subtract()([a, b])
listed, named, own = keras.Model([a, b], less), keras.Model({"b": b, "a": a}, less), Listed()
own([np.ones((1, 1), np.float32)] * 2)
found = {name: scores(each, [[5]], [[3]])[1] for name, each in {"list": listed, "names": named, "own": own}.items()}
adding = scores(keras.Sequential([keras.Input((3,)), Adding(), keras.layers.Dense(4)]), np.ones((8, 3)))[0]
spectral = keras.Sequential([keras.Input((3,)), keras.layers.SpectralNormalization(keras.layers.Dense(4))])
for name, each in {"added": adding, "assigned": scores(spectral, np.ones((8, 3)))[0]}.items():
    try:
        each.forward(backend.array(np.ones((8, 3), np.float32)), backend.array(np.zeros(8, np.int64)))
    except DefinitionError as error:
        found[name] = str(error)
heads = {name: keras.layers.Dense(size)(a) for name, size in (("scores", 4), ("alone", 1))}
executor, _ = scores(keras.Model(a, heads), [[5]])
found["heads"] = [list(each.shape) for each in executor.infer(backend.array(np.ones((2, 1), np.float32)))]
given = backend.array(np.ones((2, 1), np.float32)), backend.array(np.array([3, 3]))
found["loss"] = backend.mean([executor.forward(*given)])
layers = [keras.layers.Conv2D(4, 1), keras.layers.MaxPooling2D(), keras.layers.Flatten()]
pooled = NativeNetwork(lambda: keras.Sequential([keras.Input((2, 2, 1)), *layers])).model(0)
if "xla" in backend.modes:
    try:
        backend.native(pooled, "xla").forward(backend.array(np.ones((2, 2, 2, 1), np.float32)), given[1])
    except UnsupportedError as error:
        found["pooled"] = str(error)
print(json.dumps({"mean": mean.tolist(), **found}))
"""


def require(framework):
    if not find_spec("keras"):
        pytest.skip("Keras is not installed")
    if lacking := load_framework(framework).lacks():
        pytest.skip(lacking)


@cache
def trained(framework, mode):
    """Losses, scores of a trained model, the numbers of parameters and buffers; in a process of its own."""
    return said_by(PROGRAM, framework, mode)


@cache
def called(framework):
    """What models of several kinds give; in a process of its own."""
    return said_by(CALLED, framework, KERAS_BACKEND=framework)


def said_by(program, framework, *more, **variables):
    require(framework)
    environment = {name: each for name, each in os.environ.items() if name != "KERAS_BACKEND"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, framework, *more],
        capture_output=True,
        text=True,
        env=environment | variables,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def by_numpy():
    """The losses of the same network and weights on NumPy."""
    g, ones, zeros = GraphBuilder("dense"), Draw("constant", 1.0), Draw("constant", 0.0)
    y = g.node("Gemm", g.input("x", ["batch", 64]), g.parameter("w", [64, 32], ones), g.parameter("b", [32], zeros))
    rest = [g.parameter("scale", [32], ones), g.parameter("bias", [32], zeros)]
    rest += [g.parameter(name, [32], kind, trainable=False) for name, kind in (("mean", zeros), ("variance", ones))]
    y = g.node("Relu", g.node("BatchNormalization", y, *rest, epsilon=1e-3, momentum=0.99))
    g.output(g.node("Gemm", y, g.parameter("v", [32, 10], ones), g.parameter("c", [10], zeros)), "logits")
    network, draw = g.build().with_loss().training(), np.random.default_rng(0)
    drawn = {name: draw.normal(0, 0.2, shape).astype("f4") for name, shape in (("w", (64, 32)), ("v", (32, 10)))}
    backend, dataset = load_framework("numpy").open(), datasets.digits.load()
    executor = backend.executor(network, network.initialise(0) | drawn)
    loader = make_loader(backend, dataset, dataset.train, Shuffled(64), seed=0)
    stepper, path = Momentum(0.05, 0.9).start(backend, executor.parameters), []
    batches = chain.from_iterable(loader.batches(epoch) for epoch in range(10))
    for step, columns in enumerate(islice(batches, 50), 1):
        loss, gradients = executor.infer_and_backprop(*columns)
        stepper.step(gradients, step, 1.0)
        path.append(float(loss))
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "mode"),
    [("tensorflow", "compiled"), ("tensorflow", "eager"), ("tensorflow", "xla"), ("jax", "jit"), ("torch", "eager")],
)
def test_a_keras_model_follows_numpys_losses_on_each_of_its_backends(framework, mode):
    path, _, *counts = trained(framework, mode)
    assert np.abs(np.array(path) - by_numpy()).max() < 1e-4
    # A trained variable each for two layers and the normalisation, and its running mean and variance.
    assert counts == [6, 2]


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_trained_keras_model_gives_the_same_scores_on_each_backend(framework):
    np.testing.assert_allclose(
        trained(framework, "jit" if framework == "jax" else "eager")[1], trained("tensorflow", "compiled")[1], atol=1e-3
    )


BACKENDS = pytest.mark.parametrize("framework", ["tensorflow", "jax", "torch"])


@pytest.mark.slow
@BACKENDS
def test_layers_of_a_keras_model_that_is_a_class_are_told_that_it_trains(framework):
    # A hundredth of the batch's mean.
    np.testing.assert_allclose(called(framework)["mean"], 0.02, rtol=1e-5)


@pytest.mark.slow
@BACKENDS
def test_a_keras_model_takes_several_inputs_in_its_own_list_or_dictionary(framework):
    found = called(framework)
    assert (found["list"], found["own"], found["names"]) == ([[2]], [[2]], [[-2]])


@pytest.mark.slow
@BACKENDS
def test_a_loss_that_a_layer_adds_in_its_call_is_refused_once_it_is_known(framework):
    assert "add_loss" in called(framework)["added"]


@pytest.mark.slow
@BACKENDS
def test_outputs_in_a_dictionary_keep_its_order_and_the_first_has_the_loss(framework):
    found = called(framework)
    assert found["heads"] == [[2, 4], [2, 1]]
    assert found["loss"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["tensorflow", "jax"])
def test_a_layer_that_assigns_to_a_trained_weight_is_refused(framework):
    assert "assigns to" in called(framework)["assigned"]


@pytest.mark.slow
def test_what_xla_lacks_for_a_keras_model_is_refused():
    assert "in mode 'xla' on tensorflow" in called("tensorflow")["pooled"]


class Model:
    """What a recipe needs of a Keras model on JAX or TensorFlow."""

    losses = ()
    trainable_variables = non_trainable_variables = ()

    def __call__(self, x):
        return x

    def stateless_call(self, trained, rest, x, training):
        return x, rest


def test_a_keras_model_of_another_backend_is_told_how_to_choose_it():
    lacking = load_framework("torch").lacks()
    if lacking:
        pytest.skip(lacking)
    with pytest.raises(UsageError, match=r"framework=jax; or import keras .* KERAS_BACKEND=torch"):
        load_framework("torch").open().initialise(NativeNetwork(Model), 0)


def test_losses_of_a_keras_models_layers_are_refused():
    class Regularised(Model):
        losses = (0.5,)

    with pytest.raises(DefinitionError, match="regularizers"):
        NativeNetwork(Regularised).model(0)


@pytest.mark.parametrize("name", ["compute_loss", "train_step"])
def test_a_keras_model_with_a_training_step_or_loss_of_its_own_is_refused(name):
    own = type("Own", (Model,), {name: lambda self: None})
    with pytest.raises(DefinitionError, match=f"Own has a {name} of its own, which a recipe does not call"):
        NativeNetwork(own).model(0)


def test_a_keras_model_with_losses_of_its_own_infers(tmp_path):
    lines = ["from tests.training.test_keras_recipes import Model", "class Regularised(Model): losses = (0.5,)"]
    lines.append("def build(): return Regularised(), {'x': ('batch', 2)}")
    (tmp_path / "file.py").write_text("\n".join(lines))
    assert load_native(f"{tmp_path / 'file.py'}:build").framework == "jax"


def test_a_keras_model_without_weights_yet_is_refused():
    class Unbuilt(Model):
        built = False

    with pytest.raises(DefinitionError, match="Call the model once"):
        NativeNetwork(Unbuilt).model(0)


def test_a_file_may_return_a_keras_model_with_its_inputs(tmp_path):
    lines = ["from tests.training.test_keras_recipes import Model", "def build(): return Model(), {'x': ('batch', 2)}"]
    (tmp_path / "file.py").write_text("\n".join(lines))
    model = load_native(f"{tmp_path / 'file.py'}:build")
    assert (model.framework, model.parameters, model.state) == ("jax", {}, {})


def test_keras_as_a_framework_names_those_that_run_it():
    with pytest.raises(UsageError, match="tensorflow, jax or torch: a recipe"):
        load_framework("keras")


def test_the_backend_that_a_user_chose_for_keras_stays(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    with keras_on("torch"):
        assert os.environ["KERAS_BACKEND"] == "jax"
    monkeypatch.delenv("KERAS_BACKEND")
    with keras_on("torch"):
        assert os.environ["KERAS_BACKEND"] == "torch"
    assert "KERAS_BACKEND" not in os.environ
