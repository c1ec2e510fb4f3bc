"""What ranks train and communicate through in checks of schemes: toy networks, an optimizer and a watched communicator.

One network has prescribed gradients, the other one learns. Both compute on the host in float64, whatever framework
holds their parameters, so the effect of a scheme on the gradients is known to rounding. The optimizer is plain gradient
descent that records its arguments. The communicator counts operations, ends a rank that hangs, and can send without
buffers: a rank that is a thread cannot be stopped from outside, so it is ended from within, by its next call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar, cast, final

import numpy as np
from numpy.typing import DTypeLike

from levelbench.checks.arrays import Host
from levelbench.distributed.communicator import Communicator, FunctionHandle, Handle
from levelbench.distributed.communicators.wrapping import WrappingCommunicator
from levelbench.errors import CommunicationError, UsageError
from levelbench.measure.clocks import HOST
from levelbench.networks.executor import Array, Backend, CheckedArrays, Executor, LiveArrays, host_copies, require_shape
from levelbench.training.optimizers.arrays import zeros_like
from levelbench.training.optimizers.base import Stepper
from levelbench.training.optimizers.rules import SGD
from levelbench.training.optimizers.wrappers import WrapperStepper

Floats = Host

FEATURES, TARGETS, _HIDDEN = 5, 3, 8
SHAPES: Mapping[str, tuple[int, ...]] = {
    "hidden.weight": (_HIDDEN, FEATURES),
    "hidden.bias": (1, _HIDDEN),
    "gain": (1, _HIDDEN),
    "output.weight": (TARGETS, _HIDDEN),
    "output.bias": (TARGETS,),
    "scale": (),
    "unused": (4,),
}
"""Parameters of several shapes, two of the same; the last one does not affect the loss of :class:`Regression`."""
LARGE: Mapping[str, tuple[int, ...]] = {
    "table": (1_200_003,),
    "filter": (33, 5, 3, 3),
    "scale": (),
    **{f"{at}.bias": (3,) for at in range(80)},
}
"""Many parameters, of which one has more elements than 2^20, an odd number of them, and one has four axes."""
BUFFERS: Mapping[str, tuple[int, ...]] = {"running_mean": (FEATURES,)}

_RANDOM_GRADIENTS, _PERTURBED = 0x6AD, 0x9E7


def beginning(
    seed: int, apart: int = 0, shapes: Mapping[str, tuple[int, ...]] = SHAPES
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Initial parameters and buffers, float64; different ones for each ``apart``."""
    draws = np.random.default_rng((seed, apart, _PERTURBED))
    parameters = {name: np.asarray(draws.normal(0.0, 0.5, shape)) for name, shape in shapes.items()}
    # Near 1, since a network with zero gain would not learn.
    for name in {"gain", "scale"} & set(shapes):
        parameters[name] = np.asarray(1.0 + 0.2 * parameters[name])
    return parameters, {name: np.asarray(draws.normal(0.0, 1.0, shape)) for name, shape in BUFFERS.items()}


class _Held(CheckedArrays):
    """Live native arrays, as in an executor; JAX's are replaced."""

    def __init__(self, arrays: Mapping[str, Array], backend: Backend) -> None:
        super().__init__(arrays)
        self._backend = backend

    def replaced(self, name: str, held: Array, value: Array) -> Array:
        require_shape(name, held.shape, value.shape)
        if isinstance(value, np.ndarray):
            value = self._backend.array(value)
        if not hasattr(held, "copy_"):
            return value if value.dtype == held.dtype else value.astype(held.dtype)
        held.copy_(value)
        return held


class ToyNetwork(Executor):
    """Live parameters, and gradients that are passed on one by one if requested."""

    network = None
    mode = "eager"

    shapes: Mapping[str, tuple[int, ...]] = SHAPES

    def __init__(self, backend: Backend, seed: int, dtype: DTypeLike, early: bool = False, apart: int = 0) -> None:
        self._backend, self._seed, self._dtype, self._early = backend, seed, dtype, early
        self.parameters, self.buffers = (self._live(each) for each in beginning(seed, apart, self.shapes))
        self._callback: Callable[[str, Array], Array | None] | None = None
        self._gradients: Mapping[str, Floats] | None = None
        self.asked_early = False
        """Whether gradients were requested as they become final."""

    def on_gradient(self, callback: Callable[[str, Array], Array | None] | None) -> bool:
        """Whether ``callback`` is called with each gradient as soon as it is final, starting with the last parameter.

        It is not called for ``unused`` if the loss does not depend on it.
        """
        self.asked_early = self.asked_early or callback is not None
        self._callback = callback if self._early else None
        return self._early

    def infer(self, *inputs: Array) -> tuple[Array, ...]:
        raise UsageError("the outputs of a toy network", "nothing is evaluated", "ask for gradients")

    def backward(self) -> Mapping[str, Array]:
        if self._gradients is None:
            raise UsageError("the gradients of a loss", "no forward came before", "call forward first, once for each")
        host, self._gradients = self._gradients, None
        native: dict[str, Array] = {}
        for name in reversed(list(self.shapes)):
            native[name] = self.native(host[name])
            if self._callback is not None and (name != "unused" or host[name].any()):
                placed = self._callback(name, native[name])
                native[name] = native[name] if placed is None else placed
        return {name: native[name] for name in self.shapes}

    def zeros(self) -> dict[str, Array]:
        """The gradients of a rank without examples."""
        return {name: self.native(np.zeros(shape)) for name, shape in self.shapes.items()}

    def native(self, host: Floats) -> Array:
        """A new native array."""
        return self._backend.array(np.array(host, self._dtype, order="C"))

    def held(self) -> dict[str, Floats]:
        """The current parameters, on the host."""
        return host_copies(self._backend, self.parameters)

    def held_buffers(self) -> dict[str, Floats]:
        """The current buffers, on the host."""
        return host_copies(self._backend, self.buffers)

    def _live(self, host: Mapping[str, Floats]) -> CheckedArrays:
        arrays = {name: self.native(each) for name, each in host.items()}
        if all(isinstance(each, np.ndarray) for each in arrays.values()):
            return LiveArrays(arrays)
        return _Held(arrays, self._backend)


def scripted_gradient(seed: int, rank: int, step: int, large: bool = False) -> Mapping[str, Floats]:
    """The gradient of a rank at a step, of ``SHAPES`` or ``LARGE``: float64, standard normal, read-only."""
    return _large(seed, rank, step) if large else _usual(seed, rank, step)


@lru_cache(maxsize=256)
def _usual(seed: int, rank: int, step: int) -> Mapping[str, Floats]:
    return _drawn(seed, rank, step, SHAPES)


@lru_cache(maxsize=4)
def _large(seed: int, rank: int, step: int) -> Mapping[str, Floats]:
    """Few are kept, since each takes 10 MB: those of two ranks in two steps."""
    return _drawn(seed, rank, step, LARGE)


def _drawn(seed: int, rank: int, step: int, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, Floats]:
    draws = np.random.default_rng((seed, rank, step, _RANDOM_GRADIENTS))
    return {name: np.asarray(draws.standard_normal(shape)) for name, shape in shapes.items()}


class Scripted(ToyNetwork):
    """Gradients that depend only on seed, rank and step, so whatever a scheme makes of them is a sum of known terms."""

    def __init__(
        self,
        backend: Backend,
        seed: int,
        rank: int,
        dtype: DTypeLike,
        early: bool = False,
        apart: int = 0,
        large: bool = False,
    ) -> None:
        self.shapes = LARGE if large else SHAPES
        self._large = large
        super().__init__(backend, seed, dtype, early, apart)
        self._rank = rank
        self.step = 0
        """The step of the next forward, from 1; set it before each."""

    def forward(self, *inputs: Array) -> Array:
        """A loss of 0, with the gradients of this step."""
        self._gradients = scripted_gradient(self._seed, self._rank, self.step, self._large)
        return self.native(np.zeros(()))


class Regression(ToyNetwork):
    """scale · (V (gain · tanh(W x + b)) + c) towards a target, by half the mean squared distance."""

    def forward(self, *inputs: Array) -> Array:
        """The loss of examples (n, FEATURES) and targets (n, TARGETS), n > 0, on the host."""
        examples, targets = (np.asarray(each, np.float64) for each in inputs)
        held = {name: each.astype(np.float64) for name, each in self.held().items()}
        loss, self._gradients = loss_and_gradients(held, examples, targets)
        mean = self.held_buffers()["running_mean"]
        self.buffers["running_mean"] = self.native(0.9 * mean + 0.1 * examples.mean(0))
        return self.native(np.asarray(loss))


def loss_and_gradients(
    held: Mapping[str, Floats], examples: Floats, targets: Floats
) -> tuple[float, dict[str, Floats]]:
    """The loss of :class:`Regression` and its gradients by name, float64."""
    active = np.tanh(examples @ held["hidden.weight"].T + held["hidden.bias"])
    plain = (held["gain"] * active) @ held["output.weight"].T + held["output.bias"]
    away = held["scale"] * plain - targets
    loss = 0.5 * float((away**2).sum(1).mean())
    away = away / len(examples)
    back = held["scale"] * away
    behind = back @ held["output.weight"]
    before = behind * held["gain"] * (1 - active**2)
    return loss, {
        "hidden.weight": before.T @ examples,
        "hidden.bias": before.sum(0, keepdims=True),
        "gain": (behind * active).sum(0, keepdims=True),
        "output.weight": back.T @ (held["gain"] * active),
        "output.bias": back.sum(0),
        "scale": np.asarray((away * plain).sum()),
        "unused": np.zeros(SHAPES["unused"]),
    }


RATE = 0.1
"""The learning rate of runs with scripted gradients."""

SHORT = 12
"""Steps of a run with scripted gradients: enough for what happens every seventh step."""

Note = tuple[int, float, tuple[str, ...]]


@dataclass(frozen=True)
class NotingSGD(SGD):
    """w := w - lr g; ``notes`` records the step, factor and gradient names of each call."""

    notes: list[Note] = field(default_factory=list, compare=False)

    def start(self, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        return _Noting(super().start(backend, parameters), self.notes)


class _Noting(WrapperStepper):
    def __init__(self, inside: Stepper, notes: list[Note]) -> None:
        super().__init__(inside)
        self._notes = notes

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        self._notes.append((step, factor, tuple(gradients)))
        super().step(gradients, step, factor)


T = TypeVar("T")

_ENDLESS = 20
_PATIENCE = 20
"""Communication errors that a rank may swallow before it is ended."""
_RECEIPTS = 10_000_000
"""The offset from a message's tag to that of its receipt."""


class Abandoned(BaseException):
    """Ends a rank that continues although it was told that others are lost; no error handler swallows it."""


@final
class HangDetector:
    """Detects a run that hangs: one in which no rank does anything for ``seconds``.

    Or one that has not ended after twenty times as long, whatever it does. A slow machine alone is not a finding.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._allowed_ns = int(seconds * 1e9)
        self._last_ns = HOST.now_ns()
        self._until_ns = self._last_ns + _ENDLESS * self._allowed_ns

    def beat(self) -> None:
        """Note that a rank does something."""
        self._last_ns = HOST.now_ns()

    @property
    def stopped(self) -> bool:
        """Whether the run hangs."""
        now = HOST.now_ns()
        return now - self._last_ns > self._allowed_ns or now > self._until_ns


@final
class Watched(WrappingCommunicator):
    """Counts the operations of ``inner``.

    Once the run's ``pulse`` has stopped, every operation raises an error. With ``synchronous``, a send completes only
    when it is received, as it may in MPI and NCCL with large messages.
    """

    def __init__(
        self,
        inner: Communicator,
        pulse: HangDetector,
        *,
        synchronous: bool = False,
        tell: Callable[[str], None] = lambda operation: None,
    ) -> None:
        """``tell`` is called with each operation that the rank had, or might have had, to wait for."""
        super().__init__(inner)
        self._pulse, self._synchronous, self.tell = pulse, synchronous, tell
        self.operations = 0
        """The number of operations begun."""
        self.last = "before its first operation"
        """The last operation."""
        self._errors = 0

    def around(
        self, operation: str, call: Callable[[], T], arrays: Sequence[Array], peer: int = 0, count: int = 0
    ) -> T:
        self.operations += 1
        self.last = f"in its operation {self.operations}, {operation}"
        result = self._guarded(call)
        if isinstance(result, Handle):
            return cast("T", self._watching(result, operation))
        self.tell(operation)
        return result

    def send(self, array: Array, to: int, tag: int = 0) -> None:
        self.start_send(array, to, tag).wait()

    def start_send(self, array: Array, to: int, tag: int = 0) -> Handle:
        """Complete at once, or when there is a receipt."""
        handle = super().start_send(array, to, tag)
        if not self._synchronous:
            return handle
        receipt = self.inner.start_receive(_nothing(array), to, tag + _RECEIPTS)
        received = self._watching(receipt, "send")

        def wait() -> Array:
            received.wait()
            return handle.wait()

        return FunctionHandle(wait, lambda: received.done() and handle.done())

    def receive(self, like: Array, source: int, tag: int = 0) -> Array:
        return self.start_receive(like, source, tag).wait()

    def start_receive(self, like: Array, source: int, tag: int = 0) -> Handle:
        """As the inner one; then a receipt is sent."""
        handle = super().start_receive(like, source, tag)
        if not self._synchronous:
            return handle

        def wait() -> Array:
            array = handle.wait()
            self._confirm(like, source, tag)
            return array

        return FunctionHandle(wait, handle.done)

    def receive_any(self, like: Array, tag: int = 0) -> tuple[Array, int]:
        """As the inner one; then a receipt is sent."""
        array, source = super().receive_any(like, tag)
        if self._synchronous:
            self._confirm(like, source, tag)
        return array, source

    def _confirm(self, like: Array, source: int, tag: int) -> None:
        self.inner.send(_nothing(like), source, tag + _RECEIPTS)

    def _watching(self, handle: Handle, operation: str) -> Handle:
        """The handle of an operation, which ends the rank if the run hangs."""

        def wait() -> Array:
            result = self._guarded(handle.wait)
            self.tell(operation)
            return result

        def done() -> bool:
            self._check()
            return handle.done()

        return FunctionHandle(wait, done)

    def _guarded(self, call: Callable[[], T]) -> T:
        """Make the call, unless the run hangs."""
        self._check()
        self._pulse.beat()
        try:
            result = call()
        except CommunicationError:
            self._failed()
            raise
        self._pulse.beat()
        return result

    def _check(self) -> None:
        """Raise if the run hangs."""
        if self._pulse.stopped:
            self._failed()
            asked, do = f"rank {self.rank}, {self.last}", "see what it waits for, or give the check more --seconds"
            raise CommunicationError(
                asked, f"nothing has happened for {self._pulse.seconds:g} s, or no end is in sight", do
            )

    def _failed(self) -> None:
        self._errors += 1
        if self._errors > _PATIENCE:
            raise Abandoned


def receipts_as_sends(words: str) -> str:
    """Turn the description of a wait for a receipt into one of the corresponding send."""
    return re.sub(rf"receive\(source=(\d+), tag={_RECEIPTS}\d*\)", r"send(to=\1)", words)


def _nothing(like: Array) -> Array:
    """An empty array with the dtype of ``like``."""
    return zeros_like(like.reshape(-1)[:0])
