"""Checks that a transformed network computes what the original did: outputs, loss, gradients and buffers.

The check runs both networks on one backend with the same inputs, at several batch sizes if the batch is open. It raises
an error that says which tensor differs, where, by how much, and why no more is allowed. Parameters are random, because
at initial values a batch normalisation is nearly the identity, which would hide faults in folding it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from levelbench.checks.arrays import Host, difference, largest
from levelbench.errors import CheckFailedError
from levelbench.networks.executor import Backend
from levelbench.networks.network import Network, read_inputs
from levelbench.networks.transforms.graph import batch_axes
from levelbench.networks.transforms.transform import (
    ROUNDING,
    Allowance,
    Arrays,
    EquivalenceReport,
    TensorDifference,
    Transform,
    Transformed,
)
from levelbench.networks.values import dtype_of


def random_parameters(network: Network, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Parameters that are not zero, one or constant: drawn ones, and constant ones with noise.

    Variances of batch normalisations are between 0.5 and 2.
    """
    nodes = network.model.graph.node
    variances = {each.input[4] for each in nodes if each.op_type == "BatchNormalization" and len(each.input) > 4}
    found = network.initialise(seed)
    for role in network.parameters:
        generator = Generator(PCG64([seed, zlib.crc32(role.name.encode()), 1]))
        value = found[role.name]
        if value.dtype.kind in "iub":
            continue
        if role.name in variances:
            found[role.name] = generator.uniform(0.5, 2.0, role.shape).astype(value.dtype)
        elif value.size and (role.draw is None or role.draw.kind == "constant"):
            noise = 0.2 * generator.standard_normal(role.shape)
            found[role.name] = (np.asarray(value, np.float64) + noise).astype(value.dtype)
    return found


_BATCHES = (1, 2, 5)
_CANCELLED = 1e-4
"""The scale of a gradient is at least this share of the largest gradient."""


def check_transform(
    transform: Transform,
    network: Network,
    backend: Backend,
    *,
    parameters: Arrays | None = None,
    seed: int = 0,
    **settings: Any,
) -> tuple[Transformed, EquivalenceReport]:
    """Apply a transform to a network with random parameters (or those given) and check the result.

    ``settings`` are those of :func:`check_equivalence`. Raises ``CheckFailedError``.
    """
    values = random_parameters(network, seed) if parameters is None else dict(parameters)
    done = transform.apply(network, values)
    given = {"tolerance": done.tolerance, **settings}
    report = check_equivalence(
        network, done.network, backend, parameters=values, after_parameters=done.parameters, seed=seed, **given
    )
    return done, report


def check_equivalence(
    before: Network,
    after: Network,
    backend: Backend,
    *,
    parameters: Arrays | None = None,
    after_parameters: Arrays | None = None,
    tolerance: Allowance = ROUNDING,
    batches: Sequence[int] = (),
    sizes: Mapping[str, int] = MappingProxyType({}),
    seed: int = 0,
    mode: str | None = None,
) -> EquivalenceReport:
    """Compare two networks on one backend; parameters default to those of seed 0.

    ``batches`` defaults to 1, 2 and 5, or to the batch that ``after`` is fixed to. Gradients (of the network's loss,
    else of a mean squared error of its first floating-point output) and buffers are compared if the tolerance includes
    them. Raises ``CheckFailedError`` at the first tensor that differs.
    """
    _compare_interfaces(before, after)
    comparison = _Comparison(before, after, tolerance, sizes, seed)
    chosen = tuple(batches) or _batches(before, after)
    found = list(comparison.outputs(backend, parameters, after_parameters, chosen, mode))
    if tolerance.gradients is not None:
        found += comparison.gradients(backend, parameters, after_parameters, chosen, mode)
    return EquivalenceReport(before.name, after.name, chosen, tuple(found))


def _compare_interfaces(before: Network, after: Network) -> None:
    for what, old, new in (("inputs", before.inputs, after.inputs), ("outputs", before.outputs, after.outputs)):
        names, others = [each.name for each in old], [each.name for each in new]
        if names != others:
            raise _failed(before, f"its {what} are {others}, expected {names}")
        dtypes, changed = [each.dtype for each in old], [each.dtype for each in new]
        if what == "inputs" and dtypes != changed:
            raise _failed(before, f"its inputs have dtypes {changed}, expected {dtypes}")


def _batches(before: Network, after: Network) -> tuple[int, ...]:
    axes = batch_axes(before)
    shapes = {each.name: each.shape for each in after.inputs}
    fixed = {shapes[name][axis] for name, axis in axes.items() if shapes[name] is not None}  # type: ignore[index]
    sizes = [each for each in fixed if isinstance(each, int)]
    if axes:
        return (sizes[0],) if sizes else _BATCHES
    return (1,)


class _Comparison:
    """Compares two networks within a tolerance."""

    def __init__(
        self, before: Network, after: Network, tolerance: Allowance, sizes: Mapping[str, int], seed: int
    ) -> None:
        self._before, self._after, self._tolerance = before, after, tolerance
        self._sizes, self._seed = sizes, seed
        self._shapes: dict[tuple[str, int], tuple[int, ...]] = {}

    def outputs(
        self, backend: Backend, old: Arrays | None, new: Arrays | None, batches: Sequence[int], mode: str | None
    ) -> Iterator[TensorDifference]:
        """The differences of all outputs."""
        first = backend.executor(self._before, _copied(old), mode=mode, trains=False)
        second = backend.executor(self._after, _copied(new), mode=mode, trains=False)
        for batch in batches:
            given = self._before.make_inputs(batch, self._seed, self._sizes)
            answers = []
            for executor, network in ((first, self._before), (second, self._after)):
                native = [backend.array(given[name]) for name in read_inputs(network.for_inference)]
                answers.append([backend.host(each) for each in executor.infer(*native)])
            for value, expected, found in zip(self._before.outputs, *answers, strict=True):
                self._shapes[value.name, batch] = expected.shape
                yield self._difference("output", value.name, batch, expected, found, self._tolerance.outputs)

    def gradients(
        self, backend: Backend, old: Arrays | None, new: Arrays | None, batches: Sequence[int], mode: str | None
    ) -> list[TensorDifference]:
        """The differences of the loss, of the gradients of all parameters, and of the buffers afterwards."""
        before, after = _with_loss(self._before), _with_loss(self._after)
        if before is None or after is None:
            return []
        found: list[TensorDifference] = []
        for batch in batches:
            given = self._given(before, batch)
            results = []
            for network, values in ((before, old), (after, new)):
                executor = backend.executor(network, _copied(values), mode=mode)
                loss = executor.forward(*(backend.array(given[each.name]) for each in network.inputs))
                gradients = {name: backend.host(each) for name, each in executor.backward().items()}
                buffers = {name: backend.host(each) for name, each in executor.buffers.items()}
                results.append((backend.host(loss), gradients, buffers))
            found += self._all(batch, *results)
        return found

    def _given(self, network: Network, batch: int) -> dict[str, Host]:
        """The inputs; targets added here have the observed shape of the output."""
        names = {each.name for each in self._before.inputs}
        added = [each for each in network.inputs if each.name not in names]
        given = self._before.make_inputs(batch, self._seed, self._sizes)
        for each in added:
            generator = Generator(PCG64([self._seed, batch]))
            shape = self._shapes[_first_floating(self._before), batch]
            given[each.name] = generator.standard_normal(shape).astype(dtype_of(each.dtype))
        return given

    def _all(
        self,
        batch: int,
        old: tuple[Host, dict[str, Host], dict[str, Host]],
        new: tuple[Host, dict[str, Host], dict[str, Host]],
    ) -> Iterator[TensorDifference]:
        allowed = self._tolerance.gradients or 0.0
        yield self._difference("loss", "loss", batch, old[0], new[0], self._tolerance.outputs)
        # A gradient that is zero except for cancellation has no scale of its own.
        least = _CANCELLED * max((largest(each) for each in old[1].values()), default=0.0)
        for kind, expected, found in (("gradient", old[1], new[1]), ("buffer", old[2], new[2])):
            for name, array in expected.items():
                if name in found:
                    yield self._difference(kind, name, batch, array, found[name], allowed, least)
                elif np.any(array) and kind == "gradient":
                    raise _failed(self._before, f"there is no gradient of {name!r}")

    def _difference(
        self, kind: str, name: str, batch: int, expected: Host, found: Host, allowed: float, least: float = 0.0
    ) -> TensorDifference:
        asked = f"{kind} {name!r} at batch {batch}"
        if expected.shape != found.shape:
            raise _failed(self._before, f"{asked} has shape {found.shape}, expected {expected.shape}")
        if expected.dtype != found.dtype:
            raise _failed(self._before, f"{asked} has dtype {found.dtype}, expected {expected.dtype}")
        if not expected.size:
            return TensorDifference(kind, name, batch, 0.0, 0.0, (), allowed)
        a, b = np.asarray(expected, np.float64), np.asarray(found, np.float64)
        gap = difference(a, b)
        index = tuple(int(each) for each in np.unravel_index(int(np.argmax(gap)), gap.shape))
        scale = max(largest(a), least) or 1.0
        absolute, relative = float(gap[index]), float(gap[index]) / scale
        if relative > allowed or (expected.dtype.kind in "iub" and absolute):
            raise _failed(
                self._before,
                f"{asked} differs at {index} by {absolute:.3g} ({b[index]:.6g}, expected {a[index]:.6g}), "
                f"which is {relative:.3g} of its largest magnitude; allowed is {allowed:g}: {self._tolerance.reason}",
            )
        return TensorDifference(kind, name, batch, absolute, relative, index, allowed)


def _failed(network: Network, found: str) -> CheckFailedError:
    return CheckFailedError(f"the transformed {network.name}", found, "do not use it, and report the transform")


def _copied(values: Arrays | None) -> dict[str, Host] | None:
    return None if values is None else {name: np.array(each) for name, each in values.items()}


def _with_loss(network: Network) -> Network | None:
    """The network with a loss; ``None`` if it has no floating-point output of known shape."""
    if network.loss:
        return network
    name = _first_floating(network)
    return network.with_loss("mse", name) if name else None


def _first_floating(network: Network) -> str:
    """The first floating-point output of known rank; empty if there is none."""
    for value in network.outputs:
        if value.dtype and dtype_of(value.dtype).kind not in "iubOS" and value.shape is not None:
            return value.name
    return ""
