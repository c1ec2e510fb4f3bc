"""Operators that move elements, for generated graphs: shapes, joins, cuts, picks."""

from __future__ import annotations

import math

import numpy as np

from levelbench.networks.fuzz.items import Graph, Item

__all__ = ["MOVING"]


def _integers(graph: Graph, *values: int) -> str:
    return graph.builder.constant(np.array(values, np.int64))


def _any(graph: Graph, rank: int = 1) -> Item | None:
    found = [each for each in graph.items if each.rank >= rank and each.dtype != "bool"]
    return graph.draws.pick(found[::-1]) if found else None


def _reshaped(graph: Graph) -> Item | None:
    x = _any(graph)
    if x is None:
        return None
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


def _transposed(graph: Graph) -> Item | None:
    x = _any(graph, 2)
    if x is None:
        return None
    axes = list(range(x.rank))
    order = []
    while axes:
        order.append(axes.pop(graph.draws.integer(0, len(axes) - 1)))
    return x.moved(graph.node("Transpose", x.name, perm=order), [x.shape[at] for at in order])


def _flattened(graph: Graph) -> Item | None:
    x = _any(graph, 2)
    if x is None:
        return None
    axis = graph.draws.integer(0, x.rank)
    shape = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
    return x.moved(graph.node("Flatten", x.name, axis=axis), shape)


def _squeezed(graph: Graph) -> Item | None:
    """An axis of one element put in or, where there is one, taken out."""
    x = _any(graph)
    if x is None:
        return None
    ones = [at for at, size in enumerate(x.shape) if size == 1]
    if ones and x.rank > 1 and graph.draws.pick([True, False]):
        axis = graph.draws.pick(ones)
        shape = [size for at, size in enumerate(x.shape) if at != axis]
        return x.moved(graph.node("Squeeze", x.name, _integers(graph, axis)), shape)
    if x.rank > 3:
        return None
    axis = graph.draws.integer(0, x.rank)
    return x.moved(graph.node("Unsqueeze", x.name, _integers(graph, axis)), [*x.shape[:axis], 1, *x.shape[axis:]])


def _joined(graph: Graph) -> Item | None:
    x = _any(graph)
    if x is None:
        return None
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


def _cut(graph: Graph) -> Item | None:
    """Slice, forwards or backwards, with a step."""
    x = _any(graph)
    if x is None:
        return None
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


def _split(graph: Graph) -> Item | None:
    """Both parts of a split; the second one stays for later."""
    x = _any(graph)
    if x is None:
        return None
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


def _padded(graph: Graph) -> Item | None:
    x = graph.floating(1)
    if x is None or x.rank > 4:
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


def _gathered(graph: Graph) -> Item | None:
    """Rows by index, repeated and negative ones too."""
    x = _any(graph)
    if x is None:
        return None
    axis = graph.draws.integer(0, x.rank - 1)
    size = x.shape[axis]
    indices = [graph.draws.integer(-size, size - 1) for _ in range(graph.draws.integer(1, 3))]
    shape = (*x.shape[:axis], len(indices), *x.shape[axis + 1 :])
    return x.moved(graph.node("Gather", x.name, _integers(graph, *indices), axis=axis), shape, distinct=False)


def _repeated(graph: Graph) -> Item | None:
    """Tile, or Expand along an axis of one element."""
    x = _any(graph)
    if x is None:
        return None
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


def _rearranged(graph: Graph) -> Item | None:
    """DepthToSpace or SpaceToDepth of an image."""
    x = graph.floating(4)
    if x is None or x.rank != 4:
        return None
    n, c, h, w = x.shape
    if c % 4 == 0:
        mode = graph.draws.pick(["DCR", "CRD"])
        made = graph.node("DepthToSpace", x.name, blocksize=2, mode=mode)
        return x.moved(made, (n, c // 4, h * 2, w * 2))
    if h % 2 or w % 2:
        return None
    return x.moved(graph.node("SpaceToDepth", x.name, blocksize=2), (n, c * 4, h // 2, w // 2))


def _triangle(graph: Graph) -> Item | None:
    x = graph.floating(2)
    if x is None:
        return None
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
