"""A correct recipe passes, and findings are reported once."""

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from tests.training.probes.recipes import CLASSES, DATA, NUMPY, SIDE, checked, found, recipe, regularised, task_of

from levelbench.checks.findings import failed, merged, not_tried
from levelbench.errors import UnsupportedError
from levelbench.networks import Builder
from levelbench.training import Adam, Augmentation, Constant, Momentum, OneCycle, Quality, Sampler, Shuffled, Top1
from levelbench.training.datasets.base import Split
from levelbench.training.probes.bench import Bench
from levelbench.training.probes.loss import loss as loss_findings
from levelbench.training.probes.loss import means_quality, outputs, statistics
from levelbench.training.probes.recipe import check_recipe
from levelbench.training.probes.recipe_parts import augmentation, sampler

pytestmark = pytest.mark.sampled(3)


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
def test_a_correct_recipe_passes(changes):
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


def test_a_recipe_that_differs_each_time_is_found():
    rates = iter(np.linspace(0.01, 0.1, 1000))
    assert "it has a different optimizer" in found(lambda: recipe(optimizer=Momentum(float(next(rates)))))["settings"]


@pytest.mark.parametrize(
    ("part", "values"),
    [("accumulate", (1, 2)), ("workers", (0, 1)), ("channels_last", (False, True)), ("mode", (None, "eager"))],
)
def test_any_part_of_a_recipe_that_changes_between_calls_is_found(part, values):
    turns = itertools.cycle(values)
    assert f"it has a different {part}" in found(lambda: recipe(**{part: next(turns)}))["settings"]


def with_sampler_of_its_own(shift):
    class Own(Shuffled):
        def shifted(self):
            return shift

    return recipe(sampler=Own(64))


def test_a_class_within_a_recipe_does_not_make_it_another_one():
    assert "settings" not in found(lambda: with_sampler_of_its_own(1))


def test_a_class_within_a_recipe_that_differs_each_time_is_found():
    turns = itertools.count()
    assert "it has a different sampler" in found(lambda: with_sampler_of_its_own(next(turns)))["settings"]


def test_a_recipe_without_a_docstring_and_with_a_wrong_annotation_is_found():
    def bare(lr: str = 0.05):
        return recipe(optimizer=Momentum(lr))

    report = check_recipe(task_of(bare), "bare", DATA, NUMPY, framework="numpy", seconds=1.0)
    said = " ".join(each.found for each in report.failed)
    assert "'bare' has no docstring" in said
    assert "annotated" in said


def test_only_identical_findings_are_merged():
    findings = (
        failed("x", "y", probe="a"),
        not_tried("x", "y", probe="b"),
        failed("x", "z", probe="c"),
        failed("x", "y", probe="d"),
    )
    assert [each.probe for each in merged(findings)] == ["a", "b", "c"]


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


def test_an_unsupported_precision_is_not_tried():
    (precision,) = checked(recipe(precision="bfloat16")).of("precision")
    assert precision.status == "not tried"
    assert "numpy" in precision.found.lower()


def native(layers=None, seed=None):
    """A builder of PyTorch's own network; ``layers`` holds its first layer in place of an attribute."""
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = (layers or torch.nn.ModuleList)([torch.nn.Linear(SIDE * SIDE, 16)])
            self.last = torch.nn.Linear(16, CLASSES)

        def forward(self, x):
            return self.last(self.first[0](x.flatten(1)).relu())

    def build():
        if seed is not None:
            torch.manual_seed(seed)
        return Net()

    return build


def native_findings(probe, **changes):
    from levelbench.operators.frameworks import open_framework

    return {each.probe: each.found for each in checked(recipe(**changes), backend=open_framework("torch")).failed}[
        probe
    ]


def test_a_layer_in_a_list_that_nothing_trains_is_found():
    assert "nothing trains 2 tensors (16x36, 16)" in native_findings("updates", network=native(list))


def test_weights_that_ignore_the_seed_are_found():
    assert "start from the same weights" in native_findings("another seed", network=native(seed=0))


def test_a_class_that_the_loss_leaves_out_is_found():
    torch = pytest.importorskip("torch")
    loss = torch.nn.CrossEntropyLoss(ignore_index=2)
    assert "outputs of examples of class 2" in native_findings("loss", network=native(), loss=loss)


def test_a_class_whose_score_the_loss_leaves_out_is_found():
    torch = pytest.importorskip("torch")

    def loss(scores, labels):
        wanted = torch.nn.functional.one_hot(labels, CLASSES).float()
        return torch.nn.functional.binary_cross_entropy_with_logits(scores[:, :-1], wanted[:, :-1])

    assert "does not depend on the score of class 3" in native_findings("loss", network=native(), loss=loss)


def test_a_network_that_keeps_statistics_of_the_first_batch_it_sees_is_found():
    build = native()

    def centred():
        net = build()
        first = []

        def centre(module, inputs):
            first.append(inputs[0].mean(0))
            return (inputs[0] - first[0],)

        net.register_forward_pre_hook(centre)
        return net

    assert "training differs after an evaluation" in native_findings("evaluation", network=centred)


@pytest.mark.parametrize("masked", [False, True])
def test_a_prediction_of_the_next_token_that_sees_it_is_found(masked):
    torch = pytest.importorskip("torch")
    from levelbench.operators.frameworks import open_framework

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = torch.nn.Embedding(CLASSES, 8)
            self.mix, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, CLASSES)

        def forward(self, x):
            there = self.tokens(x)
            seen = torch.ones(x.shape[1], x.shape[1])
            shares = torch.tril(seen) if masked else seen
            return self.last(torch.einsum("ts,bsd->btd", shares / shares.sum(1, keepdim=True), self.mix(there)))

    def loss(scores, labels):
        return torch.nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())

    text = np.random.default_rng(0).integers(0, CLASSES, (96, 13))
    parts = [Split.of(rows[:, :-1], rows[:, 1:]) for rows in np.split(text, 3)]
    data = replace(DATA, train=parts[0], validation=parts[1], test=parts[2])
    made = recipe(network=Net, loss=loss)
    failures = outputs(Bench(made, data, open_framework("torch"), Top1(0.9)), 0)
    assert [each.status for each in failures] == ["passed" if masked else "failed"]


@dataclass(frozen=True)
class SumOfSeeds(Sampler):
    def epoch(self, split, seed, epoch):
        return self.batched(np.random.default_rng(seed + epoch).permutation(len(split)))


def test_orders_that_the_next_seed_repeats_are_noted():
    found = list(sampler(recipe(sampler=SumOfSeeds(32)), DATA.train, 0))
    assert ["epoch 1 of seed 0 has the order of epoch 0 of seed 1" in each.found for each in found] == [True, False]


@dataclass(frozen=True)
class Never(Augmentation):
    def apply(self, images, seeds):
        return images.copy()


def test_an_augmentation_that_changes_nothing_is_noted():
    found = list(augmentation(recipe(augment=(Never(),)), DATA, 0))
    assert [(each.status, "leaves all" in each.found) for each in found] == [("noted", True), ("passed", False)]


def test_a_right_network_of_pytorch_is_not_accused():
    torch = pytest.importorskip("torch")
    from levelbench.operators.frameworks import open_framework

    made = recipe(network=native(), loss=torch.nn.CrossEntropyLoss(weight=torch.linspace(0.5, 1.5, CLASSES)))
    assert checked(made, backend=open_framework("torch")).failed == ()


def test_a_network_that_computes_something_else_in_evaluation_is_found():
    build = native()
    from levelbench.operators.frameworks import open_framework

    class Turned(type(build())):
        def forward(self, x):
            return super().forward(x) * (1 if self.training else -1)

    bench = Bench(recipe(network=Turned), DATA, open_framework("torch"), Top1(0.9))
    (finding,) = means_quality(bench, 0, budget_s=60.0)
    assert finding.status == "failed"
    assert "but the outputs of evaluation" in finding.found


def normalised(norm):
    """A builder of PyTorch's own network with this layer in the middle."""
    torch = pytest.importorskip("torch")

    def build():
        layers = [torch.nn.Flatten(), torch.nn.Linear(SIDE * SIDE, 16), norm(torch.nn), torch.nn.ReLU()]
        return torch.nn.Sequential(*layers, torch.nn.Linear(16, CLASSES))

    return build


def lost(nn):
    """A normalisation that computes running statistics and drops them."""

    class Lost(nn.BatchNorm1d):
        def forward(self, x):
            kept = self.running_mean.clone(), self.running_var.clone()
            found = super().forward(x)
            self.running_mean, self.running_var = kept
            return found

    return Lost(16)


@pytest.mark.parametrize(
    ("norm", "status"),
    [
        (lambda nn: nn.BatchNorm1d(16, momentum=0.0), "failed"),
        (lost, "failed"),
        (lambda nn: nn.Sequential(nn.Dropout(), nn.BatchNorm1d(16, momentum=0.0)), "failed"),
        (lambda nn: nn.BatchNorm1d(16), "passed"),
        (lambda nn: nn.BatchNorm1d(16, momentum=0.001), "passed"),
        (lambda nn: nn.BatchNorm1d(16, momentum=None), "passed"),
        (lambda nn: nn.Sequential(nn.BatchNorm1d(16), nn.Dropout()), "passed"),
    ],
)
def test_statistics_that_do_not_reach_the_evaluation_are_found(norm, status):
    from levelbench.operators.frameworks import open_framework

    bench = Bench(recipe(network=normalised(norm)), DATA, open_framework("torch"), Top1(0.9))
    assert [each.status for each in statistics(bench, 0)] == [status]


@pytest.mark.parametrize("ratio", [0.0, 0.5])
def test_statistics_of_a_graph_are_not_accused(ratio):
    bench = Bench(recipe(network=regularised(ratio)), DATA, NUMPY, Top1(0.9))
    assert [each.status for each in statistics(bench, 0)] == ["passed"]


def test_a_layer_that_its_module_keeps_in_evaluation_mode_is_not_accused():
    def frozen(nn):
        class Frozen(nn.BatchNorm1d):
            def train(self, mode=True):
                return super().train(False)

        return Frozen(16)

    from levelbench.operators.frameworks import open_framework

    assert checked(recipe(network=normalised(frozen)), backend=open_framework("torch")).failed == ()


def focal(share):
    """A focal loss; ``share`` is of the right class's probability."""
    functional = pytest.importorskip("torch").nn.functional

    def loss(scores, labels):
        entropy = functional.cross_entropy(scores, labels, reduction="none")
        return (share((-entropy).exp()) ** 2 * entropy).mean()

    return loss


def of_scores(function):
    """A loss of PyTorch's functional module, the scores and one-hot labels."""
    torch = pytest.importorskip("torch")

    def loss(scores, labels):
        return function(torch.nn.functional, scores, labels, torch.nn.functional.one_hot(labels, CLASSES).float())

    return loss


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (focal(lambda share: share), "where the right class has the highest score, "),
        (of_scores(lambda f, scores, labels, _: f.cross_entropy(scores, labels.roll(1))), "in another order"),
        (of_scores(lambda f, scores, labels, _: f.cross_entropy(f.relu(scores), labels)), "for all scores below 0"),
        (of_scores(lambda f, scores, labels, _: f.nll_loss(f.log_softmax(scores, 0), labels)), "each of them twice"),
        (focal(lambda share: 1 - share), ""),
        (of_scores(lambda f, scores, labels, _: f.multi_margin_loss(scores, labels)), ""),
        (of_scores(lambda f, scores, _, wanted: f.binary_cross_entropy_with_logits(scores, wanted)), ""),
        (of_scores(lambda f, scores, _, wanted: f.mse_loss(scores, wanted)), ""),
    ],
)
def test_a_loss_that_asks_for_anything_but_the_right_class_is_found(loss, says):
    from levelbench.operators.frameworks import open_framework

    bench = Bench(recipe(network=native(), loss=loss), DATA, open_framework("torch"), Top1(0.9))
    (finding,) = loss_findings(bench, 0)
    assert says in finding.found
    assert finding.status == ("failed" if says else "passed")


def test_a_loss_that_adds_up_over_examples_is_noted():
    from levelbench.operators.frameworks import open_framework

    loss = of_scores(lambda f, scores, labels, _: f.cross_entropy(scores, labels, reduction="sum"))
    bench = Bench(recipe(network=native(), loss=loss), DATA, open_framework("torch"), Top1(0.9))
    (finding,) = loss_findings(bench, 0)
    assert (finding.status, "adds up over examples" in finding.found) == ("noted", True)


class Pinball(Quality):
    """Of the quantile of 90 %."""

    metric, direction, low, high = "pinball", "lower", 0.0, float("inf")

    def measure(self, executor, held):
        off = [np.asarray(y, np.float64) - np.asarray(executor.infer(x)[0])[:, 0] for x, y in held.batches()]
        return float(np.mean([np.maximum(0.9 * each, -0.1 * each) for each in off]))


@pytest.mark.parametrize(("share", "status"), [(0.9, "passed"), (0.1, "failed")])
def test_a_loss_that_is_least_on_the_other_side_of_the_truth_is_found(share, status):
    torch = pytest.importorskip("torch")
    from levelbench.operators.frameworks import open_framework

    def loss(outputs, truth):
        off = truth - outputs[:, 0]
        return torch.maximum(share * off, (share - 1) * off).mean()

    random = np.random.default_rng(0)
    inputs = random.standard_normal((128, SIDE)).astype(np.float32)
    part = Split.of(inputs, (inputs.sum(1) + random.standard_normal(128)).astype(np.float32))
    data = replace(DATA, train=part, validation=part, test=part, classes=0)
    made = recipe(network=lambda: torch.nn.Linear(SIDE, 1), loss=loss)
    findings = loss_findings(Bench(made, data, open_framework("torch"), Pinball(0.1)), 0)
    assert [each.status for each in findings] == [status]


def test_a_rectified_output_of_classes_is_found():
    network = Builder("cut", (1, SIDE, SIDE)).flatten().gemm(CLASSES).relu().build()
    (finding,) = outputs(Bench(recipe(network=network), DATA, NUMPY, Top1(0.9)), 0)
    assert finding.status == "failed"
    assert "of the scores are 0, and none is below" in finding.found
