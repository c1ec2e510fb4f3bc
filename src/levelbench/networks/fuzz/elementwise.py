"""Element-wise operators for generated graphs, each with the guard that keeps it well conditioned."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.networks.fuzz.items import MOST, Graph, Item

__all__ = ["ELEMENTWISE"]

_LARGEST_EXPONENT = 4.0
_LEAST_DIVISOR = 0.5


def _smooth(graph: Graph) -> Item | None:
    """A smooth function of bounded result."""
    x = graph.floating()
    if x is None:
        return None
    name = graph.draws.pick(["Tanh", "Sigmoid", "Sin", "Cos", "Softsign", "Erf"])
    # Where a function is flat, near-equal values become equal ones.
    x = graph.within(x, 4.0)
    least = 0.0 if name == "Sigmoid" else -1.0
    return x.like(graph.node(name, x.name), bound=1.0, least=least, distinct=x.distinct and x.bound <= 2.0)


def _activation(graph: Graph) -> Item | None:
    """An activation without a kink; those with a bound below it keep the bound."""
    x = graph.floating()
    if x is None:
        return None
    name = graph.draws.pick(["Softplus", "Gelu", "Mish", "HardSwish"])
    x = graph.within(x, 8.0)
    if name == "HardSwish" and (x.bound > 2.9 or not x.distinct):
        name = "Softplus"
    bound = x.bound + math.log(2)
    return x.like(graph.node(name, x.name), bound=bound, least=0.0 if name == "Softplus" else -1.0, distinct=False)


def _kinked(graph: Graph) -> Item | None:
    """An activation with a kink at zero, of values that are not zero."""
    x = graph.floating()
    if x is None or not x.distinct:
        return None
    name, attributes = graph.draws.pick(
        [("Relu", {}), ("Abs", {}), ("LeakyRelu", {"alpha": 0.1}), ("Elu", {"alpha": 1.5}), ("Selu", {}), ("Celu", {})]
    )
    if name == "Celu" and x.dtype != "float32":
        name, attributes = "Relu", {}
    least = 0.0 if name in ("Relu", "Abs") else -2.0 * max(1.0, x.bound)
    exact = x.exact and name in ("Relu", "Abs")
    bound = max(2.0, 1.1 * x.bound)
    return x.like(graph.node(name, x.name, **attributes), bound=bound, least=least, distinct=False, exact=exact)


def _exponential(graph: Graph) -> Item | None:
    """Exp of what is small, log and roots of what is well above zero, a reciprocal of what is not near it."""
    x = graph.floating()
    if x is None:
        return None
    name = graph.draws.pick(["Exp", "Log", "Sqrt", "Reciprocal"])
    if name == "Exp":
        x = graph.within(x, _LARGEST_EXPONENT)
        return x.like(graph.node("Exp", x.name), bound=math.exp(x.bound), least=math.exp(-x.bound))
    x = _away_from_zero(graph, x)
    match name:
        case "Log":
            bound = max(abs(math.log(x.least)), abs(math.log(x.bound)))
            return x.like(graph.node("Log", x.name), bound=bound, least=math.log(x.least))
        case "Sqrt":
            return x.like(graph.node("Sqrt", x.name), bound=math.sqrt(x.bound), least=math.sqrt(x.least))
    return x.like(graph.node("Reciprocal", x.name), bound=1 / x.least, least=1 / x.bound)


def _away_from_zero(graph: Graph, x: Item) -> Item:
    """A value that is at least 0.5: itself, or 0.5 more than its square."""
    if x.least >= _LEAST_DIVISOR:
        return x
    x = graph.within(x, 4.0)
    half = graph.builder.constant(_scalar(0.5, x.dtype))
    square = graph.node("Mul", x.name, x.name)
    found = graph.node("Add", square, half)
    return x.like(found, bound=x.bound**2 + 0.5, least=0.5, distinct=False)


def _scalar(value: float, dtype: str) -> NDArray[Any]:
    return np.asarray(value, dtype)


def _arithmetic(graph: Graph) -> Item | None:
    """A sum, difference, product or quotient of two values that can be broadcast, perhaps the same one."""
    x = graph.floating()
    if x is None:
        return None
    others = [each for each in graph.items if each.dtype == x.dtype and _broadcast(x.shape, each.shape) is not None]
    y = graph.draws.pick(others[::-1])
    name = graph.draws.pick(["Add", "Mul", "Sub", "Div"])
    shape = _broadcast(x.shape, y.shape)
    if shape is None or not graph.small(math.prod(shape)):
        return None
    if name == "Div":
        y = _away_from_zero(graph, y)
        bound = x.bound / y.least
    elif name == "Mul":
        bound = x.bound * y.bound
    else:
        bound = x.bound + y.bound
    if bound > MOST**2 or (name == "Sub" and x.name == y.name):
        return None
    made = graph.node(name, x.name, y.name)
    return graph.within(x.like(made, shape=shape, bound=bound, least=-bound, distinct=False))


def _scaled(graph: Graph) -> Item | None:
    """Each element times a number and plus another, which keeps them apart."""
    x = graph.floating()
    if x is None:
        return None
    shape = graph.draws.pick([(), x.shape[-1:], x.shape])
    name = graph.draws.pick(["Add", "Mul"])
    y = graph.constant(shape, x.dtype, 0.5, 1.5)
    bound = x.bound * 1.5 if name == "Mul" else x.bound + 1.5
    if bound > MOST:
        return None
    least = min(x.least * 0.5, x.least * 1.5) if name == "Mul" else x.least + 0.5
    return x.like(graph.node(name, x.name, y.name), bound=bound, least=least, distinct=x.distinct or shape == x.shape)


def _extreme(graph: Graph) -> Item | None:
    """The larger or smaller of a value and of random numbers: no ties."""
    x = graph.floating()
    if x is None or not x.distinct:
        return None
    y = graph.constant(x.shape, x.dtype)
    name = graph.draws.pick(["Max", "Min"])
    bound = max(x.bound, 1.0)
    return x.like(graph.node(name, x.name, y.name), bound=bound, least=-bound, exact=x.exact)


def _clipped(graph: Graph) -> Item | None:
    """A value within limits that none of its elements equals."""
    x = graph.floating()
    if x is None or not x.distinct:
        return None
    low, high = (graph.builder.constant(_scalar(each, x.dtype)) for each in (-0.7071, 0.6180))
    return x.like(graph.node("Clip", x.name, low, high), bound=0.7071, least=-0.7071, exact=x.exact, distinct=False)


def _power(graph: Graph) -> Item | None:
    """A whole power."""
    x = graph.floating()
    if x is None:
        return None
    x = graph.within(x, 3.0)
    exponent = graph.draws.pick([2.0, 3.0])
    power = graph.builder.constant(_scalar(exponent, x.dtype))
    bound = x.bound**exponent
    return x.like(graph.node("Pow", x.name, power), bound=bound, least=-bound, distinct=False)


def _negated(graph: Graph) -> Item | None:
    x = graph.floating()
    return None if x is None else x.like(graph.node("Neg", x.name), least=-x.bound, exact=x.exact)


def _summed(graph: Graph) -> Item | None:
    """Sum or Mean of three values of one shape."""
    x = graph.floating()
    if x is None or x.bound > MOST / 3:
        return None
    same = [each for each in graph.items if each.shape == x.shape and each.dtype == x.dtype and each.bound < MOST / 3]
    others = [graph.draws.pick(same), graph.draws.pick(same)]
    name = graph.draws.pick(["Sum", "Mean"])
    bound = x.bound + sum(each.bound for each in others)
    made = graph.node(name, x.name, *(each.name for each in others))
    return x.like(made, bound=bound, least=-bound, distinct=False)


def _broadcast(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape of both together, ``None`` if they do not fit."""
    try:
        return tuple(np.broadcast_shapes(one, other))
    except ValueError:
        return None


ELEMENTWISE = (
    _smooth,
    _arithmetic,
    _scaled,
    _kinked,
    _activation,
    _exponential,
    _extreme,
    _clipped,
    _power,
    _negated,
    _summed,
)
