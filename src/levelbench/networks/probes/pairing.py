"""Pairs the layers of two networks: a canonical order, then an alignment of the two sequences.

*Steps* are the layers that shape a network: convolutions, linear layers, pooling, joins. Normalisations, activations
and the like follow a step and are compared once their steps are paired. The order is that of a walk from the output,
deepest path first, so that it does not depend on which path a program computes first; a path of an addition other than
the deepest is its shortcut. The alignment is Needleman and Wunsch's with affine gaps (Gotoh 1982).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from levelbench.networks.layers import INPUT, Layer, LayerGraph

FOLLOWING = frozenset({"activation", "dropout", "normalisation", "padding", "scale", "shift"})
"""Kinds that follow a step."""
JOINS = frozenset({"addition", "subtraction"})


@dataclass(frozen=True)
class MainLayer:
    """A layer with those that follow it. ``shortcut`` are the positions of the layers of an addition's other paths."""

    at: int
    layer: Layer
    on_shortcut: bool = False
    following: tuple[Layer, ...] = ()
    shortcut: tuple[int, ...] = ()
    inputs: tuple[tuple[int, tuple[str, ...]], ...] = field(default=(), compare=False)
    """The positions of the steps that it reads (-1 is the input), each with the kinds of layers in between."""

    def followed_by(self, kind: str) -> bool:
        """Whether a layer of this kind follows."""
        return any(each.kind == kind for each in self.following)


def steps_of(graph: LayerGraph) -> list[MainLayer]:
    """The steps in canonical order, after one that stands for the input."""
    order, on_shortcut, shortcuts = _walk(graph)
    found: list[tuple[int, Layer]] = [(INPUT, Layer("input", (), graph.input))]
    following: dict[int, list[Layer]] = {INPUT: []}
    origin: dict[int, tuple[int, tuple[str, ...]]] = {INPUT: (INPUT, ())}
    for at in order:
        layer = graph.layers[at]
        if layer.kind in FOLLOWING or (len(layer.inputs) == 1 and layer.kind not in STEPS):
            step, between = origin[layer.inputs[0]]
            origin[at] = (step, (*between, layer.kind))
            # What begins a shortcut does not follow the step before on the deepest path.
            if at not in on_shortcut or step in on_shortcut:
                following[step].append(layer)
        else:
            origin[at] = (at, ())
            found.append((at, layer))
            following[at] = []
    return [
        MainLayer(
            at,
            layer,
            at in on_shortcut,
            tuple(following[at]),
            tuple(shortcuts.get(at, ())),
            tuple(origin[each] for each in layer.inputs),
        )
        for at, layer in found
    ]


STEPS = frozenset(
    {"convolution", "linear", "pooling", "subsampling", "zero channels", "addition", "multiplication", "concatenation"}
)


def _walk(graph: LayerGraph) -> tuple[list[int], set[int], dict[int, list[int]]]:
    """The order, the layers on shortcuts, and the layers of the shortcuts of each addition."""
    layers = graph.layers
    depth, work = {INPUT: 0}, {INPUT: 0}
    for at in graph.needed():
        depth[at] = 1 + max((depth.get(each, 0) for each in layers[at].inputs), default=0)
        work[at] = layers[at].multiply_adds + max((work.get(each, 0) for each in layers[at].inputs), default=0)

    def sources(at: int) -> list[int]:
        inputs = list(layers[at].inputs)
        if layers[at].kind in ("addition", "multiplication", "subtraction"):
            # Stable: paths of equal depth and work keep their order.
            inputs.sort(key=lambda each: (depth.get(each, 0), work.get(each, 0)), reverse=True)
        return inputs

    order: list[int] = []
    on_shortcut: set[int] = set()
    shortcuts: dict[int, list[int]] = {}
    seen: set[int] = {INPUT}
    # (layer, its sources that are left, the number of the source, whether on a shortcut)
    stack: list[tuple[int, list[int], bool]] = []

    def enter(at: int, aside: bool) -> None:
        if at in seen or at < 0:
            return
        seen.add(at)
        if aside:
            on_shortcut.add(at)
        stack.append((at, sources(at), aside))

    enter(graph.output, False)
    begun: dict[int, int] = {}
    while stack:
        at, left, aside = stack[-1]
        if layers[at].kind in JOINS and len(left) == len(layers[at].inputs) - 1 and at not in begun:
            begun[at] = len(order)
        if left:
            first = len(left) == len(layers[at].inputs)
            source = left.pop(0)
            enter(source, aside or (layers[at].kind in JOINS and not first))
            continue
        stack.pop()
        if at in begun:
            shortcuts[at] = order[begun[at] :]
        order.append(at)
    return order, on_shortcut, shortcuts


Paired = tuple[MainLayer | None, MainLayer | None]
_OPEN, _EXTEND = 0.6, 0.8


def aligned(mine: Sequence[MainLayer], theirs: Sequence[MainLayer]) -> list[Paired]:
    """The cheapest alignment, in order; ``None`` stands for a step that the other lacks."""
    rows, columns = len(mine), len(theirs)
    far = float("inf")
    # best[state][i][j]: mine[:i] with theirs[:j], ending in a pair (0), a step of mine alone (1), of theirs alone (2).
    best = [[[far] * (columns + 1) for _ in range(rows + 1)] for _ in range(3)]
    came = [[[0] * (columns + 1) for _ in range(rows + 1)] for _ in range(3)]
    best[0][0][0] = 0.0
    for i in range(rows + 1):
        for j in range(columns + 1):
            if i and j:
                costs = [best[state][i - 1][j - 1] for state in range(3)]
                least = min(range(3), key=costs.__getitem__)
                if costs[least] < far:
                    best[0][i][j] = costs[least] + distance(mine[i - 1], theirs[j - 1])
                    came[0][i][j] = least
            for state, before in ((1, (i - 1, j)), (2, (i, j - 1))):
                if min(before) < 0:
                    continue
                costs = [
                    best[each][before[0]][before[1]] + (_EXTEND if each == state else _OPEN + _EXTEND)
                    for each in range(3)
                ]
                least = min(range(3), key=costs.__getitem__)
                best[state][i][j], came[state][i][j] = costs[least], least
    pairs: list[Paired] = []
    i, j = rows, columns
    state = min(range(3), key=lambda each: best[each][i][j])
    while i or j:
        earlier = came[state][i][j]
        if state != 2:
            i -= 1
        if state != 1:
            j -= 1
        pairs.append((mine[i] if state != 2 else None, theirs[j] if state != 1 else None))
        state = earlier
    return pairs[::-1]


def distance(a: MainLayer, b: MainLayer) -> float:
    """From 0 for equal steps to beyond the cost of leaving both alone."""
    if a.layer.kind != b.layer.kind:
        joins = a.layer.kind in JOINS and b.layer.kind in JOINS
        return 0.8 if joins else 9.0
    s, t = a.layer.settings, b.layer.settings
    cost = 0.5 if a.on_shortcut != b.on_shortcut else 0.0
    if bool(a.shortcut) != bool(b.shortcut):
        cost += 0.2
    if a.layer.shape[:1] != b.layer.shape[:1]:
        cost += 0.3
    if a.layer.shape[1:] != b.layer.shape[1:]:
        cost += 0.15
    for setting, weight in (("kernel", 0.4), ("stride", 0.1), ("groups", 0.1), ("inputs", 0.1), ("name", 0.4)):
        if s.get(setting) != t.get(setting):
            cost += weight
    if [each.kind for each in a.following] != [each.kind for each in b.following]:
        cost += 0.05
    return cost
