"""Losses of networks whose outputs are sequences: of each token but padding, and of the span that answers a question.

The one idea: which positions count is said by the labels themselves (a label that is ignored), so a loss needs no mask
and is one ONNX operator.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from levelbench.errors import DefinitionError
from levelbench.networks.network import Network
from levelbench.networks.values import Shape, Value, value_info

__all__ = ["with_span_loss", "with_token_loss"]


def with_token_loss(network: Network, *, ignored: int = 0) -> Network:
    """The network with the input ``labels`` (batch, length) and the scalar output ``loss``.

    It is the mean of -log softmax(logits)[label] over the labels that are not ``ignored``; logits are the first
    output, (batch, length, tokens).
    """
    logits = network.outputs[0]
    shape = logits.shape or ()
    if len(shape) != 3:
        raise DefinitionError(f"a loss of the tokens of {network.name}", f"its output is {shape}", "give 3 axes")
    graph = _Graph(network)
    labels = graph.input("labels", shape[:2])
    moved = graph.node("Transpose", [logits.name], "loss.logits", perm=[0, 2, 1])
    graph.node("SoftmaxCrossEntropyLoss", [moved, labels], "loss", ignore_index=ignored, reduction="mean")
    return graph.build({"labels": shape[2]} if isinstance(shape[2], int) else {})


def with_span_loss(network: Network) -> Network:
    """The network with the inputs ``starts`` and ``ends`` (batch,), numbers of tokens, and the scalar output ``loss``.

    It is the mean of -log softmax(start logits)[start] - log softmax(end logits)[end] (Seo et al. 2017, equation 5);
    the logits are the first two outputs, (batch, length).
    """
    graph = _Graph(network)
    parts = []
    for output, name in zip(network.outputs[:2], ("starts", "ends"), strict=True):
        labels = graph.input(name, (output.shape or ("batch",))[:1])
        parts.append(graph.node("SoftmaxCrossEntropyLoss", [output.name, labels], f"loss.{name}", reduction="mean"))
    graph.node("Add", parts, "loss")
    last = (network.outputs[0].shape or (1,))[-1]
    length = last if isinstance(last, int) else network.sizes.get(str(last), 1)
    return graph.build({"starts": length, "ends": length})


class _Graph:
    """A copy of a network's model, to add a loss to."""

    def __init__(self, network: Network) -> None:
        if network.loss:
            raise DefinitionError(f"a loss for {network.name}", f"it has one: {network.loss!r}", "use it as it is")
        self._network, self._model = network, network.copied()

    def input(self, name: str, shape: Shape) -> str:
        """One more input of int64."""
        self._model.graph.input.append(value_info(Value(name, "int64", shape)))
        return name

    def node(self, op_type: str, inputs: list[str], output: str, **attributes: object) -> str:
        """One more node."""
        self._model.graph.node.append(helper.make_node(op_type, inputs, [output], name=output, **attributes))
        return output

    def build(self, fills: dict[str, int]) -> Network:
        """The network with ``loss`` as its loss; ``DefinitionError`` where a name is taken."""
        loss = helper.make_tensor_value_info("loss", TensorProto.FLOAT, ())
        self._model.graph.output.append(loss)
        try:
            onnx.checker.check_model(self._model)
        except onnx.checker.ValidationError as error:
            said = str(error).strip().splitlines()[0]
            raise DefinitionError(f"a loss for {self._network.name}", said, "rename what is there") from None
        return self._network.replace(model=self._model, fills={**self._network.fills, **fills}, loss="loss")
