"""The operators that generated graphs are made of, each with the guard that keeps it well conditioned."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.networks.fuzz.sketch import MOST, Item, Sketch

_LARGEST_EXPONENT = 4.0
_LEAST_DIVISOR = 0.5


Pick = Callable[[Sketch], Item | None]


def _takes(pick: Pick) -> Callable[[Callable[[Sketch, Item], Item | None]], Pick]:
    """An operator that is put on the value that ``pick`` finds; ``None`` where there is none."""

    def decorate(put: Callable[[Sketch, Item], Item | None]) -> Pick:
        def made(graph: Sketch) -> Item | None:
            x = pick(graph)
            return None if x is None else put(graph, x)

        return made

    return decorate


def _floating(rank: int = 0) -> Pick:
    return lambda graph: graph.floating(rank)


def _any(rank: int = 1) -> Pick:
    def pick(graph: Sketch) -> Item | None:
        found = [each for each in graph.items if each.rank >= rank and each.dtype != "bool"]
        return graph.draws.pick(found[::-1]) if found else None

    return pick


def _image(graph: Sketch) -> Item | None:
    found = [each for each in graph.items if each.dtype == "float32" and each.rank == 4 and min(each.shape[2:]) >= 2]
    return graph.draws.pick(found[::-1]) if found else None


@_takes(_floating())
def _smooth(graph: Sketch, x: Item) -> Item | None:
    """A smooth function of bounded result."""
    name = graph.draws.pick(["Tanh", "Sigmoid", "Sin", "Cos", "Softsign", "Erf"])
    # Where a function is flat, near-equal values become equal ones.
    x = graph.within(x, 4.0)
    least = 0.0 if name == "Sigmoid" else -1.0
    return x.like(graph.node(name, x.name), bound=1.0, least=least, distinct=x.distinct and x.bound <= 2.0)


@_takes(_floating())
def _activation(graph: Sketch, x: Item) -> Item | None:
    """An activation without a kink; those with a bound below it keep the bound."""
    name = graph.draws.pick(["Softplus", "Gelu", "Mish", "HardSwish"])
    x = graph.within(x, 8.0)
    if name == "HardSwish" and (x.bound > 2.9 or not x.distinct):
        name = "Softplus"
    bound = x.bound + math.log(2)
    return x.like(graph.node(name, x.name), bound=bound, least=0.0 if name == "Softplus" else -1.0, distinct=False)


@_takes(_floating())
def _kinked(graph: Sketch, x: Item) -> Item | None:
    """An activation with a kink at zero, of values that are not zero."""
    if not x.distinct:
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


@_takes(_floating())
def _exponential(graph: Sketch, x: Item) -> Item | None:
    """Exp of what is small, log and roots of what is well above zero, a reciprocal of what is not near it."""
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


def _away_from_zero(graph: Sketch, x: Item) -> Item:
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


@_takes(_floating())
def _arithmetic(graph: Sketch, x: Item) -> Item | None:
    """A sum, difference, product or quotient of two values that can be broadcast, perhaps the same one."""
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


@_takes(_floating())
def _scaled(graph: Sketch, x: Item) -> Item | None:
    """Each element times a number and plus another, which keeps them apart."""
    shape = graph.draws.pick([(), x.shape[-1:], x.shape])
    name = graph.draws.pick(["Add", "Mul"])
    y = graph.constant(shape, x.dtype, 0.5, 1.5)
    bound = x.bound * 1.5 if name == "Mul" else x.bound + 1.5
    if bound > MOST:
        return None
    least = min(x.least * 0.5, x.least * 1.5) if name == "Mul" else x.least + 0.5
    return x.like(graph.node(name, x.name, y.name), bound=bound, least=least, distinct=x.distinct or shape == x.shape)


@_takes(_floating())
def _extreme(graph: Sketch, x: Item) -> Item | None:
    """The larger or smaller of a value and of random numbers: no ties."""
    if not x.distinct:
        return None
    y = graph.constant(x.shape, x.dtype)
    name = graph.draws.pick(["Max", "Min"])
    bound = max(x.bound, 1.0)
    return x.like(graph.node(name, x.name, y.name), bound=bound, least=-bound, exact=x.exact)


@_takes(_floating())
def _clipped(graph: Sketch, x: Item) -> Item | None:
    """A value within limits that none of its elements equals."""
    if not x.distinct:
        return None
    low, high = (graph.builder.constant(_scalar(each, x.dtype)) for each in (-0.7071, 0.6180))
    return x.like(graph.node("Clip", x.name, low, high), bound=0.7071, least=-0.7071, exact=x.exact, distinct=False)


@_takes(_floating())
def _power(graph: Sketch, x: Item) -> Item | None:
    """A whole power."""
    x = graph.within(x, 3.0)
    exponent = graph.draws.pick([2.0, 3.0])
    power = graph.builder.constant(_scalar(exponent, x.dtype))
    bound = x.bound**exponent
    return x.like(graph.node("Pow", x.name, power), bound=bound, least=-bound, distinct=False)


def _negated(graph: Sketch) -> Item | None:
    x = graph.floating()
    return None if x is None else x.like(graph.node("Neg", x.name), least=-x.bound, exact=x.exact)


@_takes(_floating())
def _summed(graph: Sketch, x: Item) -> Item | None:
    """Sum or Mean of three values of one shape."""
    if x.bound > MOST / 3:
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


@_takes(_floating(2))
def _product(graph: Sketch, x: Item) -> Item | None:
    """MatMul or Gemm with a weight."""
    if x.bound > MOST:
        return None
    k, n = x.shape[-1], graph.draws.integer(1, 5)
    bound = 0.5 * k * x.bound
    if x.rank == 2 and graph.draws.pick([False, True]):
        transposed = graph.draws.pick([0, 1])
        weight = graph.parameter((n, k) if transposed else (k, n), x.dtype)
        bias = graph.parameter((n,), x.dtype) if graph.draws.pick([True, False]) else None
        alpha = graph.draws.pick([1.0, 0.5])
        made = graph.node("Gemm", x.name, weight.name, bias.name if bias else None, transB=transposed, alpha=alpha)
        bound += 0.5
    else:
        made = graph.node("MatMul", x.name, graph.parameter((k, n), x.dtype).name)
    shape = (*x.shape[:-1], n)
    if not graph.small(math.prod(shape)):
        return None
    return graph.within(x.like(made, shape=shape, bound=bound, least=-bound, distinct=True))


@_takes(_floating(2))
def _products_of_values(graph: Sketch, x: Item) -> Item | None:
    """A value times its own transpose: it is read twice."""
    x = graph.within(x, 4.0)
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    turned = graph.node("Transpose", x.name, perm=perm)
    shape = (*x.shape[:-1], x.shape[-2])
    if not graph.small(math.prod(shape)):
        return None
    bound = x.shape[-1] * x.bound**2
    return graph.within(
        x.like(graph.node("MatMul", x.name, turned), shape=shape, bound=bound, least=-bound, distinct=False)
    )


@_takes(_image)
def _convolution(graph: Sketch, x: Item) -> Item | None:
    if x.bound > MOST:
        return None
    n, c, h, w = x.shape
    groups = graph.draws.pick([1, c])
    out = groups * graph.draws.integer(1, max(1, 3 // groups))
    kernel = graph.draws.pick([1, 2, 3])
    pads = [graph.draws.integer(0, kernel - 1) for _ in range(4)]
    stride = graph.draws.integer(1, 2)
    sizes = [(size + pads[at] + pads[at + 2] - kernel) // stride + 1 for at, size in enumerate((h, w))]
    if min(size + pads[at] + pads[at + 2] - kernel for at, size in enumerate((h, w))) < 0:
        return None
    if not graph.small(n * out * sizes[0] * sizes[1]):
        return None
    weight = graph.parameter((out, c // groups, kernel, kernel), x.dtype)
    bias = graph.parameter((out,), x.dtype) if graph.draws.pick([True, False]) else None
    made = graph.node(
        "Conv", x.name, weight.name, bias.name if bias else None, group=groups, pads=pads, strides=[stride, stride]
    )
    bound = 0.5 * x.bound * kernel * kernel * c // groups + 0.5
    # A window that lies in the padding alone sums to the bias.
    return graph.within(x.like(made, shape=(n, out, *sizes), bound=bound, least=-bound, distinct=not any(pads)))


@_takes(_image)
def _transposed_convolution(graph: Sketch, x: Item) -> Item | None:
    if x.bound > MOST:
        return None
    n, c, h, w = x.shape
    out, stride = graph.draws.integer(1, 3), graph.draws.integer(1, 2)
    shape = (n, out, (h - 1) * stride + 2, (w - 1) * stride + 2)
    if not graph.small(math.prod(shape)):
        return None
    weight = graph.parameter((c, out, 2, 2), x.dtype)
    made = graph.node("ConvTranspose", x.name, weight.name, strides=[stride, stride])
    bound = 2.0 * x.bound * c
    return graph.within(x.like(made, shape=shape, bound=bound, least=-bound))


@_takes(_image)
def _pool(graph: Sketch, x: Item) -> Item | None:
    name = graph.draws.pick(["AveragePool", "MaxPool", "GlobalAveragePool", "LpPool"])
    if name == "GlobalAveragePool":
        return x.like(graph.node(name, x.name), shape=(*x.shape[:2], 1, 1))
    if name == "MaxPool" and not x.distinct:
        name = "AveragePool"
    attributes = {"p": 2} if name == "LpPool" else {}
    if name == "LpPool" and x.least < 0.1:
        name, attributes = "AveragePool", {}
    stride = graph.draws.integer(1, 2)
    sizes = tuple((size - 2) // stride + 1 for size in x.shape[2:])
    made = graph.node(name, x.name, kernel_shape=[2, 2], strides=[stride, stride], **attributes)
    bound = x.bound * (2 if name == "LpPool" else 1)
    # The largest of windows that overlap may be one and the same element.
    distinct = x.distinct and not (name == "MaxPool" and stride == 1)
    exact = x.exact and name == "MaxPool"
    return x.like(made, shape=(*x.shape[:2], *sizes), bound=bound, exact=exact, distinct=distinct)


def _norm(graph: Sketch) -> Item | None:
    """A norm whose variances are well above zero."""
    x = graph.floating(3)
    name = graph.draws.pick(["LayerNormalization", "BatchNormalization", "InstanceNormalization", "GroupNormalization"])
    if x is None or x.dtype != "float32":
        return None
    x = graph.within(x, 8.0)
    channels = x.shape[1]
    epsilon = 0.1
    if x.shape[-1] == 1:
        # What is normalised alone is zero, and its gradient the noise around zero.
        name = "BatchNormalization"
    if name == "LayerNormalization":
        last = x.shape[-1]
        scale, shift = (graph.parameter((last,), x.dtype, 0.5, mean) for mean in (1.0, 0.0))
        made = graph.node(name, x.name, scale.name, shift.name, epsilon=epsilon, axis=-1)
    else:
        scale, shift = (graph.parameter((channels,), x.dtype, 0.5, mean) for mean in (1.0, 0.0))
        arguments = [x.name, scale.name, shift.name]
        attributes: dict[str, Any] = {"epsilon": epsilon}
        if name == "BatchNormalization":
            arguments += [
                graph.constant((channels,), x.dtype).name,
                graph.constant((channels,), x.dtype, 0.5, 2.0).name,
            ]
        elif name == "GroupNormalization":
            # ONNX defines it by a body through which its inference does not see.
            attributes.update(num_groups=graph.draws.pick([1, channels]), shape=x.shape)
        made = graph.node(name, *arguments, **attributes)
        if name == "GroupNormalization":
            made = graph.node("Identity", made)
    bound = 1.5 * (x.bound + 1) / math.sqrt(epsilon) + 0.5
    return graph.within(x.like(made, bound=bound, least=-bound, distinct=False))


@_takes(_floating(1))
def _reduction(graph: Sketch, x: Item) -> Item | None:
    name = graph.draws.pick(["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceLogSumExp", "ReduceSumSquare"])
    if name in ("ReduceMax", "ReduceMin") and not x.distinct:
        name = "ReduceMean"
    x = graph.within(x, 8.0)
    axis, keep = graph.draws.integer(0, x.rank - 1), graph.draws.pick([1, 0])
    count = x.shape[axis]
    bound = {"ReduceSum": count * x.bound, "ReduceSumSquare": count * x.bound**2}.get(name, x.bound + math.log(count))
    shape = [size for at, size in enumerate(x.shape) if at != axis]
    if keep:
        shape.insert(axis, 1)
    axes = graph.builder.constant(np.array([axis - x.rank if graph.draws.pick([False, True]) else axis]))
    made = graph.node(name, x.name, axes, keepdims=keep)
    exact = x.exact and name in ("ReduceMax", "ReduceMin")
    return graph.within(x.like(made, shape=tuple(shape), bound=bound, least=-bound, exact=exact))


@_takes(_floating(1))
def _softmax(graph: Sketch, x: Item) -> Item | None:
    x = graph.within(x, 8.0)
    name = graph.draws.pick(["Softmax", "LogSoftmax"])
    axis = graph.draws.integer(-x.rank, x.rank - 1)
    if x.shape[axis] == 1:
        return None
    bound = 1.0 if name == "Softmax" else 2 * x.bound + math.log(x.shape[axis])
    least = 0.0 if name == "Softmax" else -bound
    return x.like(graph.node(name, x.name, axis=axis), bound=bound, least=least, distinct=False)


def _choice(graph: Sketch) -> Item | None:
    """Where, on a comparison of values that are the same to the bit in every framework."""
    x = graph.floating()
    exact = [each for each in graph.items if each.exact and each.floating]
    if x is None or not exact:
        return None
    c = graph.draws.pick(exact)
    limit = graph.constant((), c.dtype, -0.5, 0.5)
    condition = graph.node(graph.draws.pick(["Greater", "Less", "GreaterOrEqual"]), c.name, limit.name)
    if c.shape != x.shape or graph.draws.pick([False, True]):
        # A comparison that ends as numbers.
        number = graph.node("Cast", condition, to=1)
        return Item(number, "float32", c.shape, 1.0, 0.0, exact=True, distinct=False)
    if graph.draws.pick([False, True]):
        condition = graph.node("Not", condition)
    other = graph.constant(x.shape, x.dtype)
    bound = max(x.bound, 1.0)
    return x.like(graph.node("Where", condition, x.name, other.name), bound=bound, least=-bound, distinct=False)


def _rounded(graph: Sketch) -> Item | None:
    """Floor, Ceil, Round or Sign of an exact value, or a cast of it to integers."""
    exact = [each for each in graph.items if each.exact and each.floating and each.distinct]
    if not exact:
        return None
    x = graph.draws.pick(exact)
    name = graph.draws.pick(["Floor", "Ceil", "Sign", "Cast", "ArgMax"])
    if name == "Cast":
        made = graph.node("Cast", x.name, to=7)
        return Item(made, "int64", x.shape, x.bound + 1, -x.bound - 1, exact=True, distinct=False)
    if name == "ArgMax" and x.rank:
        made = graph.node("ArgMax", x.name, axis=0, keepdims=0)
        return Item(made, "int64", x.shape[1:], float(x.shape[0]), 0.0, exact=True, distinct=False)
    name = "Floor" if name == "ArgMax" else name
    return x.like(graph.node(name, x.name), bound=x.bound + 1, least=-x.bound - 1, exact=True, distinct=False)


def _cast(graph: Sketch) -> Item | None:
    """Integers as floats, and floats as wider or narrower ones."""
    x = graph.draws.pick(graph.items[::-1])
    if x.dtype == "int64":
        made = graph.node("Cast", x.name, to=1)
        return Item(made, "float32", x.shape, x.bound, x.least, exact=True, distinct=False)
    if x.dtype == "float64":
        return x.like(graph.node("Cast", x.name, to=1), dtype="float32", exact=False)
    if x.dtype == "float32":
        return x.like(graph.node("Cast", x.name, to=11), dtype="float64", exact=x.exact)
    return None


def _looked_up(graph: Sketch) -> Item | None:
    """Rows of a table by an integer input."""
    indices = [each for each in graph.items if each.dtype == "int64" and each.least >= 0 and each.bound <= 3]
    if not indices:
        return None
    x = graph.draws.pick(indices)
    width = graph.draws.integer(1, 4)
    if not graph.small(x.size * width):
        return None
    table = graph.parameter((4, width), "float32")
    made = graph.node("Gather", table.name, x.name, axis=0)
    return Item(made, "float32", (*x.shape, width), 0.5, -0.5, distinct=False)


LAYERS = (
    _product,
    _products_of_values,
    _convolution,
    _transposed_convolution,
    _pool,
    _norm,
    _reduction,
    _softmax,
    _choice,
    _rounded,
    _cast,
    _looked_up,
)


def _integers(graph: Sketch, *values: int) -> str:
    return graph.builder.constant(np.array(values, np.int64))


@_takes(_any())
def _reshaped(graph: Sketch, x: Item) -> Item | None:
    parts = _factors(x.size)
    first = graph.draws.pick(parts)
    rest = x.size // first
    second = graph.draws.pick(_factors(rest))
    shape = graph.draws.pick([(x.size,), (first, rest), (first, second, rest // second)])
    asked = list(shape)
    if graph.draws.pick([False, True]):
        asked[graph.draws.integer(0, len(shape) - 1)] = -1
    return x.moved(graph.node("Reshape", x.name, _integers(graph, *asked)), shape)


def _factors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


@_takes(_any(2))
def _transposed(graph: Sketch, x: Item) -> Item | None:
    axes = list(range(x.rank))
    order = []
    while axes:
        order.append(axes.pop(graph.draws.integer(0, len(axes) - 1)))
    return x.moved(graph.node("Transpose", x.name, perm=order), [x.shape[at] for at in order])


@_takes(_any(2))
def _flattened(graph: Sketch, x: Item) -> Item | None:
    axis = graph.draws.integer(0, x.rank)
    shape = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
    return x.moved(graph.node("Flatten", x.name, axis=axis), shape)


@_takes(_any())
def _squeezed(graph: Sketch, x: Item) -> Item | None:
    """An axis of one element put in or, where there is one, taken out."""
    ones = [at for at, size in enumerate(x.shape) if size == 1]
    if ones and x.rank > 1 and graph.draws.pick([True, False]):
        axis = graph.draws.pick(ones)
        shape = [size for at, size in enumerate(x.shape) if at != axis]
        return x.moved(graph.node("Squeeze", x.name, _integers(graph, axis)), shape)
    if x.rank > 3:
        return None
    axis = graph.draws.integer(0, x.rank)
    return x.moved(graph.node("Unsqueeze", x.name, _integers(graph, axis)), [*x.shape[:axis], 1, *x.shape[axis:]])


@_takes(_any())
def _joined(graph: Sketch, x: Item) -> Item | None:
    axis = graph.draws.integer(0, x.rank - 1)
    rest = x.shape[:axis], x.shape[axis + 1 :]
    fits = [
        each
        for each in graph.items
        if each.dtype == x.dtype and each.rank == x.rank and (each.shape[:axis], each.shape[axis + 1 :]) == rest
    ]
    y = graph.draws.pick(fits[::-1])
    shape = list(x.shape)
    shape[axis] += y.shape[axis]
    if not graph.small(math.prod(shape)):
        return None
    made = graph.node("Concat", x.name, y.name, axis=graph.draws.pick([axis, axis - x.rank]))
    exact = x.exact and y.exact
    bound, least = max(x.bound, y.bound), min(x.least, y.least)
    return x.like(made, shape=tuple(shape), bound=bound, least=least, exact=exact, distinct=False)


@_takes(_any())
def _cut(graph: Sketch, x: Item) -> Item | None:
    """Slice, forwards or backwards, with a step."""
    axis = graph.draws.integer(0, x.rank - 1)
    size = x.shape[axis]
    step = graph.draws.pick([1, 2, -1])
    start = graph.draws.integer(0, size - 1)
    end = graph.draws.pick([size, 2**31, -1]) if step > 0 else graph.draws.pick([-(2**31), -size - 1])
    left = len(range(*slice(start, None if step < 0 else end, step).indices(size)))
    if left == 0:
        return None
    arguments = [_integers(graph, each) for each in (start, end, axis, step)]
    shape = list(x.shape)
    shape[axis] = left
    return x.moved(graph.node("Slice", x.name, *arguments), shape)


@_takes(_any())
def _split(graph: Sketch, x: Item) -> Item | None:
    """Both parts of a split; the second one stays for later."""
    axes = [at for at, size in enumerate(x.shape) if size >= 2]
    if not axes:
        return None
    axis = graph.draws.pick(axes)
    first = graph.draws.integer(1, x.shape[axis] - 1)
    sizes = first, x.shape[axis] - first
    names = graph.node("Split", x.name, _integers(graph, *sizes), outputs=2, axis=axis)
    parts = [
        x.moved(name, [*x.shape[:axis], size, *x.shape[axis + 1 :]]) for name, size in zip(names, sizes, strict=True)
    ]
    graph.items.append(parts[1])
    return parts[0]


@_takes(_floating(1))
def _padded(graph: Sketch, x: Item) -> Item | None:
    if x.rank > 4:
        return None
    mode = graph.draws.pick(["constant", "reflect", "edge"])
    most = min(x.shape) - 1 if mode == "reflect" else 2
    before = [graph.draws.integer(0, min(1, most)) for _ in x.shape]
    after = [graph.draws.integer(0, min(1, most)) for _ in x.shape]
    shape = [size + left + right for size, left, right in zip(x.shape, before, after, strict=True)]
    if not graph.small(math.prod(shape)):
        return None
    made = graph.node("Pad", x.name, _integers(graph, *before, *after), mode=mode)
    return x.moved(made, shape, distinct=False).with_zeros()


@_takes(_any())
def _gathered(graph: Sketch, x: Item) -> Item | None:
    """Rows by index, repeated and negative ones too."""
    axis = graph.draws.integer(0, x.rank - 1)
    size = x.shape[axis]
    indices = [graph.draws.integer(-size, size - 1) for _ in range(graph.draws.integer(1, 3))]
    shape = (*x.shape[:axis], len(indices), *x.shape[axis + 1 :])
    return x.moved(graph.node("Gather", x.name, _integers(graph, *indices), axis=axis), shape, distinct=False)


@_takes(_any())
def _repeated(graph: Sketch, x: Item) -> Item | None:
    """Tile, or Expand along an axis of one element."""
    ones = [at for at, size in enumerate(x.shape) if size == 1]
    shape = list(x.shape)
    if ones:
        shape[graph.draws.pick(ones)] = graph.draws.integer(2, 3)
        made = graph.node("Expand", x.name, _integers(graph, *shape))
    else:
        counts = [graph.draws.integer(1, 2) for _ in x.shape]
        shape = [size * count for size, count in zip(x.shape, counts, strict=True)]
        if not graph.small(math.prod(shape)):
            return None
        made = graph.node("Tile", x.name, _integers(graph, *counts))
    return x.moved(made, shape, distinct=False)


@_takes(_floating(4))
def _rearranged(graph: Sketch, x: Item) -> Item | None:
    """DepthToSpace or SpaceToDepth of an image."""
    if x.rank != 4:
        return None
    n, c, h, w = x.shape
    if c % 4 == 0:
        mode = graph.draws.pick(["DCR", "CRD"])
        made = graph.node("DepthToSpace", x.name, blocksize=2, mode=mode)
        return x.moved(made, (n, c // 4, h * 2, w * 2))
    if h % 2 or w % 2:
        return None
    return x.moved(graph.node("SpaceToDepth", x.name, blocksize=2), (n, c * 4, h // 2, w // 2))


@_takes(_floating(2))
def _triangle(graph: Sketch, x: Item) -> Item | None:
    made = graph.node("Trilu", x.name, upper=graph.draws.pick([1, 0]))
    return x.moved(made, x.shape, distinct=False).with_zeros()


MOVING = (
    _reshaped,
    _transposed,
    _joined,
    _cut,
    _split,
    _gathered,
    _padded,
    _squeezed,
    _flattened,
    _repeated,
    _rearranged,
    _triangle,
)
