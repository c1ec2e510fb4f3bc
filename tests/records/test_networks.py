"""Records of network benchmarks, one file per process."""

import math

import pytest
from msgspec.structs import replace

from levelbench.errors import RecordError
from levelbench.records import SCHEMA, Measurement, Samples, key_of
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


def test_a_record_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "other.jsonlines"
    path.write_text('{"kind":"benchmark","schema":1}\n')
    with pytest.raises(RecordError, match="not the header of a network's record"):
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
def test_another_measurement_has_another_key(other):
    assert key_of(specification()) == key_of(specification())
    assert key_of(specification(**other)) != key_of(specification())


def test_a_title_does_not_lead_out_of_the_store(tmp_path):
    record = write(tmp_path, specification(title="../../etc/passwd"))
    assert record.path.resolve().is_relative_to(tmp_path.resolve() / "networks")


def test_titles_name_the_case_and_the_arm():
    assert specification().case.title == "lenet(classes=10,norm=batch) batch=8 length=16"
    assert NetworkArm("torch", "compiled", "cuda", ("fuse",)).title == "torch:compiled on cuda + fuse"
