"""Executes a network on PyTorch, eagerly or compiled, with autograd's gradients.

The lowered network is a function of tensors. Under ``torch.compile`` shapes are known when it is traced, so the shape
arithmetic of a network runs then, in NumPy, and the compiler gets PyTorch's operators with nothing in between.

Under bfloat16 parameters stay float32, and the function runs inside PyTorch's autocast. What must not lose digits
(losses, softmaxes, sums, exponentials) gets float32; PyTorch does that by itself on a GPU and only in part on a CPU, so
it is done here, alike on every device.
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
from levelbench.frameworks.torch.arrays import from_numpy
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
from levelbench.networks.native import NativeModel


class LiveTensors(CheckedArrays):
    """Detached tensors that share the storage of a network's own; arrays of the host may be put in their places."""

    def replaced(self, name: str, held: Tensor, value: Any) -> Tensor:
        """``held``, with the values of ``value`` in its own dtype."""
        if not isinstance(value, Tensor):
            value = from_numpy(np.asarray(value), held.device)
        # copy_ alone would stretch a smaller tensor.
        require_shape(name, held.shape, value.shape)
        with torch.no_grad():
            held.copy_(value)
        return held


# A lowered network under ``torch.compile``: traced and compiled once for each set of input shapes.
# Shapes are known when it is traced, so the shape arithmetic of a network runs then, in NumPy, and what the compiler
# gets is a graph of PyTorch's operators with nothing in between. That is how ``jax.jit`` traces too.


_CONTROL = ("If", "Loop", "Scan", "SequenceMap")


def compiled(call: Function, *, whole: bool = False) -> Function:
    """A function or module under ``torch.compile``, for each set of shapes anew; ``whole``: in one graph, or not."""
    with _quiet():
        made: Function = torch.compile(call, fullgraph=whole, dynamic=False)
    return made


@contextmanager
def _quiet() -> Iterator[None]:
    """PyTorch's compiler uses what PyTorch itself deprecates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Compiled:
    """``Lowered.function`` compiled whole (``fullgraph=True, dynamic=False``).

    The first call with inputs of new shapes or types traces and compiles, which takes seconds to minutes; it raises
    ``UnsupportedError`` where the network cannot be compiled because it depends on values (If, Loop).
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
        """The function as PyTorch's own operators, on tensors that have shapes and no values."""
        # Here, for it takes PyTorch's symbolic algebra along, which an eager executor does without.
        from torch.fx.experimental.proxy_tensor import make_fx

        # Before autograd takes them apart, so that the graph can be differentiated like the function.
        trace = make_fx(self._lowered.function, tracing_mode="fake", pre_dispatch=True, _allow_non_fake_inputs=True)
        try:
            graph = trace(*arguments)
        except LevelbenchError:
            raise
        except Exception as error:  # PyTorch says in a dozen ways that a value was asked for
            raise self._refusal(error) from error
        forward: Callable[..., tuple[Tensor, ...]] = graph.forward
        return forward

    def _refusal(self, error: Exception) -> UnsupportedError:
        control = [step.node.title for step in self._lowered.steps if step.node.op_type in _CONTROL]
        error = getattr(error, "inner_exception", error)
        lines = [line for line in str(error).strip().splitlines() if line.strip()]
        found = f"{control[0]} depends on a value" if control else lines[0] if lines else type(error).__name__
        return UnsupportedError(f"{self._name} on torch in mode 'compiled'", found.rstrip("."), "use mode eager")


# Batch normalisation in training mode whose new running statistics are only kept, and not computed with.
# PyTorch's kernel updates running statistics as it goes. Nobody differentiates these, so the network need not reduce
# its activations a second time for them.


def kept_only(network: Network) -> frozenset[str]:
    """The values that update a buffer and do nothing else."""
    read = {name for node in network.model.graph.node for name in node.input}
    subgraphs = any(attribute.HasField("g") for node in network.model.graph.node for attribute in node.attribute)
    shown = {each.name for each in network.model.graph.output}
    return frozenset() if subgraphs else frozenset(network.updates.values()) - read - shown


def updating(node: OperatorNode, otherwise: Function) -> Function:
    """BatchNormalization with its running statistics updated by the kernel; ``otherwise`` is the operator itself."""
    epsilon, momentum = node["epsilon"], node["momentum"]

    def train(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Any:
        count = x.numel() // x.shape[1]
        if count < 2:
            return otherwise(x, scale, bias, mean, variance)
        new_mean, new_variance = mean.clone(), variance.clone()
        y = torch.batch_norm(x, scale, bias, new_mean, new_variance, True, 1 - momentum, epsilon, True)
        # PyTorch keeps the variance over n - 1, ONNX the one over n: m v + (1 - m) u becomes m v + (1 - m) u (n - 1)/n.
        # Not in place, for autograd has saved the kernel's.
        share = (count - 1) / count
        return y, new_mean, torch.add(new_variance * share, variance, alpha=momentum / count)

    return train


# Executes a network on PyTorch, eagerly or compiled: autograd's gradients, and tensors that never leave the device.
# The network is lowered once into a function that makes the calls that a hand-written module makes, on live leaf
# tensors, without the module's bookkeeping. PyTorch's own functions are called bare; only once one of them refuses (a
# dtype without a kernel) are they replaced by operators that know another way.


_REFUSALS = (RuntimeError, TypeError, ValueError, UnsupportedError)


class TorchExecutor(Executor):
    """A network over leaf tensors; ``parameters`` are the same storage, detached, to be updated in place."""

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
        """Raises ``UnsupportedError`` for an operator that is not there, ``UnknownNameError`` for a precision.

        With ``trains=False`` outputs are inference tensors (``torch.inference_mode``), which autograd does not take.
        """
        self.network, self.mode, self.precision, self.channels_last = network, mode, precision, channels_last
        self._backend, self._device, self._kept = backend, device, kept_only(network)
        self._numerics = numerics = Numerics(network, device, precision, channels_last)
        # A copy keeps the caller's array out of reach of in-place updates.
        hosts = {each.name: from_numpy(parameters[each.name], device) for each in network.parameters}
        tensors = {name: numerics.array(name, each) for name, each in hosts.items()}
        trained = [each.name for each in network.parameters if each.trainable]
        live = {name: tensors[name].detach() for name in trained}
        self._leaves = {name: tensors[name].requires_grad_(trains) for name in trained}
        self.parameters = LiveTensors(live)
        self.buffers = LiveTensors({name: each for name, each in tensors.items() if name not in live})
        self._grad_mode = torch.no_grad if trains else torch.inference_mode
        outputs = [each.name for each in network.for_inference.outputs]
        self._infer = _Runner(self, outputs, {**self.parameters, **self.buffers})
        self._updated = [self.buffers[name] for name in network.updates]
        self._loss: Tensor | None = None
        self._forward: _Runner | None = None
        self._hooks: list[Any] = []
        self._every_input = tuple(range(len(network.inputs)))
        if network.loss and trains:
            self._prepare_training()

    def infer(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The network's outputs, which carry no graph."""
        with self._grad_mode():
            return self._infer(inputs)

    def forward(self, *inputs: Tensor) -> Tensor:
        """The loss, detached; autograd's graph is kept for :meth:`backward`. ``UsageError`` without a loss."""
        if self._forward is None:
            raise self._untrainable()
        chosen = inputs if self._places == self._every_input else self._chosen(inputs)
        self._loss, *updates = self._forward(chosen)
        if updates:
            with torch.no_grad():
                torch._foreach_copy_(self._updated, updates)
        return self._loss.detach()

    def backward(self) -> Mapping[str, Tensor]:
        """Autograd's gradients of the last forward; zero for a parameter that the loss does not depend on."""
        loss, self._loss = self._loss, None
        if loss is None:
            raise no_forward()
        # A loss that depends on no parameter has no graph.
        nothing = (None,) * len(self._trained)
        found = torch.autograd.grad(loss, self._trained, allow_unused=True) if loss.requires_grad else nothing
        gradients = dict(zip(self._trained_names, found, strict=True))
        for name, gradient in gradients.items():
            if gradient is None:
                gradients[name] = torch.zeros_like(self._leaves[name])
        for name in self._unread:
            gradients[name] = torch.zeros_like(self._leaves[name])
        return gradients

    def on_gradient(self, callback: Callable[[str, Tensor], None] | None) -> bool:
        """By hooks on the leaves, which autograd runs as it comes to each; a compiled backward comes to all at last."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if callback is not None and self._forward is not None:
            named = zip(self._trained_names, self._trained, strict=True)
            self._hooks = [leaf.register_hook(partial(callback, name)) for name, leaf in named]
        return self._forward is not None

    def operator_times(self, *inputs: Tensor, repeats: int = 1) -> list[OperatorTime]:
        """The times of all operators; on a GPU between CUDA events, around work that was queued ahead of it."""
        if self.mode != "eager":
            raise UnsupportedError(
                f"the time of each operator in mode {self.mode!r}", "the compiler fuses them", "use mode eager"
            )
        from levelbench.frameworks.torch.profiling import operator_times

        with self._grad_mode(), self._numerics.around():
            # Once before, so that the way around a refusal has been taken.
            self._infer(inputs)
            laid = self._numerics.inputs(inputs)
            return operator_times(self._infer.lowered, laid, self._infer.arrays, self._device, repeats)

    def lower(self, outputs: Sequence[str], *, bare: bool, training: bool = False) -> Lowered:
        """The network on PyTorch's own functions (``bare``), or on operators that know what to do when these refuse."""
        network = self.network if training else self.network.for_inference
        call = self._bare if bare else self._careful
        return Lowered(network, self._backend, outputs=outputs, call=call, constant=self._constant)

    def _constant(self, name: str, value: NDArray[Any]) -> Tensor:
        return self._numerics.array(name, self._backend.array(value))

    def compiled(self, lowered: Lowered) -> Callable[..., tuple[Tensor, ...]]:
        """The lowered function, as the mode has it."""
        if self.mode == "eager":
            return self._numerics.whole(lowered.function, len(lowered.inputs))
        return self._numerics.whole(Compiled(lowered, self.network.name), len(lowered.inputs))

    def _prepare_training(self) -> None:
        outputs = [self.network.loss, *self.network.updates.values()]
        self._forward = forward = _Runner(self, outputs, {**self._leaves, **self.buffers}, training=True)
        read = set(forward.lowered.arrays)
        forward.copy(_overwritten(self.network, forward.lowered))
        self._trained_names = [name for name in self._leaves if name in read]
        self._trained = [self._leaves[name] for name in self._trained_names]
        self._unread = [name for name in self._leaves if name not in read]
        names = [each.name for each in self.network.inputs]
        self._places = tuple(names.index(name) for name in forward.lowered.inputs)

    def _chosen(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Those that the loss depends on."""
        require_inputs([each.name for each in self.network.inputs], len(inputs))
        return tuple(inputs[at] for at in self._places)

    def _untrainable(self) -> UsageError:
        if not self.network.loss:
            return UsageError(f"training {self.network.name}", "it has no loss", "give it one: network.with_loss(...)")
        return UsageError(f"training {self.network.name}", "its executor was made for inference", "use trains=True")

    def _bare(self, node: OperatorNode) -> Function | None:
        return self._numerics.operator(node, self._function(node) or self._spoken_for(node))

    def _careful(self, node: OperatorNode) -> Function | None:
        return self._numerics.operator(node, self._operator(node) or self._spoken_for(node))

    def _spoken_for(self, node: OperatorNode) -> Function | None:
        """The backend's operator where the numerics have a say in what it is given."""
        if not self._numerics.concerns(node):
            return None
        forward = self._backend.operator(node).forward
        return forward if len(node.outputs) > 1 else _first(forward)

    def _function(self, node: OperatorNode) -> Function | None:
        """PyTorch's function for a node; ``None`` leaves it to the backend's operator."""
        if node.domain == CUSTOM_DOMAIN:
            return _registered(node) if self.mode == "compiled" else None
        # A Gather for the CPU waits for the kernel's complaint about negative indices, and a trace gets none.
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
        """The backend's operator where its outputs are to be counted; ``None`` leaves it to the lowering."""
        if len(node.outputs) < 2 or has_body(node):
            return None
        return _complete(node, self._backend.operator(node).forward)


def _registered(node: OperatorNode) -> Function:
    """A custom operator as one that is registered with PyTorch, so that a compiler takes it for opaque."""
    from levelbench.frameworks.torch.custom import function
    from levelbench.operators.custom.definition import create

    return function(create(node))


def _first(function: Function) -> Function:
    """For an operator that may answer with more outputs than the one that its node names."""

    def first(*inputs: Any) -> Any:
        found = function(*inputs)
        return found[0] if type(found) is tuple else found

    return first


class _TooFewError(UnsupportedError):
    """There is no other way around it."""


def _complete(node: OperatorNode, function: Function) -> Callable[..., tuple[Any, ...]]:
    """For a node of several places for outputs: always a tuple, with a value in each place that has a name."""
    named = max(at for at, name in enumerate(node.outputs, 1) if name)

    def complete(*inputs: Any) -> tuple[Any, ...]:
        found = function(*inputs)
        if not isinstance(found, tuple):
            found = (found,)
        if len(found) < named:
            asked = f"{named} outputs of {node.title} on torch"
            raise _TooFewError(asked, f"with these attributes it gives {len(found)}", "name no more outputs than that")
        return found

    return complete


def _overwritten(network: Network, lowered: Lowered) -> set[str]:
    """Buffers that are updated, and of which autograd or another update may need the old values.

    Not those that only a BatchNormalization reads, as its running statistics while it trains: it saves others.
    """
    read = set(network.updates.values())
    for step in lowered.steps:
        node = step.node
        trains = node.op_type == "BatchNormalization" and not node.domain and node.get("training_mode", 0)
        read.update(step.inputs[:3] if trains else step.inputs, step.captures or ())
    return read.intersection(network.updates)


class _Runner:
    """The way from inputs to some of a network's values, bare as long as that works."""

    def __init__(
        self, executor: TorchExecutor, outputs: Sequence[str], tensors: Mapping[str, Tensor], *, training: bool = False
    ) -> None:
        self._executor, self._outputs, self._training, self._bare = executor, outputs, training, True
        self.lowered = executor.lower(outputs, bare=True, training=training)
        self.arrays = tuple(tensors[name] for name in self.lowered.arrays)
        self._function = executor.compiled(self.lowered)
        self._copied: frozenset[int] = frozenset()

    def copy(self, names: set[str]) -> None:
        """Give the function copies of these arrays at each call, for they are written to before its backward."""
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
        # Outside of the except clause, which would keep all that the failed call had computed.
        lowered = self._executor.lower(self._outputs, bare=False, training=self._training)
        function = self._executor.compiled(lowered)
        found = function(*inputs, *arrays)
        self.lowered, self._function, self._bare = lowered, function, False
        return found


PRECISIONS = ("float32", "bfloat16")

# The float32 list of PyTorch's autocast on CUDA, as ONNX names it (pytorch.org/docs, "Automatic Mixed Precision").
_WIDE = frozenset({
    "Acos", "Asin", "Cosh", "CumSum", "Exp", "Log", "LogSoftmax", "NegativeLogLikelihoodLoss", "Pow", "Reciprocal",
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd", "ReduceSum",
    "ReduceSumSquare", "Sinh", "Softmax", "SoftmaxCrossEntropyLoss", "Softplus", "Tan",
})  # fmt: skip
_KERNELS = frozenset({"Conv", "ConvTranspose"})


@final
class Numerics:
    """Precision and layout of one executor; in plain float32 and ONNX's layout everything passes through untouched."""

    def __init__(self, network: Network | None, device: torch.device, precision: str, channels_last: bool) -> None:
        """``None``: a module of PyTorch's own. ``UnknownNameError`` for a precision that is none of ``PRECISIONS``."""
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
        """A copy of a parameter or constant, a kernel of a convolution over images in channels-last order."""
        if name in self._kernels and tensor.dim() == 4:
            return tensor.clone(memory_format=torch.channels_last)
        return tensor.clone()

    def inputs(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Images in channels-last order, all else as it is."""
        if not self.channels_last:
            return tuple(inputs)
        return tuple(
            each.contiguous(memory_format=torch.channels_last)
            if each.dim() == 4 and each.is_floating_point() and each.shape[1] > 1
            else each
            for each in inputs
        )

    def around(self) -> AbstractContextManager[Any]:
        """What a forward is computed in; a backward is not, for autograd repeats the types of the forward."""
        return torch.autocast(self._device.type, torch.bfloat16) if self._mixed else nullcontext()

    def whole(self, function: Callable[..., tuple[Tensor, ...]], count: int) -> Callable[..., tuple[Tensor, ...]]:
        """A lowered function of ``count`` inputs and then arrays, in these numbers; its outputs are float32."""
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
        """The function of a node, given what it needs; ``None`` stays ``None``."""
        if function is None or not self.concerns(node):
            return function
        give = _plain if node.domain == CUSTOM_DOMAIN else _wide

        def given(*inputs: Any) -> Any:
            return function(*(give(each) if isinstance(each, Tensor) else each for each in inputs))

        return given

    def concerns(self, node: OperatorNode) -> bool:
        """Whether a node is to be given other inputs than it would get: a user's own, and those that lose digits."""
        if node.domain == CUSTOM_DOMAIN:
            return self._mixed or self.channels_last
        return self._mixed and not node.domain and node.op_type in _WIDE


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor


def _plain(tensor: Tensor) -> Tensor:
    """As a custom operator knows tensors: float32 in ONNX's layout."""
    return _wide(tensor).contiguous()


class TorchModule(Executor):
    """A module on a device. ``infer`` runs it in evaluation mode, ``forward`` in training mode.

    ``parameters`` are those that require a gradient, under the module's own names; frozen ones are among the buffers.
    """

    network = None

    def __init__(
        self, model: NativeModel, device: torch.device, *, mode: str = "eager", numerics: Numerics | None = None
    ) -> None:
        """Moves the module to ``device``; ``DefinitionError`` if the model is no ``torch.nn.Module``."""
        if not isinstance(model.model, torch.nn.Module):
            found = f"it is a {type(model.model).__name__}"
            raise DefinitionError(f"the model {model.name!r} on torch", found, "return a torch.nn.Module")
        self.mode, self._model, self._device = mode, model, device
        self._numerics = numerics or Numerics(None, device, "float32", False)
        self._module = model.model.to(device)
        if self._numerics.channels_last:
            self._module = self._module.to(memory_format=torch.channels_last)
        self._call = self._module if mode == "eager" else compiled(self._module)
        self._leaves = {name: each for name, each in self._module.named_parameters() if each.requires_grad}
        frozen = {name: each for name, each in self._module.named_parameters() if name not in self._leaves}
        self.parameters = LiveTensors({name: each.detach() for name, each in self._leaves.items()})
        self.buffers = LiveTensors({**frozen, **dict(self._module.named_buffers())})
        self._loss: Tensor | None = None
        self._hooks: list[Any] = []

    def infer(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The tensors that the module answers with, in the order in which they lie in tuples and dictionaries."""
        if self._module.training:
            self._module.eval()
        with torch.no_grad(), self._numerics.around():
            found = self._call(*self._numerics.inputs(inputs))
        return (found,) if isinstance(found, Tensor) else _tensors(found)

    def forward(self, *inputs: Tensor) -> Tensor:
        """The loss, detached. Takes the module's inputs, then what the loss takes besides the module's answer."""
        if not self._module.training:
            self._module.train()
        # A model that draws its own inputs does not say how many there are: all but the labels.
        count = len(self._model.inputs) or len(inputs) - 1
        model, rest = self._model, inputs[count:]
        with self._numerics.around():
            found = self._call(*self._numerics.inputs(inputs[:count]))
            loss = model.loss(found, *rest) if callable(model.loss) else _cross_entropy(found, model.smoothing, *rest)
        if not isinstance(loss, Tensor) or loss.dim():
            raise DefinitionError(f"the loss of {self._model.name!r}", "it is no scalar tensor", "return the mean")
        self._loss = loss
        return loss.detach()

    def backward(self) -> Mapping[str, Tensor]:
        """Autograd's gradients of the last forward; zero for a parameter that the loss does not depend on."""
        loss, self._loss = self._loss, None
        if loss is None:
            raise no_forward()
        leaves = list(self._leaves.values())
        found = torch.autograd.grad(loss, leaves, allow_unused=True)
        zipped = zip(self._leaves.items(), found, strict=True)
        return {name: torch.zeros_like(leaf) if each is None else each for (name, leaf), each in zipped}

    def on_gradient(self, callback: Callable[[str, Tensor], None] | None) -> bool:
        """By hooks on the leaves, which autograd runs as it comes to each; a compiled backward comes to all at last."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if callback is not None:
            self._hooks = [leaf.register_hook(partial(callback, name)) for name, leaf in self._leaves.items()]
        return True

    def operator_times(self, *inputs: Tensor, repeats: int = 1) -> list[OperatorTime]:
        """The times of the innermost modules that run, by their paths; in mode ``eager``."""
        if self.mode != "eager":
            raise UnsupportedError(
                f"the time of each module in mode {self.mode!r}", "the compiler fuses them", "use mode eager"
            )
        from levelbench.frameworks.torch.profiling import module_times

        return module_times(self._module, lambda: self.infer(*inputs), self._device, repeats)


def _tensors(found: Any) -> tuple[Tensor, ...]:
    """All tensors in an answer: a tuple, a dictionary, a data class of Hugging Face's."""
    tensors = tuple(each for each in pytree.tree_leaves(found) if isinstance(each, Tensor))
    if not tensors:
        raise DefinitionError("a module's answer", f"there is no tensor in a {type(found).__name__}", "return one")
    return tensors


def _cross_entropy(found: Any, smoothing: float, labels: Tensor) -> Tensor:
    """The mean of -log softmax(logits)[label]: classes on the last axis up to rank 3, on axis 1 of images."""
    logits = _tensors(found)[0]
    if logits.dim() == 3:
        shares = labels.dim() == 3
        logits, labels = logits.flatten(0, 1), labels.flatten(0, 1) if shares else labels.flatten()
    return functional.cross_entropy(logits, labels, label_smoothing=smoothing)
