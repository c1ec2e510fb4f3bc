"""Remembers what was made of the last few submissions, for whoever asks next, and keeps none of them alive.

The one idea: a submission may be of 16 MiB, and a check lets go of each before it reads the next; so it is known by a
weak reference, and what was made of it goes with it.
"""

from __future__ import annotations

from typing import Generic, TypeVar
from weakref import ref

from levelbench.records.submissions.schema import Submission

__all__ = ["Lately"]

_MOST = 8
_Asked = TypeVar("_Asked")
_Made = TypeVar("_Made")


class Lately(Generic[_Asked, _Made]):
    """What was made of each of the last eight submissions when ``asked`` was asked of it last."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[ref[Submission], _Asked, _Made]] = {}

    def get(self, submission: Submission) -> tuple[_Asked, _Made] | None:
        """The last question about this very submission and what was made of it; ``None`` if it is not known."""
        held = self._held.get(id(submission))
        return held[1:] if held is not None and held[0]() is submission else None

    def put(self, submission: Submission, asked: _Asked, made: _Made) -> None:
        """Remember it, in place of the eldest."""
        key, held = id(submission), self._held
        while len(held) >= _MOST:
            held.pop(next(iter(held)), None)
        # Another submission may have the identity as soon as this one is gone, and not before.
        held[key] = ref(submission, lambda _: held.pop(key, None)), asked, made
