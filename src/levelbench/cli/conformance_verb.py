"""``levelbench conformance``: ONNX's node tests in each framework, by operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from levelbench.cli import options as shared
from levelbench.cli.findings import open_frameworks
from levelbench.errors import UsageError

if TYPE_CHECKING:
    from levelbench.cli.progress_line import ProgressLine
    from levelbench.operators.conformance import NodeTest, NodeTestCounts, Result

__all__ = ["command"]


@click.command("conformance")
@shared.several("--framework", "frameworks", help="Frameworks, separated by commas; default: all that run here.")
@click.option("--device", default="cpu", show_default=True, help="Device: cpu, cuda, cuda:1, ...")
@shared.several(
    "--operator", "operators", default="", help="Run only the tests of these operators, separated by commas."
)
@click.option("--match", default="", help="Run only the tests whose name contains this.")
@click.option("--summary", is_flag=True, help="Print only the totals, without a row per operator.")
@click.option("--verbose", "-v", is_flag=True, help="Print what was found for each test that did not pass.")
@click.option(
    "--report-bugs",
    type=click.Path(path_type=Path),
    help="Write each wrong answer of an engine, such as OpenVINO, to this folder: model, inputs, script, page.",
)
@shared.answer_options
def command(
    frameworks: str | None,
    device: str,
    operators: str,
    match: str,
    summary: bool,
    verbose: bool,
    report_bugs: Path | None,
    as_json: bool,
) -> int:
    """Run the node tests of the ONNX package: passed, wrong or unsupported, by operator.

    Exits with 1 if a framework's answer is wrong. A known fault of the framework itself is counted separately, as
    upstream.
    """
    from levelbench.cli.progress_line import ProgressLine
    from levelbench.operators.conformance import collect_cases, run_conformance

    names = _here(device) if frameworks is None else open_frameworks(frameworks, device)
    cases = collect_cases([each.strip() for each in operators.split(",") if each.strip()], match)
    if not cases:
        raise UsageError(f"node tests that match {match!r}", "there is none", "give a part of the name of a test")
    tallies: list[NodeTestCounts] = []
    for name in names:
        with ProgressLine() as line:
            tallies.append(run_conformance(name, cases, device, _told(line, name, len(cases))))
    reports = {} if report_bugs is None else _write_reports(tallies, cases, report_bugs)
    if as_json:
        shared.emit_json(
            {
                "cases": len(cases),
                "device": device,
                "frameworks": [each.to_dict() for each in tallies],
                "reports": reports,
            }
        )
    else:
        _print(tallies, summary, verbose)
        for name, (written, others) in reports.items():
            left = f"{others} more are within rounding, or not shown by a script of their own"
            found = left if others else "every wrong answer has one"
            click.echo(f"reports: {written} of {name} in {report_bugs}; {found}")
    return int(any(each.total["wrong"] for each in tallies))


def _write_reports(
    tallies: Sequence[NodeTestCounts], cases: Sequence[NodeTest], folder: Path
) -> dict[str, tuple[int, int]]:
    """By engine, how many reports were written, and how many wrong answers have none."""
    from levelbench.frameworks.engines import OnnxEngine
    from levelbench.frameworks.engines.reports import write_report
    from levelbench.operators.frameworks import load_framework

    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"--report-bugs {folder}", "it is not empty", "name a new folder")
    by_name, found = {case.name: case for case in cases}, {}
    for each in tallies:
        engine = load_framework(each.framework)
        if isinstance(engine, OnnxEngine):
            wrong = each.of("wrong")
            place = folder / each.framework
            told = [write_report(engine, by_name[one.name], one.detail, place / one.name) for one in wrong]
            found[each.framework] = (sum(told), len(wrong) - sum(told))
    return found


def _told(line: ProgressLine, framework: str, total: int) -> Callable[[Result], None]:
    """Count results, and show the progress on a terminal."""
    found = {"done": 0, "wrong": 0}

    def tell(result: Result) -> None:
        found["done"] += 1
        found["wrong"] += result.status == "wrong"
        if line.live and (found["done"] % 10 == 0 or found["done"] == total):
            line.say(f"{framework}: {found['done']} of {total}, {found['wrong']} wrong")

    return tell


def _here(device: str) -> list[str]:
    from levelbench import plugins
    from levelbench.operators.frameworks import load_framework

    return [name for name in sorted(plugins.names("framework")) if load_framework(name).lacks(device) is None]


def _print(tallies: list[NodeTestCounts], summary: bool, verbose: bool) -> None:
    from levelbench.report.operators import conformance_table, totals_table

    totals = [(each.framework, each.total) for each in tallies]
    tables = [] if summary else [conformance_table([(each.framework, each.by_operator) for each in tallies])]
    shared.print_tables(*tables, totals_table(totals))
    for each in tallies:
        shown = [one for one in each.results if one.status != "passed"] if verbose else each.of("wrong")
        for one in shown:
            click.echo(f"{each.framework} {one.status}: {one.name}: {one.detail}")
