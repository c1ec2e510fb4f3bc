"""What a generated graph is made of: values whose range is known, and the draws that choose among what is possible.

Each value carries what keeps a graph well conditioned. A bound on its magnitude and its least value say
whether it may be divided by, exponentiated or rooted; ``exact`` that every framework has the same bits of it, so that a
comparison may read it; ``distinct`` that its elements are neither zero nor equal, so that a kink's gradient is the same
whatever a framework does at the kink.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.values import Draw

MOST = 50.0
"""The largest magnitude that a value may have before it is squashed."""

_ELEMENTS = 512
T = TypeVar("T")


class Draws(Protocol):
    """Where choices come from: a seed, or Hypothesis, which can shrink them."""

    def integer(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included."""

    def pick(self, choices: Sequence[T]) -> T:
        """One of them; earlier ones are simpler."""


class SeededDraws:
    """Choices that follow from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def integer(self, low: int, high: int) -> int:
        """Uniform."""
        return int(self._random.integers(low, high + 1))

    def pick(self, choices: Sequence[T]) -> T:
        """Uniform."""
        return choices[int(self._random.integers(len(choices)))]


@dataclass(frozen=True)
class Item:
    """A value: ``bound`` is a bound on its magnitude, ``least`` one from below; see the module for the rest."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bound: float = 1.0
    least: float = -1.0
    exact: bool = False
    distinct: bool = True

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def floating(self) -> bool:
        """Whether it is of a floating-point dtype."""
        return self.dtype.startswith("float")

    def like(self, name: str, **changes: Any) -> Item:
        """The same under another name, with ``changes``; a computed one: not exact."""
        return replace(self, **{"name": name, "exact": False, **changes})

    def moved(self, name: str, shape: Sequence[int], *, distinct: bool = True) -> Item:
        """The same elements in another place: as exact as before, ``distinct`` unless some are repeated."""
        return replace(self, name=name, shape=tuple(shape), distinct=self.distinct and distinct)

    def with_zeros(self) -> Item:
        """The same, some of whose elements may be zero."""
        return replace(self, least=min(self.least, 0.0))


@dataclass
class Sketch:
    """A graph as it is generated: the builder, the values there are, the inputs' arrays.

    ``read`` are names that a node reads, ``trained`` those that depend on a parameter.
    """

    builder: GraphBuilder
    draws: Draws
    seed: int
    items: list[Item] = field(default_factory=list)
    inputs: dict[str, NDArray[Any]] = field(default_factory=dict)
    nodes: int = 0
    read: set[str] = field(default_factory=set)
    trained: set[str] = field(default_factory=set)

    def random(self) -> np.random.Generator:
        """A generator that differs at each call, and follows from the seed."""
        self.seed += 1
        return np.random.default_rng(self.seed)

    def node(self, op_type: str, *inputs: str | None, **attributes: Any) -> Any:
        """A node, counted; its output's name or names."""
        self.nodes += 1
        self.read.update(each for each in inputs if each)
        made = self.builder.node(op_type, *inputs, **attributes)
        if any(each in self.trained for each in inputs):
            self.trained.update([made] if isinstance(made, str) else made)
        return made

    def input(self, shape: Sequence[int], dtype: str = "float32") -> Item:
        """One more input of the network: uniform in [-1, 1], or integers from 0 to 3."""
        name = f"input{len(self.inputs)}"
        random = self.random()
        if dtype == "int64":
            self.inputs[name] = random.integers(0, 4, shape)
            found = Item(name, dtype, tuple(shape), 3.0, 0.0, exact=True, distinct=False)
        else:
            self.inputs[name] = random.uniform(-1, 1, shape).astype(dtype)
            found = Item(name, dtype, tuple(shape), exact=True)
        self.builder.input(name, shape, dtype, high=4 if dtype == "int64" else None)
        self.items.append(found)
        return found

    def constant(self, shape: Sequence[int], dtype: str, low: float = -1.0, high: float = 1.0) -> Item:
        """Random numbers that belong to the graph."""
        values = self.random().uniform(low, high, shape).astype(dtype)
        name = self.builder.constant(values)
        return Item(name, dtype, tuple(shape), max(abs(low), abs(high)), low, exact=True)

    def parameter(self, shape: Sequence[int], dtype: str, width: float = 0.5, mean: float = 0.0) -> Item:
        """Trainable numbers, uniform within ``width`` of ``mean``."""
        name = self.builder.parameter(f"weight{self.seed}", shape, Draw("uniform", width, mean), dtype=dtype)
        self.seed += 1
        self.trained.add(name)
        return Item(name, dtype, tuple(shape), abs(mean) + width, mean - width)

    def within(self, item: Item, bound: float = MOST) -> Item:
        """The value, or its tanh where it may be larger than ``bound``, which is at least 1."""
        if item.bound <= bound or not item.floating:
            return item
        return item.like(self.node("Tanh", item.name), bound=1.0, least=-1.0)

    def floating(self, rank: int = 0) -> Item | None:
        """Some floating-point value of at least ``rank`` axes."""
        found = [each for each in self.items if each.floating and each.rank >= rank]
        return self.draws.pick(found[::-1]) if found else None

    def small(self, size: int) -> bool:
        """Whether a value of so many elements is still allowed."""
        return 0 < size <= _ELEMENTS
