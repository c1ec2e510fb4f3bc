"""``levelbench compare``: verdict, attribution and differences between the environments of two sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from levelbench.cli import options as shared

__all__ = ["command"]


@click.command("compare", cls=shared.Grouped)
@click.argument("a")
@click.argument("b")
@click.option("--across-machines", is_flag=True, help="Give a verdict on time even if the machines differ.")
@shared.view_options
@shared.statistics_options
@shared.table_options
@shared.fail_on("slower,unclear")
@shared.store_option
@shared.answer_options
def command(
    a: str,
    b: str,
    across_machines: bool,
    margin: float,
    level: float,
    fail_on: str,
    store_path: Path,
    as_json: bool,
    csv_path: Path | None,
    markdown_path: Path | None,
    **view: Any,
) -> int:
    """Compare the runs selected by B with those selected by A, the baseline. A ratio below 1 means that B is faster.

    \b
      levelbench compare 'digits[framework=numpy]' 'digits[framework=torch]'
      levelbench compare before/ after/ --clock dawnbench
    """
    from levelbench.analysis.comparison import compare
    from levelbench.cli.reporting import comparison_json, exit_code, label_apart
    from levelbench.records import group_runs
    from levelbench.report.runs import groups_table

    shared.check_statistics(margin, level)
    shared.check_writable(csv_path, markdown_path)
    wrong = shared.read_fail_on(fail_on)
    store = shared.open_store(store_path)
    sides = label_apart(store.group(a, **view), store.group(b, **view), a, b)
    comparison = compare(
        *sides,
        margin=margin,
        level=level,
        across_machines=across_machines,
        history=lambda: group_runs(store.summaries()),
    )
    tables, answer, lines = [groups_table(list(sides))], comparison.answer(), comparison.caveat_lines()
    given = {"csv_path": csv_path, "markdown_path": markdown_path}
    shared.present(
        tables,
        lines,
        lambda: comparison_json(comparison),
        lambda: shared.write_tables(given, tables, [*answer, *lines]),
        answer=answer,
        as_json=as_json,
        apart=False,
    )
    return exit_code(sides, [comparison], wrong)
