"""Probes, the findings they yield, and the report that collects them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from levelbench.errors import CheckFailedError, LevelbenchError, MissingError, UnsupportedError
from levelbench.records.schema import fault

Status = Literal["passed", "failed", "noted", "not tried"]

NOTHING_CHECKED = 4
"""The exit code of a check in which no probe came to a judgement."""


@dataclass(frozen=True)
class Finding:
    """What a probe found. ``do`` is what the user should do, if anything; ``case`` is what it was found with."""

    probe: str
    status: Status
    found: str = ""
    do: str = ""
    case: str = ""


Probe = tuple[str, Callable[[], Iterable[Finding]]]
"""A name, and a function that yields findings."""


def passed(found: str = "", *, case: str = "", probe: str = "") -> Finding:
    """Correct, as far as it was checked. ``probe`` is given if the finding goes under another name than its probe's."""
    return Finding(probe, "passed", found, case=case)


def failed(found: str, do: str = "", *, case: str = "", probe: str = "") -> Finding:
    """Wrong."""
    return Finding(probe, "failed", found, do, case)


def noted(found: str, do: str = "", *, case: str = "", probe: str = "") -> Finding:
    """Worth knowing, but neither right nor wrong."""
    return Finding(probe, "noted", found, do, case)


def not_tried(found: str, do: str = "", *, case: str = "", probe: str = "") -> Finding:
    """Could not be checked, with the reason."""
    return Finding(probe, "not tried", found, do, case)


class EndProbe(Exception):
    """Ends a probe with a finding, from any depth of calls."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.found)
        self.finding = finding


@dataclass(frozen=True)
class Report:
    """All findings on one subject, in the order of the probes; ``framework`` is the one it ran on, if any."""

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
    def causes(self) -> tuple[tuple[Finding, ...], ...]:
        """The failures by what to do about them, else by probe; those of a probe without cases are different ones."""
        found: dict[tuple[str, ...], list[Finding]] = {}
        for each in self.failed:
            key = (each.do,) if each.do else (each.probe, "" if each.case else each.found)
            found.setdefault(key, []).append(each)
        return tuple(map(tuple, found.values()))

    @property
    def judged(self) -> bool:
        """Whether any probe passed or failed."""
        return any(each.status in ("passed", "failed") for each in self.findings)

    def of(self, probe: str) -> tuple[Finding, ...]:
        """The findings of one probe."""
        return tuple(each for each in self.findings if each.probe == probe)

    def raise_for_findings(self) -> None:
        """Raise ``CheckFailedError`` with the first failure and the number of others."""
        if not self.failed:
            return
        first, more = self.failed[0], len(self.failed) - 1
        others = f"; and {more} more finding{'s' * (more > 1)}" if more else ""
        case = f" on {first.case}" if first.case else ""
        asked = f"{self.title}, check {first.probe!r}{case}"
        raise CheckFailedError(asked, f"{first.found}{others}", first.do or "correct it")

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON types."""
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
    """1 if anything failed, :data:`NOTHING_CHECKED` if nothing could be judged, else 0."""
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
    hear: Callable[[Finding], None] = lambda _: None,
) -> Report:
    """Run each probe; ``tell`` is called with its name as it begins. If a probe raises, that becomes a finding.

    ``hear`` is called with each finding as it is made.

    ``recorded``: findings go into a record, so they hold the type and place of an exception but never its text.
    """
    findings: list[Finding] = []
    for title, probe in probes:
        tell(title)
        for each in findings_of(title, probe, recorded=recorded):
            findings.append(each)
            hear(each)
    return Report(name, tuple(findings), framework)


def findings_of(
    title: str,
    probe: Callable[[], Iterable[Finding]],
    *,
    case: str = "",
    refusals: tuple[type[LevelbenchError], ...] = (UnsupportedError, MissingError),
    recorded: bool = False,
) -> Iterator[Finding]:
    """The findings of one probe under its name, including one for an exception that it raises.

    ``refusals`` are errors that do not count against the subject. ``case`` is filled in where the subject failed or
    something was noted, if the finding names no case itself.
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
            yield named(failed(f"it raised {fault(error)}", "run levelbench check for details"))
        else:
            yield named(failed(f"{error.asked}: {error.found}", error.do))
    except Exception as error:  # noqa: BLE001  # the boundary to a user's parts, which may raise anything
        said = fault(error) if recorded else f"{type(error).__name__}: {error}"
        yield named(failed(f"it raised {said}", "correct the part that raises"))


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Combine failures with the same text into one that names all of their probes: one fault is one finding."""
    every = tuple(findings)
    alike: dict[tuple[str, str], list[str]] = {}
    for each in every:
        if each.status == "failed":
            alike.setdefault((each.found, each.do), []).append(each.probe)
    kept = []
    for each in every:
        probes = alike.pop((each.found, each.do), []) if each.status == "failed" else [each.probe]
        if more := [name for name in dict.fromkeys(probes) if name != each.probe]:
            kept.append(replace(each, found=f"{each.found} (also in: {', '.join(more)})"))
        elif probes:
            kept.append(each)
    return tuple(kept)
