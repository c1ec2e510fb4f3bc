"""Benchmarks of hyperfine and pyperf, as records of commands."""

import gzip
import json
import os

import pytest

from levelbench.errors import DataError, UsageError
from levelbench.importing.timings import import_timings, read_timings
from levelbench.records.commands import summarise_commands
from levelbench.report.commands import answer_lines

TIMES = {"sleep 0.1": [0.101, 0.102, 0.103], "sleep 0.2": [0.201, 0.202, 0.203]}


@pytest.fixture
def hyperfine(tmp_path):
    results = [{"command": name, "times": times, "exit_codes": [0, 0, 1]} for name, times in TIMES.items()]
    results[0]["memory_usage_byte"] = [4096, 8192, 4096]
    path = tmp_path / "hyperfine.json"
    path.write_text(json.dumps({"results": results}))
    os.utime(path, (2e9, 2e9))
    return path


@pytest.fixture
def pyperf(tmp_path):
    def write(name, values, minute=0):
        runs = [{"metadata": {"date": "2026-01-01 12:00:00"}, "warmups": [[8, 0.1]]}]
        for at, pair in enumerate(values):
            facts = {"date": f"2026-01-01 12:{minute + at:02}:00.5", "mem_max_rss": 1 << 20}
            runs.append({"metadata": facts, "values": pair})
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"version": "1.0", "metadata": {"name": "sum"}, "benchmarks": [{"runs": runs}]}))
        return path

    return write


def test_hyperfines_processes_follow_one_another_and_end_before_the_file(hyperfine):
    found = read_timings(hyperfine)
    assert {name: [each.wall_s for each in own] for name, own in found.items()} == TIMES
    starts = [each.started_s for own in found.values() for each in own]
    assert starts == sorted(starts)
    last = found["sleep 0.2"][-1]
    assert last.started_s + last.wall_s == pytest.approx(2e9)


@pytest.mark.parametrize("time_s", [-1.0, 0.0, float("inf"), float("nan")])
def test_a_time_that_is_none_is_refused(tmp_path, time_s):
    path = tmp_path / "hyperfine.json"
    path.write_text(json.dumps({"results": [{"command": "true", "times": [1.0, time_s]}]}))
    with pytest.raises(DataError, match="a time in it is"):
        read_timings(path)


def test_a_process_of_pyperf_is_the_mean_of_its_values(pyperf):
    (own,) = read_timings(pyperf("a", [[1.0, 3.0], [2.0, 2.0]])).values()
    assert [(each.name, each.wall_s, each.peak_memory_b) for each in own] == [("sum", 2.0, 1 << 20)] * 2
    assert own[1].started_s - own[0].started_s == pytest.approx(60)


@pytest.mark.parametrize("change", [{"mean": 0.01}, {"max": 9.0}, {"times": [0.1, 0.2]}])
def test_a_summary_that_is_not_of_its_times_is_refused(tmp_path, change):
    result = {"command": "a", "times": [0.1, 0.2, 0.3], "mean": 0.2, "median": 0.2, "min": 0.1, "max": 0.3}
    path = tmp_path / "hyperfine.json"
    path.write_text(json.dumps({"results": [result]}))
    assert len(read_timings(path)["a"]) == 3
    path.write_text(json.dumps({"results": [{**result, **change}]}))
    with pytest.raises(DataError, match="but that of its"):
        read_timings(path)


def test_times_that_the_shell_took_whole_are_to_be_measured_without_it(tmp_path):
    path = tmp_path / "hyperfine.json"
    path.write_text(json.dumps({"results": [{"command": "true", "times": [0.0, 0.0]}]}))
    with pytest.raises(DataError, match="hyperfine -N"):
        read_timings(path)


def test_they_become_records_once_with_what_is_not_known_of_them(hyperfine, tmp_path):
    for _ in range(2):
        arms = [import_timings(own, tmp_path / "store") for own in read_timings(hyperfine).values()]
    assert len([each for each in (tmp_path / "store").rglob("*") if each.is_file()]) == 6
    first = arms[0][1]
    assert first.measurements["wall"].value == 0.102
    assert first.measurements["peak_memory"].value == 8192
    assert "hyperfine" in first.measurements["user"].reason
    assert arms[1][2].outcome.reason == "it ended with exit code 1"
    assert arms[1][0].measurements["peak_memory"].value is None


def test_what_was_measured_one_after_the_other_has_no_verdict(hyperfine, tmp_path):
    arms = [import_timings(own, tmp_path) for own in read_timings(hyperfine).values()]
    found = summarise_commands(arms)
    assert found.entries[1].verdict.kind == "UNCLEAR"
    assert any("imported from hyperfine" in each for each in found.suspect)
    said = " ".join([*found.suspect, *answer_lines(found)])
    assert "let levelbench time start them, with --vs" in said
    assert "--fresh" not in said
    assert "--resume" not in said


def test_processes_in_turns_have_one(pyperf, tmp_path):
    starts = [[0, 3, 4, 7, 8, 11], [1, 2, 5, 6, 9, 10]]
    arms = []
    for label, minutes in zip("ab", starts, strict=True):
        path = pyperf(label, [[1.0 if label == "a" else 2.0]])
        processes = [read_timings(path)["sum"][0]]
        moved = [type(processes[0])(**{**vars(processes[0]), "started_s": 60.0 * at}) for at in minutes]
        arms.append(import_timings(moved, tmp_path / "store", label))
    assert summarise_commands(arms).entries[1].verdict.kind == "SLOWER"


@pytest.mark.parametrize(
    ("text", "error", "found"),
    [
        ("{}", UsageError, "not from a supported tool"),
        ("[1]", UsageError, "not from a supported tool"),
        ("no json", DataError, "it is damaged"),
        ("[" * 100_000, DataError, "it is damaged"),
        ('{"results": [{"command": "a"}]}', DataError, "it is damaged: 'a' has no times, only what sums them up"),
        ('{"results": [{"times": []}, {"times": [1]}]}', DataError, "it is damaged: 'command' is missing in it"),
        ('{"results": [{"command": "a", "times": ["x"]}]}', DataError, "it is damaged: a time of 'a' is 'x'"),
        ('{"results": [{"command": "a", "times": [null]}]}', DataError, "it is damaged: a time of 'a' is None"),
        ('{"results": []}', DataError, "it has no times"),
        ('{"benchmarks": [{"runs": [{"values": ["x"]}]}]}', DataError, "it is damaged"),
    ],
)
def test_another_file_is_refused(tmp_path, text, error, found):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(error) as refused:
        read_timings(tmp_path / "x.json")
    assert found in refused.value.found


def test_a_compressed_file_that_is_cut_is_refused(hyperfine, tmp_path):
    data = gzip.compress(hyperfine.read_bytes())
    (tmp_path / "x.json.gz").write_bytes(data)
    assert read_timings(tmp_path / "x.json.gz").keys() == TIMES.keys()
    for damaged in (data[:-12], data[:20] + b"\xff\xff" + data[22:]):
        (tmp_path / "x.json.gz").write_bytes(damaged)
        with pytest.raises(DataError, match="it is damaged"):
            read_timings(tmp_path / "x.json.gz")


def test_what_pyperf_counts_in_bytes_is_no_time(tmp_path):
    runs = [{"values": [9e6], "metadata": {"date": "2026-01-01 12:00:00"}}]
    benchmark = {"runs": runs, "metadata": {"name": "sum", "unit": "byte"}}
    (tmp_path / "x.json").write_text(json.dumps({"benchmarks": [benchmark]}))
    with pytest.raises(UsageError) as refused:
        read_timings(tmp_path / "x.json")
    assert refused.value.found == "sum in it is in units of byte, and so no time"


def test_of_processes_without_dates_the_order_is_known(tmp_path):
    (tmp_path / "x.json").write_text('{"benchmarks": [{"runs": [{"values": [2.0]}, {"values": [3.0]}]}]}')
    (own,) = read_timings(tmp_path / "x.json").values()
    assert [(each.told, each.wall_s) for each in own] == [(False, 2.0), (False, 3.0)]
    assert own[0].started_s < own[1].started_s
    (doubt,) = import_timings(own, tmp_path / "store")[0].end.suspect
    assert "does not say when each process started" in doubt


def test_what_pyperf_itself_writes_is_read(tmp_path):
    pyperf = pytest.importorskip("pyperf")
    run = pyperf.Run([1.0, 2.0], metadata={"name": "own", "date": "2026-01-01 12:00:00"}, collect_metadata=False)
    pyperf.BenchmarkSuite([pyperf.Benchmark([run])]).dump(str(tmp_path / "x.json"))
    assert [each.wall_s for each in read_timings(tmp_path / "x.json")["own"]] == [1.5]
