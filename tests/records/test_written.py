"""Records that an earlier version wrote, one of each kind: every later version reads them."""

import math
from pathlib import Path

import pytest

from levelbench.errors import RecordError
from levelbench.records import Store, key_of, lines, locks, read_record, summarise
from levelbench.records.benchmark_summary import summarise_benchmark
from levelbench.records.benchmarks import BenchmarkRecord
from levelbench.records.inference import InferenceRecord
from levelbench.records.inference_summary import summarise_inference
from levelbench.records.network_summary import summarise_networks
from levelbench.records.networks import NetworkRecord

WRITTEN = Path(__file__).parent / "written"
PROCESSES = [
    ("operator.jsonlines", BenchmarkRecord),
    ("network.jsonlines", NetworkRecord),
    ("inference.jsonlines", InferenceRecord),
]
KINDS = {"run.jsonl": read_record, **{name: kind.read for name, kind in PROCESSES}}


def test_a_run():
    record = read_record(WRITTEN / "run.jsonl")
    summary = summarise(record)
    assert (record.status, record.checksum, len(record.evaluations)) == ("done", "d13fd3c1740e5a35", 3)
    assert (summary.time_to_accuracy_s, summary.contradictions) == (3.0, [])


def test_a_benchmark_of_operators():
    record = BenchmarkRecord.read(WRITTEN / "operator.jsonlines")
    assert (record.status, record.samples) == ("done", {0: [0.5] * 3})
    assert (record.cases[0].status, record.cases[0].errors) == ("wrong", {"linf": math.inf, "ulp": None})
    summary = summarise_benchmark([[record]])
    assert [entry.status for _, (entry,) in summary.rows] == ["wrong", "skipped"]
    assert (record.header.seed, record.header.version, summary.ceilings["flop_s"]["float32"]["value"]) == (
        3,
        "0.1.0",
        1e9,
    )


def test_a_benchmark_of_a_network():
    record = NetworkRecord.read(WRITTEN / "network.jsonlines")
    assert (record.status, record.samples) == ("done", {"warmup": [3.0], "latency": [1.0, 2.0]})
    ((entry,),) = (entries for _, entries in summarise_networks([[[record]]]).rows)
    assert (entry.status, entry.memory.reason, entry.latency[0].estimate.value) == ("wrong", "no way to read it", 1.5)


def test_a_measurement_of_inference():
    record = InferenceRecord.read(WRITTEN / "inference.jsonlines")
    (entry,) = summarise_inference([[record]]).entries
    assert (record.status, len(record.samples["latency"]), entry.status) == ("done", 64, "measured")
    assert (entry.audits[0].name, entry.quality.kept, entry.memory.values) == ("caching", True, {1: 2.0**21 * 1.01})


@pytest.mark.parametrize("name", KINDS)
def test_a_record_without_its_end_was_interrupted_unless_it_is_being_written(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(b"".join((WRITTEN / name).read_bytes().splitlines(keepends=True)[:-1]))
    assert KINDS[name](path).status == "interrupted"
    with path.open("rb") as file:
        locks.hold(file.fileno())
        assert KINDS[name](path).status == "running"


@pytest.mark.parametrize("name", KINDS)
def test_an_incomplete_last_line_is_left_out_in_every_kind(name, tmp_path):
    path = tmp_path / name
    whole = (WRITTEN / name).read_bytes()
    path.write_bytes(whole[:-20])
    record = KINDS[name](path)
    assert (record.status, record.end, record.header) == ("interrupted", None, KINDS[name](WRITTEN / name).header)


@pytest.mark.parametrize(("name", "kind"), PROCESSES)
def test_a_store_of_runs_and_other_kinds_ignore_records_of_processes(name, kind, tmp_path):
    path = tmp_path / kind.form.folder / "title" / "2026-01-02" / name
    path.parent.mkdir(parents=True)
    path.write_bytes((WRITTEN / name).read_bytes())
    store = Store(tmp_path)
    assert (store.rows(), store.records(), store.problems) == ([], [], [])
    assert [len(list(other.headers(tmp_path))) for _, other in PROCESSES] == [other is kind for _, other in PROCESSES]


@pytest.mark.parametrize("name", KINDS)
def test_the_key_is_still_that_of_the_specification(name):
    header = KINDS[name](WRITTEN / name).header
    assert key_of(header.specification) == header.key


@pytest.mark.parametrize("name", KINDS)
def test_a_flipped_digit_is_found_in_every_line_of_every_kind(name, tmp_path):
    """Changing a digit leaves valid JSON, but the checksum no longer matches."""
    whole = (WRITTEN / name).read_bytes().splitlines(keepends=True)
    path = tmp_path / name
    for at, line in enumerate(whole):
        start = line.rindex(b',"sum"')
        digits = [place for place in range(start) if line[place : place + 1].isdigit()]
        place = digits[-1] if digits else start + 8
        changed = b"7" if line[place : place + 1] != b"7" else b"3"
        other = line[:place] + changed + line[place + 1 :]
        path.write_bytes(b"".join([*whole[:at], other, *whole[at + 1 :]]))
        with pytest.raises(RecordError, match=f"line {at + 1} "):
            KINDS[name](path)


@pytest.mark.parametrize("name", KINDS)
def test_a_missing_line_or_one_after_the_end_is_found_in_every_kind(name, tmp_path):
    whole = (WRITTEN / name).read_bytes().splitlines(keepends=True)
    path = tmp_path / name
    path.write_bytes(b"".join([*whole[:1], *whole[2:]]))
    with pytest.raises(RecordError, match="line 2 is damaged"):
        KINDS[name](path)
    body = whole[1][: whole[1].rindex(b',"sum"')] + b"}\n"
    path.write_bytes(b"".join([*whole, lines.sealed(body, lines.checksum_in(whole[-1]))]))
    with pytest.raises(RecordError, match=f"line {len(whole) + 1} comes after the end"):
        KINDS[name](path)


@pytest.mark.parametrize("name", KINDS)
def test_a_newer_schema_asks_for_an_upgrade_in_every_kind(name, tmp_path):
    kind = (WRITTEN / name).read_text().split('"')[3]
    path = tmp_path / name
    path.write_text(f'{{"kind":"{kind}","schema":99,"other":1}}\n')
    with pytest.raises(RecordError, match="Upgrade levelbench"):
        KINDS[name](path)
