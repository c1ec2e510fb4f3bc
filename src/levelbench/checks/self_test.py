"""Counts how many planted faults the checks find, and whether they accuse what is right: a mutation score.

A *planted part* is a part as a user writes it, either right or with one fault. Its *aspects* say in a few words what
the fault concerns; a table maps each to the probes that may find it. A fault is found *for the right reason* if one of
these probes fails, and *for another reason* if only others do. A right part with any failure is *accused*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Literal

from levelbench.checks.findings import Finding, Report
from levelbench.checks.isolation import until
from levelbench.errors import LevelbenchError, MissingError, UnsupportedError
from levelbench.measure.clocks import HOST

GOAL = 0.95
"""The share of faults that must be found for the right reason."""

Outcome = Literal["right reason", "other reason", "missed", "passed", "accused", "not tried"]


@dataclass(frozen=True)
class Planted:
    """A part of a corpus: ``fault`` in words, or ``None`` if it is right.

    ``reference`` is what it is compared with, in the words of its kind of check. Parts that are ``held_back`` are not
    looked at while probes are written.
    """

    fault: str | None
    aspects: tuple[str, ...] = ()
    reference: str = ""
    held_back: bool = False


@dataclass(frozen=True)
class JudgedPart:
    """What a check said of a planted part, and how long it took."""

    kind: str
    name: str
    planted: Planted
    outcome: Outcome
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def wrong(self) -> bool:
        """Whether the check got it wrong."""
        return self.outcome in ("other reason", "missed", "accused")

    def to_dict(self) -> dict[str, Any]:
        """As JSON types."""
        return {
            "kind": self.kind,
            "name": self.name,
            "fault": self.planted.fault,
            "aspects": list(self.planted.aspects),
            "held_back": self.planted.held_back,
            "outcome": self.outcome,
            "seconds": round(self.seconds, 2),
            "findings": [asdict(each) for each in self.findings],
        }


@dataclass(frozen=True)
class MutationScore:
    """The number of planted parts by what the checks said of them; ``seconds`` is the sum of their times."""

    title: str
    counts: Mapping[Outcome, int]
    seconds: float

    @property
    def faults(self) -> int:
        """How many faults were planted and tried."""
        return sum(self.counts.get(each, 0) for each in ("right reason", "other reason", "missed"))

    @property
    def right(self) -> int:
        """How many right parts were tried."""
        return self.counts.get("passed", 0) + self.counts.get("accused", 0)

    @property
    def share(self) -> float | None:
        """The share of faults that were found for the right reason; ``None`` without faults."""
        return self.counts.get("right reason", 0) / self.faults if self.faults else None

    @property
    def reached(self) -> bool:
        """Whether at least :data:`GOAL` of the faults were found for the right reason, and no right part accused."""
        return (self.share is None or self.share >= GOAL) and not self.counts.get("accused", 0)


def score(title: str, judged: Iterable[JudgedPart]) -> MutationScore:
    """Count outcomes."""
    counts: dict[Outcome, int] = {}
    seconds = 0.0
    for each in judged:
        counts[each.outcome] = counts.get(each.outcome, 0) + 1
        seconds += each.seconds
    return MutationScore(title, counts, seconds)


def outcome_of(planted: Planted, failed: Sequence[Finding], probes: Mapping[str, Sequence[str]]) -> Outcome:
    """What these failures are; ``probes`` maps aspects to the probes that may find a fault of theirs."""
    if planted.fault is None:
        return "accused" if failed else "passed"
    if not failed:
        return "missed"
    expected = [probe for aspect in planted.aspects for probe in probes.get(aspect, (aspect,))]
    right = any(_is(each, probe) for each in failed for probe in expected)
    return "right reason" if right else "other reason"


def _is(finding: Finding, expected: str) -> bool:
    """``reference`` stands for ``reference: long``, too, and a crash counts for the probe in which it happened."""
    probe = finding.probe
    return (
        probe == expected
        or probe.startswith((f"{expected}:", f"{expected} "))
        or (probe == "crash" and f"in the check {expected!r}" in finding.found)
    )


def judge(
    kind: str,
    name: str,
    planted: Planted,
    check: Callable[[], Report],
    probes: Mapping[str, Any],
    *,
    all_findings: bool = False,
) -> JudgedPart:
    """Check one part; an error that prevents the check counts as a failure, unless something is missing here.

    Further findings cannot change the outcome of a fault that is found for the right reason, so its check ends with
    that one unless ``all_findings`` are wanted.
    """

    def settles(finding: Finding) -> bool:
        right = finding.status == "failed" and outcome_of(planted, (finding,), probes) == "right reason"
        return right and not all_findings

    begun = HOST.now_ns()
    outcome: Outcome | None = None
    try:
        with until(settles):
            found = check().failed
    except (UnsupportedError, MissingError) as error:
        outcome, found = "not tried", (Finding("check", "not tried", f"{error.asked}: {error.found}", error.do),)
    except LevelbenchError as error:
        found = (Finding("definition", "failed", f"{error.asked}: {error.found}", error.do),)
    took = (HOST.now_ns() - begun) / 1e9
    return JudgedPart(kind, name, planted, outcome or outcome_of(planted, found, probes), found, took)


def judge_all(
    todo: Sequence[Callable[[], JudgedPart]], workers: int, hear: Callable[[JudgedPart], None]
) -> list[JudgedPart]:
    """Judge parts, ``workers`` at a time; ``hear`` gets each when it is done, in the order of ``todo``."""
    with ThreadPoolExecutor(workers) as pool:
        found = []
        for each in pool.map(lambda work: work(), todo):
            hear(each)
            found.append(each)
        return found
