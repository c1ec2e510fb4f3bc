"""Stores, runs, groups, comparisons and verdicts in notebooks: the tables and figures of reports.

``import levelbench`` registers them if IPython is running, by the names of their types, so that nothing else is
imported before something is shown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from levelbench.analysis.batch_size import BatchSizeStudy
    from levelbench.analysis.comparison import Comparison
    from levelbench.analysis.composition import Composition, Lesion
    from levelbench.analysis.generalization import Generalization
    from levelbench.analysis.scaling import Scaling
    from levelbench.analysis.tuning import TuningStudy
    from levelbench.analysis.utilisation import Utilisation
    from levelbench.measure.verdict import Verdict
    from levelbench.records.reader import Record
    from levelbench.records.store import Store
    from levelbench.records.summary import RunGroup, RunSummary
    from levelbench.report.tables import Table

__all__ = ["SHOWN", "measured_html", "register"]

_MOST_ROWS = 30


def _page(*parts: str) -> str:
    """Parts of a page, with the colours of a report's style sheet."""
    from levelbench.report.markup import LIGHT, Html, tag, variables

    return tag(
        "div", *(each if isinstance(each, Html) else tag("p", each) for each in parts), style=variables(LIGHT, 0)
    )


def _table(table: Table) -> str:
    from levelbench.report.markup import to_html

    return _page(to_html(table))


def _store(store: Store) -> str:
    from levelbench.report.markup import to_html
    from levelbench.report.runs import rows_table

    rows = store.rows(order_by="started", descending=True)
    more = len(rows) - _MOST_ROWS
    return _page(to_html(rows_table(rows[:_MOST_ROWS])), *([f"and {more} older runs"] if more > 0 else []))


def _run(run: RunSummary) -> str:
    from levelbench.report.markup import to_html
    from levelbench.report.runs import phases_table, run_facts

    return _page(to_html(run_facts(run)), to_html(phases_table(run)), *(f"doubt: {each}" for each in run.suspect))


def _record(record: Record) -> str:
    from levelbench.records.summary import group_runs, summarise
    from levelbench.report.run_figures import figures_of

    run = summarise(record)
    curves = [each.svg for group in group_runs([run]) for each in figures_of([(group, [record])])[:1]]
    return _run(run) + _drawings(*curves)


def _group(group: RunGroup) -> str:
    from levelbench.report.markup import to_html
    from levelbench.report.runs import groups_table

    return _page(to_html(groups_table([group])))


def _verdict(verdict: Verdict) -> str:
    from levelbench.measure.verdict import format_verdict

    said = format_verdict(verdict, "a", "b")
    return _page(said, *([verdict.reason] if verdict.reason not in said else []))


def _comparison(comparison: Comparison) -> str:
    from levelbench.report.runs import groups_table

    sides = [comparison.a, comparison.b]
    return measured_html(comparison.answer(), groups_table(sides), comparison.caveat_lines(), sides)


def _batch_sizes(study: BatchSizeStudy) -> str:
    from levelbench.report.batch_sizes import batch_size_tables, draw_batch_size
    from levelbench.report.markup import tag, to_html
    from levelbench.report.run_figures import can_draw

    listed = tag("ul", *(tag("li", line) for line in (*study.lacks, *study.caveats)))
    tables = map(to_html, batch_size_tables(study))
    return _page(*study.answers(), *tables, listed) + _drawings(*([draw_batch_size(study)] if can_draw() else []))


def _scaling(found: Scaling) -> str:
    from levelbench.report.distributed import scaling_tables
    from levelbench.report.markup import tag, to_html

    lines = [*(line for each in found.laws for line in each.lacks), *found.warnings]
    listed = tag("ul", *(tag("li", line) for line in dict.fromkeys(lines)))
    return _page(*found.answers, found.base, *map(to_html, scaling_tables(found)), listed)


def _generalization(found: Generalization) -> str:
    from levelbench.report.generalization import generalization_lines, generalization_tables
    from levelbench.report.markup import to_html

    return _page(*generalization_lines(found), *map(to_html, generalization_tables(found)))


def _utilisation(found: Utilisation) -> str:
    from levelbench.report.markup import to_html
    from levelbench.report.utilisation import utilisation_table

    return _page(to_html(utilisation_table(found)))


def _composition(found: Composition | Lesion) -> str:
    from levelbench.analysis.composition import Lesion
    from levelbench.report.analyses import arms_table, effects_table, singles_table
    from levelbench.report.markup import to_html

    effects = None if isinstance(found, Lesion) else effects_table(found)
    tables = [arms_table(found), singles_table(found), *([effects] if effects else [])]
    return _page(*(line.strip() for line in found.lines()), *map(to_html, tables))


def _tuning(study: TuningStudy) -> str:
    from levelbench.report.markup import to_html
    from levelbench.report.tuning import sides_table, trials_table

    lines = [line.strip() for line in (*study.answer(), *study.lines())]
    return _page(*lines, to_html(sides_table(study)), to_html(trials_table(study)))


def measured_html(answer: Sequence[str], table: Table, below: Sequence[str], groups: Sequence[RunGroup]) -> str:
    """Verdicts and why, the table, what speaks against them, and each run's time where it can be drawn."""
    from levelbench.report.markup import tag, to_html
    from levelbench.report.run_figures import can_draw, draw_times

    said = (tag("p", tag("b", line) if at == 0 else line.strip()) for at, line in enumerate(answer))
    listed = [tag("ul", *(tag("li", line.strip()) for line in below))] if below else []
    drawn = [draw_times("notebook-times", groups)] if can_draw() and groups else []
    return _page(*said, to_html(table), *listed) + _drawings(*drawn)


def _drawings(*drawn: str) -> str:
    from levelbench.report.markup import Html, tag

    return _page(*(tag("div", Html(each), style="max-width:42em") for each in drawn if each))


SHOWN: dict[tuple[str, str], Callable[[Any], str]] = {
    ("levelbench.records.store", "Store"): _store,
    ("levelbench.records.summary", "RunSummary"): _run,
    ("levelbench.records.reader", "Record"): _record,
    ("levelbench.records.summary", "RunGroup"): _group,
    ("levelbench.analysis.comparison", "Comparison"): _comparison,
    ("levelbench.analysis.batch_size", "BatchSizeStudy"): _batch_sizes,
    ("levelbench.analysis.scaling", "Scaling"): _scaling,
    ("levelbench.analysis.generalization", "Generalization"): _generalization,
    ("levelbench.analysis.utilisation", "Utilisation"): _utilisation,
    ("levelbench.analysis.composition", "Composition"): _composition,
    ("levelbench.analysis.composition", "Lesion"): _composition,
    ("levelbench.analysis.tuning", "TuningStudy"): _tuning,
    ("levelbench.measure.verdict", "Verdict"): _verdict,
    ("levelbench.report.tables", "Table"): _table,
}
"""The formatter of each type, by its module and name."""


def register() -> None:
    """Register the formatters with the running IPython, if there is one."""
    if (shell := sys.modules["IPython"].get_ipython()) is not None:
        html = shell.display_formatter.formatters["text/html"]
        for (module, name), show in SHOWN.items():
            html.for_type_by_name(module, name, show)
