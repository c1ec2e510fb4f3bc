"""Git revisions checked out next to each other, and the files that their programs still read from the working tree.

If a program is installed from the working tree (``pip install -e``), every checkout runs that one: two revisions are
the same program, and comparing them says SAME. If ``--setup`` installs each checkout, one after the other, into one
environment, every revision runs the last one; if a copy is installed (``pip install .``), all run that. inotify(7)
shows which files a process opens that are not of its own.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import product
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple, final

from levelbench.errors import MissingError, UsageError
from levelbench.experiments.file_events import IN_OPEN, FileEvents

__all__ = ["INSTALLED", "IN_CHECKOUT", "Checkout", "TreeReads", "revisions"]

IN_CHECKOUT = " in the checkout of "
INSTALLED = " as installed in "

_GIT_SETTINGS = {"GIT_TERMINAL_PROMPT": "0"}
_BYTECODE = re.compile(r"([^.]+)\..*\.pyc")


class Checkout(NamedTuple):
    """A revision: the user's name for it, its commit, and the folder in it that corresponds to the current one."""

    name: str
    commit: str
    folder: Path


@final
class TreeReads:
    """The files of a working tree that any program opens: those that git tracks, their bytecode, and libraries.

    So are those of ``checkouts``, the places of revisions by their names, that a program of another one opens, and
    modules installed in the folders ``sites`` whose text is not that of its own revision. Without inotify, or if its
    limits are exhausted, no files are seen. A context manager.
    """

    def __init__(
        self,
        top: Path,
        tracked: Sequence[str],
        checkouts: Mapping[str, Path] | None = None,
        sites: Sequence[Path] = (),
    ) -> None:
        self._tracked, self._checkouts, self._sites = frozenset(tracked), checkouts or {}, sites
        self._events = FileEvents(IN_OPEN)
        folders = dict.fromkeys(Path(each).parent for each in tracked)
        self._packages = {
            (root, Path(package).relative_to(root)): [
                each.relative_to(root) for each in folders if each.is_relative_to(package)
            ]
            for package, root in _packages(self._tracked)
        }
        for folder in (place for each in folders for place in (each, each / "__pycache__")):
            self._events.watch(top / folder, folder)
            for checkout in self._checkouts.values():
                self._events.watch(checkout / folder, checkout / folder)
        self._watch_installed()

    def __enter__(self) -> TreeReads:
        return self

    def __exit__(self, *_: object) -> None:
        self._events.__exit__()

    def take(self, own: Path | None = None) -> list[str]:
        """The files opened since the last call, but in the checkout with the folder ``own``: paths in the working tree.

        After those in another checkout, and after installed ones, it says so.
        """
        # All of them first: to compare what was opened opens it again.
        opened = dict.fromkeys(each for each, _ in self._events.take())
        found = list(dict.fromkeys(path for each in opened if (path := self._stray(each, own))))
        # What is installed again lies in new folders.
        self._watch_installed()
        return found

    def _watch_installed(self) -> None:
        for site, ((_, package), folders) in product(self._sites, self._packages.items()):
            # A link to the working tree is watched there.
            if (site / package).is_dir() and not (site / package).is_symlink():
                for place in (each for folder in folders for each in (site / folder, site / folder / "__pycache__")):
                    self._events.watch(place, place)

    def _installed(self, opened: Path, site: Path, own: Path | None) -> str:
        """A module of an installed copy, if its text is not that of the revision in whose checkout ``own`` lies."""
        module = _source(opened)
        checkouts = [each for each in self._checkouts.values() if own is not None and own.is_relative_to(each)]
        paths = (str(Path(root) / module.relative_to(site)) for root, _ in self._packages)
        found = [path for path in paths if path in self._tracked and path.endswith(".py")]
        differing = (path for path in found for each in checkouts if _differ(module, each / path))
        return next((f"{path}{INSTALLED}{site}" for path in differing), "")

    def _stray(self, opened: Path, own: Path | None) -> str:
        for site in self._sites:
            if opened.is_relative_to(site):
                return self._installed(opened, site, own)
        for name, checkout in self._checkouts.items():
            if opened.is_relative_to(checkout):
                foreign = own is None or not own.is_relative_to(checkout)
                path = self._path(opened.relative_to(checkout)) if foreign else ""
                return f"{path}{IN_CHECKOUT}{name}" if path else ""
        return self._path(opened)

    def _path(self, opened: Path) -> str:
        """The file of the working tree, or the source of its bytecode; empty if it is no code of a revision."""
        path = _source(opened)
        return str(path) if str(path) in self._tracked or ".so" in path.suffixes else ""


def _source(opened: Path) -> Path:
    """The source of which ``opened`` may be the bytecode."""
    found = _BYTECODE.fullmatch(opened.name) if opened.parent.name == "__pycache__" else None
    if opened.parent.name != "__pycache__":
        return opened
    return opened.parent.parent / (f"{found[1]}.py" if found else opened.name)


def _differ(installed: Path, own: Path) -> bool:
    """Whether an installed file has another text than that of a revision, which may lack it."""
    try:
        return not own.exists() or installed.read_bytes().split() != own.read_bytes().split()
    except OSError:
        return False


_PROJECT = ("pyproject.toml", "setup.py", "setup.cfg")


def _packages(tracked: Collection[str]) -> Iterator[tuple[str, str]]:
    """The packages in a working tree that its projects install, each with the folder that it lies in."""
    for name in tracked:
        package, root = Path(name).parent, Path(name).parent.parent
        if Path(name).name != "__init__.py" or str(package) == "." or str(root / "__init__.py") in tracked:
            continue
        if any(str(place / each) in tracked for place in (root, root.parent) for each in _PROJECT):
            yield str(package), str(root)


_MOST_PYTHONS = 6


def _sites(commands: Iterable[str]) -> list[Path]:
    """Where the Pythons that ``commands`` may start have what is installed."""
    words = [word for text in commands for word in _words(text) if "/" not in word or Path(word).is_absolute()]
    found = [Path(place) for word in ("python", "python3", *words) if (place := shutil.which(word)) is not None]
    pythons = dict.fromkeys(each if re.match(r"python|pypy", each.name) else each.parent / "python3" for each in found)
    folders: dict[Path, None] = {}
    for each in [each for each in pythons if each.exists()][:_MOST_PYTHONS]:
        ask = [str(each), "-c", "import sys; print(*sys.path, sep='\\n')"]
        with suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                ask, capture_output=True, text=True, check=False, timeout=10, stdin=subprocess.DEVNULL
            )
            folders |= dict.fromkeys(Path(line) for line in done.stdout.splitlines() if line.endswith("-packages"))
    return [*folders]


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


@contextmanager
def revisions(
    names: Sequence[str], commands: Sequence[str] = ()
) -> Iterator[tuple[list[Checkout], TreeReads, list[str]]]:
    """Check out the git revisions ``names``, each in its own folder, until the context ends, for ``commands``.

    Yields them, what is read from the working tree meanwhile, and remarks for the user. Raises ``UsageError`` outside a
    git repository, for a name that is no revision, and for names of the same commit.
    """
    asked = f"--revisions {','.join(names)}"
    top = _git(asked, "rev-parse", "--show-toplevel")
    inside = Path.cwd().resolve().relative_to(Path(top).resolve())
    commits = [_git(asked, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}") for name in names]
    for commit in commits:
        same = [name for name, each in zip(names, commits, strict=True) if each == commit]
        if len(same) > 1:
            both = f"{' and '.join(same)} are the same commit, {commit[:10]}"
            raise UsageError(asked, both, f"name an earlier one to compare with: {same[0]}~1,{same[0]}")
    with ExitStack() as stack:
        _remove_stale_checkouts(asked)
        base = Path(mkdtemp(prefix=f"levelbench-{os.getpid()}-"))
        stack.callback(base.rmdir)
        found = []
        for at, (name, commit) in enumerate(zip(names, commits, strict=True)):
            folder = base / f"{at}"
            _git(asked, "worktree", "add", "--detach", "--quiet", str(folder), commit)
            stack.callback(_git, asked, "worktree", "remove", "--force", str(folder))
            if not (folder / inside).is_dir():
                raise UsageError(asked, f"{name} has no folder {inside}", "start in a folder that all of them have")
            found.append(Checkout(name, commit, folder / inside))
        checkouts = {name: base / f"{at}" for at, name in enumerate(names)}
        listed = [_git(asked, "-C", str(each), "ls-files", "-z") for each in (top, *checkouts.values())]
        tracked = dict.fromkeys(each for text in listed for each in text.split("\0") if each)
        reads = stack.enter_context(TreeReads(Path(top), [*tracked], checkouts, _sites(commands)))
        yield found, reads, _remarks(asked, Path(top))


def _remove_stale_checkouts(asked: str) -> None:
    """Remove the checkouts of a levelbench that was killed before it could."""
    for line in _git(asked, "worktree", "list", "--porcelain").splitlines():
        folder = Path(line.removeprefix("worktree "))
        owner = re.fullmatch(r"levelbench-(\d+)-\w+", folder.parent.name)
        if line.startswith("worktree ") and owner and not Path("/proc", owner[1]).exists():
            _git(asked, "worktree", "remove", "--force", str(folder))
            with suppress(OSError):
                folder.parent.rmdir()


def _remarks(asked: str, top: Path) -> list[str]:
    found = []
    if _git(asked, "status", "--porcelain", "--untracked-files=no"):
        found.append("the working tree has uncommitted changes, which are not measured")
    if (top / ".gitmodules").exists():
        found.append("submodules are not checked out: --setup 'git submodule update --init'")
    return found


def _git(asked: str, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], capture_output=True, text=True, check=False, env={**os.environ, **_GIT_SETTINGS}
        )
    except OSError as error:
        raise MissingError(asked, "git is not installed", "install git") from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        found = said[-1] if said else f"{words[-1].removesuffix('^{commit}')!r} is not a revision of this repository"
        raise UsageError(asked, found, "name branches, tags or commits of the repository in this folder")
    return done.stdout.strip()
