"""Reading a submission: everything that is none is refused, with a code, the field and what to do."""

from __future__ import annotations

import json
import os
from time import process_time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.competition import entries as reading
from levelbench.competition.entries import (
    DEPTH_LIMIT,
    FILE_LIMIT,
    UnreadableError,
    encode,
    parse_submission,
    read_bytes,
    read_submission,
)
from levelbench.competition.entries import _shape as shape_of
from levelbench.errors import RecordError


@pytest.fixture(scope="module")
def raw(clean):
    return encode(clean.make())


def refused(raw):
    with pytest.raises(UnreadableError) as caught:
        parse_submission(raw)
    return caught.value


def test_a_file_that_a_file_system_calls_empty_is_not_read_byte_by_byte(tmp_path, monkeypatch):
    path, asked, read = tmp_path / "a", [], os.read
    path.write_bytes(b"x" * 100_000)
    monkeypatch.setattr(reading.os, "read", lambda file, count: asked.append(count) or read(file, count))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert len(reading._read(descriptor, 0, FILE_LIMIT)) == 100_000
    finally:
        os.close(descriptor)
    assert len(asked) == 3


def test_what_was_written_is_read_as_it_was(clean, raw, tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(raw)
    assert read_submission(path) == clean.make()
    assert encode(read_submission(path, root=tmp_path)) == raw


@pytest.mark.parametrize(
    ("change", "code", "field", "found"),
    [
        (lambda raw: b"", "B101", "", "Input data was truncated"),
        (lambda raw: raw[:-9], "B101", "", "not JSON"),
        (lambda raw: b"\xef\xbb\xbf" + raw, "B101", "", "byte order mark"),
        (lambda raw: raw.replace(b"mlp", b"ml\xff"), "B101", "", "not JSON"),
        (lambda raw: raw.replace(b"mlp", b"\\ud800"), "B101", "", "not JSON"),
        (lambda raw: raw.replace(b"0.81", b"NaN", 1), "B101", "", "not JSON"),
        (lambda raw: raw.replace(b"0.81", b"1e999", 1), "B105", "runs[0].curve.quality[0]", "out of range"),
        (lambda raw: b"[" * 100_000, "B102", "", "nested deeper"),
        (lambda raw: b'{"a":' * DEPTH_LIMIT + b"[]" + b"}" * DEPTH_LIMIT, "B102", "", "nested deeper"),
        (lambda raw: b"[]", "B105", "", "Expected `object`"),
        (lambda raw: raw.replace(b'"schema": 1', b'"schema": 2'), "B103", "schema", "schema 2"),
        (lambda raw: raw.replace(b'"schema": 1', b'"schema": "1"'), "B103", "schema", "'1'"),
        (lambda raw: raw.replace(b'"schema": 1', b'"schema": 0'), "B103", "schema", "0"),
        (lambda raw: raw.replace(b'"schema": 1,', b""), "B105", "schema", "a field is missing"),
        (lambda raw: raw.replace(b'"model"', b'"modell"'), "B105", "modell", "no field has that name"),
        (lambda raw: raw.replace(b'"numpy"', b"7", 1), "B105", "framework", "Expected `str`"),
        (lambda raw: raw.replace(b'"seed":3', b'"seed":-3'), "B105", "runs[3].seed", ">= 0"),
        (lambda raw: raw.replace(b'"usd_per_hour":0.096', b'"usd_per_hour":0'), "B105", "price.usd_per_hour", "> 0"),
        (lambda raw: raw.replace(b'"mlp"', b'"' + b"m" * 201 + b'"'), "B105", "model", "length <= 200"),
        (lambda raw: raw.replace(b'"seed":3', b'"seed":3,"seed":4'), "B104", "seed", "twice"),
        (lambda raw: raw.replace(b'"seed":3', b'"seed":3,"\\u0073eed":4'), "B104", "seed", "twice"),
        (lambda raw: raw.replace(b'"lr":0.05', b'"lr":0.05,"lr":0.1'), "B104", "lr", "twice"),
    ],
)
def test_anything_but_a_submission_is_refused(raw, change, code, field, found):
    problem = refused(change(raw))
    assert isinstance(problem, RecordError)
    assert (problem.code, problem.field) == (code, field)
    assert found in problem.found
    assert problem.do


def test_keys_that_look_like_keys_inside_text_are_not_keys(clean):
    tricky = clean.make("training", {"notes": 'a "seed":3, {"seed":4} \\" [[[ \\\\', "settings": {'a":{"b': '":'}})
    assert parse_submission(encode(tricky)) == tricky


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"runs": lambda runs: runs[:1] * 1001}, "runs"),
        ({"inference": [{"scenario": "server", "queries": 1, "samples": 1, "duration_s": 1.0}] * 1001}, "inference"),
        ({"runs[0].curve.time_s": [0.0] * 100_001}, "runs[0].curve.time_s"),
        ({"runs[1].curve.others": {"x": [0.0] * 100_001}}, "runs[1].curve.others[...]"),
        ({"runs[1].suspect": [""] * 2001}, "runs[1].suspect"),
        ({"settings": {str(at): at for at in range(2001)}}, "settings"),
        ({"origin": {"format": "x", "file": "y", "doubts": [""] * 2001}}, "origin.doubts"),
    ],
)
def test_lists_have_a_limit(clean, changes, field):
    problem = refused(clean.raw(changes))
    assert (problem.code, problem.field) == ("B102", field)
    assert "elements" in problem.found


def test_a_large_file_is_not_read(tmp_path):
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.truncate(FILE_LIMIT + 1)
    with pytest.raises(UnreadableError, match="more than"):
        read_submission(path)
    with pytest.raises(UnreadableError, match="more than"):
        parse_submission(b" " * (FILE_LIMIT + 1))


def test_a_link_is_not_followed(raw, tmp_path):
    (tmp_path / "real.json").write_bytes(raw)
    (tmp_path / "link.json").symlink_to("real.json")
    with pytest.raises(UnreadableError, match="it is a link"):
        read_submission(tmp_path / "link.json")


def test_nothing_outside_of_the_folder_is_read(raw, tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (outside / "a.json").write_bytes(raw)
    (inside / "folder").symlink_to(outside)
    for path in (outside / "a.json", inside / ".." / "out" / "a.json", inside / "folder" / "a.json"):
        with pytest.raises(UnreadableError, match="outside"):
            read_submission(path, root=inside)


def test_anything_but_a_file_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    for name in ("pipe.json", ".", "absent.json", "a\0b"):
        with pytest.raises(UnreadableError):
            read_submission(tmp_path / name)


HALF = b'{"schema": 1, "notes": "'


@pytest.mark.parametrize(
    "raw",
    [
        HALF + b'\\"' * 500_000,
        HALF + b'\\"' * 500_000 + b"\\",
        HALF[:-1] + b'"x' * 500_001,
        b"[" * 1_000_000,
        b'{"' + b" at " * 250_000 + b'": 1}',
    ],
)
def test_a_file_that_never_ends_is_refused_at_once(raw):
    before = process_time()
    refused(raw)
    # A pattern that rescans from every quote would take minutes.
    assert process_time() - before < 2.0


def test_names_from_a_file_are_printed_in_one_line(clean):
    raw = encode(clean.make())
    twice = refused(raw.replace(b'"lr":0.05', b'"a\\n::add-mask::b":1,"a\\n::add-mask::b":2'))
    assert (twice.code, twice.field) == ("B104", "a\\n::add-mask::b")
    unknown = refused(raw.replace(b'"model"', b'"mo\\n' + b"x" * 9000 + b'"'))
    assert "\n" not in unknown.found + unknown.field
    assert len(unknown.field) <= 210


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("settings", "a", "x" * 4001),
        ("settings", "x" * 1001, 1),
        ("target", "metric", "x" * 201),
        ("target", "split", "x" * 201),
    ],
)
def test_texts_have_a_limit_wherever_they_are(clean, part, name, value):
    entry = msgspec.to_builtins(clean.make())
    entry[part][name] = value
    problem = refused(json.dumps(entry).encode())
    assert problem.code in ("B102", "B105")
    assert problem.field.startswith(part)
    assert len(problem.found) < 500
    if part == "settings":
        del entry[part][name]
        entry[part][name[:1000]] = value[:4000] if isinstance(value, str) else value
        assert parse_submission(json.dumps(entry).encode()).settings[name[:1000]]


def test_markup_is_looked_for_in_time_that_grows_with_the_text(clean):
    before = process_time()
    assert clean.codes(clean.make("training", {"notes": "<" + " \t" * 9_990})) == set()
    assert process_time() - before < 1.0


@given(
    st.binary(max_size=40).map(lambda raw: raw.translate(None, b"\\"))
    | st.text('"[]{}:, a', max_size=40).map(str.encode)
)
def test_the_shape_of_a_file_without_an_escape_is_that_of_any_other(raw):
    # An escape in front only changes the way in which strings are searched.
    assert shape_of(raw) == shape_of(b'"\\n"' + raw)


@pytest.mark.parametrize("size", [0, 1, 4096, 100_000])
def test_a_file_is_read_whole_whatever_its_size(tmp_path, size):
    path = tmp_path / "entry.json"
    path.write_bytes(b"x" * size)
    assert read_bytes(path) == b"x" * size
    assert read_bytes(path, limit=size) == b"x" * size
    if size:
        with pytest.raises(UnreadableError, match=f"more than {size - 1}"):
            read_bytes(path, limit=size - 1)


def test_a_file_that_grows_while_it_is_read_is_never_more_than_the_limit(tmp_path, monkeypatch):
    path = tmp_path / "entry.json"
    path.write_bytes(b"x" * 10)
    asked = []

    def growing(descriptor, most):
        asked.append(most)
        return b"x" * most

    monkeypatch.setattr(reading.os, "read", growing)
    with pytest.raises(UnreadableError, match="more than 50"):
        read_bytes(path, limit=50)
    assert sum(asked) == 51
