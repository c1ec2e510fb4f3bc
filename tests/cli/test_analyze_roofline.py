"""``levelbench analyze roofline``: what it takes for a subject, prints and writes, and what it refuses."""

import json

import msgspec
import pytest
from tests.analysis.test_roofline import profiles
from tests.report.pages import needs_matplotlib

from levelbench.experiments import roofline


@pytest.fixture
def measured(monkeypatch):
    """Jobs are kept and not measured: every subject gets known profiles with a step, an operator and a view."""
    jobs = []

    def known(job, processes, on_turn):
        jobs.append(job)
        found = profiles([0.4 + 0.01 * at for at in range(processes)], kind="training step", name="training step")
        operator = profiles([2.8] * processes, name="Conv")[0].rows[0]
        view = msgspec.structs.replace(operator, name="Reshape", share=None, bytes=0.0, flops=0.0, reason="a view")
        return [msgspec.structs.replace(each, rows=[*each.rows, operator, view]) for each in found]

    monkeypatch.setattr(roofline, "roofline_profiles", known)
    return jobs


def test_a_task_is_measured_and_a_result_above_the_roof_is_said_to_be_wrong(call, measured, tmp_path, golden):
    words = ("analyze", "roofline", "digits", "--framework", "numpy", "--store", tmp_path / "none")
    code, out, _ = call(*words)
    assert code == 0
    assert measured[0].step.specification.framework == "numpy"
    golden("roofline", out)


def test_a_network_of_the_zoo_is_a_model(call, measured):
    call("analyze", "roofline", "lenet5", "--framework", "numpy", "--batch", "8")
    assert (measured[0].network.case.batch, measured[0].network.arm.framework) == (8, "numpy")


def test_runs_of_another_machine_are_refused(call, measured, store):
    code, _, err = call("analyze", "roofline", "digits[framework=numpy]", "--store", store)
    assert (code, measured) == (2, [])
    assert "the runs were made on another machine" in err


def test_the_recorded_steps_of_runs_stand_beside_those_of_now(call, measured, store, monkeypatch):
    monkeypatch.setattr("levelbench.experiments.profiling.why_no_profile", lambda *given: "")
    code, out, _ = call("analyze", "roofline", "digits[framework=numpy]", "--store", store, "--json")
    assert code == 4
    places = json.loads(out)["places"]
    recorded = next(each for each in places if each["kind"] == "recorded step")
    assert recorded["name"] == "recorded steps (5 runs)"
    assert recorded["wrong"] == "roof"
    assert recorded["time_s"]["value"] == pytest.approx(1e-3, rel=1e-3)


@needs_matplotlib
def test_it_is_drawn_under_the_slope_of_each_level(call, measured, tmp_path):
    files = ("--plot", tmp_path / "r.svg", "--markdown", tmp_path / "r.md", "--csv", tmp_path / "r.csv")
    call("analyze", "roofline", "digits", "--framework", "numpy", "--store", tmp_path / "none", *files)
    text = (tmp_path / "r.svg").read_text()
    assert all(f"<!-- {name} GB/s -->" in text for name in ("L1, 200", "memory, 20.0"))
    assert "<!-- operator, forward, no share -->" in text
    assert "training step" in (tmp_path / "r.csv").read_text()
    assert "Roofs" in (tmp_path / "r.md").read_text()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("digits", "--batch", "8"), "they are a network's"),
        (("lenet5", "--batch", "1,8"), "a roofline is of one batch"),
        (("digits", "--budget", "0"), "leaves no time"),
        (("digitz",), "digitz"),
    ],
)
def test_what_cannot_be_measured_is_refused(call, measured, tmp_path, words, found):
    (tmp_path / "store").mkdir()
    code, _, err = call("analyze", "roofline", *words, "--store", tmp_path / "store")
    assert (code, measured) == (2, [])
    assert found in " ".join(err.split())
