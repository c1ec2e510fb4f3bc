"""A user's own training loops, measured in place: ``with levelbench.track("my-model", target=...) as run``.

A tracked run leaves the record that ``levelbench run`` leaves: evaluations, step times, phases that sum to the wall
time, meters, the environment, the program's text, and what a process with a clock of its own saw. What nobody but the
program can say is its quality, and the record says that it was reported by the program (``scored_by``).

The program keeps its loop, and whatever it does is measured: there is no time that belongs to no phase. Nothing of it
is replaced or patched.
"""

from __future__ import annotations

import linecache
import math
import numbers
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Literal, cast

from levelbench.errors import UnknownNameError, UsageError
from levelbench.experiments.marking import place_of_rank
from levelbench.experiments.own_code import cells_behind, own_modules, used_by
from levelbench.experiments.tracked import TrackedRun
from levelbench.measure.crossing import sign_of
from levelbench.records import Specification
from levelbench.records.schema import (
    Distribution,
    Source,
    Target,
    better_of,
    key_of,
    scale_of,
    source_of_text,
)
from levelbench.records.selection import OWN_NAMES
from levelbench.records.writer import path_part

__all__ = ["target_of", "track"]

Setting = int | float | str | bool

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

_FRAMEWORKS = ("torch", "jax", "tensorflow", "xgboost", "lightgbm", "sklearn", "numpy")

_GIVEN = ("recipe", "framework", "device", "target", "crossing")

_DEVICE = re.compile(r"(?:cpu|cuda|gpu|hip|mps|rocm|tpu|xla|xpu)(?::\d+)?")

_CROSSINGS = ("confirmed", "final", "first", "sustained")


def track(
    task: str,
    *,
    target: Mapping[str, float],
    settings: Mapping[str, object] | None = None,
    recipe: str | None = None,
    seed: int | None = None,
    direction: Literal["higher", "lower"] | None = None,
    scale: tuple[float | None, float | None] | None = None,
    crossing: Literal["confirmed", "final", "first", "sustained"] = "confirmed",
    budget_s: float | None = None,
    framework: str | None = None,
    device: str | None = None,
    store: str | os.PathLike[str] | None = None,
    quiet: bool = False,
) -> TrackedRun:
    """Measure the training loop in the block that this opens, and leave a record of it in the store.

    ``target`` is one metric with the value to reach, such as ``{"accuracy": 0.94}``; other metrics may be reported
    beside it. ``direction`` follows from the metric's name where it says what is better, as ``val_loss`` and
    ``accuracy`` do, and ``scale`` (lowest and highest value; ``None``: no such limit) where it is known, as for
    shares. ``settings`` are what the runs that are compared differ in (``lr=0.1``); ``recipe`` is the name of the
    program, and that of its file where it is not given. ``seed`` tells repetitions apart and is the next one without
    a run of this program; seed the program with ``run.seed``. A setting of that name is the seed, and a setting
    ``device`` that names one is the device (else "cpu"). Paths and lists of plain values are recorded as text, and
    settings that are ``None`` are not. The loop ends when the target is reached by the rule ``crossing`` or after
    ``budget_s`` seconds.

        with levelbench.track("my-model", target={"accuracy": 0.94}, settings={"lr": 0.1}) as run:
            for epoch in run.epochs(30):
                for batch in run.data(loader):
                    with run.phase("forward"):
                        ...
                run.evaluate(lambda: accuracy(model))

    Raises ``UsageError`` for a target, setting or name that cannot be recorded.
    """
    asked = f"tracking {task!r}"
    if not isinstance(task, str) or not _NAME.fullmatch(task):
        raise UsageError(asked, "the name is not of letters, digits, '.', '_' and '-'", "choose another name")
    if crossing not in _CROSSINGS:
        raise UnknownNameError("crossing rule", crossing, _CROSSINGS)
    own = _settings_given(asked, settings)
    if (told := own.pop("seed", None)) is not None:
        if seed is not None and seed != told:
            raise UsageError(asked, f"its seed is {seed!r}, and its settings say {told!r}"[:200], "give it once: seed=")
        seed = _need_whole(asked, told)
    if device is None and _DEVICE.fullmatch(str(own.get("device"))):
        device = str(own.pop("device"))
    plain = _settings(asked, own)
    if seed is not None:
        seed = _need_whole(asked, seed)
    budget = None if budget_s is None else _plain(asked, "budget_s", budget_s)
    if isinstance(budget, str) or (budget is not None and budget <= 0):
        raise UsageError(asked, f"its budget_s is {budget_s!r}", "give seconds: a number above 0")
    frame = sys._getframe(1)  # the program's frame is known in no other way
    source = _source_of(frame)
    uses = used_by(_module_of(frame), source.text)
    rank, ranks = place_of_rank()
    team = Distribution(ranks, "own", {}, "own", "own") if ranks > 1 else None
    specification = Specification(
        task=task,
        recipe=path_part(recipe if recipe is not None else Path(source.name).stem),
        framework=framework or next((name for name in _FRAMEWORKS if name in sys.modules), "python"),
        device=device or "cpu",
        settings=plain,
        target=target_of(asked, target, direction, scale),
        crossing=crossing,
        clock="wall",
        evaluate_every="time its program does",
        budget_epochs=0.0,
        budget_s=budget_s,
        distribution=team,
        scored_by="program",
    )
    place = Path(store if store is not None else os.environ.get("LEVELBENCH_STORE", "levelbench-results"))
    key = key_of(specification)
    if seed is None and ranks > 1:
        raise UsageError(asked, f"it is one of {ranks} ranks", "give all of them one seed: seed=0")
    return TrackedRun(specification, key, seed, source, place, first=rank == 0, quiet=quiet, uses=uses)


def _settings_given(asked: str, given: object) -> dict[str, object]:
    if given is None or isinstance(given, Mapping):
        return dict(given or {})
    do = 'give names with values, as in settings={"lr": 0.1} or settings=vars(options)'
    raise UsageError(asked, f"its settings are a {type(given).__name__}", do)


def _source_of(frame: FrameType) -> Source:
    """The text of the program that calls, with the user's own modules that it imports.

    A cell of a notebook comes with the functions and classes of other cells, under the name of the notebook: the cell's
    own is a number that changes with its text.
    """
    name, names = frame.f_code.co_filename, frame.f_globals
    text = "".join(linecache.getlines(name, names))
    modules = own_modules(sys.modules.get(str(names.get("__name__"))))
    if "get_ipython" in names and (Path(name).parent.name.startswith("ipykernel_") or not Path(name).is_file()):
        name = os.environ.get("JPY_SESSION_NAME") or str(names.get("__vsc_ipynb_file__") or "notebook.ipynb")
        modules |= cells_behind(text, names)
    return source_of_text(Path(name).name, text, modules=modules)


def _module_of(frame: FrameType) -> ModuleType | None:
    """The module of a program; ``None`` if it has no file, as in a notebook."""
    module = sys.modules.get(str(frame.f_globals.get("__name__")))
    return module if getattr(module, "__file__", None) else None


def _need_whole(asked: str, seed: object) -> int:
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral) or not 0 <= int(seed) < 1 << 63:
        raise UsageError(asked, f"its seed is {seed!r}"[:200], "give a whole number from 0 on")
    return int(seed)


def _settings(asked: str, given: Mapping[str, object]) -> dict[str, Setting]:
    """As they are recorded; one ``UsageError`` names all that cannot be."""
    found: dict[str, Setting] = {}
    odd, does = [], []
    for name, value in given.items():
        if value is None:
            continue
        if name in OWN_NAMES:
            odd.append(f"{name!r} is among its settings, and selections of runs mean something else by it")
            does.append(f"give {name} to track itself" if name in _GIVEN else f"call {name} own_{name}, say")
            continue
        try:
            found[str(name)] = _of_setting(asked, name, value)
        except UsageError as error:
            odd.append(error.found)
            does.append(error.do)
    if odd:
        raise UsageError(asked, "; ".join(odd), "; ".join(dict.fromkeys(does)))
    return found


def _of_setting(asked: str, name: object, value: object) -> Setting:
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, list | tuple):
        try:
            return ",".join(str(_plain(asked, name, each)) for each in value)
        except UsageError as error:
            raise UsageError(asked, f"{name} is {value!r}"[:200], error.do) from error
    return _plain(asked, name, value)


def _plain(asked: str, name: object, value: object) -> Setting:
    if isinstance(value, bool | str):
        return value
    # Selections read whole numbers of 64 bits.
    if isinstance(value, numbers.Integral) and -(1 << 63) <= int(value) < 1 << 63:
        return int(value)
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral) and math.isfinite(float(value)):
        return float(value)
    raise UsageError(asked, f"{name} is {value!r}"[:200], "give a finite number; a setting may be text")


def target_of(
    asked: str,
    given: Mapping[str, float],
    direction: Literal["higher", "lower"] | None,
    scale: tuple[float | None, float | None] | None,
) -> Target:
    """The target that ``{metric: value}`` is; what is not given follows from the metric's name, or ``UsageError``."""
    if not isinstance(given, Mapping) or len(given) != 1:
        raise UsageError(asked, f"its target is {given!r}"[:200], 'give one metric with a value: {"accuracy": 0.94}')
    ((metric, value),) = given.items()
    threshold = _plain(asked, metric, value)
    if isinstance(threshold, bool | str):
        raise UsageError(asked, f"its target {metric} is {threshold!r}", "give a number")
    way = direction or better_of(str(metric))
    if way is None:
        do = "say it: direction='lower' or 'higher' (--direction)"
        raise UsageError(asked, f"whether a higher or a lower {metric} is better does not follow from its name", do)
    sign_of(way)
    low, high = _scale_given(asked, scale) if scale is not None else scale_of(str(metric))
    target = Target(str(metric), float(threshold), way, low, high)
    target.require_on_scale(", or say the scale: scale=(lowest, highest) (--scale)")
    return target


def _scale_given(asked: str, scale: object) -> tuple[float | None, float | None]:
    try:
        low, high = (None if each is None or abs(each) == math.inf else float(each) for each in cast(Any, scale))
        if (-math.inf if low is None else low) < (math.inf if high is None else high):
            return low, high
    except (TypeError, ValueError):
        pass
    do = "give the lowest and the highest value, None where there is none: scale=(0, 100) (--scale 0,100)"
    raise UsageError(asked, f"its scale is {scale!r}"[:200], do)
