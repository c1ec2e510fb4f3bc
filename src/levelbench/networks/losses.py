"""Makes a network trainable: adds a loss, and puts operators into training mode.

A loss is a node like any other, so every framework differentiates the same graph, and the loss is exactly what ONNX
defines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from levelbench.errors import DefinitionError, UsageError
from levelbench.networks.inspect import is_standard, names_in
from levelbench.networks.values import Shape, Value, element_type, free_name, value_info

if TYPE_CHECKING:
    from levelbench.networks.network import Network

LOSSES = ("cross-entropy", "soft-cross-entropy", "mse", "huber", "binary-cross-entropy", "focal")
"""The first two are of classes; all others compare each number of the output with one of ``targets``."""
_ON = "training_mode.on"


def with_loss(
    network: Network,
    kind: str,
    output: str | None,
    axis: int | None,
    smoothing: float = 0.0,
    *,
    delta: float = 1.0,
    gamma: float = 2.0,
    targets: str | None = None,
) -> Network:
    """The network with an additional input, ``labels`` or ``targets``, and the scalar output ``loss``.

    ``cross-entropy`` is the mean of -log softmax(output)[label], with classes on ``axis``: by default the last up to
    rank 3, and axis 1 for images; labels are int64 with the shape of the other axes. ``soft-cross-entropy`` is the mean
    of -sum(labels * log softmax(output)) over classes, with labels of the output's shape and type: the share of each
    class; of scores of a relevant item and others that were drawn, it is a sampled softmax, and with one other item BPR
    (Rendle et al. 2009). ``smoothing`` is the share of each label that is spread evenly over all classes (Szegedy et
    al. 2016, section 7).

    The others are means over all numbers of the output, with ``targets`` of its shape, and of its type or of the one
    that the argument ``targets`` names, such as uint8 for pixels: ``mse`` of the squared
    differences; ``huber`` of half of them up to ``delta`` and of delta (|difference| - delta / 2) beyond (Huber 1964);
    ``binary-cross-entropy`` of -t log p - (1 - t) log(1 - p), where p is the logistic function of the output and t the
    target from 0 to 1; ``focal`` of -(1 - q)^gamma log q, where q is p for a target of 1 and 1 - p for one of 0 (Lin et
    al. 2017, equation 4). ``output`` is a name; default: the first output.
    """
    graph, value = LossSplice(network), _chosen(network, output)
    if value.shape is None or not value.dtype:
        raise DefinitionError(f"a loss of {value.name!r}", "its shape is unknown", "save the model with shapes")
    of_classes = kind in LOSSES[:2]
    if not 0 <= smoothing < 1 or (smoothing and not of_classes):
        found = f"smoothing={smoothing:g}" if of_classes else f"targets of {kind} are not classes that can be smoothed"
        do = "give smoothing from 0 to below 1, and only for classes"
        raise UsageError(f"loss {kind!r} of {value.name!r}", found, do)
    if kind == "cross-entropy":
        _cross_entropy(graph, value, axis, smoothing)
    elif kind == "soft-cross-entropy":
        _soft_cross_entropy(graph, value, axis, smoothing)
    elif kind in LOSSES:
        if not (delta > 0 and gamma >= 1):
            found, do = f"delta={delta:g}, gamma={gamma:g}", "give a delta above 0 and a gamma of 1 or more"
            raise UsageError(f"loss {kind!r} of {value.name!r}", found, do)
        given = graph.input("targets", targets or value.dtype, value.shape or ())
        if targets and targets != value.dtype:
            given = graph.node("Cast", [given], "loss.targets", to=element_type(value.dtype))
        each = _OF_NUMBERS[kind](graph, value, given, gamma if kind == "focal" else delta)
        graph.node("ReduceMean", [each], graph.loss, keepdims=0)
    else:
        raise UsageError(f"loss {kind!r}", "there is no such loss", f"give one of {', '.join(LOSSES)}")
    return graph.network(value.dtype)


def with_token_loss(network: Network) -> Network:
    """The network with the input ``labels`` (batch, length) and the scalar output ``loss``.

    It is the mean of -log softmax(logits)[label] over labels other than 0 (padding); logits are the first output,
    (batch, length, tokens). The labels themselves say which positions count, so no mask is needed.
    """
    graph, logits = LossSplice(network), network.outputs[0]
    shape = logits.shape or ()
    if len(shape) != 3:
        raise DefinitionError(f"a token loss for {network.name}", f"its output is {shape}", "give it 3 axes")
    labels = graph.input("labels", "int64", shape[:2], shape[2])
    moved = graph.node("Transpose", [logits.name], "loss.logits", perm=[0, 2, 1])
    graph.node("SoftmaxCrossEntropyLoss", [moved, labels], graph.loss, ignore_index=0, reduction="mean")
    return graph.network()


def with_ctc_loss(network: Network, most: int) -> Network:
    """The network with the input ``labels`` (batch, most) and the scalar output ``loss`` of CTC.

    Its first output are logits (batch, frames, symbols), of which symbol 0 is the blank. Labels are int64 symbols from
    1, and zeros fill up after the last. The loss is the mean over examples of -log p(labels), where p is the sum over
    all ways to say the labels in that many frames: each for one frame or more, blanks between them at will, and one at
    least between equal ones (Graves et al. 2006, equations 3 to 8). All frames count, so what comes after the last
    label has to be silence. PyTorch's ``reduction="mean"`` divides by the number of labels, too, and this does not.

    :raises DefinitionError: when the output has other axes, or so few frames that ``most`` equal labels do not fit.
    """
    logits, asked = network.outputs[0], f"a CTC loss for {network.name}"
    batch, *sizes = logits.shape or ("batch",)
    if len(sizes) != 2 or not all(isinstance(each, int) for each in sizes):
        do = "give it logits (batch, frames, symbols), the last two fixed"
        raise DefinitionError(asked, f"its output has the shape {logits.shape}", do)
    frames, symbols = (int(str(each)) for each in sizes)
    if not 1 <= most <= (frames + 1) // 2:
        do = "give it one label or more, and 2 most - 1 frames or more"
        raise DefinitionError(asked, f"it has {frames} frames for at most {most} labels", do)
    graph = LossSplice(network)
    node, labels = LossNodes(graph), graph.input("labels", "int64", (batch, most), symbols)
    # Sums over hundreds of frames are not for half precision.
    number: Any = np.float64 if logits.dtype == "float64" else np.float32
    real, never = element_type(np.dtype(number).name), number(-1e30)  # an infinity would become NaN
    chances = node("LogSoftmax", logits.name, axis=2)
    if logits.dtype != np.dtype(number).name:
        chances = node("Cast", chances, to=real)
    # The states are blank, label, blank, label, ..., blank.
    places = np.zeros(2 * most + 1, np.int64)
    places[1::2] = np.arange(most) + 1
    states = node("Gather", node("Pad", labels, np.array([0, 1, 0, 0])), places, axis=1)
    hot = node("OneHot", states, np.array(symbols), np.array([0, 1], number), axis=1)
    seen = node.split(node("MatMul", chances, hot), frames, 1)
    # To a state come itself, the one before, and the one before that unless it is the same: a blank, or its equal.
    at, step = np.arange(len(places)), np.array([1])
    sources = np.maximum(at[:, None] - np.arange(3), 0)
    barred = np.where(at[:, None] < np.arange(3), never, number(0))
    same = node("Equal", states, node("Gather", states, np.where(at < 2, at, at - 2), axis=1))
    twice = node("Mul", node("Cast", node("Unsqueeze", same, np.array([2])), to=real), np.array([0, 0, never], number))
    moves = node("Add", twice, barred)
    reached = node("Add", node("Squeeze", seen[0], step), np.where(at < 2, number(0), never))
    for each in seen[1:]:
        ways = node("Add", node("Gather", reached, sources, axis=1), moves)
        reached = node("Add", node("ReduceLogSumExp", ways, np.array([2]), keepdims=0), node("Squeeze", each, step))
    # The end is the last label, or the blank after it.
    filled = node("Cast", node("Greater", labels, np.array(0)), to=real)
    last = node("Mul", node("ReduceSum", filled, step, keepdims=1), number(2))
    away = node("Abs", node("Sub", (at + 0.5).astype(number), last))
    ends = node("Mul", node("Cast", node("Greater", away, number(1)), to=real), never)
    likely = node("ReduceLogSumExp", node("Add", reached, ends), step, keepdims=0)
    loss = node("Neg", node("ReduceMean", likely, keepdims=0))
    graph.node("Cast", [loss], graph.loss, to=element_type(logits.dtype))
    return graph.network(logits.dtype)


def with_span_loss(network: Network) -> Network:
    """The network with the inputs ``starts`` and ``ends`` (batch,), numbers of tokens, and the scalar output ``loss``.

    It is the mean of -log softmax(start logits)[start] - log softmax(end logits)[end] (Seo et al. 2017, equation 5);
    the logits are the first two outputs, (batch, length).
    """
    graph, parts = LossSplice(network), []
    for output, name in zip(network.outputs[:2], ("starts", "ends"), strict=True):
        shape = output.shape or ("batch", 1)
        length = shape[-1] if isinstance(shape[-1], int) else network.sizes.get(str(shape[-1]), 1)
        labels = graph.input(name, "int64", shape[:1], length)
        parts.append(graph.node("SoftmaxCrossEntropyLoss", [output.name, labels], f"loss.{name}", reduction="mean"))
    graph.node("Add", parts, graph.loss)
    return graph.network()


def with_policy_loss(
    network: Network, *, clip: float = 0.2, value_weight: float = 0.5, entropy_weight: float = 0.01
) -> Network:
    """The network with the loss of PPO (Schulman et al. 2017, equations 7 and 9), a mean over examples.

    Its first output are the logits of actions (batch, actions), the second the value of a state (batch,). The new
    inputs are (batch,): ``likely``, the logarithm of the probability that the action had when it was taken,
    ``advantages``, ``returns``, which the values are for, and ``actions`` in int64. The loss is -min(r A, clip(r) A) +
    value_weight (value - return)^2 - entropy_weight entropy, where r is the probability of the action over the one that
    it had, and clip(r) is between 1 - clip and 1 + clip. In the first step after acting r is 1, and the gradient is
    A2C's.
    """
    shapes = [each.shape or () for each in network.outputs[:2]]
    count = shapes[0][-1] if shapes[0] else None
    if [len(each) for each in shapes] != [2, 1] or not isinstance(count, int):
        found = f"its outputs have the shapes {', '.join(map(str, shapes))}"
        do = "give it the logits of the actions (batch, actions) and the value (batch,)"
        raise DefinitionError(f"a policy loss for {network.name}", found, do)
    if not clip > 0 or not value_weight >= 0 or not entropy_weight >= 0:
        found = f"clip={clip:g}, value_weight={value_weight:g}, entropy_weight={entropy_weight:g}"
        raise UsageError(f"a policy loss for {network.name}", found, "give a clip above 0, and weights of 0 or more")
    graph, (logits, value) = LossSplice(network), network.outputs[:2]
    shape, dtype = logits.shape or (), logits.dtype
    old, gains, returns = (graph.input(name, dtype, shape[:1]) for name in ("likely", "advantages", "returns"))
    actions = graph.input("actions", "int64", shape[:1], count)
    chances = graph.node("LogSoftmax", [logits.name], "loss.log_softmax", axis=1)
    unlikely = graph.node("NegativeLogLikelihoodLoss", [chances, actions], "loss.unlikely", reduction="none")
    change = graph.node("Neg", [graph.node("Add", [unlikely, old], "loss.fall")], "loss.change")
    ratio = graph.node("Exp", [change], "loss.ratio")
    bounds = [graph.constant(1 + each, dtype, "loss.bound") for each in (-clip, clip)]
    sides = [ratio, graph.node("Clip", [ratio, *bounds], "loss.clipped")]
    gained = graph.node("Min", [graph.node("Mul", [each, gains], "loss.side") for each in sides], "loss.gained")
    error = graph.node("Sub", [value.name, returns], "loss.error")
    square = graph.scaled(graph.node("Mul", [error, error], "loss.square"), value_weight, dtype, "loss.value")
    each = graph.node("Sub", [square, gained], "loss.each")
    shares = graph.node("Mul", [graph.node("Exp", [chances], "loss.chances"), chances], "loss.shares")
    # The mean over rows of the sum over actions, which is minus the entropy.
    order = graph.scaled(
        graph.node("ReduceMean", [shares], "loss.order", keepdims=0), entropy_weight * count, dtype, "loss.even"
    )
    graph.node("Add", [graph.node("ReduceMean", [each], "loss.mean", keepdims=0), order], graph.loss)
    return graph.network(dtype)


def with_balance(network: Network, weight: float = 0.01) -> Network:
    """A network that has a loss, to which ``weight`` times how unevenly its mixtures use their experts is added.

    For each mixture of experts (of :func:`levelbench.networks.zoo.language.llama`) that is the number of experts times
    the sum over them of f P, where f is the expert's fraction of all choices in the batch and P the mean of the
    router's probabilities for it: 1 if both are even, and at most the number of experts over that of the chosen ones
    (Switch Transformer: Fedus et al. 2021, arXiv:2101.03961, equations 4 to 6, with its weight). Only P has gradients.
    """
    asked = f"balanced experts for {network.name}"
    names = [name for node in network.model.graph.node for name in node.output if name.endswith(".router.shares")]
    if not names or not network.loss:
        found = "it has no loss" if names else "it has no mixture of experts"
        raise DefinitionError(asked, found, "give moe-tiny of the zoo, or one like it, as network.with_loss() makes it")
    if not weight >= 0:
        raise UsageError(asked, f"weight={weight:g}", "give a weight of 0 or more")
    model = network.copied()
    model.graph.output.remove(next(each for each in model.graph.output if each.name == network.loss))
    graph, terms = LossSplice(network.replace(model=model, loss="")), []
    axes = graph.constant([0], "int64", "balance.axes")
    for shares in names:
        picked = shares.removesuffix("shares") + "chosen"
        used, likely = (
            graph.node("ReduceMean", [each, axes], f"balance.{name}", keepdims=0)
            for name, each in (("used", picked), ("likely", shares))
        )
        both = graph.node("ReduceSum", [graph.node("Mul", [used, likely], "balance.both")], "balance.sum", keepdims=0)
        # The mean of what is used is the number of the chosen over that of all experts.
        even = graph.node("ReduceMean", [used], "balance.even", keepdims=0)
        terms.append(graph.node("Div", [both, even], "balance.term"))
    total = graph.node("Sum", terms, "balance.total")
    graph.node("Add", [network.loss, graph.scaled(total, weight, "float32", "balance.weighted")], graph.loss)
    return graph.network()


class LossSplice:
    """A copy of a network's model, to which a loss is added under unused names."""

    def __init__(self, network: Network) -> None:
        if network.loss:
            raise DefinitionError(f"a loss for {network.name}", f"it has one: {network.loss!r}", "use that one")
        self._network, self._model = network, network.copied()
        self._graph, self._taken, self._fills = self._model.graph, names_in(self._model.graph), dict(network.fills)
        self.opset = network.opsets.get("", 0)
        self.loss = free_name("loss", self._taken)

    def input(self, name: str, dtype: str, shape: Shape, high: int | str | None = None) -> str:
        """Add an input; integers are below ``high`` if that is a number."""
        name = free_name(name, self._taken)
        self._graph.input.append(value_info(Value(name, dtype, shape)))
        if isinstance(high, int):
            self._fills[name] = high
        return name

    def node(self, op_type: str, inputs: list[str], output: str, **attributes: object) -> str:
        """Add a node, and name its first output; others that it has to have, as TopK's, are read by nobody."""
        return self.nodes(op_type, inputs, output, onnx.defs.get_schema(op_type).min_output, **attributes)[0]

    def nodes(self, op_type: str, inputs: list[str], output: str, count: int, **attributes: object) -> list[str]:
        """Add a node with ``count`` outputs."""
        names = [output if output == self.loss else free_name(output, self._taken) for _ in range(count)]
        self._graph.node.append(helper.make_node(op_type, inputs, names, name=names[0], **attributes))
        return names

    def constant(self, value: Any, dtype: str, name: str) -> str:
        """Add a constant."""
        name = free_name(name, self._taken)
        self._graph.initializer.append(numpy_helper.from_array(np.array(value, np.dtype(dtype)), name))
        return name

    def rows(self, value: str, *width: int, name: str) -> str:
        """Merge all axes except those of ``width`` into one."""
        return self.node("Reshape", [value, self.constant([-1, *width], "int64", "loss.shape")], name)

    def scaled(self, value: str, factor: float, dtype: str, output: str) -> str:
        """``factor`` times a value of that type."""
        return self.node("Mul", [value, self.constant(factor, dtype, "loss.factor")], output)

    def network(self, dtype: str = "float32") -> Network:
        """The network with its loss, a scalar of that type."""
        self._graph.output.append(helper.make_tensor_value_info(self.loss, element_type(dtype), ()))
        return self._network.replace(model=self._model, fills=self._fills, loss=self.loss)


@final
class LossNodes:
    """Adds nodes to a loss under names of their operators; numbers and arrays among the inputs become constants."""

    def __init__(self, graph: LossSplice) -> None:
        self._graph = graph

    def __call__(self, op_type: str, *inputs: str | NDArray[Any] | np.generic, **attributes: object) -> str:
        """The name of the node's first output."""
        return self._graph.node(op_type, self._given(op_type, inputs), f"loss.{op_type.lower()}", **attributes)

    def split(self, value: str, count: int, axis: int) -> list[str]:
        """``count`` equal parts of a value along an axis."""
        given = self._given("Split", (value, np.ones(count, np.int64)))
        return self._graph.nodes("Split", given, "loss.split", count, axis=axis)

    def _given(self, op_type: str, inputs: Sequence[str | NDArray[Any] | np.generic]) -> list[str]:
        name = f"loss.{op_type.lower()}.constant"
        return [each if isinstance(each, str) else self._graph.constant(each, each.dtype.name, name) for each in inputs]


def _chosen(network: Network, output: str | None) -> Value:
    known = {each.name: each for each in network.outputs}
    if output is None:
        return network.outputs[0]
    if output not in known:
        raise UsageError(f"a loss of {output!r}", f"{network.name} has no such output", f"give {' or '.join(known)}")
    return known[output]


def _classes_axis(logits: Value, axis: int | None) -> int:
    """The axis of the classes, counted from the front."""
    shape = logits.shape or ()
    if len(shape) < 2:
        raise DefinitionError(f"cross-entropy of {logits.name!r}", f"its shape is {shape}", "give (batch, classes)")
    if axis is not None and not -len(shape) <= axis < len(shape):
        asked = f"cross-entropy of {logits.name!r} over axis {axis}"
        raise UsageError(asked, f"its shape is {shape}", "choose another axis")
    return (len(shape) - 1 if len(shape) <= 3 else 1) if axis is None else axis % len(shape)


def _cross_entropy(graph: LossSplice, logits: Value, axis: int | None, smoothing: float) -> None:
    classes_at, shape = _classes_axis(logits, axis), logits.shape or ()
    classes, rank = shape[classes_at], len(shape)
    labels = graph.input("labels", "int64", (*shape[:classes_at], *shape[classes_at + 1 :]), classes)
    given = [logits.name, labels]
    if classes_at != 1:
        if classes_at != rank - 1 or not isinstance(classes, int):
            asked = f"cross-entropy of {logits.name!r} over axis {classes_at}"
            raise DefinitionError(asked, f"its shape is {shape}", "put the classes on axis 1")
        given = [graph.rows(logits.name, classes, name="loss.logits"), graph.rows(labels, name="loss.labels")]
        rank = 2
    if not smoothing:
        graph.node("SoftmaxCrossEntropyLoss", given, graph.loss, reduction="mean")
        return
    hard = graph.node("SoftmaxCrossEntropyLoss", given, "loss.hard", reduction="mean")
    _smoothed(graph, hard, _log_softmax(graph, given[0], 1, rank), smoothing, logits.dtype)


def _soft_cross_entropy(graph: LossSplice, logits: Value, axis: int | None, smoothing: float) -> None:
    classes_at, shape = _classes_axis(logits, axis), logits.shape or ()
    classes = shape[classes_at]
    if not isinstance(classes, int) and graph.opset < 13:
        asked = f"soft cross-entropy of {logits.name!r} over axis {classes_at}"
        do = "give a fixed number of classes, or opset 13 or later"
        raise DefinitionError(asked, f"its shape is {shape}", do)
    labels = graph.input("labels", logits.dtype, shape)
    log_softmax = _log_softmax(graph, logits.name, classes_at, len(shape))
    product = graph.node("Mul", [log_softmax, labels], "loss.product")
    if not isinstance(classes, int):
        axes = graph.constant([classes_at], "int64", "loss.axes")
        product, classes = graph.node("ReduceSum", [product, axes], "loss.product_sum", keepdims=0), 1
    mean = graph.node("ReduceMean", [product], "loss.product_mean", keepdims=0)
    # The mean over rows of the sum over classes, written with the one reduction that is the same in all opsets.
    soft = graph.scaled(mean, -classes, logits.dtype, "loss.soft" if smoothing else graph.loss)
    if smoothing:
        _smoothed(graph, soft, log_softmax, smoothing, logits.dtype)


def _log_softmax(graph: LossSplice, logits: str, axis: int, rank: int) -> str:
    if graph.opset < 13 and axis != rank - 1:
        found = f"opset {graph.opset} applies it to all axes from there on"
        raise DefinitionError(f"log softmax of {logits!r} over axis {axis}", found, "use opset 13 or later")
    return graph.node("LogSoftmax", [logits], "loss.log_softmax", axis=axis)


def _smoothed(graph: LossSplice, loss: str, log_softmax: str, smoothing: float, dtype: str) -> None:
    """(1 - smoothing) loss - smoothing mean(log softmax), which equals smoothing the labels."""
    even = graph.node("ReduceMean", [log_softmax], "loss.log_softmax_mean", keepdims=0)
    kept = graph.scaled(loss, 1 - smoothing, dtype, "loss.kept")
    spread = graph.scaled(even, smoothing, dtype, "loss.spread")
    graph.node("Sub", [kept, spread], graph.loss)


def _squares(graph: LossSplice, value: Value, targets: str, _: float) -> str:
    difference = graph.node("Sub", [value.name, targets], "loss.difference")
    return graph.node("Mul", [difference, difference], "loss.square")


def huber(graph: LossSplice, value: Value, targets: str, delta: float) -> str:
    """C (|d| - c / 2) with c = min(|d|, delta), of each number."""
    size = graph.node("Abs", [graph.node("Sub", [value.name, targets], "loss.difference")], "loss.size")
    cut = graph.node("Min", [size, graph.constant(delta, value.dtype, "loss.delta")], "loss.cut")
    rest = graph.node("Sub", [size, graph.scaled(cut, 0.5, value.dtype, "loss.half")], "loss.rest")
    return graph.node("Mul", [cut, rest], "loss.huber")


def _binary(graph: LossSplice, value: Value, targets: str, _: float) -> str:
    """log(1 + exp(x)) - t x, which neither overflows nor takes the logarithm of zero."""
    product = graph.node("Mul", [value.name, targets], "loss.product")
    return graph.node("Sub", [graph.node("Softplus", [value.name], "loss.softplus"), product], "loss.binary")


def _focal(graph: LossSplice, value: Value, targets: str, gamma: float) -> str:
    """(1 - q)^gamma log(1 + exp(-s)) with s the output for a target of 1, and minus the output for 0."""
    # -s = (1 - 2 t) x
    sign = graph.node(
        "Sub",
        [graph.constant(1.0, value.dtype, "loss.one"), graph.scaled(targets, 2.0, value.dtype, "loss.twice")],
        "loss.sign",
    )
    wrong = graph.node("Mul", [sign, value.name], "loss.wrong")
    power = graph.constant(gamma, value.dtype, "loss.gamma")
    weight = graph.node("Pow", [graph.node("Sigmoid", [wrong], "loss.miss"), power], "loss.weight")
    return graph.node("Mul", [weight, graph.node("Softplus", [wrong], "loss.softplus")], "loss.focal")


_OF_NUMBERS = {"mse": _squares, "huber": huber, "binary-cross-entropy": _binary, "focal": _focal}


def training(network: Network) -> Network:
    """The network with BatchNormalization and Dropout of the top graph in training mode.

    BatchNormalization normalises by the batch, and its new running statistics become the network's ``updates``.
    Executors infer with :func:`inferring` of it. Raises ``DefinitionError`` below opset 14, where BatchNormalization
    has no training mode, and below opset 12, where Dropout has none.
    """
    for op_type, since in (("BatchNormalization", 14), ("Dropout", 12)):
        if network.opsets.get("", 0) < since and any(each.op_type == op_type for each in network.nodes):
            found = f"its opset {network.opsets.get('', 0)} has no training mode for {op_type}"
            raise DefinitionError(f"{network.name} in training mode", found, "convert it with onnx.version_converter")
    if network.in_training:
        return network
    model = network.copied()
    buffers = {each.name for each in network.parameters if not each.trainable}
    updates = dict(network.updates)
    on = free_name(_ON, names_in(model.graph))
    for node in model.graph.node:
        if is_standard(node, "BatchNormalization"):
            _batch_statistics(node, buffers, updates)
        elif is_standard(node, "Dropout"):
            node.input.extend([""] * (2 - len(node.input)))
            del node.input[2:]
            node.input.append(on)
    if any(on in node.input for node in model.graph.node):
        model.graph.initializer.append(numpy_helper.from_array(np.array(True), on))
    return network.replace(model=model, updates=updates, in_training=True)


def inferring(network: Network) -> Network:
    """The network without training mode: reverts :func:`training`, even after other edits.

    A BatchNormalization whose statistics are outputs of the network is left unchanged.
    """
    model = network.copied()
    put_out = {each.name for each in model.graph.output}
    for node in model.graph.node:
        if is_standard(node, "BatchNormalization") and not put_out & set(node.output[1:]):
            for old in [each for each in node.attribute if each.name == "training_mode"]:
                node.attribute.remove(old)
            del node.output[1:]
        elif is_standard(node, "Dropout"):
            del node.input[2:]
    return network.replace(model=model, updates={}, in_training=False)


def _batch_statistics(node: onnx.NodeProto, buffers: set[str], updates: dict[str, str]) -> None:
    for old in [each for each in node.attribute if each.name == "training_mode"]:
        node.attribute.remove(old)
    node.attribute.append(helper.make_attribute("training_mode", 1))
    y = node.output[0]
    del node.output[1:]
    for name, what in zip(node.input[3:5], ("running_mean", "running_var"), strict=True):
        new = f"{y}.{what}"
        node.output.append(new)
        if name in buffers:
            updates[name] = new
