"""Probes, the findings that they yield, and the report that gathers these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from levelbench.errors import CheckFailedError, LevelbenchError, MissingError, UnsupportedError
from levelbench.records.schema import fault

__all__ = [
    "EndProbe",
    "Finding",
    "Probe",
    "Report",
    "exit_code",
    "failed",
    "findings_of",
    "merged",
    "not_tried",
    "noted",
    "passed",
    "reports_to_dict",
    "run_probes",
]

Status = Literal["passed", "failed", "noted", "not tried"]

NOTHING_CHECKED = 4
"""The exit code of a check that came to no judgement at all."""


@dataclass(frozen=True)
class Finding:
    """What a probe found. ``do`` is what to do, where something is to be done; ``case`` what it was found with."""

    probe: str
    status: Status
    found: str = ""
    do: str = ""
    case: str = ""


Probe = tuple[str, Callable[[], Iterable[Finding]]]
"""The name, and what to call."""


def passed(found: str = "", *, case: str = "", probe: str = "") -> Finding:
    """Right, as far as it was looked at. ``probe`` is for findings under another name than that of their probe."""
    return Finding(probe, "passed", found, case=case)


def failed(found: str, do: str = "", *, case: str = "", probe: str = "") -> Finding:
    """Wrong."""
    return Finding(probe, "failed", found, do, case)


def noted(found: str, do: str = "", *, case: str = "", probe: str = "") -> Finding:
    """Worth knowing, and neither right nor wrong."""
    return Finding(probe, "noted", found, do, case)


def not_tried(found: str, do: str = "", *, case: str = "", probe: str = "") -> Finding:
    """Could not be looked at, with the reason."""
    return Finding(probe, "not tried", found, do, case)


class EndProbe(Exception):
    """Ends a probe with a finding, from however deep inside it."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.found)
        self.finding = finding


@dataclass(frozen=True)
class Report:
    """All findings on one subject, in the order of the probes; ``framework`` is the one it was run on, if any."""

    name: str
    findings: tuple[Finding, ...]
    framework: str = ""

    @property
    def title(self) -> str:
        """``ring on numpy``."""
        return f"{self.name} on {self.framework}" if self.framework else self.name

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The findings against the subject."""
        return tuple(each for each in self.findings if each.status == "failed")

    @property
    def judged(self) -> bool:
        """Whether any probe came to a judgement, good or bad."""
        return any(each.status in ("passed", "failed") for each in self.findings)

    def of(self, probe: str) -> tuple[Finding, ...]:
        """The findings of one probe."""
        return tuple(each for each in self.findings if each.probe == probe)

    def raise_for_findings(self) -> None:
        """Raise ``CheckFailedError`` with the first finding against the subject, and how many more there are."""
        if not self.failed:
            return
        first, more = self.failed[0], len(self.failed) - 1
        others = f"; and {more} more finding{'s' * (more > 1)}" if more else ""
        case = f" on {first.case}" if first.case else ""
        asked = f"{self.title}, check {first.probe!r}{case}"
        raise CheckFailedError(asked, f"{first.found}{others}", first.do or "correct it")

    def to_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "name": self.title,
            "framework": self.framework,
            "passed": not self.failed,
            "findings": [asdict(each) for each in self.findings],
        }


def reports_to_dict(reports: Iterable[Report]) -> dict[str, Any]:
    """What ``levelbench check --json`` prints, whatever was checked."""
    shown = [each.to_dict() for each in reports]
    return {"passed": all(each["passed"] for each in shown), "reports": shown}


def exit_code(reports: Sequence[Report]) -> int:
    """1 where anything is wrong, :data:`NOTHING_CHECKED` where nothing could be judged, else 0."""
    if any(each.failed for each in reports):
        return 1
    return 0 if any(each.judged for each in reports) else NOTHING_CHECKED


def run_probes(
    name: str,
    probes: Iterable[Probe],
    tell: Callable[[str], None] = lambda _: None,
    *,
    framework: str = "",
    recorded: bool = False,
) -> Report:
    """Run each probe; ``tell`` hears of each as it begins. What one raises becomes its finding.

    ``recorded``: findings go into a record, so they hold the type and the place of what was raised, and never its text.
    """
    findings: list[Finding] = []
    for title, probe in probes:
        tell(title)
        findings += findings_of(title, probe, recorded=recorded)
    return Report(name, tuple(findings), framework)


def findings_of(
    title: str,
    probe: Callable[[], Iterable[Finding]],
    *,
    case: str = "",
    refusals: tuple[type[LevelbenchError], ...] = (UnsupportedError, MissingError),
    recorded: bool = False,
) -> Iterator[Finding]:
    """The findings of one probe under its name, also what it raises.

    ``refusals`` are errors that say nothing against the subject. ``case`` goes to findings that say something about it
    and name none.
    """

    def named(finding: Finding) -> Finding:
        own = finding.case or (case if finding.status in ("failed", "noted") else "")
        return replace(finding, probe=finding.probe or title, case=own)

    try:
        for each in probe():
            yield named(each)
    except EndProbe as end:
        yield named(end.finding)
    except refusals as error:
        yield named(not_tried(f"{error.asked}: {error.found}", error.do, case=case))
    except LevelbenchError as error:
        if recorded:
            yield named(failed(f"it raised {fault(error)}", "levelbench check says more"))
        else:
            yield named(failed(f"{error.asked}: {error.found}", error.do))
    except Exception as error:  # noqa: BLE001  # the boundary to a user's parts, which may raise anything
        said = fault(error) if recorded else f"{type(error).__name__}: {error}"
        yield named(failed(f"it raised {said}", "correct the part that raises"))


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings that accuse with the same words as one, which names all of its probes: one misfit is one finding."""
    every = tuple(findings)
    alike: dict[tuple[str, str], list[str]] = {}
    for each in every:
        if each.status == "failed":
            alike.setdefault((each.found, each.do), []).append(each.probe)
    kept = []
    for each in every:
        probes = alike.pop((each.found, each.do), []) if each.status == "failed" else [each.probe]
        if more := [name for name in dict.fromkeys(probes) if name != each.probe]:
            kept.append(replace(each, found=f"{each.found} (and so in: {', '.join(more)})"))
        elif probes:
            kept.append(each)
    return tuple(kept)
