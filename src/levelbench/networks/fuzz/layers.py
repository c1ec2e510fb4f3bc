"""Layers for generated graphs: products, convolutions, pools, norms, reductions, softmax, comparisons and choices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from levelbench.networks.fuzz.items import MOST, Graph, Item

__all__ = ["LAYERS"]


def _product(graph: Graph) -> Item | None:
    """MatMul or Gemm with a weight."""
    x = graph.floating(2)
    if x is None or x.bound > MOST:
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


def _products_of_values(graph: Graph) -> Item | None:
    """A value times its own transpose: it is read twice."""
    x = graph.floating(2)
    if x is None:
        return None
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


def _image(graph: Graph) -> Item | None:
    found = [each for each in graph.items if each.dtype == "float32" and each.rank == 4 and min(each.shape[2:]) >= 2]
    return graph.draws.pick(found[::-1]) if found else None


def _convolution(graph: Graph) -> Item | None:
    x = _image(graph)
    if x is None or x.bound > MOST:
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


def _transposed_convolution(graph: Graph) -> Item | None:
    x = _image(graph)
    if x is None or x.bound > MOST:
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


def _pool(graph: Graph) -> Item | None:
    x = _image(graph)
    if x is None:
        return None
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


def _norm(graph: Graph) -> Item | None:
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


def _reduction(graph: Graph) -> Item | None:
    x = graph.floating(1)
    if x is None:
        return None
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


def _softmax(graph: Graph) -> Item | None:
    x = graph.floating(1)
    if x is None:
        return None
    x = graph.within(x, 8.0)
    name = graph.draws.pick(["Softmax", "LogSoftmax"])
    axis = graph.draws.integer(-x.rank, x.rank - 1)
    if x.shape[axis] == 1:
        return None
    bound = 1.0 if name == "Softmax" else 2 * x.bound + math.log(x.shape[axis])
    least = 0.0 if name == "Softmax" else -bound
    return x.like(graph.node(name, x.name, axis=axis), bound=bound, least=least, distinct=False)


def _choice(graph: Graph) -> Item | None:
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


def _rounded(graph: Graph) -> Item | None:
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


def _cast(graph: Graph) -> Item | None:
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


def _looked_up(graph: Graph) -> Item | None:
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
