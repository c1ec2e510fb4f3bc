"""Records of networks: whole lines, one file a process, apart from the records of runs and of operators."""

import math

import pytest
from msgspec.structs import replace

from levelbench.errors import RecordError
from levelbench.records import SCHEMA, Measurement, Samples, Store, key_of
from levelbench.records.benchmarks import BenchmarkRecord
from levelbench.records.networks import (
    NetworkArm,
    NetworkCase,
    NetworkFacts,
    NetworkHeader,
    NetworkOutcome,
    NetworkRecord,
    NetworkSpecification,
    NetworkWriter,
    OperatorSamples,
    ProfileShares,
)
from levelbench.records.processes import ProcessEnd


def specification(framework="torch", **parts):
    case = NetworkCase("lenet", batch=8, sizes={"length": 16}, options={"classes": 10, "norm": "batch"})
    return replace(NetworkSpecification("lenet", case, NetworkArm(framework, "eager")), **parts)


def header(spec, seed=0):
    started = f"2026-01-02T03:04:{seed:02d}.000+00:00"
    return NetworkHeader(SCHEMA, f"id{seed}", key_of(spec), seed, started, spec, {}, "0.1.0")


EVENTS = (
    NetworkFacts({"name": "torch"}, "eager", "float32", 10, 40, 2, 1e6, 5e5, 1e3, None, {"Foo": 1}, ("folded 3",)),
    Measurement("phase/open", "s", 0.5, "host clock"),
    Measurement("peak_memory", "B", None, None, "no way to read it"),
    Samples("warmup", "s", [3.0]),
    Samples("latency", "s", [1.0, 2.0]),
    OperatorSamples(0, "Conv", "y", [0.5, 0.25], 1e6, None),
    OperatorSamples(-1, "fused", "z", [0.5]),
    ProfileShares("a profiler", {"Conv": 0.75, "Relu": 0.25}),
    NetworkOutcome("wrong", "off", {"output": math.inf, "loss": None}, "against numpy", "budget", "none", ""),
)


def write(store, spec, seed=0, events=EVENTS, end=True):
    with NetworkWriter.begin(store, header(spec, seed)) as writer:
        for event in events:
            writer.add(event)
        if end:
            writer.add(ProcessEnd(["a doubt"]))
    return NetworkRecord.read(writer.path)


def test_a_record_is_read_back_as_it_was_written(tmp_path):
    record = write(tmp_path, specification(), 3)
    assert record.header == header(specification(), 3)
    assert record.facts == EVENTS[0]
    assert record.measurements == {"phase/open": EVENTS[1], "peak_memory": EVENTS[2]}
    assert record.samples == {"warmup": [3.0], "latency": [1.0, 2.0]}
    assert record.operators == EVENTS[5:7]
    assert (record.profile, record.outcome) == (EVENTS[7], EVENTS[8])
    assert (record.end.suspect, record.status) == (["a doubt"], "done")


def test_a_record_without_an_end_was_interrupted(tmp_path):
    assert write(tmp_path, specification(), end=False).status == "interrupted"


def test_a_record_that_is_being_written_is_running(tmp_path):
    with NetworkWriter.begin(tmp_path, header(specification())) as writer:
        assert NetworkRecord.read(writer.path).status == "running"


def test_a_torn_last_line_is_passed_over(tmp_path):
    path = write(tmp_path, specification(), end=False).path
    path.write_bytes(path.read_bytes()[:-20])
    record = NetworkRecord.read(path)
    assert record.outcome is None
    assert record.samples["latency"] == [1.0, 2.0]


@pytest.mark.parametrize("damage", [b"{}\n", b'{"kind":"facts","mode":3}\n', b"\xff\n"])
def test_a_broken_line_is_damage_and_says_where(tmp_path, damage):
    path = write(tmp_path, specification()).path
    first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + damage + b"".join(rest))
    with pytest.raises(RecordError, match="line 2"):
        NetworkRecord.read(path)


def test_a_record_of_another_kind_is_none_of_a_network(tmp_path):
    path = tmp_path / "other.jsonlines"
    path.write_text('{"kind":"benchmark","schema":1}\n')
    with pytest.raises(RecordError, match="not the header of a network's record"):
        NetworkRecord.read(path)


def test_a_record_of_a_newer_schema_asks_for_an_upgrade(tmp_path):
    path = write(tmp_path, specification()).path
    path.write_text(path.read_text().replace('"schema":2', '"schema":99'))
    with pytest.raises(RecordError, match="Upgrade levelbench"):
        NetworkRecord.read(path)


@pytest.mark.parametrize(
    "other",
    [
        {"arm": NetworkArm("torch", "compiled")},
        {"arm": NetworkArm("torch", "eager", "cuda")},
        {"arm": NetworkArm("torch", "eager", "cpu", ("fuse",))},
        {"case": NetworkCase("lenet", batch=9)},
        {"case": NetworkCase("lenet", "file", 8, path="m.onnx", digest="00")},
        {"direction": "backward"},
        {"budget_s": 2.0},
        {"samples": 50},
    ],
)
def test_what_is_measured_otherwise_has_another_key(other):
    assert key_of(specification()) == key_of(specification())
    assert key_of(specification(**other)) != key_of(specification())


def test_the_processes_of_a_specification_are_found_oldest_first_and_no_others(tmp_path):
    for seed in (1, 0):
        write(tmp_path, specification(), seed)
    write(tmp_path, specification("jax"))
    found = NetworkRecord.find(tmp_path, key_of(specification()))
    assert [record.header.seed for record in found] == [0, 1]


def test_a_damaged_record_hides_no_others(tmp_path):
    write(tmp_path, specification(), 0).path.write_text("no record")
    write(tmp_path, specification(), 1)
    assert len(NetworkRecord.find(tmp_path, key_of(specification()))) == 1


def test_neither_runs_nor_operators_see_the_records_of_networks(tmp_path):
    write(tmp_path, specification())
    store = Store(tmp_path)
    assert (store.rows(), store.records(), store.problems) == ([], [], [])
    assert BenchmarkRecord.find(tmp_path, key_of(specification())) == []


def test_a_title_is_no_path(tmp_path):
    record = write(tmp_path, specification(title="../../etc/passwd"))
    assert record.path.resolve().is_relative_to(tmp_path.resolve() / "networks")


def test_titles_say_what_is_measured_and_on_what():
    assert specification().case.title == "lenet(classes=10,norm=batch) batch=8 length=16"
    assert NetworkArm("torch", "compiled", "cuda", ("fuse",)).title == "torch:compiled on cuda + fuse"
