"""Records of two arms with plausible curves, from a seeded generator: what every test of the report starts from."""

import hashlib
from pathlib import Path

import msgspec
import numpy as np
import pytest

from levelbench.records.network_summary import summarise_networks
from levelbench.records.networks import (
    NetworkArm,
    NetworkCase,
    NetworkFacts,
    NetworkHeader,
    NetworkOutcome,
    NetworkRecord,
    NetworkSpecification,
    OperatorSamples,
)
from levelbench.records.processes import ProcessEnd
from levelbench.records.reader import Record
from levelbench.records.schema import End, Evaluation, Header, Measurement, Samples, Source, Specification, Target
from levelbench.records.summary import group_runs
from levelbench.report import run_figures as figures

TARGET = Target("accuracy", 0.97)
SECOND = 1_000_000_000
ENVIRONMENT = {
    "machine": {"cpu": "Example CPU 3000", "cores_logical": 2, "memory_bytes": 8589934592, "governor": "performance"},
    "libraries": {"python": "3.12.1", "numpy": "2.2.0", "blas": {"name": "openblas", "threads": 2}},
    "threads": {"OMP_NUM_THREADS": "2"},
    "load": {"minutes_1": 0.12},
}


def make_record(task="digits", framework="numpy", seed=1, speed_s=0.045, rate=0.35, *, epochs=24, clock="wall",
                status="done", error=None, suspect=(), settings=None, memory=True, environment=None):  # fmt: skip
    """One run: an accuracy that saturates, evaluations that stop when the target is confirmed, phases that add up."""
    rng = np.random.default_rng([seed, *map(ord, framework)])
    specification = Specification(
        task, "mlp", framework, "cpu", {"hidden": 128, "lr": 0.1} if settings is None else settings, TARGET,
        "confirmed", clock, "1 epoch", epochs,
    )  # fmt: skip
    phases_s = np.array([0.06, 0.01, 0.3, 0.42, 0.08, 0.14])
    names = ("prepare", "data", "forward", "backward", "update", "evaluate")
    totals = np.array([0.04, 0, 0, 0, 0, 0]) * (1 + 0.1 * rng.random())
    evaluations, streak = [], 0
    for epoch in range(1, epochs + 1):
        totals = totals + speed_s * phases_s * (1 + 0.12 * rng.random()) * np.array([0, 1, 1, 1, 1, 1])
        quality = min(1.0, 0.982 - 0.6 * np.exp(-rate * epoch) + 0.0035 * rng.standard_normal())
        ns = {name: int(total * SECOND) for name, total in zip(names, totals, strict=True)}
        evaluations.append(
            Evaluation(sum(ns.values()), 17 * epoch, float(epoch), 1077 * epoch, {"validation": round(quality, 4)},
                       float(np.exp(-rate * epoch)), ns)
        )  # fmt: skip
        streak = streak + 1 if quality >= TARGET.threshold else 0
        if streak == 2:
            break
    header = Header(
        1, f"{seed:02x}{abs(hash_of(framework)):06x}"[:8], key_of(framework, task, settings), seed,
        f"2025-03-0{1 + seed % 5}T10:20:30+00:00", specification, environment or ENVIRONMENT,
        Source("levelbench.tasks.digits", "ab" * 32, "task = ..."), "0.1.0",
    )  # fmt: skip
    last = evaluations[-1]
    end = End(
        "failed" if status == "failed" else "done", last.t_ns, last.phases_ns,
        {"test": round(0.968 + 0.004 * rng.random(), 4)} if status == "done" else {}, error, list(suspect),
    )  # fmt: skip
    measurements = [Measurement("energy", "J", None, None, "no RAPL counter under /sys/class/powercap")]
    if memory:
        measurements.append(Measurement("peak_memory", "B", 148_000_000.0 + 1e6 * rng.random(), "vmhwm-reset"))
    steps = Samples("step_time", "ns", (speed_s / 17 * SECOND * (1 + 0.1 * rng.random(40))).tolist())
    path = Path("store") / f"{header.id}.jsonl"
    return Record(path, header, tuple(evaluations), {"step_time": steps}, tuple(measurements),
                  end if status in ("done", "failed") else None, status)  # fmt: skip


def key_of(*parts: object) -> str:
    """A key that differs where the parts do."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def hash_of(text: str) -> int:
    """A small number that is the same in every process."""
    return sum(ord(each) * 7919**at for at, each in enumerate(text)) % 0xFFFFFF


def grouped(records):
    """Groups with their records, as a report takes them."""
    return [(group, [each for each in records if each.header.key == group.key]) for group in group_runs(records)]


@pytest.fixture(scope="session")
def make():
    return make_record


@pytest.fixture(scope="session")
def group():
    return grouped


@pytest.fixture(scope="session")
def two_arms():
    """Two frameworks with five runs each, all of which reach the target."""
    arms = [make_record(seed=seed) for seed in range(1, 6)]
    other = msgspec.to_builtins(ENVIRONMENT)
    other["threads"] = {"OMP_NUM_THREADS": "1"}
    return grouped(
        [*arms, *(make_record(framework="torch", seed=s, speed_s=0.036, environment=other) for s in range(1, 6))]
    )


@pytest.fixture(scope="session")
def one_missed():
    """One group in which one of five runs never reaches the target, one failed and one was interrupted."""
    runs = [make_record(seed=seed) for seed in range(1, 4)]
    runs.append(make_record(seed=4, rate=0.08, suspect=["load from elsewhere: 1.7 cores"]))
    runs.append(make_record(seed=5, status="failed", error="ValueError: the loss is not a number", epochs=4))
    return grouped([*runs, make_record(seed=6, status="interrupted", epochs=3)])


@pytest.fixture
def undrawn(monkeypatch):
    """Pages without drawings, which take most of the time."""
    monkeypatch.setattr(figures, "can_draw", lambda: False)


CEILINGS = {"flop_s": {"float32": {"value": 400e9}}, "bandwidth_b_s": {"triad": {"value": 10e9}}}
OPERATORS = {
    "Conv": (3, 0.7, 3.6e9),
    "BatchNormalization": (3, 0.12, 5e6),
    "Relu": (3, 0.08, 2e6),
    "Gemm": (1, 0.06, 1e6),
}


def make_network_record(case, arm, seed, *, base_s=0.02, status="measured", samples=400, reason="", operators=True,
                        fused=False, direction="forward", memory=64 * 2**20, transforms=(), errors=None):  # fmt: skip
    """One process: latencies with a tail, four types of operator that take 0.96 of them, phases and memory."""
    rng = np.random.default_rng([seed, case.batch, *map(ord, arm.title)])
    whole = base_s * case.batch**0.9 * (1 + 0.01 * rng.standard_normal())
    latency = whole * (1 + 0.02 * rng.random(samples) + 0.2 * (rng.random(samples) > 0.97))
    specification = NetworkSpecification("resnet18", case, arm, direction)
    header = NetworkHeader(
        1, f"{seed:08x}", "0" * 64, seed, f"2026-01-02T03:{seed:02d}:05.000+00:00", specification, ENVIRONMENT,
        "0.1.0", CEILINGS,
    )  # fmt: skip
    facts = NetworkFacts(
        {"version": "2.9", "threads": 2}, arm.mode or "eager", "float32", 11_689_512, 46_758_048, 69,
        3.64e9 * case.batch, 1.82e9 * case.batch, 9e7 * case.batch, 4e7 * case.batch, {}, transforms,
    )  # fmt: skip
    kept = {name: value for name, value in OPERATORS.items() if not (fused and name == "BatchNormalization")}
    times = tuple(
        OperatorSamples(
            -1 if fused and name == "Relu" else at * 10 + call, name, f"{name.lower()}{call}",
            whole * share / calls * (1 + 0.05 * rng.random(20)), flops * case.batch / calls, 1e7 * case.batch / calls,
        )
        for at, (name, (calls, share, flops)) in enumerate(kept.items()) for call in range(calls)
    ) if operators and status in ("measured", "wrong") else ()  # fmt: skip
    phases = {"open": 1.2, "build": 0.05, "prepare": 0.1, "first": whole + 0.4}
    done = status in ("measured", "wrong")
    measurements = {
        f"phase/{name}": Measurement(f"phase/{name}", "s", value, "wall") for name, value in phases.items() if done
    }
    measurements["peak_memory"] = Measurement("peak_memory", "B", memory * case.batch**0.5 * (1 + 0.01 * seed), "VmHWM")
    outcome = NetworkOutcome(
        status, reason, errors or {"output": 2e-6}, "against NumPy in float64, all outputs, within 1e-4",
        operators_reason="" if operators else "mode 'compiled' cannot tell its operators apart",
    )  # fmt: skip
    return NetworkRecord(
        Path("made.jsonlines"), header, facts, measurements, {"latency": latency} if done else {}, times, None, outcome,
        end=ProcessEnd(),
    )  # fmt: skip


def make_network_summary(arms, batches=(1, 8), processes=3, direction="forward"):
    """``arms`` maps each arm to what ``make_network_record`` is to be told of it."""
    cases = [NetworkCase("resnet18", batch=batch) for batch in batches]
    return summarise_networks([
        [[make_network_record(case, arm, seed, direction=direction, **more) for seed in range(processes)]
         for arm, more in arms.items()]
        for case in cases
    ])  # fmt: skip


@pytest.fixture
def network_summary():
    """resnet18 at batch 1 and 8: torch, torch compiled (no operators), and ONNX Runtime, which fuses and is faster."""
    arms = {
        NetworkArm("torch"): {},
        NetworkArm("torch", "compiled"): {"base_s": 0.015, "operators": False},
        NetworkArm("onnxruntime"): {"base_s": 0.012, "fused": True},
    }
    return make_network_summary(arms)


@pytest.fixture
def summary_of():
    """``summary_of({arm: {...}}, batches, processes)``: see :func:`make_network_summary`."""
    return make_network_summary
