"""Clean submissions as plain data, and a way to plant one change in them."""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.competition.made import ENVIRONMENT
from tests.competition.made import TARGET as REACHED
from tests.records import conftest as records

from levelbench.competition.checks import EntryFinding
from levelbench.competition.entries import Author, Submission, SystemPrice, curve_digest
from levelbench.competition.leaderboard import check
from levelbench.competition.making import Terms
from levelbench.competition.rulesets import ruleset

TODAY = date(2026, 12, 1)
TARGET = {"metric": "top1", "threshold": 0.96, "direction": "higher", "low": 0.0, "high": 1.0, "split": "validation"}


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def run(seed: int) -> dict[str, Any]:
    """Six epochs; at the target from the fourth on, so confirmed at the fifth."""
    time_s = [round((1.0 + 0.013 * seed) * epoch + 0.001 * ((7 * seed * epoch) % 5), 6) for epoch in range(1, 7)]
    quality = [0.81, 0.90 + 0.001 * seed, 0.94 + 0.002 * seed, 0.961, 0.964 + 0.001 * seed, 0.9665]
    return {
        "curve": {
            "time_s": time_s,
            "quality": quality,
            "epoch": [float(epoch) for epoch in range(1, 7)],
            "samples": [1079 * epoch for epoch in range(1, 7)],
        },
        "seed": seed,
        "reached": True,
        "time_to_target_s": time_s[4],
        "started": f"2026-11-29T03:0{seed}:00.000+00:00",
        "phases_s": {"forward": time_s[-1] * 0.7, "evaluate": time_s[-1] * 0.3},
        "energy_j": 40.0,
        "energy_method": "rapl",
        "record_id": f"aaaa000{seed}",
        "record_digest": sha(f"record {seed}"),
    }


def common() -> dict[str, Any]:
    return {
        "schema": 1,
        "ruleset": "levelbench-1.0",
        "task": "digits",
        "mode": "training",
        "author": {"name": "Ada Lovelace", "email": "ada@example.org", "organisation": "Analytical"},
        "submitted": "2026-11-30",
        "model": "mlp",
        "framework": "numpy",
        "hardware": {"description": "2 cores of a processor", "cores": 2},
        "target": dict(TARGET),
        "clock": "wall",
        "crossing": "confirmed",
        "code": {"url": "https://example.org/ada/digits/tree/0a1b2c3d4e", "commit": "0a1b2c3d4e", "dirty": False},
        "price": {
            "usd_per_hour": 0.096,
            "source": "https://example.org/prices",
            "read_on": "2026-11-30",
            "on_demand": True,
        },
        "tuning": {"trials": 3, "hours": 0.5},
        "settings": {"lr": 0.05, "flops_per_sample": 1e5},
        "provenance": {
            "version": "0.1.0",
            "software": {"numpy": "2.4"},
            "environment": {"machine.cpu": "a processor", "machine.cores_allowed": "2", "ceiling.flop_s": "5e10"},
            "dataset": "digits",
            "synthetic": False,
            "checksums": {"digits": sha("digits")},
        },
        "notes": "First entry.\nSecond line.",
    }


def training() -> dict[str, Any]:
    return {**common(), "runs": [run(seed) for seed in range(5)]}


def dawnbench() -> dict[str, Any]:
    """One run under DAWNBench's rules: at the target from the fourth epoch."""
    one = {**run(1), "time_to_target_s": run(1)["curve"]["time_s"][3]}
    one["curve"]["quality"] = [0.5, 0.8, 0.9, 0.941, 0.95, 0.95]
    one["phases_s"] = {}
    target = {**TARGET, "threshold": 0.94, "split": "test"}
    changes = {"ruleset": "dawnbench-1.0", "task": "cifar10", "clock": "dawnbench", "crossing": "first"}
    return {**common(), **changes, "target": target, "runs": [one]}


def olympic() -> dict[str, Any]:
    entry = training()
    for each in entry["runs"]:
        each["time_to_target_s"] = each["curve"]["time_s"][3]
    return {**entry, "ruleset": "mlperf-training-like-1.0", "clock": "mlperf", "crossing": "first"}


def measurement() -> dict[str, Any]:
    return {
        "scenario": "single-stream",
        "queries": 2000,
        "samples": 2000,
        "duration_s": 20.4,
        "mean_latency_s": 0.0101,
        "quantiles_s": {"0.5": 0.01, "0.9": 0.011, "0.99": 0.013, "1": 0.02},
        "estimate_s": 0.0112,
        "estimate_quantile": 0.9,
        "throughput_per_s": 98.0,
        "valid": True,
        "quality": 0.958,
        "quality_samples": 359,
        "batch": 1,
        "includes": ["preprocessing"],
        "cost_usd": 0.096 / 3600 * 0.0101,
        "audits": {"answers under the clock": True, "the same result": True, "the same sample again": True},
        "record_digest": sha("inference"),
    }


def inference() -> dict[str, Any]:
    entry = {**common(), "mode": "inference", "inference": [measurement()]}
    for name in ("clock", "crossing"):
        del entry[name]
    return entry


KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "training": training,
    "dawnbench": dawnbench,
    "olympic": olympic,
    "inference": inference,
}
REMOVE = object()


def plant(entry: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``entry`` with the values at paths such as ``runs[0].seed`` replaced, or removed (``REMOVE``)."""
    changed = copy.deepcopy(entry)
    for path, value in changes.items():
        steps = [int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", path)]
        place: Any = changed
        for step in steps[:-1]:
            place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
        if value is REMOVE:
            if isinstance(place, list) or steps[-1] in place:
                del place[steps[-1]]
        elif isinstance(place, list) and steps[-1] == len(place):
            place.append(value)
        else:
            place[steps[-1]] = value(place[steps[-1]]) if callable(value) else value
    return changed


def submission_of(entry: Mapping[str, Any], *, digests: bool = True) -> Submission:
    """The submission, with the digests that its curves have."""
    made = msgspec.convert(entry, Submission)
    if not digests:
        return made
    runs = [msgspec.structs.replace(run, curve_digest=run.curve_digest or curve_digest(run.curve)) for run in made.runs]
    return msgspec.structs.replace(made, runs=runs)


class Clean:
    """What tests of rules use: ``make(kind, changes)`` and ``codes(submission)``."""

    today = TODAY
    remove = REMOVE

    @staticmethod
    def make(kind: str = "training", changes: Mapping[str, Any] | None = None, *, digests: bool = True) -> Submission:
        return submission_of(plant(KINDS[kind](), changes or {}), digests=digests)

    @staticmethod
    def raw(changes: Mapping[str, Any]) -> bytes:
        """A file that the schema may refuse."""
        return msgspec.json.encode(plant(KINDS["training"](), changes))

    @staticmethod
    def find(submission: Submission, file: str = "", **more: Any) -> list[EntryFinding]:
        return check(submission, file, today=TODAY, **more)

    @staticmethod
    def codes(submission: Submission, file: str = "", **more: Any) -> set[str]:
        return {each.code for each in check(submission, file, today=TODAY, **more)}


@pytest.fixture(scope="session")
def clean() -> type[Clean]:
    return Clean


@pytest.fixture
def terms() -> Terms:
    price = SystemPrice(3.06, "https://example.org/prices", "2026-11-30", True)
    rules = ruleset("levelbench-1.0")
    url = "https://example.org/a/tree/0a1b2c3d"
    return Terms(Author("Ada", "ada@example.org"), "2026-12-01", rules, price, code_url=url)


@pytest.fixture
def put(tmp_path: Path, make_header: Any, make_events: Any, make_run: Any) -> Callable[..., Path]:
    """Put a run of digits into the store: ``put(seed, qualities, environment=..., end=..., **specification)``."""

    def add(
        seed: int,
        qualities: Sequence[float] | None = None,
        *,
        environment: Mapping[str, Any] = ENVIRONMENT,
        end: Mapping[str, Any] | None = None,
        epoch_s: float = 1.0,
        **parts: Any,
    ) -> Path:
        head = make_header(seed=seed, **{"target": REACHED, **parts})
        head = msgspec.structs.replace(head, environment=environment)
        qualities = qualities or (0.90 + 0.001 * seed, 0.961, 0.97)
        path: Path = make_run(tmp_path / "store", head, make_events(qualities, epoch_s + 0.01 * seed, **(end or {})))
        return path

    return add


# Fixtures of records, from which entries are made.
fill = records.fill
make_curve = records.make_curve
make_events = records.make_events
make_header = records.make_header
make_run = records.make_run
make_specification = records.make_specification
