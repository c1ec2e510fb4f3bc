"""Observers look on while a trainer runs; ``make`` makes those that a command asks for by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Final

from levelbench.errors import UnknownNameError, UsageError
from levelbench.records.schema import Specification
from levelbench.training.observers.base import Context, Observer, Progress, overridden, run_name

__all__ = ["KINDS", "Context", "Observer", "Progress", "make", "overridden", "read"]

KINDS = MappingProxyType(
    {
        "csv": "FOLDER: the evaluations and steps of each run as CSV",
        "tensorboard": "FOLDER: event files for TensorBoard",
        "wandb": "PROJECT: a run of Weights & Biases, offline unless WANDB_MODE says otherwise",
        "mlflow": "ADDRESS: a run at an MLflow tracking address, such as sqlite:///mlflow.db",
        "mistakes": "FOLDER: the validation examples that a classifier gets wrong at the end",
        "statistics": "FOLDER: norms of weights, updates and gradients by parameter, as CSV",
    }
)
"""What may be asked for, and what stands after the equals sign."""

_FILES: Final = {"csv": "Tables", "mistakes": "Mistakes", "statistics": "Statistics"}
_TRACKERS: Final = {"tensorboard": "TensorBoard", "wandb": "WeightsAndBiases", "mlflow": "MLflow"}


def read(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The kinds and places of ``["csv=logs,mistakes=wrong", "tensorboard=events"]``, checked before anything is run.

    :raises UnknownNameError: for a kind that there is not.
    :raises UsageError: for a word without a place, and for one that is given twice.
    :raises MissingError: where the package that one needs is not installed.
    """
    found: list[tuple[str, str]] = []
    for word in words:
        # A comma may be part of a folder's name; one before "kind=" is not.
        for part in re.split(r",(?=\w+=)", word):
            kind, equals, place = (each.strip() for each in part.partition("="))
            if kind not in KINDS:
                raise UnknownNameError("observer", kind, KINDS, "write --observe csv=FOLDER")
            if not equals or not place:
                raise UsageError(f"--observe {part}", "it says no place", f"write --observe {kind}=PLACE")
            if (kind, place) in found:
                raise UsageError(f"--observe {part}", "it is asked for twice", "ask for it once")
            if kind in _TRACKERS:
                from levelbench.training.observers.trackers import require

                require(kind, f"--observe {part}")
            found.append((kind, place))
    return tuple(found)


def make(words: Sequence[str], specification: Specification, identity: str) -> tuple[Observer, ...]:
    """The observers that the words ask for, of one run: what it is to be, and its id. Nothing is written yet.

    Raises what :func:`read` raises.
    """
    name = run_name(specification, identity)
    found: list[Observer] = []
    for kind, place in read(words):
        # Each is imported where it is wanted: a run that observes nothing pays for nothing.
        if kind in _FILES:
            files = import_module("levelbench.training.observers.files")
            found.append(getattr(files, _FILES[kind])(Path(place), name))
        else:
            trackers = import_module("levelbench.training.observers.trackers")
            found.append(getattr(trackers, _TRACKERS[kind])(place, name, specification))
    return tuple(found)
