"""Errors a user can act on: one root, one class for each thing to do about it.

Every error has three parts, what was asked, what was found and what to do, and the exit code of the command line.
levelbench never shows a bare ``ValueError`` to a user, and catches only errors that it can name.

    LevelbenchError
    ├── UsageError         2  change the command, the setting or the value
    │   └── UnknownNameError  ... to one of the names that exist
    ├── DefinitionError    2  correct the task, recipe or plug-in file
    ├── RecordError        2  correct or remove the record
    ├── IncomparableError  2  compare like with like
    ├── CheckFailedError   1  correct the operator, network or scheme: it was found wrong
    ├── MissingError       3  install or fetch something
    ├── UnsupportedError   3  use another framework: this one cannot do it
    ├── DataError          3  fetch the data again: it is corrupt or incomplete
    ├── CommunicationError 3  see why a rank was lost, or wait longer
    └── StoreError         3  make the folder writable, or make room
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "CheckFailedError",
    "CommunicationError",
    "DataError",
    "DefinitionError",
    "IncomparableError",
    "LevelbenchError",
    "MissingError",
    "RecordError",
    "StoreError",
    "UnknownNameError",
    "UnsupportedError",
    "UsageError",
    "nearest",
]


class LevelbenchError(Exception):
    """The root. ``asked``, ``found`` and ``do`` are sentences without a final full stop.

    ``trace`` is what ``--debug`` shows in place of this process's own traceback, where the cause lies in another
    process: its traceback, or all that it printed.
    """

    exit_code = 2
    trace: str = ""

    def __init__(self, asked: str, found: str, do: str) -> None:
        super().__init__(asked, found, do)
        self.asked = asked
        self.found = found
        self.do = do

    def __str__(self) -> str:
        do = self.do if self.do.startswith(("levelbench ", "pip ")) else self.do[:1].upper() + self.do[1:]
        return f"{self.asked}: {self.found}. {do}."


class UsageError(LevelbenchError):
    """The command, a setting or a value cannot be meant as it stands."""


class UnknownNameError(UsageError):
    """A name that nothing answers to; the message lists the nearest ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str], do: str = "") -> None:
        names = sorted(known)
        close = nearest(name, names)
        article = "an" if kind[:1] in "aeio" else "a"
        listed = f"close: {', '.join(close)}" if close else f"there are: {', '.join(names) or 'none'}"
        super().__init__(
            f"{kind} {name!r}", f"no {kind} has that name; {listed}", do or f"choose {article} {kind} that exists"
        )
        self.close = close


class DefinitionError(LevelbenchError):
    """A task, recipe or plug-in that cannot be used as it is written."""


class RecordError(LevelbenchError):
    """A record that cannot be read: another schema, a broken line, no header."""


class IncomparableError(LevelbenchError):
    """Two things whose comparison would mean nothing."""


class MissingError(LevelbenchError):
    """Something that is not here: a framework, a dataset, a device."""

    exit_code = 3


class UnsupportedError(LevelbenchError):
    """A framework that cannot do what is asked: an operator, a dtype, a device, training."""

    exit_code = 3


class CheckFailedError(LevelbenchError):
    """Something that was checked and found wrong; ``found`` says what, where, how much and against which tolerance."""

    exit_code = 1


class DataError(LevelbenchError):
    """Data that is here but not what it should be."""

    exit_code = 3


class CommunicationError(LevelbenchError):
    """A rank was lost, or did not answer in time."""

    exit_code = 3


class StoreError(LevelbenchError):
    """The store cannot be read or written."""

    exit_code = 3


def nearest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The ``most`` names of ``known`` that look most like ``name``, best first; empty if none is close.

    Those that ``name`` begins with come before all others: of ``lrate``, ``lr`` is nearer than ``lr_scale``.
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, n=len(names) or 1, cutoff=0.5)
    return sorted(close, key=lambda each: not name.startswith(each))[:most]
