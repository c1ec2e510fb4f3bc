"""The parts of a generated graph: values, computed with NumPy, and the draws that choose among the possibilities.

Each value is computed as soon as its node is added, and determines what keeps the graph well conditioned. Its largest
magnitude and its smallest element decide whether it can be a divisor, exponent or radicand. ``distinct`` means that its
elements are neither zero nor equal, so that gradients do not depend on a framework's choice at kinks. ``exact`` means
that it is bitwise equal in every framework, so that comparisons may read it.
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
"""The largest magnitude of a value; larger ones are squashed."""

_ELEMENTS = 512
_MARGIN = 1e-5
"""Elements that differ by less than this share of the largest may be equal, or zero, in another framework."""
T = TypeVar("T")


class Draws(ABC):
    """The source of choices: a seed, or Hypothesis, which can shrink them."""

    @abstractmethod
    def integer(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, inclusive."""

    def pick(self, choices: Sequence[T]) -> T:
        """One of the choices; earlier ones are simpler."""
        return choices[self.integer(0, len(choices) - 1)]


class SeededDraws(Draws):
    """Choices drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def integer(self, low: int, high: int) -> int:
        """A uniformly distributed integer."""
        return int(self._random.integers(low, high + 1))


@dataclass(frozen=True, eq=False)
class Item:
    """A value of the graph; ``exact`` is explained in the module's docstring."""

    name: str
    value: Host
    exact: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its axes."""
        return self.value.shape

    @property
    def rank(self) -> int:
        """The number of axes."""
        return self.value.ndim

    @property
    def dtype(self) -> str:
        """The NumPy name of its dtype."""
        return self.value.dtype.name

    @property
    def floating(self) -> bool:
        """Whether its dtype is floating-point."""
        return self.value.dtype.kind == "f"

    @property
    def bound(self) -> float:
        """Its largest magnitude."""
        return float(np.abs(self.value).max())

    @property
    def least(self) -> float:
        """Its smallest element."""
        return float(self.value.min())

    @cached_property
    def distinct(self) -> bool:
        """Whether its elements are neither zero nor equal, in any framework."""
        steps = np.diff(np.sort(self.value, axis=None))
        return self.floating and bool(min(np.abs(self.value).min(), steps.min(initial=np.inf)) > _MARGIN * self.bound)


@dataclass
class Sketch:
    """A graph being generated: the builder, the existing values, the arrays of the inputs.

    ``read`` are the names that some node reads, ``trained`` those that depend on a parameter.
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
        """A new generator at each call, determined by the seed."""
        self.seed += 1
        return np.random.default_rng(self.seed)

    def node(self, op_type: str, *inputs: Item | None, outputs: int = 1, exact: bool = False, **attributes: Any) -> Any:
        """Add a node; returns its output or outputs.

        Adds no node and returns ``None`` if a value would be empty, have more than 512 elements, or be too large to
        squash.
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
        # ONNX defines it by a body, through which its shape inference does not work.
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
        """Like :meth:`node`, for a single output, which is squashed if it is large."""
        made = self.node(op_type, *inputs, **attributes)
        return None if made is None else self.within(made)

    def input(self, shape: Sequence[int], dtype: str = "float32") -> Item:
        """Add an input of the network: uniform in [-1, 1], or integers from 0 to 3."""
        name, random = f"input{len(self.inputs)}", self.random()
        value = random.integers(0, 4, shape) if dtype == "int64" else random.uniform(-1, 1, shape).astype(dtype)
        self.inputs[name] = value
        self.builder.input(name, shape, dtype, high=4 if dtype == "int64" else None)
        self.items.append(Item(name, value, exact=True))
        return self.items[-1]

    def constant(self, value: Any, dtype: str = "int64") -> Item:
        """A constant of the graph."""
        array = np.asarray(value, dtype)
        return Item(self.builder.constant(array), array, exact=True)

    def noise(self, shape: Sequence[int], dtype: str, low: float = -1.0, high: float = 1.0) -> Item:
        """A constant of random numbers."""
        return self.constant(self.random().uniform(low, high, shape), dtype)

    def parameter(self, shape: Sequence[int], dtype: str, width: float = 0.5, mean: float = 0.0) -> Item:
        """A parameter, uniform within ``width`` of ``mean``; it is added to the graph once a node reads it."""
        drawn = Parameter(f"weight{self.seed}", tuple(shape), dtype, Draw("uniform", width, mean))
        self.seed += 1
        self._drawn[drawn.name] = drawn
        self.trained.add(drawn.name)
        return Item(drawn.name, drawn.initialise(0))

    def within(self, item: Item, bound: float = MOST) -> Item:
        """The value, or its tanh if it is larger than ``bound`` (at least 1)."""
        squashed: Item = item if not item.floating or item.bound <= bound else self.node("Tanh", item)
        return squashed

    def some(self, fits: Callable[[Item], bool]) -> Item | None:
        """A value that ``fits``, if there is one."""
        found = [each for each in self.items if fits(each)]
        return self.draws.pick(found[::-1]) if found else None
