"""Makes records of inference with seeded latencies, without measuring anything."""

from pathlib import Path

import numpy as np

from levelbench.records import SCHEMA, key_of
from levelbench.records.inference import (
    Accuracy,
    Data,
    Driven,
    InferenceArm,
    InferenceFacts,
    InferenceHeader,
    InferenceOutcome,
    InferenceRecord,
    InferenceSpecification,
    InferenceWriter,
    Model,
    ScenarioSettings,
)
from levelbench.records.processes import ProcessEnd
from levelbench.records.schema import Measurement

MODEL = Model(
    "digits[mlp]", "task", "models/0-s0.onnx", "a" * 64, "digits", "digits", "mlp", {"lr": 0.05}, "run00001", "b" * 64,
    quality=0.95,
)  # fmt: skip
DATA = Data("task", "the test split of digits")
SINGLE = ScenarioSettings("single-stream", 0.9, 5.0, 64, 1, 50.0)
SERVER = ScenarioSettings("server", 0.99, 5.0, 662, 1, 50.0, qps=200.0, bound_s=0.015)
OFFLINE = ScenarioSettings("offline", 0.99, 5.0, 1, 256, 50.0)


def specification(framework="numpy", scenario=SINGLE, **parts):
    arm = InferenceArm(framework)
    return InferenceSpecification("digits[mlp]", parts.pop("model", MODEL), DATA, scenario, arm, **parts)


def header(spec, seed=0):
    # Frameworks take turns, and each is as often the first.
    started = f"2026-01-02T03:04:{seed:02d}.{(spec.arm.framework != 'torch') ^ seed % 2}00+00:00"
    return InferenceHeader(SCHEMA, f"id{seed}", key_of(spec), seed, started, spec, {}, "0.1.0")


def latencies_ns(seed, slow=1.0, n=4000):
    rng = np.random.default_rng(seed)
    # Processes vary by a few per cent; latencies within one have a tail.
    return (200_000 * slow * (1 + 0.02 * rng.standard_normal()) * (1 + rng.exponential(0.1, n))).astype(np.int64)


def write(store: Path, spec, seed=0, *, slow=1.0, n=4000, events=None, end=True, quality=0.95, audits=(), **driven):
    """Write a record as a process does, and read it."""
    values = latencies_ns(seed, slow, n)
    with InferenceWriter.begin(store, header(spec, seed)) as writer:
        includes = ["transfer"]
        clock = "from the query to the outputs on the host; nothing to preprocess"
        writer.add(InferenceFacts({"name": spec.arm.framework}, "eager", 9610, includes, clock, 359, 359))
        writer.add(Measurement("phase/open", "s", 0.1, "host clock"))
        writer.add(Measurement("peak_memory", "B", 2.0**21 * (1 + 0.01 * seed), "vmhwm-reset"))
        if events is None:
            writer.add_ns("latency", values)
            if spec.generation is not None:
                # The first token takes a tenth, and so does each of nine others.
                writer.add_ns("first_token", values // 10)
                writer.add_ns("per_token", values // 10)
            if spec.scenario.name == "server":
                writer.add_ns("lateness", np.full(n, 50_000))
            found = {"valid": True, "latencies": n, "throughput_per_s": float(1e9 / values.mean()), **driven}
            writer.add(Driven(queries=n, samples=n, duration_s=float(values.sum() * 1e-9), **found))
            writer.add(Accuracy("top1", quality, "higher", 359, "test"))
            for each in audits:
                writer.add(each)
            writer.add(InferenceOutcome("measured"))
        for event in events or ():
            writer.add(event)
        if end:
            writer.add(ProcessEnd(["a doubt"] if seed else []))
    return InferenceRecord.read(writer.path)
