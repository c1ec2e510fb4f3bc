"""What differs between two networks whose layers are paired, in the words of people who build networks.

Patterns come first: pre-activation, types of shortcuts (He et al. 2015: A pads with zeros, B projects where the shape
changes, C everywhere), a stride at another convolution of its block, additional blocks. What a pattern explains is not
reported again layer by layer; the rest is compared setting by setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from levelbench.networks.layers import Layer, LayerGraph
from levelbench.networks.probes.pairing import JOINS, MainLayer, Paired

LayerPair = tuple[Layer, Layer]
_SHOWN = 3
_OURS, _THEIRS = 0, 1


@dataclass
class LayerRemark:
    """A difference in words, of a kind such as ``stride``, with the places where it was found."""

    kind: str
    words: str
    places: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The words with the first places."""
        places = list(dict.fromkeys(self.places))
        if not places:
            return self.words
        more = len(places) - _SHOWN
        # The reference's own name is told once.
        named = [places[0], *(each.partition(" (")[0] for each in places[1:_SHOWN])]
        shown = ", ".join(named) + (f" and {more} more" if more > 0 else "")
        return f"{self.words}: {shown}"


class Differences:
    """Compares paired steps. ``remarks`` are the differences, ``layers`` the pairs of layers of the same kind.

    ``folded``: the model's normalisations are folded into its convolutions, and are not compared.
    """

    def __init__(self, mine: LayerGraph, theirs: LayerGraph, pairs: Sequence[Paired], *, folded: bool = False) -> None:
        self._graphs = (mine, theirs)
        self._pairs = pairs
        self._folded = folded
        self._remarks: dict[tuple[str, str], LayerRemark] = {}
        self.layers: list[LayerPair] = []
        self._explained: tuple[set[int], set[int]] = (set(), set())
        self._strides: set[int] = set()
        self._rearranged = self._style()
        if not self._rearranged:
            self._shortcuts()
        self._moved_strides()
        self._unpaired()
        self._compare()
        if not self._remarks and not folded:
            self._wiring()

    @property
    def remarks(self) -> list[LayerRemark]:
        """The differences in the order in which they were found."""
        return list(self._remarks.values())

    def _say(self, kind: str, words: str, place: str, key: str = "") -> None:
        remark = self._remarks.setdefault((kind, key or words), LayerRemark(kind, words))
        remark.places.append(place)

    def _both(self) -> list[tuple[MainLayer, MainLayer]]:
        return [(a, b) for a, b in self._pairs if a is not None and b is not None]

    def _place(self, mine: MainLayer, theirs: MainLayer | None = None) -> str:
        """The name of a layer, or of the one before it, also in the reference if it differs."""
        own, other = self._name(mine, _OURS), "" if theirs is None else self._name(theirs, _THEIRS)
        return own if not other or other == own else f"{own or 'there'} ({other} in the reference)" if own else other

    def _name(self, step: MainLayer, side: int) -> str:
        if step.layer.name:
            return step.layer.name
        graph, at = self._graphs[side], step.at
        while at >= 0:
            if graph.layers[at].name:
                return f"after {graph.layers[at].name}"
            at = graph.layers[at].inputs[0]
        return "the input"

    def _style(self) -> bool:
        """Pre-activation on one side alone: the order of normalisations and activations differs everywhere."""

        def before(side: int) -> bool | None:
            steps = [pair[side] for pair in self._pairs]
            joins = [each for each in steps if each is not None and each.layer.kind in JOINS]
            normed = sum(each.followed_by("normalisation") for each in joins)
            return None if not joins else 2 * normed > len(joins)

        mine, theirs = before(_OURS), before(_THEIRS)
        if mine is None or theirs is None or mine == theirs or self._folded:
            return False
        where = "come before the convolutions, and none follows the addition"
        if theirs:
            where = "come after the convolutions, not before them as in the reference"
        joins = [self._name(a, _OURS).removeprefix("after ") for a, _ in self._both() if a.layer.kind in JOINS]
        for place in joins:
            title = "pre-activation: " if mine else "no pre-activation: "
            self._say("pre-activation", f"{title}normalisation and activation {where}", place)
        for kind in ("activation", "normalisation"):
            found: list[list[Layer]] = [[], []]
            for pair in self._pairs:
                for side in (_OURS, _THEIRS):
                    step = pair[side]
                    found[side] += [] if step is None else [each for each in step.following if each.kind == kind]
            ours, others = found
            if ours and others:
                self._compare_layers(ours[-1], others[-1], "everywhere")
        return True

    def _shortcuts(self) -> None:
        for a, b in self._both():
            if a.layer.kind not in JOINS or b.layer.kind not in JOINS:
                continue
            mine, theirs = (
                self._shortcut([self._graphs[side].layers[at] for at in step.shortcut])
                for side, step in ((_OURS, a), (_THEIRS, b))
            )
            if mine == theirs:
                continue
            if theirs == _IDENTITY and "type B" in mine:
                mine = mine.replace("type B", "type C")
            self._say("shortcut", f"{mine} instead of {theirs}", self._place(a, b))
            self._explained[_OURS].update(a.shortcut)
            self._explained[_THEIRS].update(b.shortcut)
        lost = [b for a, b in self._pairs if a is None and b is not None and b.layer.kind in JOINS]
        neighbours = {id(b): self._pairs[at - 1][0] for at, (_, b) in enumerate(self._pairs) if at}
        for b in lost:
            before = neighbours.get(id(b))
            if before is not None:
                self._say("shortcut", "no shortcut, unlike the reference", self._place(before, b))
                self._explained[_THEIRS].add(b.at)

    def _shortcut(self, layers: Sequence[Layer]) -> str:
        """A shortcut in words."""
        kinds = [each.kind for each in layers]
        if not kinds:
            return _IDENTITY
        if set(kinds) <= {"subsampling", "zero channels"}:
            return "a shortcut without parameters (type A: subsampling and zeros for new channels)"
        convolutions = [each for each in layers if each.kind == "convolution"]
        parts = []
        for each in layers:
            if each.kind == "pooling":
                parts.append(each.settings["name"])
            elif each.kind == "convolution":
                parts.append(f"{_by(each.settings['kernel'])} convolution")
            elif each.kind not in ("normalisation", "activation"):
                parts.append(each.kind)
        text = ", then a ".join(parts)
        normed = self._folded or "normalisation" in kinds
        usual = len(parts) == 1 and len(convolutions) == 1
        known = "type B: " if usual and normed else ""
        tail = "" if normed else " without normalisation"
        return f"a projection ({known}{text}{tail})" if convolutions else f"a shortcut of {text}"

    def _moved_strides(self) -> None:
        """The same stride of a block at another of its convolutions."""
        block: list[tuple[MainLayer, MainLayer]] = []
        for a, b in self._pairs:
            if a is not None and b is not None and a.layer.kind == b.layer.kind == "convolution":
                if not a.on_shortcut:
                    block.append((a, b))
            elif (step := a or b) is not None and step.layer.kind in JOINS:
                self._moved_stride(block)
                block = []

    def _moved_stride(self, block: Sequence[tuple[MainLayer, MainLayer]]) -> None:
        changed = [pair for pair in block if _stride(pair[0]) != _stride(pair[1])]
        mine = [a for a, _ in changed if max(_stride(a)) > 1]
        theirs = [b for _, b in changed if max(_stride(b)) > 1]
        if len(mine) != 1 or len(theirs) != 1 or _stride(mine[0]) != _stride(theirs[0]):
            return
        names = [f"{_by(each.layer.settings['kernel'])}" for each in (mine[0], theirs[0])]
        order = [pair[0] for pair in block].index(mine[0])
        versions = {("1x1", "3x3"): "ResNet v1, not v1.5", ("3x3", "1x1"): "ResNet v1.5, not v1"}
        first = order == 0 or names[0] == "3x3"
        version = versions.get((names[0], names[1]))
        remark = f" ({version})" if version and first else ""
        where = "" if first or names[0] == "3x3" else "last "
        if names[0] == names[1]:
            later = order > [pair[1] for pair in block].index(theirs[0])
            names = [f"second {names[0]}", "first"] if later else [f"first {names[0]}", "second"]
        words = (
            f"the stride of {_by(_stride(mine[0]), whole=True)} is at the {where}{names[0]} convolution of the block"
        )
        self._say("stride", f"{words} instead of the {names[1]}{remark}", self._name(mine[0], _OURS))
        self._strides.update(a.at for a, _ in changed)

    def _unpaired(self) -> None:
        """Additional and missing layers: whole blocks first, in the order of the network."""
        for side, joined, alone in (
            (_OURS, "additional ", "an additional {}"),
            (_THEIRS, "", "no {}, unlike the reference"),
        ):
            runs: list[list[MainLayer]] = []
            last: MainLayer | None = None
            for pair in self._pairs:
                step, other = pair[side], pair[1 - side]
                if step is None:
                    continue
                if other is None and step.at not in self._explained[side]:
                    if not runs or not runs[-1] or last is not runs[-1][-1]:
                        runs.append([])
                    runs[-1].append(step)
                last = step
            blocks = 0
            places = []
            for run in runs:
                kinds = [each.layer.kind for each in run]
                if any(each in JOINS for each in kinds) and "convolution" in kinds:
                    blocks += sum(each in JOINS for each in kinds)
                    places.append(self._name(run[0], side))
                    continue
                self._single(run, side, alone)
            if blocks:
                words = f"{blocks} {joined}residual block{'s' * (blocks > 1)}{' missing' if side == _THEIRS else ''}"
                for place in places:
                    self._say("layers", words, place)

    def _single(self, run: Sequence[MainLayer], side: int, alone: str) -> None:
        kinds = [each.layer.kind for each in run]
        if kinds[-1] == "multiplication" and "pooling" in kinds and "linear" in kinds:
            self._say("layers", alone.format("squeeze-and-excitation"), self._name(run[0], side))
            return
        for each in run:
            kind = "pooling" if each.layer.kind == "pooling" else "layers"
            self._say(kind, alone.format(_described(each.layer)), self._name(each, side))

    def _compare(self) -> None:
        last = max((a.at for a, _ in self._both() if a.layer.kind == "linear"), default=None)
        for index, (a, b) in enumerate(self._pairs):
            if a is None or b is None:
                continue
            if a.at in self._explained[_OURS] or b.at in self._explained[_THEIRS]:
                continue
            if a.layer.kind != b.layer.kind:
                self._say("layers", f"{a.layer.kind} instead of {b.layer.kind}", self._place(a, b))
            elif "channels" in a.layer.settings or a.layer.kind == "pooling":
                self._compare_step(a, b, a.at == last)
                self.layers.append((a.layer, b.layer))
            if not self._rearranged:
                self._following(a, b, index)

    def _wiring(self) -> None:
        """The same layers, but not the same inputs."""
        partner = {a.at: b.at for a, b in self._both()}
        names = {b.at: self._name(a, _OURS) for a, b in self._both()}
        for a, b in self._both():
            mine = sorted((partner.get(at, at), kinds) for at, kinds in a.inputs)
            for (at, kinds), (other, others) in zip(mine, sorted(b.inputs), strict=False):
                if at != other:
                    words = f"reads {names.get(at, 'another value')} instead of {names.get(other, 'another value')}"
                    self._say("wiring", words, self._place(a, b))
                elif kinds != others:
                    said = ["after " + " and ".join(each) if each else "at once" for each in (kinds, others)]
                    self._say("wiring", f"reads {names.get(at)} {said[0]} instead of {said[1]}", self._place(a, b))

    def _compare_step(self, a: MainLayer, b: MainLayer, is_last: bool) -> None:
        s, t, place = a.layer.settings, b.layer.settings, self._place(a, b)
        if a.layer.kind == "pooling":
            self._pooling(s, t, place)
            return
        if a.layer.kind == "zero channels":
            return
        if s["channels"] != t["channels"]:
            if is_last:
                self._say("classes", f"{s['channels']} instead of {t['channels']}", place)
            else:
                words = f"{s['channels']} channels instead of {t['channels']}"
                self._say("width", words, place, key="width")
        if s.get("bias") != t.get("bias") and not self._folded:
            self._say(
                "bias", "a bias that the reference lacks" if s["bias"] else "no bias, unlike the reference", place
            )
        if a.layer.kind != "convolution":
            return
        if s["kernel"] != t["kernel"]:
            self._say("kernel", f"{_by(s['kernel'])} instead of {_by(t['kernel'])}", place)
        if s["stride"] != t["stride"] and a.at not in self._strides:
            words = f"{_by(s['stride'], whole=True)} instead of {_by(t['stride'], whole=True)}"
            self._say("stride", words, place)
        same = all(tuple(each // 2 for each in x["kernel"]) == tuple(x["padding"]) for x in (s, t))
        if s["padding"] != t["padding"] and not (same and s["kernel"] != t["kernel"]):
            words = f"{_by(s['padding'], whole=True)} instead of {_by(t['padding'], whole=True)}"
            self._say("padding", words, place)
        modes = [each.get("padding mode", "zeros") for each in (s, t)]
        if modes[0] != modes[1]:
            self._say("padding", f"{modes[0]} padding instead of {modes[1]}", place)
        if s["dilation"] != t["dilation"]:
            words = f"{_by(s['dilation'], whole=True)} instead of {_by(t['dilation'], whole=True)}"
            self._say("dilation", words, place)
        depthwise = all(each["groups"] == each["inputs"] for each in (s, t))
        if s["groups"] != t["groups"] and not depthwise:
            self._say("groups", f"{s['groups']} groups instead of {t['groups']}", place)

    def _pooling(self, s: Mapping[str, Any], t: Mapping[str, Any], place: str) -> None:
        if s["name"] != t["name"]:
            self._say("pooling", f"{s['name']} instead of {t['name']}", place)
            return
        said = []
        if s.get("kernel") != t.get("kernel"):
            said.append(f"{_by(s['kernel'])} instead of {_by(t['kernel'])}")
        for setting in ("stride", "padding"):
            if s.get(setting) != t.get(setting):
                said.append(f"{setting} {_by(s[setting], whole=True)} instead of {_by(t[setting], whole=True)}")
        if s.get("ceil") != t.get("ceil"):
            said.append("sizes rounded up" if s.get("ceil") else "sizes rounded down")
        if s.get("counts padding", True) != t.get("counts padding", True):
            said.append(f"padding {'counts' if s.get('counts padding') else 'does not count'} in the mean")
        if said:
            self._say("pooling", f"{s['name']} of {', '.join(said)}", place)

    def _following(self, a: MainLayer, b: MainLayer, index: int) -> None:
        """What follows a pair of steps, and a join or pooling after it that only one side has."""
        mine, theirs = [*a.following], [*b.following]
        alone: tuple[list[MainLayer], list[MainLayer]] = ([], [])
        for pair in self._pairs[index + 1 :]:
            if None not in pair:
                break
            for side in (_OURS, _THEIRS):
                alone[side].extend(each for each in (pair[side],) if each is not None)
        for layers, steps in ((mine, alone[_OURS]), (theirs, alone[_THEIRS])):
            if all(each.layer.kind in (*JOINS, "pooling") for each in steps):
                layers.extend(layer for each in steps for layer in each.following)
        if self._folded:
            mine, theirs = ([each for each in some if each.kind != "normalisation"] for some in (mine, theirs))
        place = self._place(a, b)
        kinds = [[each.kind for each in some] for some in (mine, theirs)]
        if kinds[0] != kinds[1] and sorted(kinds[0]) == sorted(kinds[1]):
            first, second = (next(x for x in mine if x.kind == kind) for kind in _swapped(*kinds))
            self._say("order", f"{_described(first)} comes before {_described(second)}, unlike in the reference", place)
            ordered = sorted(mine, key=lambda each: each.kind), sorted(theirs, key=lambda each: each.kind)
            for x, y in zip(*ordered, strict=True):
                self._compare_layers(x, y, place)
            return
        for tag, i1, i2, j1, j2 in SequenceMatcher(None, kinds[0], kinds[1], autojunk=False).get_opcodes():
            if tag == "equal":
                for x, y in zip(mine[i1:i2], theirs[j1:j2], strict=True):
                    self._compare_layers(x, y, place)
                continue
            for y in theirs[j1:j2]:
                where = " after the addition" if b.layer.kind in JOINS else ""
                self._say(_KINDS.get(y.kind, "layers"), f"no {_described(y)}{where}, unlike the reference", place)
            for x in mine[i1:i2]:
                final = x.kind == "activation" and "softmax" in x.settings["name"]
                kind = "layers" if final else _KINDS.get(x.kind, "layers")
                self._say(kind, _additional(x), place)

    def _compare_layers(self, x: Layer, y: Layer, place: str) -> None:
        """Two layers of the same kind that follow paired steps."""
        self.layers.append((x, y))
        s, t = x.settings, y.settings
        kind = _KINDS.get(x.kind, "layers")
        if s.get("name") != t.get("name"):
            self._say(kind, f"{s.get('name')} instead of {t.get('name')}", place)
        elif x.kind == "normalisation":
            for words in _normalisation(s, t):
                self._say(kind, words, place)
        elif x.kind == "dropout" and s != t:
            self._say(kind, f"{s['ratio']:g} instead of {t['ratio']:g}", place)
        elif x.kind in ("scale", "shift") and s["by"] != t["by"]:
            self._say(kind, f"{_described(x)} instead of {_described(y)}", place)
        elif x.kind not in _KINDS and x.kind not in ("scale", "shift") and s != t:
            changed = [name for name in {**s, **t} if s.get(name) != t.get(name)]
            self._say(kind, f"{x.kind} with other {', '.join(changed)}", place)


_IDENTITY = "the identity"
_KINDS = {
    "activation": "activation",
    "dropout": "dropout",
    "normalisation": "normalisation",
    "padding": "padding",
}


def _normalisation(s: Mapping[str, Any], t: Mapping[str, Any]) -> Iterable[str]:
    for setting in ("epsilon", "momentum", "alpha", "beta", "bias", "size"):
        if setting not in s or setting not in t:
            continue
        if isinstance(s[setting], str) or isinstance(t[setting], str):
            if s[setting] != t[setting]:
                yield f"{setting} {s[setting]} instead of {t[setting]}"
        elif abs(s[setting] - t[setting]) > 1e-6 * abs(t[setting]):
            yield f"{setting} {s[setting]:g} instead of {t[setting]:g}"
    if s.get("affine", True) != t.get("affine", True):
        yield "no scale and shift, unlike the reference" if t.get("affine", True) else "a scale and shift"
    if s.get("statistics", True) != t.get("statistics", True):
        yield "no running statistics, unlike the reference" if t.get("statistics", True) else "running statistics"
    if s.get("in training") != t.get("in training") and s.get("statistics", True):
        yield "running statistics in training, not those of the batch"


def _swapped(mine: Sequence[str], theirs: Sequence[str]) -> tuple[str, str]:
    """The first kind of mine that is not in its place, and the one that is first in the reference there."""
    at = next(each for each in range(len(mine)) if mine[each] != theirs[each])
    return mine[at], theirs[at]


def _stride(step: MainLayer) -> tuple[int, ...]:
    return tuple(step.layer.settings["stride"])


def _by(sizes: Sequence[int], *, whole: bool = False) -> str:
    """``3x3``; with ``whole`` a single number where all are equal."""
    if whole and len(set(sizes)) == 1:
        return str(sizes[0])
    return "x".join(str(each) for each in sizes)


def _described(layer: Layer) -> str:
    s = layer.settings
    match layer.kind:
        case "convolution":
            return f"{_by(s['kernel'])} convolution to {s['channels']} channels"
        case "linear":
            return f"linear layer to {s['channels']} features"
        case "pooling" | "activation" | "normalisation":
            return str(s["name"])
        case "dropout":
            return f"dropout of {s['ratio']:g}"
        case "cast":
            return f"cast to {s.get('to', 'another type')}"
        case "scale":
            return f"multiplication by {s['by']}"
        case "shift":
            return f"addition of {s['by']}"
        case "padding":
            return f"padding of {_by(s['padding'], whole=True)} with {s['mode']}"
    return layer.kind


def _additional(layer: Layer) -> str:
    match layer.kind:
        case "scale":
            return f"multiplied by {layer.settings['by']}, unlike in the reference"
        case "shift":
            return f"shifted by {layer.settings['by']}, unlike in the reference"
        case "dropout" | "padding":
            return f"a {_described(layer)} that the reference lacks"
    return f"an additional {_described(layer)} that the reference lacks"
