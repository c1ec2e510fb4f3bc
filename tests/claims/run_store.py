"""Stores of whole runs as ``levelbench run`` leaves them, with one thing changed in each record if wanted.

A run of seed s: eight epochs, a validation quality that is at the target of 0.9 from the sixth on, a test quality that
is looked at once, at the end; all phases on one timeline.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from levelbench.measure.crossing import find_crossing
from levelbench.records import (
    SCHEMA,
    DatasetFacts,
    Distribution,
    End,
    Evaluation,
    Event,
    Header,
    Samples,
    Source,
    Specification,
    Target,
    key_of,
)
from levelbench.records.lines import encode_file

SECOND = 1_000_000_000
SEEDS = (0, 1, 2, 3, 4)
QUALITIES = (0.52, 0.70, 0.80, 0.86, 0.89, 0.903, 0.907, 0.908)
QUALITIES_SHORT = (0.52, 0.70, 0.80, 0.84, 0.85, 0.86, 0.86)
STOP = 7
"""Evaluations until the target is confirmed, which ends the run."""


def specification(**parts: Any) -> Specification:
    base = Specification(
        task="digits",
        recipe="mlp",
        framework="numpy",
        device="cpu",
        settings={"lr": 0.1, "batch": 64},
        target=Target("top1", 0.9),
        crossing="confirmed",
        clock="wall",
        evaluate_every="1 epoch",
        budget_epochs=10.0,
    )
    return msgspec.structs.replace(base, **parts)


def team(ranks: int, **parts: Any) -> Distribution:
    base = Distribution(ranks, "all-reduce", {}, "process", "gloo")
    return msgspec.structs.replace(base, **parts)


def environment(**parts: Any) -> dict[str, Any]:
    return {
        "machine": {"id": "m1", "cpu": "AMD EPYC 7763", "cores_allowed": 8},
        "accelerators": {"nvidia_driver": None, "names": []},
        "libraries": {"numpy": "2.4"},
        "git": {"commit": "4f1c2aa", "dirty": False},
        "framework": {"name": "numpy", "version": "2.4", "device": "cpu", "threads": 8},
        **parts,
    }


def events(
    seed: int,
    qualities: Sequence[float] = QUALITIES[:STOP],
    *,
    epoch_s: float = 2.0,
    noise: float = 0.011,
    looks: bool = False,
    split: str = "validation",
    data: str = "digits",
    synthetic: bool = False,
    target: float = 0.9,
) -> list[Event]:
    """A fifth of each epoch is evaluation, a twentieth data; ``looks`` evaluates the test data every time too."""
    slower = 1.0 + noise * ((7 * seed) % 5 - 2)
    found: list[Event] = []
    phases: dict[str, int] = {}
    for epoch, quality in enumerate(qualities, 1):
        whole = round(epoch_s * slower * SECOND)
        parts = {"prepare": SECOND // 2, "data": whole // 20 * epoch, "evaluate": whole // 5 * epoch}
        parts["forward"] = whole * epoch // 4
        phases = {**parts, "backward": whole * epoch + SECOND // 2 - sum(parts.values())}
        seen = {split: round(quality + 0.0004 * seed, 5)}
        if looks:
            seen["test"] = max(seen[split] - 0.004, 0.0)
        found.append(Samples("step_time", "ns", [whole // 125 - 1] * 100))
        at = Evaluation(sum(phases.values()), 100 * epoch, float(epoch), 6400 * epoch, seen, 1 / epoch, phases)
        found.append(at)
    last = {"test": round(max(qualities[-1] - 0.005, 0.0), 5)} | seen
    facts = DatasetFacts(data, {"train": 100_000}, {"digits": "0" * 64}, "by index", "CC BY 4.0", synthetic)
    shown = [each.quality[split] for each in found if isinstance(each, Evaluation)]
    crossed = find_crossing(shown, target, rule="confirmed")
    why = "target reached" if crossed is not None and crossed.index == len(shown) - 1 else "all epochs done"
    return [*found, End("done", sum(phases.values()), phases, last, dataset=facts, stopped_by=why)]


def _of(spec: Specification, env: dict[str, Any]) -> dict[str, Any]:
    """An environment in which the framework and device are those of the specification."""
    found = env.get("framework")
    if not isinstance(found, dict):
        return env
    device = "cpu" if spec.device == "cpu" else "Tesla V100-SXM2-16GB"
    return {**env, "framework": {**found, "name": spec.framework, "device": device}}


def write_run(
    store: Path, seed: int = 0, *, spec: Specification | None = None, env: dict[str, Any] | None = None, **parts: Any
) -> Path:
    """One record, written as text: what is read is the file. ``parts`` go to :func:`events`; ``minute`` is its start.

    ``cut=True`` leaves the last line out.
    """
    spec, cut, minute = spec or specification(), parts.pop("cut", False), parts.pop("minute", 2 * seed)
    source = Source("levelbench.tasks.digits", hashlib.sha256(b"# the task").hexdigest(), "# the task")
    key = key_of(spec)
    name = f"{key[:8]}-s{seed}-{minute:04d}"
    head = Header(
        SCHEMA,
        f"{key[:4]}{seed:02d}{minute:02d}",
        key,
        seed,
        f"2026-11-02T10:{minute:02d}:00.000+00:00",
        spec,
        _of(spec, environment() if env is None else env),
        source,
        "0.1.0",
    )
    folder = store / spec.task
    folder.mkdir(parents=True, exist_ok=True)
    lines = events(seed, target=spec.target.threshold, **parts)
    path = folder / f"{name}.jsonl"
    path.write_bytes(encode_file(head, lines[:-1] if cut else lines))
    return path


def write_runs(store: Path, seeds: Sequence[int] = SEEDS, *, start: int = 0, **parts: Any) -> Path:
    """A run of each seed, two minutes apart from minute ``start`` on; the store."""
    for at, seed in enumerate(seeds):
        write_run(store, seed, minute=start + 2 * at, **parts)
    return store
