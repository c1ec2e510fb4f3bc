"""What comparing a network on several frameworks found: by tensor, and the first operator at which two part."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from levelbench.errors import CheckFailedError
from levelbench.networks.validation.limits import Kind
from levelbench.operators.validation.metrics import Errors

__all__ = ["Agreement", "BackendAgreement", "Parting", "TensorAgreement", "TensorStatus"]

TensorStatus = Literal["agrees", "wrong", "rounding", "not compared"]
Cause = Literal["operator", "accumulated", "whole"]


@dataclass(frozen=True)
class TensorAgreement:
    """One output, or the gradient of one parameter, against the reference's.

    ``relative`` is the largest deviation over the largest expected magnitude, ``limit`` the most it may be.
    ``rounding``: beyond the limit, but not beyond what roundings of the inputs do to the reference itself. ``detail``
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

    def to_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return asdict(self)


@dataclass(frozen=True)
class Parting:
    """The first operator at which a framework parts from the reference.

    ``cause``: ``operator`` where it is wrong on the reference's own inputs too; ``accumulated`` where it is right on
    them, so that small differences from before have grown; ``whole`` where no operator is wrong when its result is
    read, so that it is what the framework makes of them together.
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
            "operator": f"{self.place}, is the first to part: it is wrong on the reference's own inputs",
            "accumulated": f"{self.place}, is the first beyond the tolerance, and right on the reference's own inputs: "
            "differences from before it have grown",
            "whole": "no operator is wrong where its result is read",
        }[self.cause]
        return f"{text}. {self.detail}" if self.detail else text

    def to_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return asdict(self)


@dataclass(frozen=True)
class BackendAgreement:
    """One framework against the reference.

    ``lacks`` says why nothing of it could be compared, empty if it could; ``raised`` what it raised that is no stated
    refusal.

    ``partings``: where it parts, if anything is wrong; and each operator that is wrong alone, where that was asked.

    ``repeats`` is whether two inferences were equal bit for bit.
    """

    backend: str
    mode: str = ""
    tensors: tuple[TensorAgreement, ...] = ()
    partings: tuple[Parting, ...] = ()
    repeats: bool | None = None
    lacks: str = ""
    raised: str = ""

    @property
    def wrong(self) -> tuple[TensorAgreement, ...]:
        """The tensors that are wrong."""
        return tuple(each for each in self.tensors if each.status == "wrong")

    @property
    def compared(self) -> bool:
        """Whether anything was."""
        return any(each.status != "not compared" for each in self.tensors)

    def worst(self, kind: Kind) -> TensorAgreement | None:
        """The tensor of that kind that is nearest to its limit, or furthest beyond it."""
        found = [each for each in self.tensors if each.kind == kind and each.status != "not compared"]
        return max(found, key=lambda each: each.relative / each.limit if each.limit else each.relative, default=None)

    def to_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "framework": self.backend,
            "mode": self.mode,
            "agrees": None if self.lacks else not (self.wrong or self.partings or self.raised),
            "lacks": self.lacks,
            "raised": self.raised,
            "repeats": self.repeats,
            "tensors": [each.to_dict() for each in self.tensors],
            "partings": [each.to_dict() for each in self.partings],
        }


@dataclass(frozen=True)
class Agreement:
    """A network on several frameworks against one reference, on the same parameters and inputs."""

    network: str
    reference: str
    backends: tuple[BackendAgreement, ...] = ()
    inputs: dict[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> tuple[BackendAgreement, ...]:
        """The frameworks with a wrong tensor or operator, or that raise."""
        return tuple(each for each in self.backends if each.wrong or each.partings or each.raised)

    def raise_for_findings(self) -> None:
        """Raise ``CheckFailedError`` with the first wrong tensor, how many more there are, and where it parts."""
        if not self.failed:
            return
        first = self.failed[0]
        subject = f"network {self.network} on {first.backend} against {self.reference}"
        if first.raised:
            raise CheckFailedError(subject, f"it raises {first.raised}", "correct what it raises at")
        tensor = first.wrong[0] if first.wrong else None
        more = len(first.wrong) - 1
        others = f"; and {more} more tensor{'s' * (more > 1)}" if more > 0 else ""
        said = f"{tensor.kind} {tensor.detail}{others}" if tensor else "its outputs agree, and operators do not"
        partings = "".join(f". {each.phase}: {each}" for each in first.partings)
        also = "".join(f"; {each.backend} is wrong too" for each in self.failed[1:])
        raise CheckFailedError(
            subject,
            f"{said}{partings}{also}",
            "correct the operator that is named, or the network where it asks for what ONNX leaves open",
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "network": self.network,
            "reference": self.reference,
            "inputs": self.inputs,
            "agrees": not self.failed,
            "frameworks": [each.to_dict() for each in self.backends],
        }
