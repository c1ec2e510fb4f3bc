"""python-sources: the source files of the installed Python's standard library, as byte-pair tokens.

The files differ between versions and builds of Python, so their checksum is recorded instead of expected: runs on
different files are never compared. A module at the top of the library is the unit of the split: a package with all its
files or a single file, together with those that share code with it.
"""

from __future__ import annotations

import hashlib
import os
import re
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, final

import numpy as np

from levelbench.errors import DataError
from levelbench.training.datasets.base import Dataset, Split, split_by_digest
from levelbench.training.datasets.bibles import cut
from levelbench.training.datasets.places import FileLocation, FileSource, cache_folder, readable
from levelbench.training.datasets.reading import read_bytes
from levelbench.training.datasets.text import Arrays, ByteTokens, prepared

TOKENS: Final = 512
ROW_LENGTH: Final = 128
# Larger modules are for training, so that none of them is most of a split.
_MOST_HELD_OUT = 1 << 16

# Of held-out rows every fifth is kept, so that an evaluation takes a fraction of the training between two.
_HELD_OUT_STEP = 5

# Not of the library, tests, tables made by programs, and a copy of the tokeniser.
_LEFT_OUT = frozenset(
    [
        "site-packages",
        "dist-packages",
        "__pycache__",
        "test",
        "tests",
        "idle_test",
        "encodings",
        "pydoc_data",
        "ensurepip",
        "lib2to3",
    ]
)
_OF_THE_BUILD = ("_sysconfigdata", "config-")
# Modules that share code, after their first underscores: each is in the split of the second.
_TOGETHER = {
    **{"asynchat": "asyncore", "cProfile": "profile", "pstats": "profile", "ntpath": "posixpath", "cgitb": "pydoc"},
    **{"gzip": "bz2", "lzma": "bz2", "compression": "bz2", "poplib": "smtplib", "imaplib": "smtplib"},
    **{"aifc": "wave", "chunk": "wave", "sunau": "wave", "pydecimal": "decimal", "pyio": "io", "py_abc": "abc"},
}
_MOST_BYTES = 1 << 22
_MOST_FILES = 10_000


@final
class PythonSources(FileSource):
    """Columns ``input_ids`` (n, 128) and the labels, which are the same one token later; both int64.

    ``reference`` is the number of bytes that a row's labels stand for. ``classes`` is the number of tokens.
    """

    name = "python-sources"
    licence = "PSF-2.0"
    attribution = "the standard library of Python, https://www.python.org, Python Software Foundation and contributors"
    split_rule = (
        "modules (a file or a package at the top of the library, those that share code as one) of at most 64 KiB "
        "ordered by the SHA-256 of their names: the first fifteenth is the test split, the next the validation split, "
        "all others for training; 512 byte pairs are learned from the training split; files follow in the order of "
        "their names, cut into rows of 128 tokens without the remainder; every fifth row of held-out modules is kept"
    )
    size = "about 550 files, 10 MB"
    home = "https://www.python.org/downloads/source/, or the folder that sysconfig.get_path('stdlib') names"
    ways = (
        "install Python with the sources of its standard library (Debian and Ubuntu: libpython3-stdlib), or name a "
        "folder that has them, such as Lib of Python's source, with --data or LEVELBENCH_DATA"
    )
    downloads = False
    why_not = "it comes with Python"

    def __init__(self, packaged: Path | None = None, tokens: int = TOKENS, length: int = ROW_LENGTH) -> None:
        self._packaged, self._tokens, self._length = packaged, tokens, length

    def load(self, folder: Path | None = None) -> Dataset:
        found = self.located(folder)
        files = read_sources(found.held)
        digest = sources_digest(files)
        key = hashlib.sha256(repr((1, digest, self._tokens)).encode()).hexdigest()
        arrays = prepared(cache_folder() / self.name / f"{key[:16]}.npz", key, lambda: self._made(files))
        tokens = ByteTokens([(left, right) for left, right in arrays["merges"].tolist()])
        lengths = np.array([len(each) for each in tokens.spelled])
        splits = []
        for at in range(3):
            step = _HELD_OUT_STEP if at else 1
            inputs, labels = (each[::step] for each in cut(arrays[f"ids.{at}"], self._length))
            splits.append(Split((inputs, labels), reference=lengths[labels].sum(axis=1).tolist()))
        return self.assembled(splits, self._tokens, {"sources": digest}, f"{found.held} ({found.label})")

    def held(self, folder: Path) -> Path | None:
        """The folder, if it has os.py, by which Python itself recognises its library."""
        return folder if readable(folder / "os.py") else None

    def packaged(self) -> Sequence[FileLocation]:
        """The library of the Python that runs this."""
        place = self._packaged or Path(sysconfig.get_path("stdlib"))
        return [FileLocation(f"Python {sysconfig.get_python_version()}", place)]

    def _made(self, files: Mapping[str, bytes]) -> Arrays:
        parts = [[files[name] for name in names] for names in split_sources(files)]
        tokens = ByteTokens.learn(parts[0], self._tokens)
        result: Arrays = {"merges": np.array(tokens.merges, np.int64).reshape(-1, 2)}
        for at, part in enumerate(parts):
            result[f"ids.{at}"] = tokens.encode(part).astype(np.uint16)
        return result


def read_sources(folder: Path) -> dict[str, bytes]:
    """The library's source files by name, such as ``json/decoder.py``, in the order of their names."""
    found: dict[str, bytes] = {}
    for where, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if each not in _LEFT_OUT and not each.startswith(_OF_THE_BUILD)]
        for each in files:
            if each.endswith(".py") and not each.startswith(_OF_THE_BUILD):
                path = Path(where, each)
                found[path.relative_to(folder).as_posix()] = read_bytes(path, _MOST_BYTES)
        if len(found) > _MOST_FILES:
            many = f"it has more than {_MOST_FILES:,} source files"
            raise DataError(f"reading the standard library in {folder}", many, "Name the folder of a Python's library")
    return {name: found[name] for name in sorted(found)}


def sources_digest(files: Mapping[str, bytes]) -> str:
    """The SHA-256 of ``name<tab>number of bytes<line feed>`` and the content of all files in order."""
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(os.fsencode(f"{name}\t{len(content)}\n") + content)
    return digest.hexdigest()


def split_sources(files: Mapping[str, bytes]) -> list[list[str]]:
    """The names of the files for training, validation and test."""
    module = {name: re.sub(r"^_*(.*?)(\.py)?$", r"\1", name.split("/")[0]) for name in files}
    module = {name: _TOGETHER.get(each, each) for name, each in module.items()}
    sizes = dict.fromkeys(module.values(), 0)
    for name, each in module.items():
        sizes[each] += len(files[name])
    small = sorted(each for each, size in sizes.items() if size <= _MOST_HELD_OUT)
    _, test, validation = split_by_digest(map(str.encode, small), None, lambda count: (count // 15,) * 2)
    split = {small[at]: part for part, held in ((1, validation), (2, test)) for at in held}
    return [[name for name in files if split.get(module[name], 0) == part] for part in range(3)]
