"""Optimizers to compare: what words stand for, which arms that makes, and a file of recipes that train with them.

A file of the user's is loaded in a separate process, as in ``own_operators``. To accuracy, optimizers are compared by
``levelbench run`` itself: a file beside the records adds to the task a recipe for each, equal but for the optimizer.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from levelbench import plugins
from levelbench.checks.findings import Report
from levelbench.checks.isolation import JsonLine, Say, run_isolated
from levelbench.errors import UnknownNameError, UsageError
from levelbench.experiments.own_code import own_modules
from levelbench.operators.frameworks import load_framework
from levelbench.records.selection import Value, format_item, parse_item
from levelbench.training.optimizers.wrappers import NATIVE
from levelbench.training.probes.optimizer_files import check_isolated, load_optimizers
from levelbench.training.probes.optimizer_references import RULES, named_optimizer, reference_of
from levelbench.training.probes.optimizer_runs import framework_of

__all__ = [
    "NamedOptimizer",
    "OwnOptimizers",
    "check_subject",
    "describe",
    "listed",
    "namesake",
    "own_optimizers",
    "recipes_file",
]

_WORD = re.compile(r"(?P<file>.+\.py)(?::(?P<name>\w+))?")


@dataclass(frozen=True)
class NamedOptimizer:
    """An optimizer by its name, in ``file`` if it is the user's; ``framework`` is the only one it runs on, if any."""

    label: str
    name: str
    settings: dict[str, Any]
    framework: str = ""
    file: str = ""


@dataclass(frozen=True)
class OwnOptimizers:
    """The subject and what it is compared with; ``source`` is the digest of the user's file, if there is one."""

    subject: NamedOptimizer
    beside: tuple[NamedOptimizer, ...]
    source: str = ""


def listed(words: str) -> list[str]:
    """Words separated by commas outside of brackets."""
    found = [each.strip() for each in re.split(r",(?![^\[]*\])", words)]
    if not all(found):
        raise UsageError(f"--beside {words!r}", "it names no optimizer", "give names: --beside torch.optim.AdamW")
    return found


def own_optimizers(what: str, beside: Sequence[str], timeout_s: float = 300.0) -> OwnOptimizers:
    """What the words stand for: ``Adam``, ``torch.optim.AdamW[fused=true]``, ``my_optimizer.py:NAME``.

    Optimizers beside the first get its rate, unless they set their own. Raises ``UnknownNameError`` for a name or
    setting that does not exist, ``UsageError`` for words that cannot be meant, and what loading the file raises.
    """
    file = _WORD.fullmatch(what)
    name, settings = ("", {}) if file else parse_item(what)
    request = {
        "file": file["file"] if file else "",
        "name": (file["name"] or "") if file else name,
        "settings": settings,
        "beside": [parse_item(each) for each in beside],
    }
    said: list[JsonLine] = []
    ended = run_isolated(f"{__name__}:describe", request, said.append, timeout_s=timeout_s)
    if ended.error is not None:
        raise ended.error
    if not said:
        raise ended.death(f"the optimizer file {request['file']}" if file else what)
    return msgspec.convert(said[-1], OwnOptimizers)


def describe(request: JsonLine, say: Say) -> None:
    """The part of :func:`own_optimizers` that runs in the other process."""
    name, settings, source = request["name"], request["settings"], ""
    if request["file"]:
        path = Path(request["file"])
        found, _ = load_optimizers(path)
        if name and name not in found:
            raise UnknownNameError(f"optimizer of {path}", name, found)
        if not name and len(found) > 1:
            raise UsageError(f"{path}", f"it defines {', '.join(found)}", f"choose one: {path}:{next(iter(found))}")
        name = name or next(iter(found))
        optimizer, source = found[name], _digest(path)
    else:
        optimizer = named_optimizer(name, settings)
        name = next((each.__name__ for each in RULES.values() if each.__name__.lower() == name.lower()), name)
    label = format_item(name, settings)
    subject = NamedOptimizer(label, name, settings, framework_of(optimizer, ""), request["file"])
    beside = [_beside(each[0], each[1], optimizer.lr) for each in request["beside"]]
    say(msgspec.to_builtins(OwnOptimizers(subject, tuple(beside), source)))


def _beside(name: str, settings: Mapping[str, Value], lr: float) -> NamedOptimizer:
    made = named_optimizer(name, settings, lr)
    return NamedOptimizer(format_item(name, settings), name, {**settings, "lr": made.lr}, framework_of(made, ""))


def _digest(path: Path) -> str:
    """SHA-256 over the file and the user's own modules that it imports."""
    resolved = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    modules = own_modules(sys.modules.get(f"levelbench_optimizer_{resolved}"))
    parts = [path.read_bytes(), *(f"{name} {each}".encode() for name, each in modules.items())]
    return hashlib.sha256(b"\0".join(hashlib.sha256(each).digest() for each in parts)).hexdigest()


def check_subject(found: NamedOptimizer, reference: str, frameworks: Sequence[str], **more: Any) -> Report:
    """The report of ``levelbench check`` on an optimizer; one of ours is compared with a framework's of its name."""
    if found.file:
        return check_isolated(Path(found.file), found.name, reference, frameworks=frameworks, **more).report
    chosen = reference or namesake(found.name, found.settings)
    return check_isolated(None, found.name, chosen, settings=found.settings, frameworks=frameworks, **more).report


def namesake(name: str, settings: Mapping[str, Value]) -> str:
    """The optimizer of an installed framework that has the name of ours; one of ours for a framework's.

    Empty if it has no argument for one of the settings: PyTorch's SGD with a momentum is compared with ``momentum``.
    """
    if name in NATIVE:
        ours = name.rpartition(".")[2].lower()
        alike = [each for each in (ours, "momentum" if ours == "sgd" else "") if each in RULES]
    else:
        known = plugins.names("framework")
        alike = [each for each in NATIVE if each.rpartition(".")[2].lower() == name.lower()]
        alike = [each for each in alike if NATIVE[each] in known and not load_framework(NATIVE[each]).lacks()]
    subject = named_optimizer(name, settings)
    pairs = ((each, reference_of(subject, each)) for each in alike)
    return next((each for each, made in pairs if made is not None and not made.missing), "")


def recipes_file(
    folder: Path, task: str, recipe: str, settings: Mapping[str, Value], arms: Sequence[NamedOptimizer], source: str
) -> tuple[Path, list[str]]:
    """A file that adds to a task a recipe for each optimizer, and the names of these recipes.

    They are ``recipe`` with these settings and another optimizer. The file's name follows from its text, so that the
    same command finds its runs again.
    """
    names = [f"with_{re.sub(r'[^a-z0-9]+', '_', each.label.lower()).strip('_')}" for each in arms]
    file = next((each.file for each in arms if each.file), "")
    lines = [
        f'"""{task} with other optimizers, written by levelbench optimizer."""',
        "",
        "from dataclasses import replace",
        "from pathlib import Path",
        "",
        "from levelbench.experiments.request import load_task",
        "from levelbench.training.probes.optimizer_files import load_optimizers",
        "from levelbench.training.probes.optimizer_references import named_optimizer",
        "",
        f"task = load_task({json.dumps(task)})",
        f"RECIPE, SETTINGS = {recipe!r}, {dict(settings)!r}",
        *([f"# The file of the optimizer, with what it imports, has the SHA-256 {source}."] if source else []),
        *([f"OWN = load_optimizers(Path({str(Path(file).resolve())!r}))[0]"] if file else []),
        "",
        "",
        "def _with(optimizer):",
        "    return replace(task.assemble(RECIPE, task.settings(RECIPE, SETTINGS)), optimizer=optimizer)",
    ]
    for name, each in zip(names, arms, strict=True):
        made = f"named_optimizer({each.name!r}, {each.settings!r})"
        made = f"OWN[{each.name!r}]" if each.file else made
        lines += ["", "", "@task.recipe", f"def {name}():", f"    return _with({made})"]
    text = "\n".join(lines) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{re.sub(r'[^a-z0-9]+', '_', task.lower())}_{hashlib.sha256(text.encode()).hexdigest()[:8]}.py"
    path.write_text(text, encoding="utf-8")
    return path, names
