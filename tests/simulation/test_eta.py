"""The replay of benchmarks/eta.py: ranges of a steady command hold the truth, and those of one that stalls do not."""

import importlib.util
import json
import sys
from pathlib import Path

import msgspec
import pytest

from levelbench.records import Evaluation, Specification
from levelbench.records.schema import Target

PATH = Path(__file__).parents[2] / "benchmarks" / "eta.py"
SECOND = 10**9
SPECIFICATION = Specification(
    task="digits",
    recipe="onecycle",
    framework="numpy",
    device="cpu",
    settings={},
    target=Target("top1", 0.96),
    crossing="final",
    clock="wall",
    evaluate_every="1 epoch",
    budget_epochs=10.0,
)


@pytest.fixture
def eta(monkeypatch):
    specification = importlib.util.spec_from_file_location("eta", PATH)
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "eta", module)
    specification.loader.exec_module(module)
    for name in ("HOST", "live_line"):
        monkeypatch.setattr(module.watching, name, getattr(module.watching, name))
    return module


@pytest.fixture
def log(tmp_path):
    """Writes the log of a command of one arm whose runs take ten epochs of so many seconds each."""

    def write(*epochs_s, ends=True):
        now_ns, runs = 0, len(epochs_s)
        places = [[0, seed] for seed in range(runs)]
        arms = [msgspec.to_builtins(SPECIFICATION)]
        lines = [{"t_ns": 0, "plan": {"arms": arms, "seeds": list(range(runs)), "to_go": places}}]
        for seed, epoch_s in enumerate(epochs_s):
            lines.append({"t_ns": now_ns, "started": [0, seed, seed + 1, runs]})
            for epoch in range(1, 11):
                t_ns = epoch * epoch_s * SECOND
                found = Evaluation(t_ns, 9 * epoch, float(epoch), 64 * epoch, {"validation": 0.9}, 0.3, {"train": t_ns})
                told = [0, seed, "train", epoch * epoch_s, [msgspec.to_builtins(found)], [9 * epoch, 90, 64]]
                lines.append({"t_ns": now_ns + t_ns, "progress": told})
            now_ns += 10 * epoch_s * SECOND
            lines.append({"t_ns": now_ns, "finished": [0, seed, None]})
        path = tmp_path / "command.log"
        path.write_text("\n".join(map(json.dumps, lines if ends else lines[:-1])) + "\n")
        return path

    return write


def held(ranges):
    return [low <= truth <= high for _, truth, low, high in ranges]


def test_ranges_of_a_steady_command_hold_the_truth(eta, log):
    ranges = eta.replay(log(2, 2, 2, 2))
    assert [at for at, *_ in ranges[::11]] == ["first run", "one finished run an arm", "two and more", "two and more"]
    assert sum(held(ranges)) / len(ranges) > 0.9


def test_ranges_before_a_run_that_nobody_could_foresee_do_not_hold_it(eta, log):
    ranges = eta.replay(log(2, 2, 2, 600))
    assert not any(held(ranges)[:30])


def test_a_command_that_did_not_end_has_no_truth(eta, log):
    assert eta.replay(log(2, 2, ends=False)) == []


def test_each_command_counts_once_whatever_it_took(eta, log, tmp_path):
    path = log(2, 2, 2, 2)
    rows = eta.table({"some": [path, path]})
    assert rows[2].startswith("| some | first run | 2 | 20 | ")
    assert rows[-1].startswith("| all | two and more | 2 | ")
