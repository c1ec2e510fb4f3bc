"""Buckets: gradients that are reduced together, each as soon as the last of them is there.

The one idea: what the buckets are follows from the network alone, which is the same on all ranks, so the ranks need not
agree on anything: each starts its buckets in their order, early or late as its own gradients come (Li et al. 2020,
"PyTorch Distributed: Experiences on Accelerating Data Parallel Training").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

from levelbench.distributed.communicator import Communicator, Handle
from levelbench.distributed.schemes.packing import packer
from levelbench.errors import UsageError
from levelbench.measure.clocks import HOST, Clock
from levelbench.networks.executor import Array, Backend, Executor
from levelbench.training.optimizers.arrays import zeros_like

__all__ = ["FIRST_BYTES", "Reducer", "assign", "ready_order"]

FIRST_BYTES = 1 << 20
"""The first bucket is smaller than the others, so that communication begins early."""


def ready_order(executor: Executor) -> list[str]:
    """The trainable parameters in the order in which a backward pass completes their gradients.

    A gradient is final once the backward pass has come to the parameter's first use. What is not used comes last; those
    of one operator, and all of a native module, of which nobody knows the uses, come in reverse order of definition.
    """
    names = list(executor.parameters)[::-1]
    if executor.network is None:
        return names
    first: dict[str, int] = {}
    for at, node in enumerate(executor.network.nodes):
        for name in node.inputs:
            first.setdefault(name, at)
    return sorted(names, key=lambda name: -first.get(name, -1))


def assign(
    arrays: Iterable[tuple[str, Any, int]], most_bytes: float, first_bytes: float = FIRST_BYTES
) -> list[list[str]]:
    """Buckets of names for arrays that are given as name, dtype and bytes in the order in which they become ready.

    A bucket holds one dtype and is closed by the array with which it reaches its limit; the first of each dtype has
    the limit ``first_bytes``. Buckets come in the order in which they are complete.
    """
    closed: list[tuple[int, list[str]]] = []
    open_ones: dict[Any, tuple[list[str], int]] = {}
    names: list[str]
    limits: dict[Any, float] = {}
    last: dict[Any, int] = {}
    for at, (name, dtype, nbytes) in enumerate(arrays):
        names, held = open_ones.pop(dtype, ([], 0))
        names.append(name)
        last[dtype] = at
        if held + nbytes >= limits.get(dtype, min(first_bytes, most_bytes)):
            closed.append((at, names))
            limits[dtype] = most_bytes
        else:
            open_ones[dtype] = (names, held + nbytes)
    closed += [(last[dtype], names) for dtype, (names, _) in open_ones.items()]
    return [names for _, names in sorted(closed)]


@final
class Reducer:
    """The weighted sum over ranks of gradients, bucket by bucket; every rank's arrays are those of ``parameters``."""

    def __init__(
        self,
        communicator: Communicator,
        backend: Backend,
        parameters: Mapping[str, Array],
        buckets: Sequence[Sequence[str]],
        clock: Clock = HOST,
    ) -> None:
        self._communicator, self._parameters, self._clock = communicator, parameters, clock
        self._buckets = [dict.fromkeys(names) for names in buckets]
        self._packers = [packer(backend, {name: parameters[name] for name in names}) for names in buckets]
        # A list: to go through live parameters takes as long as a small message.
        self._names = list(parameters)
        self._bucket_of = {name: at for at, names in enumerate(buckets) for name in names}
        self._started_ns = self._inside_ns = 0
        self._clear()
        self.overlap = 0.0
        """Of the last step: 1 − (time inside the communicator's calls) / (time from the start of the first bucket to
        the end of the last): the share of the communication behind which this rank computed or copied."""

    def _clear(self) -> None:
        self._taken: dict[str, Array] = {}
        self._left = [len(names) for names in self._buckets]
        self._handles: list[Handle] = []
        self._over = 0
        self._share: float | None = None

    def ready(self, name: str, gradient: Array, share: float) -> None:
        """Take a gradient that is final, and start the buckets that are complete. It is left as it is.

        Raises ``UsageError`` for one that was taken already.
        """
        if name in self._taken:
            raise UsageError(
                "overlapping communication with the backward pass",
                f"the gradient of {name!r} came twice before the step was made",
                "make one step after each backward pass, or use all-reduce[overlap=false]",
            )
        self._share, self._taken[name] = share, gradient
        at = self._bucket_of[name]
        self._packers[at].put(name, gradient, share)
        self._left[at] -= 1
        # In their order, as on every other rank.
        while (at := len(self._handles)) < len(self._left) and not self._left[at]:
            self._start(self._packers[at].packed())
        if self._over < len(self._handles):
            self._drive()

    def _drive(self) -> None:
        """Some libraries move messages on only while they are called."""
        began = self._clock.now_ns()
        while self._over < len(self._handles) and self._handles[self._over].done():
            self._over += 1
        self._inside_ns += self._clock.now_ns() - began

    def finish(self, gradients: Mapping[str, Array], share: float) -> dict[str, Array]:
        """Σ share · gradient over ranks, by name, once all of it is there. What a rank has no gradient of counts as 0.

        The arrays belong to the reducer, and change at the next step. Raises ``UsageError`` where ``gradients`` are not
        those that :meth:`ready` was given.
        """
        # In the order of the parameters, so that an optimizer which sums over them does as in one process.
        result: dict[str, Array] = dict.fromkeys(self._names)
        if len(self._buckets) == 1 and not self._taken:
            # Nothing is behind anything else.
            (one,), self.overlap = self._packers, 0.0
            result.update(one.unpack(self._communicator.all_reduce(self._filled(0, gradients, share))))
            return result
        if self._taken:
            self._require_same(gradients, share)
        for at in range(len(self._handles), len(self._buckets)):
            self._start(self._filled(at, gradients, share))
        handles = self._handles
        for each, handle in zip(self._packers, handles, strict=True):
            began = self._clock.now_ns()
            flat = handle.wait()
            ended = self._clock.now_ns()
            self._inside_ns += ended - began
            result.update(each.unpack(flat))
        whole = ended - self._started_ns if handles else 0
        self.overlap = 1 - self._inside_ns / whole if whole else 0.0
        self._clear()
        return result

    def _filled(self, at: int, gradients: Mapping[str, Array], share: float) -> Array:
        """A bucket with all that it has not got yet."""
        names, each = self._buckets[at], self._packers[at]
        if self._left[at] == len(names) and names.keys() <= gradients.keys():
            return each.pack(gradients, share)
        for name in names:
            if name not in self._taken:
                gradient = gradients[name] if name in gradients else zeros_like(self._parameters[name])
                each.put(name, gradient, share)
        return each.packed()

    def _start(self, flat: Array) -> None:
        began = self._clock.now_ns()
        if not self._handles:
            self._started_ns, self._inside_ns = began, 0
        self._handles.append(self._communicator.start_all_reduce(flat))
        self._inside_ns += self._clock.now_ns() - began

    def _require_same(self, gradients: Mapping[str, Array], share: float) -> None:
        strange = next((name for name, each in self._taken.items() if gradients.get(name) is not each), None)
        if strange is not None or share != self._share:
            found = f"that of {strange!r} is another" if strange else f"its share was {self._share}, and is now {share}"
            raise UsageError(
                "a step whose gradients are being reduced since the backward pass",
                found,
                "hand over what backward returned, with the share that was set before it; or all-reduce[overlap=false]",
            )
