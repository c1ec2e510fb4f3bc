"""``levelbench board build``: a static site of a leaderboard's folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from levelbench.cli import options as shared

if TYPE_CHECKING:
    from levelbench.competition.site import NotShown
    from levelbench.competition.site.build import Built

__all__ = ["command"]

_MOST_LINES = 20


@click.command("build")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Folder of the site.")
@click.option("--ruleset", help="Score all entries under this ruleset instead of the one that each names.")
@click.option("--base-url", help="Where the site will be: with it there is a feed. [default: url in board.toml]")
@click.option("--strict", is_flag=True, help="Warnings end in exit code 1 as errors do.")
@click.option("--force", is_flag=True, hidden=True, help="As without it: everything is made again each time.")
@click.option("--jobs", type=click.IntRange(1, 64), help="Processes for many files. [default: one a processor]")
@shared.json_option
@shared.debug_option
def command(
    folder: Path,
    output: Path,
    ruleset: str | None,
    base_url: str | None,
    strict: bool,
    force: bool,
    jobs: int | None,
    as_json: bool,
    debug: bool,
) -> int:
    """Build the site of the leaderboard in DIR; open index.html in it.

    \b
      levelbench board build leaderboard -o site
      levelbench board build leaderboard -o site --ruleset dawnbench-1.0

    The site is made whole, and only files that differ are written. An entry that is wrong is listed as not shown and
    stops no other; the exit code is then 1. Entries that are nearly copies of others, or not comparable with most of
    their board, are listed, and shown with that doubt beside their rank.
    """
    from levelbench.cli.board.check import one_line
    from levelbench.cli.board.limits import known_limits
    from levelbench.competition.claims import remarks_on_entry
    from levelbench.competition.site.build import build

    jobs = jobs or min(len(os.sched_getaffinity(0)), 8)
    built = build(
        folder,
        output,
        ruleset=ruleset,
        base_url=base_url,
        processes=jobs,
        lint=remarks_on_entry,
        limits=known_limits,
    )
    if as_json:
        shared.emit_json(built)
    else:
        for line in _lines(built):
            click.echo(one_line(line))
    wrong = built.errors or built.not_shown or (strict and built.warnings)
    return 1 if wrong else 0


def _lines(built: Built) -> list[str]:
    """What was built, then what is doubtful, and what is not shown and why."""
    boards = len(built.boards)
    lines = [
        f"site: {Path(built.site) / 'index.html'}",
        f"{built.entries} entr{'y' if built.entries == 1 else 'ies'} on {boards} board{'s' * (boards != 1)}; "
        f"{built.read} file{'s' * (built.read != 1)} read, {len(built.written)} written, {len(built.removed)} removed",
    ]
    if built.warnings:
        lines.append(f"{built.warnings} warning{'s' * (built.warnings != 1)}: levelbench board check lists them")
    return lines + _listed("doubtful", built.near) + _listed("not shown", built.not_shown)


def _listed(what: str, files: list[NotShown]) -> list[str]:
    lines = []
    for each in files[:_MOST_LINES]:
        lines += [f"{what}: {each.file}", *(f"  {reason}" for reason in each.reasons[:_MOST_LINES])]
    if len(files) > _MOST_LINES:
        lines.append(f"{what}: {len(files) - _MOST_LINES} more files; --json has them all")
    return lines
