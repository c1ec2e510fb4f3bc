"""Stores, runs, groups, comparisons and verdicts in notebooks: the tables and figures of reports.

``import levelbench`` registers them if IPython is running, by the names of their types, so that nothing else is
imported before something is shown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from levelbench.analysis.batch_size import BatchSizeStudy
    from levelbench.analysis.comparison import Comparison
    from levelbench.analysis.composition import Composition, Lesion
    from levelbench.analysis.generalization import Generalization
    from levelbench.analysis.roofline import Roofline
    from levelbench.analysis.scaling import Scaling
    from levelbench.analysis.stability import Stability
    from levelbench.analysis.threshold import ThresholdSweep
    from levelbench.analysis.tuning import TuningStudy
    from levelbench.analysis.utilisation import Utilisation
    from levelbench.analysis.why import Why
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


def _tracked(run: Any) -> str:
    """``run`` is a ``TrackedRun``: experiments come after reports."""
    from levelbench.records.reader import read_record

    return _record(read_record(run.path))


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
    from levelbench.report.batch_sizes import batch_size_tables, write_batch_size

    below = (*study.lacks, *study.caveats)
    return _analysis(study.answers(), batch_size_tables(study), lambda path: write_batch_size(study, path), below)


def _scaling(found: Scaling) -> str:
    from levelbench.report.distributed import scaling_tables, write_scaling

    below = [*(line for each in found.laws for line in each.lacks), *found.warnings]
    return _analysis(
        (*found.answers, found.base),
        scaling_tables(found),
        lambda path: write_scaling(found.title, found.points, (), path, found.laws),
        list(dict.fromkeys(below)),
    )


def _generalization(found: Generalization) -> str:
    from levelbench.report.generalization import generalization_lines, generalization_tables, write_generalization

    tables = generalization_tables(found)
    return _analysis(generalization_lines(found), tables, lambda path: write_generalization(found, path))


def _utilisation(found: Utilisation) -> str:
    from levelbench.report.utilisation import utilisation_table, write_utilisation

    return _analysis((), [utilisation_table(found)], lambda path: write_utilisation(found, path))


def _composition(found: Composition | Lesion) -> str:
    from levelbench.analysis.composition import Lesion
    from levelbench.report.analyses import arms_table, effects_table, singles_table, write_composition

    effects = None if isinstance(found, Lesion) else effects_table(found)
    tables = [arms_table(found), singles_table(found), *([effects] if effects else [])]
    return _analysis([line.strip() for line in found.lines()], tables, lambda path: write_composition(found, path))


def _tuning(study: TuningStudy) -> str:
    from levelbench.report.tuning import sides_table, trials_table, write_tuning

    lines = [line.strip() for line in (*study.answer(), *study.lines())]
    return _analysis(lines, [sides_table(study), trials_table(study)], lambda path: write_tuning(study, path))


def _stability(found: Stability) -> str:
    from levelbench.report.studies import stability_tables, write_stability

    return _analysis((), stability_tables([found]), lambda path: write_stability([found], path), found.lacks)


def _thresholds(found: ThresholdSweep) -> str:
    from levelbench.report.studies import threshold_tables

    return _analysis((), threshold_tables(found))


def _roofline(found: Roofline) -> str:
    from levelbench.report.roofline import places_table, roofs_table, write_under_roofs

    tables = [places_table(found).without_empty(), roofs_table(found)]
    return _analysis((), tables, lambda path: write_under_roofs(found, path), found.lacks)


def _why(found: Why) -> str:
    from levelbench.report.why import why_table, write_why

    tables = [] if found.ratio is None else [why_table(found)]
    return _analysis([found.line()], tables, (lambda path: write_why(found, path)) if tables else None, found.lacks)


def _analysis(
    answer: Sequence[str],
    tables: Sequence[Table],
    write: Callable[[Path], object] | None = None,
    below: Sequence[str] = (),
) -> str:
    """An analysis: what it says, its tables, what it lacks, and the figure that ``write`` draws to a file."""
    from levelbench.report.markup import tag, to_html
    from levelbench.report.run_figures import can_draw

    listed = [tag("ul", *(tag("li", line) for line in below))] if below else []
    drawn = ""
    if write is not None and can_draw():
        with TemporaryDirectory() as folder:
            path = Path(folder) / "figure.svg"
            write(path)
            drawn = path.read_text() if path.exists() else ""
    return _page(*filter(None, answer), *map(to_html, tables), *listed) + _drawings(drawn[drawn.find("<svg") :])


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
    ("levelbench.experiments.tracked", "TrackedRun"): _tracked,
    ("levelbench.records.summary", "RunGroup"): _group,
    ("levelbench.analysis.comparison", "Comparison"): _comparison,
    ("levelbench.analysis.batch_size", "BatchSizeStudy"): _batch_sizes,
    ("levelbench.analysis.scaling", "Scaling"): _scaling,
    ("levelbench.analysis.generalization", "Generalization"): _generalization,
    ("levelbench.analysis.utilisation", "Utilisation"): _utilisation,
    ("levelbench.analysis.composition", "Composition"): _composition,
    ("levelbench.analysis.composition", "Lesion"): _composition,
    ("levelbench.analysis.tuning", "TuningStudy"): _tuning,
    ("levelbench.analysis.stability", "Stability"): _stability,
    ("levelbench.analysis.threshold", "ThresholdSweep"): _thresholds,
    ("levelbench.analysis.roofline", "Roofline"): _roofline,
    ("levelbench.analysis.why", "Why"): _why,
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
