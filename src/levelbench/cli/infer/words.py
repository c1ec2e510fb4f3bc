"""What the words of ``levelbench infer`` mean: which network, which data, which scenario, on which frameworks.

Whatever cannot be meant is found here, before anything is trained or measured.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from levelbench.errors import MissingError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from levelbench.experiments.inference.subject import Examples
    from levelbench.networks.network import Network
    from levelbench.records.inference import Data, InferenceArm, Model, ScenarioSettings

__all__ = ["SCENARIOS", "Foreign", "foreign", "frameworks_of", "is_task", "scenario_settings", "seconds"]

SCENARIOS = ("single-stream", "multi-stream", "server", "offline", "dawnbench")
_QUANTILES = {"single-stream": 0.9}
_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ns|us|µs|ms|s|min|h)?")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_OFFLINE_BATCH = 32
_LONGEST = 10.0
_LEAST_S = 30.0
_OF_SERVER = ("qps", "bound", "find_peak", "workers")


@dataclass(frozen=True)
class Foreign:
    """A network that no task trained, with what it is asked about."""

    model: Model
    data: Data
    batch: int | None
    """The batch that its inputs are fixed to; ``None`` where they leave it open."""


def is_task(word: str) -> bool:
    """Whether a word names a task: one that is installed, or a Python file; settings in brackets may follow."""
    from levelbench import plugins

    name = word.partition("[")[0]
    return name in plugins.names("task") or name.endswith(".py")


def seconds(option: str, text: str, *, bare: bool = True) -> float:
    """``15ms``, ``2min`` or, where ``bare`` numbers are seconds, ``0.5``; above zero."""
    found = _TIME.fullmatch(text.strip())
    value = float(found[1]) * _UNITS[found[2] or "s"] if found else 0.0
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"{option} {text}", "it is no time above zero", f"write it as in {option} 15ms or {option} 2s")
    if found and not found[2] and not bare:
        number = text.strip()
        raise UsageError(f"{option} {text}", "it has no unit", f"write {option} {number}ms or {option} {number}s")
    return value


def scenario_settings(given: dict[str, Any], fixed_batch: int | None = None) -> ScenarioSettings:
    """The scenario that the options describe, with the defaults of the others."""
    from levelbench.measure.statistics.early_stopping import least_queries
    from levelbench.records.inference import ScenarioSettings

    name = given["scenario"]
    _refuse_strangers(name, given)
    quantile = given["quantile"] if given["quantile"] is not None else _QUANTILES.get(name, 0.99)
    if not 0 < quantile < 1:
        # Of what may have been meant as a percentage; 1.5 is as likely a slip for 0.15.
        percent = f" (did you mean {quantile / 100:g}?)" if 50 <= quantile < 100 else ""
        found = f"it is not between 0 and 1{percent}"
        raise UsageError(f"--quantile {quantile:g}", found, "give a share, as in --quantile 0.99")
    duration_s = 0.0 if name == "dawnbench" else seconds("--duration", given["duration"])
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
        raise UsageError("--scenario server", "nobody says which latency is still good", "give one: --bound 15ms")
    if qps is None and not find_peak:
        raise UsageError("--scenario server", "nobody says how many queries come", "--qps 200, or --find-peak")
    if qps is not None and find_peak:
        raise UsageError("--find-peak with --qps", "the rate is given and looked for", "give one of both")
    if qps is not None and not (math.isfinite(qps) and qps > 0):
        raise UsageError(f"--qps {qps:g}", "it is no rate above zero", "give the queries a second, as in --qps 200")
    if qps is not None:
        refuse_flood(qps, duration_s)
    return {"qps": qps, "bound_s": seconds("--bound", given["bound"], bare=False), "find_peak": find_peak}


def _refuse_strangers(name: str, given: dict[str, Any]) -> None:
    """Options that mean nothing in a scenario would be thought to have had an effect."""
    only = {**dict.fromkeys(_OF_SERVER, "server"), "samples_per_query": "multi-stream"}
    for option, scenario in only.items():
        if given[option] and name != scenario:
            word = f"--{option.replace('_', '-')}"
            raise UsageError(f"{word} with --scenario {name}", f"it belongs to {scenario}", f"--scenario {scenario}")
    if given["batch"] and name in ("single-stream", "server", "dawnbench") and given["batch"] > 1:
        found = "its queries are of one sample each"
        raise UsageError(f"--batch {given['batch']} with --scenario {name}", found, "leave it out, or use offline")


def _batch(name: str, per_query: int, asked: int | None, fixed: int | None) -> int:
    if fixed is not None:
        if name == "dawnbench" and fixed > 1:
            found = f"the model's batch is fixed at {fixed}, and this scenario answers one at a time"
            raise UsageError("--scenario dawnbench", found, "export it with an open batch, or use single-stream")
        if asked is not None and asked != fixed:
            raise UsageError(f"--batch {asked}", f"the model's batch is fixed at {fixed}", "leave --batch out")
        return fixed
    return asked or {"multi-stream": per_query, "offline": _OFFLINE_BATCH}.get(name, 1)


def frameworks_of(words: str | None, device: str, threads: int | None, default: str) -> list[InferenceArm]:
    """The arms of ``torch:compiled,onnxruntime``, each with its mode; ``default`` where there are no words.

    Raises ``MissingError`` for a framework or device that is not here.
    """
    from levelbench.cli.network.arms import framework_words
    from levelbench.operators.frameworks import load_framework
    from levelbench.records.inference import InferenceArm

    pairs = framework_words(default if words is None else words, device)
    for framework in dict.fromkeys(framework for framework, _ in pairs):
        if lacking := load_framework(framework).lacks(device):
            asked = f"framework {framework!r} on device {device!r}"
            raise MissingError(asked, lacking, "levelbench list shows what runs")
    return [InferenceArm(framework, mode, device, threads) for framework, mode in pairs]


def foreign(
    word: str, data: Path | None, labels: Path | None, sizes: Sequence[str], target_accuracy: float | None = None
) -> Foreign:
    """The network of a file or of the zoo, with the user's data or made-up inputs.

    ``UsageError`` for a ``target_accuracy`` where nobody knows the right answers, or off the scale of top-1.
    """
    from levelbench import plugins
    from levelbench.cli.network.words import make_cases, name_network
    from levelbench.experiments.inference.subject import check_examples, digest_of_data, file_examples
    from levelbench.records.inference import Data, Model

    try:
        named = name_network(word, ())
    except UnknownNameError as error:
        from levelbench.networks import zoo

        known = [*plugins.names("task"), *zoo.names()]
        raise UnknownNameError("task or network", word, known, "or give a file: model.onnx") from error
    if named.kind == "native":
        found = "it is a model in Python, and no file that can be kept and named"
        raise UsageError(f"infer {word}", found, "export it to ONNX, or measure it: levelbench network")
    network = named.network
    assert network is not None
    if labels is not None and data is None:
        raise UsageError(f"--labels {labels}", "there are no data that they could belong to", "give --data as well")
    fixed = _fixed(network)
    bound = dict(make_cases(named, None, sizes, ())[0].sizes) if data is None else {}
    model = Model(named.name, "zoo" if named.kind == "zoo" else "file", named.path, named.digest)
    if data is None:
        _check_target(target_accuracy, None, "made-up inputs have no right answers")
        return Foreign(model, Data("synthetic", "made-up inputs", sizes=bound), fixed)
    found_data = Data(
        "file",
        data.name,
        str(data),
        digest_of_data(data),
        str(labels) if labels is not None else "",
        digest_of_data(labels) if labels is not None else "",
    )
    # Read once here, too: what cannot be meant is no measurement that failed.
    check_examples(network, examples := file_examples(network, found_data))
    _check_target(target_accuracy, examples, f"{data} has no labels")
    return Foreign(model, found_data, fixed)


def _check_target(target: float | None, examples: Examples | None, why: str) -> None:
    """``UsageError`` for a target that no answers can be held against."""
    if target is None:
        return
    if examples is None or examples.labels is None:
        do = "give --data with labels (docs/inference.md says how), or leave it out"
        raise UsageError(f"--target-accuracy {target:g}", why, do)
    from levelbench.training.quality import Top1

    Top1(target=0.0).as_target(target)


def _fixed(network: Network) -> int | None:
    """The first size of all inputs, where it is the same number in each; ``None`` where one leaves it open."""
    firsts = {each.shape[0] if each.shape else None for each in network.inputs}
    first = firsts.pop() if len(firsts) == 1 else None
    return first if isinstance(first, int) else None
