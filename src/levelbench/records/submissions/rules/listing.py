"""Finds the files of a leaderboard's entries, and what lies there that is none.

The one idea: no link is followed and nothing hidden is looked at, so whatever somebody sends, only its own files are
read; each folder is listed once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from levelbench.records.submissions.rules.findings import Finding, error, warning
from levelbench.records.submissions.signatures import ENDING

__all__ = ["SITE_MARKER", "name_in", "submission_files", "submission_paths"]

SITE_MARKER = ".levelbench-site"
"""The file that says of a folder that it is a built site."""
_OWN = frozenset({"board.toml", "authors.toml"})
_PLAIN_ENDINGS = (".md", ".txt", ".yml", ".yaml", ".toml")


def submission_files(root: Path, findings: list[Finding], site: Path | None = None) -> Iterator[Path]:
    """The files of a leaderboard's entries by name; links and files that are none of its are added to ``findings``.

    No link is followed and nothing hidden is looked at. ``site`` is where this very build writes to, and passed over.
    """
    return map(Path, submission_paths(root, findings, site))


def submission_paths(root: Path, findings: list[Finding], site: Path | None = None) -> Iterator[str]:
    """As ``submission_files``, as texts: of ten thousand files that have not changed nobody needs more."""
    output = None if site is None else site.resolve()

    def closed(problem: OSError) -> None:
        place = Path(os.fsdecode(problem.filename or root))
        findings.append(error("B252", name_in(place, root), "", problem.strerror or str(problem), "make it readable"))

    for place, inner, names in os.walk(root, onerror=closed):
        here, links = Path(place), _links(place)
        findings += [_link(here / name, root) for name in sorted(inner) if name in links]
        inner[:] = sorted(name for name in inner if not name.startswith(".") and name not in links)
        if here == root:
            sites = {name for name in inner if os.path.lexists(here / name / SITE_MARKER)}
            findings += [_site(here / name, root) for name in sorted(sites) if (here / name).resolve() != output]
            hidden = {name for name in sites if not _has_entries(here / name)} | {"rulesets"}
            inner[:] = [name for name in inner if name not in hidden]
        listed = {name.casefold(): name for name in sorted(names, reverse=True)}
        known = frozenset(names)
        for name in sorted(name for name in names if not name.startswith(".")):
            path = here / name if name in links or not name.endswith(".json") else here
            if name in links:
                findings.append(_link(path, root))
            elif name.endswith(".json"):
                if listed[name.casefold()] != name:
                    found = f"it differs from {listed[name.casefold()]} in capitals only"
                    findings.append(error("B115", name_in(here / name, root), "", found, "rename one of them"))
                yield os.path.join(place, name)  # noqa: PTH118 -- a path of each of ten thousand costs more
            elif name.endswith(f".json{ENDING}"):
                if name.removesuffix(ENDING) not in known:
                    do = "remove it, or bring the entry"
                    findings.append(warning("B236", name_in(path, root), "", "there is no such entry", do))
            elif not (here == root and (name in _OWN or name.endswith(_PLAIN_ENDINGS) or "." not in name)):
                findings.append(warning("B251", name_in(path, root), "", "it is no entry", "move it out"))


def _links(place: str) -> frozenset[str]:
    try:
        with os.scandir(place) as found:
            return frozenset(each.name for each in found if each.is_symlink())
    except OSError:
        # It was there a moment ago: what is gone has no links.
        return frozenset()


def name_in(path: Path, root: Path) -> str:
    """What a finding calls the file: its path in the leaderboard."""
    name = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
    return name.encode("utf-8", "backslashreplace").decode()


def _site(path: Path, root: Path) -> Finding:
    """A mark must not hide entries: anybody may send one."""
    do = f"build outside of the leaderboard, and remove {SITE_MARKER}"
    return warning("B253", name_in(path, root), "", "it is marked as a built site", do)


def _has_entries(place: Path) -> bool:
    return any(os.path.lexists(place / mode) for mode in ("training", "inference"))


def _link(path: Path, root: Path) -> Finding:
    return error("B250", name_in(path, root), "", "it is a link, which is not followed", "put a file in its place")
