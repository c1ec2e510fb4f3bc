"""Git revisions checked out next to each other, and the files that their programs still read from the working tree.

If a program is installed from the working tree (``pip install -e``), every checkout runs that one: two revisions are
the same program, and comparing them says SAME. If ``--setup`` installs each checkout, one after the other, into one
environment, every revision runs the last one. inotify(7) shows which files a process opens that are not of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple, final

from levelbench.errors import MissingError, UsageError
from levelbench.experiments.file_events import IN_OPEN, FileEvents

__all__ = ["IN_CHECKOUT", "Checkout", "TreeReads", "revisions"]

IN_CHECKOUT = " in the checkout of "

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

    So are those of ``checkouts``, the places of revisions by their names, that a program of another one opens. Without
    inotify, or if its limits are exhausted, no files are seen. A context manager.
    """

    def __init__(self, top: Path, tracked: Sequence[str], checkouts: Mapping[str, Path] | None = None) -> None:
        self._tracked, self._checkouts = frozenset(tracked), checkouts or {}
        self._events = FileEvents(IN_OPEN)
        folders = dict.fromkeys(Path(each).parent for each in tracked)
        for folder in (place for each in folders for place in (each, each / "__pycache__")):
            self._events.watch(top / folder, folder)
            for checkout in self._checkouts.values():
                self._events.watch(checkout / folder, checkout / folder)

    def __enter__(self) -> TreeReads:
        return self

    def __exit__(self, *_: object) -> None:
        self._events.__exit__()

    def take(self, own: Path | None = None) -> list[str]:
        """The files opened since the last call, but in the checkout with the folder ``own``: paths in the working tree.

        After those in another checkout it says so.
        """
        return list(dict.fromkeys(path for each, _ in self._events.take() if (path := self._stray(each, own))))

    def _stray(self, opened: Path, own: Path | None) -> str:
        for name, checkout in self._checkouts.items():
            if opened.is_relative_to(checkout):
                foreign = own is None or not own.is_relative_to(checkout)
                path = self._path(opened.relative_to(checkout)) if foreign else ""
                return f"{path}{IN_CHECKOUT}{name}" if path else ""
        return self._path(opened)

    def _path(self, opened: Path) -> str:
        """The file of the working tree, or the source of its bytecode; empty if it is no code of a revision."""
        folder, name = opened.parent, opened.name
        if folder.name == "__pycache__":
            source = _BYTECODE.fullmatch(name)
            folder, name = folder.parent, f"{source[1]}.py" if source else name
        path = str(folder / name)
        return path if path in self._tracked or ".so" in Path(name).suffixes else ""


@contextmanager
def revisions(names: Sequence[str]) -> Iterator[tuple[list[Checkout], TreeReads, list[str]]]:
    """Check out the git revisions ``names``, each in its own folder, until the context ends.

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
        yield found, stack.enter_context(TreeReads(Path(top), [*tracked], checkouts)), _remarks(asked, Path(top))


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
