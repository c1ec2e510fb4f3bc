"""Whether a quality looks at all examples of its split: the rows that it draws, and those that the network sees.

The one idea: a figure over a part of a split that is divided by the whole is still on its scale, so only counting rows
tells the two apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast, final

from levelbench.networks.executor import Array, Executor
from levelbench.training.input import Held
from levelbench.training.quality import Quality
from levelbench.training.validation.probes import Finding, failed, passed

__all__ = ["covered", "rounds"]

_BATCHES = 4


@final
class _Counting:
    """A held split that counts what is drawn of it, in four batches or more: a quality may stop after the first."""

    def __init__(self, held: Held) -> None:
        self.backend, self.split = held.backend, held.split
        self.drawn = 0
        self._held = held

    def batches(self, size: int = 1000) -> Iterator[tuple[Array, ...]]:
        """The held split's, smaller."""
        seen = 0
        for columns in self._held.batches(min(size, max(1, len(self) // _BATCHES))):
            seen += len(columns[-1])
            # Not the sum: the first rows may be looked at many times.
            self.drawn = max(self.drawn, seen)
            yield columns

    def __len__(self) -> int:
        return len(self._held)


def rounds(quality: Quality, executor: Executor, held: Held) -> float:
    """How often a quality has the network infer an example: once a token, where it translates token by token."""
    with _counted(executor) as inferred:
        quality.measure(executor, held)
    return inferred[0] / len(held)


@contextmanager
def _counted(executor: Executor) -> Iterator[list[int]]:
    """The number of rows that the network infers in here, as the one item of a list."""
    infer, inferred = executor.infer, [0]

    def counted(*inputs: Array) -> tuple[Array, ...]:
        inferred[0] += len(inputs[0])
        return infer(*inputs)

    # Put on the executor itself: a quality may ask for what only this framework's executors have.
    cast(Any, executor).infer = counted
    try:
        yield inferred
    finally:
        cast(Any, executor).infer = infer


def covered(quality: Quality, executor: Executor, held: Held) -> tuple[float, Finding]:
    """The quality of a network that is measured no more, and whether all rows of ``held`` went into it."""
    counting = _Counting(held)
    with _counted(executor) as inferred:
        value = quality.measure(executor, cast(Held, counting))
    title, rows = "examples", len(held)
    do = "measure all batches of held.batches(), and all rows of each"
    if counting.drawn < rows:
        found = f"{quality.metric} draws {counting.drawn} of the {rows} examples of the split"
        return value, failed(title, found, do)
    if inferred[0] < rows:
        found = f"{quality.metric} has the network infer {inferred[0]} of the {rows} examples of the split"
        return value, failed(title, found, do)
    return value, passed(title, f"{quality.metric} looks at all {rows} of the split")
