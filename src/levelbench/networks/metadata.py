"""What a network knows and ONNX has no place for, as one JSON property of the model.

The one idea: a saved network is an ordinary ONNX model; a tool that does not know the property loses the draws and the
fills, and nothing that the network computes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import onnx

from levelbench.errors import DefinitionError
from levelbench.networks.values import Parameter

if TYPE_CHECKING:
    from levelbench.networks.network import Network

__all__ = ["KEY", "read", "written"]

KEY = "levelbench.network"


class _Facts(msgspec.Struct, forbid_unknown_fields=True):
    parameters: list[Parameter]
    fills: dict[str, int] = {}
    sizes: dict[str, int] = {}
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
    found = [each.value for each in model.metadata_props if each.key == KEY]
    if not found:
        return {}
    asked = f"the property {KEY!r} of model {model.graph.name!r}"
    try:
        facts = msgspec.json.decode(found[0], type=_Facts)
    except msgspec.MsgspecError as error:
        raise DefinitionError(asked, f"it does not say what a network needs ({error})", "remove the property") from None
    stored = {each.name for each in model.graph.initializer}
    given = {each.name for each in model.graph.input}
    for each in facts.parameters:
        if each.name not in (stored if each.draw is None else given):
            raise DefinitionError(asked, f"the model has no parameter {each.name!r}", "remove the property")
    return msgspec.structs.asdict(facts)
