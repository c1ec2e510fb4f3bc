"""``levelbench check FILE`` on optimizers: what is asked for, what was found, and how it is printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from levelbench.cli import options as shared
from levelbench.cli.check.findings import findings_table, print_wrong, summary
from levelbench.cli.check.operators import open_frameworks
from levelbench.cli.progress_line import ProgressLine
from levelbench.errors import UsageError

if TYPE_CHECKING:
    from levelbench.report.tables import Table
    from levelbench.training.validation.optimizers import Checked
    from levelbench.training.validation.probes import Report

__all__ = ["check_optimizers"]

_USUAL = ("numpy", "torch")


def check_optimizers(path: Path, *, reference: str, framework: str, plot: Path | None, seed: int, as_json: bool) -> int:
    """Check the optimizers of a file; the exit code: 1 for a finding.

    ``reference`` is a name, empty for the file's own; ``framework`` names frameworks, commas between, empty for NumPy
    and PyTorch where they are installed; ``plot`` is drawn for the first optimizer that is wrong, else the first.
    """
    from levelbench.training.validation.optimizer_files import load_optimizers
    from levelbench.training.validation.optimizers import check_optimizer

    shared.check_plot(plot)
    found, named = load_optimizers(path)
    frameworks = open_frameworks(framework, "cpu") if framework else _installed()
    checked: dict[str, Checked] = {}
    with ProgressLine() as line:
        for name, each in found.items():

            def tell(probe: str, name: str = name) -> None:
                if line.live:
                    line.say(f"{name}: {probe}")

            checked[name] = check_optimizer(
                each, reference or named, frameworks=frameworks, seed=seed, name=name, tell=tell
            )
    _print(checked, as_json)
    if plot is not None:
        _draw(checked, plot)
    return int(any(each.report.failed for each in checked.values()))


def _installed() -> list[str]:
    from levelbench import plugins
    from levelbench.operators.frameworks import load_framework

    known = plugins.names("framework")
    return [name for name in _USUAL if name in known and load_framework(name).lacks("cpu") is None]


def _draw(checked: dict[str, Checked], path: Path) -> None:
    from levelbench.report.analyses import Way, write_divergence

    compared = {name: each for name, each in checked.items() if each.divergences}
    if not compared:
        raise UsageError(f"--plot {path}", "there is no reference to part from", "name one: --reference adam")
    name = next((name for name, each in compared.items() if each.report.failed), next(iter(compared)))
    ways = [Way(each.problem, each.l2, each.linf, each.tolerance) for each in compared[name].divergences]
    click.echo(f"divergence: {write_divergence(ways, path, f'{name} and its reference')}", err=True)


def _print(checked: dict[str, Checked], as_json: bool) -> None:
    if as_json:
        reports = [each.to_dict() for each in checked.values()]
        shared.emit_json({"passed": all(each["passed"] for each in reports), "reports": reports})
        return
    shared.print_tables(*(_table(each.report) for each in checked.values()))
    for name, each in checked.items():
        longest = max((len(way.linf) for way in each.divergences), default=0)
        beside = f", in up to {longest:,} steps beside the reference" if longest else ""
        click.echo(f"{name}: {summary(len(each.report.failed))}{beside}")
        print_wrong(each.report)


def _table(report: Report) -> Table:
    return findings_table(report.name, ((each.probe, each.status, each.found) for each in report.findings))
