"""Files that observers leave: named after their run, written whole, and errors of three parts."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from levelbench.errors import StoreError
from levelbench.records.schema import Specification
from levelbench.records.writer import path_part

__all__ = ["ready", "run_name", "stored", "write_whole"]


def run_name(specification: Specification, identity: str) -> str:
    """``TASK-RECIPE-FRAMEWORK-ID``, safe as the name of a file: several runs may write to one folder."""
    parts = (specification.task, specification.recipe, specification.framework, identity)
    return "-".join(path_part(each) for each in parts)


def ready(folder: Path) -> Path:
    """Make the folder; ``StoreError`` where that fails."""
    with stored(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_whole(path: Path, content: bytes) -> Path:
    """Write a file in one step: it is there whole, or as it was before."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    with stored(path):
        try:
            draft.write_bytes(content)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    return path


@contextmanager
def stored(path: Path) -> Iterator[None]:
    """What the file system refuses, as a ``StoreError``."""
    try:
        yield
    except OSError as error:
        found = error.strerror or str(error)
        do = "choose a folder that is writable, or leave the observer out"
        raise StoreError(f"an observer's file {path}", found, do) from error
