"""``levelbench rerun`` and ``levelbench board verify``: make recorded or published runs again, and see what agrees."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import LevelbenchError, UsageError

if TYPE_CHECKING:
    from levelbench.analysis.rerun import ClaimedRun, Reproduction
    from levelbench.competition.entries import Provenance, Submission
    from levelbench.experiments.request import Arm
    from levelbench.records import Record, RunSummary
    from levelbench.report.tables import Table

__all__ = ["command", "read_badges", "verify"]

_EXIT = {"consistent": 0, "inconsistent": 1, "samples consistent": 4, "cannot tell": 4}
_STEP = 5
_NOT_RUN = "not run"

_runs_option = click.option(
    "-n",
    "--runs",
    "count",
    type=click.IntRange(min=3),
    help="Runs to begin with.  [default: as many as are claimed, 3 to 10]",
)
_most_option = click.option(
    "--most", type=click.IntRange(min=3), default=20, show_default=True, help="Runs at most, while it cannot tell."
)
_into_option = click.option(
    "--into",
    type=click.Path(path_type=Path),
    default=Path("levelbench-reruns"),
    show_default=True,
    help="Store of the new runs; the same command resumes from it.",
)
_file_option = click.option(
    "--task-file", type=click.Path(path_type=Path), help="File of the task or recipes, to use instead of recorded code."
)


@click.command("rerun", cls=shared.Grouped)
@click.argument("runs", metavar="RUNS")
@_runs_option
@_most_option
@click.option("--fresh-seeds", is_flag=True, help="Use seeds that no recorded run has, instead of the same ones.")
@_file_option
@click.option("--recorded-code", is_flag=True, help="Run the code that the record holds. Read it first: show --source.")
@_into_option
@shared.data_option
@shared.table_options
@shared.store_option
@shared.answer_options
def command(runs: str, store_path: Path, as_json: bool, **given: Any) -> int:
    """Make the runs that RUNS select again, and say what agrees: bits, qualities, samples to the target, time.

    \b
      levelbench rerun latest
      levelbench rerun 'digits[lr=0.1]' -n 5 --fresh-seeds
      levelbench rerun theirs/ --task-file my_task.py

    The runs must have one specification. More are made until re-runs certainly need less than 1.5 times as much
    (consistent) or more than 1.25 times as much (inconsistent, exit code 1), or --most are there (cannot tell, exit
    code 4). Times are judged on one machine only; on another one the samples to the target may be consistent (also 4).
    """
    from levelbench.records import summarise
    from levelbench.records.comparable import one_kind
    from levelbench.records.store import distinct

    store = shared.open_store(store_path)
    selected = list(distinct(store.each_counted(runs)))
    # To leave out a damaged record silently would change the answer.
    store.require_readable(runs)
    records = _one_specification(selected, runs)
    summaries = [summarise(each) for each in records]
    seeds = sorted(run.seed for run in summaries)
    with _reference(records[0], given["task_file"], given["recorded_code"]) as (reference, notes):
        from levelbench.experiments.request import Arm, load_task, source_of

        specification = records[0].header.specification
        if given["task_file"] is None and not given["recorded_code"]:
            words = {**specification.settings, **specification.team()}
            _need_no_file(f"levelbench rerun {runs}", words, "add --recorded-code")
        task = load_task(reference)
        _need_task(f"levelbench rerun {runs}", specification.task, task.name)
        chosen = records[0].header.chosen
        arm = Arm(
            reference,
            specification,
            source_of(task, specification.recipe),
            None if chosen is None else tuple(chosen),
        )
        claim = _Claim(
            _outcomes(summaries),
            _machine(summaries),
            frozenset(run.id for run in summaries),
            [_conditions(run.environment, specification.framework) for run in summaries],
            any(each.header.source.whole != arm.source.whole for each in records),
        )
        if claim.other_code:
            notes = [*notes, "the code is not what was recorded: a difference may come from that"]
        if len(records) < len(selected):
            left = len(selected) - len(records)
            notes = [*notes, f"{left} of {len(selected)} selected runs are left out: they have not finished"]
        notes += [f"a recorded run is in doubt: {each.sentence}" for each in one_kind(summaries)]
        first = seeds[-1] + 1 if given["fresh_seeds"] else seeds[0]
        answer = _settled(_until_told(arm, first, claim, given, as_json), arm, claim, given, as_json)
    return _show(f"recorded runs of {runs}", answer, notes, given, as_json)


@click.command("verify", cls=shared.Grouped)
@click.argument("entry", type=click.Path(path_type=Path))
@click.option("--top", type=click.IntRange(min=1), help="Entries of each ranking, if ENTRY is a folder.  [default: 5]")
@_runs_option
@_most_option
@click.option("--seed", type=click.IntRange(min=0), help="First seed of the re-runs.  [default: drawn at random]")
@click.option("--same-seeds", is_flag=True, help="Use the claimed seeds, which finds edited curves with fewer runs.")
@_file_option
@click.option(
    "--badge",
    type=click.Path(path_type=Path),
    help="Write the answer to this .json file (of a leaderboard: this folder), for the board.",
)
@_into_option
@shared.data_option
@shared.table_options
@shared.answer_options
def verify(entry: Path, as_json: bool, **given: Any) -> int:
    """Run ENTRY of a leaderboard again from its own source with fresh seeds, and say whether its claim holds.

    \b
      levelbench board verify leaderboard/digits/training/ENTRY.json
      levelbench board verify ENTRY.json --task-file their_recipe.py --badge verified/ENTRY.json
      levelbench board verify leaderboard --top 5 --badge verified

    Of a leaderboard's folder, the first of each ranking of training are verified, one after the other; one that cannot
    be run here is named, and exit code 1 means that one is inconsistent.

    Where fresh seeds may have had other luck than the entry's own, those are run too: they need what is claimed.

    The entry names its task, recipe and settings; --task-file is where its author's own code is, which then runs as
    you: use a machine or container that holds no secrets. Decides as levelbench rerun does.
    """
    if entry.is_dir():
        return _verify_first(entry, as_json, given)
    if given["top"] is not None:
        raise UsageError(f"--top {given['top']}", f"{entry} is one entry", "give the leaderboard's folder, or no --top")
    answer, notes = _verified(entry, given, as_json)
    return _show(f"entry {entry.name}", answer, notes, given, as_json)


def _verified(entry: Path, given: dict[str, Any], as_json: bool) -> tuple[_Answer, list[str]]:
    """What running an entry again says, with remarks; the badge is written if there is to be one."""
    from levelbench.competition.entries import read_submission

    submission = read_submission(entry)
    _need_training(submission, entry)
    arm = _arm_of(submission, given["task_file"])
    claim = _claim_of(submission, arm)
    used = [each.seed for each in claim.runs]
    first = max(used) + 1 + secrets.randbelow(10**6) if given["seed"] is None else given["seed"]
    if given["same_seeds"]:
        if any(run.seed is None for run in submission.runs):
            raise UsageError("--same-seeds", "the entry does not state its seeds", "verify it without --same-seeds")
        first = min(used)
    notes = [f"seeds from {first} on" + ("" if given["same_seeds"] else f" (--seed {first} resumes)")]
    if claim.other_code:
        notes.append("the code is not what the entry was made with: a difference may come from that")
    answer = _settled(_until_told(arm, first, claim, given, as_json), arm, claim, given, as_json)
    if not given["same_seeds"] and _may_be_luck(answer.found) and _in_a_row(submission):
        answer = _with_its_own_seeds(answer, arm, min(used), claim, given, as_json)
    if given["badge"] is not None:
        _write_badge(given["badge"], entry, answer, claim.other_code)
    return answer, notes


def _may_be_luck(found: Reproduction) -> bool:
    """Whether its seeds may have had more luck than the fresh ones, or need more than it says."""
    from levelbench.analysis.rerun import TOLERANCE

    most = found.samples.high
    return found.kind != "inconsistent" and (most is None or most > TOLERANCE)


def _in_a_row(submission: Submission) -> bool:
    """Whether its seeds are stated and follow each other, so that its very runs can be made again."""
    seeds = [run.seed for run in submission.runs if run.seed is not None]
    return len(seeds) == len(submission.runs) == len(set(seeds)) == max(seeds, default=0) - min(seeds, default=0) + 1


def _with_its_own_seeds(
    fresh: _Answer, arm: Arm, first: int, claim: _Claim, given: dict[str, Any], as_json: bool
) -> _Answer:
    """The answer of the claimed seeds where it is "inconsistent"; else that of the ``fresh`` ones.

    A few seeds may need half as much again by luck alone, but the same ones need the same. That they come out again
    does not say that they were not chosen, so that alone makes nothing consistent.
    """
    click.echo("fresh seeds may have had other luck: its own seeds are run again too", err=True)
    given = {**given, "most": len(claim.runs), "count": len(claim.runs)}
    own = _settled(_until_told(arm, first, claim, given, as_json), arm, claim, given, as_json)
    if own.found.kind == "inconsistent":
        said = f"with its own seeds, {own.found.reason}"
        return dataclasses.replace(own, found=dataclasses.replace(own.found, reason=said))
    ratio = own.found.samples.ratio
    if own.found.samples.kind != "consistent" or ratio is None:
        said = "its own seeds cannot tell either"
    else:
        times = f"{ratio:.2f} times ".removeprefix("1.00 times ")
        said = f"its own seeds need {times}what is claimed"
    return dataclasses.replace(fresh, found=dataclasses.replace(fresh.found, reason=f"{fresh.found.reason}; {said}"))


def _settled(answer: _Answer, arm: Arm, claim: _Claim, given: dict[str, Any], as_json: bool) -> _Answer:
    """The answer, after a second run of the claimed seeds where a few of them cannot tell what their samples are.

    Only under the conditions of the claim: on another machine, or with another version, other samples are honest.
    """
    from levelbench.analysis.rerun import TOLERANCE, repeated

    seeds = [each.seed for each in claim.runs]
    more = answer.found.samples.ratio
    doubtful = answer.found.kind == "cannot tell" and answer.found.samples.kind != "consistent"
    if not (doubtful and answer.alike and {*seeds} <= {*answer.seeds} and (more is None or more > TOLERANCE)):
        return answer
    click.echo("its seeds are run once more: what comes out alike twice is no luck", err=True)
    count = max(seeds) - min(seeds) + 1
    folder = given["into"].with_name(f"{given['into'].name}-twice")
    twice = _until_told(arm, min(seeds), claim, {**given, "into": folder, "most": count, "count": count}, as_json)
    found = repeated(answer.found, claim.runs, answer.again, twice.again)
    return dataclasses.replace(answer, found=found)


def _verify_first(folder: Path, as_json: bool, given: dict[str, Any]) -> int:
    """Verify the first entries of each ranking of a leaderboard."""
    from levelbench.report.tables import Column, Table

    if given["task_file"] is not None:
        raise UsageError(f"--task-file for {folder}", "it is that of one entry", "verify that entry alone")
    outcomes: list[dict[str, str]] = []
    for identity in _first_of(folder, given["top"] or 5):
        badge = None if given["badge"] is None else given["badge"] / f"{identity}.json"
        click.echo(f"verifying {identity}", err=True)
        try:
            answer, _ = _verified(folder / f"{identity}.json", {**given, "badge": badge}, as_json)
            kind, reason = str(answer.found.kind), answer.found.reason
        except LevelbenchError as error:
            kind, reason = _NOT_RUN, f"{error.found}: {error.do}"
        outcomes.append({"entry": identity, "kind": kind, "reason": reason})
    table = Table.of(
        "verified",
        f"Entries of {folder} that were run again",
        outcomes,
        (Column("entry", "entry"), lambda each: each["entry"]),
        (Column("kind", "re-run"), lambda each: each["kind"]),
        (Column("reason", "because"), lambda each: each["reason"]),
    )
    lines = [] if outcomes else ["no entry of training has a rank"]
    shared.present(
        [table] if outcomes else [],
        lines,
        lambda: {"entries": outcomes},
        lambda: shared.write_tables(given, [table], lines),
        as_json=as_json,
    )
    kinds = {each["kind"] for each in outcomes}
    if "inconsistent" in kinds:
        return 1
    return 0 if kinds == {"consistent"} else 4


def _first_of(folder: Path, top: int) -> list[str]:
    """The entries of training that come first in the rankings by which boards open, each once."""
    from levelbench.cli.board_limits import known_limits
    from levelbench.competition.site.build import build

    with TemporaryDirectory(prefix="levelbench-verify-") as site:
        rankings = build(folder, Path(site) / "site", top=top, limits=known_limits).rankings
    first = {(each.board, each.division): each for each in reversed(rankings)}
    found = [
        row.id
        for each in rankings
        if first[each.board, each.division] is each
        for row in each.rows
        if row.rank is not None and "/training/" in row.id
    ]
    return list(dict.fromkeys(found))


def _one_specification(records: list[Record], words: str) -> list[Record]:
    """The finished records, which must be of one recipe of a task; refuses the rest in words."""
    finished = [each for each in records if each.status == "done" and each.evaluations]
    if not finished:
        raise UsageError(
            f"levelbench rerun {words}", "none of these runs has finished", "run them first: levelbench run"
        )
    keys = {each.header.key for each in finished}
    if len(keys) > 1:
        found = f"they are of {len(keys)} specifications"
        raise UsageError(f"levelbench rerun {words}", found, "select those of one, as in 'digits[lr=0.1]'")
    sources = sorted({each.header.source.whole[:8] for each in finished})
    if len(sources) > 1:
        found = f"they are of {len(sources)} versions of the code: {', '.join(sources)}"
        raise UsageError(
            f"levelbench rerun {words}", found, f"select those of one, as in 'digits[source={sources[0]}]'"
        )
    specification = finished[0].header.specification
    if specification.scored_by is not None:
        found = "a program of its own made them, and a record does not hold a program"
        text = specification.settings.get("command", "python train.py")
        raise UsageError(f"levelbench rerun {words}", found, f"levelbench time {text!r} --target ... -n 5")
    return finished


@contextmanager
def _reference(record: Record, file: Path | None, trusted: bool) -> Iterator[tuple[str, list[str]]]:
    """What names the task of a record (ours, a user's file, or the code that the record holds), and remarks."""
    from levelbench.experiments.own_code import is_ours

    source, name = record.header.source, record.header.specification.task
    if file is not None:
        yield str(file), []
    elif source.name.startswith("levelbench.") and is_ours(name):
        yield name, []
    elif source.modules:
        found = f"the record holds its task file, and not what that imports ({', '.join(sorted(source.modules)[:3])})"
        raise UsageError("its code", found, "say where it is: --task-file FILE")
    elif not trusted:
        found = "the record holds the code of its task file, which would run here as you"
        raise UsageError(
            "its code",
            found,
            "give your own file (--task-file FILE), or read it (levelbench show --source) and add --recorded-code",
        )
    else:
        with TemporaryDirectory(prefix="levelbench-rerun-") as folder:
            # The digest keeps it apart from other versions; a path in a foreign record leads nowhere.
            place = Path(folder) / f"{Path(source.name).stem}.py"
            place.write_text(source.text, encoding="utf-8")
            if hashlib.sha256(source.text.encode()).hexdigest() != source.digest:
                raise UsageError(
                    "its code", "the recorded code does not have the recorded digest", "give --task-file FILE"
                )
            yield str(place), ["ran the code that the record holds"]


def _outcomes(runs: Sequence[RunSummary]) -> list[ClaimedRun]:
    from levelbench.analysis.rerun import ClaimedRun
    from levelbench.records import read_record

    found = []
    for run in runs:
        evaluations = read_record(Path(run.path)).evaluations
        reached = run.time_to_accuracy_s is not None and run.samples_to_target is not None
        last = evaluations[-1]
        evaluation = next((each for each in evaluations if reached and each.samples == run.samples_to_target), last)
        time_s = run.time_to_accuracy_s if reached else run.given_up_s or run.wall_s
        found.append(
            ClaimedRun(
                run.seed,
                reached,
                time_s or run.wall_s,
                float((run.samples_to_target if reached else last.samples) or last.samples),
                evaluation.quality.get(run.target.split),
                (run.losses_digest, run.qualities_digest),
                bool(run.suspect),
            )
        )
    return found


@dataclasses.dataclass(frozen=True)
class _Claim:
    """What was claimed, and how it was measured: facts of each run, as far as they are known."""

    runs: list[ClaimedRun]
    machine: str
    ids: frozenset[str]
    conditions: list[dict[str, str]]
    other_code: bool


_SETTINGS = ("threads.settings.", "threads.niceness", "malloc.", "machine.cores", "machine.cgroup", "machine.governor")


def _conditions(environment: Mapping[str, Any], framework: str) -> dict[str, str]:
    from levelbench.competition.making import provenance_of

    return _conditions_in(provenance_of(environment, version=""), framework)


def _conditions_in(provenance: Provenance, framework: str) -> dict[str, str]:
    """What makes the same code slower or faster on one machine: settings of threads and memory, and versions."""
    settings = {name: text for name, text in provenance.environment.items() if name.startswith(_SETTINGS)}
    computes = ("levelbench", "python", framework, f"{framework}lib", "blas")
    return {**settings, **{name: provenance.software[name] for name in computes if name in provenance.software}}


def _other_conditions(claimed: Sequence[dict[str, str]], again: Sequence[dict[str, str]]) -> str:
    """A clause that says what differs, or nothing."""
    found = []
    for name in sorted({name for each in (*claimed, *again) for name in each}):
        old, new = (sorted({each.get(name, "not set") for each in side}) for side in (claimed, again))
        if claimed and old != new:
            found.append(f"{name.removeprefix('threads.settings.')} was {' or '.join(old)} and is {' or '.join(new)}")
    return f"{'; '.join(found[:3])} (set it alike)" if found else ""


def _machine(runs: Sequence[RunSummary]) -> str:
    from levelbench.measure.environment import machine_of

    machines = {machine_of(run.environment) for run in runs}
    return machines.pop() if len(machines) == 1 else ""


@dataclasses.dataclass(frozen=True)
class _Answer:
    found: Reproduction
    claimed: list[ClaimedRun]
    again: list[ClaimedRun]
    seeds: range
    doubted: list[str]
    """The doubts of each re-run that has any."""
    alike: bool
    """Whether machine, code, threads and versions are those of the claim."""


def _until_told(arm: Arm, first: int, claim: _Claim, given: dict[str, Any], as_json: bool) -> _Answer:
    """Make runs from the seed ``first`` on until it is told, or the most are made."""
    from levelbench.analysis.rerun import reproduction
    from levelbench.cli.watching import measure_runs
    from levelbench.experiments.training import Training
    from levelbench.records import summarise

    store = shared.open_store(given["into"])
    most = given["most"]
    count = min(most, given["count"] or min(max(len(claim.runs), 3), 10))
    while True:
        kind = Training(store, given["data"])
        _, records = measure_runs(kind, [arm], count, folder=store.path, first_seed=first, as_json=as_json)
        runs = [summarise(each) for each in records.values() if each.status == "done"]
        if any(run.id in claim.ids for run in runs):
            found_there = "it holds the claimed runs themselves, which would be compared with themselves"
            raise UsageError(f"re-runs in {given['into']}", found_there, "choose another folder: --into FOLDER")
        again = _outcomes(runs)
        same_machine = bool(claim.machine) and claim.machine == _machine(runs)
        others = _other_conditions(claim.conditions, [_conditions(run.environment, run.framework) for run in runs])
        found = reproduction(
            claim.runs, again, same_machine=same_machine, other_code=claim.other_code, conditions=others
        )
        if found.kind != "cannot tell" or count >= most:
            doubted = ["; ".join(run.suspect) for run in runs if run.suspect]
            alike = same_machine and not claim.other_code and not others
            return _Answer(found, claim.runs, again, range(first, first + count), doubted, alike)
        count = min(most, count + _STEP)


def _show(what: str, answer: _Answer, notes: Sequence[str], given: dict[str, Any], as_json: bool) -> int:
    from levelbench.analysis.rerun import LEVEL, same_seeds

    found = answer.found
    (claimed, again), (made, anew) = found.reached, found.runs
    lines = [f"  {found.reason}", f"reached the target: {claimed} of {made} claimed, {again} of {anew} again"]
    pairs = same_seeds(answer.claimed, answer.again)
    if pairs:
        # An entry has no losses.
        bits = all(each.bits is not None for each in pairs)
        same = sum(bool(each.bits) if bits else each.claimed.quality == each.again.quality for each in pairs)
        what_agrees = "losses and qualities" if bits else "quality at the target"
        lines.append(f"same seeds: {same} of {len(pairs)} with the same {what_agrees} to the last digit")
    lines += [f"note: {each}" for each in notes]
    if answer.doubted:
        lines.append(f"doubt: {len(answer.doubted)} of {anew} re-runs: {answer.doubted[0]}")
    shared.present(
        [_table(answer, LEVEL)],
        lines,
        lambda: {
            **dataclasses.asdict(found),
            "level": LEVEL,
            "seeds": [*answer.seeds],
            "same_seeds": pairs,
            "doubted": answer.doubted,
            "notes": notes,
        },
        lambda: shared.write_tables(given, [_table(answer, LEVEL)], lines),
        answer=[f"{found.kind.upper()}: {what}"],
        as_json=as_json,
    )
    return _EXIT[found.kind]


def _table(answer: _Answer, level: float) -> Table:
    from levelbench.analysis.rerun import of_claimed_seeds
    from levelbench.measure.statistics import geometric_mean
    from levelbench.report.tables import Absent, Cell, Column, ColumnKind, Number, Table, Text

    def mean(runs: Sequence[ClaimedRun], value: Callable[[ClaimedRun], float]) -> float:
        return geometric_mean([value(each) for each in runs])

    own = of_claimed_seeds(answer.claimed, answer.again)
    few = len(own) < len(answer.again)
    rows = []
    for title, runs, value, ratio in (
        ("samples", own, lambda each: each.samples, answer.found.samples),
        ("time per sample, us", answer.again, lambda each: 1e6 * each.time_s / each.samples, answer.found.pace),
    ):
        cell: Cell = Absent("not on one machine" if ratio is None else "too few runs")
        if ratio is not None and ratio.ratio is not None:
            cell = Number(ratio.ratio, ratio.low, ratio.high)
        rows.append((Text(title), Number(mean(answer.claimed, value)), Number(mean(runs, value)), cell))
    columns = (
        Column("what", "geometric mean"),
        Column("claimed", "claimed", ColumnKind.NUMBER),
        Column("again", "again", ColumnKind.NUMBER),
        Column("ratio", "again / claimed", ColumnKind.NUMBER),
    )
    notes = [f"Intervals at {level:.0%}.", *(["The samples are those of the claimed seeds."] if few else [])]
    return Table("rerun", "Re-run", columns, tuple(rows), tuple(notes))


def _need_training(submission: Submission, entry: Path) -> None:
    if submission.mode != "training" or not submission.runs:
        raise UsageError(f"verifying {entry}", f"it is an entry of {submission.mode}", "verify an entry of training")
    if submission.origin is not None:
        found = f"it was imported from {submission.origin.format}, without code that could run here"
        raise UsageError(f"verifying {entry}", found, "verify an entry that board submit has made")


_FACTS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("recipe", "device", "evaluate_every"), (str,)),
    **dict.fromkeys(("budget_epochs", "budget_s", "budget_j"), (int, float)),
    **dict.fromkeys(("budget_samples", "plateau"), (int,)),
}


def _need_no_file(asked: str, settings: Mapping[str, object], consent: str) -> None:
    """Refuse settings that name a file, whose code would run as the user, or what an engine is to start elsewhere."""
    if "engine.options" in settings:
        found = f"its engine has options ({settings['engine.options']}), which may start programs or reach other hosts"
        raise UsageError(asked, found, f"read them, and {consent}")
    for name, value in settings.items():
        if isinstance(value, str) and ".py" in value:
            found = f"its setting {name} names a file with code ({value}), which would run here as you"
            raise UsageError(asked, found, f"read it, and {consent}")


def _need_task(asked: str, wanted: str, found: str) -> None:
    if wanted != found:
        raise UsageError(asked, f"the file is of the task {found}, not {wanted}", f"give the file of {wanted}")


def _arm_of(submission: Submission, file: Path | None) -> Arm:
    from levelbench.competition.checks import FLOPS
    from levelbench.experiments.request import Options, resolve
    from levelbench.plugins import names

    asked = f"verifying an entry of {submission.task}"
    stated: dict[str, Any] = dict(submission.settings)
    if file is None:
        # The name of a task may be the path of a file, and nobody has agreed to run that.
        if submission.task not in names("task"):
            raise UsageError(asked, "no task of that name is installed", "read its file and give it: --task-file FILE")
        _need_no_file(asked, stated, "give the task's file: --task-file FILE")
    for name, types in _FACTS.items():
        if name in stated and not isinstance(stated[name], types):
            raise UsageError(
                asked, f"its setting {name} is {stated[name]!r}", "correct the entry: levelbench board check"
            )
    options = Options(
        framework=submission.framework,
        target=submission.target.threshold,
        crossing=submission.crossing,
        clock=submission.clock,
        **{name: value for name, value in stated.items() if name in _FACTS},
    )
    settings = {name: value for name, value in stated.items() if name not in {*_FACTS, FLOPS}}
    arm = resolve(submission.task if file is None else str(file), _scheme_folded(settings), options)
    _need_task(asked, submission.task, arm.specification.task)
    stated_target, made = submission.target, arm.specification.target
    for name in ("metric", "split", "direction"):
        claimed, own = getattr(stated_target, name), getattr(made, name)
        if claimed != own:
            raise UsageError(asked, f"its {name} is {claimed}, and the task's is {own}", "correct the entry")
    return arm


def _scheme_folded(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with those of the scheme (``scheme.NAME``) and the engine's options in its brackets."""
    from levelbench.records.selection import format_item

    parts = {name.removeprefix("scheme."): value for name, value in settings.items() if name.startswith("scheme.")}
    found = {name: value for name, value in settings.items() if not name.startswith(("scheme.", "engine."))}
    if parts and "scheme" in found:
        found["scheme"] = format_item(str(found["scheme"]), parts)
    if "engine.options" in settings:
        found["engine"] = f"{found.get('engine', 'process')}[{settings['engine.options']}]"
    return found


def _claim_of(submission: Submission, arm: Arm) -> _Claim:
    provenance = submission.provenance
    return _Claim(
        _claims(submission),
        provenance.environment.get("machine.id", "") if provenance else "",
        frozenset(run.record_id for run in submission.runs if run.record_id),
        [_conditions_in(provenance, submission.framework)] if provenance else [],
        provenance is not None and arm.source.digest != provenance.source_digest,
    )


def _claims(submission: Submission) -> list[ClaimedRun]:
    """What an entry says of its runs, on its own terms: by their curves, never by what it says that they mean."""
    from levelbench.analysis.rerun import ClaimedRun
    from levelbench.measure.crossing import climb_of

    target = submission.target
    found = []
    for run in submission.runs:
        curve = run.curve
        if run.status != "done" or not curve.time_s:
            continue
        lengths = {len(curve.time_s), len(curve.quality), len(curve.samples or ())}
        if curve.samples is None or len(lengths) > 1 or min(*curve.samples, *curve.time_s) <= 0:
            found_there = "its curves do not count samples and time at every point, above zero"
            raise UsageError("verifying an entry", found_there, "ask for the records: levelbench rerun")
        rule = submission.crossing or "confirmed"
        time_s = climb_of(curve.time_s, curve.quality, rule, target.direction).time_at(target.threshold)
        at = len(curve.time_s) - 1 if time_s is None else curve.time_s.index(time_s)
        reached = time_s is not None
        found.append(ClaimedRun(run.seed or 0, reached, curve.time_s[at], curve.samples[at], curve.quality[at]))
    if not found:
        raise UsageError("verifying an entry", "none of its runs has finished", "verify an entry with finished runs")
    return found


def read_badges(folder: Path) -> dict[str, str]:
    """What the badges of a folder say, by the SHA-256 of the entry's file; of several of one entry, the newest."""
    if not folder.is_dir():
        raise UsageError(f"--verified {folder}", "it is not a folder", "give the folder of the files of --badge")
    found: dict[str, tuple[str, str]] = {}
    for path in sorted(folder.rglob("*.json")):
        try:
            badge = json.loads(path.read_text(encoding="utf-8"))
            ratios = (("samples", badge["samples"]), ("time per sample", badge["pace"]))
            parts = [
                f"{name} {each['ratio']:.2f} times [{each['low']:.2f}, {each['high']:.2f}]"
                for name, each in ratios
                if each is not None and None not in (each["ratio"], each["low"], each["high"])
            ]
            ended = f"re-run: {badge['kind']}{' with other code' if badge['other_code'] else ''}"
            words = ", ".join([ended, *parts, badge["date"], badge["machine"]])
            digest, day = str(badge["entry_digest"]), str(badge["date"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"the badge {path}", f"it is not one of board verify --badge ({error!r})", "remove the file"
            ) from error
        if day >= found.get(digest, ("", ""))[0]:
            found[digest] = day, words
    return {digest: words for digest, (_, words) in found.items()}


def _write_badge(path: Path, entry: Path, answer: _Answer, other_code: bool) -> None:
    """The answer for a board: which entry, when, where, and the ratios."""
    from levelbench.competition.entries import file_digest
    from levelbench.measure.environment import capture, machine_of
    from levelbench.report.drawing import write_whole

    shared.check_writable(path)
    environment = capture()
    badge = {
        "entry": entry.name,
        "entry_digest": file_digest(entry),
        "date": environment["time"][:10],
        "machine": environment["machine"].get("cpu", ""),
        "machine_id": machine_of(environment),
        "other_code": other_code,
        **dataclasses.asdict(answer.found),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, shared.json_text(badge))
