"""The same recipe gives the same trajectory on every framework, which shows that they train the same network."""

from functools import cache
from itertools import chain, islice

import numpy as np
import pytest

from levelbench import plugins
from levelbench.training import datasets
from levelbench.training.input import make_loader
from levelbench.training.trainer import experience_of

STEPS = 20


@cache
def loaded(task_name):
    return plugins.load("task", task_name).data.load()


def losses(framework, task_name, recipe_name, steps=STEPS, **given):
    """The training loss of each step, seed 0."""
    task, backend = plugins.load("task", task_name), plugins.load("framework", framework).open()
    dataset = loaded(task_name)
    recipe = task.assemble(recipe_name, task.settings(recipe_name, given))
    executor = backend.executor(recipe.trained_network(), recipe.network.initialise(0))
    if recipe.experience is None:
        loader = make_loader(backend, dataset, dataset.train, recipe.sampler, seed=0)
    else:
        loader = experience_of(recipe, backend, dataset, executor, 0)
    stepper, path = recipe.optimizer.start(backend, executor.parameters), []
    batches = chain.from_iterable(loader.batches(epoch) for epoch in range(10))
    for step, columns in enumerate(islice(batches, steps), 1):
        loss, gradients = executor.infer_and_backprop(*columns)
        stepper.step(gradients, step, recipe.schedule.factor(step / 1000))
        path.append(backend.mean([loss]))
    return np.array(path)


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
@pytest.mark.parametrize("recipe", ["mlp", "onecycle"])
def test_digits_follows_numpys_losses(framework, recipe):
    if lacking := plugins.load("framework", framework).lacks():
        pytest.skip(lacking)
    difference = np.abs(losses("numpy", "digits", recipe, 50) - losses(framework, "digits", recipe, 50))
    assert difference.max() < 1e-4


@pytest.mark.parametrize(("framework", "recipe"), [("torch", "linear"), ("torch", "mlp"), ("jax", "mlp")])
def test_tabular_follows_numpys_losses(framework, recipe):
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    if lacking := datasets.diabetes.lacks():
        pytest.skip(lacking)
    np.testing.assert_allclose(losses(framework, "tabular", recipe), losses("numpy", "tabular", recipe), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize("recipe", ["gmf", "neumf"])
def test_movielens_follows_numpys_losses(framework, recipe):
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    if lacking := datasets.movielens.lacks():
        pytest.skip(lacking)
    ours = losses("numpy", "movielens", recipe, steps=10)
    np.testing.assert_allclose(losses(framework, "movielens", recipe, steps=10), ours, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_voices_follows_numpys_losses(framework):
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    if lacking := datasets.voices.lacks():
        pytest.skip(lacking)
    np.testing.assert_allclose(losses(framework, "voices", "conv1d"), losses("numpy", "voices", "conv1d"), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_speech_follows_numpys_losses(framework):
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    if lacking := datasets.spoken_numbers.lacks():
        pytest.skip(lacking)
    ours = losses("numpy", "speech", "ctc", steps=5)
    np.testing.assert_allclose(losses(framework, "speech", "ctc", steps=5), ours, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_detection_follows_numpys_losses(framework):
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    if lacking := datasets.fashion_scenes.lacks():
        pytest.skip(lacking)
    ours = losses("numpy", "detection", "ssd", steps=5)
    np.testing.assert_allclose(losses(framework, "detection", "ssd", steps=5), ours, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_segmentation_follows_numpys_losses(framework):
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    if lacking := datasets.fashion_masks.lacks():
        pytest.skip(lacking)
    ours = losses("numpy", "segmentation", "unet", steps=5)
    np.testing.assert_allclose(losses(framework, "segmentation", "unet", steps=5), ours, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize("recipe", ["gpt", "llama", "moe"])
def test_code_lm_follows_numpys_losses(framework, recipe):
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    ours = losses("numpy", "code-lm", recipe, steps=10)
    np.testing.assert_allclose(losses(framework, "code-lm", recipe, steps=10), ours, rtol=1e-4)


@pytest.mark.slow
def test_the_autoencoder_follows_the_same_losses_on_numpy_and_torch(monkeypatch):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setenv("LEVELBENCH_OFFLINE", "1")  # a test downloads nothing
    if lacking := datasets.fashion_mnist_images.lacks():
        pytest.skip(lacking)
    ours, torch = (losses(each, "autoencoder", "dense") for each in ("numpy", "torch"))
    np.testing.assert_allclose(torch, ours, rtol=1e-4)


@pytest.mark.slow
def test_fashion_mnist_follows_the_same_losses_on_numpy_and_torch(monkeypatch):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setenv("LEVELBENCH_OFFLINE", "1")  # a test downloads nothing
    if lacking := datasets.fashion_mnist.lacks():
        pytest.skip(lacking)
    difference = np.abs(losses("numpy", "fashion-mnist", "cnn") - losses("torch", "fashion-mnist", "cnn"))
    assert difference.max() < 1e-4


def test_another_learning_rate_leaves_the_trajectory():
    """The check can fail: one percent more per step shows within twenty."""
    difference = np.abs(losses("numpy", "digits", "mlp") - losses("numpy", "digits", "mlp", lr=0.0505))
    assert difference.max() > 1e-4, difference.max()


@pytest.mark.parametrize("framework", ["torch", pytest.param("jax", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("task", "recipe"), [("cartpole", "ppo"), ("cartpole", "a2c"), ("acrobot", "a2c")])
def test_an_environments_task_follows_numpys_losses(framework, task, recipe):
    """As long as no action's chance is so near to its draw that rounding decides: what follows is another story."""
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    if lacking := getattr(datasets, task).lacks():
        pytest.skip(lacking)
    np.testing.assert_allclose(losses(framework, task, recipe), losses("numpy", task, recipe), rtol=1e-4)
