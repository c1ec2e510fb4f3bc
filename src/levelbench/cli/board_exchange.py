"""``levelbench board import`` and ``export``: other systems' results as entries of a leaderboard, and the reverse."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import LevelbenchError, UsageError
from levelbench.report.numbers import number, plural

if TYPE_CHECKING:
    from levelbench.competition.entries import Submission
    from levelbench.report.tables import Table

__all__ = [
    "export",
    "import_entries",
    "import_tables",
    "museum",
    "profile_scores",
    "ranked",
    "read_entries",
    "shortened",
]

_MILLION = 1_000_000
_BY_VALUE = "in the order of values, as its own rules have it; differences are not tested"
_WIDEST = 24
"""The longest name, so that a ranking fits into 80 columns."""


def ranked(kind: str, submissions: Sequence[Submission], top: int) -> list[dict[str, Any]]:
    """The first ``top`` of each ranking: task, column, title, rows, and what is left out."""
    if kind == "loadgen":
        return _by_scenario(submissions, top)
    if kind == "speedrun":
        return _by_rules(submissions, top)
    return [] if kind == "mlperf" else _by_column(submissions, top)


def _by_rules(submissions: Sequence[Submission], top: int) -> list[dict[str, Any]]:
    """The figures under each entry's own rules, which may test a mean; an entry without one is left out, with why."""
    from levelbench.competition.rulesets import ruleset
    from levelbench.competition.scoring import score

    found = []
    for task, rules in sorted({(each.task, each.ruleset) for each in submissions}):
        entries = [each for each in submissions if (each.task, each.ruleset) == (task, rules)]
        own = [(each, score(each, ruleset(rules)).time) for each in entries]
        placed = sorted(((time.value, each) for each, time in own if time.value is not None), key=lambda pair: pair[0])
        rows = [
            {"rank": rank, "value": value, "text": f"{value:.4g} s", **_labels(each)}
            for rank, (value, each) in enumerate(placed[:top], 1)
        ]
        left_out = [{"reason": time.how, **_labels(each)} for each, time in own if time.value is None]
        title = f"training time by {rules}"
        found.append(
            {"task": task, "column": rules, "head": "time", "title": title, "rows": rows, "left_out": left_out}
        )
    return found


def _by_column(submissions: Sequence[Submission], top: int) -> list[dict[str, Any]]:
    """DAWNBench's own figures; AlgoPerf's times to the target in the same layout.

    The cost of answers is that of a million, as everywhere; DAWNBench's site printed that of 10,000.
    """
    from levelbench.competition.exchange.dawnbench import COLUMNS, leaderboard

    found = []
    for task in sorted({each.task for each in submissions}):
        own = [each for each in submissions if each.task == task]
        for column, title in COLUMNS.items():
            of_answers = column == "inference-cost"
            rows = [
                {
                    "rank": row.rank,
                    "value": row.value * _MILLION if of_answers else row.value,
                    "text": f"${number(row.value * _MILLION)}" if of_answers else row.text,
                    **({"published": row.text} if of_answers else {}),
                    **_labels(row.entry),
                }
                for row in leaderboard(own, column, top)
            ]
            of = f" of {_MILLION:,} answers" if of_answers else ""
            if rows:
                head = title.rpartition(" ")[2]
                found.append({"task": task, "column": title, "head": head, "title": f"{title}{of}", "rows": rows})
    return found


def _by_scenario(submissions: Sequence[Submission], top: int) -> list[dict[str, Any]]:
    from levelbench.competition.exchange.loadgen import METRICS, rankings
    from levelbench.report.numbers import TIME, choose_unit

    found = []
    for ranking in rankings(submissions, top):
        metric, values = METRICS[ranking.scenario], [value for _, value, _ in ranking.rows]
        unit = choose_unit(values, TIME) if metric.unit == "s" and values else None
        rows = [
            {
                "rank": rank,
                "value": value,
                "text": f"{value:.4g} /s" if unit is None else f"{value / unit.size:.4g} {unit.symbol}",
                **_labels(entry),
            }
            for rank, value, entry in ranking.rows
        ]
        left_out = [{"reason": reason, **_labels(entry)} for entry, reason in ranking.left_out]
        title = f"{ranking.scenario}, {metric.name}"
        head = "latency" if metric.unit == "s" else "rate"
        found.append(
            {
                "task": ranking.task,
                "column": ranking.scenario,
                "head": head,
                "title": title,
                "rows": rows,
                "left_out": left_out,
            }
        )
    return found


def _labels(entry: Submission) -> dict[str, str]:
    return {
        "model": entry.model,
        "author": entry.author.name,
        "hardware": entry.hardware.description,
        "framework": entry.framework,
        "submitted": entry.submitted,
        "file": entry.origin.file if entry.origin else "",
    }


def profile_scores(kind: str, submissions: Sequence[Submission]) -> list[dict[str, Any]]:
    """The scores of AlgoPerf's algorithms over the workloads that all of them ran, best first."""
    if kind != "algoperf":
        return []
    from levelbench.competition.exchange.algoperf import common_times
    from levelbench.competition.rulesets.scores import scores

    times = common_times(submissions)
    if not times:
        return []
    exact, grid = scores(times), scores(times, how="grid")
    return [
        {"submission": each, "score": score, "published": grid[each], "workloads": len(times[each])}
        for each, score in exact.items()
    ]


def import_tables(kind: str, submissions: Sequence[Submission], top: int) -> list[Table]:
    """All tables of an import, in the order of printing."""
    tables = [_ranking_table(each) for each in ranked(kind, submissions, top)]
    tables += _score_table(profile_scores(kind, submissions))
    return tables if kind == "dawnbench" else [*tables, _entries_table(kind, submissions)]


def shortened(text: str) -> str:
    """``text`` cut so that a ranking fits into 80 columns, at a word if possible."""
    if len(text) <= _WIDEST:
        return text
    head = text[: _WIDEST - 2]
    at_word = head.rpartition(" ")[0]
    return f"{(at_word if len(at_word) > _WIDEST // 2 else head).rstrip(' ,;/*+-([')} …"


def _ranking_table(ranking: dict[str, Any]) -> Table:
    from levelbench.report.tables import Column, ColumnKind, Table

    def cut(name: str) -> tuple[Column, Callable[[dict[str, Any]], str]]:
        return Column(name, name), lambda row: shortened(row[name])

    return Table.of(
        f"{ranking['task']}-{ranking['column'].replace(' ', '-')}",
        f"{ranking['task']}: {ranking['title']}",
        ranking["rows"],
        (Column("rank", "rank", ColumnKind.NUMBER), lambda row: row["rank"]),
        (Column("figure", ranking["head"]), lambda row: row["text"]),
        *map(cut, ("model", "hardware", "submitted")),
        notes=(
            _BY_VALUE,
            *(f"left out: {each['file'] or each['model']}: {each['reason']}" for each in ranking.get("left_out", ())),
        ),
    )


def _entries_table(kind: str, submissions: Sequence[Submission]) -> Table:
    from levelbench.report.tables import Column, ColumnKind, Table, cell_of

    count = "measurements" if kind == "loadgen" else "runs"
    reached = (Column("reached", "reached"), lambda each: f"{_reached(each)}/{len(each.runs)}")
    olympic = (
        Column("olympic_s", "Olympic mean", ColumnKind.TIME_S, digits=4),
        lambda each: cell_of(_olympic(each), _why_unscored(each)),
    )
    return Table.of(
        "entries",
        "entries",
        submissions,
        (Column("task", "task"), lambda each: shortened(each.task)),
        (Column("model", "model"), lambda each: shortened(each.model)),
        (Column("hardware", "hardware"), lambda each: shortened(each.hardware.description)),
        (Column(count, count, ColumnKind.NUMBER), lambda each: len(each.inference if kind == "loadgen" else each.runs)),
        *([reached, olympic] if kind == "mlperf" else []),
    )


def _reached(entry: Submission) -> int:
    """How many runs reached the target, by their curves if their system does not say it."""
    from levelbench.competition.rulesets import ruleset
    from levelbench.competition.scoring import score

    said = [run.reached for run in entry.runs if run.reached is not None]
    return sum(said) if said or entry.mode != "training" else score(entry, ruleset(entry.ruleset)).reached


def _why_unscored(entry: Submission) -> str:
    doubts = entry.origin.doubts if entry.origin is not None else []
    unknown = any(each.startswith("unknown benchmark") for each in doubts)
    return "not ranked: the benchmark is unknown" if unknown else "not enough runs reached the target"


def _olympic(entry: Submission) -> float | None:
    """MLPerf's score in seconds, without the fastest and the slowest run, or four each for unet3d.

    ``None`` for a benchmark that is unknown: nobody says how many runs are left out.
    """
    from levelbench.competition.rulesets.scores import olympic_score

    if _why_unscored(entry).startswith("not ranked"):
        return None
    times = [run.time_to_target_s if run.reached else None for run in entry.runs]
    return olympic_score(times, drop=4 if entry.task == "unet3d" else 1).score_s


def _score_table(rows: list[dict[str, Any]]) -> list[Table]:
    from levelbench.report.tables import Column, ColumnKind, Table

    if not rows:
        return []
    table = Table.of(
        "profile",
        f"performance profile over {rows[0]['workloads']} workloads that all ran",
        rows,
        (Column("submission", "submission"), lambda row: row["submission"]),
        (Column("score", "score", ColumnKind.NUMBER, digits=4), lambda row: row["score"]),
        (Column("published", "on 100 points", ColumnKind.NUMBER, digits=4), lambda row: row["published"]),
    )
    return [table]


_IMPORTED = ("dawnbench", "mlperf", "loadgen", "algoperf", "speedrun")


@click.command("import")
@click.argument("kind", metavar=f"[{'|'.join(_IMPORTED)}]", type=click.Choice(_IMPORTED))
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="Folder of the leaderboard.")
@click.option("--task", help="loadgen: the task of logs outside a results tree.")
@click.option("--author", help="loadgen: who submits them.")
@click.option("--model", help="loadgen: the model that answered.")
@click.option("--hardware", help="loadgen: the system in words.")
@click.option("--framework", help="loadgen: what the model ran in.")
@click.option("--top", type=click.IntRange(min=1), default=5, show_default=True, help="Rows of each ranking.")
@click.option("--force", is_flag=True, help="Replace entries of the leaderboard that differ.")
@click.option("--no-doubts", is_flag=True, help="Count the doubts by kind, without a line for each.")
@shared.answer_options
def import_entries(
    kind: str,
    path: Path,
    output: Path | None,
    top: int,
    force: bool,
    no_doubts: bool,
    as_json: bool,
    **stated: str | None,
) -> int:
    """Read another system's results, rank them as it did, and list the doubts about each.

    \b
      levelbench board import dawnbench dawn-bench-entries
      levelbench board import dawnbench dawn-bench-entries/CIFAR10/train -o board
      levelbench board import mlperf results_v5.0 -o board
      levelbench board import speedrun modded-nanogpt/records -o board
      levelbench board import loadgen logs --task cifar10 --author me --model resnet9 \\
          --hardware "1 V100" --framework torch -o board

    Without -o nothing is written. Exit code 1 if a file could not be read; the others are imported anyway.
    """
    given = [f"--{name}" for name, value in stated.items() if value is not None]
    if kind != "loadgen" and given:
        raise UsageError(f"import {kind}", f"{' and '.join(given)} is given", "leave it out: the files contain it")
    submissions, problems = _read_results(kind, path, stated)
    placed = None
    if output is not None:
        if kind == "loadgen":
            _refuse_nameless(submissions, output)
        from levelbench.competition.exchange import place

        placed = place(submissions, output, force=force)
    if as_json:
        _print_import_json(
            kind, submissions, problems, top, None if placed is None else [str(each) for each in placed.written]
        )
    else:
        _print_import(kind, path, submissions, problems, top, no_doubts)
        if placed is not None:
            same = f"{placed.unchanged} {'was' if placed.unchanged == 1 else 'were'} already there"
            click.echo(f"wrote {plural(len(placed.written), 'entry', 'entries')} to {output}, {same}")
    return 1 if problems else 0


def _refuse_nameless(submissions: Sequence[Submission], output: Path) -> None:
    """LoadGen's logs lack task and author; entries that a leaderboard would refuse are not written to one."""
    from levelbench.competition.rulesets import ruleset, task_rules

    asked = f"importing into {output}"
    for each in submissions:
        rules = ruleset(each.ruleset)
        if task_rules(rules, each.task) is None:
            known = ", ".join(task.task for task in rules.tasks)
            raise UsageError(asked, f"{each.ruleset} has no task {each.task!r}", f"give --task, one of {known}")
        names = {
            "--author": each.author.name,
            "--hardware": each.hardware.description,
            "--framework": each.framework,
        }
        missing = [option for option, value in names.items() if value == "not stated"]
        if missing:
            raise UsageError(asked, f"the logs lack the values of {' and '.join(missing)}", "give these options")


def _read_results(kind: str, path: Path, stated: dict[str, str | None]) -> tuple[list[Submission], list[str]]:
    """Imports only the reader that is needed."""
    if kind == "dawnbench":
        from levelbench.competition.exchange.dawnbench import read_folder

        return read_folder(path)
    if kind == "algoperf":
        from levelbench.competition.exchange.algoperf import read_results

        return read_results(path)
    if kind == "speedrun":
        from levelbench.competition.exchange.speedrun import read_results as read_speed_runs

        return read_speed_runs(path)
    if kind == "mlperf":
        from levelbench.competition.exchange.mlperf import read_results as read_logs

        return read_logs(path)
    from levelbench.competition.exchange.loadgen import read_results as read_summaries

    return read_summaries(path, **stated)


def _print_import_json(
    kind: str, submissions: Sequence[Submission], problems: list[str], top: int, written: list[str] | None
) -> None:
    rankings = [
        {**{name: value for name, value in each.items() if name != "head"}, "how": _BY_VALUE}
        for each in ranked(kind, submissions, top)
    ]
    entries = [
        {
            "file": each.origin.file if each.origin else "",
            "task": each.task,
            "mode": each.mode,
            "model": each.model,
            "author": each.author.name,
            "runs": len(each.runs),
            "measurements": len(each.inference),
            "reached": _reached(each),
            "failed": sum(run.status == "failed" for run in each.runs),
            **({"olympic_s": _olympic(each)} if kind == "mlperf" else {}),
            "doubts": each.origin.doubts if each.origin else [],
        }
        for each in submissions
    ]
    found = {"entries": entries, "rankings": rankings, "scores": profile_scores(kind, submissions)}
    shared.emit_json({**found, "problems": problems, "written": written})


def _print_import(
    kind: str, path: Path, submissions: Sequence[Submission], problems: list[str], top: int, no_doubts: bool
) -> None:
    modes = Counter(each.mode for each in submissions)
    unread = f"{plural(len(problems), 'file')} could not be read"
    click.echo(
        f"{plural(len(submissions), 'entry', 'entries')} of {kind} in {path}: {modes['training']} of training, "
        f"{modes['inference']} of inference; {unread}"
    )
    tables = import_tables(kind, submissions, top)
    if tables:
        click.echo()
        shared.print_tables(*tables)
    _print_doubts(submissions, no_doubts)
    for each in problems:
        click.echo(shared.visible(f"not read: {each}"), err=True)


def _print_doubts(submissions: Sequence[Submission], no_doubts: bool) -> None:
    """The kinds with their number of entries, then each entry's; a kind that all have is not repeated."""
    doubted = [(each.origin.file, each.origin.doubts) for each in submissions if each.origin and each.origin.doubts]
    kinds = Counter(kind for _, doubts in doubted for kind in dict.fromkeys(map(_kind, doubts)))
    if not doubted:
        return
    counts = ", ".join(f"{kind} in {'all' if n == len(submissions) else n}" for kind, n in kinds.most_common())
    click.echo(shared.visible(f"\ndoubts in {plural(len(submissions), 'entry', 'entries')}: {counts}"))
    for file, doubts in doubted if not no_doubts else ():
        own = [each for each in doubts if len(submissions) == 1 or kinds[_kind(each)] < len(submissions)]
        for each in [f"  {file}", *(f"    {each}" for each in own)] if own else ():
            click.echo(shared.visible(each))
    click.echo()


def _kind(doubt: str) -> str:
    return doubt.partition(":")[0]


@click.command("museum")
@click.argument("data", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Folder of the site.")
@click.option("--published", type=click.Path(path_type=Path), help="CSV of printed scores: entry,column,published,why.")
@click.option(
    "--board",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to keep the leaderboard in; its entries of the same names are replaced.",
)
@click.option("--title", default="A museum of time to accuracy", show_default=True, help="Title of a new leaderboard.")
@click.option("--jobs", type=click.IntRange(1, 64), help="Processes for many files. [default: one per processor]")
@shared.answer_options
def museum(
    data: tuple[Path, ...],
    output: Path,
    published: Path | None,
    board: Path | None,
    title: str,
    jobs: int | None,
    as_json: bool,
) -> int:
    """Build one site of everything that other systems published and that is in DATA: folders, logs, archives.

    \b
      levelbench board museum dawn-bench-entries training_results_v0.6 algoperf-logs -o site
      levelbench board museum downloads -o site --published printed.csv

    Finds clones of DAWNBench's entries, MLPerf Training's result logs, AlgoPerf's logs, logs of the NanoGPT speed run,
    and leaderboards of levelbench. The front page has the tasks of all systems, the records over the years, and a
    search over all entries, with cost and energy beside time. With --published it says which printed scores are
    reproduced, digit by digit. Exit code 1 if a file could not be read or shown, or a score differs without a reason in
    the column why.
    """
    from tempfile import TemporaryDirectory

    from levelbench.cli.board_check import site_of, tell_of_site
    from levelbench.competition.site.index import published_words, read_published

    printed = read_published(published) if published is not None else []
    with TemporaryDirectory() as made:
        folder = board or Path(made)
        counts, problems = _collect(data, folder, title)
        built = site_of(folder, output, jobs=jobs, top=0, published=printed)
    if as_json:
        shared.emit_json({"read": counts, "problems": problems, "site": built})
    else:
        for line in [*(f"{plural(count, 'entry', 'entries')} of {what}" for what, count in counts.items())]:
            click.echo(shared.visible(line))
        lists = f"levelbench board check {board} lists them"
        tell_of_site(
            built, lists if board else "keep the leaderboard with --board, and levelbench board check lists them"
        )
        if printed:
            shared.say(published_words(built.published))
        for each in problems:
            click.echo(shared.visible(f"not read: {each}"), err=True)
    bare = any(each.page and not each.agrees and not each.published.why for each in built.published)
    return 1 if problems or built.errors or built.not_shown or bare else 0


def _collect(data: Sequence[Path], folder: Path, title: str) -> tuple[dict[str, int], list[str]]:
    """Import all that is found into the leaderboard ``folder``: the number of entries by system, and what failed."""
    from levelbench.competition.entries import submission_digest, write_whole
    from levelbench.competition.exchange import place, systems_in
    from levelbench.competition.leaderboard import BOARD

    counts: Counter[str] = Counter()
    problems: list[str] = []
    entries: dict[str, Submission] = {}
    for root in data:
        found = systems_in(root)
        if not found:
            problems.append(
                f"{root}: no entries or logs of DAWNBench, MLPerf, AlgoPerf, speed runs or levelbench are in it"
            )
        for kind, path in found:
            try:
                read, wrong = _of_board(path, folder) if kind == "levelbench" else _read_results(kind, path, {})
            except LevelbenchError as error:
                problems.append(f"{path}: {error.found}; {error.do}")
                continue
            new = {name: each for each in read if (name := submission_digest(each)) not in entries}
            entries |= new
            problems += wrong
            counts[kind] += len(new)
    if not entries:
        do = "give clones of dawn-bench-entries, results of MLPerf Training, or logs of AlgoPerf or speed runs"
        raise UsageError("building a museum", problems[0] if problems else "there are no entries", do)
    place(list(entries.values()), folder, force=True)
    if not (folder / BOARD).exists():
        write_whole(folder / BOARD, f"title = {json.dumps(title)}\n")
    return dict(counts), problems


def _of_board(source: Path, folder: Path) -> tuple[list[Submission], list[str]]:
    """The entries of a leaderboard, whose own rulesets come along; without those that need one that cannot."""
    from levelbench.competition.leaderboard import add_ruleset
    from levelbench.competition.rulesets import folder_rulesets, read_ruleset, ruleset_ids

    entries, problems = read_entries(source)
    refused: dict[str, LevelbenchError] = {}
    own = set(folder_rulesets(source, refused)) - set(ruleset_ids())
    files = sorted((source / "rulesets").glob("*.toml")) if own else []
    for path in files:
        rules = None if f"rulesets/{path.name}" in refused else read_ruleset(path)
        if rules is None or rules.id not in own:
            continue
        try:
            add_ruleset(folder, rules, path.read_bytes())
        except LevelbenchError as error:
            refused[f"rulesets/{path.name}"] = error
            entries = [each for each in entries if each[1].ruleset != rules.id]
    problems += [f"{source / name}: {error.found}; {error.do}" for name, error in refused.items()]
    return [each for _, each in entries], problems


_EXPORTED = ("dawnbench", "mllog", "csv", "parquet")


@click.command("export")
@click.argument("kind", metavar=f"[{'|'.join(_EXPORTED)}]", type=click.Choice(_EXPORTED))
@click.argument("source", type=click.Path(path_type=Path, exists=True))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder to write."
)
@shared.answer_options
def export(kind: str, source: Path, output: Path, as_json: bool) -> int:
    """Write a leaderboard's entries, or one submission, in another format.

    \b
      levelbench board export csv board -o tables
      levelbench board export dawnbench board -o dawn-bench-entries
      levelbench board export mllog board/cifar10/training/me.json -o logs

    What a format cannot express is listed for each entry; mllog writes several entries into folders named after their
    ids. Entries that a format cannot hold (another mode or task) are skipped and counted. Exit code 1 if an entry could
    not be read or written.
    """
    entries, problems = read_entries(source)
    if not entries and not problems:
        do = "give a leaderboard's folder (with TASK/training and TASK/inference in it) or one submission"
        raise UsageError(f"export {source}", "there are no submissions", do)
    losses: dict[str, list[str]] = {}
    skipped: dict[str, str] = {}
    if kind in ("csv", "parquet"):
        from levelbench.competition.exchange import tabulate, write_csv, write_parquet

        paths = (write_csv if kind == "csv" else write_parquet)(tabulate(entries), output)
    else:
        skipped = {name: reason for name, entry in entries if (reason := _no_place(kind, entry))}
        kept = [each for each in entries if each[0] not in skipped]
        if not kept and not problems:
            found = f"it cannot hold any of the entries: {next(iter(skipped.values()))}"
            raise UsageError(f"export {kind} {source}", found, "export csv, which holds every entry")
        paths, losses = _write_each(kind, kept, output, problems)
    if as_json:
        written = [str(each) for each in paths]
        shared.emit_json({"written": written, "losses": losses, "skipped": skipped, "problems": problems})
        return 1 if problems else 0
    for name, lost in losses.items():
        for each in _losses(lost):
            click.echo(shared.visible(f"{name}: not in this format: {each}"))
    for each in problems:
        click.echo(shared.visible(f"not written: {each}"), err=True)
    for reason, count in Counter(skipped.values()).items():
        click.echo(shared.visible(f"skipped {plural(count, 'entry', 'entries')}: {reason}"))
    click.echo(f"wrote {plural(len(paths), 'file')} to {output}")
    return 1 if problems else 0


def read_entries(source: Path) -> tuple[list[tuple[str, Submission]], list[str]]:
    """Every entry with its id, and a sentence for each that cannot be read."""
    from levelbench.competition.entries import read_submission
    from levelbench.competition.exchange import entry_paths

    entries, problems = [], []
    root = source if source.is_dir() else None
    for name, path in entry_paths(source):
        try:
            entries.append((name, read_submission(path, root=root)))
        except LevelbenchError as error:
            problems.append(f"{name}: {error.found}; {error.do}")
    return entries, problems


def _write_each(
    kind: str, entries: list[tuple[str, Submission]], output: Path, problems: list[str]
) -> tuple[list[Path], dict[str, list[str]]]:
    """Write entries one by one, so that one that a format refuses does not stop or overwrite the others."""
    paths: list[Path] = []
    losses: dict[str, list[str]] = {}
    used: set[str] = set()
    for name, entry in entries:
        # MLPerf's files are named after system and task, which entries may share.
        folder = output / name if kind == "mllog" and len(entries) > 1 else output
        try:
            written, lost = _write_entry(kind, entry, folder, used)
        except LevelbenchError as error:
            problems.append(f"{name}: {error.found}; {error.do}")
            continue
        paths += written
        if lost:
            losses[name] = lost
    return paths, losses


def _losses(lost: list[str]) -> list[str]:
    """Losses with an explanation on a line each, then all plain fields on one."""
    fields = [each for each in lost if ": " not in each]
    return [each for each in lost if ": " in each] + ([", ".join(fields)] if fields else [])


def _no_place(kind: str, entry: Submission) -> str:
    """Why the format has no place for the entry at all; empty if it has."""
    if kind == "mllog":
        return "" if entry.mode == "training" else "a training log cannot hold an entry of inference"
    from levelbench.competition.exchange.dawnbench.entries import ANSWERED_ALONE, task_called

    if task_called(entry.task) is None:
        return f"DAWNBench has no task {entry.task!r}"
    alone = entry.mode == "training" or any(each.scenario in ANSWERED_ALONE for each in entry.inference)
    return "" if alone else "DAWNBench has no scenario other than single answers"


def _write_entry(kind: str, entry: Submission, folder: Path, used: set[str]) -> tuple[list[Path], list[str]]:
    if kind == "mllog":
        from levelbench.competition.exchange.mlperf import losses_of, write_submission

        return list(write_submission(entry, folder)), losses_of(entry)
    from levelbench.competition.entries import submission_digest
    from levelbench.competition.exchange.dawnbench.entries import stem_of, write_entry

    stem = stem_of(entry)
    place = f"{entry.task}/{entry.mode}/{stem}".lower()
    if place in used:
        stem = f"{stem}_{submission_digest(entry)[:8]}"
    used.add(place)
    return write_entry(entry, folder, stem=stem)
