"""The operators of generated graphs, each with a guard that keeps it well conditioned."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from levelbench.networks.fuzz.sketch import Item, Sketch

_LARGEST_EXPONENT = 4.0
_LEAST_DIVISOR = 0.5
_FLOAT, _INTEGER, _DOUBLE = 1, 7, 11

Put = Callable[[Sketch], Item | None]
ELEMENTWISE: list[Put] = []
LAYERS: list[Put] = []
MOVING: list[Put] = []


def _takes(group: list[Put], fits: Callable[[Item], bool]) -> Callable[[Callable[[Sketch, Item], Item | None]], None]:
    """Add an operator to a group; it is applied to a value that ``fits``, and returns ``None`` if it cannot be."""

    def decorate(put: Callable[[Sketch, Item], Item | None]) -> None:
        def made(graph: Sketch) -> Item | None:
            x = graph.some(fits)
            return None if x is None else put(graph, x)

        group.append(made)

    return decorate


def _floating(rank: int = 0) -> Callable[[Item], bool]:
    return lambda x: x.floating and x.rank >= rank


def _any(rank: int = 1) -> Callable[[Item], bool]:
    return lambda x: x.rank >= rank


def _image(x: Item) -> bool:
    return x.dtype == "float32" and x.rank == 4 and min(x.shape[2:]) >= 2


def _exact(x: Item) -> bool:
    return x.exact and x.floating


@_takes(ELEMENTWISE, _floating())
def _smooth(graph: Sketch, x: Item) -> Item | None:
    """A smooth function with a bounded result."""
    name = graph.draws.pick(["Tanh", "Sigmoid", "Sin", "Cos", "Softsign", "Erf"])
    return graph.put(name, graph.within(x, 4.0))


@_takes(ELEMENTWISE, _floating())
def _arithmetic(graph: Sketch, x: Item) -> Item | None:
    """A sum, difference, product or quotient of two values that can be broadcast, possibly the same value twice."""
    y = graph.some(lambda each: each.dtype == x.dtype and _can_broadcast(x.shape, each.shape)) or x
    name = graph.draws.pick(["Add", "Mul", "Sub", "Div"])
    if name == "Sub" and x.name == y.name:
        return None
    return graph.put(name, x, _away_from_zero(graph, y) if name == "Div" else y)


def _can_broadcast(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(one, other)
    except ValueError:
        return False
    return True


@_takes(ELEMENTWISE, _floating())
def _scaled(graph: Sketch, x: Item) -> Item | None:
    """Each element times or plus a random number, which keeps elements distinct."""
    shape = graph.draws.pick([(), x.shape[-1:], x.shape])
    return graph.put(graph.draws.pick(["Add", "Mul"]), x, graph.noise(shape, x.dtype, 0.5, 1.5))


@_takes(ELEMENTWISE, _floating())
def _kinked(graph: Sketch, x: Item) -> Item | None:
    """An activation with a kink at zero, applied to nonzero values."""
    if not x.distinct:
        return None
    name, attributes = graph.draws.pick(
        [("Relu", {}), ("Abs", {}), ("LeakyRelu", {"alpha": 0.1}), ("Elu", {"alpha": 1.5}), ("Selu", {}), ("Celu", {})]
    )
    if name == "Celu" and x.dtype != "float32":
        name, attributes = "Relu", {}
    return graph.put(name, x, exact=x.exact and name in ("Relu", "Abs"), **attributes)


@_takes(ELEMENTWISE, _floating())
def _activation(graph: Sketch, x: Item) -> Item | None:
    """An activation without a kink, or well within its kinks."""
    name = graph.draws.pick(["Softplus", "Gelu", "Mish", "HardSwish"])
    x = graph.within(x, 8.0)
    return graph.put("Softplus" if name == "HardSwish" and x.bound > 2.9 else name, x)


@_takes(ELEMENTWISE, _floating())
def _exponential(graph: Sketch, x: Item) -> Item | None:
    """Exp of small values; log, square root and reciprocal of values well above zero."""
    name = graph.draws.pick(["Exp", "Log", "Sqrt", "Reciprocal"])
    return graph.put(name, graph.within(x, _LARGEST_EXPONENT) if name == "Exp" else _away_from_zero(graph, x))


def _away_from_zero(graph: Sketch, x: Item) -> Item:
    """A value that is at least 0.5: the value itself, or its square plus 0.5."""
    if x.least >= _LEAST_DIVISOR:
        return x
    x = graph.within(x, 4.0)
    more: Item = graph.node("Add", graph.node("Mul", x, x), graph.constant(_LEAST_DIVISOR, x.dtype))
    return more


@_takes(ELEMENTWISE, _floating())
def _extreme(graph: Sketch, x: Item) -> Item | None:
    """The maximum or minimum of a value and random numbers, without ties."""
    if not x.distinct:
        return None
    return graph.put(graph.draws.pick(["Max", "Min"]), x, graph.noise(x.shape, x.dtype), exact=x.exact)


@_takes(ELEMENTWISE, _floating())
def _clipped(graph: Sketch, x: Item) -> Item | None:
    """A value clipped to limits that none of its elements equals."""
    if not x.distinct:
        return None
    limits = (graph.constant(each, x.dtype) for each in (-0.7071, 0.6180))
    return graph.put("Clip", x, *limits, exact=x.exact)


@_takes(ELEMENTWISE, _floating())
def _power(graph: Sketch, x: Item) -> Item | None:
    """An integer power."""
    return graph.put("Pow", graph.within(x, 3.0), graph.constant(graph.draws.pick([2.0, 3.0]), x.dtype))


@_takes(ELEMENTWISE, _floating())
def _negated(graph: Sketch, x: Item) -> Item | None:
    return graph.put("Neg", x, exact=x.exact)


@_takes(ELEMENTWISE, _floating())
def _summed(graph: Sketch, x: Item) -> Item | None:
    """Sum or Mean of three values of the same shape."""
    others = [graph.some(lambda each: each.shape == x.shape and each.dtype == x.dtype) for _ in range(2)]
    return graph.put(graph.draws.pick(["Sum", "Mean"]), x, *others)


@_takes(LAYERS, _floating(2))
def _product(graph: Sketch, x: Item) -> Item | None:
    """MatMul or Gemm with a weight."""
    k, n = x.shape[-1], graph.draws.integer(1, 5)
    if x.rank > 2 or not graph.draws.pick([False, True]):
        return graph.put("MatMul", x, graph.parameter((k, n), x.dtype))
    transposed = graph.draws.pick([0, 1])
    weight = graph.parameter((n, k) if transposed else (k, n), x.dtype)
    bias = graph.parameter((n,), x.dtype) if graph.draws.pick([True, False]) else None
    return graph.put("Gemm", x, weight, bias, transB=transposed, alpha=graph.draws.pick([1.0, 0.5]))


@_takes(LAYERS, _floating(2))
def _products_of_values(graph: Sketch, x: Item) -> Item | None:
    """A value times its own transpose, so that it is read twice."""
    x = graph.within(x, 4.0)
    turned = graph.node("Transpose", x, perm=[*range(x.rank - 2), x.rank - 1, x.rank - 2])
    return graph.put("MatMul", x, turned)


@_takes(LAYERS, _image)
def _convolution(graph: Sketch, x: Item) -> Item | None:
    _, c, h, w = x.shape
    groups = graph.draws.pick([1, c])
    out = groups * graph.draws.integer(1, max(1, 3 // groups))
    kernel = graph.draws.pick([1, 2, 3])
    pads = [graph.draws.integer(0, kernel - 1) for _ in range(4)]
    stride = graph.draws.integer(1, 2)
    if min(h + pads[0] + pads[2], w + pads[1] + pads[3]) < kernel:
        return None
    weight = graph.parameter((out, c // groups, kernel, kernel), x.dtype)
    bias = graph.parameter((out,), x.dtype) if graph.draws.pick([True, False]) else None
    return graph.put("Conv", x, weight, bias, group=groups, pads=pads, strides=[stride, stride])


@_takes(LAYERS, _image)
def _transposed_convolution(graph: Sketch, x: Item) -> Item | None:
    out, stride = graph.draws.integer(1, 3), graph.draws.integer(1, 2)
    weight = graph.parameter((x.shape[1], out, 2, 2), x.dtype)
    return graph.put("ConvTranspose", x, weight, strides=[stride, stride])


@_takes(LAYERS, _image)
def _pool(graph: Sketch, x: Item) -> Item | None:
    name = graph.draws.pick(["AveragePool", "MaxPool", "GlobalAveragePool", "LpPool"])
    if name == "GlobalAveragePool":
        return graph.put(name, x)
    if (name == "MaxPool" and not x.distinct) or (name == "LpPool" and x.least < 0.1):
        name = "AveragePool"
    stride = graph.draws.integer(1, 2)
    attributes = {"p": 2} if name == "LpPool" else {}
    exact = x.exact and name == "MaxPool"
    return graph.put(name, x, kernel_shape=[2, 2], strides=[stride, stride], exact=exact, **attributes)


@_takes(LAYERS, lambda x: x.rank >= 3 and x.dtype == "float32")
def _norm(graph: Sketch, x: Item) -> Item | None:
    """A normalisation whose variances are well above zero."""
    name = graph.draws.pick(["LayerNormalization", "BatchNormalization", "InstanceNormalization", "GroupNormalization"])
    x = graph.within(x, 8.0)
    if x.shape[-1] == 1:
        # A single normalised element is zero, and its gradient is noise around zero.
        name = "BatchNormalization"
    size = x.shape[-1] if name == "LayerNormalization" else x.shape[1]
    inputs = [x, *(graph.parameter((size,), x.dtype, 0.5, mean) for mean in (1.0, 0.0))]
    attributes = {"axis": -1} if name == "LayerNormalization" else {}
    if name == "BatchNormalization":
        inputs += [graph.noise((size,), x.dtype), graph.noise((size,), x.dtype, 0.5, 2.0)]
    elif name == "GroupNormalization":
        attributes["num_groups"] = graph.draws.pick([1, size])
    made = graph.put(name, *inputs, epsilon=0.1, **attributes)
    return graph.put("Identity", made) if made and name == "GroupNormalization" else made


@_takes(LAYERS, _floating(1))
def _reduction(graph: Sketch, x: Item) -> Item | None:
    name = graph.draws.pick(["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceLogSumExp", "ReduceSumSquare"])
    if name in ("ReduceMax", "ReduceMin") and not x.distinct:
        name = "ReduceMean"
    x = graph.within(x, 8.0)
    axis, keep = graph.draws.integer(-x.rank, x.rank - 1), graph.draws.pick([1, 0])
    exact = x.exact and name in ("ReduceMax", "ReduceMin")
    return graph.put(name, x, graph.constant([axis]), keepdims=keep, exact=exact)


@_takes(LAYERS, _floating(1))
def _softmax(graph: Sketch, x: Item) -> Item | None:
    name, axis = graph.draws.pick(["Softmax", "LogSoftmax"]), graph.draws.integer(-x.rank, x.rank - 1)
    return None if x.shape[axis] == 1 else graph.put(name, graph.within(x, 8.0), axis=axis)


@_takes(LAYERS, _floating())
def _choice(graph: Sketch, x: Item) -> Item | None:
    """Where, with a comparison of values that are bitwise equal in every framework."""
    c = graph.some(_exact)
    if c is None:
        return None
    limit = graph.noise((), c.dtype, -0.5, 0.5)
    condition = graph.node(graph.draws.pick(["Greater", "Less", "GreaterOrEqual"]), c, limit)
    if c.shape != x.shape or graph.draws.pick([False, True]):
        # Convert the comparison to numbers.
        return graph.put("Cast", condition, to=_FLOAT, exact=True)
    if graph.draws.pick([False, True]):
        condition = graph.node("Not", condition)
    return graph.put("Where", condition, x, graph.noise(x.shape, x.dtype))


@_takes(LAYERS, lambda x: _exact(x) and x.distinct)
def _rounded(graph: Sketch, x: Item) -> Item | None:
    """Floor, Ceil, Sign or ArgMax of an exact value, or a cast to integers."""
    name = graph.draws.pick(["Floor", "Ceil", "Sign", "Cast", "ArgMax"])
    if name == "Cast":
        return graph.put(name, x, to=_INTEGER, exact=True)
    if name == "ArgMax" and x.rank:
        return graph.put(name, x, axis=0, keepdims=0, exact=True)
    return graph.put("Floor" if name == "ArgMax" else name, x, exact=True)


@_takes(LAYERS, lambda x: True)
def _cast(graph: Sketch, x: Item) -> Item | None:
    """Casts integers to floats, and floats to wider or narrower ones."""
    if x.dtype == "float32":
        return graph.put("Cast", x, to=_DOUBLE, exact=x.exact)
    return graph.put("Cast", x, to=_FLOAT, exact=x.dtype == "int64")


@_takes(LAYERS, lambda x: x.dtype == "int64" and x.least >= 0 and x.bound <= 3)
def _looked_up(graph: Sketch, x: Item) -> Item | None:
    """Rows of a table by an integer input."""
    return graph.put("Gather", graph.parameter((4, graph.draws.integer(1, 4)), "float32"), x, axis=0)


@_takes(MOVING, _any())
def _reshaped(graph: Sketch, x: Item) -> Item | None:
    size = x.value.size
    first = graph.draws.pick(_factors(size))
    second = graph.draws.pick(_factors(size // first))
    shape = graph.draws.pick([[size], [first, size // first], [first, second, size // first // second]])
    if graph.draws.pick([False, True]):
        shape[graph.draws.integer(0, len(shape) - 1)] = -1
    return graph.put("Reshape", x, graph.constant(shape), exact=x.exact)


def _factors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


@_takes(MOVING, _any(2))
def _transposed(graph: Sketch, x: Item) -> Item | None:
    axes = list(range(x.rank))
    order = [axes.pop(graph.draws.integer(0, len(axes) - 1)) for _ in range(x.rank)]
    return graph.put("Transpose", x, perm=order, exact=x.exact)


@_takes(MOVING, _any())
def _joined(graph: Sketch, x: Item) -> Item | None:
    axis = graph.draws.integer(0, x.rank - 1)

    def fits(each: Item) -> bool:
        sizes = zip(each.shape, x.shape, strict=False)
        same = all(a == b for at, (a, b) in enumerate(sizes) if at != axis)
        return each.dtype == x.dtype and each.rank == x.rank and same

    y = graph.some(fits) or x
    return graph.put("Concat", x, y, axis=graph.draws.pick([axis, axis - x.rank]), exact=x.exact and y.exact)


@_takes(MOVING, _any())
def _cut(graph: Sketch, x: Item) -> Item | None:
    """Slice, forwards or backwards, with a step."""
    axis = graph.draws.integer(0, x.rank - 1)
    size = x.shape[axis]
    step = graph.draws.pick([1, 2, -1])
    start = graph.draws.integer(0, size - 1)
    end = graph.draws.pick([size, 2**31, -1]) if step > 0 else graph.draws.pick([-(2**31), -size - 1])
    return graph.put("Slice", x, *(graph.constant([each]) for each in (start, end, axis, step)), exact=x.exact)


@_takes(MOVING, _any())
def _split(graph: Sketch, x: Item) -> Item | None:
    """Both parts of a split; the second may be used later."""
    axes = [at for at, size in enumerate(x.shape) if size >= 2]
    if not axes:
        return None
    axis = graph.draws.pick(axes)
    first = graph.draws.integer(1, x.shape[axis] - 1)
    sizes = graph.constant([first, x.shape[axis] - first])
    parts: tuple[Item, Item] = graph.node("Split", x, sizes, outputs=2, axis=axis, exact=x.exact)
    graph.items.append(parts[1])
    return parts[0]


@_takes(MOVING, _any())
def _gathered(graph: Sketch, x: Item) -> Item | None:
    """Rows by index, possibly repeated or negative."""
    axis = graph.draws.integer(0, x.rank - 1)
    size = x.shape[axis]
    indices = [graph.draws.integer(-size, size - 1) for _ in range(graph.draws.integer(1, 3))]
    return graph.put("Gather", x, graph.constant(indices), axis=axis, exact=x.exact)


@_takes(MOVING, _floating(1))
def _padded(graph: Sketch, x: Item) -> Item | None:
    if x.rank > 4:
        return None
    mode = graph.draws.pick(["constant", "reflect", "edge"])
    most = min(1, min(x.shape) - 1) if mode == "reflect" else 1
    pads = [graph.draws.integer(0, most) for _ in range(2 * x.rank)]
    return graph.put("Pad", x, graph.constant(pads), mode=mode, exact=x.exact)


@_takes(MOVING, _any())
def _squeezed(graph: Sketch, x: Item) -> Item | None:
    """Inserts an axis of one element, or removes one if there is one."""
    ones = [at for at, size in enumerate(x.shape) if size == 1]
    if ones and x.rank > 1 and graph.draws.pick([True, False]):
        return graph.put("Squeeze", x, graph.constant([graph.draws.pick(ones)]), exact=x.exact)
    if x.rank > 3:
        return None
    return graph.put("Unsqueeze", x, graph.constant([graph.draws.integer(0, x.rank)]), exact=x.exact)


@_takes(MOVING, _any(2))
def _flattened(graph: Sketch, x: Item) -> Item | None:
    return graph.put("Flatten", x, axis=graph.draws.integer(0, x.rank), exact=x.exact)


@_takes(MOVING, _any())
def _repeated(graph: Sketch, x: Item) -> Item | None:
    """Tile, or Expand along an axis of one element."""
    ones = [at for at, size in enumerate(x.shape) if size == 1]
    if not ones:
        counts = [graph.draws.integer(1, 2) for _ in x.shape]
        return graph.put("Tile", x, graph.constant(counts), exact=x.exact)
    shape = list(x.shape)
    shape[graph.draws.pick(ones)] = graph.draws.integer(2, 3)
    return graph.put("Expand", x, graph.constant(shape), exact=x.exact)


@_takes(MOVING, lambda x: x.floating and x.rank == 4)
def _rearranged(graph: Sketch, x: Item) -> Item | None:
    """DepthToSpace or SpaceToDepth of an image."""
    _, c, h, w = x.shape
    if c % 4 == 0:
        return graph.put("DepthToSpace", x, blocksize=2, mode=graph.draws.pick(["DCR", "CRD"]), exact=x.exact)
    return None if h % 2 or w % 2 else graph.put("SpaceToDepth", x, blocksize=2, exact=x.exact)


@_takes(MOVING, _floating(2))
def _triangle(graph: Sketch, x: Item) -> Item | None:
    return graph.put("Trilu", x, upper=graph.draws.pick([1, 0]), exact=x.exact)
