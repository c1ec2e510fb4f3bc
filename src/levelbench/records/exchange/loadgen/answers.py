"""Reads ``mlperf_log_accuracy.json``: the answers that LoadGen logged, for a checker that knows the labels."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from levelbench.errors import RecordError
from levelbench.records.exchange.mlperf.dialects import FILE_LIMIT
from levelbench.records.exchange.mlperf.sources import read_bytes

__all__ = ["Answer", "parse_accuracy", "parse_answers", "read_answers"]

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_ACCURACY = re.compile(rb"accuracy=\s*(\d{1,3}(?:\.\d{1,15})?)\s*%,\s*good=\s*(\d{1,12}),\s*total=\s*(\d{1,12})")


class Answer(Struct, frozen=True):
    """One answer: the query's number, which sample it was, and its bytes as hexadecimal digits."""

    seq_id: Count
    qsl_idx: Count
    data: str

    def bytes(self) -> bytes:
        """What the system under test answered; ``ValueError`` where the digits are none."""
        return bytes.fromhex(self.data)


_DECODER = msgspec.json.Decoder(list[Answer])


def read_answers(path: str | Path) -> list[Answer]:
    """The answers at ``path``, none in a run that logged none; ``RecordError`` for a file that is none."""
    path = Path(path)
    asked = f"reading the LoadGen answers {path}"
    return parse_answers(read_bytes(path, asked, FILE_LIMIT), asked)


def parse_answers(content: bytes, asked: str) -> list[Answer]:
    """The answers in a file's bytes; raises as ``read_answers`` does."""
    if not content.strip():
        return []
    try:
        return _DECODER.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        do = "give a whole mlperf_log_accuracy.json: a run that was stopped leaves half of one"
        raise RecordError(asked, f"it is no list of answers ({error})", do) from error


def parse_accuracy(content: bytes) -> tuple[float, int] | None:
    """Share of right answers and number of samples in an ``accuracy.txt`` of the classification scripts.

    ``None`` for other scripts' words: there are as many as benchmarks.
    """
    match = _ACCURACY.search(content[: 1 << 20])
    if match is None or int(match[3]) == 0 or int(match[2]) > int(match[3]):
        return None
    return int(match[2]) / int(match[3]), int(match[3])
