"""What ``levelbench infer`` measures: its arguments, and a task's trained network, found or trained once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import MissingError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from levelbench.experiments.inference.making import TrainingRun
    from levelbench.experiments.inference.models import Basis, KeptModel
    from levelbench.experiments.inference.subject import Examples
    from levelbench.networks.network import Network
    from levelbench.records.inference import Data, InferenceArm, Model, ScenarioSettings
    from levelbench.training.task import Task

__all__ = ["SCENARIOS", "Foreign", "TaskModel", "foreign", "frameworks_of", "is_task", "scenario_settings"]
__all__ += ["task_model"]


SCENARIOS = ("single-stream", "multi-stream", "server", "offline", "dawnbench")
_QUANTILES = {"single-stream": 0.9}
_OFFLINE_BATCH = 32
_LONGEST = 10.0
_LEAST_S = 30.0
_OF_SERVER = ("qps", "bound", "find_peak", "workers")


@dataclass(frozen=True)
class Foreign:
    """A network that no task trained, with its data."""

    model: Model
    data: Data
    batch: int | None
    """The fixed batch of its inputs; ``None`` if the batch is open."""


def is_task(word: str) -> bool:
    """Whether a word names a task: an installed one or a Python file, possibly with settings in brackets."""
    from levelbench import plugins

    name = word.partition("[")[0]
    return name in plugins.names("task") or name.endswith(".py")


def scenario_settings(given: dict[str, Any], fixed_batch: int | None = None) -> ScenarioSettings:
    """The scenario that the options describe; other options have their defaults."""
    from levelbench.measure.statistics.early_stopping import least_queries
    from levelbench.records.inference import ScenarioSettings

    name = given["scenario"]
    _refuse_strangers(name, given)
    quantile = given["quantile"] if given["quantile"] is not None else _QUANTILES.get(name, 0.99)
    if not 0 < quantile < 1:
        # Only for what may be meant as a percentage; 1.5 may as well be a slip for 0.15.
        percent = f" (did you mean {quantile / 100:g}?)" if 50 <= quantile < 100 else ""
        found = f"it is not between 0 and 1{percent}"
        raise UsageError(f"--quantile {quantile:g}", found, "give a share, such as --quantile 0.99")
    duration_s = 0.0 if name == "dawnbench" else shared.seconds("--duration", given["duration"])
    per_query = (given["samples_per_query"] or 8) if name == "multi-stream" else 1
    least = {"offline": 0, "dawnbench": 1}.get(name, -1)
    return ScenarioSettings(
        name=name,
        quantile=quantile,
        duration_s=duration_s,
        queries=given["queries"] or (least_queries(quantile) if least < 0 else least),
        batch=_batch(name, per_query, given["batch"], fixed_batch),
        most_s=None if given["queries"] or name == "dawnbench" else max(_LONGEST * duration_s, _LEAST_S),
        samples_per_query=per_query,
        samples=given["samples"],
        workers=given["workers"] or 1,
        **_server(name, given, duration_s),
    )


def _server(name: str, given: dict[str, Any], duration_s: float) -> dict[str, Any]:
    if name != "server":
        return {}
    from levelbench.measure.scenarios.driving import refuse_flood

    qps, find_peak = given["qps"], given["find_peak"]
    if given["bound"] is None:
        raise UsageError("--scenario server", "no latency bound is given", "give one: --bound 15ms")
    if qps is None and not find_peak:
        raise UsageError("--scenario server", "no rate of queries is given", "--qps 200, or --find-peak")
    if qps is not None and find_peak:
        raise UsageError(
            "--find-peak with --qps",
            "they exclude each other: one gives the rate, the other searches for it",
            "give one of them",
        )
    if qps is not None and not (math.isfinite(qps) and qps > 0):
        raise UsageError(
            f"--qps {qps:g}", "impossible rate: it must be above zero", "give the queries per second, such as --qps 200"
        )
    if qps is not None:
        refuse_flood(qps, duration_s)
    return {"qps": qps, "bound_s": shared.seconds("--bound", given["bound"], bare=False), "find_peak": find_peak}


def _refuse_strangers(name: str, given: dict[str, Any]) -> None:
    """Refuse options that have no effect in the scenario."""
    only = {**dict.fromkeys(_OF_SERVER, "server"), "samples_per_query": "multi-stream"}
    for option, scenario in only.items():
        if given[option] and name != scenario:
            word = f"--{option.replace('_', '-')}"
            raise UsageError(f"{word} with --scenario {name}", f"it belongs to {scenario}", f"--scenario {scenario}")
    if given["batch"] and name in ("single-stream", "server", "dawnbench") and given["batch"] > 1:
        found = "its queries have one sample each"
        raise UsageError(
            f"--batch {given['batch']} with --scenario {name}", found, "leave it out, or use --scenario offline"
        )


def _batch(name: str, per_query: int, asked: int | None, fixed: int | None) -> int:
    if fixed is not None:
        if name == "dawnbench" and fixed > 1:
            found = f"the model's batch is fixed at {fixed}, but this scenario answers one sample at a time"
            raise UsageError("--scenario dawnbench", found, "export it with an open batch, or use single-stream")
        if asked is not None and asked != fixed:
            raise UsageError(f"--batch {asked}", f"the model's batch is fixed at {fixed}", "leave --batch out")
        return fixed
    return asked or {"multi-stream": per_query, "offline": _OFFLINE_BATCH}.get(name, 1)


def frameworks_of(words: str | None, device: str, threads: int | None, default: str) -> list[InferenceArm]:
    """The arms of ``torch:compiled,onnxruntime``, each with its mode; ``default`` if nothing is named.

    Raises ``MissingError`` for a framework or device that is missing here.
    """
    from levelbench.cli.network_words import framework_words
    from levelbench.operators.frameworks import load_framework
    from levelbench.records.inference import InferenceArm

    pairs = framework_words(default if words is None else words, device)
    for framework in dict.fromkeys(framework for framework, _ in pairs):
        if lacking := load_framework(framework).lacks(device):
            asked = f"framework {framework!r} on device {device!r}"
            raise MissingError(asked, lacking, "levelbench list shows what runs")
    return [InferenceArm(framework, mode, device, threads) for framework, mode in pairs]


def foreign(
    word: str,
    data: Path | None,
    labels: Path | None,
    sizes: Sequence[str],
    target_accuracy: float | None = None,
    trial_s: float | None = None,
) -> Foreign:
    """The network in a file or in the zoo, with the user's data or made-up inputs.

    ``UsageError`` for a ``target_accuracy`` without known answers, or off the scale of top-1.
    """
    from levelbench import plugins
    from levelbench.cli.network_words import make_cases, name_network
    from levelbench.experiments.inference.subject import check_examples, digest_of_data, file_examples
    from levelbench.records.inference import Data, Model

    try:
        named = name_network(word, ())
    except UnknownNameError as error:
        from levelbench.networks import zoo

        known = [*plugins.names("task"), *zoo.names()]
        raise UnknownNameError("task or network", word, known, "or give a file: model.onnx") from error
    if named.kind == "native":
        found = "it is a model in Python, not a file that can be stored"
        raise UsageError(f"infer {word}", found, "export it to ONNX, or measure it with levelbench network")
    network = named.network
    assert network is not None
    if labels is not None and data is None:
        raise UsageError(f"--labels {labels}", "there is no data for them", "add --data")
    fixed = _fixed(network)
    bound = dict(make_cases(named, None, sizes, (), trial_s)[0].sizes) if data is None else {}
    model = Model(named.name, "zoo" if named.kind == "zoo" else "file", named.path, named.digest)
    if data is None:
        _check_target(target_accuracy, None, "synthetic inputs have no right answers")
        return Foreign(model, Data("synthetic", "made-up inputs", sizes=bound), fixed)
    found_data = Data(
        "file",
        data.name,
        str(data),
        digest_of_data(data),
        str(labels) if labels is not None else "",
        digest_of_data(labels) if labels is not None else "",
    )
    # Read here, too: an input error is not a failed measurement.
    check_examples(network, examples := file_examples(network, found_data))
    if named.kind == "file":
        from levelbench.networks.trial import refuse_bombs

        rows = zip(network.inputs, examples.sources, strict=False)
        shapes = {each.name: (fixed or 1, *row.shape[1:]) for each, row in rows if hasattr(row, "shape")}
        refuse_bombs(network, word, fixed or 1, {}, shapes=shapes, limit_s=trial_s)
    _check_target(target_accuracy, examples, f"{data} has no labels")
    return Foreign(model, found_data, fixed)


def _check_target(target: float | None, examples: Examples | None, why: str) -> None:
    """``UsageError`` for a target that no answers can be compared with."""
    if target is None:
        return
    if examples is None or examples.labels is None:
        do = "give --data with labels (see docs/guides/inference.md), or leave it out"
        raise UsageError(f"--target-accuracy {target:g}", why, do)
    from levelbench.training.quality import Top1

    Top1(target=0.0).as_target(target)


def _fixed(network: Network) -> int | None:
    """The first size of all inputs if it is the same number in each; ``None`` if one leaves it open."""
    firsts = {each.shape[0] if each.shape else None for each in network.inputs}
    first = firsts.pop() if len(firsts) == 1 else None
    return first if isinstance(first, int) else None


@dataclass(frozen=True)
class TaskModel:
    """A task's trained network, its test split, the folder of its data, and the framework that trained it."""

    model: Model
    data: Data
    folder: Path | None
    framework: str


def task_model(word: str, store: Path, as_json: bool, given: dict[str, Any]) -> TaskModel:
    """The trained network that ``word`` (``digits[hidden=64]``) and the options name; trains it if there is none.

    Training is announced first. Raises ``UsageError`` for impossible options, and what the run raised.
    """
    from levelbench.experiments.inference.making import kept_model
    from levelbench.experiments.inference.subject import refuse_quality
    from levelbench.experiments.request import load_task
    from levelbench.records.inference import Data, Model
    from levelbench.records.selection import parse_item

    if given["labels"] is not None or given["sizes"]:
        option = "--labels" if given["labels"] is not None else "--size"
        raise UsageError(f"{option} with a task", "a task has its own data", "leave it out, or give a model")
    # Before its data is searched: nobody should install data for a command that is refused anyway.
    task = load_task(parse_item(word)[0])
    refuse_quality(task.name, task.quality)
    wanted = _wanted(word, store, given)
    if given["target_accuracy"] is not None:
        # Refuses a value off the metric's scale, as for the target of a run.
        task.quality.as_target(given["target_accuracy"])
    wanted = replace(wanted, basis=_basis(task, wanted, checksums := dict(task.data.load(given["data"]).checksums)))
    kept = kept_model(store, wanted) or _trained(store, wanted, as_json, given["data"], task.description)
    facts, specification = kept.facts, kept.facts.specification
    model = Model(
        name=f"{specification.task}[{specification.recipe}]",
        kind="task",
        path=str(kept.path.relative_to(store)),
        digest=facts.digest,
        task=specification.task,
        reference=wanted.reference,
        recipe=specification.recipe,
        settings=specification.settings,
        run=facts.run,
        run_digest=facts.run_digest,
        quality=facts.quality.get("test"),
    )
    data = Data("task", f"the test split of {specification.task}", checksums=checksums)
    return TaskModel(model, data, given["data"], specification.framework)


def _basis(task: Task, wanted: TrainingRun, checksums: dict[str, str]) -> Basis:
    """The specification that would train the network now."""
    from levelbench.experiments.inference.models import basis_of
    from levelbench.measure.environment import capture

    specification = wanted.specification
    recipe = task.assemble(specification.recipe, specification.settings)
    network = recipe.onnx_network(f"inference of {specification.task}[{specification.recipe}]")
    return basis_of(specification, capture().get("libraries", {}), network, checksums)


def _wanted(word: str, store: Path, given: dict[str, Any]) -> TrainingRun:
    from levelbench.experiments.inference.making import TrainingRun
    from levelbench.experiments.request import Options, load_task, resolve, source_of
    from levelbench.records.selection import parse_item

    reference, settings = parse_item(word)
    if given["run_word"] is not None:
        if settings or given["recipe"] or given["train_seed"] is not None:
            found = "the run itself says how the network was trained"
            raise UsageError(f"--run {given['run_word']} with other settings", found, "give the task's name alone")
        record = shared.open_store(store).one(given["run_word"])
        header, task = record.header, load_task(reference)
        if header.specification.task != task.name:
            found = f"it trained {header.specification.task}"
            raise UsageError(f"--run {given['run_word']} for {task.name}", found, "give its own task")
        now = source_of(task, header.specification.recipe).whole
        if header.specification.distribution is not None or header.source.whole != now:
            found = "the task's source has changed since" if header.source.whole != now else "it had several ranks"
            raise UsageError(
                f"the network of --run {given['run_word']}", found, "leave --run out to train the network again"
            )
        return TrainingRun(reference, header.specification, header.key, header.seed, now)
    shared.refuse_overruled([(reference, settings)], {"recipe": given["recipe"]})
    arm = resolve(reference, dict(settings), Options(recipe=given["recipe"], data=given["data"]))
    if arm.specification.distribution is not None:
        raise UsageError(f"infer {word}", "its training has several ranks", "train it in one process")
    return TrainingRun(reference, arm.specification, arm.key, given["train_seed"] or 0, arm.source.whole)


def _trained(store: Path, wanted: TrainingRun, as_json: bool, data: Path | None, description: str) -> KeptModel:
    """Train, after announcing it with the time that it took before, if known."""
    from levelbench.cli.progress_line import ProgressLine
    from levelbench.experiments.inference.making import expected_s, train_model, why_not_kept
    from levelbench.report.numbers import duration

    specification = wanted.specification
    name = f"{specification.task}[{specification.recipe}]"
    expected = expected_s(shared.open_store(store), wanted)
    took = f"such a run took {duration(expected)} here" if expected is not None else f"{description or 'once'}"
    why = why_not_kept(store, wanted)
    does = f"is in {store}" if not why else f"in {store} counts ({why})"
    with shared.as_far_as_read(err=as_json):
        click.echo(
            f"no trained network of {name}, seed {wanted.seed}, on {specification.framework} {does}: "
            f"training it now ({took}); the network is kept",
            err=as_json,
        )
    with ProgressLine() as line:
        return train_model(store, wanted, data, lambda phase: line.say(f"{name}: {phase}") if line.live else None)
