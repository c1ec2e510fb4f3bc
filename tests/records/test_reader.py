from __future__ import annotations

import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.records.stores import resealed

from levelbench.errors import LevelbenchError, RecordError
from levelbench.records import SCHEMA, Evaluation, Follower, RecordWriter, Samples, lines, read_record, summarise
from levelbench.records.lines import checksum_in, encode, sealed


@pytest.fixture
def whole(tmp_path, make_header, make_run):
    return make_run(tmp_path, make_header())


def append(path, line):
    """Append a line as a writer does, with a checksum if the record has them."""
    before = checksum_in(path.read_bytes().splitlines(keepends=True)[-1])
    with path.open("ab") as file:
        file.write(sealed(line, before) if before else line)


def make_old(store, head, events):
    """Write a record of schema 1, without checksums."""
    with RecordWriter.create(store, msgspec.structs.replace(head, schema=1)) as writer:
        for event in events:
            writer.append(event)
    return writer.path


def test_a_complete_record_is_read_back_part_by_part(tmp_path, make_header, make_events, make_run):
    head, events = make_header(seed=3), make_events()
    record = read_record(make_run(tmp_path, head, events))
    assert record.header == head
    assert list(record.evaluations) == [event for event in events if isinstance(event, Evaluation)]
    assert [*record.samples] == ["step_time"]
    assert record.samples["step_time"].values == [
        value for event in events if isinstance(event, Samples) for value in event.values
    ]
    assert [each.name for each in record.measurements] == ["peak_memory", "energy"]
    assert record.end == events[-1]
    assert record.status == "done"


def test_a_record_without_a_last_line_was_interrupted_once_its_writer_is_gone(tmp_path, make_header, make_curve):
    with RecordWriter.create(tmp_path, make_header()) as writer:
        writer.append(make_curve([0.5])[0])
        assert read_record(writer.path).status == "running"
    record = read_record(writer.path)
    assert record.status == "interrupted"
    assert len(record.evaluations) == 1
    assert record.end is None


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_truncation_is_readable_or_a_clear_error(make_header, make_events, make_run, data):
    with tempfile.TemporaryDirectory() as folder:
        path = make_run(Path(folder), make_header())
        raw = path.read_bytes()
        cut = data.draw(st.integers(0, len(raw)))
        path.write_bytes(raw[:cut])
        header_length = raw.index(b"\n")
        if cut < header_length:
            with pytest.raises(RecordError, match="line 1"):
                read_record(path)
            return
        record = read_record(path)
        kept = list(record.evaluations)
        assert kept == [event for event in make_events() if isinstance(event, Evaluation)][: len(kept)]
        assert len(kept) >= raw[:cut].count(b'\n{"kind":"evaluation"') - 1
        assert record.status == ("done" if cut >= len(raw) - 1 else "interrupted")


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_any_damage_leads_to_a_record_or_to_a_clear_error(make_header, make_run, data):
    with tempfile.TemporaryDirectory() as folder:
        path = make_run(Path(folder), make_header())
        raw = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 5))] = data.draw(st.binary(max_size=5))
        path.write_bytes(bytes(raw))
        with suppress(LevelbenchError):
            assert read_record(path).header.schema == SCHEMA


def test_a_last_line_of_noise_without_a_newline_is_an_interruption(whole):
    raw = whole.read_bytes()
    last = raw.rstrip(b"\n").rfind(b"\n") + 1
    for noise in (b"\0" * 500, b"\xff\xfe", b'{"kind":"end","status"'):
        whole.write_bytes(raw[:last] + noise)
        assert read_record(whole).status == "interrupted"


def test_a_broken_line_in_the_middle_is_an_error_with_its_number(whole):
    parts = whole.read_bytes().split(b"\n")
    parts[3] = parts[3][:-5]
    whole.write_bytes(b"\n".join(parts))
    with pytest.raises(RecordError, match="line 4 is damaged"):
        read_record(whole)


def test_a_complete_line_that_is_not_an_event_is_an_error_even_as_the_last(whole):
    append(whole, b'{"kind":"samples","name":"x","unit":"s"}\n')
    with pytest.raises(RecordError, match=r"line 11 is damaged .*values"):
        read_record(whole)


def test_events_after_the_end_are_an_error(whole):
    append(whole, encode(Samples("x", "s", [1.0])))
    with pytest.raises(RecordError, match="line 11 comes after the end"):
        read_record(whole)


def test_an_event_of_an_unknown_kind_in_a_known_schema_is_damage(tmp_path, make_header):
    for schema in (1, SCHEMA):
        head = msgspec.structs.replace(make_header(), schema=schema)
        with RecordWriter.create(tmp_path, head) as writer:
            pass
        append(writer.path, b'{"kind":"gradient_norm","step":1,"more":{"deep":[1]}}\n')
        with pytest.raises(RecordError, match=r"line 2 is damaged .*gradient_norm"):
            read_record(writer.path)


def test_a_record_of_a_later_schema_asks_for_an_upgrade(whole):
    whole.write_bytes(whole.read_bytes().replace(b'"schema":2', b'"schema":3', 1))
    with pytest.raises(RecordError, match=r"schema 3 .* up to schema 2\. (?i:upgrade)"):
        read_record(whole)


def test_a_record_of_the_first_schema_is_read_and_has_no_checksums(tmp_path, make_header, make_events):
    path = make_old(tmp_path, make_header(id="0a1b2c3d"), make_events())
    assert b'"sum"' not in path.read_bytes()
    record = read_record(path)
    assert (record.status, record.checksum, summarise(record).chained) == ("done", "", False)
    assert summarise(record).contradictions == []
    path.write_bytes(path.read_bytes()[:-5])
    assert read_record(path).status == "interrupted"


def test_a_damaged_last_line_of_an_old_record_is_not_an_interruption(tmp_path, make_header, make_events):
    path = make_old(tmp_path, make_header(), make_events())
    for damage in (b"\x0b", b"}\n"):
        path.write_bytes(path.read_bytes().rstrip(b"\n}") + b"}}"[: len(damage)] + damage)
        with pytest.raises(RecordError, match="line 10 is damaged"):
            read_record(path)


def test_a_record_without_its_checksums_is_damaged(whole):
    whole.write_bytes(re.sub(rb',"sum":"[0-9a-f]{16}"', b"", whole.read_bytes()))
    with pytest.raises(RecordError, match="line 1 is damaged: it has no checksum"):
        read_record(whole)


@pytest.mark.parametrize("schema", [b"0", b"1"])
def test_changing_the_schema_in_the_header_is_found(whole, schema):
    whole.write_bytes(whole.read_bytes().replace(b'"schema":2', b'"schema":' + schema, 1))
    with pytest.raises(RecordError, match="line 1 is damaged"):
        read_record(whole)


@pytest.mark.parametrize("edit", [(b'"t_ns":1', b'"t_ns": 1'), (b'"t_ns":2', b'"t_ns":3'), (b"0.91", b"0.92")])
def test_an_edit_of_one_line_is_found_with_its_number_even_of_white_space(whole, edit):
    number = whole.read_bytes().split(edit[0])[0].count(b"\n") + 1
    whole.write_bytes(whole.read_bytes().replace(*edit, 1))
    with pytest.raises(RecordError, match=f"line {number} is damaged .*its checksum is not that of its bytes"):
        read_record(whole)


@pytest.mark.parametrize("change", ["dropped", "swapped", "doubled"])
def test_dropped_swapped_or_duplicated_lines_are_found(whole, change):
    rows = whole.read_bytes().splitlines(keepends=True)
    rows[3:5] = {"dropped": [rows[4]], "swapped": [rows[4], rows[3]], "doubled": [rows[3], rows[3], rows[4]]}[change]
    whole.write_bytes(b"".join(rows))
    with pytest.raises(RecordError, match=f"line {5 if change == 'doubled' else 4} is damaged"):
        read_record(whole)


def test_every_flipped_bit_is_found_and_never_taken_for_an_interruption(whole):
    raw = whole.read_bytes()
    random = Random(0)
    for _ in range(2000):
        bit = random.randrange(8 * len(raw))
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        whole.write_bytes(bytes(flipped))
        with pytest.raises(RecordError):
            read_record(whole)


def test_a_last_line_that_lacks_only_its_newline_is_complete(whole):
    whole.write_bytes(whole.read_bytes()[:-1])
    assert read_record(whole).status == "done"


def test_one_quantity_in_two_units_is_an_error(tmp_path, make_header, make_run):
    path = make_run(tmp_path, make_header(), [Samples("t", "s", [1.0]), Samples("t", "ns", [1])])
    with pytest.raises(RecordError, match="in s and in ns"):
        read_record(path)


def test_a_line_that_is_too_long_is_an_error(whole, monkeypatch):
    monkeypatch.setattr(lines, "LINE_LIMIT", 300)
    with pytest.raises(RecordError, match="line 1 is longer than 300 bytes"):
        read_record(whole)


def test_nesting_that_is_too_deep_is_an_error(whole):
    parts = whole.read_bytes().split(b"\n")
    whole.write_bytes(parts[0] + b"\n")
    append(whole, b'{"kind":"later","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n")
    with pytest.raises(RecordError, match="line 2 is damaged"):
        read_record(whole)


def test_a_path_that_is_not_a_regular_file_is_an_error_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path in (tmp_path / "pipe.jsonl", tmp_path, Path("/dev/zero")):
        with pytest.raises(RecordError, match="not a regular file"):
            read_record(path)
    with pytest.raises(RecordError, match="no such file"):
        read_record(tmp_path / "absent.jsonl")


def test_a_follower_returns_each_complete_event_once(tmp_path, make_header, make_events):
    events = make_events()
    head = make_header()
    follower = Follower(tmp_path / "not yet.jsonl")
    assert follower.poll() == []
    with RecordWriter.create(tmp_path, head) as writer:
        follower = Follower(writer.path)
        assert follower.poll() == []
        assert follower.header == head
        seen = []
        for count, event in enumerate(events):
            writer.append(event)
            if count % 2:
                seen += follower.poll()
        seen += follower.poll()
    assert seen == events
    assert follower.end == events[-1]
    assert follower.poll() == []


def test_a_follower_waits_for_the_rest_of_a_line(tmp_path, make_header, make_run):
    path = make_run(tmp_path, make_header(), [])
    follower = Follower(path)
    line = sealed(encode(Samples("x", "s", [1.0, 2.0])), read_record(path).checksum)
    with path.open("ab", buffering=0) as file:
        file.write(line[:7])
        assert follower.poll() == []
        file.write(line[7:])
        assert follower.poll() == [Samples("x", "s", [1.0, 2.0])]
        file.write(b"nonsense\n")
        with pytest.raises(RecordError, match="line 3 is damaged"):
            follower.poll()


def test_a_follower_names_the_line_that_is_too_long(tmp_path, make_header, make_events, make_run, monkeypatch):
    path = make_run(tmp_path, make_header(), make_events()[:2])
    monkeypatch.setattr(lines, "LINE_LIMIT", max(map(len, path.read_bytes().splitlines(keepends=True))))
    follower = Follower(path)
    with path.open("ab") as file:
        file.write(b"x" * (lines.LINE_LIMIT + 1))
    with pytest.raises(RecordError, match="line 4 is longer than"):
        follower.poll()


@pytest.mark.parametrize("figure", ["-1", "9" * 20, "9" * 400, "9" * 5000])
@pytest.mark.parametrize("field", ['"seed":', '"step":', '"samples":', '"t_ns":', '"forward":'])
def test_a_negative_count_or_one_beyond_64_bits_is_an_error(tmp_path, make_header, make_run, field, figure):
    path = make_run(tmp_path, make_header())
    text = path.read_text()
    at = text.index(field) + len(field)
    rest = text[at:].lstrip("0123456789")
    path.write_bytes(resealed((text[:at] + figure + rest).encode()))
    with pytest.raises(RecordError):
        read_record(path)
