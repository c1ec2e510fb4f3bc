"""How ONNX's operators that move, choose or reduce elements treat a batch.

The one idea: Reshape keeps samples apart wherever as many elements lie before the batch as before, for then the block
of a sample is the same stretch of elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from levelbench.networks.transforms.carried import Carried, Context, Independence, Rule

__all__ = ["RULES", "constant_axes"]


def constant_axes(context: Context, at: int) -> list[int] | None:
    """The axes of the attribute, or of the constant input ``at``, counted from 0; ``None`` where they are not known."""
    shape = context.shape()
    if shape is None:
        return None
    attribute = context.node.get("axes")
    if attribute is not None:
        return [int(each) % len(shape) for each in attribute]
    value = context.value(at)
    return None if value is None else [int(each) % len(shape) for each in value.reshape(-1)]


def _reshape(context: Context) -> Independence | None:
    first, old, new, target = context.carried(), context.shape(), context.outputs[0], context.value(1)
    if first is None or old is None or new is None or target is None:
        return None
    before = math.prod(old[: first.axis])
    places = [at for at, size in enumerate(new) if math.prod(new[:at]) == before and size % context.batch == 0]
    if not places:
        return None
    place = first.axis if first.axis in places else places[0]
    copied = not context.node.get("allowzero", 0)
    if copied and place != first.axis < len(target) and int(target[first.axis]) == 0:
        return None
    carried = Carried(place, new[place] // context.batch)
    entry = int(target[place])
    if entry == 0 and copied:
        # It copies the size of that axis of the input.
        return context.only_first(carried) if carried == first else None
    baked = () if entry == -1 else ((1, place, carried.multiple),)
    return Independence((first, None), (carried,), baked)


def _flatten(context: Context) -> Independence | None:
    first, shape = context.carried(), context.shape()
    if first is None or shape is None:
        return None
    cut = int(context.node["axis"])
    cut = cut + len(shape) if cut < 0 else cut
    start, end, axis = (0, cut, 0) if first.axis < cut else (cut, len(shape), 1)
    if math.prod(shape[start : first.axis]) != 1:
        return None
    rows = first.multiple * math.prod(shape[first.axis + 1 : end])
    return context.only_first(Carried(axis, rows))


def _expand(context: Context) -> Independence | None:
    first, old, new, target = context.carried(), context.shape(), context.outputs[0], context.value(1)
    if first is None or old is None or new is None or target is None:
        return None
    carried = Carried(first.axis + len(new) - len(old), first.multiple)
    entry = carried.axis - (len(new) - len(target))
    baked = ((1, entry, first.multiple),) if entry >= 0 and int(target[entry]) != 1 else ()
    return Independence((first, None), (carried,), baked)


def _transpose(context: Context) -> Independence | None:
    first, shape = context.carried(), context.shape()
    if first is None or shape is None:
        return None
    order = context.node.get("perm") or list(range(len(shape)))[::-1]
    return context.only_first(Carried(list(order).index(first.axis), first.multiple))


def _squeeze(context: Context) -> Independence | None:
    first, axes = context.carried(), constant_axes(context, 1)
    if first is None or axes is None or first.axis in axes:
        return None
    return context.only_first(Carried(first.axis - sum(each < first.axis for each in axes), first.multiple))


def _unsqueeze(context: Context) -> Independence | None:
    first, new = context.carried(), context.outputs[0]
    value = context.node.get("axes")
    given = context.value(1)
    if first is None or new is None or (value is None and given is None):
        return None
    entries = value if value is not None else [] if given is None else given.reshape(-1)
    axes = {int(each) % len(new) for each in entries}
    kept = [at for at in range(len(new)) if at not in axes]
    return context.only_first(Carried(kept[first.axis], first.multiple))


def _concat(context: Context) -> Independence | None:
    new = context.outputs[0]
    targets = {each for each in (context.carried(at) for at in range(len(context.carries))) if each is not None}
    if new is None or len(targets) != 1:
        return None
    (target,) = targets
    if int(context.node["axis"]) % len(new) == target.axis:
        return None
    return Independence(tuple(target for _ in context.carries), (target,))


def _split(context: Context) -> Independence | None:
    first, shape = context.carried(), context.shape()
    if first is None or shape is None or int(context.node["axis"]) % len(shape) == first.axis:
        return None
    return context.only_first(*[first] * len(context.node.outputs))


def _slice(context: Context) -> Independence | None:
    first, shape = context.carried(), context.shape()
    if first is None or shape is None:
        return None
    starts = context.value(1)
    axes = constant_axes(context, 3) if context.given(3) else None
    if not context.given(3) and starts is not None:
        axes = list(range(starts.size))
    if starts is None or axes is None or first.axis in axes:
        return None
    return context.only_first(first)


def _gather(context: Context) -> Independence | None:
    data, indices = context.shape(0), context.shape(1)
    if data is None or indices is None:
        return None
    axis = int(context.node["axis"]) % len(data)
    first, second = context.carried(0), context.carried(1)
    if first is not None and second is None and first.axis != axis:
        moved = first.axis if first.axis < axis else first.axis - 1 + len(indices)
        return Independence((first, None), (Carried(moved, first.multiple),))
    if first is None and second is not None:
        return Independence((None, second), (Carried(axis + second.axis, second.multiple),))
    return None


def _gather_elements(context: Context) -> Independence | None:
    first, shape = context.carried(0), context.shape()
    if first is None or shape is None or context.carried(1) != first:
        return None
    if int(context.node["axis"]) % len(shape) == first.axis:
        return None
    return Independence((first, first), (first,))


def _reduce(context: Context) -> Independence | None:
    axes = constant_axes(context, 1)
    return None if axes is None else _without(context, axes)


def _arg_reduce(context: Context) -> Independence | None:
    shape = context.shape()
    return None if shape is None else _without(context, [int(context.node["axis"]) % len(shape)])


def _without(context: Context, axes: Sequence[int]) -> Independence | None:
    """Axes that are reduced; none at all stands for all of them, or for none: both are left alone."""
    first = context.carried()
    if first is None or not axes or first.axis in axes:
        return None
    moved = 0 if context.node["keepdims"] else sum(each < first.axis for each in axes)
    return context.only_first(Carried(first.axis - moved, first.multiple))


def _pad(context: Context) -> Independence | None:
    first, shape = context.carried(), context.shape()
    if first is None or shape is None:
        return None
    pads = context.node.get("pads")
    value = context.value(1) if pads is None else None
    axes = constant_axes(context, 3) if context.given(3) else list(range(len(shape)))
    if axes is None or (pads is None and value is None):
        return None
    sizes = list(pads) if pads is not None else [] if value is None else value.reshape(-1).tolist()
    half = len(sizes) // 2
    for at, axis in enumerate(axes):
        if axis == first.axis and (sizes[at] or sizes[at + half]):
            return None
    return context.only_first(first)


def _tile(context: Context) -> Independence | None:
    first, repeats = context.carried(), context.value(1)
    if first is None or repeats is None or int(repeats[first.axis]) != 1:
        return None
    return context.only_first(first)


def _one_hot(context: Context) -> Independence | None:
    first, new = context.carried(), context.outputs[0]
    if first is None or new is None:
        return None
    axis = int(context.node["axis"]) % len(new)
    return context.only_first(Carried(first.axis + (axis <= first.axis), first.multiple))


def _einsum(context: Context) -> Independence | None:
    """The batch has one letter, which is in the result and in every operand that carries it, and in no other."""
    equation = str(context.node["equation"]).replace(" ", "")
    if "->" not in equation or "." in equation:
        return None
    terms, result = equation.split("->")
    operands = terms.split(",")
    letters = {operands[at][each.axis] for at in range(len(operands)) if (each := context.carried(at)) is not None}
    multiples = {each.multiple for at in range(len(operands)) if (each := context.carried(at)) is not None}
    if len(letters) != 1 or len(multiples) != 1:
        return None
    (letter,), (multiple,) = letters, multiples
    if any(term.count(letter) > 1 for term in (*operands, result)) or letter not in result:
        return None
    needs = tuple(Carried(term.index(letter), multiple) if letter in term else None for term in operands)
    if any(context.carried(at) not in (None, needs[at]) for at in range(len(operands))):
        return None
    return Independence(needs, (Carried(result.index(letter), multiple),))


_REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"

RULES: dict[str, Rule] = {
    **{f"Reduce{each}": _reduce for each in _REDUCTIONS.split()},
    "ArgMax": _arg_reduce,
    "ArgMin": _arg_reduce,
    "Concat": _concat,
    "Einsum": _einsum,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
