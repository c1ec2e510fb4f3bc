"""Whose folder a site is written into: made, found to hold nothing else, and one build's at a time.

The one idea: what lies in the folder may have come with a checkout, so before anything is written or removed there is
no link on the way, no file that is not a site's, and no other build.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from levelbench.errors import StoreError, UsageError
from levelbench.records.locks import hold
from levelbench.report.site.seal import plain_file
from levelbench.report.site.state import MARKER

__all__ = ["FOLDERS", "LOCK", "Marker", "fault", "held", "read_marker", "refusal"]

FOLDERS = ("assets", "data", "entries")
"""The folders of a site: all files in them are ours."""
LOCK = ".levelbench-site.lock"
_ALLOWED = frozenset({"CNAME"})
"""What names the host of a repository's pages."""
_MOST_BYTES = 1 << 20


class Marker(Struct):
    """What says that a folder is a site: the tool, and the names at its top that are ours."""

    made_by: str
    files: list[str]


@contextmanager
def held(site: Path, leaderboard: Path) -> Iterator[None]:
    """``site`` with its folders, made where they are not, and no other build's until the end.

    Raises ``UsageError`` where it holds something else than a site of ours, or links; ``StoreError`` where another
    build is writing it, or nothing can be written.
    """
    _look(site, leaderboard)
    try:
        for name in FOLDERS:
            (site / name).mkdir(parents=True, exist_ok=True)
        descriptor = os.open(site / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise fault(site, error) from error
    try:
        try:
            hold(descriptor)
        except BlockingIOError:
            do = "wait until it has ended, then build again"
            raise StoreError(f"build a site in {site}", "another build is writing it", do) from None
        except OSError as error:
            raise fault(site / LOCK, error) from error
        # Whoever wrote it until now may have left something else.
        _look(site, leaderboard)
        yield
    finally:
        os.close(descriptor)


def read_marker(site: Path) -> Marker | None:
    """The marker of a site; ``None`` for a folder that has none."""
    found = plain_file(site / MARKER, _MOST_BYTES)
    try:
        return None if found is None else msgspec.json.decode(found[0], type=Marker)
    except msgspec.DecodeError:
        return None


def fault(path: Path, error: OSError) -> StoreError:
    """The error for people of one of the system's about ``path``."""
    found = error.strerror or str(error)
    return StoreError(f"write {path}", found, "choose a folder that is writable and has room")


def refusal(site: Path, found: str) -> UsageError:
    """The error for people where ``site`` is not what it should be."""
    return UsageError(f"build a site in {site}", found, "give a new or empty folder; nothing was changed")


def _look(site: Path, leaderboard: Path) -> None:
    """Refuse what is not ours, and every link that a write or a removal would follow."""
    for place in (*_between(leaderboard, site), site):
        if place.is_symlink():
            raise refusal(site, f"{place} is a link, and whatever is built through it lies somewhere else")
    try:
        found = sorted(os.scandir(site), key=lambda each: each.name)
    except FileNotFoundError:
        return
    except OSError as error:
        raise refusal(site, error.strerror or str(error)) from error
    for each in found:
        if each.is_symlink():
            raise refusal(site, f"it holds a link: {each.name}")
        if each.name in FOLDERS and not each.is_dir(follow_symlinks=False):
            raise refusal(site, f"{each.name} is no folder")
    marker = read_marker(site)
    # A build that was killed before it could mark the folder left empty ones.
    folders = FOLDERS if marker else [name for name in FOLDERS if _is_empty(site / name)]
    ours = _ALLOWED.union(folders, marker.files if marker else ())
    foreign = [each.name for each in found if not each.name.startswith(".") and each.name not in ours]
    if foreign:
        raise refusal(site, f"it holds something else than a site of ours: {', '.join(foreign[:3])}")


def _is_empty(folder: Path) -> bool:
    try:
        return not any(folder.iterdir())
    except OSError:
        return False


def _between(leaderboard: Path, site: Path) -> list[Path]:
    """The folders between a leaderboard's and that of a site in it: others may have sent them."""
    root, place = Path(os.path.abspath(leaderboard)), Path(os.path.abspath(site))  # noqa: PTH100 -- links stay
    return [each for each in place.parents if each != root and each.is_relative_to(root)]
