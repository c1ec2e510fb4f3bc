"""Brings layers that compute the same in different words into one form, so that nobody is accused of style.

Each rule looks at one layer and its input; they run until none applies. A rule may hold only where the function stays
the same, its gradients included: a ReLU and max pooling change places, zeros around an image become a convolution's
padding, a mean over all pixels is global pooling, a 1x1 convolution of one pixel is a linear layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from levelbench.networks.layers import Layer, LayerGraph, symmetric

Rule = Callable[["_Editing", int], bool]


def simplified(graph: LayerGraph) -> LayerGraph:
    """The same function in one form, without layers that nothing reads."""
    editing = _Editing(graph)
    changed = True
    while changed:
        changed = False
        for at in range(len(editing.layers)):
            while any(rule(editing, at) for rule in _RULES):
                changed = True
    return _compacted(replace(graph, layers=tuple(editing.layers), output=editing.output))


def without(graph: LayerGraph, kind: str) -> LayerGraph:
    """The graph without the layers of one kind; their inputs take their places."""
    editing = _Editing(graph)
    for at, layer in enumerate(editing.layers):
        if layer.kind == kind:
            editing.skip(at)
    return _compacted(replace(graph, layers=tuple(editing.layers), output=editing.output))


def _compacted(graph: LayerGraph) -> LayerGraph:
    needed = graph.needed()
    new = {old: at for at, old in enumerate(needed)}
    layers = [
        replace(graph.layers[old], inputs=tuple(new.get(each, each) for each in graph.layers[old].inputs))
        for old in needed
    ]
    return replace(graph, layers=tuple(layers), output=new.get(graph.output, graph.output))


class _Editing:
    """The layers while rules change them. Positions stay; a skipped layer remains without readers."""

    def __init__(self, graph: LayerGraph) -> None:
        self.layers, self.output, self.input = list(graph.layers), graph.output, graph.input
        self.readers: dict[int, list[int]] = {}
        for at in graph.needed():
            for each in graph.layers[at].inputs:
                self.readers.setdefault(each, []).append(at)

    def only_reader(self, at: int) -> bool:
        """Whether one layer reads this one, which is not the output."""
        return len(self.readers.get(at, ())) == 1 and at != self.output

    def skip(self, at: int) -> None:
        """Let readers of a layer read its first input instead."""
        source = self.layers[at].inputs[0]
        for reader in set(self.readers.get(at, ())):
            layer = self.layers[reader]
            self.layers[reader] = replace(layer, inputs=tuple(source if x == at else x for x in layer.inputs))
        moved = self.readers.pop(at, [])
        self.readers[source] = [each for each in self.readers.get(source, []) if each != at] + moved
        if self.output == at:
            self.output = source

    def source(self, at: int) -> Layer | None:
        """The first input of a layer, if it is a layer."""
        first = self.layers[at].inputs[0]
        return self.layers[first] if first >= 0 else None

    def shape_before(self, at: int) -> tuple[int, ...]:
        """The shape of the first input of a layer."""
        source = self.source(at)
        return self.input if source is None else source.shape

    def read(self, at: int) -> bool:
        """Whether anything reads a layer."""
        return at == self.output or bool(self.readers.get(at))


def _identity(e: _Editing, at: int) -> bool:
    layer = e.layers[at]
    s = layer.settings
    source = e.source(at)
    idle = (
        (layer.kind == "activation" and s["name"] == "identity")
        or (layer.kind == "padding" and not any(s["padding"]))
        or (layer.kind == "subsampling" and all(each == 1 for each in s["stride"]))
        or (layer.kind == "dropout" and s["ratio"] == 0)
        or (layer.kind == "scale" and s["by"] == "1")
        or (layer.kind == "shift" and s["by"] in ("0", "-0"))
        or (layer.kind == "concatenation" and len(layer.inputs) == 1)
        or (
            layer.kind == "pooling"
            and set(s.get("kernel", ())) == set(s.get("stride", ())) == {1}
            and set(layer.shape[1:]) != {1}
        )
        or (
            layer.kind == "activation"
            and s["name"] in ("ReLU", "ReLU6")
            and source is not None
            and source.settings == s
            and source.kind == "activation"
        )
    )
    if not idle or not e.read(at):
        return False
    e.skip(at)
    return True


def _bias(e: _Editing, at: int) -> bool:
    """The addition of an array of one number a channel to a layer without a bias."""
    layer, source = e.layers[at], e.source(at)
    if layer.kind != "shift" or layer.settings["by"] != "a parameter" or source is None or not e.read(at):
        return False
    fits = source.kind in ("convolution", "linear") and not source.settings["bias"]
    if not fits or layer.settings["size"] != source.settings["channels"] or not e.only_reader(layer.inputs[0]):
        return False
    weights = {**source.weights, **layer.weights}
    e.layers[layer.inputs[0]] = replace(source, settings={**source.settings, "bias": True}, weights=weights)
    e.skip(at)
    return True


def _padding(e: _Editing, at: int) -> bool:
    """Padding before a convolution or a pooling."""
    layer, source = e.layers[at], e.source(at)
    if source is None or source.kind != "padding" or layer.kind not in ("convolution", "pooling"):
        return False
    s, mode = layer.settings, source.settings["mode"]
    if "padding" not in s or not e.read(at) or (any(s["padding"]) and mode != "zeros"):
        return False
    # A maximum never takes what MaxPool's own padding holds.
    unseen = layer.kind == "pooling" and s["name"] == "max pooling" and mode == "-inf"
    if layer.kind == "pooling" and not unseen:
        before = e.source(layer.inputs[0])
        positive = before is not None and before.kind == "activation" and before.settings["name"].startswith("ReLU")
        average = s["name"] == "average pooling"
        if mode != "zeros" or (not (average and s.get("counts padding", True)) and not (positive and not average)):
            return False
    rank = len(layer.shape) - 1
    total = [a + b for a, b in zip(_both(s["padding"], rank), _both(source.settings["padding"], rank), strict=True)]
    added = {"counts padding": True} if "average" in str(s) else {}
    if mode != "zeros" and not unseen:
        added = {"padding mode": mode}
    e.layers[at] = replace(layer, settings={**s, "padding": symmetric(total), **added})
    first = layer.inputs[0]
    if e.only_reader(first):
        e.skip(first)
    else:
        e.readers[first].remove(at)
        e.layers[at] = replace(e.layers[at], inputs=source.inputs)
        e.readers.setdefault(source.inputs[0], []).append(at)
    return True


def _both(padding: tuple[int, ...], rank: int) -> list[int]:
    return list(padding) * (2 if len(padding) == rank else 1)


def _pooling(e: _Editing, at: int) -> bool:
    """Pooling of one pixel is subsampling; of the whole image it is global."""
    layer = e.layers[at]
    s = layer.settings
    if layer.kind != "pooling" or "kernel" not in s:
        return False
    spatial = e.shape_before(at)[1:]
    if any(s["padding"]):
        return False
    if tuple(s["kernel"]) == tuple(spatial):
        e.layers[at] = replace(layer, settings={"name": f"global {s['name']}"})
        return True
    if set(s["kernel"]) == {1}:
        e.layers[at] = replace(layer, kind="subsampling", settings={"stride": s["stride"]})
        return True
    return False


def _subsampling(e: _Editing, at: int) -> bool:
    """Two subsamplings, of rows and of columns; and one before a 1x1 convolution, which then strides."""
    layer, source = e.layers[at], e.source(at)
    if source is None or source.kind != "subsampling" or not e.read(at) or not e.only_reader(layer.inputs[0]):
        return False
    steps = source.settings["stride"]
    s = layer.settings
    pointwise = layer.kind == "convolution" and set(s["kernel"]) == {1} and not any(s["padding"])
    if layer.kind != "subsampling" and not pointwise:
        return False
    strides = tuple(a * b for a, b in zip(steps, s["stride"], strict=True))
    e.layers[at] = replace(layer, settings={**s, "stride": strides})
    e.skip(layer.inputs[0])
    return True


def _one_pixel(e: _Editing, at: int) -> bool:
    """A 1x1 convolution after global pooling."""
    layer = e.layers[at]
    s = layer.settings
    if layer.kind != "convolution" or set(s["kernel"]) != {1} or s["groups"] != 1 or set(e.shape_before(at)[1:]) != {1}:
        return False
    before = e.source(at)
    while before is not None and before.kind in ("activation", "dropout", "linear", "normalisation"):
        first = before.inputs[0]
        before = e.layers[first] if first >= 0 else None
    if before is None or before.kind != "pooling" or not before.settings["name"].startswith("global"):
        return False
    kept = {each: s[each] for each in ("channels", "inputs", "bias")}
    e.layers[at] = replace(layer, kind="linear", settings=kept)
    return True


def _moved(e: _Editing, at: int) -> bool:
    """A ReLU after max pooling or dropout comes first; both orders compute the same."""
    layer, source = e.layers[at], e.source(at)
    if layer.kind != "activation" or not layer.settings["name"].startswith("ReLU") or not e.read(at):
        return False
    if source is None or not e.only_reader(layer.inputs[0]):
        return False
    maximum = source.kind == "pooling" and "max" in source.settings["name"]
    if not maximum and (source.kind != "dropout" or layer.settings["name"] != "ReLU"):
        return False
    first = layer.inputs[0]
    before = e.shape_before(first)
    e.layers[first] = replace(layer, inputs=source.inputs, shape=before)
    e.layers[at] = replace(source, inputs=(first,), shape=layer.shape)
    return True


def _gated(e: _Editing, at: int) -> bool:
    """X times sigmoid(x) is SiLU; x where it is positive is ReLU; x times (1 + erf(x / sqrt 2)) / 2 is GELU."""
    layer = e.layers[at]
    if layer.kind != "multiplication" or len(layer.inputs) != 2 or not e.read(at):
        return False
    for gate, x in (layer.inputs, layer.inputs[::-1]):
        made = e.layers[gate] if gate >= 0 else None
        if made is not None and made.kind == "is positive" and made.inputs == (x,):
            return _became(e, at, x, "ReLU")
        if made is None or made.kind not in ("activation", "shift"):
            continue
        if made.kind == "activation" and made.settings["name"] == "sigmoid" and made.inputs == (x,):
            return _became(e, at, x, "SiLU")
        inner = e.layers[made.inputs[0]] if made.inputs[0] >= 0 else None
        if inner is not None and inner.kind.lower() == "erf" and made.settings.get("by") == "1":
            scaled = e.layers[inner.inputs[0]] if inner.inputs[0] >= 0 else None
            root = scaled is not None and scaled.kind == "scale" and scaled.inputs == (x,)
            if root and scaled is not None and _near(scaled.settings["by"], math.sqrt(0.5)):
                # The factor of a half comes before or after; as a separate layer it is removed below.
                return _became(e, at, x, "twice GELU")
    return False


def _near(text: str, value: float) -> bool:
    return text.replace(".", "").replace("-", "").isdigit() and abs(float(text) - value) < 1e-4


def _became(e: _Editing, at: int, x: int, name: str) -> bool:
    for each in e.layers[at].inputs:
        e.readers[each].remove(at)
    gate = next((each for each in e.layers[at].inputs if each != x), x)
    e.layers[at] = replace(e.layers[at], kind="activation", inputs=(x,), settings={"name": name})
    e.readers.setdefault(x, []).append(at)
    # What computed the gate is no longer read.
    dead = [gate]
    while dead:
        each = dead.pop()
        if each >= 0 and each != x and not e.readers.get(each) and each != e.output:
            for source in set(e.layers[each].inputs):
                e.readers[source] = [reader for reader in e.readers[source] if reader != each]
                dead.append(source)
    return True


def _scaled(e: _Editing, at: int) -> bool:
    """Two factors, such as those that make a mean of a sum."""
    layer, source = e.layers[at], e.source(at)
    if source is None or layer.kind != "scale" or source.kind != "scale" or not e.read(at):
        return False
    factors = [each.settings["by"] for each in (layer, source)]
    if not e.only_reader(layer.inputs[0]) or not all(_is_number(each) for each in factors):
        return False
    e.layers[at] = replace(layer, settings={"by": f"{float(factors[0]) * float(factors[1]):.5g}"})
    e.skip(layer.inputs[0])
    return True


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _capped(e: _Editing, at: int) -> bool:
    """A ReLU and then a limit from above."""
    layer, source = e.layers[at], e.source(at)
    if source is None or layer.kind != "activation" or source.kind != "activation" or not e.read(at):
        return False
    name = layer.settings["name"]
    if source.settings["name"] != "ReLU" or not name.startswith(_ABOVE) or not e.only_reader(layer.inputs[0]):
        return False
    e.layers[at] = replace(layer, settings={"name": f"ReLU{name.removeprefix(_ABOVE)}"})
    e.skip(layer.inputs[0])
    return True


_ABOVE = "clipping to -inf ... "


def _halved(e: _Editing, at: int) -> bool:
    layer, source = e.layers[at], e.source(at)
    if source is None or not e.read(at) or not e.only_reader(layer.inputs[0]):
        return False
    kinds = {(each.kind, each.settings.get("name", each.settings.get("by"))) for each in (layer, source)}
    if kinds != {("activation", "twice GELU"), ("scale", "0.5")} or layer.kind != "scale":
        return False
    e.layers[layer.inputs[0]] = replace(source, settings={"name": "GELU"})
    e.skip(at)
    return True


_RULES: tuple[Rule, ...] = (
    _identity,
    _bias,
    _pooling,
    _padding,
    _subsampling,
    _one_pixel,
    _moved,
    _gated,
    _scaled,
    _capped,
    _halved,
)
