"""``levelbench compare --why``: factors in text, table, JSON and figure, and what is said if something is missing."""

import json
import math

import pytest
from tests.report.pages import needs_matplotlib

SIDES = ("digits[framework=numpy]", "digits[framework=torch]")


def test_the_line_the_table_and_what_the_losses_say(call, store, golden, width):
    code, out, _ = call("compare", *SIDES, "--why", "--profiles", "0", "--store", store)
    assert code == 1
    golden(f"compare_why_{width}", out)


def test_without_why_nothing_changes(call, store, golden, width):
    _, out, _ = call("compare", *SIDES, "--store", store)
    golden(f"compare_{width}", out)


def test_as_json_the_factors_multiply_to_the_ratio(call, store):
    _, out, _ = call("compare", *SIDES, "--why", "--profiles", "0", "--store", store, "--json")
    why = json.loads(out)["why"]
    for name in ("", "time per sample"):
        logs = [math.log(each["ratio"]) for each in why["factors"] if each["within"] == name]
        assert math.exp(sum(logs)) == pytest.approx(why["ratio"], rel=1e-9)
    assert why["trajectories"]["kind"] == "identical"
    assert json.loads(out)["line"].startswith("digits[framework=torch] takes 1.3 times as long")


def test_runs_of_another_source_are_not_profiled_and_the_reason_is_given(call, store, monkeypatch):
    monkeypatch.setattr("levelbench.experiments.profiling.same_machine", lambda a, b: True)
    _, out, _ = call("compare", *SIDES, "--why", "--store", store, "--wide")
    assert "the source of digits has changed since its runs" in out


def test_runs_of_another_machine_are_not_profiled(call, store):
    _, out, _ = call("compare", *SIDES, "--why", "--store", store, "--wide")
    assert "the runs were made on another machine: profile them there" in out


def test_a_profile_splits_forward_and_backward(call, store, monkeypatch):
    from levelbench.experiments.profiling import StepProfile

    monkeypatch.setattr("levelbench.experiments.profiling.why_no_profile", lambda *given: "")
    first = [StepProfile(9, 1e-3, 2e-3, {"Gemm": at * 1e-4}, {"Gemm": 1.5e-3, "Relu": 1e-4}) for at in (6, 7, 8)]
    second = [StepProfile(9, 1e-3, 2e-3, {"Gemm": at * 1e-4}, {"Gemm": 1.8e-3}) for at in (8, 8, 9)]
    monkeypatch.setattr("levelbench.experiments.profiling.profile_sides", lambda *given: (first, second))
    _, out, _ = call("compare", *SIDES, "--why", "--store", store, "--json")
    factors = json.loads(out)["why"]["factors"]
    whole = {each["name"]: each["ratio"] for each in factors if each["within"] == "time per sample"}
    for phase, names in (
        ("forward", {"Gemm", "framework overhead"}),
        ("backward", {"Gemm", "Relu", "framework overhead"}),
    ):
        parts = {each["name"]: each["ratio"] for each in factors if each["within"] == phase}
        assert set(parts) == names
        assert math.prod(parts.values()) == pytest.approx(whole[phase], rel=1e-9)


def test_sides_of_two_machines_are_not_split(call, store, write):
    for seed in range(3):
        write(seed, f"cccc000{seed}", machine="m2", framework="jax")
    code, out, _ = call("compare", SIDES[0], "digits[framework=jax]", "--why", "--store", store, "--wide")
    assert code == 4
    assert "why: cannot be said" in out
    assert "run both here, in turns, under one task" in out
    (line,) = (each for each in out.splitlines() if "not split" in each)
    assert "the sides get no verdict (" in line
    assert "machine" in line
    assert "has ended" not in out


def test_a_target_that_no_run_reached_leaves_nothing_to_split(call, store):
    _, out, _ = call("compare", *SIDES, "--why", "--target", "0.99", "--store", store, "--wide")
    assert "no run of digits[framework=numpy] reached the target" in out
    assert "cannot be said" in out


@needs_matplotlib
def test_the_waterfall_is_drawn_and_written_beside_markdown(call, store, tmp_path):
    files = ("--plot", tmp_path / "why.svg", "--markdown", tmp_path / "why.md")
    _, out, _ = call("compare", *SIDES, "--why", "--profiles", "0", "--store", store, *files)
    assert f"plot: {tmp_path}/why.svg" in out
    text = (tmp_path / "why.svg").read_text()
    assert all(f"<!-- {name} -->" in text for name in ("forward", "backward", "samples to target", "whole time"))
    assert "| factor |" in (tmp_path / "why.md").read_text()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--plot", "why.svg"), "only --why draws or profiles"),
        (("--task-file", "my.py"), "only --why draws or profiles"),
        (("--why", "--profiles", "1"), "so few processes have no interval"),
    ],
)
def test_options_that_say_nothing_are_refused(call, store, words, found):
    code, _, err = call("compare", *SIDES, *words, "--store", store)
    assert code == 2
    assert found in " ".join(err.split())


def test_a_folder_of_data_in_the_environment_is_no_reason_to_refuse(call, store, monkeypatch, tmp_path):
    monkeypatch.setenv("LEVELBENCH_DATA", str(tmp_path))
    code, _, _ = call("compare", *SIDES, "--store", store, "--fail-on", "never")
    assert code == 0
