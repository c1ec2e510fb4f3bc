from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.errors import LevelbenchError, RecordError
from levelbench.records import Evaluation, Follower, RecordWriter, Samples, lines, read_record
from levelbench.records.lines import encode


@pytest.fixture
def whole(tmp_path, make_header, make_run):
    return make_run(tmp_path, make_header())


def test_a_whole_record_is_read_back_part_by_part(tmp_path, make_header, make_events, make_run):
    head, events = make_header(seed=3), make_events()
    record = read_record(make_run(tmp_path, head, events))
    assert record.header == head
    assert list(record.evaluations) == [event for event in events if isinstance(event, Evaluation)]
    assert record.samples == {"step_time": Samples("step_time", "ns", [10_000_000, 11_000_000, 30_000_000] * 3)}
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
def test_any_truncation_is_a_readable_beginning_or_a_clear_error(make_header, make_events, make_run, data):
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
            assert read_record(path).header.schema == 1


def test_a_last_line_of_noise_is_an_interruption(whole):
    raw = whole.read_bytes()
    last = raw.rstrip(b"\n").rfind(b"\n") + 1
    for noise in (b"\0" * 500, b"\xff\xfe\n", b'{"kind":"end","status"'):
        whole.write_bytes(raw[:last] + noise)
        assert read_record(whole).status == "interrupted"


def test_a_broken_line_in_the_middle_is_an_error_with_its_number(whole):
    parts = whole.read_bytes().split(b"\n")
    parts[3] = parts[3][:-5]
    whole.write_bytes(b"\n".join(parts))
    with pytest.raises(RecordError, match="line 4 is broken"):
        read_record(whole)


def test_a_whole_line_that_says_what_no_event_can_say_is_an_error_even_as_the_last(whole):
    with whole.open("ab") as file:
        file.write(b'{"kind":"samples","name":"x","unit":"s"}\n')
    with pytest.raises(RecordError, match=r"line 11 is not an event .*values"):
        read_record(whole)


def test_events_after_the_end_are_an_error(whole):
    with whole.open("ab") as file:
        file.write(encode(Samples("x", "s", [1.0])))
    with pytest.raises(RecordError, match="after the end"):
        read_record(whole)


def test_events_and_fields_of_a_later_version_are_passed_over(whole):
    parts = whole.read_bytes().split(b"\n")
    parts[1:1] = [b'{"kind":"gradient_norm","step":1,"more":{"deep":[1]}}']
    parts[2] = parts[2].replace(b"{", b'{"later":1,', 1)
    whole.write_bytes(b"\n".join(parts))
    assert read_record(whole).status == "done"


def test_a_record_of_a_later_schema_asks_for_an_upgrade(whole):
    whole.write_bytes(whole.read_bytes().replace(b'"schema":1', b'"schema":2', 1))
    with pytest.raises(RecordError, match=r"schema 2 .* up to schema 1\. (?i:upgrade)"):
        read_record(whole)


def test_one_quantity_in_two_units_is_an_error(tmp_path, make_header, make_run):
    path = make_run(tmp_path, make_header(), [Samples("t", "s", [1.0]), Samples("t", "ns", [1])])
    with pytest.raises(RecordError, match="in s and in ns"):
        read_record(path)


def test_a_line_without_measure_is_an_error_and_not_a_full_memory(whole, monkeypatch):
    monkeypatch.setattr(lines, "LINE_LIMIT", 300)
    with pytest.raises(RecordError, match="line 1 is longer than 300 bytes"):
        read_record(whole)


def test_nesting_without_measure_is_an_error(whole):
    parts = whole.read_bytes().split(b"\n")
    parts[2] = b'{"kind":"later","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    whole.write_bytes(b"\n".join(parts))
    with pytest.raises(RecordError, match="line 3 is broken"):
        read_record(whole)


def test_what_is_no_file_is_an_error_and_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path in (tmp_path / "pipe.jsonl", tmp_path, Path("/dev/zero")):
        with pytest.raises(RecordError, match="not a regular file"):
            read_record(path)
    with pytest.raises(RecordError, match="no such file"):
        read_record(tmp_path / "absent.jsonl")


def test_a_follower_returns_each_event_once_and_whole(tmp_path, make_header, make_events):
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
    line = encode(Samples("x", "s", [1.0, 2.0]))
    with path.open("ab", buffering=0) as file:
        file.write(line[:7])
        assert follower.poll() == []
        file.write(line[7:])
        assert follower.poll() == [Samples("x", "s", [1.0, 2.0])]
        file.write(b"nonsense\n")
        with pytest.raises(RecordError, match="line 3 is broken"):
            follower.poll()


@pytest.mark.parametrize("figure", ["-1", "9" * 20, "9" * 400, "9" * 5000])
@pytest.mark.parametrize("field", ['"seed":', '"step":', '"samples":', '"t_ns":', '"forward":'])
def test_a_count_that_is_negative_or_beyond_64_bits_is_an_error_of_that_record(
    tmp_path, make_header, make_run, field, figure
):
    path = make_run(tmp_path, make_header())
    text = path.read_text()
    at = text.index(field) + len(field)
    rest = text[at:].lstrip("0123456789")
    path.write_text(text[:at] + figure + rest)
    with pytest.raises(RecordError):
        read_record(path)
