"""``levelbench analyze threshold``: runs, or the entries of a board, at a sweep of targets."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import UsageError

if TYPE_CHECKING:
    from levelbench.analysis.threshold import TargetVerdicts, ThresholdSweep, TimedArm
    from levelbench.competition.entries import Submission
    from levelbench.records import Record
    from levelbench.records.schema import Target

__all__ = ["entries_at", "threshold"]

_CANNOT_TELL = 4
_CHOSEN = "note: a target that is chosen from this sweep needs runs of its own, made for it"


@click.command("threshold", short_help="Rankings of runs or entries at a sweep of targets.")
@click.argument("runs", nargs=-1, metavar="[RUNS|BOARD]...")
@shared.several("--targets", help="Targets to read the curves at, separated by commas.  [default: round ones]")
@click.option("--task", help="Task of a leaderboard that has several.")
@click.option("--across-machines", is_flag=True, help="Give verdicts on time even if the machines differ.")
@shared.view_options
@shared.statistics_options
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the time to each target to this .svg or .png file.")
@shared.table_options
@shared.store_option
@shared.answer_options
def threshold(runs: tuple[str, ...], store_path: Path, as_json: bool, **given: Any) -> int:
    """Read the curves of RUNS, or of the entries of a BOARD, at a sweep of targets, and compare the rankings.

    Runs of one task are selected as everywhere; those of several machines are arms of their own, unless
    --across-machines takes them together. A board is a folder of entries, ours or DAWNBench's, or one entry's file.
    --target is the target at which crossing rules are set side by side, and that rankings are compared with; by default
    the runs' own.

    \b
      levelbench analyze threshold 'digits[framework=numpy]' 'digits[framework=torch]'
      levelbench analyze threshold dawn-bench-entries/CIFAR10 --targets 0.9,0.92,0.93,0.94,0.945

    Exits with 4 if no run reached any of the targets.
    """
    from msgspec import structs

    from levelbench.analysis.threshold import default_targets, sweep
    from levelbench.cli.reporting import gate_lines
    from levelbench.report.studies import (
        established,
        shortened_table,
        sweep_points_table,
        threshold_tables,
        verdicts_table,
        write_threshold,
    )

    shared.check_statistics(given["margin"], given["level"])
    shared.check_plot(given["plot"])
    shared.check_writable(given["csv_path"], given["markdown_path"])
    asked = _targets(given["targets"])
    entries = entries_at(runs)
    if entries is None:
        arms, target, lines, records = _arms_of_runs(runs, store_path, given)
    else:
        arms, target, lines = _arms_of_entries(entries, given)
        records = []
    for each in asked:
        structs.replace(target, threshold=each).require_on_scale()
    found = sweep(arms, asked or default_targets(arms, target), target.threshold, target.direction, given["level"])
    scored_by = records[0].header.specification.scored_by if records else None
    tables = threshold_tables(found, target, "runs of" if entries is None else "entry", scored_by)
    shown = [shortened_table(each) for each in tables]
    judged = _judge(records, found, given) if len(arms) > 1 else ()
    if judged:
        compared = verdicts_table(judged)
        tables += [] if compared is None else [compared]
        shown += [] if compared is None else [compared]
        # What the gate finds hardly depends on the target: once is enough.
        home = next((at for at in judged if at.target == found.reference), judged[0])
        gate = gate_lines(home.comparisons, home.refusals)
        lines = [*established(judged), *dict.fromkeys([*gate, *lines]), _CHOSEN]

    def write() -> dict[str, str]:
        csv = {each.name: each for each in [sweep_points_table(found), *tables]}
        written = shared.write_tables(given, tables, lines, title="Thresholds", csv=csv)
        drawn = None if given["plot"] is None else write_threshold(found, target, given["plot"], scored_by)
        return written if drawn is None else {**written, "plot": str(drawn)}

    shared.present(shown, lines, lambda: _sweep_json(found, target, judged, lines), write, as_json=as_json, apart=False)
    return 0 if any(cell.reached for row in found.cells for cell in row) else _CANNOT_TELL


def _sweep_json(
    found: ThresholdSweep, target: Target, judged: tuple[TargetVerdicts, ...], lines: list[str]
) -> dict[str, Any]:
    from levelbench.cli.reporting import comparison_json

    verdicts = [
        {
            "target": at.target,
            "comparisons": [comparison_json(each) for each in at.comparisons],
            "refusals": at.refusals,
        }
        for at in judged
    ]
    arms = [{"label": arm.label, "n": len(arm.curves), "rule": arm.rule} for arm in found.arms]
    return {**asdict(found), "arms": arms, "target": target, "verdicts": verdicts, "lines": lines}


def _targets(text: str | None) -> list[float]:
    """The targets that the user names; empty for none."""
    try:
        found = [float(word) for word in (text or "").split(",") if word.strip()]
    except ValueError as error:
        raise UsageError(f"--targets {text}", str(error), "write numbers and commas: 0.9,0.92,0.94") from None
    if text is not None and not found:
        raise UsageError(f"--targets {text!r}", "it names no target", "write numbers and commas: 0.9,0.92,0.94")
    return found


def _arms_of_runs(
    words: tuple[str, ...], store_path: Path, given: dict[str, Any]
) -> tuple[list[TimedArm], Target, list[str], list[Record]]:
    """An arm for each group of runs on one machine, the target they share or was given, doubts, and the records."""
    import msgspec

    from levelbench.analysis.stability import by_machine
    from levelbench.analysis.threshold import TimedArm, curve_of
    from levelbench.cli.reporting import doubt_lines, require_sound
    from levelbench.records import read_record

    if given["task"] is not None:
        raise UsageError("--task without a board", "runs name their task", "select the runs of one task")
    store = shared.open_store(store_path)
    view = {name: given[name] for name in ("clock", "crossing")}
    viewed = shared.selected_groups(store, words, **view)
    groups = shared.as_named(viewed, store, words)
    # Times of several machines have no one mean, unless the user says that they do.
    groups = groups if given["across_machines"] else by_machine(groups)
    caveats = require_sound(groups, "a sweep of targets", store_path)
    scales = {
        (each.specification.task, each.specification.target.metric, each.specification.target.split) for each in groups
    }
    if len(scales) > 1:
        named = ", ".join(sorted(f"{task} ({split} {metric})" for task, metric, split in scales))
        do = "select the runs of one: levelbench analyze threshold TASK"
        raise UsageError("a sweep of targets", f"the runs have {len(scales)} scales: {named}", do)
    own = {group.specification.target.threshold for group in groups}
    if given["threshold"] is None and len(own) > 1:
        listed = ", ".join(f"{each:.10g}" for each in sorted(own))
        raise UsageError(
            "a sweep of targets", f"the runs have several targets: {listed}", "name the one of interest: --target"
        )
    threshold = own.pop() if given["threshold"] is None else given["threshold"]
    target = msgspec.structs.replace(groups[0].specification.target, threshold=threshold)
    target.require_on_scale()
    arms, records = [], []
    for group in groups:
        read = [read_record(Path(run.path)) for run in group.runs]
        records += read
        specification = group.specification
        curves = tuple(curve_of(each, specification.clock) for each in read)
        arms.append(TimedArm(group.label, curves, specification.crossing))
    lines = [*dict.fromkeys([*caveats, *doubt_lines(groups)])]
    if running := sum(run.status == "running" for group in groups for run in group.unfinished):
        lines.append(f"{running} run{'s' * (running > 1)} {'are' if running > 1 else 'is'} still running")
    return arms, target, lines, records


def _judge(records: list[Record], found: ThresholdSweep, given: dict[str, Any]) -> tuple[TargetVerdicts, ...]:
    """Verdicts at every target of the sweep that some run reached; none for entries."""
    from levelbench.analysis.threshold import verdicts_at

    reached = [
        target
        for target, column in zip(found.targets, zip(*found.cells, strict=True), strict=True)
        if any(cell.reached for cell in column)
    ]
    if not records or not reached:
        return ()
    options = {name: given[name] for name in ("margin", "level", "across_machines", "clock", "crossing")}
    return verdicts_at(records, reached, **options)


def entries_at(words: tuple[str, ...]) -> list[tuple[str, Submission]] | None:
    """The entries at these paths, each with a name; ``None`` if they are runs."""
    from levelbench.competition.exchange import entry_paths
    from levelbench.competition.exchange.dawnbench import entry_files

    found: list[tuple[str, Submission]] = []
    for word in words:
        path = Path(word)
        ours = path.suffix == ".json" if path.is_file() else path.is_dir() and any(True for _ in entry_paths(path))
        theirs = path.is_dir() and any(each.parent.name == "train" for each in entry_files(path))
        logs = path.name.endswith((".tar.gz", ".tgz", ".zip")) or (path.is_dir() and any(path.rglob("result_0.txt")))
        if not ours and not theirs and not logs:
            if found:
                do = "analyse them in two calls"
                raise UsageError(f"an analysis of {word}", "it is not a board, but others of the arguments are", do)
            return None
        found += _read_logs(path) if logs else _read_board(path, theirs=theirs)
    return found or None


def _read_logs(path: Path) -> list[tuple[str, Submission]]:
    """The submissions of a folder or archive of MLPerf Training's results; ``RecordError`` if one cannot be read."""
    from levelbench.competition.exchange.mlperf import read_results
    from levelbench.errors import RecordError

    submissions, problems = read_results(path)
    if problems:
        raise RecordError(f"the results in {path}", problems[0], "correct or remove the log")
    return [(each.origin.file if each.origin else each.hardware.description, each) for each in submissions]


def _read_board(path: Path, *, theirs: bool) -> list[tuple[str, Submission]]:
    """The entries of one board; ``RecordError`` for the first that cannot be read."""
    from levelbench.cli.board_exchange import read_entries
    from levelbench.competition.claims import entry_kind
    from levelbench.competition.exchange.dawnbench import read_entry, read_folder
    from levelbench.errors import RecordError

    if theirs:
        submissions, problems = read_folder(path)
        entries = [(Path(each.origin.file).stem if each.origin else each.model, each) for each in submissions]
    elif path.is_file() and entry_kind(path) == "dawnbench":
        return [(path.stem, read_entry(path))]
    else:
        entries, problems = read_entries(path)
    if problems:
        raise RecordError(f"an analysis of {path}", problems[0], "correct or remove the entry: levelbench board check")
    return entries


def _arms_of_entries(
    entries: list[tuple[str, Submission]], given: dict[str, Any]
) -> tuple[list[TimedArm], Target, list[str]]:
    """An arm for each training entry of the task, the task's target, and what to know about them."""
    import msgspec

    from levelbench.analysis.threshold import TimedArm, TimedCurve
    from levelbench.competition.rulesets import rulesets
    from levelbench.competition.scoring import column_of, crossing_of
    from levelbench.errors import UnknownNameError

    if given["clock"] is not None:
        raise UsageError("--clock with a board", "its entries have times on one clock only", "leave it out")
    trained = [(name, each) for name, each in entries if each.mode == "training"]
    tasks = sorted({each.task for _, each in trained})
    if given["task"] is not None and given["task"] not in tasks:
        raise UnknownNameError("task of the board", given["task"], tasks)
    if not tasks or (given["task"] is None and len(tasks) > 1):
        why = f"it has {', '.join(tasks)}" if tasks else "it has no entry that trains"
        raise UsageError("a sweep of the board", why, "name one: --task" if tasks else "choose another board")
    task = given["task"] or tasks[0]
    trained = [(name, each) for name, each in trained if each.task == task]
    target = trained[0][1].target
    if given["threshold"] is not None:
        target = msgspec.structs.replace(target, threshold=given["threshold"])
        target.require_on_scale()
    known, arms, without = {each.id: each for each in rulesets()}, [], 0
    for name, entry in trained:
        rules = known.get(entry.ruleset)
        rule = given["crossing"] or (crossing_of(entry, rules) if rules else entry.crossing or "first")
        curves = []
        for run in entry.runs:
            column = column_of(run, entry, target)
            if column is not None:
                time_s, quality = tuple(run.curve.time_s), tuple(column)
                curves.append(TimedCurve(time_s, quality, "failed" if run.status == "failed" else "unknown"))
        without += not curves
        if curves:
            arms.append(TimedArm(name, tuple(curves), rule))
    lines = []
    if single := sum(len(arm.curves) == 1 for arm in arms):
        lines.append(f"{single} of {len(arms)} entries have one run: their order may be chance")
    if without:
        lines.append(f"{without} entries have no curve of {target.metric}, and are left out")
    clocks = sorted({entry.clock or "not stated" for _, entry in trained})
    if len(clocks) > 1:
        lines.append(f"doubt: the entries are on several clocks: {', '.join(clocks)}")
    return arms, target, lines
