"""Reads a submission that somebody else wrote: under limits, and with an error that says where and what to do.

The one idea: size, depth and duplicate keys are looked at in the bytes, before anything is built of them; then the
schema refuses what it does not know. What comes back is well-formed, and nothing in it is believed yet.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from levelbench.errors import RecordError
from levelbench.records.submissions.schema import SUBMISSION_SCHEMA, Curve, Inference, Submission, SubmittedRun

__all__ = [
    "DEPTH_LIMIT",
    "FILE_LIMIT",
    "POINT_LIMIT",
    "RUN_LIMIT",
    "UnreadableError",
    "parse_submission",
    "read_bytes",
    "read_submission",
]

FILE_LIMIT = 16 << 20
"""The largest file in bytes that is read."""
DEPTH_LIMIT = 16
"""How deep objects and lists may be nested; the schema itself needs five."""
RUN_LIMIT = 1000
"""How many runs or measurements of inference an entry may have."""
POINT_LIMIT = 100_000
"""How many evaluations a curve may have."""
_ENTRY_LIMIT = 2000
"""How many entries a dictionary or list of texts may have."""

_DECODER = msgspec.json.Decoder(Submission)
_ANYTHING = msgspec.json.Decoder()
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_SHAPE = bytes(set(range(256)) - set(b"[]{}:"))
_PLACE = re.compile(r"\s*-?\s*at `(?:key in )?\$\.?([^`]*)`")
_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class UnreadableError(RecordError):
    """A file that is no submission: ``code`` names the rule that it breaks, ``field`` where, if it is known."""

    def __init__(self, asked: str, found: str, do: str, code: str = "B101", field: str = "") -> None:
        super().__init__(asked, found, do)
        self.code = code
        self.field = field


class _Preamble(msgspec.Struct):
    schema: Any = None


def read_submission(path: str | Path, *, root: str | Path | None = None) -> Submission:
    """The submission in the file at ``path``, which must lie in the folder ``root`` where one is given.

    Raises ``UnreadableError`` (a ``RecordError``) for whatever is not a submission within the limits.
    """
    path = Path(path)
    return parse_submission(read_bytes(path, root=root), f"reading the submission {path}")


def read_bytes(path: str | Path, *, root: str | Path | None = None, limit: int = FILE_LIMIT) -> bytes:
    """The bytes of a regular file of at most ``limit`` bytes; no link is followed, inside of ``root`` or to it."""
    path = Path(path)
    asked = f"reading the submission {path}"
    if root is not None and not _lies_in(path, Path(root)):
        raise UnreadableError(asked, f"it lies outside of {root}", "give a file in the folder")
    try:
        # Not blocking: a named pipe would keep us waiting for somebody to write to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise UnreadableError(asked, "there is no such file", "check the path") from None
    except (OSError, ValueError) as error:
        found = "it is a link" if path.is_symlink() else getattr(error, "strerror", None) or str(error)
        raise UnreadableError(asked, found, "give the path of a regular file") from error
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode):
        os.close(descriptor)
        raise UnreadableError(asked, "it is not a regular file", "give the path of a regular file")
    with os.fdopen(descriptor, "rb") as file:
        raw = b"" if facts.st_size > limit else file.read(limit + 1)
    if facts.st_size > limit or len(raw) > limit:
        found = f"it has {max(facts.st_size, len(raw))} bytes, more than {limit}"
        raise UnreadableError(asked, found, "submit fewer runs, or thinner curves, in one file")
    return raw


def _lies_in(path: Path, root: Path) -> bool:
    """Whether ``path`` is below ``root`` with no link on its way there."""
    inside = root.resolve()
    plain = inside.joinpath(path.relative_to(root)) if path.is_relative_to(root) else path
    return plain.is_relative_to(inside) and plain.resolve() == plain


def parse_submission(raw: bytes, asked: str = "reading a submission") -> Submission:
    """The submission that ``raw`` writes; ``UnreadableError`` (about ``asked``) for whatever is none."""
    if len(raw) > FILE_LIMIT:
        raise UnreadableError(asked, f"it has {len(raw)} bytes, more than {FILE_LIMIT}", "submit fewer runs")
    if raw.startswith(b"\xef\xbb\xbf"):
        raise UnreadableError(asked, "it begins with a byte order mark", "save it as UTF-8 without one")
    shape = _shape(raw)
    if _depth(shape) > DEPTH_LIMIT:
        raise UnreadableError(asked, f"it is nested deeper than {DEPTH_LIMIT}", "write a submission", code="B102")
    _refuse_other_schema(raw, asked)
    try:
        submission = _DECODER.decode(raw)
        repeated = _keys(_ANYTHING.decode(raw)) != shape.count(b":")
    except msgspec.ValidationError as error:
        raise _invalid(error, asked, raw) from error
    except _MALFORMED as error:
        raise UnreadableError(asked, f"it is not JSON ({error})", "correct the file") from error
    if repeated:
        # A decoder keeps the last of two equal keys, a reader sees the first.
        name = _short(_repeated_key(raw))
        raise UnreadableError(asked, f"the key {name} is there twice in one object", "keep one", "B104", name)
    _refuse_too_long(submission, asked)
    return submission


def _shape(raw: bytes) -> bytes:
    """The brackets and colons outside of texts: all of a file's shape in a thousandth of its length."""
    return _STRING.sub(b"", raw).translate(None, _NO_SHAPE)


def _depth(shape: bytes) -> int:
    deepest = now = 0
    for each in shape:
        if each in b"[{":
            now += 1
            deepest = max(deepest, now)
        elif each in b"]}":
            now -= 1
    return deepest


def _refuse_other_schema(raw: bytes, asked: str) -> None:
    try:
        schema = msgspec.json.decode(raw, type=_Preamble).schema
    except msgspec.ValidationError as error:
        raise _invalid(error, asked) from error
    except _MALFORMED as error:
        raise UnreadableError(asked, f"it is not JSON ({error})", "correct the file") from error
    if isinstance(schema, int) and not isinstance(schema, bool) and schema > SUBMISSION_SCHEMA:
        found = f"it was written in schema {schema} and this version reads up to schema {SUBMISSION_SCHEMA}"
        raise UnreadableError(asked, found, "upgrade levelbench to read it", code="B103", field="schema")
    if schema is not None and (isinstance(schema, bool) or not isinstance(schema, int) or schema < 1):
        found = f"its schema is {_short(repr(schema))}"
        raise UnreadableError(asked, found, f"write {SUBMISSION_SCHEMA}", code="B103", field="schema")


def _keys(value: Any) -> int:
    """How many keys came out of a submission; its lists hold objects only, or none."""
    if isinstance(value, dict):
        return len(value) + sum(_keys(each) for each in value.values() if isinstance(each, dict | list))
    return sum(map(_keys, value)) if value and isinstance(value[0], dict) else 0


def _repeated_key(raw: bytes) -> str:
    repeated: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = Counter(name for name, _ in pairs)
        repeated.extend(name for name, times in names.items() if times > 1)
        return dict(pairs)

    json.loads(raw, object_pairs_hook=note)
    return repeated[0]


def _invalid(error: msgspec.ValidationError, asked: str, raw: bytes = b"") -> UnreadableError:
    text = str(error)
    place = _PLACE.search(text)
    field = place[1] if place else ""
    for name, kind in (("runs", SubmittedRun), ("inference", Inference)):
        if raw and field.startswith(f"{name}[...]"):
            field = field.replace("...", str(_first_wrong(raw, name, kind)), 1)
    found = _PLACE.sub("", text).strip()
    if match := re.search(r"(?:missing required|unknown) field `([^`]*)`", found):
        field = f"{field}.{match[1]}" if field else match[1]
    at = f" at {field}" if field else ""
    do = "correct the field; docs/leaderboard.md describes the file"
    return UnreadableError(asked, f"it is not a submission: {found}{at}", do, code="B105", field=field)


def _first_wrong(raw: bytes, name: str, kind: type) -> int:
    """Which element of the list ``name`` is none of its ``kind``: the decoder does not say."""
    elements = msgspec.json.decode(msgspec.json.decode(raw, type=dict[str, msgspec.Raw])[name], type=list[msgspec.Raw])
    for at, each in enumerate(elements):
        try:
            msgspec.json.decode(each, type=kind)
        except msgspec.ValidationError:
            return at
    return 0


def _refuse_too_long(submission: Submission, asked: str) -> None:
    for field, length, limit in _lengths(submission):
        if length > limit:
            found = f"{field} has {length} elements, more than {limit}"
            raise UnreadableError(asked, found, "submit fewer in one file", code="B102", field=field)


def _lengths(submission: Submission) -> list[tuple[str, int, int]]:
    """Every list and dictionary: its name, its length, and how long it may be."""
    origin, provenance = submission.origin, submission.provenance
    found = [
        ("runs", len(submission.runs), RUN_LIMIT),
        ("inference", len(submission.inference), RUN_LIMIT),
        ("settings", len(submission.settings), _ENTRY_LIMIT),
        ("provenance.software", len(provenance.software), _ENTRY_LIMIT),
        ("provenance.environment", len(provenance.environment), _ENTRY_LIMIT),
        ("provenance.checksums", len(provenance.checksums), 10 * _ENTRY_LIMIT),
    ]
    if origin is not None:
        found += [("origin.doubts", len(origin.doubts), _ENTRY_LIMIT)]
        found += [("origin.fields", len(origin.fields), _ENTRY_LIMIT)]
    for at, run in enumerate(submission.runs[: RUN_LIMIT + 1]):
        found += _lengths_of_run(run, f"runs[{at}]")
    for at, each in enumerate(submission.inference[: RUN_LIMIT + 1]):
        found += _lengths_of_inference(each, f"inference[{at}]")
    return found


def _lengths_of_run(run: SubmittedRun, at: str) -> list[tuple[str, int, int]]:
    curve: Curve = run.curve
    found = [
        (f"{at}.curve.time_s", len(curve.time_s), POINT_LIMIT),
        (f"{at}.curve.quality", len(curve.quality), POINT_LIMIT),
        (f"{at}.curve.epoch", len(curve.epoch or ()), POINT_LIMIT),
        (f"{at}.curve.samples", len(curve.samples or ()), POINT_LIMIT),
        (f"{at}.curve.others", len(curve.others), 100),
        (f"{at}.suspect", len(run.suspect), _ENTRY_LIMIT),
    ]
    found += [(f"{at}.curve.others.{name[:40]}", len(values), POINT_LIMIT) for name, values in curve.others.items()]
    parts = {"phases_s": run.phases_s, "excluded_s": run.excluded_s, "test_quality": run.test_quality}
    return found + [(f"{at}.{name}", len(values), 200) for name, values in parts.items()]


def _lengths_of_inference(inference: Inference, at: str) -> list[tuple[str, int, int]]:
    return [
        (f"{at}.quantiles_s", len(inference.quantiles_s), 200),
        (f"{at}.includes", len(inference.includes), 200),
    ]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
