"""What a network knows and ONNX has no place for, as one JSON property of the model.

A saved network is an ordinary ONNX model; a tool that does not know the property loses the draws and the
fills, and nothing that the network computes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import onnx

from levelbench.errors import DefinitionError
from levelbench.networks.values import Parameter

if TYPE_CHECKING:
    from levelbench.networks.network import Network

KEY = "levelbench.network"


_Fill = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
_Size = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class _Facts(msgspec.Struct, forbid_unknown_fields=True):
    parameters: list[Parameter]
    fills: dict[str, _Fill] = {}
    sizes: dict[str, _Size] = {}
    loss: str = ""
    updates: dict[str, str] = {}
    in_training: bool = False


def written(network: Network) -> onnx.ModelProto:
    """A copy of the model with the property."""
    facts = _Facts(
        list(network.parameters),
        dict(network.fills),
        dict(network.sizes),
        network.loss,
        dict(network.updates),
        network.in_training,
    )
    model = network.copied()
    for old in [each for each in model.metadata_props if each.key == KEY]:
        model.metadata_props.remove(old)
    model.metadata_props.add(key=KEY, value=msgspec.json.encode(facts).decode())
    return model


def read(model: onnx.ModelProto) -> dict[str, Any]:
    """The arguments of a network; none for a model without the property. ``DefinitionError`` where it does not fit."""
    texts = [each.value for each in model.metadata_props if each.key == KEY]
    if not texts:
        return {}
    asked = f"the property {KEY!r} of model {model.graph.name!r}"
    try:
        facts = msgspec.json.decode(texts[0], type=_Facts)
    except msgspec.MsgspecError as error:
        raise DefinitionError(asked, f"it does not say what a network needs ({error})", "remove the property") from None
    except DefinitionError as error:
        raise DefinitionError(asked, f"it has {error.asked}: {error.found}", error.do) from None
    if found := _wrong(facts, model.graph):
        raise DefinitionError(asked, found, "remove the property")
    return msgspec.structs.asdict(facts)


def _wrong(facts: _Facts, graph: onnx.GraphProto) -> str:
    """What the facts name and the graph lacks, or nothing."""
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
