"""What a check found, and the report that gathers it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from levelbench.errors import CheckFailedError

__all__ = ["Finding", "Report", "Status", "failed", "not_tried", "noted", "passed", "summed"]

Status = Literal["passed", "failed", "noted", "not tried"]


@dataclass(frozen=True)
class Finding:
    """``noted``: seen, and not judged. ``not tried`` says why. ``case`` is the input it was found with."""

    check: str
    status: Status
    detail: str = ""
    case: str = ""


def passed(check: str, detail: str = "", case: str = "") -> Finding:
    """Right, as far as it was looked at."""
    return Finding(check, "passed", detail, case)


def failed(check: str, detail: str, case: str = "") -> Finding:
    """Wrong."""
    return Finding(check, "failed", detail, case)


def noted(check: str, detail: str, case: str = "") -> Finding:
    """Worth knowing, and neither right nor wrong."""
    return Finding(check, "noted", detail, case)


def not_tried(check: str, detail: str, case: str = "") -> Finding:
    """Could not be looked at, with the reason."""
    return Finding(check, "not tried", detail, case)


@dataclass(frozen=True)
class Report:
    """All findings on one operator, in the order of the checks."""

    name: str
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> tuple[Finding, ...]:
        """Those that accuse the operator."""
        return tuple(each for each in self.findings if each.status == "failed")

    def raise_for_findings(self) -> None:
        """Raise ``CheckFailedError`` with the first finding that accuses the operator, and how many more there are."""
        if not self.failed:
            return
        first = self.failed[0]
        more = f"; and {len(self.failed) - 1} more findings" if len(self.failed) > 1 else ""
        case = f" on {first.case}" if first.case else ""
        raise CheckFailedError(
            f"operator {self.name}, check {first.check!r}{case}", f"{first.detail}{more}", "correct the operator"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "operator": self.name,
            "passed": not self.failed,
            "findings": [asdict(each) for each in self.findings],
        }


def summed(check: str, found: Sequence[Finding], detail: str = "") -> list[Finding]:
    """The findings other than passed, or one that says that all passed."""
    rest = [each for each in found if each.status != "passed"]
    good = len(found) - len(rest)
    return [*([passed(check, detail or f"{good} cases")] if good else []), *rest]
