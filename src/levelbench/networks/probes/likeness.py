"""Is this network the one it is called? Pairs a model's layers with a reference's, and reports what differs in words.

What a graph does not hold (how weights are drawn, momenta, dropout, frozen parameters) comes from the live model. If no
difference is found, both compute with the model's weights: outputs must agree, and after a training step the
gradients and running statistics too, so that a difference without a name does not pass as none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.checks.findings import Finding, Report, failed, not_tried, noted, passed
from levelbench.checks.isolation import JsonLine, Say, report_isolated
from levelbench.errors import DefinitionError, LevelbenchError, UnsupportedError
from levelbench.networks import zoo
from levelbench.networks.executor import Backend, Executor, host_copies
from levelbench.networks.layers import LayerGraph
from levelbench.networks.losses import inferring
from levelbench.networks.native import NativeModel, is_module, load_builder
from levelbench.networks.network import Network
from levelbench.networks.probes.differences import Differences, LayerPair
from levelbench.networks.probes.drawn import DrawnWeight, differing, fans, fits, trained
from levelbench.networks.probes.graph_layers import network_layers
from levelbench.networks.probes.pairing import FOLLOWING, JOINS, STEPS, MainLayer, aligned, distance, steps_of
from levelbench.networks.probes.simplify import simplified, without
from levelbench.networks.transforms.graph import raised
from levelbench.networks.values import Draw, make_inputs
from levelbench.operators.frameworks import open_framework
from levelbench.operators.node import DEFAULT_OPSET, OPSETS

_KNOWN = FOLLOWING | JOINS | STEPS
_BATCH = 2
# Less than half of the reference's layers with a near counterpart make another architecture.
_NEAR, _LEAST_NEAR = 0.9, 0.5
_AGREES, _STEP_AGREES = 1e-3, 2e-2
_GRADIENTS_AGREE = 5e-2
"""Of their norm: where a ReLU is at zero but for rounding, single gradients differ by a tenth of the largest."""
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Likeness:
    """A model beside a reference: the findings, the pairs of steps, and the sizes of both."""

    report: Report
    pairs: tuple[Mapping[str, Any], ...] = ()
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def compare_with(
    reference: Network, name: str, build: Callable[[], Any], backend: Backend, *, draws: int = 3, seed: int = 0
) -> Likeness:
    """Compare what ``build`` returns, a module of ``backend``'s framework or a network, with ``reference``.

    ``build`` may also return (module, inputs) with the shapes of inputs by name. It is called once for each of
    ``draws``, with the framework's generators seeded. A model that cannot be read is not judged, nor is a
    comparison with a reference whose layers are not known here.
    """
    theirs = simplified(network_layers(reference))
    if strange := sorted({each.kind for each in theirs.layers} - _KNOWN):
        words = f"{reference.name} has layers of kinds that are not compared: {', '.join(strange[:4])}"
        return Likeness(Report(name, (not_tried(words, "choose a convolutional network", probe="layers"),)))
    try:
        model = _Model.of(name, build, reference, backend, draws, seed)
        mine = simplified(model.graph)
    except UnsupportedError as error:
        finding = not_tried(f"{error.asked}: {error.found}", error.do, probe="layers")
        return Likeness(Report(name, (finding,)))
    return _Comparison(reference, theirs, model, mine, backend, seed).likeness()


def check_isolated(
    what: str, reference: str, *, seed: int = 0, tell: Callable[[str], None] = lambda _: None, timeout_s: float = 300.0
) -> Report:
    """Compare ``FILE.py:function`` with a network of the zoo, on PyTorch, in its own process with a time limit."""
    request = {"what": what, "reference": reference, "seed": seed}
    return report_isolated(f"{__name__}:check_request", request, what, tell=tell, timeout_s=timeout_s)[0]


def check_request(request: JsonLine, say: Say) -> None:
    """The part of :func:`check_isolated` that runs in the other process."""
    what, backend = request["what"], open_framework("torch")
    assert isinstance(backend, Backend)
    say({"started": "layers"})
    found = compare_with(zoo.build(request["reference"]), what, load_builder(what), backend, seed=request["seed"])
    say({"done": [asdict(each) for each in found.report.findings]})


@dataclass(frozen=True)
class _Model:
    """What is compared: its layers, its arrays in each draw, and how it is run."""

    name: str
    graph: LayerGraph
    arrays: Sequence[Arrays]
    native: NativeModel | None
    network: Network | None
    evaluates: bool

    @classmethod
    def of(
        cls, name: str, build: Callable[[], Any], reference: Network, backend: Backend, draws: int, seed: int
    ) -> _Model:
        with backend.building(seed):
            made = build()
        if isinstance(made, Network):
            seeds = range(seed, seed + draws)
            stored = all(each.draw is None for each in made.parameters)
            arrays = [made.initialise(each) for each in (seeds[:1] if stored else seeds)]
            return cls(name, network_layers(made), arrays, None, made, True)
        inputs = reference.inputs
        first, *rest = made if isinstance(made, tuple) and made else (made,)
        # What torch.compile wraps.
        module: Any = getattr(first, "_orig_mod", first)
        if not is_module(module) or len(rest) > 1:
            found = f"it is a {type(module).__name__}"
            raise DefinitionError(f"the model {name}", found, "return a torch.nn.Module or a levelbench Network")
        native = NativeModel(name, "torch", module, inputs)
        if rest:
            from levelbench.networks.native import declared_inputs

            native = replace(native, inputs=declared_inputs(rest[0], name))
        evaluates = not module.training
        arrays = [_arrays(backend, native)]
        for each in range(seed + 1, seed + draws):
            with backend.building(each):
                again = build()
            again = again[0] if isinstance(again, tuple) else again
            arrays.append(_arrays(backend, replace(native, model=getattr(again, "_orig_mod", again))))
        given = make_inputs(native.inputs, _BATCH, seed, reference.sizes, {})
        graph = backend.layers_of(module, list(given.values()))
        return cls(name, graph, arrays, native, None, evaluates)


def _arrays(backend: Backend, native: NativeModel) -> dict[str, NDArray[Any]]:
    """Copies of a module's parameters and buffers."""
    executor = backend.native(native)
    live = {**executor.parameters, **executor.buffers}
    return host_copies(backend, live)


class _Comparison:
    """One model against one reference."""

    def __init__(
        self,
        reference: Network,
        theirs: LayerGraph,
        model: _Model,
        mine: LayerGraph,
        backend: Backend,
        seed: int,
    ) -> None:
        self._reference, self._theirs = reference, theirs
        self._model, self._backend, self._seed = model, backend, seed
        self._stopped = [each for each in mine.layers if each.kind == "stopped gradient"]
        self._mine = simplified(without(mine, "stopped gradient"))
        self._steps = steps_of(self._mine), steps_of(theirs)
        self._pairs = aligned(*self._steps)
        # Files hold what infers: without dropout, often with normalisations folded into convolutions.
        self._file = model.network is not None and all(each.draw is None for each in model.network.parameters)
        self._folded = (self._file or model.evaluates) and self._lost_normalisations()

    def _lost_normalisations(self) -> bool:
        """Whether the model has none, and its biases are not those of layers that never had one."""
        counts = [sum(each.kind == "normalisation" for each in graph.layers) for graph in (self._mine, self._theirs)]
        if counts[0] or not counts[1]:
            return False
        biases = []
        for layer in self._mine.layers:
            if layer.kind == "convolution":
                if layer.weights.get("bias", "") not in self._model.arrays[0]:
                    return False
                biases.append(self._model.arrays[0][layer.weights["bias"]] * math.sqrt(fans(layer)[0]))
        return not fits([np.concatenate(biases)], Draw("uniform", 1.0))

    def likeness(self) -> Likeness:
        """All findings."""
        mine, theirs = self._mine, self._theirs
        sizes = {
            "model": {"parameters": mine.parameters, "multiply_adds": mine.multiply_adds},
            "reference": {"parameters": theirs.parameters, "multiply_adds": theirs.multiply_adds},
        }
        near = sum(a is not None and b is not None and distance(a, b) < _NEAR for a, b in self._pairs) - 1
        count = len(self._steps[1]) - 1
        if near < _LEAST_NEAR * count:
            words = f"another architecture: {near} of {self._reference.name}'s {count} layers have a counterpart"
            alike = [each for each in zoo.names() if zoo.entry(each).published.parameters == mine.parameters]
            do = f"compare with {' or '.join(alike)}, which has as many parameters" if alike else ""
            findings = [failed(words, do or "name the reference that it should be", probe="layers")]
        else:
            findings = list(self._findings())
        wrong = any(each.status == "failed" for each in findings)
        findings.extend(self._sizes(sizes, wrong))
        return Likeness(Report(self._model.name, tuple(findings)), tuple(self._listed()), sizes)

    def _findings(self) -> Iterator[Finding]:
        found = Differences(self._mine, self._theirs, self._pairs, folded=self._folded)
        remarks = [
            each for each in found.remarks if not (each.kind == "dropout" and self._file and "no " in each.words)
        ]
        if self._mine.input != self._theirs.input:
            sizes = ["x".join(map(str, each.input)) for each in (self._mine, self._theirs)]
            yield failed(f"{sizes[0]} instead of {sizes[1]}", probe="input")
        for each in remarks:
            yield failed(each.text, probe=each.kind)
        if not remarks:
            counts = Counter(each.layer.kind for each in self._steps[1][1:])
            words = ", ".join(f"{count} x {kind}" for kind, count in counts.most_common(4))
            yield passed(f"all pair with the reference's: {words}", probe="layers")
        yield from self._shared()
        yield from self._gradients()
        if self._folded:
            words = "normalisations are folded into convolutions: their settings cannot be judged"
            yield noted(words, "give the model in training mode", probe="normalisation")
        if len(self._reference.outputs) > 1:
            words = f"only the first of the reference's {len(self._reference.outputs)} outputs was compared"
            yield not_tried(words, probe="outputs")
        if self._file and any(each.kind == "dropout" for each in self._theirs.layers):
            yield not_tried("a file for inference holds none", probe="dropout")
        yield from self._initialisation(found.layers)
        if not remarks and not self._stopped:
            yield from self._same_function(found.layers)

    def _shared(self) -> Iterator[Finding]:
        seen: dict[str, str] = {}
        for step in self._steps[0]:
            name = step.layer.weights.get("weight", "")
            # Exporters store equal constants once.
            held = self._model.arrays[0].get(name)
            if name in seen and (held is None or not self._file or np.ptp(held)):
                yield failed(f"a layer shares the weights of {step.layer.name}", probe="weights")
            if name.endswith("(computed)"):
                words = f"the weights of {step.layer.name} are computed in each call, not parameters"
                yield failed(words, "use plain layers, or say so", probe="weights")
            seen[name or str(step.at)] = step.layer.name

    def _gradients(self) -> Iterator[Finding]:
        if self._stopped:
            count = len(self._stopped)
            words = f"no gradient flows through {count} value{'s' * (count > 1)} (detach, or torch.no_grad)"
            yield failed(words, probe="gradients")
        # Folding leaves biases that are not trained.
        if (frozen := self._mine.frozen) and not self._folded:
            more = f" and {len(frozen) - 3} more" if len(frozen) > 3 else ""
            words = f"not trained (requires_grad is False): {', '.join(frozen[:3])}{more}"
            yield failed(words, probe="gradients")

    def _matched(self, layers: Sequence[LayerPair]) -> dict[str, tuple[str, bool]]:
        """The model's array for each of the reference's, and whether it is transposed."""
        found = {}
        for mine, theirs in layers:
            for role, name in theirs.weights.items():
                if role in mine.weights:
                    found[name] = (mine.weights[role], role == "weight" and mine.transposed != theirs.transposed)
        return found

    def _initialisation(self, layers: Sequence[LayerPair]) -> Iterator[Finding]:
        statistics: dict[str, NDArray[Any]] = {}
        first = self._model.arrays[0]
        for mine, _ in layers:
            for role in ("mean", "variance"):
                if mine.weights.get(role, "") in first:
                    statistics[f"{role} {mine.weights[role]}"] = first[mine.weights[role]]
        biases = [mine.weights["bias"] for mine, _ in layers if self._folded and mine.kind == "convolution"]
        folded = any(np.any(first[name]) for name in biases)
        if trained(statistics) or folded:
            reason = (
                "trained normalisations are folded into the weights" if folded else "its statistics are trained ones"
            )
            yield not_tried(reason, "build it with new weights", probe="initialisation")
            return
        drawn = {each.name: each.draw for each in self._reference.parameters if each.trainable and each.draw}
        weights = self._drawn(layers, drawn)
        if not weights:
            return
        wrong = differing(weights)
        if not wrong:
            count = len(self._model.arrays)
            times = f"drawn {count} times" if count > 1 else "drawn once"
            laws = f"{len(weights)} arrays, {times}, follow the reference's laws"
            yield passed(laws, probe="initialisation")
        fixed = len(self._model.arrays) > 1 and all(
            np.array_equal(first[name], other[name]) for other in self._model.arrays[1:] for name in first
        )
        stored = self._model.network is not None and len(self._model.arrays) == 1
        for words, members in wrong:
            last = self._last_normalisations(members)
            said = (
                "the scale of the last normalisation of each residual path starts at 0 instead of 1" if last else words
            )
            text = f"{said}: {_places([each.place for each in members])}"
            if (fixed or stored) and "constant" not in words:
                text = f"its weights are the same in every draw, and do not follow the reference's law ({text})"
                yield not_tried(text, "build it with new weights", probe="initialisation")
            else:
                yield failed(text, probe="initialisation")

    def _drawn(self, layers: Sequence[LayerPair], drawn: Mapping[str, Draw]) -> list[DrawnWeight]:
        found = []
        titles = {"convolution": "convolutions", "linear": "linear layers", "normalisation": "normalisations"}
        for mine, theirs in layers:
            for role, name in theirs.weights.items():
                own = mine.weights.get(role, "")
                if name in drawn and all(own in each for each in self._model.arrays):
                    what = {"weight": "scales" if mine.kind == "normalisation" else "weights", "bias": "biases"}
                    title = f"{what.get(role, role)} of {titles.get(mine.kind, mine.kind)}"
                    values = [each[own] for each in self._model.arrays]
                    found.append(DrawnWeight(mine.name, title, mine, values, drawn[name], theirs))
        return found

    def _last_normalisations(self, members: Sequence[DrawnWeight]) -> bool:
        """Whether these weights are zeros, and the scales of the normalisations before additions."""
        if not all(each.layer.kind == "normalisation" and not np.any(each.values[0]) for each in members):
            return False
        layers = self._mine.layers
        joins = [each for each in layers if each.kind in JOINS]
        last = {layers[at].name for join in joins for at in join.inputs if at >= 0}
        return bool(joins) and {each.place for each in members} <= last

    def _same_function(self, layers: Sequence[LayerPair]) -> Iterator[Finding]:
        """Both compute with the model's weights."""
        matched = self._matched(layers)
        wanted = {each.name: each for each in self._reference.parameters}
        held = self._model.arrays[0]
        if set(wanted) - set(matched) or any(own not in held for own, _ in matched.values()):
            words = "not all of the reference's weights have a counterpart in the layers that pair"
            yield not_tried(words, probe="same function")
            return
        try:
            yield from self._compared(matched)
        except (LevelbenchError, RuntimeError) as error:
            said = f"{error.asked}: {error.found}" if isinstance(error, LevelbenchError) else str(error).splitlines()[0]
            yield not_tried(said, probe="same function")

    def _compared(self, matched: Mapping[str, tuple[str, bool]]) -> Iterator[Finding]:
        backend, model, reference = self._backend, self._model, self._reference
        mine: Executor
        if model.native is not None:
            mine, network = backend.native(model.native), reference.with_loss().training()
            held = _arrays(backend, model.native)
        else:
            assert model.network is not None
            held = dict(model.arrays[0])
            own_network = inferring(model.network)
            if own_network.opsets.get("", DEFAULT_OPSET) < OPSETS[0]:
                own_network = raised(own_network, DEFAULT_OPSET)
            mine, network = backend.executor(own_network, held, trains=False), reference
        parameters = {
            name: np.array(held[own].T if turned else held[own]).reshape(
                next(each.shape for each in reference.parameters if each.name == name)
            )
            for name, (own, turned) in matched.items()
        }
        theirs = backend.executor(network, parameters, trains=model.native is not None)
        fixed = model.network.inputs[0].shape if model.network is not None else None
        batch = _BATCH if not fixed else fixed[0] if isinstance(fixed[0], int) else 1
        values = list(reference.make_inputs(batch, self._seed).values())
        inputs = [backend.array(each) for each in values]
        outputs = [backend.host(each.infer(*inputs)[0]) for each in (mine, theirs)]
        if deviation := _deviates(outputs[0], outputs[1], _AGREES):
            words = f"the layers pair, but with the same weights the outputs deviate by {deviation:.2g} of their range"
            yield failed(
                words, "look for what is not a layer: precision (autocast), constants, hooks", probe="same function"
            )
            return
        if model.native is None:
            yield passed("with the same weights, outputs agree", probe="same function")
            return
        if any(each.kind == "dropout" for each in self._mine.layers):
            yield passed("with the same weights, outputs agree; dropout is random", probe="same function")
            return
        labels = np.arange(_BATCH) % outputs[0].shape[-1]
        gradients = [each.infer_and_backprop(*inputs, backend.array(labels))[1] for each in (mine, theirs)]
        for name, (own, turned) in matched.items():
            live = [gradients[0].get(own), gradients[1].get(name)]
            if live[0] is None or live[1] is None:
                pair = [held_.get(key) for held_, key in ((mine.buffers, own), (theirs.buffers, name))]
                # PyTorch keeps the unbiased variance, ONNX the biased one.
                what = "running means" if "var" not in name else ""
            else:
                pair, what = live, "gradients"
            if pair[0] is None or pair[1] is None or not what:
                continue
            a, b = (np.asarray(backend.host(each)) for each in pair)
            limit = _GRADIENTS_AGREE if what == "gradients" else _STEP_AGREES
            if deviation := _deviates(a.T if turned else a, b, limit, whole=what == "gradients"):
                words = f"outputs agree, but after a training step the {what} of {own} deviate by {deviation:.2g}"
                yield failed(words, probe="same function")
                return
        words = "with the same weights, outputs agree, and so do gradients and statistics of a training step"
        yield passed(words, probe="same function")

    def _sizes(self, sizes: Mapping[str, Mapping[str, int]], wrong: bool) -> Iterator[Finding]:
        for key in ("parameters", "multiply_adds"):
            mine, theirs = sizes["model"][key], sizes["reference"][key]
            title = key.replace("_", "-")
            if mine == theirs:
                yield passed(f"{mine:,}, as the reference", probe=title)
                continue
            words = f"{mine:,} instead of {theirs:,} ({(mine - theirs) / theirs:+.1%})"
            if key == "parameters" and (unread := self._unread()):
                words += f"; nothing reads {_places(unread)}"
            explained = wrong or ((self._folded or self._file) and key == "parameters")
            yield replace(noted(words) if explained else failed(words, "find what nothing reads"), probe=title)

    def _unread(self) -> list[str]:
        """Trainable arrays that no layer before the output has."""
        read = {name.removesuffix(" (computed)") for layer in self._mine.layers for name in layer.weights.values()}
        return [name for name in self._mine.sizes if name not in read]

    def _listed(self) -> Iterator[Mapping[str, Any]]:
        """The pairs, for programs."""
        for mine, theirs in self._pairs[1:]:
            yield {
                "model": None if mine is None else _entry(mine),
                "reference": None if theirs is None else _entry(theirs),
            }


def _entry(step: MainLayer) -> dict[str, Any]:
    layer = step.layer
    settings = {name: list(value) if isinstance(value, tuple) else value for name, value in layer.settings.items()}
    return {"kind": layer.kind, "name": layer.name, "shape": list(layer.shape), "settings": settings}


def _places(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(each for each in names if each))
    more = f" and {len(unique) - 3} more" if len(unique) > 3 else ""
    return ", ".join(unique[:3]) + more


def _deviates(a: NDArray[Any], b: NDArray[Any], limit: float, *, whole: bool = False) -> float:
    """The largest deviation relative to the largest value, or the ``whole`` by norms, if above the limit; else 0."""
    if a.shape != b.shape:
        a = a.reshape(b.shape) if a.size == b.size else np.full(b.shape, np.nan)
    order = None if whole else np.inf
    scale = float(np.linalg.norm(b.ravel(), order)) or 1.0
    deviation = float(np.linalg.norm((a.astype(np.float64) - b).ravel(), order)) / scale
    return deviation if not deviation <= limit else 0.0
