"""Makes records of runs in one call; every part can be replaced."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from levelbench.records import (
    SCHEMA,
    DatasetFacts,
    End,
    Evaluation,
    Event,
    Header,
    Measurement,
    RecordWriter,
    Samples,
    Source,
    Specification,
    Store,
    Target,
    key_of,
    new_id,
)

SECOND = 1_000_000_000
SOURCE = Source("digits", hashlib.sha256("…".encode()).hexdigest(), "…")


def specification(**parts: Any) -> Specification:
    base = Specification(
        task="digits",
        recipe="mlp",
        framework="numpy",
        device="cpu",
        settings={"lr": 0.1, "hidden": 128},
        target=Target("accuracy", 0.9),
        crossing="confirmed",
        clock="wall",
        evaluate_every="1 epoch",
        budget_epochs=10.0,
    )
    return msgspec.structs.replace(base, **parts)


def header(
    *,
    seed: int = 0,
    id: str = "",
    started: str = "2026-03-01T12:00:00.000+00:00",
    chosen: list[str] | None = None,
    **parts: Any,
) -> Header:
    spec = specification(**parts)
    environment = {"machine": {"id": "m"}, "text": "é\n"}
    facts = (id or new_id(), key_of(spec), seed, started, spec, environment, SOURCE, "0.1.0")
    return Header(SCHEMA, *facts, chosen=chosen)


def curve(qualities: Sequence[float], epoch_s: float = 1.0) -> list[Evaluation]:
    """One evaluation per epoch, of which a quarter is data, a quarter evaluation and half forward."""
    whole = round(epoch_s * SECOND)
    return [
        Evaluation(
            t_ns=i * whole,
            step=10 * i,
            epoch=float(i),
            samples=640 * i,
            quality={"validation": quality},
            loss=1.0 / i,
            phases_ns={"data": i * whole // 4, "forward": i * whole // 2, "evaluate": i * whole - i * whole * 3 // 4},
        )
        for i, quality in enumerate(qualities, 1)
    ]


def step_times(epoch_s: float = 1.0) -> list[int]:
    """The times of ten steps, which fill the training of an epoch."""
    return [round(epoch_s * SECOND) * 3 // 40 - each for each in range(1, 11)]


def run_events(qualities: Sequence[float] = (0.5, 0.91, 0.92), epoch_s: float = 1.0, **end: Any) -> list[Event]:
    evaluations = curve(qualities, epoch_s)
    events: list[Event] = []
    for evaluation in evaluations:
        events += [Samples("step_time", "ns", step_times(epoch_s)), evaluation]
    events.append(Measurement("peak_memory", "B", 2.0e8, "vmhwm-reset"))
    events.append(Measurement("energy", "J", None, None, "no counter"))
    facts = DatasetFacts("digits", {"train": 10}, {"x": "0" * 64}, "by index", "CC0", synthetic=False)
    last = evaluations[-1]
    ending = End("done", last.t_ns, last.phases_ns, {"validation": qualities[-1], "test": 0.89}, dataset=facts)
    return [*events, msgspec.structs.replace(ending, **end)]


def write_run(store: Path, head: Header, events: Sequence[Event] | None = None) -> Path:
    with RecordWriter.create(store, head) as writer:
        for event in run_events() if events is None else events:
            writer.append(event)
    return writer.path


@pytest.fixture(scope="session")
def make_specification() -> Callable[..., Specification]:
    return specification


@pytest.fixture(scope="session")
def make_header() -> Callable[..., Header]:
    return header


@pytest.fixture(scope="session")
def make_curve() -> Callable[..., list[Evaluation]]:
    return curve


@pytest.fixture(scope="session")
def make_events() -> Callable[..., list[Event]]:
    return run_events


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Path]:
    return write_run


@pytest.fixture
def fill(tmp_path: Path) -> Callable[..., Store]:
    """A store of ``n`` runs, seed i started in minute i and taking (n - i) seconds an epoch."""

    def make(n: int = 3, task: str = "digits", **parts: Any) -> Store:
        for i in range(n):
            head = header(seed=i, started=f"2026-03-{1 + i // 2:02d}T12:{i:02d}:00+00:00", task=task, **parts)
            write_run(tmp_path / "store", head, run_events(epoch_s=float(n - i)))
        return Store(tmp_path / "store")

    return make
