"""What the check of a transform found: how far each tensor is from the original's."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Difference", "Report"]


@dataclass(frozen=True)
class Difference:
    """How far one tensor is from the original's.

    ``kind`` is output, loss, gradient or buffer; ``absolute`` the largest difference, at ``index``; ``relative`` the
    same over the largest magnitude of the original's tensor.
    """

    kind: str
    name: str
    batch: int
    absolute: float
    relative: float
    index: tuple[int, ...]
    tolerance: float


@dataclass(frozen=True)
class Report:
    """What was compared, on which backend; nothing of it is beyond its tolerance."""

    before: str
    after: str
    batches: tuple[int, ...]
    differences: tuple[Difference, ...]

    @property
    def worst(self) -> Difference | None:
        """The tensor that comes nearest to its tolerance."""
        return max(self.differences, key=lambda each: each.relative / (each.tolerance or 1.0), default=None)

    def text(self) -> str:
        """The report in one line."""
        kinds = [each.kind for each in self.differences]
        counts = ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))
        worst = self.worst
        if worst is None:
            return "nothing was compared"
        return (
            f"equal at batch {', '.join(map(str, self.batches))}: {counts}; the largest difference is "
            f"{worst.relative:.2g} of the largest magnitude ({worst.kind} {worst.name}; allowed {worst.tolerance:g})"
        )
