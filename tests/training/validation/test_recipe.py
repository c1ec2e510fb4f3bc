"""Faults planted in recipes, each found by its probe, and right recipes that pass."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from levelbench.errors import CheckFailedError, UnsupportedError, UsageError
from levelbench.frameworks.numpy import framework
from levelbench.networks import Builder, zoo
from levelbench.networks.builder import GraphBuilder
from levelbench.networks.zoo.blocks import batch_norm, dropout, linear, xavier
from levelbench.training import SGD, Adam, Constant, Momentum, OneCycle, Recipe, Shuffled, Task, Top1
from levelbench.training.augmentation.base import Augmentation
from levelbench.training.datasets.base import Dataset, DatasetSource, Split
from levelbench.training.optimizers.base import Stepper
from levelbench.training.samplers import Epoch
from levelbench.training.schedules import Schedule
from levelbench.training.validation import gradients
from levelbench.training.validation.bench import Bench
from levelbench.training.validation.coverage import covered
from levelbench.training.validation.probes import Report, failed, merged, not_tried
from levelbench.training.validation.recipe import check_recipe

CLASSES, SIDE = 4, 6
NUMPY = framework.open()


def make_dataset(shift=0):
    """Images of classes that a small network tells apart; ``shift`` moves labels away from their inputs."""
    random = np.random.default_rng(0)
    centres = 2 * random.standard_normal((CLASSES, 1, SIDE, SIDE))

    def split(count):
        labels = random.integers(0, CLASSES, count)
        inputs = centres[labels] + random.standard_normal((count, 1, SIDE, SIDE))
        return Split.of(inputs.astype(np.float32), np.roll(labels, shift).astype(np.int64))

    return Dataset("toy", split(256), split(64), split(64), CLASSES, {}, "none", "none", "made here", synthetic=True)


DATA = make_dataset()


class Source(DatasetSource):
    name, licence, attribution = "toy", "CC0", "nobody"

    def load(self, folder=None):
        return DATA

    def lacks(self, folder=None):
        return None


def network():
    return Builder("small", (1, SIDE, SIDE)).conv(4, 3).relu().flatten().gemm(CLASSES).build()


def regularised(ratio):
    """A network with batch normalisation, whose statistics run, and dropout, which draws."""
    size = SIDE * SIDE
    graph = GraphBuilder("regularised")
    flat = graph.node("Flatten", graph.input("x", ("batch", 1, SIDE, SIDE)))
    normalised = dropout(graph, batch_norm(graph, "norm", flat, size), ratio)
    graph.output(linear(graph, "last", normalised, size, CLASSES, xavier(size, CLASSES)))
    return graph.build()


def recipe(**changes):
    made = Recipe(network(), Shuffled(32), Momentum(0.05), epochs=4)
    return replace(made, **changes)


def task_of(function, quality=None):
    made = Task("toy", data=Source(), quality=quality or Top1(0.9), description="toy")
    made.recipe(function)
    return made


def checked(made, quality=None, data=DATA, backend=NUMPY, **options):
    def planted():
        """A recipe."""
        return made() if callable(made) else made

    return check_recipe(task_of(planted, quality), "planted", data, backend, framework="numpy", seconds=1.0, **options)


def found(made, quality=None, data=DATA):
    """The probes that accuse, and what they say."""
    return {each.probe: f"{each.found}. {each.do}" for each in checked(made, quality, data).failed}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"schedule": OneCycle(), "optimizer": Adam(0.01)},
        {"label_smoothing": 0.1},
        {"network": regularised(0.2)},
        {"optimizer": Momentum(0.05, nesterov=True), "sampler": Shuffled(100), "accumulate": 2},
    ],
)
def test_a_right_recipe_passes(changes):
    report = checked(recipe(**changes))
    assert report.failed == ()
    passed = {each.probe for each in report.findings if each.status == "passed"}
    expected = {
        "determinism",
        "evaluation",
        "examples",
        "gradient",
        "one batch",
        "phases",
        "optimizer state",
        "sampler",
    }
    assert expected | ({"accumulation"} if "accumulate" in changes else set()) <= passed


def test_what_is_found_is_raised_with_what_to_do():
    with pytest.raises(CheckFailedError, match=r"planted.*schedule"):
        checked(recipe(schedule=Climbing())).raise_for_findings()


# Evaluation.


class Trains(Top1):
    """An evaluation that takes a step."""

    def measure(self, executor, held):
        for columns in held.batches():
            executor.forward(*columns)
            for name, gradient in executor.backward().items():
                executor.parameters[name] = executor.parameters[name] - 1e-3 * gradient
        return super().measure(executor, held)


def test_an_evaluation_that_trains_is_found():
    assert "it changes" in found(recipe(), Trains(0.9))["evaluation"]


class MovesStatistics(Top1):
    """An evaluation in training mode: buffers move."""

    def measure(self, executor, held):
        for columns in held.batches():
            executor.forward(*columns)
        return super().measure(executor, held)


def test_an_evaluation_that_moves_running_statistics_is_found():
    said = found(recipe(network=regularised(0.0)), MovesStatistics(0.9))
    assert "it changes buffer norm" in said["evaluation"]


class Draws(Top1):
    """An evaluation of half of the examples, drawn anew each time."""

    def measure(self, executor, held):
        return super().measure(executor, held) * float(np.random.default_rng().random())


def test_an_evaluation_that_draws_is_found():
    assert "twice on the same weights" in found(recipe(), Draws(0.9))["evaluation"]


class OfTheFirst(Top1):
    """The first 100 examples, as if there were no more."""

    def measure(self, executor, held):
        *inputs, labels = next(iter(held.batches(100)))
        return float((executor.infer(*inputs)[0].argmax(1) == labels).mean())


class OfTheFirstBatch(Top1):
    def measure(self, executor, held):
        *inputs, labels = next(iter(held.batches()))
        return float((executor.infer(*inputs)[0].argmax(1) == labels).mean())


class OfSomeRows(Top1):
    """All rows are drawn, and few of each batch looked at."""

    def measure(self, executor, held):
        right = [executor.infer(x[:10])[0].argmax(1) == labels[:10] for x, labels in held.batches()]
        return float(np.concatenate(right).mean())


@pytest.mark.parametrize(
    ("quality", "says"),
    [
        (OfTheFirst(0.9), "top1 draws 64 of the 256 examples"),
        (OfTheFirstBatch(0.9), "top1 draws 64 of the 256 examples"),
        (OfSomeRows(0.9), "infer 40 of the 256 examples"),
    ],
)
def test_a_quality_of_a_part_of_the_split_is_found(quality, says):
    bench = Bench(recipe(), DATA, NUMPY, quality)
    _, seen = covered(quality, bench.machine(0).executor, bench.held(DATA.train))
    assert says in seen.found
    assert seen.status == "failed"


def test_a_quality_of_a_part_of_the_split_fails_the_check():
    assert "top1 draws 16 of the 64 examples" in found(recipe(), OfTheFirstBatch(0.9))["examples"]


class Percent(Top1):
    def measure(self, executor, held):
        return 100 * super().measure(executor, held)


def test_a_quality_that_measures_off_its_scale_is_found():
    assert "scale goes from 0 to 1" in found(recipe(), Percent(0.9))["scale"]


def test_a_target_that_is_met_at_the_start_is_found():
    assert "without a step of training" in found(recipe(), Top1(0.01))["untrained"]


# Samplers.


@dataclass(frozen=True)
class Unseeded(Shuffled):
    def epoch(self, split, seed, epoch):
        return self.batched(np.random.default_rng().permutation(len(split)))


@dataclass(frozen=True)
class Twice(Shuffled):
    def epoch(self, split, seed, epoch):
        order = super().epoch(split, seed, epoch).order
        order[0] = order[1]
        return self.batched(order)


@dataclass(frozen=True)
class Drops(Shuffled):
    def epoch(self, split, seed, epoch):
        return self.batched(super().epoch(split, seed, epoch).order[: -self.batch])


@dataclass(frozen=True)
class Overlapping(Shuffled):
    def epoch(self, split, seed, epoch):
        made = super().epoch(split, seed, epoch)
        return Epoch(made.order, np.append(made.bounds, made.bounds[-2]))


@pytest.mark.parametrize(
    ("sampler", "says"),
    [
        (Unseeded(32), "has other batches when it is asked for again"),
        (Twice(32), "1 examples are not visited and 1 more than once"),
        (Drops(32), "it has 7 batches, and steps() says 8"),
        (Overlapping(32), "do not cut its order into batches"),
    ],
)
def test_a_sampler_that_is_not_what_it_says_is_found(sampler, says):
    assert says in found(recipe(sampler=sampler))["sampler"]


def test_an_unseeded_sampler_makes_unequal_runs():
    assert "part within 3 steps" in found(recipe(sampler=Unseeded(32)))["determinism"]


@dataclass(frozen=True)
class Unshuffled(Shuffled):
    def epoch(self, split, seed, epoch):
        return self.batched(np.arange(len(split)))


def test_an_order_that_is_always_the_same_is_noted_and_no_fault():
    report = checked(recipe(sampler=Unshuffled(32)))
    assert report.failed == ()
    assert {each.found for each in report.of("sampler") if each.status == "noted"} == {
        "another epoch has the same order",
        "another seed has the same order",
    }


# Schedules.


@dataclass(frozen=True)
class Climbing(Schedule):
    fixed_length = False

    def factor(self, progress):
        return 1 / (1 - progress) if progress < 1 else float("inf")


@dataclass(frozen=True)
class Zero(Schedule):
    fixed_length = False

    def factor(self, progress):
        return 0.0


@dataclass(frozen=True)
class Below(Schedule):
    fixed_length = False

    def factor(self, progress):
        return 0.5 - progress


class Counting(Schedule):
    fixed_length = False
    calls = 0

    def factor(self, progress):
        self.calls += 1
        return 1 / self.calls


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        (Climbing(), "its factor is inf at a share of 1"),
        (Zero(), "nothing is trained"),
        (Below(), "-0.5"),
        (Counting(), "asked again, it answers with other factors"),
    ],
)
def test_a_schedule_that_no_training_can_follow_is_found(schedule, says):
    said = found(recipe(schedule=schedule))["schedule"]
    assert says in said or (isinstance(schedule, Below) and "its factor is -" in said)


# Optimizers.


@dataclass(frozen=True)
class Uphill(SGD):
    """The sign is wrong."""

    def update(self, parameter, gradient, state, step, lr):
        return super().update(parameter, -gradient, state, step, lr)


def test_an_optimizer_that_climbs_is_found_by_a_loss_that_does_not_fall():
    assert "the loss of 16 examples falls from" in found(recipe(optimizer=Uphill(0.1)))["one batch"]


@dataclass(frozen=True)
class Idle(SGD):
    def update(self, parameter, gradient, state, step, lr):
        return parameter, state


def test_an_optimizer_that_moves_nothing_is_found():
    assert "no parameter moves" in found(recipe(optimizer=Idle(0.1)))["updates"]


@dataclass(frozen=True)
class Frozen(SGD):
    def update(self, parameter, gradient, state, step, lr):
        return (parameter, state) if parameter.ndim == 1 else super().update(parameter, gradient, state, step, lr)


def test_parameters_that_are_frozen_by_mistake_are_named():
    assert "2 of 4 parameters do not move" in found(recipe(optimizer=Frozen(0.1)))["updates"]


@dataclass(frozen=True)
class Noisy(SGD):
    def update(self, parameter, gradient, state, step, lr):
        gradient = gradient + 1e-3 * np.random.default_rng().standard_normal(gradient.shape).astype(gradient.dtype)
        return super().update(parameter, gradient, state, step, lr)


def test_an_optimizer_that_draws_without_a_seed_is_found():
    assert "two runs of seed 0 part" in found(recipe(optimizer=Noisy(0.1)))["determinism"]


class Forgetful(Momentum):
    """Its stepper says that it has no state."""

    def start(self, backend, parameters):
        inner = super().start(backend, parameters)

        class Wrapped(Stepper):
            def step(self, gradients, step, factor):
                inner.step(gradients, step, factor)

            def state(self):
                return {}

            def restore(self, state):
                pass

        return Wrapped()


def test_an_optimizer_whose_state_is_lost_in_a_checkpoint_is_found():
    assert "after restore(state()) the next step" in found(recipe(optimizer=Forgetful(0.05)))["optimizer state"]


def test_a_rate_at_which_the_loss_explodes_at_once_is_found():
    with np.errstate(all="ignore"):
        assert "the losses of the first steps are" in found(recipe(optimizer=SGD(1e30)))["updates"]


# Data and network.


def test_labels_that_stand_beside_other_inputs_are_found():
    wide = Builder("wide", (1, SIDE, SIDE)).flatten().gemm(256).relu().gemm(CLASSES).build()
    made = recipe(network=wide, optimizer=Adam(0.01))
    report = check_recipe(
        task_of(lambda: made), "<lambda>", make_dataset(shift=1), NUMPY, framework="numpy", seconds=4.0
    )
    assert "each label stands beside its own input" in report.of("learning")[0].do


def test_columns_in_the_wrong_order_are_found():
    swapped = replace(DATA, train=Split((DATA.train.labels, DATA.train.inputs)))
    said = found(recipe(), data=swapped)
    assert "inputs" in said


def test_a_network_for_another_size_is_found():
    said = found(recipe(network=zoo.mlp(30, 8, CLASSES)))
    assert "column 0 has the shape [32, 1, 6, 6]" in said["inputs"]


def test_a_network_with_too_few_outputs_is_found():
    small = Builder("small", (1, SIDE, SIDE)).flatten().gemm(CLASSES - 1).build()
    assert "3 outputs for 4 classes" in found(recipe(network=small))["inputs"]


@dataclass(frozen=True)
class SharedDraw(Augmentation):
    """One shift for the whole batch, drawn from the first seed."""

    def apply(self, images, seeds):
        return np.roll(images, int(seeds[0] % 5), axis=3)


@dataclass(frozen=True)
class InPlace(Augmentation):
    def apply(self, images, seeds):
        images *= -1
        return images


@pytest.mark.parametrize(
    ("augmentation", "says"),
    [(SharedDraw(), "another image of one in a batch"), (InPlace(), "changes the array that it is given")],
)
def test_an_augmentation_that_is_not_each_images_own_is_found(augmentation, says):
    assert says in found(recipe(augment=(augmentation,)))["augmentation"]


# Settings.


def test_a_recipe_that_is_another_each_time_is_found():
    rates = iter(np.linspace(0.01, 0.1, 1000))
    assert (
        "it has another optimizer each time"
        in found(lambda: recipe(optimizer=Momentum(float(next(rates)))))["settings"]
    )


def test_a_recipe_without_a_docstring_and_with_a_wrong_annotation_is_found():
    def bare(lr: str = 0.05):
        return recipe(optimizer=Momentum(lr))

    report = check_recipe(task_of(bare), "bare", DATA, NUMPY, framework="numpy", seconds=1.0)
    said = " ".join(each.found for each in report.failed)
    assert "'bare' has no docstring" in said
    assert "annotated" in said


# Gradients.


def test_a_wrong_gradient_is_found_by_differences_of_the_loss(monkeypatch):
    from levelbench.frameworks.numpy.executor import NumpyExecutor

    backward = NumpyExecutor.backward

    def doubled(self):
        gradients = dict(backward(self))
        name = max(gradients, key=lambda each: gradients[each].size)
        return {**gradients, name: 2 * gradients[name]}

    monkeypatch.setattr(NumpyExecutor, "backward", doubled)
    assert "by another slope than the gradient says" in found(recipe())["gradient"]


def accumulated(**changes):
    (seen,) = gradients.accumulation(Bench(recipe(**{"accumulate": 3} | changes), DATA, NUMPY, Top1(0.9)), 0)
    return seen


def test_gradients_that_are_kept_from_the_batch_before_are_found(monkeypatch):
    from levelbench.frameworks.numpy.executor import NumpyExecutor

    backward = NumpyExecutor.backward

    def added_up(self):
        kept = getattr(self, "kept", {})
        self.kept = {name: each + kept.get(name, 0) for name, each in backward(self).items()}
        return self.kept

    assert accumulated().status == "passed"
    monkeypatch.setattr(NumpyExecutor, "backward", added_up)
    assert "batches of 6, 7, 3" in accumulated().found
    assert accumulated().status == "failed"


def test_batches_that_count_alike_whatever_their_size_are_found(monkeypatch):
    from levelbench.training.accumulation import Accumulating

    add = Accumulating._add

    def alike(self):
        # Three batches, or all in one.
        self._share = 1.0 if self._share == 1.0 else 1 / 3
        add(self)

    monkeypatch.setattr(Accumulating, "_add", alike)
    assert accumulated().status == "failed"


def test_accumulation_of_a_network_that_takes_each_batch_by_itself_is_noted():
    seen = accumulated(network=regularised(0.2))
    assert seen.status == "noted"
    assert "BatchNormalization and Dropout" in seen.found


# One finding a misfit.


@dataclass(frozen=True)
class NoBiases(SGD):
    def init(self, parameter):
        if parameter.ndim < 2:
            raise UsageError("an optimizer of matrices", "a parameter of one axis", "use another for biases")
        return super().init(parameter)


def test_an_optimizer_that_refuses_biases_is_told_once():
    (only,) = checked(recipe(optimizer=NoBiases(0.1))).failed
    assert only.probe == "updates"
    assert "(and so in: determinism, evaluation, optimizer state" in only.found


def test_only_what_accuses_in_the_same_words_is_one_finding():
    findings = (failed("a", "x", "y"), not_tried("b", "x", "y"), failed("c", "x", "z"), failed("d", "x", "y"))
    assert [each.probe for each in merged(Report("r", findings)).findings] == ["a", "b", "c"]


def test_a_framework_that_cannot_train_the_recipe_leaves_probes_not_tried(monkeypatch):
    def refuse(*given, **more):
        raise UnsupportedError("bfloat16 on numpy", "it has none", "use torch")

    monkeypatch.setattr(type(NUMPY), "executor", refuse)
    report = checked(recipe())
    assert {each.status for each in report.of("gradient")} == {"not tried"}
    assert report.failed == ()


def test_pytorch_agrees_with_the_reference():
    pytest.importorskip("torch")
    from levelbench.operators.frameworks import open_framework

    made = recipe(schedule=Constant(), precision="bfloat16", channels_last=True)
    report = checked(made, backend=open_framework("torch"), reference=NUMPY)
    assert report.failed == ()
    assert report.of("reference")[0].status == "passed"
    assert "in bfloat16 and channels last the loss is" in report.of("precision")[0].found


def test_a_precision_that_the_framework_has_not_is_not_tried():
    (precision,) = checked(recipe(precision="bfloat16")).of("precision")
    assert precision.status == "not tried"
    assert "numpy" in precision.found.lower()
