"""Makes MLPerf logs with replaceable lines, and runs the official checker if it is installed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

START_MS = 1_700_000_000_000

Lines = list[dict[str, Any]]


def event(ms: float, key: str, value: Any = None, *, kind: str = "POINT_IN_TIME", **metadata: Any) -> dict[str, Any]:
    return {
        "namespace": "",
        "time_ms": START_MS + ms,
        "event_type": kind,
        "key": key,
        "value": value,
        "metadata": {"file": "train.py", "lineno": 7, **metadata},
    }


def good_events(
    *, benchmark: str = "llama31_8b", division: str = "open", seed: int = 1, values: tuple[float, ...] = (0.9, 0.5)
) -> Lines:
    """A run of 30 s: a minute of initialisation, then blocks of 1024 samples with an evaluation after each."""
    lines = [
        event(0, "submission_benchmark", benchmark),
        event(0, "submission_org", "someone"),
        event(0, "submission_division", division),
        event(0, "submission_platform", "box"),
        event(1, "cache_clear", True),
        event(2, "init_start", kind="INTERVAL_START"),
        event(3, "seed", seed),
        event(4, "global_batch_size", 64),
        event(5, "gradient_accumulation_steps", 1),
        event(6, "opt_base_learning_rate", 0.1),
        event(7, "train_samples", 2048),
        event(8, "eval_samples", 512),
        event(60_002, "init_stop", kind="INTERVAL_END"),
        event(60_010, "run_start", kind="INTERVAL_START"),
    ]
    step_ms = 30_000 // len(values)
    for number, value in enumerate(values):
        at, seen = 60_010 + number * step_ms, number * 1024
        block = {"first_epoch_num": number + 1, "epoch_count": 1, "samples_count": seen}
        place = {"epoch_num": number + 1, "samples_count": seen + 1024}
        lines += [
            event(at, "block_start", kind="INTERVAL_START", **block),
            event(at + step_ms - 1000, "block_stop", kind="INTERVAL_END", **block),
            event(at + step_ms - 1000, "eval_start", kind="INTERVAL_START", **place),
            event(at + step_ms - 2, "eval_accuracy", value, **place),
            event(at + step_ms - 1, "eval_stop", kind="INTERVAL_END", **place),
        ]
    return [*lines, event(90_010, "run_stop", kind="INTERVAL_END", status="success")]


def written(lines: Lines) -> str:
    return "".join(f":::MLLOG {json.dumps(line)}\n" for line in lines)


@pytest.fixture(scope="session")
def make_event() -> Callable[..., dict[str, Any]]:
    return event


@pytest.fixture(scope="session")
def make_lines() -> Callable[..., Lines]:
    return good_events


@pytest.fixture(scope="session")
def text_of() -> Callable[[Lines], str]:
    return written


SYSTEM = {
    "submitter": "Someone Ltd",
    "division": "closed",
    "system_name": "2 boxes",
    "number_of_nodes": "2",
    "accelerators_per_node": 8,
    "accelerator_model_name": "A100",
    "host_processors_per_node": 2,
    "host_processor_core_count": 64,
    "host_processor_model_name": "EPYC",
    "host_memory_capacity": "1.5 TB",
    "framework": "PyTorch 1.13",
}
BENCH = "someone/results/box/resnet"


@pytest.fixture
def tree(tmp_path, make_lines, text_of):
    """A tree of five runs of ResNet, 30 to 34 seconds long; ``changes`` are files written over it."""

    def make(changes=None, runs=5):
        files = {"someone/systems/box.json": json.dumps(SYSTEM)}
        for run in range(runs):
            lines = make_lines(benchmark="resnet", seed=run, values=(0.5, 0.76))
            lines[-1]["time_ms"] += 1000 * run
            files[f"{BENCH}/result_{run}.txt"] = text_of(lines)
        for name, content in {**files, **(changes or {})}.items():
            path = tmp_path / "tree" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return tmp_path / "tree"

    return make


@pytest.fixture
def log_of(tmp_path):
    """The log that a text or a list of events is, read from a file."""
    from levelbench.competition.exchange.mlperf import read_log

    def make(content: str | Lines, name: str = "result_0.txt"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else written(content), encoding="utf-8")
        return read_log(path)

    return make


@pytest.fixture(scope="session")
def official() -> Callable[..., bool]:
    """Whether the official compliance checker accepts a file."""
    pytest.importorskip("mlperf_logging")
    from mlperf_logging.compliance_checker import mlp_compliance

    parsed = cache(_yaml)

    class Cached:
        BaseLoader = None

        @staticmethod
        def load(file, Loader):  # noqa: N803 - the name is the library's
            return parsed(file.read())

    def check(path: Path, *, ruleset: str = "6.0.0", config: str | None = None) -> bool:
        mlp_compliance.enqueued_configs.clear()
        checker = mlp_compliance.make_checker("training", ruleset, True, False)
        plain, mlp_compliance.yaml = mlp_compliance.yaml, Cached
        try:
            return mlp_compliance.main(str(path), config or f"training_{ruleset}/common.yaml", checker)[0]
        except FileNotFoundError:
            # It opens the rules of the division or benchmark in the log without checking that they exist.
            return False
        finally:
            mlp_compliance.yaml = plain

    return check


def _yaml(text: str) -> Any:
    import yaml

    return yaml.load(text, Loader=yaml.BaseLoader)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of other people's results, beside the checkout or where ``LEVELBENCH_SHARED`` says."""
    above = Path(__file__).parents[4]
    places = [os.environ.get("LEVELBENCH_SHARED"), above / "shared", above.parent / "shared"]
    found = [Path(each) / "data" for each in places if each]
    for folder in found:
        if folder.is_dir():
            return folder
    return pytest.skip("no real results are here, which are not ours to ship: LEVELBENCH_SHARED/data")
