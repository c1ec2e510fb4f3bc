"""``levelbench analyze scaling``: runs on several numbers of ranks, or entries on several numbers of accelerators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import UsageError

if TYPE_CHECKING:
    from levelbench.analysis.scaling import EntryRuns, Scaling
    from levelbench.competition.entries import Submission

__all__ = ["scaling_verb"]

_CANNOT_TELL = 4


@click.command("scaling", short_help="Efficiency of more ranks or accelerators, and its laws.")
@click.argument("runs", nargs=-1, metavar="[RUNS|BOARD]...")
@click.option("--task", help="Task of a leaderboard that has several.")
@shared.view_options
@click.option("--level", type=float, default=0.95, show_default=True, help="Confidence level.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    help="Draw the efficiencies to this .svg or .png file; several scalings to FILE-1.png, ...",
)
@shared.table_options
@shared.store_option
@shared.answer_options
def scaling_verb(runs: tuple[str, ...], store_path: Path, as_json: bool, **given: Any) -> int:
    """What more ranks gain in time per epoch and in time to accuracy; Amdahl's and the Universal Scalability Law.

    RUNS are selected as everywhere, such as those of levelbench scale. A BOARD is a folder of entries, ours or
    DAWNBench's, or MLPerf Training's results: entries of one author and model scale over accelerators.

    \b
      levelbench analyze scaling digits
      levelbench analyze scaling dawn-bench-entries/CIFAR10

    Exits with 4 if nothing ran on two numbers of ranks.
    """
    from levelbench.cli.analyze_threshold import entries_at
    from levelbench.cli.reporting import scaling_json, scaling_lines
    from levelbench.report.distributed import scaling_tables, write_scaling

    shared.check_statistics(0.0, given["level"])
    shared.check_plot(given["plot"])
    shared.check_writable(given["plot"], given["csv_path"], given["markdown_path"])
    entries = entries_at(runs)
    if entries is None:
        found, lines = _of_runs(runs, store_path, given)
    else:
        found, lines = _of_entries(entries, given)
    tables = [table for each in found for table in scaling_tables(each)]
    answers = [line for each in found for line in each.answers]
    noted = {each.title: scaling_lines(each) for each in found}
    common = [line for line in scaling_lines(found[0]) if all(line in each for each in noted.values())]
    named = [f"{title}: {line}" for title, own in noted.items() for line in own if line not in common]
    lines = [*named, *common, *lines]

    def write() -> dict[str, str]:
        csv = {
            f"{table.name}{f'-{at}' if at else ''}": table
            for at, each in enumerate(found)
            for table in scaling_tables(each)
        }
        written = shared.write_tables(given, tables, [*answers, *lines], title="Scaling", csv=csv)
        for at, each in enumerate(found if given["plot"] is not None else ()):
            path = given["plot"] if len(found) == 1 else given["plot"].with_stem(f"{given['plot'].stem}-{at + 1}")
            name = "plot" if len(found) == 1 else f"plot_{at + 1}"
            written[name] = str(write_scaling(each.title, each.points, (), path, each.laws))
        return written

    def view() -> dict[str, Any]:
        return {"scalings": [scaling_json(each) for each in found], "lines": lines}

    shared.present(tables, lines, view, write, answer=answers, as_json=as_json)
    return 0 if any(len(law.counts) > 1 for each in found for law in each.laws) else _CANNOT_TELL


def _of_runs(words: tuple[str, ...], store_path: Path, given: dict[str, Any]) -> tuple[list[Scaling], list[str]]:
    from levelbench.cli.reporting import require_sound, scalings_of
    from levelbench.records import read_record

    if given["task"] is not None:
        raise UsageError("--task without a board", "runs name their task", "select the runs of one task")
    store = shared.open_store(store_path)
    view = {name: given[name] for name in ("clock", "crossing", "threshold")}
    groups = shared.selected_groups(store, words, **view)
    caveats = require_sound(groups, "how runs scale", store_path)
    found = scalings_of(groups, [read_record(Path(run.path)) for group in groups for run in group.runs], given["level"])
    if not found:
        ranks = sorted({(team.ranks if (team := group.specification.distribution) else 1) for group in groups})
        listed = ", ".join(map(str, ranks))
        what = groups[0].specification.task
        raise UsageError(
            f"how {what} scales",
            f"no task, target and settings have runs on two numbers of ranks: there are {listed}",
            f"make them: levelbench scale {what} --ranks 1,2,4"
            if groups[0].specification.scored_by is None
            else "make it a task (levelbench new task) and run that on several (levelbench scale): how many ranks a "
            "program has is not known",
        )
    return found, caveats


def _of_entries(entries: list[tuple[str, Submission]], given: dict[str, Any]) -> tuple[list[Scaling], list[str]]:
    """A scaling for each author, model and target with entries on two numbers of accelerators."""
    from levelbench.analysis.scaling import scaling_of_entries
    from levelbench.claims.hardware import accelerators_in

    if given["clock"] is not None:
        raise UsageError("--clock with a board", "its entries have times on one clock only", "leave it out")
    series: dict[tuple[str, str, str, float], list[EntryRuns]] = {}
    uncounted = 0
    for name, entry in entries:
        if entry.mode != "training" or given["task"] not in (None, entry.task):
            continue
        system = entry.hardware
        count = accelerators_in(system.description, system.accelerators, system.nodes)
        uncounted += count is None
        if count is not None:
            author = entry.author.organisation or entry.author.name or ""
            threshold = entry.target.threshold if given["threshold"] is None else given["threshold"]
            key = (entry.task, author, entry.model, threshold)
            series.setdefault(key, []).append(_runs_of(name, entry, count, threshold, given["crossing"]))
    found = [
        scaling_of_entries(f"Scaling of {model} on {task}, {author}", runs, given["level"])
        for (task, author, model, _), runs in series.items()
        if len({each.count for each in runs}) > 1
    ]
    if not found:
        counts = sorted({each.count for runs in series.values() for each in runs})
        listed = ", ".join(map(str, counts))
        said = f"no author has one model on two numbers of accelerators: there are {listed}"
        said = said if counts else f"none of {uncounted} entries says how many accelerators it has"
        do = "choose a board with several systems of one author, or give hardware.accelerators in the entries"
        raise UsageError("how the entries scale", said, do)
    lines = [f"{uncounted} entries do not say how many accelerators they have, and are left out"] if uncounted else []
    return found, lines


def _runs_of(name: str, entry: Submission, count: int, threshold: float, rule: str | None) -> EntryRuns:
    from levelbench.analysis.scaling import EntryRuns
    from levelbench.competition.rulesets import rulesets
    from levelbench.competition.scoring import column_of, crossing_of
    from levelbench.measure.crossing import climb_of

    rules = next((each for each in rulesets() if each.id == entry.ruleset), None)
    chosen = rule or (crossing_of(entry, rules) if rules else entry.crossing or "first")
    times, epochs, missed = [], [], []
    for run in entry.runs:
        column = column_of(run, entry, entry.target)
        if not column or not run.curve.time_s:
            continue
        reached = climb_of(run.curve.time_s, column, chosen, entry.target.direction).time_at(threshold)
        if reached is None or run.status == "failed":
            missed.append(float(run.curve.time_s[-1]))
        else:
            times.append(reached)
        if run.curve.epoch and run.curve.epoch[-1] > 0:
            epochs.append(float(run.curve.time_s[-1]) / run.curve.epoch[-1])
    return EntryRuns(name, count, tuple(times), tuple(epochs), tuple(missed))
