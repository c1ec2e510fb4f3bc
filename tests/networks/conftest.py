"""Model files and the files next to them, to which they may or may not refer."""

import os
import textwrap

import numpy as np
import pytest


@pytest.fixture
def folder(tmp_path):
    """A folder with data, inside one with a secret."""
    (tmp_path / "secret").write_bytes(bytes(64))
    inner = tmp_path / "inner"
    (inner / "sub").mkdir(parents=True)
    (inner / "data").write_bytes(np.arange(8, dtype=np.float32).tobytes())
    (inner / "sub" / "data").write_bytes(np.arange(8, dtype=np.float32).tobytes())
    (inner / "link").symlink_to(tmp_path / "secret")
    (inner / "near").symlink_to(inner / "data")
    (inner / "away").symlink_to(tmp_path)
    (inner / "loop").symlink_to(inner / "loop")
    os.mkfifo(inner / "pipe")
    return inner


@pytest.fixture
def write(tmp_path):
    """Write a Python file that makes a model; returns the word that names it."""

    def write(text, name="my_model.py"):
        (tmp_path / name).write_text(textwrap.dedent(text))
        return f"{tmp_path / name}:build"

    return write
