"""Which state of the source ran: the commit, whether it was changed since, and a digest of the change.

A commit alone names the wrong code whenever something was edited, so the edit has a digest too. Git is
asked read-only, with its hooks and helpers off, and for a bounded time; an answer that does not come is a reason.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from levelbench.measure.environment.files import Facts

# A repository's own settings may name programs to run; measuring must not run them, nor take the index lock.
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-optional-locks")


def git(folder: Path, timeout_s: float = 2.0) -> Facts:
    """``commit``, ``dirty`` and ``changes`` (SHA-256 of the edit) around ``folder``, or a ``reason`` why not."""
    try:
        status = _ask(folder, timeout_s, "status", "--porcelain=v2", "--branch", "--untracked-files=normal")
        lines = status.decode(errors="replace").splitlines()
        oid = next((line.removeprefix("# branch.oid ") for line in lines if line.startswith("# branch.oid ")), "")
        entries = [line for line in lines if not line.startswith("#")]
        commit = oid if oid and oid != "(initial)" else None
        edit = b"" if commit is None else _ask(folder, timeout_s, "diff", "--no-ext-diff", "--no-textconv", "HEAD")
    except FileNotFoundError:
        return _unknown("git is not installed, or the folder does not exist")
    except subprocess.TimeoutExpired:
        return _unknown(f"git did not answer within {timeout_s:g} s")
    except subprocess.CalledProcessError:
        return _unknown("not in a git repository")
    changes = hashlib.sha256("\n".join(entries).encode() + edit).hexdigest() if entries else None
    return {
        "commit": commit,
        "dirty": bool(entries),
        "changes": changes,
        "reason": None if commit else "the repository has no commit yet",
    }


def _ask(folder: Path, timeout_s: float, *words: str) -> bytes:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(
        [*_GIT, "-C", str(folder), *words],
        env=inherited,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout_s,
        check=True,
    ).stdout


def _unknown(reason: str) -> Facts:
    return {"commit": None, "dirty": None, "changes": None, "reason": reason}
