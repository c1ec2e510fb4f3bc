"""``levelbench show``: one or more runs (phases, curve, doubts, environment), or what infer and time measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared

if TYPE_CHECKING:
    from levelbench.records import Record, RunSummary, Store
    from levelbench.records.commands import CommandRecord
    from levelbench.records.inference import InferenceRecord
    from levelbench.report.tables import Table

__all__ = ["command"]


@click.command("show")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--environment", "with_environment", is_flag=True, help="Show the whole environment.")
@click.option("--source", "with_source", is_flag=True, help="Print only the code that the runs hold, each text once.")
@click.option(
    "--trace", type=click.Path(path_type=Path), help="Write the runs as a trace for ui.perfetto.dev to this file."
)
@shared.view_options
@shared.printing_options
@shared.store_option
@shared.answer_options
def command(
    runs: tuple[str, ...],
    with_environment: bool,
    with_source: bool,
    trace: Path | None,
    store_path: Path,
    as_json: bool,
    **view: Any,
) -> int:
    """Show runs, or what infer or time measured; by default the latest run.

    \b
      levelbench show
      levelbench show 3fa9
      levelbench show 'digits[framework=torch,seed=0]' --clock dawnbench
      levelbench show 'digits[scenario=single-stream]'
      levelbench show 'python train.py'
      levelbench show 'digits[seed=0]' --trace digits.json
    """
    from levelbench.errors import LevelbenchError, UsageError
    from levelbench.records import read_record, summarise
    from levelbench.records.commands import CommandRecord, latest_measurement
    from levelbench.records.inference import InferenceRecord
    from levelbench.records.integrity import require_consistent
    from levelbench.records.process_selection import named_processes

    store = shared.open_store(store_path)
    words = runs or ("latest",)
    try:
        paths = _paths(shared.each_run(store, words))
    except LevelbenchError:
        answers = named_processes(InferenceRecord, store_path, words)
        whole = latest_measurement(store_path) if words == ("latest",) and not answers else []
        timed = whole or ([] if answers else named_processes(CommandRecord, store_path, words))
        if answers or timed:
            _refuse_view(trace, view)
            if with_source:
                raise UsageError(
                    "show --source", "these are timed processes, which hold no code", "leave it out"
                ) from None
            shown = _show_inference(answers, as_json) if answers else _show_commands(timed, as_json)
            return shown if as_json else _show_files([*answers, *timed], with_environment)
        paths = _paths(_with_superseded(store, words))
        if not paths:
            raise
    for path, consistent in paths:
        if not consistent:
            require_consistent(summarise(read_record(path)))

    def views() -> Iterator[tuple[Record, RunSummary]]:
        for path, _ in paths:
            record = read_record(path)
            yield record, summarise(record, **view)

    if with_source:
        for text in dict.fromkeys(read_record(path).header.source.text for path, _ in paths):
            click.echo(shared.visible(text))
        return 0
    if trace is not None:
        shared.check_writable(trace)
        _write_trace(trace, [read_record(path) for path, _ in paths])
    if as_json:
        shared.emit_json_list(_as_json(record, run) for record, run in views())
        return 0
    for record, run in views():
        _print(record, run, with_environment)
    if trace is not None:
        click.echo(f"trace: {trace}")
    return 0


def _write_trace(path: Path, records: list[Record]) -> None:
    from levelbench.records.summary import labels_of
    from levelbench.report.drawing import write_whole
    from levelbench.report.trace import trace_json

    heads = [each.header for each in records]
    labels = labels_of([each.specification for each in heads], chosen=[each.chosen for each in heads])
    named = [
        (f"{label}, seed {each.header.seed}, run {each.header.id[:8]}", each)
        for label, each in zip(labels, records, strict=True)
    ]
    write_whole(path, trace_json(named))


def _paths(runs: Iterable[RunSummary]) -> list[tuple[Path, bool]]:
    """The paths of the runs, oldest first, and whether each is consistent; no more is kept in memory."""
    found = sorted((run.started, run.path, not run.contradictions) for run in runs)
    return [(Path(path), consistent) for _, path, consistent in found]


def _with_superseded(store: Store, words: tuple[str, ...]) -> list[RunSummary]:
    """The runs that the words select, if a fresh run has replaced some of them; none if a word selects none."""
    from levelbench.errors import UsageError
    from levelbench.records import parse_selector, summarise

    found: dict[str, RunSummary] = {}
    for word in words:
        selector = parse_selector(word)
        try:
            records = store.find(selector)
        except UsageError:
            records = store.superseded(selector) if selector.is_id else []
        if not records:
            return []
        for record in records:
            found.setdefault(record.header.id, summarise(record))
    return sorted(found.values(), key=lambda run: run.started)


def _refuse_view(trace: Path | None, view: dict[str, Any]) -> None:
    from levelbench.errors import UsageError

    if trace is not None or any(each is not None for each in view.values()):
        asked = "show --trace" if trace is not None else "show --clock, --crossing or --target"
        found = "these are timed processes, which have no phases, clock, crossing or target"
        raise UsageError(asked, found, "leave it out")


def _show_inference(records: list[InferenceRecord], as_json: bool) -> int:
    """What ``levelbench infer`` printed about them: one table for all that differ only in the framework."""
    from levelbench.records.inference_summary import summarise_inference
    from levelbench.records.process_selection import arms_among
    from levelbench.report.inference import inference_lines, inference_table

    measurements = arms_among(records)
    summaries = [summarise_inference(arms) for arms in measurements]
    if as_json:
        from levelbench.cli.as_json import inference_json

        shared.emit_json([inference_json(each, arms) for each, arms in zip(summaries, measurements, strict=True)])
    for each in () if as_json else summaries:
        _print_all(inference_table(each), inference_lines(each))
    return 0


def _show_commands(records: list[CommandRecord], as_json: bool) -> int:
    """What ``levelbench time`` printed about them: the last process of each number, for each command and machine."""
    from dataclasses import asdict

    from levelbench.records.commands import summarise_commands
    from levelbench.records.process_selection import arms_among
    from levelbench.report.commands import answer_lines, summary_table

    summaries = [summarise_commands(arms) for arms in arms_among(records)]
    if as_json:
        shared.emit_json([asdict(each) for each in summaries])
    for each in () if as_json else summaries:
        _print_all(summary_table(each), [*answer_lines(each), *(f"doubt: {doubt}" for doubt in each.suspect)])
    return 0


def _print_all(table: Table, lines: list[str]) -> None:
    shared.print_tables(table)
    shared.say("", *lines, "")


def _show_files(records: Sequence[InferenceRecord | CommandRecord], with_environment: bool) -> int:
    if with_environment:
        shared.emit_json(records[0].header.environment)
    for record in records:
        click.echo(f"record ({record.status}): {record.path}")
    return 0


def _as_json(record: Record, run: RunSummary) -> dict[str, Any]:
    import msgspec

    from levelbench.records.operations import peaks_of, use_of_operations
    from levelbench.records.ranks import teamwork

    use = use_of_operations(run, peaks_of(run))
    found = {**msgspec.to_builtins(run), "curve": msgspec.to_builtins(record.evaluations)}
    found["operations"] = None if use is None else msgspec.to_builtins(use)
    team = teamwork(record)
    return found if team is None else {**found, "teamwork": msgspec.to_builtins(team)}


def _print(record: Record, run: RunSummary, with_environment: bool) -> None:
    from levelbench.records.ranks import straggler_lines, teamwork
    from levelbench.records.store import SUPERSEDED
    from levelbench.report.distributed import divergence_table, operations_table, ranks_table, staleness_table
    from levelbench.report.runs import curve_table, phases_table, run_facts

    of_ranks = (make(record) for make in (ranks_table, operations_table, staleness_table, divergence_table))
    tables = [run_facts(run), phases_table(run), curve_table(record, run), *(each for each in of_ranks if each)]
    shared.print_tables(*tables)
    team = teamwork(record)
    stragglers = straggler_lines("this run", [team]) if team is not None else []
    shared.say("", *(f"doubt: {each}" for each in (*run.suspect, *stragglers)))
    if run.error:
        click.echo(f"error: {run.error}")
    if with_environment:
        shared.emit_json(run.environment)
    chain = "" if run.chained else " (written without checksums: damage to it may go unnoticed)"
    if record.path.parent.name == SUPERSEDED:
        click.echo("superseded: a fresh run has replaced it, and no comparison counts it")
    click.echo(f"record: {run.path}{chain}")
