"""PyTorch on one device: operators, whole networks, and tensors that stay on the device until they are requested.

An operator is one call of the function that its maker chose, with autograd's gradients. A missing kernel is recognised
by PyTorch's error message: unsigned integers are retried in a wider type, anything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelbench.errors import DataError, UnsupportedError
from levelbench.frameworks import keras_on
from levelbench.frameworks.torch import TorchFramework
from levelbench.frameworks.torch.arrays import LAYOUTS, TorchPacker, from_numpy, to_numpy, view_of
from levelbench.frameworks.torch.executor import Numerics, TorchExecutor, TorchModule
from levelbench.frameworks.torch.operators import find
from levelbench.measure.ceilings import GemmMaker
from levelbench.measure.clocks import HOST, Clock, DeviceClock
from levelbench.measure.meters.base import Meter
from levelbench.measure.timeline import CudaEvents
from levelbench.networks.executor import Backend, Executor, checked_parameters
from levelbench.networks.layers import LayerGraph
from levelbench.networks.native import NativeModel
from levelbench.networks.network import Network
from levelbench.operators.contract import Array, Operator, Pullback, known_upstream
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode

_NO_KERNEL = (
    "not implemented for",
    "not supported for",
    "not yet supported",
    "No operator found",
    "Expected dtype",
    "is not implemented",
    "Boolean inputs not supported",
    "does not support",
    "is unsupported",
    "Unsupported dtype",
    "expected a floating point",
    "mat1 and mat2 to have the same dtype",
    "Promotion for Float8",
    "not supported with",
)


class TorchOperator(Operator):
    """An ONNX node on tensors of one device.

    :meth:`forward` builds no graph as long as no input requires a gradient; those of ``TorchBackend.array`` do not.
    """

    def __init__(self, node: OperatorNode, device: torch.device) -> None:
        """Raises ``UnsupportedError`` for an operator or attribute that is not supported."""
        self.node = node
        entry = find(node)
        self._function = entry.make(node, device)
        self._unsigned = entry.unsigned
        self._count = len(node.outputs)
        self._gaps = "" in node.outputs

    def forward(self, *inputs: Array) -> tuple[Array, ...]:
        """The outputs; ``UnsupportedError`` if PyTorch has no kernel for these types."""
        try:
            found = self._function(*inputs)
        except (RuntimeError, TypeError, ValueError) as error:
            found = self._again(error, inputs)
        if type(found) is not tuple:
            return (found,)
        return self._named(found) if self._gaps else found[: self._count]

    def vjp(self, *inputs: Array) -> tuple[tuple[Array, ...], Pullback]:
        """The outputs, and autograd's vector-Jacobian product, which may be called more than once."""
        with torch.enable_grad():
            arguments = [_leaf(each) if _differentiable(each) else each for each in inputs]
            outputs = self.forward(*arguments)
        leaves = [each for each in arguments if _differentiable(each)]

        def pullback(*gradients: Array | None) -> tuple[Array | None, ...]:
            pairs = [
                (output, gradient)
                for output, gradient in zip(outputs, gradients, strict=False)
                if gradient is not None and isinstance(output, Tensor) and output.requires_grad
            ]
            found = iter(_gradients(pairs, leaves))
            return tuple(next(found) if _differentiable(each) else None for each in arguments)

        return tuple(each.detach() if isinstance(each, Tensor) else each for each in outputs), pullback

    def backward(
        self, gradients: Sequence[Array | None], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> tuple[Array | None, ...]:
        """The gradients of inputs; recomputes the forward, because autograd saves what it needs only there."""
        return self.vjp(*inputs)[1](*gradients)

    def _named(self, outputs: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(each if name else None for each, name in zip(outputs, self.node.outputs, strict=False))

    def _again(self, error: Exception, inputs: tuple[Array, ...]) -> Any:
        text = str(error)
        if not any(each in text for each in _NO_KERNEL):
            raise error
        if self._unsigned is not None and any(isinstance(each, Tensor) and each.dtype in _WIDE for each in inputs):
            return self._unsigned(self._function, inputs)
        types = sorted({str(each.dtype).removeprefix("torch.") for each in inputs if isinstance(each, Tensor)})
        raise UnsupportedError(
            f"{self.node.title} of {', '.join(types)} on torch", text.splitlines()[0], "use another type or framework"
        ) from error


_WIDE = {torch.uint16, torch.uint32, torch.uint64}


def _differentiable(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _leaf(value: Tensor) -> Tensor:
    return value.detach().requires_grad_()


def _gradients(pairs: list[tuple[Tensor, Tensor]], leaves: list[Tensor]) -> list[Tensor | None]:
    """The gradient of each leaf: zero if no output depends on it, ``None`` if no output has a gradient."""
    if not pairs:
        return [None] * len(leaves)
    outputs, gradients = zip(*pairs, strict=True)
    found: Any = torch.autograd.grad(outputs, leaves, gradients, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(leaf) if each is None else each for each, leaf in zip(found, leaves, strict=True)]


_ROUNDING = "the test expects NumPy's rounding error of 2e-7 where the exact answer, and PyTorch's, is 0"


def lacking_device(device: str) -> str | None:
    """``None`` if PyTorch can use ``device``, else the reason."""
    try:
        kind = torch.device(device)
    except RuntimeError:
        return f"PyTorch has no device {device!r}"
    if kind.type == "cpu":
        return None
    if kind.type != "cuda":
        return f"this adapter runs on cpu and cuda, not on {kind.type}"
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return None if (kind.index or 0) < count else f"PyTorch sees {count} CUDA devices here"


def gemm(dtype: str) -> GemmMaker:
    """Makes a product of two n x n matrices of ``dtype`` on the CPU: 2 n^3 operations per synchronous call."""

    def make(n: int) -> tuple[Callable[[], object], float]:
        a, b = (torch.randn(n, n).to(getattr(torch, dtype)) for _ in range(2))
        return lambda: a @ b, 2.0 * n**3

    return make


class TorchBackend(Backend):
    """PyTorch on one device."""

    modes = TorchFramework.modes
    known_faults = known_upstream(
        dict.fromkeys(("test_dft_inverse", "test_dft_inverse_opset19"), _ROUNDING),
        seen=("2.13.0",),
        here=torch.__version__.partition("+")[0],
    )

    def __init__(self, device: str = "cpu") -> None:
        self._device = torch.device(device)
        if self._device.type == "cuda":
            # float32 means float32 in every framework; by default cuDNN's convolutions round to TF32 (10 bits).
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

    def executor(
        self,
        network: Network,
        parameters: Mapping[str, NDArray[Any]] | None = None,
        *,
        mode: str | None = None,
        trains: bool = True,
        precision: str = "float32",
        channels_last: bool = False,
    ) -> Executor:
        """``eager``: call by call. ``compiled``: by ``torch.compile``, at the first call with new input shapes.

        ``precision`` is ``float32`` or ``bfloat16``, which uses PyTorch's autocast and keeps parameters, gradients,
        losses, softmaxes and sums in float32.
        """
        given = network.initialise() if parameters is None else checked_parameters(network, parameters)
        return TorchExecutor(
            self,
            self._device,
            network,
            given,
            mode=self.chosen_mode(mode),
            trains=trains,
            precision=precision,
            channels_last=channels_last,
        )

    def native(
        self, model: NativeModel, mode: str | None = None, *, precision: str = "float32", channels_last: bool = False
    ) -> Executor:
        """A ``torch.nn.Module`` as an executor; moves it to the device."""
        numerics = Numerics(None, self._device, precision, channels_last)
        return TorchModule(model.on("torch"), self._device, mode=self.chosen_mode(mode), numerics=numerics)

    @contextmanager
    def building(self, seed: int) -> Iterator[None]:
        """Seeds PyTorch's generators, and restores their state afterwards."""
        with keras_on("torch"), torch.random.fork_rng():
            torch.manual_seed(seed)
            yield

    def profile(self, executor: Executor, inputs: Sequence[Tensor], repeats: int) -> tuple[str, dict[str, float]]:
        from levelbench.frameworks.torch.profiling import profile

        return profile(executor, inputs, repeats)

    def layers_of(self, model: Any, inputs: Sequence[NDArray[Any]]) -> LayerGraph:
        from levelbench.frameworks.torch.layers import module_layers

        return module_layers(model, inputs)

    def algorithm(self, operator: Operator, call: Callable[[], object]) -> tuple[str | None, str]:
        """The implementations that oneDNN and MKL name; on a GPU, the kernels that the profiler sees."""
        from levelbench.frameworks.torch.profiling import chosen_algorithm

        return chosen_algorithm(call, self._device)

    def memory_meter(self) -> Meter:
        from levelbench.frameworks.torch.profiling import CudaMemoryMeter

        return CudaMemoryMeter(self._device) if self._device.type == "cuda" else super().memory_meter()

    def array(self, host: NDArray[Any]) -> Tensor:
        """A tensor on the device (on the CPU it may share the host's memory)."""
        return from_numpy(host, self._device)

    def host(self, array: Tensor) -> NDArray[Any]:
        return to_numpy(array)

    def memory(self, array: Tensor) -> NDArray[Any] | None:
        return view_of(array)

    def written(self, array: Tensor) -> None:
        """An empty write counts up the version that rearranged weights are kept for."""
        array.as_strided((0,), (1,)).zero_()

    def channels_last(self, array: Tensor) -> Tensor:
        layout = LAYOUTS.get(array.dim())
        return array if layout is None else array.contiguous(memory_format=layout)

    def operator(self, node: OperatorNode) -> Operator:
        """The operator on this device, including custom ones."""
        if node.domain == CUSTOM_DOMAIN:
            from levelbench.frameworks.torch.custom import custom_operator

            return custom_operator(node)
        return TorchOperator(node, self._device)

    def take(self, array: Tensor, indices: Tensor) -> Tensor:
        return array.index_select(0, indices)

    def stepper(self, rule: Any, parameters: MutableMapping[str, Tensor]) -> Any | None:
        """Updates all tensors at once if the rule is elementwise; also runs PyTorch's own optimizers."""
        from levelbench.frameworks.torch.optimizers import make_stepper

        return make_stepper(rule, self, parameters)

    def split(self, array: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
        """All rows in one call: slices take three times as long."""
        return array.split(sizes)

    def normalise(self, array: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        """Converts bytes first: mixed types would allocate two more arrays."""
        moved = array - shift if array.dtype == torch.float32 else array.float().sub_(shift)
        return moved.mul_(scale)

    def packer(self, arrays: Mapping[str, Tensor]) -> Any:
        return TorchPacker(arrays)

    def mean(self, scalars: Sequence[Tensor]) -> float:
        """The mean, accumulated in float64 on the device: one transfer."""
        return float(torch.stack(list(scalars)).double().mean())

    def seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def draws(self) -> NDArray[Any]:
        """The state of the CPU's generator, followed by that of the device's."""
        states = [torch.get_rng_state()]
        if self._device.type == "cuda":
            states.append(torch.cuda.get_rng_state(self._device))
        return np.concatenate([np.array([len(states[0])], "<u8").view(np.uint8), *(each.numpy() for each in states)])

    def restore_draws(self, state: NDArray[Any]) -> None:
        """Continue from this state; ``DataError`` if it is invalid."""
        host = int(state[:8].view("<u8")[0]) if len(state) >= 8 else 0
        try:
            torch.set_rng_state(torch.from_numpy(state[8 : 8 + host].copy()))
            if self._device.type == "cuda":
                torch.cuda.set_rng_state(torch.from_numpy(state[8 + host :].copy()), self._device)
        except RuntimeError as error:
            raise DataError("the state of PyTorch's generator", f"it is invalid: {error}", "restart the run") from error

    def describe(self) -> dict[str, Any]:
        return {
            "name": "torch",
            "version": str(torch.__version__),
            "device": str(self._device) if self._device.type == "cpu" else torch.cuda.get_device_name(self._device),
            "threads": torch.get_num_threads(),
            "deterministic": self._device.type == "cpu" or torch.are_deterministic_algorithms_enabled(),
        }

    def finish(self, arrays: Sequence[Tensor]) -> None:
        """Wait for the device; calls on the CPU are synchronous."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def clock(self, host: Clock = HOST) -> Clock:
        """The host's clock on the CPU, otherwise one that waits for the device."""
        return host if self._device.type == "cpu" else DeviceClock(_Cuda(self._device), host)

    def marks(self) -> CudaEvents | None:
        return None if self._device.type == "cpu" else CudaEvents(torch.cuda, self._device)

    def stream_clock(self) -> Clock:
        """On CUDA one that waits for the current stream; NCCL's collectives run on streams of their own."""
        return HOST if self._device.type == "cpu" else DeviceClock(_Cuda(self._device, whole=False), HOST)


class _Cuda:
    """A CUDA device for a :class:`DeviceClock`: all of its streams, or only the current one."""

    def __init__(self, device: torch.device, *, whole: bool = True) -> None:
        self.name = str(device)
        self._device, self._whole = device, whole

    def synchronise(self) -> None:
        """Wait for the launched work."""
        if self._whole:
            torch.cuda.synchronize(self._device)
        else:
            torch.cuda.current_stream(self._device).synchronize()
