"""Limits that no machine can exceed: those that ``board submit`` states, and those that a check knows itself.

A record has neither the peak of its machine nor the cost of its network. The peak comes from other measurements in the
store, the cost is counted from the recipe's network. For entries of other systems, the hardware table gives the peak
and the zoo the network, if names identify them clearly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from levelbench.errors import LevelbenchError
from levelbench.records.operations import measured_ceiling

if TYPE_CHECKING:
    from levelbench.competition.checks import MachineLimits
    from levelbench.competition.entries import Setting, Submission
    from levelbench.networks.network import Network

__all__ = ["known_limits", "with_limits"]

_IMAGES = {"cifar10": (3, 32, 32), "imagenet": (3, 224, 224), "resnet": (3, 224, 224)}
"""The example size of tasks whose networks other systems name."""
_EPOCHS = {"cifar10": 50_000, "imagenet": 1_281_167, "resnet": 1_281_167}
"""Their number of training examples: CIFAR-10's training set, and that of ImageNet 2012."""
_ONLY_TPU, _SECOND_TPU = re.compile(r"\bCloud TPU\b(?!\s*v?\d)(?!\s*pod)", re.I), "2018-10"
"""Until the third version was sold, a Cloud TPU was one of the second: four chips of two cores."""
_FIXED = {"resnet": "resnet50"}
"""The network that a task of MLPerf prescribes: version 1.5 of ResNet-50."""


def with_limits(made: Sequence[tuple[str, Submission]], store_path: Path) -> list[tuple[str, Submission]]:
    """The entries with what their records lack: a ceiling measured in the store, and the cost of a sample.

    Nothing is added if it is unknown (no such measurement, a task that is not installed or whose source has changed),
    for a team of several processes (a ceiling is of one), or if a value is stated.
    """
    return [(path, _with_limits(each, store_path)) for path, each in made]


def _with_limits(entry: Submission, store: Path) -> Submission:
    from levelbench.competition.checks import CEILING, CEILING_OF, FLOPS

    basis = _basis(entry, store)
    if basis is None:
        return entry
    specification, environment, device, flops = basis
    settings, stated = dict(entry.settings), dict(entry.provenance.environment)
    if flops and FLOPS not in settings:
        settings[FLOPS] = flops
    precision = str(specification.settings.get("precision", "float32"))
    found = None if specification.distribution else measured_ceiling(store, environment, device, precision)
    if found is not None:
        stated |= {CEILING: f"{found.flop_s:.6g}", CEILING_OF: f"{found.record} ({found.precision})"}
    provenance = msgspec.structs.replace(entry.provenance, environment=stated)
    return msgspec.structs.replace(entry, settings=settings, provenance=provenance)


def _basis(entry: Submission, store: Path) -> tuple[Any, dict[str, Any], str, float] | None:
    """The training's specification, the submitted environment and device, and the FLOPs of a sample."""
    from levelbench.cli import options as shared
    from levelbench.competition.checks import STEP

    training = entry.mode == "training"
    trained = entry.runs[0].record_id if training else entry.settings.get("trained_by")
    try:
        header = shared.open_store(store).one(str(trained)).header
        forward = _forward(header)
    except LevelbenchError:
        return None
    if training:
        return header.specification, header.environment, header.specification.device, STEP * forward
    environment = _of_inference(entry, store)
    return None if environment is None else (header.specification, *environment, forward)


def _of_inference(entry: Submission, store: Path) -> tuple[dict[str, Any], str] | None:
    """Environment and device of the record that the entry's first measurement names."""
    from levelbench.records.inference import FOLDER, InferenceRecord

    identity = entry.inference[0].record_id
    for path in (store / FOLDER).glob(f"*/*/*-{identity}.jsonlines") if identity and identity.isalnum() else ():
        try:
            header = InferenceRecord.read(path).header
        except LevelbenchError:
            continue
        return header.environment, header.specification.arm.device
    return None


def _forward(header: Any) -> float:
    """FLOPs of one example through the network that the run trained; 0 if it would be built differently today."""
    from levelbench.experiments.request import load_task, source_of
    from levelbench.networks.native import NativeNetwork

    specification = header.specification
    task = load_task(specification.task)
    if source_of(task, specification.recipe).whole != header.source.whole:
        return 0.0
    recipe = task.assemble(specification.recipe, specification.settings)
    return 0.0 if isinstance(recipe.network, NativeNetwork) else _flops(recipe.network.for_inference)


def _flops(network: Network) -> float:
    from levelbench.networks.cost import network_cost

    return network_cost(network).flops


def known_limits(submission: Submission) -> MachineLimits:
    """The peak of the named hardware in the table, and the cost of the network that the model's name identifies.

    Without an accelerator the peak is what so many cores could reach at most, and the cost that of the recipe that the
    entry names. For an entry outside of the open division also the settings of the task's own recipe.
    """
    from levelbench import __version__
    from levelbench.competition.checks import STEP, MachineLimits

    facts = MachineLimits(
        recipe=_recipe(submission) if submission.division != "open" else None,
        version=__version__,
        recipes=_recipes(submission.task),
        rollouts=_has_rollouts(submission.task),
    )
    # An accelerator that is beside the cores has no part in what ran on them.
    own_cores = submission.origin is None and _on_cores(submission) is True
    flop_s, machine = (None, "") if own_cores else _peak(submission)
    task = submission.task.lower()
    # A task under other rules may share its name with a benchmark of MLPerf.
    known = task in _IMAGES and (task not in _FIXED or submission.ruleset.partition("-")[0] == "mlperf")
    epoch = _EPOCHS[task] if known and submission.origin is not None else None
    if flop_s is None:
        flop_s, machine = _most_of_cores(submission)
    named = _own_network(submission) if submission.origin is None else None
    if named is not None:
        cost, has_convolutions, fixed = named
        return msgspec.structs.replace(
            facts,
            flop_s=flop_s,
            machine=machine,
            flops_per_sample=cost * (STEP if submission.mode == "training" else 1.0),
            network=f"the recipe {submission.settings['recipe']}",
            certain=submission.provenance.version == __version__,
            fast=_FAST if has_convolutions else 1.0,
            fixed_length=fixed,
        )
    if flop_s is None:
        return msgspec.structs.replace(facts, samples_per_epoch=epoch)
    network = _network_of(task, submission.model) if known else ""
    return msgspec.structs.replace(
        facts,
        flop_s=flop_s,
        machine=machine,
        flops_per_sample=_cost_of(network, submission.mode == "training") if network else None,
        network=network,
        samples_per_epoch=epoch,
    )


@cache
def _recipes(task: str) -> frozenset[str] | None:
    """The names of the recipes of an installed task; ``None`` for another."""
    from levelbench.experiments.request import load_task

    try:
        return frozenset(load_task(task).recipes) if not task.endswith(".py") else None
    except LevelbenchError:
        return None


@cache
def _has_rollouts(task: str) -> bool:
    """Whether a recipe of an installed task has the settings of rollouts, from which the size of an epoch follows."""
    from levelbench.experiments.request import load_task

    names = _recipes(task)
    return any({"environments", "length"} <= load_task(task).settings(name, {}).keys() for name in names or ())


_CORES = re.compile(r"\b([0-9]{1,5}) cores?\b", re.I)
_FASTEST_HZ = 6e9
"""No core of a processor keeps more than this."""
_A_CYCLE = {"amx": 2048, "avx512_bf16": 128, "avx512": 64, "avx2": 32, "": 64}
"""The most operations of a core in a cycle: two fused multiply-adds on full vectors, or a tile of 16 bits (AMX)."""
_FAST = 4.0
"""A fast convolution needs this many times fewer multiplications than counted: F(4x4, 3x3) of Lavin & Gray 2016."""
_LARGER = 4.0
"""A network is only built for its cost if its settings are at most this many times the recipe's."""


def _most_of_cores(submission: Submission) -> tuple[float | None, str]:
    """What the cores of an entry that ran on them could reach at most, at any clock and in its precision."""
    from levelbench.competition.checks import nodes_used

    hardware, facts = submission.hardware, submission.provenance.environment
    on_cores = _on_cores(submission)
    said, allowed = _CORES.search(hardware.description), facts.get("machine.cores_allowed", "")
    count = hardware.cores or (int(allowed[:9]) if allowed.isdecimal() else 0) or (int(said[1]) if said else 0)
    if not count or on_cores is False or (hardware.accelerators and on_cores is None):
        return None, ""
    stated = facts.get("machine.instructions", "")
    kinds = ["avx512", "avx2"] if "float32" in str(submission.settings.get("precision", "float32")) else list(_A_CYCLE)
    known = [_A_CYCLE[kind] for kind in kinds if kind and kind in stated]
    cycle = max(known, default=_A_CYCLE[""] if len(kinds) == 2 else _A_CYCLE["amx"])
    cores = count * nodes_used(submission)
    return cores * cycle * _FASTEST_HZ, f"{cores:g} cores at {_FASTEST_HZ / 1e9:g} GHz"


def _on_cores(submission: Submission) -> bool | None:
    """Whether it ran on the processor's cores; ``None`` if the entry does not state a device."""
    device = submission.settings.get("device")
    return None if device is None else str(device).startswith("cpu")


def _own_network(submission: Submission) -> tuple[float, bool, bool] | None:
    """FLOPs of one example through the network of the recipe that the entry names, and two facts.

    Whether the network has convolutions, and whether the recipe has a fixed length.

    ``None`` for a task or recipe that is not installed, and a network that is not ONNX. Settings far from the recipe's
    are not used: they come from strangers, and a network of any size could be asked for.
    """
    from levelbench.experiments.request import load_task

    try:
        task = load_task(submission.task) if not submission.task.endswith(".py") else None
    except LevelbenchError:
        return None
    name = submission.settings.get("recipe")
    if task is None or not isinstance(name, str) or name not in task.recipes:
        return None
    chosen = []
    for key, value in task.settings(name, {}).items():
        own = submission.settings.get(key, value)
        if own != value:
            # What cannot be built does not switch the check off: the recipe's own value counts.
            large = isinstance(own, int | float) and isinstance(value, int | float) and own > _LARGER * max(1, value)
            if type(own) is not type(value) or large:
                continue
            chosen.append((key, own))
    return _cost_of_recipe(submission.task, name, tuple(chosen))


@cache
def _cost_of_recipe(
    task: str, recipe: str, settings: tuple[tuple[str, Setting], ...]
) -> tuple[float, bool, bool] | None:
    from levelbench.experiments.request import load_task
    from levelbench.networks.native import NativeNetwork
    from levelbench.training.schedules import has_fixed_length

    try:
        made = load_task(task).assemble(recipe, dict(settings))
    except (LevelbenchError, ValueError, TypeError, ArithmeticError):
        return None
    if isinstance(made.network, NativeNetwork):
        return None
    plain = made.network.for_inference
    has_convolutions = any(node.op_type == "Conv" for node in plain.model.graph.node)
    return _flops(plain), has_convolutions, has_fixed_length(made.schedule)


def _recipe(submission: Submission) -> Mapping[str, Setting] | None:
    """The settings of the recipe that the entry names, empty if the task lacks it; ``None`` for an unknown task.

    For training they include how often is evaluated: a target is only reached where it is checked.
    """
    from levelbench.experiments.request import load_task
    from levelbench.training.stopping import Evaluate

    try:
        task = load_task(submission.task) if not submission.task.endswith(".py") else None
    except LevelbenchError:
        return None
    name = submission.settings.get("recipe")
    if task is None:
        return None
    if name not in task.recipes:
        return {}
    evaluated = {"evaluate_every": str(Evaluate.parse(task.evaluate_every))} if submission.mode == "training" else {}
    return {**task.settings(str(name), {}), **evaluated}


def _peak(submission: Submission) -> tuple[float | None, str]:
    """Operations per second of the whole system in its fastest precision, if the description states the unit count."""
    from levelbench.claims.hardware import lookup

    hardware = submission.hardware
    described = hardware.description
    if submission.submitted < _SECOND_TPU:
        described = _ONLY_TPU.sub("Cloud TPU v2-8", described)
    found = lookup(described, hardware.accelerators or None, hardware.nodes)
    if found is None and hardware.accelerators and hardware.accelerator:
        found = lookup(f"{hardware.accelerators} x {hardware.accelerator}", hardware.accelerators)
    if found is None or not found.count_stated or not found.is_accelerator:
        return None, ""
    # Nothing is trained in integers.
    whole = submission.mode == "inference"
    peaks = [peak for name, peak in found.peak_flops.items() if whole or not name.startswith("int")]
    return (max(peaks), f"{found.units:g} x {found.name}") if peaks else (None, "")


@cache
def _network_of(task: str, model: str) -> str:
    """The zoo's network with the model's name that takes the task's examples; empty if there is none."""
    from levelbench.networks import zoo

    word = re.sub(r"[^a-z0-9]", "", model.lower())
    name = _FIXED.get(task) or next((each for each in zoo.names() if re.sub(r"[^a-z0-9]", "", each) == word), "")
    shape = zoo.build(name).inputs[0].shape if name else None
    return name if shape is not None and tuple(shape[1:]) == _IMAGES[task] else ""


@cache
def _cost_of(network: str, training: bool) -> float:
    from levelbench.competition.checks import STEP
    from levelbench.networks import zoo

    return (STEP if training else 1.0) * _flops(zoo.build(network).for_inference)
