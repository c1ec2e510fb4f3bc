"""levelbench: deep learning measured end to end and from the inside.

The public names are imported when they are first used, so that ``import levelbench`` costs nothing.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from levelbench.cli.api import compare as compare
    from levelbench.cli.api import run as run
    from levelbench.errors import LevelbenchError as LevelbenchError
    from levelbench.experiments.marking import autophase as autophase
    from levelbench.experiments.marking import callback as callback
    from levelbench.experiments.marking import phases as phases
    from levelbench.experiments.marking import predict as predict
    from levelbench.experiments.request import load_task as load_task
    from levelbench.experiments.track import track as track
    from levelbench.experiments.tracked import TrackedRun as TrackedRun
    from levelbench.measure.clocks import FakeClock as FakeClock
    from levelbench.measure.sampling import Sample as Sample
    from levelbench.measure.sampling import sample as sample
    from levelbench.measure.sampling import sample_interleaved as sample_interleaved
    from levelbench.measure.stopping import Budget as Budget
    from levelbench.measure.stopping import FixedCount as FixedCount
    from levelbench.measure.stopping import Precision as Precision
    from levelbench.measure.timeline import Phase as Phase
    from levelbench.measure.timeline import Timeline as Timeline
    from levelbench.measure.verdict import Verdict as Verdict
    from levelbench.measure.verdict import verdict as verdict
    from levelbench.records.reader import Record as Record
    from levelbench.records.reader import read_record as read_record
    from levelbench.records.store import Store as Store
    from levelbench.records.summary import summarise as summarise
    from levelbench.training.task import Recipe as Recipe
    from levelbench.training.task import Task as Task

_HOMES = {
    "cli.api": ("compare", "run"),
    "errors": ("LevelbenchError",),
    "measure.clocks": ("FakeClock",),
    "measure.sampling": ("Sample", "sample", "sample_interleaved"),
    "measure.stopping": ("Budget", "FixedCount", "Precision"),
    "measure.timeline": ("Phase", "Timeline"),
    "measure.verdict": ("Verdict", "verdict"),
    "records.reader": ("Record", "read_record"),
    "records.store": ("Store",),
    "records.summary": ("summarise",),
    "experiments.request": ("load_task",),
    "experiments.marking": ("autophase", "callback", "phases", "predict"),
    "experiments.track": ("track",),
    "experiments.tracked": ("TrackedRun",),
    "training.task": ("Recipe", "Task"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Budget",
    "FakeClock",
    "FixedCount",
    "LevelbenchError",
    "Phase",
    "Precision",
    "Recipe",
    "Record",
    "Store",
    "Task",
    "Timeline",
    "Verdict",
    "autophase",
    "callback",
    "compare",
    "load_task",
    "phases",
    "predict",
    "read_record",
    "run",
    "sample",
    "sample_interleaved",
    "summarise",
    "track",
    "verdict",
]


def __getattr__(name: str) -> Any:
    if name == "report":
        # A package that can be called.
        return importlib.import_module("levelbench.report")
    if name == "write_report":
        return importlib.import_module("levelbench.cli.api").report
    if name not in _HOME:
        raise AttributeError(f"module 'levelbench' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"levelbench.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # A package that can be called, and so no name of this list.
    return sorted([*__all__, "__version__", "report"])


if "IPython" in sys.modules:
    from levelbench.report.notebook import register

    register()
