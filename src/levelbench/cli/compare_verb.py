"""``levelbench compare``: verdict, attribution and differences between the environments of two sides."""

from __future__ import annotations

import dataclasses
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import LevelbenchError, UsageError

if TYPE_CHECKING:
    from levelbench.analysis.comparison import Comparison
    from levelbench.analysis.why import OperatorShares, Why
    from levelbench.experiments.profiling import StepProfile
    from levelbench.records import Record, RunGroup, Store
    from levelbench.records.commands import CommandRecord

__all__ = ["command", "compared", "explained", "why_lines"]


@click.command("compare", cls=shared.Grouped)
@click.argument("a")
@click.argument("b")
@click.option("--across-machines", is_flag=True, help="Give a verdict on time even if the machines differ.")
@click.option("--why", is_flag=True, help="Split the ratio into factors, down to operators, and profile both sides.")
@click.option(
    "--profiles",
    type=click.IntRange(min=0),
    default=4,
    show_default=True,
    help="Processes a side that --why profiles; 0: none.",
)
@click.option("--task-file", type=click.Path(path_type=Path), help="File of the task or recipes, for --why to profile.")
@shared.data_option
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the factors of --why to this .svg or .png file.")
@shared.view_options
@shared.price_option
@shared.statistics_options
@shared.table_options
@shared.fail_on("slower,unclear")
@shared.store_option
@shared.answer_options
def command(a: str, b: str, fail_on: str, store_path: Path, as_json: bool, **given: Any) -> int:
    """Compare the runs selected by B with those selected by A, the baseline. A ratio below 1 means that B is faster.

    \b
      levelbench compare 'digits[framework=numpy]' 'digits[framework=torch]'
      levelbench compare before/ after/ --clock dawnbench
      levelbench compare v100/ cpu/ --across-machines --price v100/=3.06/h --price cpu/=0.40/h
      levelbench compare 'digits[framework=numpy]' 'digits[framework=torch]' --why --plot why.svg
      levelbench compare 'python a.py' 'python b.py'
    """
    from levelbench.cli.reporting import comparison_json, exit_code
    from levelbench.cli.run_verb import short_forms
    from levelbench.report.runs import groups_table
    from levelbench.report.why import why_table, write_why

    shared.check_writable(given["csv_path"], given["markdown_path"], given["plot"])
    shared.check_plot(given["plot"])
    _check_why(given)
    wrong = shared.read_fail_on(fail_on)
    try:
        sides, comparison = compared(shared.open_store(store_path), a, b, given)
    except LevelbenchError:
        if not (arms := _timed_sides(store_path, a, b)):
            raise
        return _compare_commands(arms, as_json, given, wrong)
    tables, answer, lines = [groups_table(sides)], comparison.answer(), comparison.caveat_lines()
    why = explained(sides, comparison, given) if given["why"] else None
    if why is not None:
        answer = [answer[0], f"  why: {why.reasons() or why.line()}"]
        tables += [why_table(why)] if why.ratio is not None else []
        lines = [*why_lines(why), *lines]

    def view() -> dict[str, Any]:
        found = comparison_json(comparison)
        return found if why is None else {**found, "why": why, "line": why.line()}

    def write() -> dict[str, str]:
        written = shared.write_tables(given, tables, [*answer, *lines])
        if why is None or given["plot"] is None:
            return written
        drawn = {"no_plot": "nothing could be split"} if why.ratio is None else {"plot": write_why(why, given["plot"])}
        return {**written, **{name: str(each) for name, each in drawn.items()}}

    shorter = partial(short_forms, sides, [comparison] if why is None else [], [])
    shared.present(tables, lines, view, write, answer=answer, as_json=as_json, apart=False, shorter=shorter)
    return exit_code(sides, [comparison], wrong)


def _timed_sides(store_path: Path, *words: str) -> list[list[CommandRecord]]:
    """The processes of a command that each word selects, as ``time`` has recorded them; empty where one selects none.

    Commands of one name get the words that select them as labels.
    """
    from msgspec import structs

    from levelbench.measure.environment import machine_of
    from levelbench.records.commands import CommandRecord
    from levelbench.records.process_selection import arms_among, named_processes

    sides = []
    for word in words:
        arms = [arm for each in arms_among(named_processes(CommandRecord, store_path, [word])) for arm in each]
        # `python a.py` also names what was measured of its revisions, and is itself meant where it was measured.
        arms = [arm for arm in arms if arm[0].header.specification.name == word] or arms
        names = sorted({arm[0].header.specification.name for arm in arms})
        if len({machine_of(arm[0].header.environment) for arm in arms}) > 1:
            found = "they were measured on different machines"
            raise UsageError(f"the processes {word!r}", found, "name the folder of each machine's records")
        if len(names) > 1:
            found = f"it selects processes of {len(names)} commands: {', '.join(map(repr, names[:3]))}"
            do = f"name one, as in levelbench compare {shlex.quote(names[0])} {shlex.quote(names[1])}"
            raise UsageError(f"the processes {word!r}", found, do)
        # A program that was edited is another one, and the newest is meant.
        sides += sorted(arms, key=lambda arm: max(record.header.started for record in arm))[-1:]
    ids = [{record.header.id for record in arm} for arm in sides]
    if len(sides) < len(words):
        return []
    if ids[0] & ids[1]:
        raise UsageError(f"comparing {words[0]!r} with {words[1]!r}", "both select the same processes", "name two")
    if len({arm[0].header.specification.name for arm in sides}) == 1:
        for word, arm in zip(words, sides, strict=True):
            for at, record in enumerate(arm):
                specification = structs.replace(record.header.specification, label=word)
                arm[at] = dataclasses.replace(
                    record, header=structs.replace(record.header, specification=specification)
                )
    return sides


def _compare_commands(
    arms: list[list[CommandRecord]], as_json: bool, given: dict[str, Any], wrong: frozenset[str]
) -> int:
    """The verdict of ``time`` on processes that are recorded."""
    from levelbench.cli import time_verb
    from levelbench.measure.environment import machine_of
    from levelbench.records.commands import summarise_commands

    for name in ("why", "clock", "crossing", "threshold"):
        if given[name]:
            found = "these are timed processes, which have no phases, clock, crossing or target"
            raise UsageError(f"compare --{name}", found, "leave it out")
    if len({machine_of(arm[0].header.environment) for arm in arms}) > 1 and not given["across_machines"]:
        found = "they were measured on different machines"
        raise UsageError("comparing processes of commands", found, "measure both on one, or add --across-machines")
    summary = summarise_commands(arms, given["level"], given["margin"])
    time_verb.show_commands([summary], as_json, given)
    return time_verb.exit_code(summary, wrong)


def _check_why(given: dict[str, Any]) -> None:
    """Refuse what says nothing without ``--why``, and a single profile."""
    if not given["why"]:
        for name in ("plot", "task_file"):
            if given[name] is not None:
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} {given[name]}", "only --why draws or profiles", "add --why")
    elif given["profiles"] in (1, 2):
        found = "so few processes have no interval"
        raise UsageError(f"--profiles {given['profiles']}", found, "make three or more, or none (0)")


def why_lines(why: Why) -> list[str]:
    """What the losses say, what was hidden, and what is missing."""
    lines = [] if why.trajectories is None else [f"losses: {why.trajectories.line()}"]
    for label, share in zip((why.a, why.b), why.hidden, strict=True):
        if share is not None:
            lines.append(
                f"communication of {label}: {share:.0%} hidden behind computing; the factor is of the exposed rest"
            )
    return [*lines, *(f"not split: {each}" for each in why.lacks)]


def explained(sides: list[RunGroup], comparison: Comparison, given: dict[str, Any]) -> Why:
    """Why the second side takes another time than the first."""
    from levelbench.analysis.trajectory import curves_by_seed, trajectories
    from levelbench.analysis.why import explain
    from levelbench.records import read_record
    from levelbench.records.ranks import teamwork

    a, b = sides
    if comparison.verdict is None:
        reasons = "; ".join(each.sentence for each in comparison.caveats[:1]) or "the sides are not comparable"
        found = f"nothing, because the sides get no verdict ({reasons}): run both here, in turns, under one task"
        # Their runs are there, so nothing is said of missing ones.
        return dataclasses.replace(explain(_emptied(a), _emptied(b), level=given["level"]), lacks=(found,))
    records = [[read_record(Path(run.path)) for run in side.runs] for side in sides]
    curves = [curves_by_seed(each) for each in records]
    profiles, lacks = _profiles(sides, given)
    lacks += [
        f"communication of {side.label}: its framework communicates within its forward and backward passes"
        for side, found in zip(sides, records, strict=True)
        if any(team is not None and not team.counted for team in map(teamwork, found))
    ]
    return explain(
        a,
        b,
        profiles=profiles,
        hidden=(_hidden(records[0]), _hidden(records[1])),
        trajectories=trajectories(curves[0], curves[1], a.specification.target),
        lacks=lacks,
        outcome=comparison.verdict,
        level=given["level"],
    )


def _emptied(group: RunGroup) -> RunGroup:
    return dataclasses.replace(group, runs=())


def _hidden(records: list[Record]) -> float | None:
    """The mean share of communication that was hidden, over the runs that recorded it."""
    from levelbench.records.ranks import teamwork

    found = [team.overlap for each in records if (team := teamwork(each)) is not None and team.overlap is not None]
    return sum(found) / len(found) if found else None


def _profiles(
    sides: list[RunGroup], given: dict[str, Any]
) -> tuple[tuple[OperatorShares, OperatorShares] | None, list[str]]:
    """The operators' shares on both sides, or why there are none."""
    from levelbench.cli.progress_line import say_turns
    from levelbench.experiments.profiling import ProfileJob, profile_sides, why_no_profile

    if not given["profiles"] or not all(side.reached for side in sides):
        return None, ["forward and backward, into operators: no profile was asked for"] if not given["profiles"] else []
    runs = [next(run for run in side.runs if run.reached) for side in sides]
    references = [str(given["task_file"] or run.task) for run in runs]
    for run, reference in zip(runs, references, strict=True):
        if reason := why_no_profile(run, reference):
            return None, [f"forward and backward, into operators: {reason}"]
    jobs = [
        ProfileJob(reference, run.specification, "" if run.settings_read else run.source_digest, run.seed, folder)
        for run, reference in zip(runs, references, strict=True)
        for folder in [None if given["data"] is None else str(given["data"])]
    ]
    try:
        found = profile_sides((jobs[0], jobs[1]), given["profiles"], say_turns("profile"))
    except LevelbenchError as error:
        return None, [f"forward and backward, into operators: {error.asked}: {error.found}. {error.do}"]
    return (_shares(found[0]), _shares(found[1])), []


def _shares(profiles: list[StepProfile]) -> OperatorShares:
    """Shares of a pass, a value a process."""
    from levelbench.analysis.why import OperatorShares

    def of(phase: str) -> dict[str, list[float]]:
        times = [getattr(each, phase) for each in profiles]
        wholes = [getattr(each, f"{phase}_s") for each in profiles]
        titles = dict.fromkeys(title for each in times for title in each)
        return {
            title: [each.get(title, 0.0) / whole for each, whole in zip(times, wholes, strict=True)] for title in titles
        }

    return OperatorShares(of("forward"), of("backward"))


def compared(store: Store, a: str, b: str, given: dict[str, Any]) -> tuple[list[RunGroup], Comparison]:
    """Both sides, with labels that tell them apart, and how ``b`` compares."""
    from levelbench.analysis.comparison import among_others, compare
    from levelbench.cli.reporting import label_apart
    from levelbench.measure.verdict import VerdictKind
    from levelbench.records import group_runs
    from levelbench.records.selection import Selector

    shared.check_statistics(given["margin"], given["level"])
    view = {name: given[name] for name in ("clock", "crossing", "threshold")}
    prices = shared.read_prices(given.get("prices", ()))
    sides = list(shared.priced(label_apart(store.group(a, **view), store.group(b, **view), a, b), prices))
    comparison = compare(
        sides[0],
        sides[1],
        margin=given["margin"],
        level=given["level"],
        across_machines=given["across_machines"],
        history=lambda: group_runs(store.summaries()),
    )
    if comparison.verdict is not None and comparison.verdict.kind in (VerdictKind.FASTER, VerdictKind.SLOWER):
        comparison = among_others(comparison, store.rows(Selector("", word=sides[0].specification.task)))
    return sides, comparison
