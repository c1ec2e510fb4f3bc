"""``levelbench compare``: verdict, attribution and differences between the environments of two sides."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared

if TYPE_CHECKING:
    from levelbench.analysis.comparison import Comparison
    from levelbench.records import RunGroup, Store

__all__ = ["command", "compared"]


@click.command("compare", cls=shared.Grouped)
@click.argument("a")
@click.argument("b")
@click.option("--across-machines", is_flag=True, help="Give a verdict on time even if the machines differ.")
@shared.view_options
@shared.price_option
@shared.statistics_options
@shared.table_options
@shared.fail_on("slower,unclear")
@shared.store_option
@shared.answer_options
def command(
    a: str,
    b: str,
    fail_on: str,
    store_path: Path,
    as_json: bool,
    csv_path: Path | None,
    markdown_path: Path | None,
    **given: Any,
) -> int:
    """Compare the runs selected by B with those selected by A, the baseline. A ratio below 1 means that B is faster.

    \b
      levelbench compare 'digits[framework=numpy]' 'digits[framework=torch]'
      levelbench compare before/ after/ --clock dawnbench
      levelbench compare v100/ cpu/ --across-machines --price v100/=3.06/h --price cpu/=0.40/h
    """
    from levelbench.cli.reporting import comparison_json, exit_code
    from levelbench.report.runs import groups_table

    shared.check_writable(csv_path, markdown_path)
    wrong = shared.read_fail_on(fail_on)
    sides, comparison = compared(shared.open_store(store_path), a, b, given)
    tables, answer, lines = [groups_table(sides)], comparison.answer(), comparison.caveat_lines()
    files = {"csv_path": csv_path, "markdown_path": markdown_path}
    shared.present(
        tables,
        lines,
        lambda: comparison_json(comparison),
        lambda: shared.write_tables(files, tables, [*answer, *lines]),
        answer=answer,
        as_json=as_json,
        apart=False,
    )
    return exit_code(sides, [comparison], wrong)


def compared(store: Store, a: str, b: str, given: dict[str, Any]) -> tuple[list[RunGroup], Comparison]:
    """Both sides, with labels that tell them apart, and how ``b`` compares."""
    from levelbench.analysis.comparison import compare
    from levelbench.cli.reporting import label_apart
    from levelbench.records import group_runs

    shared.check_statistics(given["margin"], given["level"])
    view = {name: given[name] for name in ("clock", "crossing", "threshold")}
    prices = shared.read_prices(given.get("prices", ()))
    sides = label_apart(store.group(a, **view), store.group(b, **view), a, b)
    sides = (*shared.priced(sides, prices),)
    comparison = compare(
        *sides,
        margin=given["margin"],
        level=given["level"],
        across_machines=given["across_machines"],
        history=lambda: group_runs(store.summaries()),
    )
    return list(sides), comparison
