"""The results of comparing a network on several frameworks, tensor by tensor, and the tolerances.

A network has no single longest sum from which to derive a tolerance. So deviations are limited to a share of the
tensor's largest value, which correct implementations stay well below and wrong ones do not. Parameters and inputs are
exact only up to rounding, so a larger deviation is a fault only if rounding the inputs does not move the reference as
far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray

from levelbench.checks.arrays import (
    Errors,
    Host,
    difference,
    errors,
    is_float,
    largest,
    number,
    ulp_distance,
    unit_roundoff,
)
from levelbench.checks.findings import Report, failed, not_tried, noted, passed
from levelbench.errors import CheckFailedError, LevelbenchError
from levelbench.networks.network import Network
from levelbench.networks.probes.running import Arrays
from levelbench.networks.shapes import infer_shapes
from levelbench.networks.values import Value, dtype_of

TensorStatus = Literal["agrees", "wrong", "rounding", "not compared"]
Cause = Literal["operator", "accumulated", "whole"]


@dataclass(frozen=True)
class TensorAgreement:
    """One output, or the gradient of one parameter, compared with the reference's.

    ``relative`` is the largest deviation over the largest expected magnitude, ``limit`` is its limit. Status
    ``rounding``: beyond the limit, but not beyond what rounding the inputs does to the reference itself. ``detail``
    says what is wrong and where, or why it was not compared.
    """

    name: str
    kind: Kind
    status: TensorStatus
    dtype: str = ""
    shape: tuple[int, ...] = ()
    relative: float = 0.0
    limit: float = 0.0
    errors: Errors | None = None
    detail: str = ""


@dataclass(frozen=True)
class DivergencePoint:
    """The first operator at which a framework diverges from the reference.

    ``cause``: ``operator`` if it is wrong even on the reference's inputs; ``accumulated`` if it is right on them, so
    that earlier small differences have grown; ``whole`` if no operator is wrong when its result is read, so that the
    framework's combination of operators is at fault.
    """

    phase: Literal["forward", "backward"]
    cause: Cause
    index: int = -1
    operator: str = ""
    output: str = ""
    detail: str = ""

    @property
    def place(self) -> str:
        """``node 12, Conv 'layer1.conv'``."""
        return f"node {self.index}, {self.operator} {self.output!r}" if self.index >= 0 else "no single operator"

    def __str__(self) -> str:
        text = {
            "operator": f"{self.place}, is the first to diverge: it is wrong on the reference's own inputs",
            "accumulated": f"{self.place}, is the first beyond the tolerance, but right on the reference's own inputs: "
            "earlier differences have grown",
            "whole": "no operator is wrong when its result is read",
        }[self.cause]
        return f"{text}. {self.detail}" if self.detail else text


@dataclass(frozen=True)
class BackendAgreement:
    """One framework compared with the reference.

    ``lacks`` says why nothing could be compared (else empty); ``raised`` is an exception other than a refusal.
    ``divergences`` are where it diverges, if anything is wrong, and each operator that is wrong on its own, if that was
    requested. ``repeats`` is whether two inferences were equal bit for bit.
    """

    backend: str
    mode: str = ""
    tensors: tuple[TensorAgreement, ...] = ()
    divergences: tuple[DivergencePoint, ...] = ()
    repeats: bool | None = None
    lacks: str = ""
    raised: str = ""

    @property
    def wrong(self) -> tuple[TensorAgreement, ...]:
        """The tensors that are wrong."""
        return tuple(each for each in self.tensors if each.status == "wrong")

    @property
    def compared(self) -> bool:
        """Whether anything was compared."""
        return any(each.status != "not compared" for each in self.tensors)

    def worst(self, kind: Kind) -> TensorAgreement | None:
        """The tensor of that kind that is closest to its limit, or furthest beyond it."""
        found = [each for each in self.tensors if each.kind == kind and each.status != "not compared"]
        return max(found, key=lambda each: each.relative / each.limit if each.limit else each.relative, default=None)

    def report(self, network: str) -> Report:
        """The report in the common form of all checks: a finding per tensor, and one per divergence."""
        findings = [not_tried(self.lacks, probe="network")] if self.lacks else []
        if self.raised:
            findings.append(failed(f"it raises {self.raised}", "correct the part that raises", probe="network"))
        for each in self.tensors:
            about = {"case": each.name, "probe": each.kind}
            if each.status == "agrees":
                findings.append(passed(f"off by {each.relative:.2g} where {each.limit:.2g} is allowed", **about))
            elif each.status == "wrong":
                findings.append(failed(each.detail, "correct the named operator", **about))
            else:
                findings.append((noted if each.status == "rounding" else not_tried)(each.detail, **about))
        findings += [failed(str(each), probe=each.phase) for each in self.divergences]
        return Report(network, tuple(findings), self.backend)

    def to_dict(self, network: str) -> dict[str, object]:
        """The JSON of the report, with details of each tensor."""
        return {
            **self.report(network).to_dict(),
            "mode": self.mode,
            "lacks": self.lacks,
            "raised": self.raised,
            "repeats": self.repeats,
            "tensors": [asdict(each) for each in self.tensors],
            "divergences": [asdict(each) for each in self.divergences],
        }


@dataclass(frozen=True)
class Agreement:
    """A network on several frameworks compared with one reference, with the same parameters and inputs."""

    network: str
    reference: str
    backends: tuple[BackendAgreement, ...] = ()
    inputs: dict[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> tuple[BackendAgreement, ...]:
        """The frameworks with a wrong tensor or operator, or that raise."""
        return tuple(each for each in self.backends if each.wrong or each.divergences or each.raised)

    def raise_for_findings(self) -> None:
        """Raise ``CheckFailedError`` with the first wrong tensor, the number of others, and where it diverges."""
        if error := self.error():
            raise error

    def error(self) -> CheckFailedError | None:
        """The error that :meth:`raise_for_findings` raises, if any."""
        if not self.failed:
            return None
        first = self.failed[0]
        subject = f"network {self.network} on {first.backend} against {self.reference}"
        if first.raised:
            return CheckFailedError(subject, f"it raises {first.raised}", "correct the part that raises")
        tensor = first.wrong[0] if first.wrong else None
        more = len(first.wrong) - 1
        others = f"; and {more} more tensor{'s' * (more > 1)}" if more > 0 else ""
        wrong = f"{tensor.kind} {tensor.detail}{others}" if tensor else "its outputs agree, but operators do not"
        divergences = "".join(f". {each.phase}: {each}" for each in first.divergences)
        also = "".join(f"; {each.backend} is wrong too" for each in self.failed[1:])
        return CheckFailedError(
            subject,
            f"{wrong}{divergences}{also}",
            "correct the named operator, or the network if it relies on what ONNX does not define",
        )

    def to_dict(self) -> dict[str, object]:
        """The comparison as JSON types."""
        return {
            "passed": not self.failed,
            "reports": [each.to_dict(self.network) for each in self.backends],
            "network": self.network,
            "reference": self.reference,
            "inputs": self.inputs,
        }


Kind = Literal["output", "gradient"]

OUTPUTS: Mapping[str, float] = MappingProxyType(
    {"float64": 1e-10, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1},
)
"""The limit relative to an output's largest magnitude: 1e-4 is 1,700 roundings of float32; halves get 40 and 25."""

GRADIENTS: Mapping[str, float] = MappingProxyType(
    {"float64": 1e-9, "float32": 1e-3, "float16": 5e-2, "bfloat16": 2e-1},
)
"""The limit relative to a gradient's largest magnitude: gradients pass each operator twice and sum over the batch."""

_MOVES = ("Cast", "CastLike", "Constant", "ConstantOfShape", "DequantizeLinear", "Identity")


def limit_for(kind: Kind, dtype: DTypeLike) -> float:
    """How far a tensor's values may be off, relative to its largest magnitude; 0 for integers and booleans."""
    found = np.dtype(dtype)
    if not is_float(found) and found.kind != "c":
        return 0.0
    table = OUTPUTS if kind == "output" else GRADIENTS
    if found.name in table:
        return table[found.name]
    # Narrower dtypes (float8) get as many roundings as bfloat16.
    return 25 * unit_roundoff(found)


def coarsest_dtype(network: Network, known: Iterable[str] = ()) -> np.dtype[np.generic]:
    """The floating-point dtype with the fewest digits in which the network computes; float32 if none is known.

    Weights stored in half precision that are cast before use do not count. ``known`` are names of more dtypes to count.
    """
    values: Mapping[str, Value] = {}
    # A wrong declaration is reported elsewhere.
    with suppress(LevelbenchError):
        values = infer_shapes(network)
    made = {name for node in network.model.graph.node if node.op_type not in _MOVES for name in node.output}
    floats = [dtype_of(each) for each in {*known, *(values[name].dtype for name in made if name in values)} if each]
    return max((each for each in floats if is_float(each)), key=unit_roundoff, default=np.dtype(np.float32))


@dataclass(frozen=True)
class RoundingEffect:
    """What rounding does to a tensor: ``by`` is the largest observed deviation, ``flips`` where a value flips.

    A flip is an integer that changes, or a value that becomes or ceases to be NaN or infinite.
    """

    by: float
    flips: NDArray[np.bool_]


def noise(value: Host, others: Iterable[Host]) -> float:
    """The noise of a gradient whose terms cancel, such as a bias before a norm: 8 roundings of the largest of all."""
    return 8 * unit_roundoff(value.dtype) * max((largest(each) for each in others), default=0.0)


def judge(
    name: str,
    kind: Kind,
    actual: Host,
    expected: Host,
    limit: float,
    *,
    slack: Callable[[], RoundingEffect | None] = lambda: None,
    floor: float = 0.0,
) -> TensorAgreement:
    """Compare ``actual`` with ``expected``; it may be off by ``limit`` times the largest expected magnitude.

    ``floor`` is an absolute deviation that counts as rounding. ``slack`` is called only if both are exceeded.
    """
    about: dict[str, Any] = {"name": name, "kind": kind, "dtype": str(actual.dtype), "shape": actual.shape}
    for what in ("dtype", "shape"):
        if getattr(actual, what) != getattr(expected, what):
            detail = f"{name!r} has {what} {getattr(actual, what)}, expected {getattr(expected, what)}"
            return TensorAgreement(status="wrong", limit=limit, relative=np.inf, detail=detail, **about)
    if expected.dtype.kind in "OUSTV" and not is_float(expected.dtype):
        same = bool(np.array_equal(actual, expected))
        detail = "" if same else f"{name!r} holds different text"
        return TensorAgreement(status="agrees" if same else "wrong", detail=detail, **about)
    apart, size = difference(actual, expected), largest(expected)
    relative = float(apart.max(initial=0.0)) / size if size else float(apart.max(initial=0.0))
    found = {**about, "relative": relative, "limit": limit, "errors": errors(actual, expected)}
    # With some processor settings, values between zero and the smallest normal number are flushed to zero.
    smallest = float(ml_dtypes.finfo(expected.dtype).tiny) if is_float(expected.dtype) else 0.0
    allowed = max(limit * size, smallest)
    bad = apart > allowed
    if not bad.any():
        return TensorAgreement(status="agrees", **found)
    if not (apart > floor).any():
        detail = f"{name!r} is the noise of sums that cancel: off by less than 8 roundings of the largest of its kind"
        return TensorAgreement(status="rounding", detail=detail, **found)
    moved = slack()
    if moved is not None:
        left = bad & ~moved.flips & ~(apart <= allowed + moved.by)
        if not left.any():
            detail = f"{name!r} is off by {relative:.2g} of its largest value; rounding the inputs does as much"
            return TensorAgreement(status="rounding", detail=detail, **found)
        bad = left
    detail = _describe(name, actual, expected, apart, bad, limit, size)
    return TensorAgreement(status="wrong", detail=detail, **found)


def _describe(name: str, actual: Host, expected: Host, apart: Host, bad: Host, limit: float, size: float) -> str:
    over = np.where(bad, apart, -1.0)
    where = tuple(int(each) for each in np.unravel_index(int(np.argmax(over)), over.shape))
    found, wanted = actual[where], expected[where]
    count = f"{int(bad.sum())} of {bad.size} values" if bad.size > 1 else "its only value"
    start = f"{name!r} is wrong in {count}, worst at {where}: {number(found)}, expected {number(wanted)}"
    if not np.isfinite(apart[where]):
        return f"{start}; only one of the two is finite"
    if not limit:
        return f"{start}; {expected.dtype} is exact"
    distance = ulp_distance(found, wanted)
    ulp = "" if distance is None else f", {float(distance):.0f} ULP"
    share = f"{apart[where] / size:.2g} of the tensor's largest value" if size else f"{apart[where]:.2g}"
    return f"{start}, off by {share}{ulp}, where {limit:.2g} is allowed"


_TIMES = 3
_FACTOR = 8.0


class Conditioning:
    """Runs a network with slightly changed parameters and inputs, and measures how far each tensor moves.

    The largest deviation of three runs is multiplied by eight, as rounding happens in every operator and not only in
    the inputs. Where ``noisy`` can run the network, so that it does, the larger effect of the two counts: a difference
    of nearly equal numbers inside, or a sum halfway between two steps of a quantiser, need not show in the inputs.
    """

    def __init__(
        self,
        run: Callable[[Arrays, Arrays], Mapping[str, Host]],
        parameters: Arrays,
        inputs: Arrays,
        dtype: DTypeLike,
        noisy: Callable[[Arrays, Arrays, int | None], Mapping[str, Host]] | None = None,
    ) -> None:
        """``run`` returns tensors by name for parameters and inputs; ``noisy`` also takes a seed (``None``: exact)."""
        self._run, self._parameters, self._inputs, self._noisy = run, parameters, inputs, noisy
        self._roundoff = unit_roundoff(dtype)

    def of(self, name: str, base: Host) -> RoundingEffect | None:
        """What rounding does to a tensor whose value is ``base``; ``None`` if unknown."""
        effects = [_moved([each.get(name) for each in self._runs], base)]
        exact, *others = [each.get(name) for each in self._noisy_runs] or [None]
        if exact is not None and exact.shape == base.shape:
            effects.append(_moved(others, exact))
        known = [each for each in effects if each is not None]
        if not known:
            return None
        flips = np.logical_or.reduce([each.flips for each in known])
        return RoundingEffect(max(each.by for each in known), np.asarray(flips))

    @cached_property
    def _noisy_runs(self) -> list[Mapping[str, Host]]:
        """The results without noise, and with three seeds; empty if the network does not run so."""
        if self._noisy is None:
            return []
        try:
            return [self._noisy(self._parameters, self._inputs, seed) for seed in (None, *range(_TIMES))]
        except LevelbenchError:
            return []

    @cached_property
    def _runs(self) -> list[Mapping[str, Host]]:
        found = []
        for seed in range(_TIMES):
            random = np.random.default_rng(seed)
            try:
                found.append(
                    self._run(self._perturbed(self._parameters, random), self._perturbed(self._inputs, random))
                )
            except LevelbenchError:
                return []
        return found

    def _perturbed(self, arrays: Arrays, random: np.random.Generator) -> Mapping[str, Host]:
        return {name: self._perturb(value, random) for name, value in arrays.items()}

    def _perturb(self, value: Host, random: np.random.Generator) -> Host:
        if not is_float(value.dtype):
            return value
        step = max(self._roundoff, unit_roundoff(value.dtype))
        moved = value.astype(np.float64) * (1 + step * random.choice([-1.0, 1.0], value.shape))
        return moved.astype(value.dtype)


def _moved(runs: list[Host | None], base: Host) -> RoundingEffect | None:
    others = [each for each in runs if each is not None and each.shape == base.shape]
    if not others:
        return None
    flips = np.zeros(base.shape, np.bool_)
    most = 0.0
    for other in others:
        apart = difference(other, base)
        exact = not is_float(base.dtype)
        flips |= apart > 0 if exact else ~np.isfinite(apart)
        most = max(most, 0.0 if exact else float(np.where(np.isfinite(apart), apart, 0.0).max(initial=0.0)))
    return RoundingEffect(_FACTOR * most, flips)
