"""Executes networks and ``torch.nn.Module`` models on PyTorch, eagerly or compiled, with autograd's gradients.

A lowered network is a function of tensors. Under ``torch.compile``, shapes are known at trace time, so the network's
shape arithmetic runs then, in NumPy, and the compiler sees only PyTorch operators.

With bfloat16, parameters stay float32 and the function runs inside PyTorch's autocast. Operators that would lose too
much precision (losses, softmaxes, sums, exponentials) get float32 inputs. Autocast does this fully on a GPU but only in
part on a CPU, so it is done here, for all devices alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelbench.errors import LevelbenchError, UnknownNameError, UnsupportedError, UsageError
from levelbench.frameworks import no_forward
from levelbench.frameworks.torch.arrays import from_numpy, small_to_bytes
from levelbench.frameworks.torch.operators import find
from levelbench.networks.codegen import Lowered
from levelbench.networks.executor import CheckedArrays, Executor, OperatorTime, require_inputs, require_shape
from levelbench.networks.network import Network
from levelbench.operators.contract import Function
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode
from levelbench.operators.program import has_body

if TYPE_CHECKING:
    from levelbench.frameworks.torch.backend import TorchBackend
from torch.nn import functional
from torch.utils import _pytree as pytree

from levelbench.errors import DefinitionError
from levelbench.networks.native import NativeModel, is_keras, keras_arguments, leaves_in_order, refuse_own_training


class LiveTensors(CheckedArrays):
    """Detached tensors that share the storage of a network's own; host arrays may be assigned to them, too."""

    def replaced(self, name: str, held: Tensor, value: Any) -> Tensor:
        if not isinstance(value, Tensor):
            value = from_numpy(np.asarray(value), held.device)
        # copy_ by itself would broadcast a smaller tensor.
        require_shape(name, held.shape, value.shape)
        with torch.no_grad():
            held.copy_(value)
        return held


_CONTROL = ("If", "Loop", "Scan", "SequenceMap")


def compiled(call: Function, *, whole: bool = False) -> Function:
    """A function or module under ``torch.compile``, compiled for each set of shapes; ``whole``: as one graph."""
    with _quiet():
        made: Function = torch.compile(call, fullgraph=whole, dynamic=False)
    return made


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides warnings: PyTorch's compiler uses APIs that PyTorch itself deprecates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Compiled:
    """``Lowered.function`` compiled as one graph (``fullgraph=True, dynamic=False``) for each set of input shapes.

    The first call with new shapes or types traces and compiles, which takes seconds to minutes. It raises
    ``UnsupportedError`` if the network cannot be compiled because it depends on values (If, Loop).
    """

    def __init__(self, lowered: Lowered, name: str) -> None:
        self._lowered, self._name = lowered, name
        self._count = len(lowered.inputs)
        self._made: dict[Any, Callable[..., tuple[Tensor, ...]]] = {}

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        """The outputs."""
        key = tuple([(each.shape, each.dtype) for each in arguments[: self._count]])
        made = self._made.get(key)
        return made(*arguments) if made is not None else self._first(key, arguments)

    def _first(self, key: Any, arguments: Sequence[Tensor]) -> tuple[Tensor, ...]:
        try:
            with _quiet():
                made = compiled(self._trace(arguments), whole=True)
                found: tuple[Tensor, ...] = made(*arguments)
        except torch._dynamo.exc.TorchDynamoException as error:
            raise self._refusal(error) from error
        self._made[key] = made
        return found

    def _trace(self, arguments: Sequence[Tensor]) -> Callable[..., tuple[Tensor, ...]]:
        """The function as a graph of PyTorch operators, traced with fake tensors."""
        # Imported here: it loads PyTorch's symbolic algebra, which an eager executor does not need.
        from torch.fx.experimental.proxy_tensor import make_fx

        # Traced before autograd decomposes the operators, so that the graph can be differentiated like the function.
        trace = make_fx(self._lowered.function, tracing_mode="fake", pre_dispatch=True, _allow_non_fake_inputs=True)
        try:
            graph = trace(*arguments)
        except LevelbenchError:
            raise
        except Exception as error:  # PyTorch has a dozen different errors for code that needs a value
            raise self._refusal(error) from error
        forward: Callable[..., tuple[Tensor, ...]] = graph.forward
        return forward

    def _refusal(self, error: Exception) -> UnsupportedError:
        control = [step.node.title for step in self._lowered.steps if step.node.op_type in _CONTROL]
        error = getattr(error, "inner_exception", error)
        lines = [line for line in str(error).strip().splitlines() if line.strip()]
        found = f"{control[0]} depends on a value" if control else lines[0] if lines else type(error).__name__
        return UnsupportedError(f"{self._name} on torch in mode 'compiled'", found.rstrip("."), "use mode eager")


# Batch normalisation in training mode whose new running statistics are stored but not used in computation.
# PyTorch's kernel updates running statistics itself. They are not differentiated, so the network does not reduce its
# activations a second time for them.


def kept_only(network: Network) -> frozenset[str]:
    """The values whose only use is to update a buffer."""
    read = {name for node in network.model.graph.node for name in node.input}
    subgraphs = any(attribute.HasField("g") for node in network.model.graph.node for attribute in node.attribute)
    shown = {each.name for each in network.model.graph.output}
    return frozenset() if subgraphs else frozenset(network.updates.values()) - read - shown


def updating(node: OperatorNode, otherwise: Function) -> Function:
    """BatchNormalization whose kernel updates the running statistics; ``otherwise`` is the general operator."""
    epsilon, momentum = node["epsilon"], node["momentum"]

    def train(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Any:
        count = x.numel() // x.shape[1]
        if count < 2:
            return otherwise(x, scale, bias, mean, variance)
        new_mean, new_variance = mean.clone(), variance.clone()
        y = torch.batch_norm(x, scale, bias, new_mean, new_variance, True, 1 - momentum, epsilon, True)
        # PyTorch divides the variance by n - 1, ONNX by n: m v + (1 - m) u becomes m v + (1 - m) u (n - 1)/n.
        # Not in place, because autograd has saved the kernel's tensor.
        share = (count - 1) / count
        return y, new_mean, torch.add(new_variance * share, variance, alpha=momentum / count)

    return train


# The network executor. The network is lowered once to a function that makes the same calls as a hand-written module, on
# live leaf tensors, without the module's bookkeeping. PyTorch's functions are called directly; if one of them refuses
# (a dtype without a kernel), they are replaced by operators that have a fallback.


_REFUSALS = (RuntimeError, TypeError, ValueError, UnsupportedError)


class LeafExecutor(Executor):
    """An executor whose trainable parameters are leaf tensors of autograd."""

    trained: dict[str, Tensor]
    """The leaves that the loss may depend on, by name."""
    _leaves: dict[str, Tensor]
    _loss: Tensor | None = None
    _hooks: Sequence[Any] = ()

    def take_loss(self) -> Tensor | None:
        """The loss of the last forward pass with its graph, once."""
        loss, self._loss = self._loss, None
        return loss

    def backward(self) -> Mapping[str, Tensor]:
        """Autograd's gradients of the last forward pass; zero for a parameter that the loss does not depend on."""
        if (loss := self.take_loss()) is None:
            raise no_forward()
        leaves = list(self.trained.values())
        # A loss that does not depend on any parameter has no graph.
        found = torch.autograd.grad(loss, leaves, allow_unused=True) if loss.requires_grad else (None,) * len(leaves)
        gradients = dict(zip(self.trained, found, strict=True))
        return {
            name: torch.zeros_like(leaf) if (gradient := gradients.get(name)) is None else gradient
            for name, leaf in self._leaves.items()
        }

    def on_gradient(self, callback: Callable[[str, Tensor], None] | None) -> bool:
        """Uses hooks on the leaves, which autograd runs one by one; a compiled backward runs them all at the end."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if callback is not None:
            self._hooks = [leaf.register_hook(partial(callback, name)) for name, leaf in self.trained.items()]
        return True


class TorchExecutor(LeafExecutor):
    """A network over leaf tensors; ``parameters`` share their storage, detached, and can be updated in place."""

    network: Network

    def __init__(
        self,
        backend: TorchBackend,
        device: torch.device,
        network: Network,
        parameters: Mapping[str, NDArray[Any]],
        *,
        mode: str,
        trains: bool,
        precision: str = "float32",
        channels_last: bool = False,
    ) -> None:
        """Raises ``UnsupportedError`` for an unsupported operator, ``UnknownNameError`` for an unknown precision.

        With ``trains=False``, outputs are inference tensors (``torch.inference_mode``), which autograd rejects.
        """
        self.network, self.mode, self.precision, self.channels_last = network, mode, precision, channels_last
        self._backend, self._device, self._kept = backend, device, kept_only(network)
        self._numerics = numerics = Numerics(network, device, precision, channels_last)
        # A copy, so that in-place updates do not change the caller's array.
        hosts = {each.name: from_numpy(parameters[each.name], device) for each in network.parameters}
        tensors = {name: numerics.array(name, each) for name, each in hosts.items()}
        trained = [each.name for each in network.parameters if each.trainable]
        live = {name: tensors[name].detach() for name in trained}
        self._leaves = {name: tensors[name].requires_grad_(trains) for name in trained}
        self.trained = {}
        self.parameters = LiveTensors(live)
        self.buffers = LiveTensors({name: each for name, each in tensors.items() if name not in live})
        self._grad_mode = torch.no_grad if trains else torch.inference_mode
        outputs = [each.name for each in network.for_inference.outputs]
        self._infer = _Runner(self, outputs, {**self.parameters, **self.buffers})
        self._updated = [self.buffers[name] for name in network.updates]
        self._forward: _Runner | None = None
        self._every_input = tuple(range(len(network.inputs)))
        if network.loss and trains:
            self._prepare_training()

    def infer(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The network's outputs, without an autograd graph."""
        with self._grad_mode():
            return self._infer(inputs)

    def forward(self, *inputs: Tensor) -> Tensor:
        """The loss, detached; the autograd graph is kept for :meth:`backward`. ``UsageError`` without a loss."""
        if self._forward is None:
            raise self._untrainable()
        chosen = inputs if self._places == self._every_input else self._chosen(inputs)
        self._loss, *updates = self._forward(chosen)
        if updates:
            with torch.no_grad():
                torch._foreach_copy_(self._updated, updates)
        return self._loss.detach()

    def on_gradient(self, callback: Callable[[str, Tensor], None] | None) -> bool:
        return self._forward is not None and super().on_gradient(callback)

    def operator_times(self, *inputs: Tensor, repeats: int = 1) -> list[OperatorTime]:
        """The times of all operators; on a GPU between CUDA events, with work queued ahead of the device."""
        if self.mode != "eager":
            raise _fused("operator", self.mode)
        from levelbench.frameworks.torch.profiling import operator_times

        with self._grad_mode(), self._numerics.around():
            # One warm-up call, so that a fallback has been chosen if one is needed.
            self._infer(inputs)
            laid = self._numerics.inputs(inputs)
            return operator_times(self._infer.lowered, laid, self._infer.arrays, self._device, repeats)

    def step_times(self, *inputs: Tensor, repeats: int = 1) -> tuple[list[OperatorTime], list[OperatorTime]]:
        """As for inference, and between hooks of autograd's nodes for the backward pass."""
        if self.mode != "eager":
            raise _fused("operator", self.mode)
        from levelbench.frameworks.torch.profiling import network_step_times

        # A warm-up step, so that a fallback has been chosen if one is needed.
        self.forward(*inputs)
        self.take_loss()
        assert self._forward is not None
        laid = self._numerics.inputs(self._chosen(inputs))
        with self._numerics.around():
            leaves = list(self.trained.values())
            return network_step_times(self._forward.lowered, laid, self._forward.arrays, leaves, self._device, repeats)

    def lower(self, outputs: Sequence[str], *, bare: bool, training: bool = False) -> Lowered:
        """The network on PyTorch's own functions (``bare``), or on operators with fallbacks."""
        network = self.network if training else self.network.for_inference
        call = self._bare if bare else self._careful
        return Lowered(network, self._backend, outputs=outputs, call=call, constant=self._constant)

    def _constant(self, name: str, value: NDArray[Any]) -> Tensor:
        return self._numerics.array(name, self._backend.array(value))

    def compiled(self, lowered: Lowered) -> Callable[..., tuple[Tensor, ...]]:
        """The lowered function, compiled if the mode says so."""
        if self.mode == "eager":
            return self._numerics.whole(lowered.function, len(lowered.inputs))
        return self._numerics.whole(Compiled(lowered, self.network.name), len(lowered.inputs))

    def _prepare_training(self) -> None:
        outputs = [self.network.loss, *self.network.updates.values()]
        self._forward = forward = _Runner(self, outputs, {**self._leaves, **self.buffers}, training=True)
        read = set(forward.lowered.arrays)
        forward.copy(_overwritten(self.network, forward.lowered))
        self.trained = {name: leaf for name, leaf in self._leaves.items() if name in read}
        names = [each.name for each in self.network.inputs]
        self._places = tuple(names.index(name) for name in forward.lowered.inputs)

    def _chosen(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The inputs that the loss depends on."""
        require_inputs([each.name for each in self.network.inputs], len(inputs))
        return tuple(inputs[at] for at in self._places)

    def _untrainable(self) -> UsageError:
        if not self.network.loss:
            return UsageError(f"training {self.network.name}", "it has no loss", "add one with network.with_loss(...)")
        return UsageError(f"training {self.network.name}", "its executor was made for inference", "use trains=True")

    def _bare(self, node: OperatorNode) -> Function | None:
        return self._numerics.operator(node, self._function(node) or self._converted(node))

    def _careful(self, node: OperatorNode) -> Function | None:
        return self._numerics.operator(node, self._operator(node) or self._converted(node))

    def _converted(self, node: OperatorNode) -> Function | None:
        """The backend's operator if its inputs must be converted (see :class:`Numerics`)."""
        if not self._numerics.concerns(node):
            return None
        forward = self._backend.operator(node).forward
        return forward if len(node.outputs) > 1 else _first(forward)

    def _function(self, node: OperatorNode) -> Function | None:
        """PyTorch's function for a node; ``None`` selects the backend's operator."""
        if node.domain == CUSTOM_DOMAIN:
            return _registered(node) if self.mode == "compiled" else None
        # On the CPU, Gather relies on the kernel's error for negative indices, which does not occur in a trace.
        device = torch.device("meta") if self.mode == "compiled" and node.op_type == "Gather" else self._device
        try:
            function = find(node).make(node, device)
        except UnsupportedError:
            return None
        if node.op_type == "BatchNormalization" and self._kept.issuperset(node.outputs[1:]) and len(node.outputs) == 3:
            return updating(node, function)
        if len(node.outputs) > 1:
            return _complete(node, function)
        return function if node.schema is not None and node.schema.max_output == 1 else _first(function)

    def _operator(self, node: OperatorNode) -> Function | None:
        """The backend's operator if its outputs must be counted; ``None`` leaves it to the lowering."""
        if len(node.outputs) < 2 or has_body(node):
            return None
        return _complete(node, self._backend.operator(node).forward)


def _registered(node: OperatorNode) -> Function:
    """A custom operator registered with PyTorch, so that it is opaque to the compiler."""
    from levelbench.frameworks.torch.custom import function
    from levelbench.operators.custom.definition import create

    return function(create(node))


def _first(function: Function) -> Function:
    """For an operator that may return more outputs than the one that its node names."""

    def first(*inputs: Any) -> Any:
        found = function(*inputs)
        return found[0] if type(found) is tuple else found

    return first


class _TooFewError(UnsupportedError):
    """A node names more outputs than the operator has: no fallback helps."""


def _complete(node: OperatorNode, function: Function) -> Callable[..., tuple[Any, ...]]:
    """For a node with several outputs: always a tuple, with a value for each named output."""
    named = max(at for at, name in enumerate(node.outputs, 1) if name)

    def complete(*inputs: Any) -> tuple[Any, ...]:
        found = function(*inputs)
        if not isinstance(found, tuple):
            found = (found,)
        if len(found) < named:
            asked = f"{named} outputs of {node.title} on torch"
            raise _TooFewError(asked, f"with these attributes it returns {len(found)}", "name no more outputs")
        return found

    return complete


def _overwritten(network: Network, lowered: Lowered) -> set[str]:
    """Updated buffers whose old values autograd or another update may need.

    Running statistics that only a training BatchNormalization reads are not among them: it saves other values.
    """
    read = set(network.updates.values())
    for step in lowered.steps:
        node = step.node
        trains = node.op_type == "BatchNormalization" and not node.domain and node.get("training_mode", 0)
        read.update(step.inputs[:3] if trains else step.inputs, step.captures or ())
    return read.intersection(network.updates)


class _Runner:
    """Computes some of a network's values from its inputs, with bare functions as long as they work."""

    def __init__(
        self, executor: TorchExecutor, outputs: Sequence[str], tensors: Mapping[str, Tensor], *, training: bool = False
    ) -> None:
        self._executor, self._outputs, self._training, self._bare = executor, outputs, training, True
        self.lowered = executor.lower(outputs, bare=True, training=training)
        self.arrays = tuple(tensors[name] for name in self.lowered.arrays)
        self._function = executor.compiled(self.lowered)
        self._copied: frozenset[int] = frozenset()

    def copy(self, names: set[str]) -> None:
        """Pass copies of these arrays at each call, because they are overwritten before the backward pass."""
        self._copied = frozenset(at for at, name in enumerate(self.lowered.arrays) if name in names)

    def __call__(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        arrays = self.arrays
        if self._copied:
            arrays = tuple(each.clone() if at in self._copied else each for at, each in enumerate(arrays))
        try:
            return self._function(*inputs, *arrays)
        except (torch.OutOfMemoryError, _TooFewError):
            raise
        except _REFUSALS as error:
            require_inputs(self.lowered.inputs, len(inputs), error)
            if not self._bare:
                raise
        # Outside the except clause, which would keep alive what the failed call had computed.
        lowered = self._executor.lower(self._outputs, bare=False, training=self._training)
        function = self._executor.compiled(lowered)
        found = function(*inputs, *arrays)
        self.lowered, self._function, self._bare = lowered, function, False
        return found


PRECISIONS = ("float32", "bfloat16")

# The float32 list of PyTorch's autocast on CUDA, in ONNX's names (pytorch.org/docs, "Automatic Mixed Precision").
_WIDE = frozenset({
    "Acos", "Asin", "Cosh", "CumSum", "Exp", "Log", "LogSoftmax", "NegativeLogLikelihoodLoss", "Pow", "Reciprocal",
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd", "ReduceSum",
    "ReduceSumSquare", "Sinh", "Softmax", "SoftmaxCrossEntropyLoss", "Softplus", "Tan",
})  # fmt: skip
_KERNELS = frozenset({"Conv", "ConvTranspose"})


@final
class Numerics:
    """Precision and layout of one executor; for float32 in ONNX's layout, everything passes through unchanged."""

    def __init__(self, network: Network | None, device: torch.device, precision: str, channels_last: bool) -> None:
        """``network`` is ``None`` for a native module. ``UnknownNameError`` for a precision not in ``PRECISIONS``."""
        if precision not in PRECISIONS:
            raise UnknownNameError("precision on torch", precision, PRECISIONS)
        self.precision, self.channels_last = precision, channels_last
        self._device = device
        self._mixed = precision == "bfloat16"
        self._kernels = frozenset(
            node.inputs[1]
            for node in (network.nodes if network is not None else ())
            if channels_last and not node.domain and node.op_type in _KERNELS
        )

    def array(self, name: str, tensor: Tensor) -> Tensor:
        """A copy of a parameter or constant; the weight of a 2-d convolution in channels-last order."""
        if name in self._kernels and tensor.dim() == 4:
            return tensor.clone(memory_format=torch.channels_last)
        # PyTorch cannot copy integers of less than a byte.
        return small_to_bytes(tensor).clone().view(tensor.dtype)

    def inputs(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The inputs, with images in channels-last order."""
        if not self.channels_last:
            return tuple(inputs)
        return tuple(
            each.contiguous(memory_format=torch.channels_last)
            if each.dim() == 4 and each.is_floating_point() and each.shape[1] > 1
            else each
            for each in inputs
        )

    def around(self) -> AbstractContextManager[Any]:
        """The context of a forward pass; a backward needs none, because autograd repeats the forward's types."""
        return torch.autocast(self._device.type, torch.bfloat16) if self._mixed else nullcontext()

    def whole(self, function: Callable[..., tuple[Tensor, ...]], count: int) -> Callable[..., tuple[Tensor, ...]]:
        """A lowered function of ``count`` inputs followed by arrays, in this precision; its outputs are float32."""
        if not self._mixed:
            if not self.channels_last:
                return function
            return lambda *arguments: function(*self.inputs(arguments[:count]), *arguments[count:])

        def mixed(*arguments: Tensor) -> tuple[Tensor, ...]:
            with self.around():
                found = function(*self.inputs(arguments[:count]), *arguments[count:])
            return tuple(_wide(each) for each in found)

        return mixed

    def operator(self, node: OperatorNode, function: Function | None) -> Function | None:
        """The function of a node with its inputs converted; ``None`` stays ``None``."""
        if function is None or not self.concerns(node):
            return function
        give = _plain if node.domain == CUSTOM_DOMAIN else _wide

        def given(*inputs: Any) -> Any:
            return function(*(give(each) if isinstance(each, Tensor) else each for each in inputs))

        return given

    def concerns(self, node: OperatorNode) -> bool:
        """Whether a node's inputs must be converted: for custom operators, and those that would lose precision."""
        if node.domain == CUSTOM_DOMAIN:
            return self._mixed or self.channels_last
        return self._mixed and not node.domain and node.op_type in _WIDE


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor


def _plain(tensor: Tensor) -> Tensor:
    """For custom operators: float32 in ONNX's layout."""
    return _wide(tensor).contiguous()


class TorchModule(LeafExecutor):
    """A ``torch.nn.Module`` on a device: its own parameters and forward, with autograd's gradients.

    Nothing is converted, so what is measured is what the user wrote. ``infer`` runs the module in evaluation mode,
    ``forward`` in training mode. ``parameters`` are those that require a gradient, under the module's own names; frozen
    ones are among the buffers.
    """

    network = None

    def __init__(
        self, model: NativeModel, device: torch.device, *, mode: str = "eager", numerics: Numerics | None = None
    ) -> None:
        """Moves the module to ``device``; ``DefinitionError`` if the model is not a ``torch.nn.Module``."""
        if not isinstance(model.model, torch.nn.Module):
            found = f"it is a {type(model.model).__name__}"
            raise DefinitionError(f"the model {model.name!r} on torch", found, "return a torch.nn.Module")
        self.mode, self._model, self._device = mode, model, device
        self._numerics = numerics or Numerics(None, device, "float32", False)
        # As a training loop does: a module may keep some of its layers in evaluation mode by a train() of its own.
        self._module = model.model.to(device).train()
        if self._numerics.channels_last:
            self._module = self._module.to(memory_format=torch.channels_last)
        called = _keras_called(self._module) if is_keras(self._module) else self._module
        self._call = called if mode == "eager" else compiled(called)
        self._asked = not is_keras(self._module)
        named = dict(_keras_tensors(self._module) if is_keras(self._module) else self._module.named_parameters())
        self._leaves = {name: each for name, each in named.items() if each.requires_grad}
        self.trained = self._leaves
        frozen = {name: each for name, each in named.items() if name not in self._leaves}
        self.parameters = LiveTensors({name: each.detach() for name, each in self._leaves.items()})
        self.buffers = LiveTensors({**frozen, **dict(self._module.named_buffers())})

    def infer(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The tensors that the module returns, in the order of its tuples and dictionaries."""
        if self._module.training:
            self._module.eval()
        with torch.no_grad(), self._numerics.around():
            found = self._call(*self._numerics.inputs(inputs))
        return (found,) if isinstance(found, Tensor) else _tensors(found)

    def forward(self, *inputs: Tensor) -> Tensor:
        """The loss, detached. Takes the module's inputs, then the loss's further arguments, such as labels."""
        if not self._module.training:
            self._module.train()
        # A model that draws its own inputs does not declare their number: all but the labels.
        count = len(self._model.inputs) or len(inputs) - 1
        model, rest = self._model, inputs[count:]
        with self._numerics.around():
            found = self._call(*self._numerics.inputs(inputs[:count]))
            if not self._asked:
                refuse_own_training(self._module, model.name)
                self._asked = True
            loss = model.loss(found, *rest) if callable(model.loss) else _cross_entropy(found, model.smoothing, *rest)
        if not isinstance(loss, Tensor) or loss.dim():
            raise DefinitionError(f"the loss of {self._model.name!r}", "it is not a scalar tensor", "return the mean")
        self._loss = loss
        return loss.detach()

    def operator_times(self, *inputs: Tensor, repeats: int = 1) -> list[OperatorTime]:
        """The times of the innermost modules that run, by path; in mode ``eager`` only."""
        if self.mode != "eager":
            raise _fused("module", self.mode)
        from levelbench.frameworks.torch.profiling import module_times

        return module_times(self._module, lambda: self.infer(*inputs), self._device, repeats)

    def unregistered(self, *inputs: Tensor) -> list[tuple[int, ...]]:
        """Tensors that stay from step to step and would get a gradient of the loss."""
        known = {id(each) for each in (*self.trained.values(), *inputs)}
        steps = []
        for _ in range(2):
            # What a step makes for itself, such as points to differentiate at, is another tensor in the next one.
            self.forward(*inputs)
            loss = self.take_loss()
            steps.append({} if loss is None else {id(each): each for each in _leaves(loss) if id(each) not in known})
        return [tuple(each.shape) for key, each in steps[0].items() if key in steps[1]]

    def operations(self, *inputs: Tensor) -> tuple[float, str] | None:
        """Those of matrix products, convolutions and attention, by PyTorch's own counter; in mode ``eager`` only."""
        if self.mode != "eager":
            return None
        from levelbench.frameworks.torch.profiling import operations

        return operations(lambda: self.infer(*inputs))

    def step_times(self, *inputs: Tensor, repeats: int = 1) -> tuple[list[OperatorTime], list[OperatorTime]]:
        """The times of the innermost modules; what they do not contain, such as the loss, is in no time."""
        if self.mode != "eager":
            raise _fused("module", self.mode)
        from levelbench.frameworks.torch.profiling import module_step_times

        def loss() -> Tensor:
            self.forward(*inputs)
            found = self.take_loss()
            assert found is not None
            return found

        return module_step_times(self._module, loss, list(self.trained.values()), self._device, repeats)


def _leaves(loss: Tensor) -> Iterator[Tensor]:
    """The leaves of autograd's graph that require a gradient."""
    seen, left = set[Any](), [loss.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (leaf := getattr(node, "variable", None)) is not None:
            yield leaf
        left += [following for following, _ in node.next_functions]


def _keras_tensors(model: Any) -> Iterator[tuple[str, Tensor]]:
    """The variables of a Keras model, by the names that they have on other frameworks."""
    for before, some in (("", model.trainable_variables), ("state.", model.non_trainable_variables)):
        yield from ((f"{before}{at}/{each.name}", each.value) for at, each in enumerate(some))


def _keras_called(module: Any) -> Callable[..., Any]:
    """A Keras model asks for the mode with each call, and does not look at the module's."""
    given = keras_arguments(module)
    try:
        nest = module.output
    except AttributeError:
        nest = None  # a model that is a class of its own
    if not isinstance(nest, Mapping):
        return lambda *inputs: module(*given(inputs), training=module.training)

    def ordered(*inputs: Any) -> dict[str, Any]:
        # Keras sorts a dictionary of outputs on PyTorch, and on no other backend.
        found = module(*given(inputs), training=module.training)
        return {name: found[name] for name in nest}

    return ordered


def _fused(what: str, mode: str) -> UnsupportedError:
    return UnsupportedError(f"the time of each {what} in mode {mode!r}", "the compiler fuses them", "use mode eager")


def _tensors(found: Any) -> tuple[Tensor, ...]:
    """All tensors in a module's output: a tuple, a dictionary, a Hugging Face data class."""
    tensors = tuple(each for each in leaves_in_order(found, pytree.tree_leaves) if isinstance(each, Tensor))
    if not tensors:
        raise DefinitionError("a module's output", f"there is no tensor in a {type(found).__name__}", "return one")
    return tensors


def _cross_entropy(found: Any, smoothing: float, labels: Tensor) -> Tensor:
    """The mean of -log softmax(logits)[label]: classes on the last axis up to rank 3, on axis 1 for images."""
    logits = _tensors(found)[0]
    if logits.dim() == 3:
        shares = labels.dim() == 3
        logits, labels = logits.flatten(0, 1), labels.flatten(0, 1) if shares else labels.flatten()
    return functional.cross_entropy(logits, labels, label_smoothing=smoothing)
