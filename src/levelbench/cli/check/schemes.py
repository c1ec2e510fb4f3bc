"""``levelbench check WHAT`` on schemes: what is asked for, what was found, and how it is printed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from levelbench.cli.check.findings import print_reports
from levelbench.cli.check.operators import open_frameworks
from levelbench.cli.progress_line import ProgressLine
from levelbench.errors import UsageError

if TYPE_CHECKING:
    from levelbench.distributed.scheme import Scheme
    from levelbench.training.validation.probes import Report

__all__ = ["SchemeWords", "check_schemes"]


@dataclass(frozen=True)
class SchemeWords:
    """What the command line says about the check of schemes."""

    frameworks: str
    ranks: str
    seed: int
    seconds: float


def check_schemes(what: str, words: SchemeWords, as_json: bool) -> int:
    """Check the schemes of a file, or the one that a name stands for; the exit code: 1 for a finding."""
    from levelbench.distributed.validation.schemes import check_scheme

    ranks = _ranks(words.ranks)
    schemes = _schemes(what)
    frameworks = open_frameworks(words.frameworks, "cpu") if words.frameworks else [""]
    reports: list[Report] = []
    with ProgressLine() as line:
        for name, scheme in schemes.items():
            for asked in frameworks:
                framework = asked or _usual(scheme)

                def tell(probe: str, subject: str = f"{name} on {framework}") -> None:
                    if line.live:
                        line.say(f"{subject}: {probe}")

                report = check_scheme(
                    scheme,
                    ranks=ranks,
                    framework=framework,
                    seed=words.seed,
                    seconds=words.seconds,
                    name=name,
                    tell=tell,
                )
                reports.append(replace(report, name=f"{report.name} on {framework}"))
    print_reports(reports, as_json)
    return int(any(report.failed for report in reports))


def _usual(scheme: Scheme) -> str:
    """NumPy, unless the scheme says that it runs on others alone."""
    return "numpy" if not scheme.frameworks or "numpy" in scheme.frameworks else scheme.frameworks[0]


def _ranks(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(each) for each in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 2:
        raise UsageError(f"--ranks {text}", "that is no list of numbers from 2 up", "write --ranks 2,3,4")
    return found


def _schemes(what: str) -> dict[str, Scheme]:
    from levelbench.distributed.finding import load_schemes, named_scheme
    from levelbench.records.selection import parse_item

    if what.endswith(".py"):
        return load_schemes(Path(what))
    name, settings = parse_item(what)
    return {what: named_scheme(name, settings)}
