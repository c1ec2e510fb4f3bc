"""``levelbench optimizer``: what it refuses, and one small comparison from the command to the table, with its check."""

import json

import pytest

from levelbench.checks.findings import Report, failed, not_tried, passed
from levelbench.cli import optimizer_verb
from levelbench.experiments import operators as benchmarks
from levelbench.experiments import own_optimizers

QUICK = ("--framework", "numpy", "-n", "3", "--budget-s", "0.02", "--batch", "8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("Adm",), 2, "close: Adam"),
        (("Adam[beta=1]",), 2, "close: beta"),
        (("Adam", "--beside", "SDG"), 2, "close: SGD"),
        (("Adam", "--beside", ","), 2, "names no optimizer"),
        (("Adam", "--beside", "Adam"), 2, "names an optimizer twice"),
        (("Adam", "--framework", "nunpy"), 2, "close: numpy"),
        (("Adam", "--framework", ","), 2, "names no framework"),
        (("Adam", "--framework", "numpy", "--device", "cuda"), 3, "numpy runs on cpu only"),
        (("Adam", "--network", "lenet6"), 2, "close: lenet5"),
        (("Adam", "--task", "digts"), 2, "close: digits"),
        (("Adam", "--task", "digits[hiden=3]"), 2, "close: hidden"),
        (("Adam", "--task", "my_task.py"), 2, "give the name of a task"),
        (("Adam", "--shape", "W=2:int64", "--framework", "numpy"), 2, "parameters are float32"),
        (("Adam", "--shape", "2x2", "--framework", "numpy"), 2, "NAME=SIZES"),
        (("none.py",), 2, "no such file"),
        (("Adam", "-n", "0"), 2, "-n"),
        (("Adam", "--margin", "2"), 2, "2 per cent"),
    ],
)
def test_a_command_that_cannot_be_meant_is_answered_in_three_parts(call, tmp_path, words, code, says):
    found, out, err = call("optimizer", *words, "--store", tmp_path / "store")
    assert found == code, err
    assert [line.split(":")[0].strip() for line in err.strip().splitlines()[-3:]] == ["error", "found", "do"]
    assert says in err
    assert not list(tmp_path.rglob("*.jsonlines"))
    assert "Traceback" not in out + err


@pytest.fixture
def quick(call, tmp_path, monkeypatch):
    """The command without measured ceilings, and with a check that finds what it is given."""
    process = benchmarks._process

    def told(job, starter, on_note=None):
        if job.seed is not None:
            return process(job, starter, on_note)
        return [benchmarks.Note(ceilings={"flop_s": {}, "bandwidth_b_s": {}})]

    def run(*words, finding=None, **more):
        report = Report("Adam", (finding or passed("", probe="first step"),))
        monkeypatch.setattr(benchmarks, "_process", told)
        monkeypatch.setattr(own_optimizers, "check_subject", lambda *_, **__: report)
        return call("optimizer", *words, *QUICK, "--store", tmp_path / "store", **more)

    return run


@pytest.mark.slow
def test_an_update_and_a_step_are_compared_in_one_table(quick, tmp_path):
    words = ("Adam[lr=0.002]", "--beside", "SGD", "--shape", "W=8x8")
    code, out, err = quick(*words, "--json", "--csv", tmp_path / "t.csv")
    assert code == 0, err
    found = json.loads(out)
    assert found["frameworks"] == ["Adam[lr=0.002] on numpy", "SGD on numpy"]
    assert found["baselines"] == ["Adam[lr=0.002] on numpy"] * 2
    names = [each["problem"]["name"] for each in found["problems"]]
    assert names == [
        "update of mlp: 4 tensors, 9,610 numbers",
        "update of 8x8: 1 tensor, 64 numbers",
        "step of mlp, batch 8",
    ]
    for problem in found["problems"]:
        first, second = problem["results"].values()
        assert (first["status"], second["status"], first["verdict"]) == ("measured", "measured", None)
        assert second["verdict"]["ratio"] > 0
    assert found["check"]["passed"]
    assert (tmp_path / "t.csv").read_text().count("\n") == 3
    code, out, err = quick(*words)
    assert "6 done · 0 to go" in out, err
    assert "check of Adam: nothing found wrong" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("finding", "code", "status", "says"),
    [
        (failed("it differs", probe="first step"), 1, "wrong", "a wrong optimizer gets no verdict"),
        (not_tried("nothing to do", probe="first step"), 4, "unchecked", "could judge nothing"),
    ],
)
def test_an_optimizer_that_the_check_does_not_find_right_gets_no_verdict(quick, finding, code, status, says):
    found, out, err = quick("Adam", "--beside", "SGD", "--json", finding=finding)
    assert found == code, err
    for problem in json.loads(out)["problems"]:
        first, second = problem["results"].values()
        assert (first["status"], second["status"], second["verdict"]) == (status, "measured", None)
        assert first["times_s"]
    found, out, err = quick("Adam", "--beside", "SGD", finding=finding)
    assert says in out or status in out


@pytest.mark.slow
def test_time_to_accuracy_is_a_row_of_the_same_table(quick):
    words = ("Momentum[lr=0.05]", "--beside", "Momentum[lr=0.1]", "--task", "digits")
    code, out, err = quick(*words, "--json")
    assert code in (0, 1), err
    found = json.loads(out)
    row = found["problems"][-1]
    assert row["problem"]["name"] == "digits to 0.96 (mlp)"
    first, second = row["results"].values()
    assert len(first["times_s"]) == 3
    assert first["time"]["value"] > 0
    assert second["verdict"]["kind"] in ("FASTER", "SLOWER", "SAME", "UNCLEAR")
    assert "rates are as given" in found["remarks"][-1]
    code, out, err = quick(*words)
    assert "6 wanted · 6 done · 0 to go" in out, err


def test_others_are_compared_with_the_first_on_the_same_framework():
    subject, native, other = (
        own_optimizers.NamedOptimizer(name, name, {}, framework)
        for name, framework in (("Adam", ""), ("optax.adamw", "jax"), ("SGD", ""))
    )
    found = own_optimizers.OwnOptimizers(subject, (native, other))
    arms = [(subject, "torch"), (other, "torch"), (subject, "jax"), (native, "jax"), (other, "jax")]
    assert optimizer_verb._baselines(found, arms) == [0, 0, 0, 2, 2]
    assert optimizer_verb.arm_label(native, "jax") == "optax.adamw"
    assert optimizer_verb.arm_label(other, "jax") == "SGD on jax"
