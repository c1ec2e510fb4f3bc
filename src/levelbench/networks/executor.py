"""The contract between networks and frameworks: a Backend, a framework opened on a device, makes Executors.

Arrays stay the framework's own. Code that runs a network passes them on without looking inside, and only
``Backend.host`` copies them to the host. An executor's arrays may change their values but not their names and shapes.
Checking the number of inputs costs nothing if it is right.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DefinitionError, UnknownNameError, UnsupportedError, UsageError, nearest
from levelbench.measure.clocks import Clock
from levelbench.measure.meters.base import Meter, NullMeter
from levelbench.measure.timeline import DeviceMarks
from levelbench.networks.codegen import LoweredStep
from levelbench.networks.native import NativeModel, NativeNetwork
from levelbench.networks.network import Network
from levelbench.operators.contract import Array as Array
from levelbench.operators.contract import OperatorBackend

if TYPE_CHECKING:
    from levelbench.networks.layers import LayerGraph


@dataclass(frozen=True)
class OperatorTime:
    """How long an operator took, in seconds, one value per repetition.

    ``index`` is its index in ``network.nodes``, or -1 if it is none of them (a fused operator, a layer of a native
    module); ``output`` is the name of its first output.
    """

    index: int
    title: str
    output: str
    times_s: tuple[float, ...]


def collected_times(steps: Sequence[LoweredStep], runs: Sequence[Sequence[tuple[int, int]]]) -> list[OperatorTime]:
    """The times of several :meth:`Lowered.run_timed`, by step."""
    return [
        OperatorTime(
            step.index,
            step.node.title,
            next((name for name in step.outputs if name), ""),
            tuple(run[at][1] * 1e-9 for run in runs),
        )
        for at, step in enumerate(steps)
    ]


class Executor(ABC):
    """A network on a backend, with live parameters."""

    network: Network | None
    """``None`` for a native module."""
    mode: str
    parameters: MutableMapping[str, Array]
    """The live trainable arrays: updating one in place (``array -= step``) or assigning another array
    (``parameters[name] = array``) changes what the network computes."""
    buffers: MutableMapping[str, Array]
    """The live arrays that are not trained: running statistics."""
    collective: ClassVar[bool] = False
    """Whether forward and backward wait for other ranks, which must make the same calls."""

    @abstractmethod
    def infer(self, *inputs: Array) -> tuple[Array, ...]:
        """The network's outputs. Has no side effects: no gradients, no saved activations.

        Takes the inputs that the outputs depend on, in the network's order: not the labels, which only a loss reads.
        """

    @abstractmethod
    def forward(self, *inputs: Array) -> Array:
        """The loss, a scalar array, for all inputs in the network's order; keeps what :meth:`backward` needs.

        Buffers are updated according to the network's ``updates``.
        """

    @abstractmethod
    def backward(self) -> Mapping[str, Array]:
        """Gradients of the last :meth:`forward` by name of trainable parameter; to be called once after each."""

    def on_gradient(self, callback: Callable[[str, Array], None] | None) -> bool:
        """Call ``callback(name, gradient)`` during :meth:`backward` as soon as a gradient is final.

        The array is the one that :meth:`backward` will return, and must not be written to. The callback is not called
        for parameters that the loss does not depend on. ``None`` removes it. Returns False if this is not supported and
        all gradients come at the end.
        """
        return False

    def infer_and_backprop(self, *inputs: Array) -> tuple[Array, Mapping[str, Array]]:
        """The loss and its gradients."""
        loss = self.forward(*inputs)
        return loss, self.backward()

    def operator_times(self, *inputs: Array, repeats: int = 1) -> list[OperatorTime]:
        """The times of all operators in ``repeats`` inferences; timing each makes the whole slower.

        Raises ``UnsupportedError`` if this mode cannot distinguish operators.
        """
        raise UnsupportedError(
            f"the time of each operator in mode {self.mode!r}", "it cannot distinguish them", "use another mode"
        )

    def unregistered(self, *inputs: Array) -> list[tuple[int, ...]]:
        """The shapes of arrays that the loss has a gradient for but nothing trains, as they are no parameters.

        ``inputs`` are those of :meth:`forward`. Empty where a framework has no such arrays.
        """
        return []

    def operations(self, *inputs: Array) -> tuple[float, str] | None:
        """The floating-point operations of an inference as the framework counts them, and the dtype of most of them.

        A multiply-add is two. ``None`` if the framework cannot count, or found none.
        """
        return None

    def step_times(self, *inputs: Array, repeats: int = 1) -> tuple[list[OperatorTime], list[OperatorTime]]:
        """The times of all operators in ``repeats`` training steps: of the forward pass, and of the backward pass.

        A time of the backward pass has the index and title of the operator whose gradients it computes. Parameters stay
        as they are. Raises ``UnsupportedError`` if this executor cannot distinguish operators, and ``UsageError``
        without a loss.
        """
        raise UnsupportedError(
            f"the time of each operator of a training step in mode {self.mode!r}",
            "it cannot distinguish them",
            "use numpy, or torch in mode eager",
        )


class Backend(OperatorBackend):
    """A framework on one device that executes whole networks."""

    modes: tuple[str, ...] = ("eager",)
    """The ways to execute a network; the first is the default."""

    slices_are_views: bool = True
    """Whether :meth:`split` copies nothing and is cheaper than a gather: then small batches are made in groups."""

    @abstractmethod
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
        """An executor that starts from a copy of these parameters and buffers (``None``: ``network.initialise()``).

        ``trains=False`` promises that only :meth:`Executor.infer` will be called. ``precision="bfloat16"`` computes
        what benefits from it in bfloat16, with parameters, gradients and loss in float32; ``channels_last`` keeps
        images and kernels in that layout. Raises ``UnsupportedError`` for what the framework does not support.
        """

    @abstractmethod
    def take(self, array: Array, indices: Array) -> Array:
        """Rows of ``array`` at ``indices`` (a native array of int64), as a new native array."""

    def rows(self, order: NDArray[np.int64], bounds: Sequence[int]) -> Sequence[Array]:
        """Native indices for :meth:`take`, one array per batch: ``order[bounds[i] : bounds[i + 1]]``."""
        return self.split(self.array(order[bounds[0] : bounds[-1]]), [stop - start for start, stop in pairwise(bounds)])

    def split(self, array: Array, sizes: Sequence[int]) -> Sequence[Array]:
        """The rows of ``array`` in order, in parts of ``sizes``."""
        return [array[start:stop] for start, stop in pairwise(accumulate(sizes, initial=0))]

    def normalise(self, array: Array, shift: Array, scale: Array) -> Array:
        """(array - shift) * scale in float32, rounded after each operation, as a new array; constants are float32."""
        result = array - shift
        result *= scale
        return result

    @abstractmethod
    def mean(self, scalars: Sequence[Array]) -> float:
        """The mean of at least one scalar array, on the host."""

    def marks(self) -> DeviceMarks | None:
        """Points in the work of an asynchronous device, by which a timeline follows it without waiting at each switch.

        ``None`` if it has none: its phases are then read from :meth:`clock`, which waits.
        """
        return None

    def stream_clock(self) -> Clock:
        """A clock for phases on several ranks: it waits for the stream that computes, while others may communicate."""
        return self.clock()

    def draws(self) -> NDArray[Any]:
        """The state of the random number generator, as bytes (uint8) for :meth:`restore_draws`."""
        return np.zeros(0, np.uint8)

    def restore_draws(self, state: NDArray[Any]) -> None:
        """Continue drawing from a state of :meth:`draws`."""

    def stepper(self, rule: Any, parameters: MutableMapping[str, Array]) -> Any | None:
        """A way to apply an update rule to all parameters at once, if it is faster than one by one."""
        return None

    def packer(self, arrays: Mapping[str, Array]) -> Any | None:
        """A :class:`levelbench.distributed.packing.Packer` for arrays like these, of one dtype, with its own buffer.

        ``None``: the generic one, which makes a new flat array each time.
        """
        return None

    def initialise(self, network: Network | NativeNetwork, seed: int) -> dict[str, NDArray[Any]]:
        """All parameters and buffers of ``network``, drawn from ``seed``, on the host.

        A framework's own network is built to get them.
        """
        if not isinstance(network, NativeNetwork):
            return network.initialise(seed)
        with self.building(seed):
            built = self.native(network.model(seed))
        return {name: self.host(value) for name, value in {**built.parameters, **built.buffers}.items()}

    def native(
        self, model: NativeModel, mode: str | None = None, *, precision: str = "float32", channels_last: bool = False
    ) -> Executor:
        """An executor of a model of this framework."""
        raise UnsupportedError(
            f"the {model.framework} model {model.name!r} on {type(self).__name__}",
            "it executes only networks of ONNX operators",
            f"use --framework {model.framework}, or give an ONNX network",
        )

    def build(
        self,
        network: Network | NativeNetwork,
        parameters: Mapping[str, NDArray[Any]],
        *,
        mode: str | None = None,
        precision: str = "float32",
        channels_last: bool = False,
    ) -> Executor:
        """An executor to train with; a framework's own network is built and gets these values."""
        if not isinstance(network, NativeNetwork):
            return self.executor(network, parameters, mode=mode, precision=precision, channels_last=channels_last)
        with self.building(0):
            built = self.native(network.model(0), mode, precision=precision, channels_last=channels_last)
        if not built.parameters:
            do = "build it completely: lazy layers need the shape of an input"
            raise DefinitionError(f"the network {network.name}", "it has no parameters to train", do)
        for live in (built.parameters, built.buffers):
            live.update({name: self.array(np.array(parameters[name])) for name in live})
        return built

    def building(self, seed: int) -> AbstractContextManager[None]:
        """Within this context a framework's own network is built, so that its weights depend only on ``seed``."""
        return nullcontext()

    def profile(self, executor: Executor, inputs: Sequence[Array], repeats: int) -> tuple[str, dict[str, float]]:
        """A profiler's times to compare ours with: its name, and the seconds per type of operator in an inference.

        Raises ``UnsupportedError`` if there is none for this framework or mode.
        """
        raise UnsupportedError(f"a profiler of {type(self).__name__}", "this adapter uses none", "use torch")

    def layers_of(self, model: Any, inputs: Sequence[NDArray[Any]]) -> LayerGraph:
        """The layers of a framework's own model, in training mode; ``UnsupportedError`` if it cannot be traced."""
        raise UnsupportedError(f"the layers of a model on {type(self).__name__}", "it cannot trace", "use torch")

    def memory_meter(self) -> Meter:
        """A meter of the device's memory whose high-water mark ``start`` resets; else a null meter that says why."""
        return NullMeter("peak_memory", "B", f"{type(self).__name__} does not read the memory of its device")

    def chosen_mode(self, mode: str | None) -> str:
        """``mode`` if it exists, the default for ``None``; ``UnknownNameError`` otherwise."""
        if mode is None:
            return self.modes[0]
        if mode not in self.modes:
            raise UnknownNameError(f"mode of {type(self).__name__}", mode, self.modes)
        return mode

    def refuse_other_numbers(self, precision: str, channels_last: bool) -> None:
        """Raise ``UnsupportedError`` unless plain float32 in ONNX's layout is requested."""
        if precision != "float32" or channels_last:
            asked = f"precision {precision!r}" if precision != "float32" else "channels_last"
            raise UnsupportedError(
                f"{asked} on {type(self).__name__}", "it computes in float32 and ONNX's layout", "use torch"
            )


def host_copies(backend: OperatorBackend, arrays: Mapping[str, Array]) -> dict[str, NDArray[Any]]:
    """Copies of native arrays on the host, by name."""
    return {name: np.array(backend.host(each)) for name, each in arrays.items()}


def require_shape(name: str, held: tuple[int, ...], given: tuple[int, ...]) -> None:
    """Raise ``UsageError`` unless an array of shape ``given`` can replace one of shape ``held``."""
    if tuple(given) != tuple(held):
        found = f"it is {tuple(held)}, and the new array {tuple(given)}"
        raise UsageError(f"assigning to parameter {name!r}", found, "give an array of its shape")


class LiveMapping(MutableMapping[str, Array]):
    """A mapping from which nothing can be removed."""

    def __delitem__(self, name: str) -> None:
        raise UsageError(f"removing parameter {name!r}", "the network needs it", "assign zeros to it")

    def __ior__(self, other: Mapping[str, Array]) -> Self:
        self.update(other)
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self)})"


class CheckedArrays(LiveMapping):
    """Arrays by name; :meth:`replaced` defines what an assignment does."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = dict(arrays)

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays themselves, unchecked and only for the executor."""
        return self._arrays

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __setitem__(self, name: str, value: Array) -> None:
        """Raises ``UnknownNameError`` for an unknown name, ``UsageError`` for another shape."""
        if name not in self._arrays:
            raise UnknownNameError("parameter", name, self._arrays)
        held = self._arrays[name]
        # A training step assigns the array that it has updated in place.
        if value is not held:
            self._arrays[name] = self.replaced(name, held, value)

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    @abstractmethod
    def replaced(self, name: str, held: Array, value: Array) -> Array:
        """The array to store when ``value`` is assigned in place of ``held``."""


class LiveArrays(CheckedArrays):
    """NumPy arrays. An assigned value gets the dtype of the old one, as in an assignment to an array."""

    def replaced(self, name: str, held: Array, value: Array) -> Array:
        """A copy, so that an update in place does not affect others that share the assigned array."""
        array = np.array(value, held.dtype)
        require_shape(name, held.shape, array.shape)
        return array


_NAMED = 5


def checked_parameters(network: Network, parameters: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The given arrays, not copied, in the order of the network's parameters and buffers; any dtypes are accepted.

    Names unknown to the network are ignored, so that a part of a network takes the parameters of the whole. Raises
    ``UsageError`` if one is missing or has another shape, and ``UnknownNameError`` if it may be misspelt.
    """
    shapes = {each.name: tuple(each.shape) for each in network.parameters}
    asked = f"the parameters of {network.name}"
    missing = [name for name in shapes if name not in parameters]
    if missing:
        for name in parameters:
            if name not in shapes and nearest(name, missing):
                raise UnknownNameError("parameter", name, missing)
        raise UsageError(asked, f"missing: {_listed(missing)}", "give all of them, as network.initialise() does")
    for name, shape in shapes.items():
        given = np.shape(parameters[name])
        if given != shape:
            raise UsageError(asked, f"{name!r} is {shape}, and the array for it {given}", "give an array of its shape")
    return {name: parameters[name] for name in shapes}


def require_inputs(expected_names: Sequence[str], given_count: int, error: Exception | None = None) -> None:
    """Raise ``UsageError`` if a call had too few or too many inputs, with the framework's error as its cause."""
    if given_count != len(expected_names):
        found = f"there are {len(expected_names)} ({_listed(expected_names)}), and {given_count} were given"
        raise UsageError("the inputs of a call", found, "give one array for each, in this order") from error


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return (", ".join(names[:_NAMED]) or "none") + (f" and {rest} more" if rest > 0 else "")
