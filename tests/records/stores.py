"""Helpers for tests of stores: the seeds of runs, and edits of records with valid checksums."""

from __future__ import annotations

import re

from levelbench.records.lines import checksum_in, sealed


def seeds(runs):
    return [run.header.seed if hasattr(run, "header") else run.seed for run in runs]


def resealed(raw: bytes) -> bytes:
    """The lines with valid checksums."""
    found, before = b"", ""
    for line in re.sub(rb',"sum":"[0-9a-f]{16}"}\n', b"}\n", raw).splitlines(keepends=True):
        found += (whole := sealed(line, before))
        before = checksum_in(whole)
    return found


def edit(path, old: str, new: str) -> None:
    """Replace ``old`` by ``new`` throughout a record, and recompute its checksums."""
    text = path.read_text()
    assert old in text
    path.write_bytes(resealed(text.replace(old, new).encode()))
