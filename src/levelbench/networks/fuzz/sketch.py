"""What a generated graph is made of: values as NumPy has them, and the draws that choose among what is possible.

Each value is computed as soon as its node is there, and what keeps a graph well conditioned is read from it. Its
largest magnitude and its least element say whether it may be divided by, exponentiated or rooted; ``distinct`` that its
elements are neither zero nor equal, so that a kink's gradient is the same whatever a framework does at the kink;
``exact`` that every framework has the same bits of it, so that a comparison may read it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from levelbench.checks.arrays import Host
from levelbench.networks.builder import GraphBuilder
from levelbench.networks.values import Draw, Parameter
from levelbench.operators.frameworks import open_framework
from levelbench.operators.node import DEFAULT_OPSET, operator_node
from levelbench.operators.program import Primitive, Scope

MOST = 50.0
"""The largest magnitude that a value may have before it is squashed."""

_ELEMENTS = 512
_MARGIN = 1e-5
"""Elements that are closer than this share of the largest may be equal, or zero, in another framework."""
T = TypeVar("T")


class Draws(ABC):
    """Where choices come from: a seed, or Hypothesis, which can shrink them."""

    @abstractmethod
    def integer(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included."""

    def pick(self, choices: Sequence[T]) -> T:
        """One of them; earlier ones are simpler."""
        return choices[self.integer(0, len(choices) - 1)]


class SeededDraws(Draws):
    """Choices that follow from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def integer(self, low: int, high: int) -> int:
        """Uniform."""
        return int(self._random.integers(low, high + 1))


@dataclass(frozen=True, eq=False)
class Item:
    """A value of the graph; see the module for ``exact``."""

    name: str
    value: Host
    exact: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its axes."""
        return self.value.shape

    @property
    def rank(self) -> int:
        """Number of axes."""
        return self.value.ndim

    @property
    def dtype(self) -> str:
        """NumPy's name of its dtype."""
        return self.value.dtype.name

    @property
    def floating(self) -> bool:
        """Whether it is of a floating-point dtype."""
        return self.value.dtype.kind == "f"

    @property
    def bound(self) -> float:
        """Its largest magnitude."""
        return float(np.abs(self.value).max())

    @property
    def least(self) -> float:
        """Its least element."""
        return float(self.value.min())

    @cached_property
    def distinct(self) -> bool:
        """Whether its elements are neither zero nor equal, in any framework."""
        steps = np.diff(np.sort(self.value, axis=None))
        return self.floating and bool(min(np.abs(self.value).min(), steps.min(initial=np.inf)) > _MARGIN * self.bound)


@dataclass
class Sketch:
    """A graph as it is generated: the builder, the values there are, the inputs' arrays.

    ``read`` are names that a node reads, ``trained`` those that depend on a parameter.
    """

    builder: GraphBuilder
    draws: Draws
    seed: int
    items: list[Item] = field(default_factory=list)
    inputs: dict[str, Host] = field(default_factory=dict)
    nodes: int = 0
    read: set[str] = field(default_factory=set)
    trained: set[str] = field(default_factory=set)
    _drawn: dict[str, Parameter] = field(default_factory=dict)
    _scope: Scope = field(default_factory=lambda: Scope(open_framework("numpy", "cpu"), {"": DEFAULT_OPSET}))

    def random(self) -> np.random.Generator:
        """A generator that differs at each call, and follows from the seed."""
        self.seed += 1
        return np.random.default_rng(self.seed)

    def node(self, op_type: str, *inputs: Item | None, outputs: int = 1, exact: bool = False, **attributes: Any) -> Any:
        """A node, counted; its output, or as many as asked for.

        ``None``, and no node, where a value would be empty, have more than 512 elements or be too large to be squashed.
        """
        names = [each.name if each else "" for each in inputs]
        node = operator_node(op_type, names, [f"{at}" for at in range(outputs)], **attributes)
        call = Primitive(node, self._scope, {})
        with np.errstate(all="ignore"):
            values = [np.asarray(each) for each in call(*(each.value if each else None for each in inputs))]
        if not all(0 < each.size <= _ELEMENTS and np.abs(each).max() <= MOST**2 for each in values):
            return None
        for name in names:
            drawn = self._drawn.pop(name, None)
            if drawn is not None and drawn.draw is not None:
                self.builder.parameter(name, drawn.shape, drawn.draw, dtype=drawn.dtype)
        # ONNX defines it by a body through which its inference does not see.
        shape = values[0].shape if op_type == "GroupNormalization" else None
        made = self.builder.node(op_type, *names, outputs=outputs, shape=shape, **attributes)
        made = (made,) if outputs == 1 else made
        self.nodes += 1
        self.read.update(names)
        if self.trained.intersection(names):
            self.trained.update(made)
        found = tuple(Item(name, value, exact) for name, value in zip(made, values, strict=True))
        return found[0] if outputs == 1 else found

    def put(self, op_type: str, *inputs: Item | None, **attributes: Any) -> Item | None:
        """As :meth:`node`, of one output, which is squashed where it is large."""
        made = self.node(op_type, *inputs, **attributes)
        return None if made is None else self.within(made)

    def input(self, shape: Sequence[int], dtype: str = "float32") -> Item:
        """One more input of the network: uniform in [-1, 1], or integers from 0 to 3."""
        name, random = f"input{len(self.inputs)}", self.random()
        value = random.integers(0, 4, shape) if dtype == "int64" else random.uniform(-1, 1, shape).astype(dtype)
        self.inputs[name] = value
        self.builder.input(name, shape, dtype, high=4 if dtype == "int64" else None)
        self.items.append(Item(name, value, exact=True))
        return self.items[-1]

    def constant(self, value: Any, dtype: str = "int64") -> Item:
        """Numbers that belong to the graph."""
        array = np.asarray(value, dtype)
        return Item(self.builder.constant(array), array, exact=True)

    def noise(self, shape: Sequence[int], dtype: str, low: float = -1.0, high: float = 1.0) -> Item:
        """Random numbers that belong to the graph."""
        return self.constant(self.random().uniform(low, high, shape), dtype)

    def parameter(self, shape: Sequence[int], dtype: str, width: float = 0.5, mean: float = 0.0) -> Item:
        """Trainable numbers, uniform within ``width`` of ``mean``; the graph has them once a node reads them."""
        drawn = Parameter(f"weight{self.seed}", tuple(shape), dtype, Draw("uniform", width, mean))
        self.seed += 1
        self._drawn[drawn.name] = drawn
        self.trained.add(drawn.name)
        return Item(drawn.name, drawn.initialise(0))

    def within(self, item: Item, bound: float = MOST) -> Item:
        """The value, or its tanh where it is larger than ``bound``, which is at least 1."""
        squashed: Item = item if not item.floating or item.bound <= bound else self.node("Tanh", item)
        return squashed

    def some(self, fits: Callable[[Item], bool]) -> Item | None:
        """A value that ``fits``, if there is one."""
        found = [each for each in self.items if fits(each)]
        return self.draws.pick(found[::-1]) if found else None
