"""``levelbench time``: time programs in any language, started in turns, and compare them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from levelbench.experiments.command_process import Command
    from levelbench.experiments.kernel import Place, Plan, UntilClear
    from levelbench.experiments.request import Arm
    from levelbench.measure.verdict import Verdict
    from levelbench.records import Record, Store
    from levelbench.records.commands import CommandRecord, CommandSpecification, CommandSummary

    CommandPlan = Plan[CommandSpecification, CommandRecord]
    Made = tuple[Plan[Arm, Record], dict[Place, Record]]

__all__ = ["command", "show_commands"]

_UNCLEAR = 4
_IN_QUOTES = "put each command in quotes: levelbench time 'python a.py' --vs 'python b.py'"


class _Quoted(shared.Grouped):
    """``time``, which knows that commands without quotes reach it as separate words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse words of which nobody can tell what command they belong to."""
        marked = "--" in args
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            do = "put a command with options of its own in quotes: levelbench time 'python a.py --lr 0.1'"
            found = error.format_message().rstrip(".")
            if error.option_name.startswith("--predict"):
                found = f"{error.message.rstrip('.')}. (Did you mean '--held-out'?)"
            raise UsageError(ctx.command_path, found, do) from error
        words, others = ctx.params.get("words") or (), ctx.params.get("others") or ()
        # `--vs` takes one word, so what follows it joins the first command: python a.py --vs python b.py.
        if not marked and len(words) > 1 and any(len(each.split()) == 1 for each in others):
            found = f"{', '.join(map(repr, words))} would be one command, compared with {', '.join(map(repr, others))}"
            raise UsageError("--vs without quotes", found, _IN_QUOTES)
        if marked and "--vs" in words:
            found = f"everything after -- is one command: {shlex.join(words)}"
            raise UsageError("--vs after --", found, _IN_QUOTES)
        return rest


@click.command(
    "time", cls=_Quoted, groups={k: v for k, v in shared.OPTION_GROUPS.items() if "timeout" not in v.split()}
)
@click.argument("words", metavar="COMMAND", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--vs", "others", multiple=True, metavar="COMMAND", help="Compare with this command; may be repeated.")
@click.option("--revisions", help="Compare git revisions, each checked out separately: main,HEAD.")
@click.option("--target", help="Measure the time to a quality that the program prints: accuracy=0.94, val_loss=3.28.")
@click.option(
    "--direction",
    type=click.Choice(["higher", "lower"]),
    help="Which direction of the metric is better, if its name does not say.",
)
@click.option(
    "--scale",
    metavar="LOWEST,HIGHEST",
    help="Values that the metric may have, if its name does not say: 0,100; -1000, has no highest.",
)
@click.option(
    "--progress",
    help="Regular expression for the lines with the metric; its first group is the quality.  [default: the name]",
)
@click.option("--progress-file", help="File, or TensorBoard folder, that qualities are written to.  [default: output]")
@click.option(
    "--held-out", help="Score predictions on the test split of a task, or on X.npy,y.npy; see docs/reference/time.md."
)
@click.option(
    "--reveal-inputs",
    type=click.Choice(["before", "after"]),
    default="before",
    show_default=True,
    help="When a program gets the held-out inputs: before it starts, or after it has declared the end of training.",
)
@click.option("--task", help="Task to record runs to a target under.  [default: the name of the first program]")
@click.option(
    "--crossing",
    help="Rule by which the target counts as reached.  [default: confirmed; final for held-out data]",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, help="First seed: {seed} in a command is replaced by it."
)
@click.option(
    "--setup", default="", help="Command to run once before the first process, in each revision: 'make build'."
)
@click.option("--prepare", default="", help="Command to run before each process, off the clock.")
@click.option(
    "--warmup", type=click.IntRange(min=0), default=0, help="Number of processes of each command that do not count."
)
@click.option("-n", "--processes", type=int, default=5, show_default=True, help="Number of processes of each command.")
@click.option("--timeout", help="End a process after this time, as a failure: 90, 2min.")
@click.option("--shell", is_flag=True, help="Run the command in /bin/sh.  [default: if it has |, ;, $, * or the like]")
@click.option("--ignore-failure", is_flag=True, help="Count processes that end with a code other than 0.")
@click.option("--show-output", is_flag=True, help="Show the output of the programs, which is discarded otherwise.")
@click.option("--resume", is_flag=True, help="Count the processes that an interrupted command left in the store.")
@shared.price_option
@shared.table_options
@shared.until_clear_options
@shared.statistics_options
@shared.fail_on("slower", looks=True, target=True)
@shared.store_option
@shared.answer_options
def command(words: tuple[str, ...], store_path: Path, as_json: bool, **given: Any) -> int:
    """Time a command, or compare several. They take turns, so that a machine that gets slower affects all alike.

    \b
      levelbench time 'python a.py' --vs 'python b.py'
      levelbench time -n 10 -- ./train --lr 0.1
      levelbench time 'make bench' --revisions main,HEAD --setup 'make build' --until-clear
      levelbench time 'python a.py --seed {seed}' --vs 'python b.py --seed {seed}' --target val_loss=3.28

    The time is from the start of a process to its end. Everything is measured again each time, because it is unknown
    what a program depends on. With --target, a program is ended when it has printed a quality that reaches the target,
    and leaves the record of a run. Exits with 1 if a command fails or is slower than the first (--fail-on).
    """
    from levelbench.cli.progress_line import ProcessProgress
    from levelbench.cli.watching import measure
    from levelbench.experiments.commands import CommandBenchmarks
    from levelbench.records.commands import summarise_commands

    wrong = _checked(given)
    until = shared.until_clear(given, "processes")
    with _commands(words, given) as commands:
        shared.need_two(until, len(commands))
        if given["target"] is not None:
            return _to_target(commands, store_path, as_json, given, until, wrong)
        kind = CommandBenchmarks(
            store_path,
            commands,
            setup=given["setup"],
            prepare=given["prepare"],
            warmup=given["warmup"],
            ignore_failure=given["ignore_failure"],
            show=given["show_output"],
            effect=None if until is None else until.effect,
        )

        def conclude(plan: CommandPlan, records: dict[Place, CommandRecord]) -> CommandSummary:
            (arms,) = plan.arranged(records)
            return summarise_commands(arms, given["level"], given["margin"])

        def judge(found: CommandSummary) -> tuple[list[tuple[str, Verdict]], str]:
            return [(each.name, each.verdict) for each in found.entries if each.verdict is not None], ""

        store = shared.open_store(store_path)
        known = {row.id for row in store.rows()}
        summary = measure(
            kind,
            [each.specification for each in commands],
            given["processes"],
            folder=store_path / "commands",
            watch=lambda plan: ProcessProgress(plan, lambda arm: arm.name, _remark),
            conclude=conclude,
            judge=judge,
            until=until,
            fresh=not given["resume"],
            as_json=as_json,
        )
    show_commands([summary], as_json, given)
    if not as_json:
        with shared.as_far_as_read():
            for line in _tracked(store, known):
                click.echo(line)
    return exit_code(summary, wrong)


def _tracked(store: Store, known: Collection[str]) -> list[str]:
    """What the blocks of ``track`` in the commands have left in the store, and how to go on with it."""
    from levelbench.analysis.ties import time_estimate
    from levelbench.records import group_runs, read_record, summarise
    from levelbench.report.numbers import plural, text_of

    found_runs = [summarise(read_record(row.path)) for row in store.rows() if row.id not in known]
    groups = sorted(group_runs(found_runs), key=lambda each: each.label)
    lines = []
    for group in groups:
        found = time_estimate(group)
        times = f" in {text_of(found)}" if found is not None else ""
        lines.append(f"tracked: {plural(group.n, 'run')} of {group.label}, {group.reached} reached the target{times}")
    if len(groups) == 2:
        lines.append(f"compare them: levelbench compare {shlex.join(each.label for each in groups)}")
    elif groups:
        lines.append(f"look at them: levelbench show {shlex.join(each.label for each in groups[:1])}")
    return lines


_FILES = (".csv", ".json", ".jsonl", ".log", ".tsv", ".txt")
"""Ends of names that are of files, not of folders that TensorBoard writes to."""


def _checked(given: dict[str, Any]) -> frozenset[str]:
    """The outcomes with an exit code other than 0; refuses what can be refused without running a command."""
    shared.check_statistics(given["margin"], given["level"])
    wrong = shared.read_fail_on(given["fail_on"])
    if given["target"] is not None and shared.is_default("fail_on"):
        wrong |= {"missed"}
    if "missed" in wrong and given["target"] is None:
        raise UsageError("--fail-on missed", "a command has no target", "choose of slower, unclear, never")
    if given["processes"] < 1:
        found = "there must be at least one process"
        raise UsageError(
            f"-n {given['processes']}", found, "give a number of 1 or more; three processes give a verdict"
        )
    shared.check_writable(given["csv_path"], given["markdown_path"])
    for name in ("progress", "progress_file", "task", "held_out", "direction", "scale"):
        if given[name] is not None and given["target"] is None:
            raise UsageError(
                f"--{name.replace('_', '-')} without --target",
                "it has no effect",
                "add --target, as in --target accuracy=0.9",
            )
    place = Path(given["progress_file"] or "")
    # Of several commands each would write that of the same seed.
    again = given["others"] or (given["processes"] > 1 and "{seed}" not in place.name)
    if place.suffix in _FILES and again and not given["prepare"] and not place.is_fifo():
        do = f"remove it before each run: --prepare 'rm -f {str(place).replace('{seed}', '*')}'"
        do += "" if given["others"] else f", or name one for each seed: {place.stem}-{{seed}}{place.suffix}"
        raise UsageError(f"--progress-file {place}", "the second run would find that of the first", do)
    return wrong


def _to_target(
    commands: Sequence[Command],
    store_path: Path,
    as_json: bool,
    given: dict[str, Any],
    until: UntilClear | None,
    wrong: frozenset[str],
) -> int:
    """Run the commands to a target, and conclude as `levelbench run` does."""
    from levelbench.cli.run_verb import compared, conclude
    from levelbench.cli.watching import measure_runs
    from levelbench.experiments.programs import ProgramRuns, make_arm, program_name, read_held_out, read_target
    from levelbench.measure.crossing import RULES
    from levelbench.records.writer import path_part

    for name in ("warmup", "ignore_failure"):
        if given[name]:
            raise UsageError(
                f"--{name.replace('_', '-')} with --target",
                "it is only for commands without a target",
                "leave out one of them",
            )
    target = read_target(given["target"], given["direction"], given["scale"])
    task = path_part(given["task"] or program_name(commands[0]))
    timeout_s = commands[0].specification.timeout_s
    held_out, crossing = None, given["crossing"] or "confirmed"
    if crossing not in RULES:
        raise UnknownNameError("crossing rule", crossing, RULES)
    source = click.get_current_context().get_parameter_source("reveal_inputs")
    if given["held_out"] is None and source is not click.core.ParameterSource.DEFAULT:
        raise UsageError(
            "--reveal-inputs without --held-out",
            "there are no held-out inputs",
            "add --held-out, such as --held-out digits",
        )
    if given["held_out"] is not None:
        held_out = read_held_out(given["held_out"], target, after=given["reveal_inputs"] == "after")
        if given["crossing"] not in (None, "final"):
            found = "before its end, only the program itself reports its quality"
            raise UsageError(f"--crossing {crossing} with --held-out", found, "leave --crossing out")
        crossing = "final"
    arms = [
        make_arm(
            each,
            task,
            target,
            held_out=held_out,
            crossing=crossing,
            budget_s=timeout_s,
            pattern=given["progress"],
            setup=given["setup"],
            progress_file=given["progress_file"],
        )
        for each in commands
    ]
    store = shared.open_store(store_path)
    effect = None if until is None else until.effect
    kind = ProgramRuns(
        store,
        commands,
        pattern=given["progress"],
        effect=effect,
        held_out=held_out,
        show=given["show_output"],
        setup=given["setup"],
        prepare=given["prepare"],
        progress_file=given["progress_file"],
    )
    given |= {"no_report": False, "report_path": None, "debug": False}

    def judge(made: Made) -> tuple[list[tuple[str, Verdict]], str]:
        _, comparisons, refusals = compared(*made, store, given)
        return [(each.b.label, each.verdict) for each in comparisons if each.verdict is not None], "; ".join(refusals)

    plan, records = measure_runs(
        kind,
        arms,
        given["processes"],
        folder=store_path,
        judge=judge,
        first_seed=given["seed"],
        until=until,
        fresh=not given["resume"],
        as_json=as_json,
    )
    return conclude(plan, records, store, as_json, given, wrong)


@contextmanager
def _commands(words: Sequence[str], given: dict[str, Any]) -> Iterator[list[Command]]:
    """One arm for each command at each revision, while the revisions are checked out."""
    from levelbench.experiments.commands import make_command, numbered, refuse_missing
    from levelbench.experiments.revisions import Checkout, TreeReads, revisions

    texts = [words[0] if len(words) == 1 else shlex.join(words), *given["others"]]
    if given["target"] is None and any("{seed}" in each for each in texts):
        found = "processes without a target have no seeds, and it would reach the program as it stands"
        raise UsageError("{seed} in a command without --target", found, "write a number, or add --target")
    timeout_s = None if given["timeout"] is None else shared.seconds("--timeout", given["timeout"])

    def make(text: str, place: Checkout, reads: TreeReads | None = None) -> Command:
        return make_command(
            text,
            place.folder,
            shell=given["shell"],
            label=place.name,
            revision=place.commit,
            prepare=given["prepare"],
            timeout_s=timeout_s,
            reads=reads,
        )

    here = [make(text, Checkout("", "", Path.cwd())) for text in texts]
    if given["revisions"] is None:
        # What is set up or prepared may make the program.
        for each in here if not (given["setup"] or given["prepare"]) else ():
            refuse_missing(each)
        yield numbered(here)
        return
    names = [each.strip() for each in given["revisions"].split(",") if each.strip()]
    if len(names) < 2:
        found = f"it names {len(names)}"
        raise UsageError(f"--revisions {given['revisions']}", found, "name at least two, the base first: main,HEAD")
    with revisions(names, texts) as (places, reads, remarks):
        for remark in remarks:
            click.echo(f"note: {remark}", err=True)
        yield numbered(make(text, place, reads) for text in texts for place in places)


def _remark(record: CommandRecord) -> str:
    return record.outcome.reason if record.outcome is not None else ""


def show_commands(summaries: Sequence[CommandSummary], as_json: bool, given: dict[str, Any]) -> None:
    """Print summaries of commands, as one table or JSON, and write CSV and Markdown if requested."""
    from dataclasses import asdict, replace

    from levelbench.report.commands import answer_lines, short_forms, summary_table

    suspect = dict.fromkeys(each for summary in summaries for each in summary.suspect)
    entries = tuple(each for summary in summaries for each in summary.entries)
    merged = replace(summaries[0], entries=entries, suspect=tuple(suspect))
    tables = [summary_table(merged)]
    answer = [line for summary in summaries for line in answer_lines(summary)]
    lines = [f"doubt: {each}" for each in suspect]
    shared.present(
        tables,
        lines,
        lambda: asdict(merged),
        lambda: shared.write_tables(given, tables, [*answer, *lines]),
        answer=answer,
        as_json=as_json,
        shorter=lambda width: short_forms(merged, width) if len(summaries) == 1 else [],
    )


def exit_code(summary: CommandSummary, wrong: frozenset[str]) -> int:
    kinds = {each.verdict.kind.value.lower() for each in summary.entries if each.verdict is not None}
    if "slower" in kinds & wrong:
        return 1
    return _UNCLEAR if "unclear" in kinds & wrong else 0
