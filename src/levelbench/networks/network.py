"""A network: an ONNX model that knows which of its arrays are parameters, and how they are drawn from a seed.

Networks are immutable: edits return another network, so that plans, transforms and executors can safely share one.
Drawn parameters are inputs of the ONNX graph without a value, which is valid ONNX and takes no space; stored ones are
initialisers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from levelbench.errors import DefinitionError, UsageError
from levelbench.measure.environment.machine import memory_left_bytes
from levelbench.networks.inspect import needed_nodes
from levelbench.networks.values import (
    Parameter,
    Value,
    default_parameters,
    dtype_of,
    make_inputs,
    value_info,
    value_of,
)
from levelbench.operators.node import OperatorNode


class Network:
    """An ONNX model with its parameters; ``model`` must not be modified.

    ``fills`` gives integer inputs an upper bound (a vocabulary), ``sizes`` gives symbolic sizes a default value,
    ``loss`` names the scalar output that is the loss, and ``updates`` maps each buffer to the value that replaces it
    after a training forward.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        parameters: Sequence[Parameter] | None = None,
        *,
        fills: Mapping[str, int] = MappingProxyType({}),
        sizes: Mapping[str, int] = MappingProxyType({}),
        loss: str = "",
        updates: Mapping[str, str] = MappingProxyType({}),
        in_training: bool = False,
    ) -> None:
        """``parameters=None`` guesses those of a foreign model (:mod:`levelbench.networks.values`).

        ``in_training``: it is the result of :meth:`training`, which :meth:`for_inference` reverts.
        """
        self.model = model
        self.parameters = default_parameters(model.graph) if parameters is None else tuple(parameters)
        self.fills, self.sizes = MappingProxyType(dict(fills)), MappingProxyType(dict(sizes))
        self.loss, self.updates = loss, MappingProxyType(dict(updates))
        self.in_training = in_training
        buffers = {each.name for each in self.parameters if not each.trainable} if updates else set()
        if strange := set(updates) - buffers:
            raise DefinitionError(
                f"the updates of {self.name}",
                f"{', '.join(sorted(strange))}: not an untrained array of the network",
                "update buffers: parameters with trainable=False",
            )

    def __repr__(self) -> str:
        return f"Network({self.name!r}: {len(self.model.graph.node)} nodes, {self.parameter_count():,} parameters)"

    @property
    def name(self) -> str:
        """The graph's name."""
        return str(self.model.graph.name)

    @cached_property
    def opsets(self) -> Mapping[str, int]:
        """The imported version of each domain; ONNX's own domain is the empty name."""
        imports = self.model.opset_import
        return {"" if each.domain == "ai.onnx" else each.domain: each.version for each in imports}

    @cached_property
    def inputs(self) -> tuple[Value, ...]:
        """What a caller passes, in the graph's order: the inputs except parameters and initialisers."""
        own = {each.name for each in self.parameters} | {each.name for each in self.model.graph.initializer}
        return tuple(value_of(each) for each in self.model.graph.input if each.name not in own)

    @property
    def has_loss(self) -> bool:
        """Whether one of its outputs is a loss."""
        return bool(self.loss)

    @cached_property
    def outputs(self) -> tuple[Value, ...]:
        """All outputs of the graph except the loss."""
        return tuple(value_of(each) for each in self.model.graph.output if each.name != self.loss)

    @cached_property
    def nodes(self) -> tuple[OperatorNode, ...]:
        """The nodes of the top graph, in an executable order."""
        found = []
        for each in self.model.graph.node:
            domain = "" if each.domain == "ai.onnx" else each.domain
            found.append(OperatorNode.from_proto(each, self.opsets.get(domain, 1)))
        return tuple(found)

    def parameter_count(self) -> int:
        """The number of trainable scalars."""
        return sum(each.size for each in self.parameters if each.trainable)

    def initialise(self, seed: int = 0) -> dict[str, NDArray[Any]]:
        """All parameters and buffers by name: the drawn ones from ``seed``, the others as stored.

        ``UsageError`` if the drawn ones take more than a GiB, and more than the free memory.
        """
        size = sum(each.size * dtype_of(each.dtype).itemsize for each in self.parameters if each.draw is not None)
        if size > 2**30 and size > (left := memory_left_bytes() or size):
            found = f"they take {size / 2**30:.0f} GiB, and {left / 2**30:.1f} GiB are free"
            raise UsageError(f"the parameters of {self.name}", found, "take a smaller network, or one of fewer layers")
        wanted = {each.name for each in self.parameters if each.draw is None}
        stored = {each.name: each for each in self.model.graph.initializer if each.name in wanted}
        return {
            each.name: numpy_helper.to_array(stored[each.name]) if each.draw is None else each.initialise(seed)
            for each in self.parameters
        }

    def make_inputs(
        self, batch: int = 1, seed: int = 0, sizes: Mapping[str, int] = MappingProxyType({})
    ) -> dict[str, NDArray[Any]]:
        """Random inputs by name; see :func:`levelbench.networks.values.make_inputs`."""
        return make_inputs(self.inputs, batch, seed, {**self.sizes, **sizes}, self.fills)

    def replace(self, **changes: Any) -> Network:
        """The same with another ``model``, ``parameters``, ``fills``, ``sizes``, ``loss``, ``updates``..."""
        kept = {name: getattr(self, name) for name in _Facts.__struct_fields__}
        return Network(changes.pop("model", self.model), **{**kept, **changes})

    def copied(self) -> onnx.ModelProto:
        """A copy of the model that may be modified."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        return model

    def stored(self, parameters: Mapping[str, NDArray[Any]]) -> Network:
        """The same with these values as initialisers: a model that any ONNX tool can run."""
        model = self.copied()
        graph = model.graph
        for each in [each for each in graph.input if each.name in parameters]:
            graph.input.remove(each)
        for old in [each for each in graph.initializer if each.name in parameters]:
            graph.initializer.remove(old)
        graph.initializer.extend(
            numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in parameters.items()
        )
        roles = []
        for each in self.parameters:
            value = parameters.get(each.name)
            role = each if value is None else Parameter(each.name, value.shape, value.dtype.name, None, each.trainable)
            roles.append(role)
        return self.replace(model=model, parameters=roles)

    def with_outputs(self, names: Sequence[str]) -> Network:
        """The same with these values as its outputs; unneeded nodes stay. ``DefinitionError`` for unknown values.

        A network with a loss keeps it as one of its outputs.
        """
        from levelbench.networks.shapes import infer_shapes

        declared = {each.name: each for each in (*self.model.graph.output, *self.model.graph.value_info)}
        inferred = {} if all(name in declared for name in names) else infer_shapes(self)
        made = {name for node in self.model.graph.node for name in node.output}
        model = self.copied()
        del model.graph.output[:]
        for name in dict.fromkeys([*names, *([self.loss] if self.loss else [])]):
            if name not in made and name not in {each.name for each in self.inputs}:
                known = ", ".join(sorted(made)[:5])
                raise DefinitionError(
                    f"output {name!r} of {self.name}", "no node makes it", f"choose from {known}, ..."
                )
            if name in declared:
                model.graph.output.append(declared[name])
            elif name in inferred and inferred[name].dtype:
                model.graph.output.append(value_info(inferred[name]))
            else:
                model.graph.output.append(onnx.ValueInfoProto(name=name))
        return self.replace(model=model)

    def with_loss(
        self,
        kind: str = "cross-entropy",
        output: str | None = None,
        *,
        axis: int | None = None,
        smoothing: float = 0.0,
        delta: float = 1.0,
        gamma: float = 2.0,
        targets: str | None = None,
    ) -> Network:
        """The same with a loss of ``output``; see :func:`levelbench.networks.losses.with_loss`."""
        from levelbench.networks.losses import with_loss

        return with_loss(self, kind, output, axis, smoothing, delta=delta, gamma=gamma, targets=targets)

    def with_policy_loss(
        self, *, clip: float = 0.2, value_weight: float = 0.5, entropy_weight: float = 0.01
    ) -> Network:
        """The same with the loss of PPO; see :func:`levelbench.networks.losses.with_policy_loss`."""
        from levelbench.networks.losses import with_policy_loss

        return with_policy_loss(self, clip=clip, value_weight=value_weight, entropy_weight=entropy_weight)

    def training(self) -> Network:
        """The same in training mode; see :func:`levelbench.networks.losses.training`."""
        from levelbench.networks.losses import training

        return training(self)

    @cached_property
    def for_inference(self) -> Network:
        """The network to infer with: without training mode; see :func:`levelbench.networks.losses.inferring`."""
        from levelbench.networks.losses import inferring

        return inferring(self) if self.in_training else self

    def to_proto(self) -> onnx.ModelProto:
        """A copy of the model with metadata for what ONNX has no place for; :meth:`from_proto` reads them."""
        facts = {name: getattr(self, name) for name in _Facts.__struct_fields__}
        model = self.copied()
        for old in [each for each in model.metadata_props if each.key == METADATA_KEY]:
            model.metadata_props.remove(old)
        text = msgspec.json.encode(facts, enc_hook=dict).decode()
        model.metadata_props.add(key=METADATA_KEY, value=text)
        return model

    @classmethod
    def from_proto(cls, model: onnx.ModelProto) -> Network:
        """The network of a model, with parameters from its metadata, or else guessed."""
        return cls(model, **_read(model))


def read_inputs(network: Network) -> list[str]:
    """The inputs on which the outputs (except the loss) depend, in the network's order: those that ``infer`` takes."""
    _, read = needed_nodes(network.model.graph, [each.name for each in network.outputs])
    return [each.name for each in network.inputs if each.name in read]


METADATA_KEY = "levelbench.network"
"""A JSON property of the model. Tools that drop it lose how parameters are drawn, but nothing of the computation."""

_Fill = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
_Size = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class _Facts(msgspec.Struct, forbid_unknown_fields=True):
    """The attributes of a network besides its model."""

    parameters: list[Parameter]
    fills: dict[str, _Fill] = {}
    sizes: dict[str, _Size] = {}
    loss: str = ""
    updates: dict[str, str] = {}
    in_training: bool = False


def _read(model: onnx.ModelProto) -> dict[str, Any]:
    """The arguments of a network; none for a model without the property. ``DefinitionError`` if it does not fit."""
    texts = [each.value for each in model.metadata_props if each.key == METADATA_KEY]
    if not texts:
        return {}
    asked = f"the property {METADATA_KEY!r} of model {model.graph.name!r}"
    try:
        facts = msgspec.json.decode(texts[0], type=_Facts)
    except msgspec.MsgspecError as error:
        raise DefinitionError(asked, f"it does not describe a network ({error})", "remove the property") from None
    except DefinitionError as error:
        raise DefinitionError(asked, f"it has {error.asked}: {error.found}", error.do) from None
    if found := _wrong(facts, model.graph):
        raise DefinitionError(asked, found, "remove the property")
    return msgspec.structs.asdict(facts)


def _wrong(facts: _Facts, graph: onnx.GraphProto) -> str:
    """What the facts name but the graph lacks; empty if nothing."""
    stored = {each.name for each in graph.initializer}
    given = {each.name for each in graph.input}
    made = {name for node in graph.node for name in node.output}
    names: set[str] = set()
    for each in facts.parameters:
        if each.name not in (stored if each.draw is None else given):
            return f"the model has no parameter {each.name!r}"
        if each.name in names:
            return f"it has two parameters {each.name!r}"
        names.add(each.name)
    if facts.loss and facts.loss not in {each.name for each in graph.output}:
        return f"the model has no output {facts.loss!r}, its loss"
    buffers = {each.name for each in facts.parameters if not each.trainable}
    for buffer, value in facts.updates.items():
        if buffer not in buffers:
            return f"the model has no buffer {buffer!r} to update"
        if not value or value not in made:
            return f"no node makes {value!r}, which updates {buffer!r}"
    return ""
