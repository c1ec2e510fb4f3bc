"""Checks of a run of a recipe: quick probes before its first run, and a look at network and data after it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from levelbench.checks.findings import Report
from levelbench.errors import LevelbenchError
from levelbench.experiments.importing import files_written
from levelbench.experiments.off_clock import called_before, some, variables_kept
from levelbench.experiments.own_code import is_data
from levelbench.measure.clocks import HOST
from levelbench.measure.timeline import Phase
from levelbench.networks.cost import training_operations
from levelbench.networks.executor import Backend
from levelbench.networks.native import NativeNetwork
from levelbench.networks.network import read_inputs
from levelbench.records import Measurement
from levelbench.records.schema import DatasetFacts, Specification, redact
from levelbench.records.summary import COUNTED, OPERATIONS
from levelbench.records.witness import CHANCE, FIXED_ANSWERS, UNTRAINED
from levelbench.training.augmentation import ProgressiveResize
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.input import Held, share_held_out
from levelbench.training.probes.bench import same_numbers
from levelbench.training.probes.task import constant_answer
from levelbench.training.quality import Quality
from levelbench.training.stopping import Outcome
from levelbench.training.task import Setting, Task
from levelbench.training.trainer import Trainer, fingerprint

__all__ = [
    "augmentation_doubts",
    "data_doubts",
    "given_weights",
    "operations",
    "quality_again",
    "quick_doubts",
    "replaced_methods",
    "scored_answers",
    "target_doubts",
    "untrained",
]

_FIXED_EXAMPLES = 2000

_UNTRAINED_LEAST, _UNTRAINED_MOST, _UNTRAINED_SHARE = 64, 2048, 0.05

_QUICK_BYTES = 512 * 2**20

_QUICK_S = 0.5

_MOST_FED = 0.1
"""The share of a batch that may be validation examples after a user's augmentation."""

_MOST_TRAINED_ON = 0.5
"""The share of validation examples that may be among the training examples: real data hold some twice."""

_SAME = 0.01

_LEAST_GIVEN = 256

_LEAST_ROW, _LEAST_ROWS, _MOST_ROWS = 16, 4, 256

_PARALLEL, _MOST_PARALLEL, _MOST_EACH = 0.9, 0.8, 1.25


def target_doubts(task: Task, target: float, data: Path | None) -> list[str]:
    """Whether any network reaches this target of a task of ours, where it is lower than the task's own."""
    from levelbench.training.probes.task import target_report

    if task.quality.direction != "higher" or target >= task.quality.target:
        return []
    try:
        dataset = task.data.load(data)
    except Exception:  # noqa: BLE001  # the run itself says so
        return []
    return _sentences(target_report(task, dataset, target))


def quick_doubts(
    task: Task,
    recipe: str,
    settings: Mapping[str, Setting],
    data: Path | None,
    target: float,
    *,
    folder: Path,
    store: Path,
) -> list[str]:
    """What the quick ones among the probes of ``levelbench check`` find wrong, in sentences.

    ``folder`` is that of the task's file, and what is in ``store`` is levelbench's own.
    Loading the data must not spare the runs any work: what that leaves on the disk is a doubt.
    Empty where the data or the recipe cannot be made at all: the run itself says so.
    """
    from levelbench.experiments.file_events import LeftFiles
    from levelbench.training.probes.task import quick_report

    written, words = list[Path](), [] if data is None else [str(data)]
    with variables_kept():
        began_ns = HOST.now_ns()
        try:
            with files_written(written.append), LeftFiles(folder, words, [store]) as watched:
                dataset, left = called_before("load()", lambda: task.data.load(data))
                changed = {*watched.changed(), *(path.resolve() for path in written)}
            parts, more = called_before("its recipe", lambda: task.assemble(recipe, settings))
        except Exception:  # noqa: BLE001  # the boundary to a user's file
            return []
        quick = (HOST.now_ns() - began_ns) * 1e-9 < _QUICK_S
        again = (lambda: task.data.load(data)) if quick else None
        report, most = called_before(
            "its schedule, sampler or quality",
            lambda: quick_report(task, recipe, settings, parts, dataset, again, _QUICK_BYTES, target),
        )
    if names := [path.name for path in sorted(changed) if is_data(path)]:
        left = [
            f"load() wrote {some(names)} when it was checked before the first run: what it took to make that is on no "
            "clock; make it before, or on the clock of each run"
        ]
    return [*_sentences(report), *left, *more, *most]


def _sentences(report: Report) -> list[str]:
    return [redact(f"levelbench check, {each.probe}: {each.found}: {each.do}") for each in report.failed]


def operations(trainer: Trainer, specification: Specification) -> Measurement:
    """The operations of products per training example, in the precision that they are computed in.

    Counted from the network, off the clock. A reading without a value says why they are not known.
    """
    recipe, split = trainer.recipe, trainer.dataset.train
    name, unit = f"{OPERATIONS}{recipe.precision}", "FLOP"

    def unknown(why: str) -> Measurement:
        return Measurement(name, unit, None, None, why)

    if isinstance(recipe.network, NativeNetwork):
        return unknown("the network is native to a framework, and its operators are unknown")
    if any(isinstance(each, ProgressiveResize) for each in recipe.augment):
        return unknown("its images grow while it trains")
    network = recipe.network.training()
    taken = [each for each in network.inputs if each.name in read_inputs(network)]
    sizes: dict[str, int] = {}
    for value, column in zip(taken, split.columns, strict=False):
        for declared, given in zip((value.shape or ())[1:], column.shape[1:], strict=False):
            if isinstance(declared, str):
                sizes[declared] = given
    try:
        found = training_operations(network, sizes)
    except LevelbenchError as error:
        return unknown(redact(f"its shapes are not known: {error.found}"))
    if found.unknown:
        return unknown(f"those of {', '.join(sorted(found.unknown))} are not known")
    if not found.forward:
        return unknown("it has no product")
    precision = _computed_in(recipe.precision, specification.device)
    # An example that the network made is visited several times; what acting took is not counted.
    passes = 1 if recipe.experience is None else recipe.experience.passes
    return Measurement(f"{OPERATIONS}{precision}", unit, passes * (found.forward + found.gradients), COUNTED)


def _computed_in(precision: str, device: str) -> str:
    """On an accelerator, float32 may be computed in another precision unasked."""
    return precision if precision != "float32" or device.partition(":")[0] == "cpu" else "float32 or tf32"


def untrained(
    trainer: Trainer, quality: Quality, target: float, totals: dict[str, int]
) -> tuple[list[Measurement], list[str]]:
    """The quality of the network at the start of the run, that of chance, and doubts that follow.

    It is measured after the run, off its clock and with nothing else of the run's: on as many validation examples as
    take a small part of the run's own time. The weights are drawn again from the run's seed.
    """
    recipe, split = trainer.recipe, trainer.dataset.validation
    spent = totals.get(Phase.EVALUATE.label, 0) / max(1, trainer.evaluated + 1) / max(1, len(split))
    count = min(_UNTRAINED_MOST, max(_UNTRAINED_LEAST, int(_UNTRAINED_SHARE * sum(totals.values()) / max(spent, 1.0))))
    others: list[str] = []
    try:
        if count < len(split):
            from levelbench.training.probes.bench import part_of

            split = part_of(split, count)
        drawn = trainer.backend.initialise(recipe.network, trainer.seed)
        if fingerprint(drawn) != trainer.began_with:
            others.append(
                "its network began with other values than a second draw from its seed gives: look for weights that "
                "were trained before, or draw them from the seed alone"
            )
        executor = trainer.backend.build(
            recipe.trained_network(),
            drawn,
            precision=recipe.precision,
            channels_last=recipe.channels_last,
        )
        if trainer.started_with not in (None, trainer.fingerprint_of(executor)):
            others.append(
                "its optimizer or scheme changed the weights before the first step: whether it began untrained is open"
            )
        value = quality.measure(executor, Held(trainer.backend, trainer.dataset, split))
    except Exception as error:  # noqa: BLE001  # the run is done, whatever a user's part does now
        why = f"measuring it raised {type(error).__name__}"
        doubt = f"the quality of its untrained network is not known, for {why}: whether it began untrained is open"
        return [Measurement(UNTRAINED, quality.metric, None, None, why)], [*others, doubt]
    method = f"{len(split)} validation examples, after the run"
    found, chance = [Measurement(UNTRAINED, quality.metric, value, method)], constant_answer(quality, split.labels)
    if chance is not None:
        found.append(Measurement(CHANCE, quality.metric, chance, "the best answer that is the same for each of them"))
    if _far(value, quality, target, chance):
        return found, others
    said = f"its untrained network has {quality.metric} {value:.4g} already, where the target is {target:g}"
    return found, [*others, f"{said}: look for weights that were trained before"]


def replaced_methods(*qualities: Quality) -> list[str]:
    """A doubt on a quality whose methods are not those of its class."""
    names = [
        f"{type(each).__name__}.{name}"
        for each in qualities
        for name, value in vars(each).items()
        if callable(value) and callable(getattr(type(each), name, None))
    ]
    return [f"{some(names)} of its quality was replaced: derive a class, so that the record has its code"] * bool(names)


def scored_answers(trainer: Trainer, quality: Quality) -> list[Measurement]:
    """The quality of made-up outputs for validation examples, which only depends on these and on how it is computed.

    Of classes and numbers for each example; empty for others. A quality may ask for more than outputs: then the reading
    has no value, and says why.
    """
    split = trainer.dataset.validation
    if len(split) > _FIXED_EXAMPLES:
        from levelbench.training.probes.bench import part_of

        split = part_of(split, _FIXED_EXAMPLES)
    labels = np.asarray(split.labels) if isinstance(split.labels, np.ndarray) else np.empty(0)
    classes = trainer.dataset.classes
    if labels.dtype.kind in "iu" and labels.ndim == 1 and classes > 1:
        made = np.random.default_rng(0).standard_normal((len(labels), classes))
        # Right for about half of them.
        made[np.arange(len(labels)), np.clip(labels, 0, classes - 1)] += 1.5
    elif labels.dtype.kind == "f" and labels.ndim:
        made = np.random.default_rng(0).standard_normal(labels.shape)
    else:
        return []
    answers = _Answers(trainer.backend, made.astype(np.float32))
    try:
        value = quality.measure(cast(Any, answers), Held(trainer.backend, trainer.dataset, split))
    except Exception as error:  # noqa: BLE001  # the run is done, whatever a user's quality asks for
        why = f"measuring made-up answers raised {type(error).__name__}"
        return [Measurement(FIXED_ANSWERS, quality.metric, None, None, why)]
    method = f"made-up answers to {len(labels)} validation examples, after the run"
    return [Measurement(FIXED_ANSWERS, quality.metric, float(value), method)]


class _Answers:
    """In place of an executor: the rows of ``made`` in their order, whatever the inputs."""

    def __init__(self, backend: Backend, made: NDArray[np.float32]) -> None:
        self._backend, self._made, self._at = backend, made, 0

    def infer(self, *inputs: Any) -> tuple[Any, ...]:
        rows = (self._at + np.arange(inputs[0].shape[0])) % len(self._made)
        self._at += len(rows)
        return (self._backend.array(self._made[rows]),)


def given_weights(trainer: Trainer) -> list[str]:
    """A doubt on weights that are the same for every seed, as those that were trained before are.

    What was learnt may also be rescaled, disturbed or in another order: then most of its rows or columns, the weights
    of a unit, point almost where one of another seed's does.
    """
    recipe, backend = trainer.recipe, trainer.backend
    try:
        drawn = backend.initialise(recipe.network, trainer.seed)
        if sum(each.nbytes for each in drawn.values()) > _QUICK_BYTES:
            return []
        other = backend.initialise(recipe.network, trainer.seed + 1)
    except Exception:  # noqa: BLE001  # the run is done, and what draws the network once more says so
        return []
    trained = trainer.executor.parameters
    pairs = {name: (value, other[name]) for name, value in drawn.items() if name in trained and name in other}
    given = [name for name, pair in pairs.items() if same_numbers(*pair)]
    what = "the same {count:,} numbers whatever the seed"
    if not given:
        given = [name for name, pair in pairs.items() if _is_reordered(*pair)]
        what = "{count:,} numbers that are those of another seed, reordered, rescaled or disturbed"
    if not given:
        return []
    what = what.format(count=sum(drawn[name].size for name in given))
    return [
        f"its network begins with {what} ({some(given)}): if they were trained before, it does not begin untrained; "
        "draw them from the seed"
    ]


def _is_reordered(value: NDArray[Any], again: NDArray[Any]) -> bool:
    """Whether most rows, or columns, of ``value`` are almost parallel to just one of ``again``.

    Of independent rows of so many values hardly any is: two random directions in 16 dimensions have a cosine above 0.9
    once in three million times.
    """
    if value.size < _LEAST_GIVEN or value.dtype.kind != "f" or value.shape != again.shape or value.ndim < 2:
        return False
    for axis in (0, 1):
        one, other = (np.moveaxis(each, axis, 0).reshape(each.shape[axis], -1) for each in (value, again))
        if one.shape[1] < _LEAST_ROW or len(one) < _LEAST_ROWS:
            continue
        one, other = (each.astype(np.float32) - each.mean(dtype=np.float32) for each in (one[:_MOST_ROWS], other))
        one, other = (each[each.any(axis=1)] for each in (one, other))
        if len(np.unique(one[: len(one) // 2])) <= one[: len(one) // 2].size / 2:
            continue
        one, other = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (one, other))
        matches = (np.abs(one @ other.T) > _PARALLEL).sum(axis=1)
        # Rows of a smooth initialiser resemble many others; a unit that was kept is found once.
        if np.mean(matches > 0) > _MOST_PARALLEL and np.mean(matches) < _MOST_EACH:
            return True
    return False


def quality_again(trainer: Trainer, split: Split, quality: Quality, outcome: Outcome) -> list[str]:
    """Whether the last evaluation says what the weights that it was of are worth on the validation split."""
    told = outcome.quality["validation"]
    try:
        found = trainer.measure_again(Held(trainer.backend, trainer.dataset, split))
    except Exception as error:  # noqa: BLE001  # the run is done, whatever a user's part does now
        return [f"measuring its quality again after the run raised {type(error).__name__}: whether it is right is open"]
    if math.isclose(found, told, rel_tol=_SAME, abs_tol=_SAME) or (math.isnan(found) and math.isnan(told)):
        return []
    said = f"its last evaluation told {quality.metric} {told:.4g}, and the same weights measured after the run have"
    return [f"{said} {found:.4g}: look for what changes the validation data or what measures them"]


def augmentation_doubts(trainer: Trainer) -> list[str]:
    """Whether a user's augmentation or mixture hands validation examples to the training."""
    recipe = trainer.recipe
    parts = [*recipe.augment, *([] if recipe.mix is None else [recipe.mix])]
    others = [type(part).__name__ for part in parts if not type(part).__module__.startswith("levelbench.")]
    if not others:
        return []
    names = " and ".join(dict.fromkeys(others))
    try:
        share = share_held_out(trainer.dataset, recipe.sampler, trainer.seed, recipe.augment, recipe.mix)
    except Exception as error:  # noqa: BLE001  # the run is done, whatever a user's part does now
        return [f"{names} raised {type(error).__name__} when it was looked at after the run: what it trains on is open"]
    if share is None or share <= _MOST_FED:
        return []
    made = f"{share:.0%} of the examples that {names} made for the first batch"
    return [f"{made} are validation examples, unchanged or disturbed"]


def _far(value: float, quality: Quality, target: float, chance: float | None) -> bool:
    """Whether an untrained network is nearer to what knows nothing than to the target.

    Of one that is there, whoever reads the record says so.
    """
    if quality.direction == "lower":
        return not target < value < (1.5 * target if chance is None else (chance + target) / 2)
    lowest = quality.low if chance is None else chance
    return not (lowest + target) / 2 < value < target


def data_doubts(dataset: Dataset, facts: DatasetFacts) -> list[str]:
    """Doubts on the data: that they are trained on, or may differ unnoticed from those of another run."""
    found = []
    seen = dataset.share_trained_on()
    if seen is not None and seen > _MOST_TRAINED_ON:
        found.append(
            f"{seen:.0%} of the validation examples that were looked at are training examples: the quality is not that "
            "of held-out data, so split the data otherwise"
        )
    if facts.checksums or facts.synthetic:
        return found
    parts = [name for name, size in facts.sizes.items() if size and name not in facts.whole_inputs]
    if not parts:
        return found
    why = "more than 256 MiB, or made when they are asked for"
    return [
        *found,
        f"its data have no checksums, and not all inputs of its {', '.join(parts)} split were hashed ({why}): a change "
        "of them may go unseen, so give checksums in load()",
    ]
