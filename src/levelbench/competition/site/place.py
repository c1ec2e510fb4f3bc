"""The folder of a site: whose it is, and how what is built takes its place there.

What lies in the folder may have come with a checkout, so before anything is written or removed there is no link on the
way, no file that is not a site's, and no other build. All files are written into a hidden folder beside the site's own
first; when every one is there, each that differs is renamed into its place, what is pointed at before what points
there. So a build that is killed leaves the site as it was, or whole pages whose links lead somewhere.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from levelbench.competition.entries import UnreadableError, read_bytes
from levelbench.competition.leaderboard import SITE_MARKER
from levelbench.errors import DefinitionError, StoreError, UsageError
from levelbench.records.locks import hold

FOLDERS = ("assets", "data", "entries")
"""The folders of a site: all files in them are ours. In the order in which their files take their places."""
LOCK = ".levelbench-site.lock"
STAGING = ".levelbench-site.new"
"""Where files lie until all are there."""
_ALLOWED = frozenset({"CNAME"})
"""What names the host of a repository's pages."""
_MARKER_BYTES = 1 << 20
_SAFE = re.compile(r"(?:(?:assets|data|entries)/)?[A-Za-z0-9_][A-Za-z0-9_.-]*")


class _Marker(Struct):
    """What says that a folder is a site: the tool, and the names at its top that are ours."""

    made_by: str
    files: list[str]


@contextmanager
def held(site: Path, leaderboard: Path) -> Iterator[SiteFolder]:
    """``site`` with its folders, made where they are not, and no other build's until the end.

    Raises ``UsageError`` where it holds something else than a site of ours, or links; ``StoreError`` where another
    build is writing it, or nothing can be written.
    """
    _require_ours(site, leaderboard)
    try:
        for name in FOLDERS:
            (site / name).mkdir(parents=True, exist_ok=True)
        descriptor = os.open(site / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise _fault(site, error) from error
    try:
        try:
            hold(descriptor)
        except BlockingIOError:
            do = "wait until it has ended, then build again"
            raise StoreError(f"build a site in {site}", "another build is writing it", do) from None
        except OSError as error:
            raise _fault(site / LOCK, error) from error
        # Whoever wrote it until now may have left something else.
        _require_ours(site, leaderboard)
        try:
            folder = SiteFolder(site)
            yield folder
        except OSError as error:
            raise _fault(Path(error.filename or site), error) from error
        finally:
            # Of a build that was killed it is removed by the next one.
            shutil.rmtree(site / STAGING, ignore_errors=True)
    finally:
        os.close(descriptor)


def stage(site: Path, name: str, content: bytes) -> bool:
    """Write a file of the site aside, from any process; whether it differs from what lies in its place."""
    if not _SAFE.fullmatch(name):
        raise ValueError(f"{name!r} is not a name for a file of a site")
    # As texts: for each of ten thousand pages paths of its own would cost as much as the calls.
    try:
        with open(f"{site}/{name}", "rb") as file:  # noqa: PTH123
            if os.fstat(file.fileno()).st_size == len(content) and file.read() == content:
                return False
    except FileNotFoundError:
        pass
    try:
        with open(f"{site}/{STAGING}/{name}", "xb") as file:  # noqa: PTH123
            file.write(content)
    except FileExistsError:
        raise _twice(site, name) from None
    return True


def _twice(site: Path, name: str) -> DefinitionError:
    """Names are made so that none comes twice: one that did would show an entry or a board as another."""
    found, do = f"two of its pages are named {name}", "rename one of the files, tasks or rulesets"
    return DefinitionError(f"build a site in {site}", found, do)


class SiteFolder:
    """The folder of a site while it is built; ``written`` and ``removed`` list names relative to it.

    Files are not forced to the disk one by one: they are derived, and the next build compares them by their content.
    """

    def __init__(self, site: Path) -> None:
        self.site = site
        self._lying = _lying(site)
        self._names: dict[str, bool] = {}
        self._marked = _marked(site) or []
        self.written: list[str] = []
        self.removed: list[str] = []
        self.kept = 0
        shutil.rmtree(site / STAGING, ignore_errors=True)
        for name in FOLDERS:
            (site / STAGING / name).mkdir(parents=True)

    def put(self, name: str, content: bytes) -> None:
        """``content`` will be the file ``name``."""
        self.claim(name, stage(self.site, name, content))

    def claim(self, name: str, differs: bool) -> None:
        """A file that another process wrote aside, or that lies in its place already unless it ``differs``."""
        if name in self._names:
            raise _twice(self.site, name)
        self._names[name] = differs

    def publish(self) -> None:
        """Bring all files to their places, then remove what no page leads to any more."""
        ours = {name for name in self._lying if "/" in name or name in self._marked}
        top = [name for name in self._names if "/" not in name]
        self._mark({*top, *self._marked})
        for name in sorted(self._names, key=_order):
            if self._names[name]:
                (self.site / STAGING / name).replace(self.site / name)
                self.written.append(name)
        for name in sorted(ours - self._names.keys()):
            (self.site / name).unlink(missing_ok=True)
            self.removed.append(name)
        self.kept = len(self._names) - len(self.written)
        self._mark(top)

    def _mark(self, names: Iterable[str]) -> None:
        aside = self.site / STAGING / SITE_MARKER
        aside.write_bytes(msgspec.json.encode(_Marker("levelbench board build", sorted(names))))
        aside.replace(self.site / SITE_MARKER)


def _order(name: str) -> tuple[int, bool, bool, str]:
    """What is pointed at first: folders in their order, copies of submissions before pages, the index last."""
    folder = name.partition("/")[0]
    return FOLDERS.index(folder) if "/" in name else len(FOLDERS), name == "index.html", name.endswith(".html"), name


def _lying(site: Path) -> list[str]:
    """The files in the folders of a site, and at its top."""
    found = []
    for folder in ("", *FOLDERS):
        with os.scandir(site / folder) as entries:
            for each in entries:
                if folder and not each.is_file(follow_symlinks=False):
                    raise _refusal(site, f"{folder}/{each.name} is not a plain file")
                if each.is_file(follow_symlinks=False) and (folder or not each.name.startswith(".")):
                    found.append(f"{folder}/{each.name}".lstrip("/"))
    return found


def _marked(site: Path) -> list[str] | None:
    """The names at the top of a site that are ours; ``None`` for a folder that no build has marked."""
    with suppress(UnreadableError, msgspec.DecodeError):
        marker = msgspec.json.decode(read_bytes(site / SITE_MARKER, limit=_MARKER_BYTES), type=_Marker)
        return list(filter(_SAFE.fullmatch, marker.files))
    return None


def _fault(path: Path, error: OSError) -> StoreError:
    """The error for people of one of the system's about ``path``."""
    found = error.strerror or str(error)
    return StoreError(f"write {path}", found, "choose a folder that is writable and has room")


def _refusal(site: Path, found: str) -> UsageError:
    """The error for people where ``site`` is not what it should be."""
    return UsageError(f"build a site in {site}", found, "give a new or empty folder; nothing was changed")


def _require_ours(site: Path, leaderboard: Path) -> None:
    """Refuse what is not ours, and every link that a write or a removal would follow."""
    root, place = Path(os.path.abspath(leaderboard)), Path(os.path.abspath(site))  # noqa: PTH100 -- links stay
    # The folders between the leaderboard's and that of a site in it: others may have sent them.
    for each in (*(folder for folder in place.parents if folder != root and folder.is_relative_to(root)), site):
        if each.is_symlink():
            raise _refusal(site, f"{each} is a link, so the site would be written somewhere else")
    try:
        found = sorted(os.scandir(site), key=lambda each: each.name)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _refusal(site, error.strerror or str(error)) from error
    for entry in found:
        if entry.is_symlink():
            raise _refusal(site, f"it holds a link: {entry.name}")
        if entry.name in FOLDERS and not entry.is_dir(follow_symlinks=False):
            raise _refusal(site, f"{entry.name} is not a folder")
    marked = _marked(site)
    # A build that was killed before it could mark the folder left empty ones.
    folders = FOLDERS if marked is not None else [name for name in FOLDERS if not any((site / name).glob("*"))]
    ours = _ALLOWED.union(folders, marked or ())
    foreign = [each.name for each in found if not each.name.startswith(".") and each.name not in ours]
    if foreign:
        raise _refusal(site, f"it holds something else than a site of ours: {', '.join(foreign[:3])}")
