"""What a check of a recipe or a task finds: probes by name, each with what was found and what to do.

The one idea: a probe is a function that yields findings; what it raises is a finding too, so one broken part does not
hide what is wrong with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from levelbench.errors import CheckFailedError, LevelbenchError, MissingError, UnsupportedError
from levelbench.records.redaction import fault

__all__ = ["Finding", "Probe", "Report", "Status", "failed", "merged", "not_tried", "noted", "passed", "run_probes"]

Status = Literal["passed", "failed", "noted", "not tried"]


@dataclass(frozen=True)
class Finding:
    """``noted``: seen, and not judged. ``not tried`` says why. ``do`` is what to do, where something is to be done."""

    probe: str
    status: Status
    found: str = ""
    do: str = ""


Probe = tuple[str, Callable[[], Iterable[Finding]]]
"""The name, and what to call."""


def passed(probe: str, found: str = "") -> Finding:
    """Right, as far as it was looked at."""
    return Finding(probe, "passed", found)


def failed(probe: str, found: str, do: str) -> Finding:
    """Wrong."""
    return Finding(probe, "failed", found, do)


def noted(probe: str, found: str, do: str = "") -> Finding:
    """Worth knowing, and neither right nor wrong."""
    return Finding(probe, "noted", found, do)


def not_tried(probe: str, found: str, do: str = "") -> Finding:
    """Could not be looked at, with the reason."""
    return Finding(probe, "not tried", found, do)


@dataclass(frozen=True)
class Report:
    """All findings on a task, or on one recipe of it, in the order of the probes."""

    name: str
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> tuple[Finding, ...]:
        """Those that accuse it."""
        return tuple(each for each in self.findings if each.status == "failed")

    def of(self, probe: str) -> tuple[Finding, ...]:
        """The findings of one probe."""
        return tuple(each for each in self.findings if each.probe == probe)

    def raise_for_findings(self) -> None:
        """Raise ``CheckFailedError`` with the first finding that accuses it, and how many more there are."""
        if not self.failed:
            return
        first, more = self.failed[0], len(self.failed) - 1
        others = f"; and {more} more finding{'s' * (more > 1)}" if more else ""
        raise CheckFailedError(f"{self.name}, probe {first.probe!r}", f"{first.found}{others}", first.do)

    def to_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {"name": self.name, "passed": not self.failed, "findings": [asdict(each) for each in self.findings]}


def run_probes(
    name: str, probes: Iterable[Probe], tell: Callable[[str], None] = lambda _: None, *, recorded: bool = False
) -> Report:
    """Run each probe; ``tell`` hears of each as it begins. What one raises becomes its finding.

    Where that is ``recorded``, it is the type and the place of what was raised, and never its text.
    """
    findings: list[Finding] = []
    for title, probe in probes:
        tell(title)
        findings += _guarded(title, probe, recorded)
    return Report(name, tuple(findings))


def merged(report: Report) -> Report:
    """Findings that accuse with the same words as one, which names all of its probes: one misfit is one finding."""
    alike: dict[tuple[str, str], list[str]] = {}
    for each in report.failed:
        alike.setdefault((each.found, each.do), []).append(each.probe)
    findings = []
    for each in report.findings:
        probes = alike.pop((each.found, each.do), []) if each.status == "failed" else [each.probe]
        if more := list(dict.fromkeys(probes[1:])):
            findings.append(replace(each, found=f"{each.found} (and so in: {', '.join(more)})"))
        elif probes:
            findings.append(each)
    return replace(report, findings=tuple(findings))


def _guarded(title: str, probe: Callable[[], Iterable[Finding]], recorded: bool) -> Iterator[Finding]:
    try:
        yield from probe()
    except (UnsupportedError, MissingError) as error:
        yield not_tried(title, f"{error.asked}: {error.found}", error.do)
    except LevelbenchError as error:
        if recorded:
            yield failed(title, f"it raised {fault(error)}", "levelbench check says more")
        else:
            yield failed(title, f"{error.asked}: {error.found}", error.do)
    except Exception as error:  # noqa: BLE001  # the boundary to a user's parts, which may raise anything
        said = fault(error) if recorded else f"{type(error).__name__}: {error}"
        yield failed(title, f"it raised {said}", "correct the part that raises")
