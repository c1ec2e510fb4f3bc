"""Canonical bytes of a submission and of a curve, and their digests.

The one idea: what is equal is written alike, so a digest says whether a curve is the one that was submitted, whoever
formatted the file since. Digests are SHA-256 as 64 hexadecimal digits.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import msgspec

from levelbench.errors import RecordError
from levelbench.records.submissions.schema import Curve, Submission

__all__ = ["curve_digest", "encode", "file_digest", "submission_digest"]

_ENCODER = msgspec.json.Encoder(order="deterministic")
_LISTS = ("runs", "inference")
"""Fields whose elements get a line each, so that a changed run is one changed line to whoever reviews it."""


def encode(submission: Submission) -> bytes:
    """The file's bytes: JSON in UTF-8, a field a line in the schema's order, a run a line, a newline at the end.

    Fields at their default are left out. Raises ``RecordError`` for a number that is not finite, which JSON cannot say.
    """
    fields: dict[str, msgspec.Raw] = msgspec.json.decode(_finite(submission), type=dict[str, msgspec.Raw])
    lines = []
    for name, raw in fields.items():
        text = bytes(raw)
        if text == b"{}":
            continue
        if name in _LISTS:
            elements = msgspec.json.decode(raw, type=list[msgspec.Raw])
            text = b"[\n  " + b",\n  ".join(map(bytes, elements)) + b"\n ]" if elements else b"[]"
        lines.append(b' "%s": %s' % (name.encode(), text))
    return b"{\n" + b",\n".join(lines) + b"\n}\n"


def submission_digest(submission: Submission) -> str:
    """SHA-256 of the canonical bytes: equal for submissions that are equal, however their files are laid out."""
    return hashlib.sha256(encode(submission)).hexdigest()


def curve_digest(curve: Curve) -> str:
    """SHA-256 of the curve's canonical text: its columns in the schema's order, those not stated left out.

    Times and qualities are written as floats also where they are whole, so ``1`` and ``1.0`` are one curve.
    """
    plain = Curve(
        time_s=_floats(curve.time_s),
        quality=_floats(curve.quality),
        epoch=None if curve.epoch is None else _floats(curve.epoch),
        samples=curve.samples,
        others={name: _floats(values) for name, values in curve.others.items()},
    )
    return hashlib.sha256(_finite(plain)).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _floats(values: list[float]) -> list[float]:
    return list(map(float, values))


def _finite(value: Submission | Curve) -> bytes:
    try:
        raw = _ENCODER.encode(value)
    except UnicodeEncodeError as error:
        raise RecordError("writing a submission", f"a text in it is not Unicode ({error})", "correct it") from error
    # msgspec writes what is not finite as null; it is looked for only where there is one.
    if b"null" in raw:
        _refuse_infinite(msgspec.to_builtins(value), "")
    return raw


def _refuse_infinite(value: Any, at: str) -> None:
    if isinstance(value, dict):
        for name, each in value.items():
            _refuse_infinite(each, f"{at}.{name}" if at else name)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            _refuse_infinite(each, f"{at}[{number}]")
    elif isinstance(value, float) and not math.isfinite(value):
        do = "leave the field out where there is no figure"
        raise RecordError("writing a submission", f"{at} is {value}, which JSON cannot say", do)
