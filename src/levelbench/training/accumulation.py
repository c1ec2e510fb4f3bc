"""Gradient accumulation: several batches make one update, as one larger batch would.

Each batch counts with its share of the examples, so the sum is the gradient of the mean loss over all of
them, also where the last batch of an epoch is smaller. (Batch normalisation still sees each batch by itself.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from levelbench.measure.timeline import Phase, Timeline
from levelbench.networks.executor import Array, Executor

Batch = tuple[Array, ...]


def grouped(batches: Iterator[Batch], count: int) -> Iterator[tuple[Batch, ...]]:
    """The batches in groups of ``count``; the last one may be smaller."""
    while group := tuple(islice(batches, count)):
        yield group
        # Held here, it would live until the next group is whole.
        del group


def grouped_sizes(sizes: Sequence[int], count: int) -> list[int]:
    """Examples by group."""
    return [sum(sizes[at : at + count]) for at in range(0, len(sizes), count)]


class Accumulating:
    """``forward`` and ``backward`` of a group of batches, with the phases of each."""

    def __init__(self, executor: Executor, timeline: Timeline) -> None:
        self._executor, self._timeline = executor, timeline
        self._sum: dict[str, Array] = {}
        self._share = 1.0

    def forward(self, *group: Batch) -> Array:
        """The mean loss over all examples of the group; all gradients but the last batch's are added up."""
        examples = [len(batch[0]) for batch in group]
        total = sum(examples)
        self._sum, loss = {}, None
        for at, (batch, count) in enumerate(zip(group, examples, strict=True)):
            self._timeline.switch(Phase.FORWARD)
            part = self._executor.forward(*batch) * (count / total)
            loss = part if loss is None else loss + part
            self._share = count / total
            if at + 1 < len(group):
                self._timeline.switch(Phase.BACKWARD)
                self._add()
        return loss

    def backward(self) -> Mapping[str, Array]:
        """The gradients of the mean loss over all examples of the group."""
        self._add()
        return self._sum

    def _add(self) -> None:
        share = self._share
        for name, gradient in self._executor.backward().items():
            gradient = gradient * share
            self._sum[name] = self._sum[name] + gradient if name in self._sum else gradient
