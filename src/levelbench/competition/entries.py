"""The schema of a leaderboard entry, how entries are written and read, and their digests.

An entry holds what was measured (every run, its curve, quantiles of raw latencies) and where it came from; the reader
computes its score under a ruleset. ``None`` means "not stated", never "no". Times are in seconds, qualities on the
scale of the target, prices in US dollars per hour for the whole system.

Entries are written by strangers, so size, depth and duplicate keys are checked in the raw bytes before anything is
decoded; then the schema rejects unknown fields. A submission that was read is well-formed, but not yet trusted.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import stat
from collections import Counter
from contextlib import suppress
from datetime import date
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct, field

from levelbench.errors import RecordError, UsageError
from levelbench.records.locks import store_fault
from levelbench.records.schema import Target
from levelbench.records.writer import path_part, publish

SUBMISSION_SCHEMA = 1

Text = Annotated[str, Meta(max_length=4000)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Key = Annotated[str, Meta(max_length=1000)]
"""A name that the author chooses: a setting, a file of the data, a further column."""
Setting = int | float | Text | bool

RUN_LIMIT = 1000
"""The most runs or inference measurements in an entry."""
POINT_LIMIT = 100_000
"""The most evaluations in a curve."""
Column = Annotated[list[float], Meta(max_length=POINT_LIMIT)]
Counts = Annotated[list[Count], Meta(max_length=POINT_LIMIT)]
Texts = Annotated[list[Text], Meta(max_length=2000)]
Facts = Annotated[dict[Key, Text], Meta(max_length=2000)]
Figures = Annotated[dict[Key, float], Meta(max_length=200)]


class Author(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who submits; ``key`` is the fingerprint of the Ed25519 key that signs, if any."""

    name: Name
    email: Text | None = None
    organisation: Text | None = None
    key: Text | None = None


class Hardware(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The whole system: ``description`` in the author's words, and its parts where they are stated."""

    description: Name
    nodes: Count | None = None
    accelerators: Count | None = None
    accelerator: Text | None = None
    processor: Text | None = None
    cores: Count | None = None
    memory_bytes: Count | None = None


class Code(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where the code is and which version ran; ``dirty``: with uncommitted changes."""

    url: Text | None = None
    commit: Text | None = None
    dirty: bool | None = None


class SystemPrice(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """US dollars per hour for the whole system, the source of the price and the ISO day on which it was read.

    The check accepts one millionth of a dollar to ten million.
    """

    usd_per_hour: Positive
    source: Text | None = None
    read_on: Text | None = None
    on_demand: bool | None = None


class SubmittedCurve(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The evaluations of one run in order: columns of equal length. ``time_s`` is cumulative on the entry's clock.

    ``epoch``, ``samples`` and ``steps`` (updates of the parameters) say how much training came before.
    """

    time_s: Column
    quality: Column
    epoch: Column | None = None
    samples: Counts | None = None
    others: Annotated[dict[Key, Column], Meta(max_length=100)] = field(default_factory=dict)
    """Further columns by name, such as a second metric, on the scale of the target if they are of the same kind."""
    steps: Counts | None = None


class SubmittedRun(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One run, whether or not it reached the target. ``record_digest`` is the SHA-256 of the record it was made from.

    ``curve_digest`` is the SHA-256 of the curve's canonical text (``entries.curve_digest``). ``reached`` and
    ``time_to_target_s`` follow the author's own rule: they are checked against the curve, never trusted. ``phases_s``
    are seconds by phase up to the end of the curve, ``excluded_s`` the seconds that the clock left out.
    """

    curve: SubmittedCurve
    status: Literal["done", "failed"] = "done"
    seed: Count | None = None
    reached: bool | None = None
    time_to_target_s: float | None = None
    started: Text | None = None
    phases_s: Figures = field(default_factory=dict)
    excluded_s: Figures = field(default_factory=dict)
    energy_j: float | None = None
    energy_method: Text | None = None
    peak_memory_bytes: float | None = None
    test_quality: Figures = field(default_factory=dict)
    suspect: Texts = field(default_factory=list)
    error: Text | None = None
    record_id: Text | None = None
    record_digest: Text | None = None
    curve_digest: Text | None = None


Scenario = Literal["single-stream", "multi-stream", "server", "offline", "dawnbench"]


class Inference(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One measurement of inference: which scenario, its latencies in seconds, and the quality of the same answers.

    ``quantiles_s`` maps a quantile ("0.5", "0.9", "0.99") to seconds; ``estimate_s`` is the early-stopping estimate of
    the scenario's own quantile (LoadGen's rule), ``None`` if there were too few queries. ``includes`` says what is
    on the clock besides the network ("preprocessing", "postprocessing", "transfer", "queueing").
    """

    scenario: Scenario
    queries: Count
    samples: Count
    duration_s: float
    mean_latency_s: float | None = None
    quantiles_s: Figures = field(default_factory=dict)
    estimate_s: float | None = None
    estimate_quantile: float | None = None
    throughput_per_s: float | None = None
    target_per_s: float | None = None
    latency_bound_s: float | None = None
    valid: bool | None = None
    quality: float | None = None
    quality_samples: Count | None = None
    batch: Count | None = None
    includes: Annotated[list[Text], Meta(max_length=200)] = field(default_factory=list)
    audits: dict[Name, bool | None] = field(default_factory=dict)
    """The audits that ran, by name: passed, failed, or ``None`` if undecided."""
    cost_usd: float | None = None
    """The cost of one answer as the author states it; ``None`` if it follows from price and time alone."""
    record_id: Text | None = None
    record_digest: Text | None = None


class TuningEffort(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The tuning effort before the runs: trials, hours and dollars; ``None`` where the author does not say."""

    trials: Count | None = None
    hours: float | None = None
    usd: float | None = None
    notes: Text | None = None


class Provenance(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The environment: software, checksums of the data (SHA-256 by file), the source of the task, our version.

    ``split_rule`` says how the data were split, ``split_sizes`` how many examples each split has; ``labels`` and
    ``inputs`` hold the SHA-256 of each split's labels and inputs. ``quality_digest`` and ``data_digest`` identify the
    code that scored the network and that loaded the data, ``source_digest`` the whole source of the task. All entries
    of a board share these.
    """

    version: Text | None = None
    software: Facts = field(default_factory=dict)
    environment: Facts = field(default_factory=dict)
    dataset: Text | None = None
    synthetic: bool | None = None
    checksums: Annotated[dict[Key, Text], Meta(max_length=20_000)] = field(default_factory=dict)
    source_digest: Text | None = None
    split_rule: Text | None = None
    split_sizes: dict[Key, Count] = field(default_factory=dict)
    labels: dict[Key, Text] = field(default_factory=dict)
    inputs: dict[Key, Text] = field(default_factory=dict)
    quality_digest: Text | None = None
    data_digest: Text | None = None


class Origin(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The foreign file that an entry was read from: ``format`` ("dawnbench", ...), its SHA-256, and doubts about it."""

    format: Name
    file: Text
    digest: Text | None = None
    doubts: Texts = field(default_factory=list)
    fields: Annotated[dict[Key, Setting | None], Meta(max_length=2000)] = field(default_factory=dict)
    """What the other format states and ours has no place for, by dotted name."""


class Submission(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, weakref=True):
    """One entry: one task, one mode, one author, one system, one set of settings, and all of its runs.

    ``ruleset`` names the rules it was made for ("levelbench-1.0", "dawnbench-1.0"). ``submitted`` is an ISO day.
    ``clock`` and ``crossing`` are names from ``measure.policies`` and ``measure.crossing``.
    """

    schema: int
    ruleset: Name
    task: Name
    mode: Literal["training", "inference"]
    author: Author
    submitted: Text
    model: Name
    framework: Name
    hardware: Hardware
    target: Target
    division: Name = "open"
    clock: Text | None = None
    crossing: Text | None = None
    code: Code = field(default_factory=Code)
    price: SystemPrice | None = None
    runs: Annotated[list[SubmittedRun], Meta(max_length=RUN_LIMIT)] = field(default_factory=list)
    inference: Annotated[list[Inference], Meta(max_length=RUN_LIMIT)] = field(default_factory=list)
    tuning: TuningEffort = field(default_factory=TuningEffort)
    settings: Annotated[dict[Key, Setting], Meta(max_length=2000)] = field(default_factory=dict)
    provenance: Provenance = field(default_factory=Provenance)
    origin: Origin | None = None
    notes: Annotated[str, Meta(max_length=20000)] = ""


_ENCODER = msgspec.json.Encoder(order="deterministic")
_LISTS = ("runs", "inference")
"""Fields whose elements get a line each, so that a changed run is a one-line diff for the reviewer."""


def encode(submission: Submission) -> bytes:
    """The file's bytes: JSON in UTF-8, one line per field in the schema's order, one line per run, a final newline.

    Fields at their default are left out. Raises ``RecordError`` for numbers that are not finite, which JSON lacks.
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
    """SHA-256 of the canonical bytes: equal submissions have equal digests, however their files are laid out."""
    return hashlib.sha256(encode(submission)).hexdigest()


def curve_digest(curve: SubmittedCurve) -> str:
    """SHA-256 of the curve's canonical text: its columns in the schema's order, without those that are not stated.

    Whole times and qualities are written as floats too, so ``1`` and ``1.0`` give the same digest.
    """

    def floats(values: list[float]) -> list[float]:
        return list(map(float, values))

    plain = SubmittedCurve(
        time_s=floats(curve.time_s),
        quality=floats(curve.quality),
        epoch=None if curve.epoch is None else floats(curve.epoch),
        samples=curve.samples,
        steps=curve.steps,
        others={name: floats(values) for name, values in curve.others.items()},
    )
    return hashlib.sha256(_finite(plain)).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _finite(value: Submission | SubmittedCurve) -> bytes:
    try:
        raw = _ENCODER.encode(value)
    except UnicodeEncodeError as error:
        raise RecordError("writing a submission", f"a text in it is not Unicode ({error})", "correct it") from error
    # msgspec writes non-finite numbers as null, so they are searched for only if there is a null.
    if b"null" in raw:
        _refuse_infinite(msgspec.to_builtins(value), "")
    return raw


def _refuse_infinite(value: object, at: str) -> None:
    if isinstance(value, dict):
        for name, each in value.items():
            _refuse_infinite(each, f"{at}.{name}" if at else name)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            _refuse_infinite(each, f"{at}[{number}]")
    elif isinstance(value, float) and not math.isfinite(value):
        do = "leave out fields without a value"
        raise RecordError("writing a submission", f"{at} is {value}, which JSON cannot hold", do)


def write_whole(path: Path, raw: bytes | str, *, replace: bool = True) -> Path:
    """Write ``raw`` (text as UTF-8) to ``path`` atomically and create its folder; ``StoreError`` if that fails.

    Without ``replace`` an existing file is kept and ``UsageError`` is raised.
    """
    asked = f"writing {path}"
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            file.write(raw.encode() if isinstance(raw, str) else raw)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            temporary.replace(path)
        else:
            publish(temporary, path)
    except FileExistsError as error:
        do = "give --replace to overwrite it"
        raise UsageError(asked, "it already exists with other content", do) from error
    except OSError as error:
        raise store_fault(asked, path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return path


def write_new(path: Path, raw: bytes) -> bool:
    """Write a new file; ``False`` if it exists with the same content, ``UsageError`` if its content differs."""
    with suppress(OSError):
        if path.read_bytes() == raw:
            return False
    write_whole(path, raw, replace=False)
    return True


def stem_of(*parts: str) -> str:
    """A file stem from the parts that identify a submission, as ``author_model_hardware_framework``."""
    words = (cut_at_word(path_part(part.replace(" ", "-").replace("_", "-")), 40) for part in parts)
    return "_".join(word or "unnamed" for word in words)


def cut_at_word(text: str, most: int) -> str:
    """A file name of at most ``most`` characters, cut at the end of a word if one ends in its second half."""
    if len(text) > most:
        end = max(text.rfind("-", 0, most + 1), text.rfind("_", 0, most + 1))
        text = text[: end if end > most // 2 else most]
    return text.strip(".-_")


def day_of(text: str) -> date | None:
    """The day that ``text`` (``2026-01-31``) names; ``None`` if it is not a day."""
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def name_in(path: Path, root: Path) -> str:
    """The path of ``path`` in ``root``, as text; undecodable names, which file systems allow, are escaped."""
    name = path.relative_to(root) if path.is_relative_to(root) else path
    return name.as_posix().encode("utf-8", "backslashreplace").decode()


def seen(text: str, most: int = 60) -> str:
    """``text`` cut to ``most`` characters, with unprintable characters escaped, to print on one line."""
    cut = text if len(text) <= most else f"{text[: most - 3]}..."
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode("ascii")


FILE_LIMIT = 16 << 20
"""The largest file that is read, in bytes."""
DEPTH_LIMIT = 16
"""The deepest nesting of objects and lists; the schema itself needs five levels."""
_LONGEST_NAME = 200
_TOO_LONG = re.compile(r"Expected `(?:array|object)` of length <= ")

_DECODER = msgspec.json.Decoder(Submission)
_ANYTHING = msgspec.json.Decoder()
# Possessive quantifiers, and an unterminated string runs to the end of the file: no byte is scanned twice.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NO_SHAPE = bytes(set(range(256)) - set(b"[]{}:"))
_PLACE = re.compile(r"\s{0,4}-?\s{0,4}at `(?:key` in `|key in )?\$\.?([^`]*)`")
_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class UnreadableError(RecordError):
    """A file that is not a submission: ``code`` names the rule that it breaks, ``field`` the place, if known.

    ``brief`` is ``found`` without the field, for callers that print the field themselves.
    """

    def __init__(
        self, asked: str, found: str, do: str, code: str = "B101", field: str = "", brief: str | None = None
    ) -> None:
        super().__init__(asked, found, do)
        self.code = code
        self.field = field
        self.brief = found if brief is None else brief


class _Preamble(msgspec.Struct):
    schema: Any = None


def read_submission(path: str | Path, *, root: str | Path | None = None) -> Submission:
    """The submission in the file at ``path``, which must lie in the folder ``root`` if one is given.

    Raises ``UnreadableError`` (a ``RecordError``) for anything that is not a submission within the limits.
    """
    path = Path(path)
    return parse_submission(read_bytes(path, root=root), f"reading the submission {path}")


def read_bytes(path: str | Path, *, root: str | Path | None = None, limit: int = FILE_LIMIT) -> bytes:
    """The bytes of a regular file of at most ``limit`` bytes; links are not followed, neither in ``root`` nor to it."""
    asked = f"reading the submission {path}"
    if root is not None:
        inside, place = Path(root).resolve(), Path(path)
        plain = inside.joinpath(place.relative_to(root)) if place.is_relative_to(root) else place
        # Below the folder, with no link on the way.
        if not plain.is_relative_to(inside) or plain.resolve() != plain:
            raise UnreadableError(asked, f"it lies outside of {root}", "give a file in the folder")
    try:
        # Non-blocking: opening a named pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise UnreadableError(asked, "there is no such file", "check the path") from None
    except (OSError, ValueError) as error:
        found = "it is a link" if Path(path).is_symlink() else getattr(error, "strerror", None) or str(error)
        raise UnreadableError(asked, found, "give the path of a regular file") from error
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise UnreadableError(asked, "it is not a regular file", "give the path of a regular file")
        raw = b"" if facts.st_size > limit else _read(descriptor, facts.st_size, limit)
    finally:
        os.close(descriptor)
    if facts.st_size > limit or len(raw) > limit:
        found = f"it has {max(facts.st_size, len(raw))} bytes, more than {limit}"
        raise UnreadableError(asked, found, "submit fewer runs, or thinner curves, in one file")
    return raw


def _read(descriptor: int, size: int, limit: int) -> bytes:
    """The content of an open file that had ``size`` bytes a moment ago; stops soon after ``limit`` if it grows.

    Some file systems report size 0 for every file, so each read asks for at least 64 KiB.
    """
    parts: list[bytes] = []
    left = limit + 1
    # One byte more than the file has: asking for the limit would allocate that much memory each time.
    while left > 0 and (part := os.read(descriptor, min(left, max(size + 1, 1 << 16)))):
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def parse_submission(raw: bytes, asked: str = "reading a submission") -> Submission:
    """The submission in ``raw``; ``UnreadableError`` (about ``asked``) for anything else."""
    if len(raw) > FILE_LIMIT:
        raise UnreadableError(asked, f"it has {len(raw)} bytes, more than {FILE_LIMIT}", "submit fewer runs")
    if raw.startswith(b"\xef\xbb\xbf"):
        raise UnreadableError(asked, "it begins with a byte order mark", "save it as UTF-8 without one")
    shape = _shape(raw)
    # The nesting depth at each bracket, closed or not.
    depths = accumulate((each in b"[{") - (each in b"]}") for each in shape)
    if any(depth > DEPTH_LIMIT for depth in depths):
        raise UnreadableError(asked, f"it is nested deeper than {DEPTH_LIMIT}", "write a submission", code="B102")
    try:
        # The schema first, so that a newer file is reported as such and not by its unknown fields.
        schema = msgspec.json.decode(raw, type=_Preamble).schema
        whole = isinstance(schema, int) and not isinstance(schema, bool)
        if whole and schema > SUBMISSION_SCHEMA:
            found = f"it was written in schema {schema} and this version reads up to schema {SUBMISSION_SCHEMA}"
            raise UnreadableError(asked, found, "upgrade levelbench to read it", code="B103", field="schema")
        if schema is not None and (not whole or schema < 1):
            found = f"its schema is {seen(repr(schema))}"
            raise UnreadableError(asked, found, f"write {SUBMISSION_SCHEMA}", code="B103", field="schema")
        submission = _DECODER.decode(raw)
        repeated = _keys(_ANYTHING.decode(raw)) != shape.count(b":")
    except msgspec.ValidationError as error:
        raise _invalid(error, asked) from error
    except _MALFORMED as error:
        raise UnreadableError(asked, f"it is not JSON ({error})", "correct the file") from error
    if repeated:
        # A decoder keeps the last of two equal keys, but a human reader sees the first.
        name = seen(_repeated_key(raw))
        raise UnreadableError(asked, f"the key {name} occurs twice in one object", "keep one", "B104", name)
    for place, name in (("target.metric", submission.target.metric), ("target.split", submission.target.split)):
        if len(name) > _LONGEST_NAME:
            found = f"{place} has {len(name)} characters, more than {_LONGEST_NAME}"
            raise UnreadableError(asked, found, "name what was measured", code="B102", field=place)
    return submission


def _shape(raw: bytes) -> bytes:
    """The brackets and colons outside of strings: the file's structure in a thousandth of its length."""
    if b"\\" not in raw:
        # Without escapes, as in nearly all files, every quote begins or ends a string, and splitting is faster.
        return b"".join(raw.split(b'"')[::2]).translate(None, _NO_SHAPE)
    return _STRING.sub(b"", raw).translate(None, _NO_SHAPE)


def _keys(value: Any) -> int:
    """How many keys a decoded submission has; its lists hold only objects, or none."""
    count, left = 0, [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            count += len(each)
            left += [inner for inner in each.values() if inner.__class__ in (dict, list)]
        elif each and isinstance(each[0], dict):
            left += each
    return count


def _repeated_key(raw: bytes) -> str:
    repeated: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = Counter(name for name, _ in pairs)
        repeated.extend(name for name, times in names.items() if times > 1)
        return dict(pairs)

    json.loads(raw, object_pairs_hook=note)
    return repeated[0]


def _invalid(error: msgspec.ValidationError, asked: str) -> UnreadableError:
    text = str(error)
    place = _PLACE.search(text)
    field = place[1] if place else ""
    found = _PLACE.sub("", text).strip()
    if match := re.search(r"(?:missing required|unknown) field `([^`]*)`", found):
        field = f"{field}.{match[1]}" if field else match[1]
        found = "a field is missing" if match[0].startswith("missing") else "no field has that name"
    field, found = seen(field, 200), seen(found, 400)
    if _TOO_LONG.match(found):
        most = found.rpartition(" ")[2]
        return UnreadableError(
            asked, f"{field} has more than {most} elements", "submit fewer in one file", code="B102", field=field
        )
    whole = f"it is not a submission: {found}{f' at {field}' if field else ''}"
    do = "correct the field; docs/reference/submission.md lists every field"
    return UnreadableError(asked, whole, do, code="B105", field=field, brief=found)


def is_address(text: str) -> bool:
    """Whether ``text`` is an http or https address with a host and no character that an address must not have.

    >>> is_address("https://example.org/board"), is_address("javascript:alert(1)"), is_address("example.org")
    (True, False, False)
    """
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc) and re.search(r"[\s\"'<>\\`]", text) is None
