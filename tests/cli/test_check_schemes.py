import json
import re
from functools import partial
from pathlib import Path

import pytest

from levelbench.distributed.probes import schemes

RIGHT = """
from dataclasses import dataclass
from levelbench.distributed import traffic
from levelbench.distributed.scheme import Scheme, SchemeStepper, Traffic
from levelbench.measure.timeline import Phase

class Stepper(SchemeStepper):
    def __init__(self, worker):
        self.worker, self.executor = worker, worker.executor
        worker.switch(Phase.COMMUNICATE)
        for live in (worker.executor.parameters, worker.executor.buffers):
            for name in live:
                live[name] = worker.communicator.broadcast(live[name])
        self.inner = worker.optimizer.start(worker.backend, worker.executor.parameters)

    def step(self, gradients, step, factor):
        self.worker.switch(Phase.COMMUNICATE)
        total = {name: self.worker.communicator.all_reduce(each * self.share) for name, each in gradients.items()}
        self.worker.switch(Phase.UPDATE)
        self.inner.step(total, step, factor)

@dataclass(frozen=True)
class Mine(Scheme):
    name = "mine"
    source = "none"
    consistent = True
    replicated = True

    def start(self, worker):
        return Stepper(worker)

    def traffic(self, parameters, itemsize, size, rank):
        total = Traffic(0, 0)
        for shape in parameters.values():
            elements = 1
            for each in shape:
                elements *= each
            total += traffic.all_reduce(elements, itemsize, size, rank)
        return total
"""
WRONG = RIGHT.replace("each * self.share", "each")


@pytest.fixture
def check(call, tmp_path, monkeypatch):
    """Write a scheme's file and check it, in few steps."""
    monkeypatch.setattr(schemes, "check_scheme", partial(schemes.check_scheme, steps=4))

    def run(text, *words):
        path = tmp_path / "my_scheme.py"
        path.write_text(text)
        return call("check", path, "--ranks", "3", *words)

    return run


@pytest.mark.slow
def test_a_right_scheme_ends_with_0(check):
    code, out, _ = check(RIGHT)
    assert code == 0
    assert "Mine on numpy: nothing found wrong" in out


@pytest.mark.slow
def test_a_wrong_one_ends_with_1_and_says_what_and_where(check):
    code, out, _ = check(WRONG)
    assert code == 1
    assert "gradients: 3 ranks, rank 0, step 1: " in out
    assert "a sum instead of a mean" in out
    assert "do: send the weighted gradients" in out


@pytest.mark.slow
def test_json_has_every_finding(check):
    code, out, _ = check(WRONG, "--json")
    found = json.loads(out)
    assert (code, found["passed"]) == (1, False)
    (report,) = found["reports"]
    assert report["name"] == "Mine on numpy"
    assert {"probe", "status", "found", "do", "case"} == set(report["findings"][0])
    assert {"well formed", "gradients", "lost rank", "every sample once"} <= {
        each["probe"] for each in report["findings"]
    }


@pytest.mark.slow
def test_a_name_with_settings_is_checked(call, monkeypatch):
    monkeypatch.setattr(schemes, "check_scheme", partial(schemes.check_scheme, only=("well formed",)))
    code, out, _ = call("check", "all-reduce[bucket_mb=2.0,overlap=false]", "--ranks", "2")
    assert code == 0
    assert "all-reduce[bucket_mb=2.0,overlap=false] on numpy: nothing found wrong" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--batch", "3"], "--batch found: .* holds a scheme"),
        (["--recipe", "x"], "--recipe found: .* holds a scheme"),
        (["--ranks", "1,2"], "it is not a list of numbers of at least 2"),
        (["--ranks", "many"], "it is not a list of numbers of at least 2"),
        (["--framework", "numpyy"], "numpy"),
    ],
)
def test_what_means_nothing_is_refused(check, words, said):
    code, _, err = check(RIGHT, *words)
    assert code == 2
    assert re.search(said, " ".join(err.split()))


def test_ranks_of_an_optimizer_are_refused(call, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("from levelbench.training import Adam\noptimizer = Adam(0.1)\n")
    code, _, err = call("check", path, "--ranks", "2")
    assert code == 2
    assert "--ranks" in err


def test_settings_that_a_scheme_of_a_file_has_not_are_refused(call, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(RIGHT)
    code, _, err = call("check", f"{path}[ratio=1]")
    assert code == 2
    assert "no setting of scheme" in " ".join(err.split())


@pytest.mark.slow
def test_the_example_of_the_docs_has_the_three_faults_that_they_tell_of(check):
    page = Path(__file__).parents[2] / "docs" / "guides" / "check-scheme.md"
    code = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)[0]
    _, out, _ = check(code)
    assert "ranks agree: 3 ranks, rank 1, step 1" in out
    assert "each rank has the same weight, whatever its part of the batch" in out
    assert "where sends wait for their receivers" in out
    assert "all ranks wait for each other" in out
