"""``levelbench board check`` and ``build``: check a leaderboard against every rule, and build its site.

A misleading entry may be shown, with the linter's warning next to its figure, and a reviewer decides: an error of the
linter is a warning here and never keeps an entry off the board.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import LevelbenchError
from levelbench.report.numbers import plural

if TYPE_CHECKING:
    from levelbench.competition.checks import EntryFinding
    from levelbench.competition.entries import Submission
    from levelbench.competition.rulesets import Ruleset
    from levelbench.competition.site import NotShown
    from levelbench.competition.site.boards import BoardRanking
    from levelbench.competition.site.build import Built

__all__ = [
    "all_of_linter",
    "build_site",
    "check",
    "finding_lines",
    "freeze_round",
    "score_entry",
    "site_of",
    "summary_line",
    "tell_of_site",
    "worst_of_linter",
]

_MANY = 10
"""With this many findings they are also counted by code."""
_LINTER = "LB"
"""The prefix of the linter's codes."""
_GITHUB = {"error": "error", "warning": "warning", "note": "notice"}


@click.command("check")
@click.argument("place", type=click.Path(path_type=Path), metavar="DIR|FILE", required=False)
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings too.")
@click.option(
    "--records",
    "records_folder",
    type=click.Path(path_type=Path),
    help="Folder of the records: rebuild every run from its record, and report what is left out.",
)
@click.option(
    "--format",
    "layout",
    type=click.Choice(["text", "github"]),
    default="text",
    show_default=True,
    help="github: annotations of a workflow.",
)
@click.option(
    "--lint/--no-lint",
    "lint",
    default=None,
    help="Report the linter's warnings too, or do not run it. [default: its errors only]",
)
@click.option("--jobs", type=click.IntRange(1, 64), help="Processes for many files. [default: one per processor]")
@click.option("--quiet", is_flag=True, help="Leave the notes out: errors and warnings only.")
@click.option("--codes", is_flag=True, help="List what every code means, and check nothing.")
@shared.answer_options
def check(
    place: Path | None,
    strict: bool,
    records_folder: Path | None,
    layout: str,
    lint: bool | None,
    jobs: int | None,
    quiet: bool,
    codes: bool,
    as_json: bool,
) -> int:
    """Check a leaderboard, or one entry of it.

    \b
      levelbench board check leaderboard
      levelbench board check leaderboard/digits/training/me_mlp.json --records levelbench-results

    Errors keep an entry off the board, warnings are for its reviewer, notes are for information. Exits with 1 if there
    is an error, and with --strict if there is a warning. What `levelbench lint` calls an error is a warning here; with
    --lint its warnings are notes, with --no-lint it is not run.
    """
    from levelbench.competition.checks import CODES
    from levelbench.competition.leaderboard import record_digests
    from levelbench.errors import MissingError, UsageError

    if codes:
        click.echo("\n".join(f"{code}  {meaning}" for code, meaning in CODES.items()))
        return 0
    if place is None:
        raise UsageError("levelbench board check", "no leaderboard is given", "give its folder, or one entry's file")
    if not place.exists() and not place.is_symlink():
        raise UsageError(f"levelbench board check {place}", "there is no such file or folder", "check the path")
    if records_folder is not None and not records_folder.is_dir():
        raise MissingError(f"--records {records_folder}", "there is no such folder", "give the folder of the records")
    records = None if records_folder is None else record_digests(records_folder)
    jobs = jobs or min(len(os.sched_getaffinity(0)), 8)
    checked, found = _checked(place, records, jobs, lint)
    linted = None if lint is False else len({each.file for each in found if each.code.startswith(_LINTER)})
    failed = {"error", "warning"} if strict else {"error"}
    code = int(any(each.severity in failed for each in found))
    shown = [each for each in found if each.severity != "note"] if quiet else found
    if as_json:
        counts = {"entries": checked, **_counts(found), "linted": linted, "exit_code": code}
        shared.emit_json({"findings": shown, **counts})
        return code
    with shared.as_far_as_read():
        if layout == "github":
            for line in _github(shown, place):
                click.echo(one_line(line))
        else:
            shared.say(*map(one_line, [*finding_lines(shown), *_by_code(shown)]))
        click.echo(summary_line(checked, found) + _lint_words(linted))
    return code


def _lint_words(linted: int | None) -> str:
    """The number of entries with findings of the linter, or that it did not run."""
    if linted is None:
        return "; the linter was not run"
    return f"; the linter found something in {plural(linted, 'entry', 'entries')}" if linted else ""


def _checked(
    place: Path, records: dict[str, str] | None, jobs: int, lint: bool | None = None
) -> tuple[int, list[EntryFinding]]:
    """The number of files and the findings; ``lint``: with the linter's warnings, without it, or its errors."""
    from levelbench.cli.board_limits import known_limits
    from levelbench.competition.leaderboard import check_file, checked_folder

    linter = None if lint is False else all_of_linter if lint else worst_of_linter
    if place.is_dir():
        return checked_folder(place, records=records, processes=jobs, limits=known_limits, lint=linter)
    return 1, check_file(place, records=records, limits=known_limits, lint=linter)


def _counts(found: list[EntryFinding]) -> dict[str, int]:
    counts = Counter(each.severity for each in found)
    return {"errors": counts["error"], "warnings": counts["warning"], "notes": counts["note"]}


def _by_code(found: list[EntryFinding]) -> list[str]:
    """The number of findings per code, if there is more than a screen of findings."""
    from levelbench.competition.checks import CODES

    if len(found) < _MANY:
        return []
    counts = sorted(Counter(each.code for each in found).items())
    width = max(len(str(count)) for _, count in counts)
    lines = (f"  {code} {count:>{width}} x {CODES.get(code) or _rule_name(code)}" for code, count in counts)
    return ["by code:", *lines]


def _rule_name(code: str) -> str:
    """The meaning of a code of the linter."""
    from levelbench.claims.lint import find_rule

    return find_rule(code).name


def summary_line(checked: int, found: list[EntryFinding]) -> str:
    """How many entries were checked, and what was found, on one line."""
    parts = [plural(checked, "entry", "entries")]
    for severity in ("error", "warning", "note"):
        count = sum(each.severity == severity for each in found)
        parts.append(plural(count, severity))
    return f"{parts[0]} checked: {', '.join(parts[1:])}"


def one_line(text: str) -> str:
    """``text`` as one line without effect on a terminal or a workflow, which takes ``::`` for a command."""
    plain = shared.visible(text).replace("\n", "\\n").replace("\t", "\\t")
    return plain.replace("##[", "# #[")


def finding_lines(found: list[EntryFinding]) -> list[str]:
    """Findings grouped by file, each on two lines: the place with what was found, and what to do."""
    lines: list[str] = []
    file: Any = None
    for each in found:
        if each.file != file:
            file = each.file
            lines += [f"./{file}" if file.lstrip().startswith("::") else file or "(the entry)"]
        where = f"{each.field}: " if each.field else ""
        lines += [f"  {each.severity} {each.code} {where}{each.found}", f"      do: {each.do}"]
    return lines


def _github(found: list[EntryFinding], place: Path) -> list[str]:
    """Workflow commands, which show a finding next to the file in a pull request."""
    whole = place.is_dir()
    lines = []
    for each in found:
        text = f"{each.field}: {each.found}. {each.do}" if each.field else f"{each.found}. {each.do}"
        file = _escaped((place / each.file if whole else place).as_posix()).replace(":", "%3A").replace(",", "%2C")
        lines.append(f"::{_GITHUB[each.severity]} file={file},title={each.code}::{_escaped(text)}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def worst_of_linter(entry: Submission, file: str, known: Mapping[str, Ruleset]) -> list[EntryFinding]:
    """The linter's errors in ``entry``, as warnings about ``file``; ``known`` are the rulesets by id."""
    return [each for each in _linter_findings(entry, file, known) if each.severity == "warning"]


def all_of_linter(entry: Submission, file: str, known: Mapping[str, Ruleset]) -> list[EntryFinding]:
    """The same, and its warnings as notes."""
    return list(_linter_findings(entry, file, known))


def _linter_findings(entry: Submission, file: str, known: Mapping[str, Ruleset]) -> Iterator[EntryFinding]:
    from levelbench.competition.checks import note, warning
    from levelbench.competition.claims import remarks_on_entry

    try:
        lines = remarks_on_entry(entry, file, known).lines
    except LevelbenchError:
        # No claim can be made of it; the check itself reports what is wrong.
        return
    for each in lines:
        made = warning if each.severity == "error" else note
        yield made(each.code, file, each.field, f"{each.name}: {each.found}", each.do)


@click.command("score")
@click.argument("entry", type=click.Path(path_type=Path))
@click.option("--labels", type=click.Path(path_type=Path), required=True, help="The private labels, one per line.")
@click.option("--predictions", type=click.Path(path_type=Path), required=True, help="The answers, one per line.")
@click.option("--key", type=click.Path(path_type=Path), required=True, help="The organiser's key, a PEM file.")
@shared.answer_options
def score_entry(entry: Path, labels: Path, predictions: Path, key: Path, as_json: bool) -> int:
    """Count the right PREDICTIONS of ENTRY on its ruleset's private test set, and write the signed score next to it.

    \b
      levelbench board score leaderboard/digits/training/ada.json --labels ~/labels.txt --predictions ada.txt \\
          --key ~/organiser.pem

    The score holds the number of right answers and digests, no label and no prediction. The lines of both files are
    compared as text, in order; lines that begin with # do not count.
    """
    from levelbench.competition.entries import parse_submission, read_bytes
    from levelbench.competition.leaderboard import MODES, own_rulesets
    from levelbench.competition.private import score_predictions
    from levelbench.competition.rulesets import task_rules
    from levelbench.errors import UsageError
    from levelbench.measure.clocks import utc_now

    asked, path = f"scoring {entry}", entry.absolute()
    submission = parse_submission(read_bytes(path), f"reading the submission {entry}")
    if len(path.parents) < 3 or path.parent.name not in MODES:
        raise UsageError(asked, "it is not in a leaderboard", "give DIR/TASK/training/FILE.json")
    rules = own_rulesets(path.parents[2])[0].get(submission.ruleset)
    task = None if rules is None else task_rules(rules, submission.task)
    if task is None or task.private is None:
        found = f"{submission.ruleset} has no private test set for {submission.task}"
        raise UsageError(asked, found, "give the task a table tasks.private (docs/reference/rulesets.md)")
    score, written = score_predictions(path, task.private, labels, predictions, key, utc_now().date())
    if as_json:
        shared.emit_json({"path": str(written), "score": score})
    else:
        click.echo(shared.visible(f"wrote {written}: {score.words()}"))
    return 0


@click.command("freeze")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.argument("ruleset")
@shared.answer_options
def freeze_round(folder: Path, ruleset: str, as_json: bool) -> int:
    """Freeze the round of RULESET in the leaderboard DIR: its entries may no longer be added, changed or removed.

    \b
      levelbench board freeze leaderboard club-1.0

    Writes their digests to DIR/frozen.toml, which board check and board build compare from then on. It is refused
    before the deadline of the ruleset is over, and if an entry of the round has an error.
    """
    from levelbench.cli.board_limits import known_limits
    from levelbench.cli.board_submit import ruleset_of
    from levelbench.competition.leaderboard import FROZEN, freeze
    from levelbench.errors import UsageError
    from levelbench.measure.clocks import utc_now

    if not folder.is_dir():
        raise UsageError(f"the leaderboard {folder}", "there is no such folder", "give the folder of the entries")
    rules = ruleset_of(ruleset, folder)
    frozen = freeze(folder, rules, utc_now().date(), known_limits)
    if as_json:
        shared.emit_json({"path": str(folder / FROZEN), "frozen": {rules.id: frozen}})
    else:
        click.echo(f"froze {rules.id}: {plural(len(frozen.entries), 'entry', 'entries')} in {folder / FROZEN}")
        click.echo("commit that file: board check and board build compare the entries with it")
    return 0


_MOST_LINES, _MOST_RANKINGS = 20, 12


@click.command("build")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Folder of the site.")
@click.option("--ruleset", help="Score all entries under this ruleset instead of the one that each names.")
@click.option("--base-url", help="Address of the site; with it there is a feed. [default: url in board.toml]")
@click.option("--top", type=click.IntRange(min=0), default=5, show_default=True, help="Rows of each ranking to print.")
@click.option("--verified", type=click.Path(path_type=Path), help="Folder of your own badges of board verify, to show.")
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings too.")
@click.option("--force", is_flag=True, hidden=True, help="No effect: everything is rebuilt each time.")
@click.option("--jobs", type=click.IntRange(1, 64), help="Processes for many files. [default: one per processor]")
@shared.answer_options
def build_site(
    folder: Path,
    output: Path,
    ruleset: str | None,
    base_url: str | None,
    top: int,
    verified: Path | None,
    strict: bool,
    force: bool,
    jobs: int | None,
    as_json: bool,
) -> int:
    """Build the site of the leaderboard in DIR; open index.html in it.

    \b
      levelbench board build leaderboard -o site
      levelbench board build leaderboard -o site --ruleset dawnbench-1.0

    Prints the first rows of every ranking; leaderboard.md, .csv and .json in the site have all rows.
    The whole site is rebuilt, and only files that differ are written. An entry with an error is listed as not shown,
    the others are built anyway, and the exit code is 1. Entries that nearly copy others, or are not comparable with
    most of their board, are listed, and shown with that doubt next to their rank.
    """
    from levelbench.cli.rerun_verb import read_badges
    from levelbench.competition.site.boards import ranking_table

    reruns = read_badges(verified) if verified is not None else None
    built = site_of(folder, output, jobs=jobs, top=top, ruleset=ruleset, base_url=base_url, reruns=reruns)
    if as_json:
        shared.emit_json(built)
    else:
        tell_of_site(built)
        tables = [ranking_table(each, short=True) for each in _with_ranks(built.rankings)[:_MOST_RANKINGS]]
        if tables:
            click.echo()
            shared.print_tables(*tables)
            for how in dict.fromkeys(each.how for each in built.rankings):
                click.echo()
                shared.say(one_line(how))
    wrong = built.errors or built.not_shown or (strict and built.warnings)
    return 1 if wrong else 0


def _with_ranks(rankings: list[BoardRanking]) -> list[BoardRanking]:
    """The rankings without further ones of a board in which no entry has a rank, such as costs where no price is."""
    first = {(each.board, each.division): each for each in reversed(rankings)}
    return [each for each in rankings if each.rows[0].rank is not None or first[each.board, each.division] is each]


def site_of(folder: Path, output: Path, *, jobs: int | None, top: int, **given: Any) -> Built:
    """Build the site with the linter and the limits that a check knows; ``given`` are further settings of a build."""
    from levelbench.cli.board_limits import known_limits
    from levelbench.competition.claims import remarks_on_entry
    from levelbench.competition.site.build import build

    processes = jobs or min(len(os.sched_getaffinity(0)), 8)
    return build(folder, output, processes=processes, top=top, lint=remarks_on_entry, limits=known_limits, **given)


def tell_of_site(built: Built, lists: str = "levelbench board check lists them") -> None:
    """Print what was built, then the doubts, then what is not shown and why; ``lists`` says where warnings stand."""
    for line in _build_lines(built, lists):
        click.echo(one_line(line))


def _build_lines(built: Built, lists: str) -> list[str]:
    """What was built, then the doubts, then what is not shown and why."""
    lines = [
        f"site: {Path(built.site) / 'index.html'}",
        f"{plural(built.entries, 'entry', 'entries')} on {plural(len(built.boards), 'board')}; "
        f"{plural(built.read, 'file')} read, {len(built.written)} written, {len(built.removed)} removed",
    ]
    if built.warnings:
        lines.append(f"{plural(built.warnings, 'warning')}: {lists}")
    return lines + _listed("doubts", built.near) + _listed("not shown", built.not_shown)


def _listed(what: str, files: list[NotShown]) -> list[str]:
    lines = []
    for each in files[:_MOST_LINES]:
        lines += [f"{what}: {each.file}", *(f"  {reason}" for reason in each.reasons[:_MOST_LINES])]
    if len(files) > _MOST_LINES:
        lines.append(f"{what}: {len(files) - _MOST_LINES} more files; --json has them all")
    return lines
