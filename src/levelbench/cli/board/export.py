"""``levelbench board export``: entries of a leaderboard in another system's format, or as tables."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from levelbench.cli import options as shared
from levelbench.errors import LevelbenchError, UsageError

if TYPE_CHECKING:
    from levelbench.competition.entries import Submission

__all__ = ["command"]

FORMATS = ("dawnbench", "mllog", "csv", "parquet")


@click.command("export")
@click.argument("kind", metavar=f"[{'|'.join(FORMATS)}]", type=click.Choice(FORMATS))
@click.argument("source", type=click.Path(path_type=Path, exists=True))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder to write."
)
@shared.json_option
@shared.debug_option
def command(kind: str, source: Path, output: Path, as_json: bool, debug: bool) -> int:
    """Write a leaderboard's entries, or one submission, in another format.

    \b
      levelbench board export csv board -o tables
      levelbench board export dawnbench board -o dawn-bench-entries
      levelbench board export mllog board/cifar10/training/me.json -o logs

    What a format cannot say is listed for each entry; of several, mllog writes each into a folder of its own id.
    Entries that a format has no place for (another mode or task) are skipped and counted. Exit code 1 if an entry could
    not be read or written.
    """
    entries, problems = _entries(source)
    if not entries and not problems:
        do = "give a leaderboard's folder (TASK/training and TASK/inference lie in it) or one submission"
        raise UsageError(f"export {source}", "no submissions lie there", do)
    losses: dict[str, list[str]] = {}
    skipped: dict[str, str] = {}
    if kind in ("csv", "parquet"):
        paths = _tables(kind, entries, output)
    else:
        skipped = {name: reason for name, entry in entries if (reason := _no_place(kind, entry))}
        kept = [each for each in entries if each[0] not in skipped]
        if not kept and not problems:
            found = f"no entry has a place in it: {next(iter(skipped.values()))}"
            raise UsageError(f"export {kind} {source}", found, "export csv, which takes every entry")
        paths, losses = _each(kind, kept, output, problems)
    if as_json:
        written = [str(each) for each in paths]
        shared.emit_json({"written": written, "losses": losses, "skipped": skipped, "problems": problems})
        return 1 if problems else 0
    for name, lost in losses.items():
        for each in _lines(lost):
            click.echo(shared.visible(f"{name}: not in this format: {each}"))
    for each in problems:
        click.echo(shared.visible(f"not written: {each}"), err=True)
    for reason, count in Counter(skipped.values()).items():
        click.echo(shared.visible(f"skipped {count} {'entry' if count == 1 else 'entries'}: {reason}"))
    click.echo(f"wrote {len(paths)} {'file' if len(paths) == 1 else 'files'} to {output}")
    return 1 if problems else 0


def _entries(source: Path) -> tuple[list[tuple[str, Submission]], list[str]]:
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


def _tables(kind: str, entries: list[tuple[str, Submission]], output: Path) -> list[Path]:
    from levelbench.competition import exchange

    write = exchange.write_csv if kind == "csv" else exchange.write_parquet
    return write(exchange.tabulate(entries), output)


def _each(
    kind: str, entries: list[tuple[str, Submission]], output: Path, problems: list[str]
) -> tuple[list[Path], dict[str, list[str]]]:
    """Every entry on its own, so that one which a format refuses does not stop the others, nor overwrite them."""
    paths: list[Path] = []
    losses: dict[str, list[str]] = {}
    used: set[str] = set()
    for name, entry in entries:
        # Systems and tasks name the files of MLPerf, and entries may share both.
        folder = output / name if kind == "mllog" and len(entries) > 1 else output
        try:
            written, lost = _written(kind, entry, folder, used)
        except LevelbenchError as error:
            problems.append(f"{name}: {error.found}; {error.do}")
            continue
        paths += written
        if lost:
            losses[name] = lost
    return paths, losses


def _lines(lost: list[str]) -> list[str]:
    """What needs words on a line of its own, then all plain fields on one."""
    fields = [each for each in lost if ": " not in each]
    return [each for each in lost if ": " in each] + ([", ".join(fields)] if fields else [])


def _no_place(kind: str, entry: Submission) -> str:
    """Why the format has no place for such an entry at all; empty where it has."""
    if kind == "mllog":
        return "" if entry.mode == "training" else "a training log cannot hold an entry of inference"
    from levelbench.competition.exchange.dawnbench.entries import ANSWERED_ALONE, task_called

    if task_called(entry.task) is None:
        return f"DAWNBench has no task {entry.task!r}"
    alone = entry.mode == "training" or any(each.scenario in ANSWERED_ALONE for each in entry.inference)
    return "" if alone else "DAWNBench has no scenario but that of single answers"


def _written(kind: str, entry: Submission, folder: Path, used: set[str]) -> tuple[list[Path], list[str]]:
    if kind == "mllog":
        from levelbench.competition.exchange.mlperf import losses_of, write_submission

        return list(write_submission(entry, folder)), losses_of(entry)
    from levelbench.competition.entries import submission_digest
    from levelbench.competition.exchange.dawnbench import write_entry
    from levelbench.competition.exchange.dawnbench.entries import stem_of

    stem = stem_of(entry)
    place = f"{entry.task}/{entry.mode}/{stem}".lower()
    if place in used:
        stem = f"{stem}_{submission_digest(entry)[:8]}"
    used.add(place)
    return write_entry(entry, folder, stem=stem)
