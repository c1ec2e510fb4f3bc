"""``levelbench board export``: entries of a leaderboard in another system's format, or as tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from levelbench.cli import options as shared
from levelbench.errors import LevelbenchError, UsageError

if TYPE_CHECKING:
    from levelbench.records.submissions.schema import Submission

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
    Exit code 1 if an entry could not be read or written.
    """
    entries, problems = _entries(source)
    if not entries and not problems:
        do = "give a leaderboard's folder (TASK/training and TASK/inference lie in it) or one submission"
        raise UsageError(f"export {source}", "no submissions lie there", do)
    losses: dict[str, list[str]] = {}
    if kind in ("csv", "parquet"):
        paths = _tables(kind, entries, output)
    else:
        paths, losses = _each(kind, entries, output, problems)
    if as_json:
        shared.emit_json({"written": [str(each) for each in paths], "losses": losses, "problems": problems})
        return 1 if problems else 0
    for name, lost in losses.items():
        for each in lost:
            click.echo(shared.visible(f"{name}: not in this format: {each}"))
    for each in problems:
        click.echo(shared.visible(f"not written: {each}"), err=True)
    click.echo(f"wrote {len(paths)} files to {output}")
    return 1 if problems else 0


def _entries(source: Path) -> tuple[list[tuple[str, Submission]], list[str]]:
    """Every entry with its id, and a sentence for each that cannot be read."""
    from levelbench.records.exchange.placing import entry_paths
    from levelbench.records.submissions.reading import read_submission

    entries, problems = [], []
    root = source if source.is_dir() else None
    for name, path in entry_paths(source):
        try:
            entries.append((name, read_submission(path, root=root)))
        except LevelbenchError as error:
            problems.append(f"{name}: {error.found}; {error.do}")
    return entries, problems


def _tables(kind: str, entries: list[tuple[str, Submission]], output: Path) -> list[Path]:
    from levelbench.records.exchange import tables

    write = tables.write_csv if kind == "csv" else tables.write_parquet
    return write(tables.tabulate(entries), output)


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


def _written(kind: str, entry: Submission, folder: Path, used: set[str]) -> tuple[list[Path], list[str]]:
    if kind == "mllog":
        from levelbench.records.exchange.mlperf import write_submission

        return list(write_submission(entry, folder)), []
    from levelbench.records.exchange.dawnbench import write_entry
    from levelbench.records.exchange.dawnbench.writing import stem_of
    from levelbench.records.submissions.digests import submission_digest

    stem = stem_of(entry)
    place = f"{entry.task}/{entry.mode}/{stem}".lower()
    if place in used:
        stem = f"{stem}_{submission_digest(entry)[:8]}"
    used.add(place)
    return write_entry(entry, folder, stem=stem)
