"""Lines of MLPerf's three logs."""

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.competition.exchange.mlperf import logs
from levelbench.competition.exchange.mlperf.logs import parse_log
from levelbench.errors import RecordError


def events_of(text):
    return parse_log(
        io.BytesIO(text if isinstance(text, bytes) else text.encode("latin-1")), "a.txt", "reading it"
    ).events


def mllog(key="seed", value=7, time_ms=1500, **fields):
    line = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return ":::MLLOG " + json.dumps({**line, "metadata": {"file": "a.py", "lineno": 3}, **fields})


THREE = {
    "mllog": mllog("eval_accuracy", 0.5, 1_558_637_616_483, metadata={"file": "a.py", "lineno": 3, "epoch_num": 4}),
    "v0.6": ':::MLL 1558637616.483 eval_accuracy: {"value": 0.5, "metadata": '
    '{"epoch_num": 4, "lineno": 3, "file": "a.py"}}',
    "v0.5": ':::MLPv0.5.0 resnet 1558637616.483 (a.py:3) eval_accuracy: {"epoch_num": 4, "value": 0.5}',
}


@pytest.mark.parametrize("dialect", THREE)
def test_the_three_dialects_say_the_same_event(dialect):
    found = parse_log(io.BytesIO(THREE[dialect].encode()), "a.txt", "reading it")
    (event,) = found.events
    assert found.dialect == dialect
    assert (event.line, event.time_ns, event.key, event.value) == (1, 1_558_637_616_483_000_000, "eval_accuracy", 0.5)
    assert event.metadata == {"file": "a.py", "lineno": 3, "epoch_num": 4}


@pytest.mark.parametrize("dialect", THREE)
def test_a_token_may_stand_anywhere_in_a_line_and_the_last_one_counts(dialect):
    text = f"step 7: {THREE[dialect][:9]} I0122 12:00 mlperf_log.py:136] RAW_{THREE[dialect]}\nepoch done\n"
    assert [event.value for event in events_of(text)] == [0.5]


def test_a_progress_bar_shares_its_line_with_an_event():
    assert events_of(f"10 %\r20 %\r{mllog()}\r30 %\n")[0].value == 7


def test_other_lines_may_hold_any_bytes():
    assert events_of(b"\xff\xfe \x00 caf\xe9\n" + mllog().encode() + b"\n")[0].line == 2


def test_v05_events_without_a_value_and_with_whole_seconds():
    (event,) = events_of(":::MLPv0.5.0 ncf 1538678136 (./convert.py:119) run_start")
    assert (event.key, event.value, event.kind, event.namespace) == ("run_start", None, "start", "ncf")
    assert event.time_ns == 1_538_678_136 * 10**9


def test_times_are_exact_to_the_nanosecond():
    (event,) = events_of(":::MLPv0.5.0 resnet 1541635531.494512321 (a:1) run_start")
    assert event.time_ns == 1_541_635_531_494_512_321


def test_a_v05_value_that_is_not_json_is_kept_as_text():
    assert events_of(":::MLPv0.5.0 ssd 1.5 (a:1) opt_name: True")[0].value == "True"


def test_a_diverged_run_may_log_nan():
    value = events_of(mllog("eval_accuracy", float("nan")))[0].value
    assert value != value


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (":::MLLOG {", "not JSON"),
        (":::MLLOG [1]", "not an object"),
        (':::MLLOG {"key": "a", "value": 1, "time_ms": 1}', "lacks .*metadata"),
        (mllog(key=3), "key is not a string"),
        (mllog(metadata=[]), "metadata not an object"),
        (mllog(time_ms="soon"), "not a number"),
        (mllog(time_ms=-1), "not a time"),
        (mllog(time_ms=float("nan")), "not a time"),
        (mllog(time_ms=True), "not a time|not a number"),
        (mllog(time_ms=10**400), "not a time|not JSON|Exceeds"),
        (mllog(event_type="SOMETIMES"), "event_type"),
        (mllog() + " trailing", "not JSON"),
        (":::MLLOG " + "[" * 100_000, "nested too deeply"),
        (":::MLL 1.2.3 seed: {}", "does not read"),
        (":::MLL 1.2 seed: 3", "not an object with a value"),
        (':::MLL 1.2 seed: {"value": 3, "metadata": 4}', "metadata is not an object"),
        (":::MLPv0.5.0 Starting prediction timing.", "does not read"),
    ],
)
def test_a_bad_line_is_an_error_with_its_number(line, reason):
    text = f"hello\n{mllog('run_start')}\n{line}\n"
    with pytest.raises(RecordError, match=rf"line 3 is broken \(.*({reason})"):
        events_of(text)


def test_a_line_that_is_printed_twice_counts_once():
    found = parse_log(io.BytesIO(f"{mllog()}\nI0101 {mllog()}\n{mllog(value=8)}\n".encode()), "a.txt", "reading it")
    assert [event.value for event in found.events] == [7, 8]
    assert found.notes == ("1 lines repeat an event verbatim and count once",)


def test_values_from_inside_a_graph_are_passed_over_and_reported():
    text = f":::MLPv0.5.0 [1df9b2ab-3dc8-478b-8682-ce574b800024][1570666471.29151][0]\n{THREE['v0.5']}\n"
    found = parse_log(io.BytesIO(text.encode()), "a.txt", "reading it")
    assert len(found.events) == 1
    assert "deferred" in found.notes[0]


def test_a_log_of_two_dialects_is_read_in_the_newer():
    found = parse_log(io.BytesIO("\n".join(THREE.values()).encode()), "a.txt", "reading it")
    assert found.dialect == "mllog"
    assert found.notes == ("2 events of another dialect than mllog are not read",)


@pytest.mark.parametrize("content", [b"", b"no event\n", b"\x1f\x8b\x00"])
def test_a_file_without_an_event_is_an_error(content):
    with pytest.raises(RecordError, match="no line has an MLPerf event"):
        events_of(content)


@pytest.mark.parametrize(("limit", "value"), [("LINE_LIMIT", 100), ("FILE_LIMIT", 300), ("EVENT_LIMIT", 2)])
def test_what_is_too_large_is_refused(monkeypatch, limit, value):
    monkeypatch.setattr(logs, limit, value)
    with pytest.raises(RecordError, match=r"longer than|larger than|more than"):
        events_of("".join(f"{mllog(value=value)}\n" for value in range(5)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
LINES = st.one_of(
    st.binary(max_size=60),
    st.fixed_dictionaries({}, optional=dict.fromkeys(("key", "value", "time_ms", "metadata", "event_type"), JSON)).map(
        lambda fields: b":::MLLOG " + json.dumps(fields).encode()
    ),
    st.tuples(
        st.sampled_from([b":::MLL ", b":::MLPv0.5.0 "]), st.sampled_from(list(THREE.values())), st.binary(max_size=9)
    ).map(lambda parts: parts[0] + parts[1].partition(" ")[2].encode() + parts[2]),
)


@given(st.lists(LINES, max_size=4))
@settings(max_examples=40, deadline=None)
def test_no_bytes_crash_the_reader(lines):
    try:
        found = parse_log(io.BytesIO(b"\n".join(lines)), "a.txt", "reading it")
    except RecordError:
        return
    assert found.events
