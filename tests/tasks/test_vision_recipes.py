"""The recipes for images: what their sources say, and that they learn made data where the real one is not at hand."""

import hashlib
import math
from functools import cache

import numpy as np
import pytest

from levelbench.measure.clocks import FakeClock
from levelbench.measure.timeline import Timeline
from levelbench.networks.cost import network_cost
from levelbench.networks.zoo.small import quick, resnet9
from levelbench.tasks import cifar10, fashion_mnist, imagenet
from levelbench.training import Recipe, Shuffled, Top1, Trainer
from levelbench.training.augmentation import Cutout, Flip, RandomCrop
from levelbench.training.datasets.base import Dataset, Normalisation, Split
from levelbench.training.datasets.cifar import CIFAR10, Cifar, Edition, File, Version
from levelbench.training.optimizers import Groups, Momentum
from levelbench.training.schedules import PiecewiseLinear
from levelbench.training.stopping import Evaluate, Stopping

TASKS = {each.task.name: each.task for each in (fashion_mnist, cifar10, imagenet)}
CIFAR_STEPS = -(-45_000 // 128)


@cache
def assembled(task, recipe, **given):
    """The recipe; made once, for it is a value."""
    return TASKS[task].assemble(recipe, TASKS[task].settings(recipe, given))


@pytest.mark.parametrize(("task", "recipe"), [(name, each) for name in TASKS for each in TASKS[name].recipes])
def test_every_recipe_can_be_assembled_with_each_of_its_factors_switched_off(task, recipe):
    full = assembled(task, recipe)
    for factor, off in TASKS[task].factors(recipe).items():
        assert assembled(task, recipe, **{factor: off}).network.name == full.network.name


@pytest.mark.parametrize("task", TASKS)
def test_each_task_has_a_plain_and_a_fast_recipe(task):
    described = [TASKS[task].recipe_function(each).__doc__ for each in TASKS[task].recipes]
    assert len(described) >= 2
    assert all(described)


@pytest.mark.parametrize("depth", [20, 32, 44, 56, 110])
def test_the_papers_residual_networks_train_for_64_thousand_steps(depth):
    recipe = assembled("cifar10", f"resnet{depth}")
    assert recipe.epochs * CIFAR_STEPS == pytest.approx(64_000, rel=0.002)
    assert (recipe.optimizer.momentum, recipe.optimizer.weight_decay) == (0.9, 1e-4)


@pytest.mark.parametrize(("step", "rate"), [(0, 0.1), (31_000, 0.1), (33_000, 0.01), (49_000, 0.001)])
def test_the_papers_rate_falls_at_32_and_48_thousand_steps(step, rate):
    recipe = assembled("cifar10", "resnet56")
    assert recipe.optimizer.lr * recipe.schedule.factor(step / 64_000) == pytest.approx(rate)


def test_110_layers_start_at_a_tenth_of_the_rate():
    recipe = assembled("cifar10", "resnet110")
    rates = [recipe.optimizer.lr * recipe.schedule.factor(step / 64_000) for step in (0, 401)]
    assert rates == pytest.approx([0.01, 0.1])


def test_the_fast_cifar_recipe_is_that_of_its_source():
    recipe = assembled("cifar10", "resnet9")
    assert sum(math.prod(each.shape) for each in recipe.network.parameters if each.trainable) == 6_573_120
    rates = [recipe.optimizer.lr * recipe.schedule.factor(epoch / 24) for epoch in (0, 5, 14.5, 24)]
    assert rates == pytest.approx([0, 0.4, 0.2, 0])
    assert [type(each) for each in recipe.augment] == [RandomCrop, Flip, Cutout]


@pytest.mark.parametrize("recipe", ["plain", "progressive"])
def test_imagenet_decays_no_scale_or_shift_of_a_normalisation(recipe):
    made = assembled("imagenet", recipe)
    assert isinstance(made.optimizer, Groups)
    names = {each.name: each for each in made.network.parameters if each.trainable}
    decayed = made.optimizer.members(names)[""]
    # Kernels, and the last layer's weight and bias.
    assert {len(names[each].shape) for each in decayed if not each.startswith("fc.")} == {4}
    assert len(names) - len(decayed) == 2 * 53


@pytest.mark.parametrize(("epoch", "rate"), [(0, 0.01), (5, 0.1), (29, 0.1), (31, 0.01), (61, 1e-3), (81, 1e-4)])
def test_the_plain_imagenet_rate_is_warmed_up_and_falls_at_30_60_and_80_epochs(epoch, rate):
    recipe = assembled("imagenet", "plain")
    assert recipe.optimizer.lr * recipe.schedule.factor(epoch / 90) == pytest.approx(rate)


@pytest.mark.parametrize(("epoch", "rate"), [(0, 1), (4.999, 2), (6, 1), (15, 1), (17, 0.1), (28, 0.01), (34, 0.001)])
def test_the_progressive_imagenet_rate_is_that_of_its_source(epoch, rate):
    recipe = assembled("imagenet", "progressive")
    assert recipe.optimizer.lr * recipe.schedule.factor(epoch / 35) == pytest.approx(rate, rel=1e-3)


@pytest.mark.parametrize(("epoch", "size"), [(0, 128), (13, 128), (14, 224), (34, 224)])
def test_images_grow_at_epoch_14(epoch, size):
    growing = assembled("imagenet", "progressive").augment[0]
    images = np.zeros((1, 3, 32, 32), np.uint8)
    assert growing.at(epoch / 35).apply(images, np.zeros(1, np.uint64)).shape == (1, 3, size, size)


def test_the_fast_fashion_recipe_costs_a_sixth_of_the_plain_one_or_less():
    """By multiply-adds of the planned training, if the plain one is confirmed after four epochs."""
    fast, plain = assembled("fashion-mnist", "fast"), assembled("fashion-mnist", "plain")
    costs = [network_cost(each.network).multiply_adds * epochs for each, epochs in ((fast, fast.epochs), (plain, 4))]
    assert costs[0] * 6 < costs[1]


def test_the_way_to_93_percent_costs_half_of_the_plain_recipes_to_its_target_or_less():
    """By multiply-adds of the planned training, if the plain one is confirmed after four epochs."""
    fast93, plain = assembled("fashion-mnist", "fast93"), assembled("fashion-mnist", "plain")
    costs = [
        network_cost(each.network).multiply_adds * epochs for each, epochs in ((fast93, fast93.epochs), (plain, 4))
    ]
    assert costs[0] < costs[1]
    assert fast93.schedule.fixed_length


# ------------------------------------------------------------------------------------------------------------------
# Training for real, on small data.


def gratings(shape, count, seed):
    """Waves of ten frequencies at random places under noise: a class keeps its own through crops and flips."""
    channels, height, width = shape
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % 10
    phase = generator.uniform(0, 2 * np.pi, (count, 1, 1, 1))
    waves = np.sin(2 * np.pi * (labels[:, None, None, None] + 1) * np.arange(width) / width / 2 + phase)
    images = 128 + 80 * waves + generator.normal(0, 8, (count, channels, height, width))
    return np.clip(images, 0, 255).astype(np.uint8), labels.astype(np.int64)


def cifar_files(folder):
    """Made images in the files of CIFAR-10's binary version; the edition with their checksums."""
    files = []
    for seed, (name, count) in enumerate({"train.bin": 320, "test.bin": 20}.items()):
        images, labels = gratings((3, 32, 32), count, seed)
        content = np.concatenate([labels.astype(np.uint8)[:, None], images.reshape(count, -1)], axis=1).tobytes()
        (folder / name).write_bytes(content)
        files.append(File(name, count, hashlib.sha256(content).hexdigest()))
    return Edition("cifar10", 10, (Version("none.tar.gz", "", "none", tuple(files)),), CIFAR10.normalisation)


def trained(backend, dataset, recipe, target=0.5):
    """The validation qualities of a training to its end."""
    quality = Top1(target=target)
    stopping = Stopping(quality.as_target(), "confirmed", Evaluate.parse("1 epoch"), recipe.epochs)
    timeline = Timeline(FakeClock(tick_ns=1000))
    outcome = Trainer(backend, dataset, recipe, quality, stopping, seed=0, timeline=timeline).run()
    return [each.quality["validation"] for each in outcome.evaluations]


@pytest.fixture
def torch_backend():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from levelbench.frameworks.torch import framework

    return framework.open("cpu")


def test_the_fast_cifar_recipe_learns_made_images_in_cifars_format(torch_backend, tmp_path):
    dataset = Cifar(cifar_files(tmp_path)).load(tmp_path)
    recipe = assembled("cifar10", "resnet9", width=4, epochs=5, batch=16, lr=0.1, precision="float32", workers=0)
    assert trained(torch_backend, dataset, recipe)[-1] > 0.5  # a guess is right in a tenth


@pytest.mark.parametrize(("task", "recipe"), [("cifar10", "resnet20"), ("fashion-mnist", "plain")])
def test_a_plain_recipe_learns_one_batch_by_heart(torch_backend, task, recipe):
    made = assembled(task, recipe)
    shape = made.network.inputs[0].shape[1:]
    images, labels = gratings(shape, 10, 0)
    executor = torch_backend.executor(made.trained_network(), made.network.initialise(0))
    batch = torch_backend.array(((images - 128.0) / 64).astype(np.float32)), torch_backend.array(labels)
    stepper = made.optimizer.start(torch_backend, executor.parameters)
    losses = []
    for step in range(1, 17):
        loss, gradients = executor.infer_and_backprop(*batch)
        stepper.step(gradients, step, made.schedule.factor(0.0))
        losses.append(float(loss))
    assert losses[0] > 1.5
    assert losses[-1] < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["plain", "progressive"])
def test_an_imagenet_recipe_learns_one_small_batch_by_heart(torch_backend, recipe):
    made = assembled("imagenet", recipe)
    images, labels = gratings((3, 32, 32), 8, 0)
    executor = torch_backend.executor(made.trained_network(), made.network.initialise(0))
    batch = torch_backend.array(((images - 128.0) / 64).astype(np.float32)), torch_backend.array(labels)
    stepper = made.optimizer.start(torch_backend, executor.parameters)
    losses = []
    for step in range(1, 8):
        loss, gradients = executor.infer_and_backprop(*batch)
        stepper.step(gradients, step, 0.01 / made.optimizer.lr)
        losses.append(float(loss))
    assert losses[0] > 6.0
    assert losses[-1] < 0.5


@pytest.mark.parametrize(
    "network", [quick(widths=(4, 8, 16)), quick(widths=(4, 8), residuals=(0, 1)), resnet9(channels=1, size=16, width=2)]
)
def test_a_fast_network_learns_one_batch_by_heart(torch_backend, network):
    size = network.inputs[0].shape[-1]
    executor = torch_backend.executor(network.with_loss().training(), network.initialise(0), channels_last=True)
    generator = np.random.default_rng(0)
    images = torch_backend.array(generator.standard_normal((16, 1, size, size)).astype(np.float32))
    labels = torch_backend.array(np.arange(16) % 10)
    stepper = Momentum(0.2, 0.9, nesterov=True).start(torch_backend, executor.parameters)
    for step in range(1, 61):
        loss, gradients = executor.infer_and_backprop(images, labels)
        stepper.step(gradients, step, 1.0)
    assert float(loss) < 0.05


def test_the_fast_fashion_recipe_learns_made_images(torch_backend):
    splits = [Split.of(*gratings((1, 28, 28), count, seed)) for seed, count in enumerate((640, 100, 20))]
    scale = Normalisation((0.5,), (0.25,))
    dataset = Dataset("made", *splits, 10, {}, "none", "none", "made here", synthetic=True, normalisation=scale)
    recipe = assembled("fashion-mnist", "fast", width=4, batch=32, epochs=3)
    assert trained(torch_backend, dataset, recipe)[-1] > 0.7


def test_a_recipe_in_another_precision_is_another_recipe():
    assert assembled("fashion-mnist", "fast", precision="bfloat16").precision == "bfloat16"
    assert Recipe(quick(), Shuffled(4), Momentum(0.1), 1, PiecewiseLinear()).precision == "float32"
