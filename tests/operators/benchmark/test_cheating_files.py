"""Files of operators that cheat are caught where they are measured, or when they are called from outside."""

import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.operators.benchmark.honest import HEAD as HONEST_HEAD
from tests.operators.benchmark.honest import HONEST
from tests.operators.benchmark.tricks import HEAD, TRICKS

from levelbench.checks import isolation
from levelbench.checks.isolation import run_isolated
from levelbench.experiments.own_operators import describe
from levelbench.measure.clocks import HOST
from levelbench.operators.benchmark import outside
from levelbench.operators.benchmark.measuring import TrialSettings, measure_problem, read_inputs
from levelbench.operators.benchmark.outside import call_from_outside
from levelbench.operators.benchmark.watching import SEAL
from levelbench.operators.custom.library import load_file
from levelbench.operators.frameworks import open_framework
from levelbench.records.benchmarks import Case, Problem

QUICK = (
    "a reference that the first call makes easier",
    "empties the seal",
)


@pytest.fixture(scope="module")
def forked():
    """Processes that have imported what is measured with, as those of a benchmark have."""
    with isolation.forking([__name__, "levelbench.frameworks.numpy.backend"]):
        yield


def measure(request, say):
    """Measure the first problem of a file as a process of a benchmark does."""
    backend = open_framework("numpy")
    SEAL.add_framework(backend)
    load_file(request["path"])
    problem = msgspec.convert(request["problem"], Problem)
    limits = TrialSettings(budget_s=1.0, memory_bytes=2**34, on_host=True)
    case, times_s = measure_problem(backend, problem, 0, 0, limits, backend.operator, Path(request["folder"]))
    say({"case": msgspec.to_builtins(case), "took_s": float(np.median(times_s)) if times_s else 0.0})


def first_problem(folder, source):
    """The file, and the first problem of the operators in it."""
    path = folder / "own.py"
    path.write_text(source)
    said = []
    request = {"path": str(path), "name": "", "folder": str(folder), "shapes": {}, "attributes": {}, "opset": None}
    ended = run_isolated(f"{describe.__module__}:describe", request, said.append, timeout_s=60)
    assert said, ended.printed
    return path, msgspec.convert(said[0]["problems"][0], Problem)


def judged(folder, source):
    """The status and reason of a file's first operator, also when it is called from outside."""
    path, problem = first_problem(folder, source)
    said = []
    request = {"path": str(path), "folder": str(folder), "problem": msgspec.to_builtins(problem)}
    ended = run_isolated(f"{__name__}:measure", request, said.append, timeout_s=120)
    assert said, ended.printed
    case = msgspec.convert(said[0]["case"], Case)
    if case.status != "measured":
        return case.status, case.reason
    inputs = read_inputs(problem, 0, 0, folder)
    found = call_from_outside(path, problem, "numpy", inputs, said[0]["took_s"])
    return found.status or "measured", found.reason


@pytest.mark.parametrize(
    "name", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in TRICKS]
)
def test_a_file_that_cheats_is_caught_and_the_trick_is_named(name, forked, tmp_path):
    source, words = TRICKS[name]
    status, reason = judged(tmp_path, HEAD + source)
    assert status in ("refused", "wrong", "unchecked"), reason
    assert any(word in reason for word in words.split("|")), reason


@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_file_is_not_accused(name, forked, tmp_path):
    if name == "C++" and not shutil.which("g++"):
        pytest.skip("there is no compiler")
    status, reason = judged(tmp_path, HONEST_HEAD + HONEST[name])
    assert status == ("unchecked" if name.startswith("unchecked") else "measured"), reason


SLOW = """
class Own(CustomOperator):
    def forward(self, x):
        time.sleep(0.001)
        return np.tanh(x)
    def reference(self, x): return np.tanh(x)
    def examples(self, random):
        yield (normal(random, 4, 8),)
"""


def test_waiting_for_a_core_is_not_the_time_of_an_operator(forked, tmp_path, monkeypatch):
    path, problem = first_problem(tmp_path, HONEST_HEAD + SLOW)
    inputs = read_inputs(problem, 0, 0, tmp_path)
    assert call_from_outside(path, problem, "numpy", inputs, 1e-6).status == "refused"
    monkeypatch.setattr(outside, "waited_ns", lambda process: HOST.now_ns())
    assert call_from_outside(path, problem, "numpy", inputs, 1e-6).status == ""
