"""Files of other systems: only regular ones of a bounded size inside the given folder are read; written in one step."""

from __future__ import annotations

from pathlib import Path

from levelbench.errors import RecordError, StoreError
from levelbench.records.submissions import files

__all__ = ["place_in", "read_bytes", "write_whole"]


def read_bytes(path: Path, most: int, root: Path | None = None) -> bytes:
    """The bytes of a regular file of at most ``most`` bytes. ``RecordError`` for a larger or another one."""
    asked = f"reading {path}"
    try:
        if root is not None and not path.resolve().is_relative_to(root.resolve()):
            raise RecordError(asked, "it leads out of the folder", "put the file itself there, not a link")
        if not path.is_file():
            found = "it is no regular file" if path.exists() else "there is none"
            raise RecordError(asked, found, "give the path of a file")
        with path.open("rb") as file:
            data = file.read(most + 1)
    except (OSError, RuntimeError) as error:
        found = getattr(error, "strerror", None) or str(error)
        raise StoreError(asked, found, "make the file readable") from error
    if len(data) > most:
        raise RecordError(asked, f"it is larger than {most:,} bytes", "give a file of the format's size")
    return data


def place_in(root: Path, path: Path) -> str:
    """Where ``path`` lies in ``root``, as text: names that are no Unicode, which file systems allow, as escapes."""
    where = path.relative_to(root) if path.is_relative_to(root) else path
    return where.as_posix().encode("utf-8", "backslashreplace").decode()


def write_whole(path: Path, data: bytes | str) -> Path:
    """Write ``data`` (text as UTF-8) to ``path`` in one step, making its folder; ``StoreError`` where that fails."""
    return files.write_whole(path, data.encode() if isinstance(data, str) else data)
