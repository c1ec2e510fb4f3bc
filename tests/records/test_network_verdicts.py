"""Arms of a network benchmark are compared with the first; doubts are listed."""

import math

import pytest
from tests.records.network_records import arm, entry, noisy, specification, write

from levelbench.measure.verdict import VerdictKind
from levelbench.records.network_summary import summarise_networks
from levelbench.records.networks import NetworkFacts, NetworkOutcome


def test_each_arm_is_judged_against_the_first(tmp_path):
    a = arm(tmp_path, "torch", [noisy(1.0, at) for at in range(5)])
    b = arm(tmp_path, "jax", [noisy(0.5, at + 1) for at in range(5)])
    summary = summarise_networks([[a, b]])
    first, second = summary.rows[0][1]
    assert first.verdict is None
    assert second.verdict.kind == VerdictKind.FASTER
    assert second.verdict.reason == "paired by seed"
    assert summary.totals[1].verdict.kind == VerdictKind.FASTER


def test_over_many_cases_a_verdict_must_survive_holms_correction(tmp_path):
    """Alone 1.4 % slower at p of about 0.02; among fifty cases without a difference that is to be expected."""
    noise = [[1 + 0.004 * math.sin(1 + 7 * at + 13 * process) for at in range(50)] for process in range(6)]
    grid = []
    for at in range(50):
        shift = 1.014 if at == 0 else 1.0
        times = [noise[p][at] for p in range(3)], [shift * noise[p + 3][at] for p in range(3)]
        grid.append([arm(tmp_path, name, each, at + 1) for name, each in zip(("torch", "jax"), times, strict=True)])
    many = summarise_networks(grid, margin=0.001).rows[0][1][1].verdict
    alone = summarise_networks(grid[:1], margin=0.001).rows[0][1][1].verdict
    assert alone.kind == VerdictKind.SLOWER
    assert many.kind == VerdictKind.UNCLEAR
    assert "not among 50 cases (Holm)" in many.reason


def test_a_wrong_result_is_not_compared(tmp_path):
    a = arm(tmp_path, "torch", [1.0] * 3)
    b = arm(tmp_path, "jax", [0.5] * 3, outcome=NetworkOutcome("wrong", "output 0 is off by 0.1"))
    summary = summarise_networks([[a, b]])
    assert summary.rows[0][1][1].verdict is None
    assert summary.rows[0][1][1].reason == "output 0 is off by 0.1"
    assert summary.totals[1].compared == 0


def test_a_crash_in_one_process_is_a_failure_that_keeps_the_times_of_the_others(tmp_path):
    spec = specification()
    crashed = write(tmp_path, spec, 0, None, outcome=NetworkOutcome("failed", "its process was killed by signal 11"))
    found = entry([crashed, write(tmp_path, spec, 1)])
    assert (found.status, found.reason) == ("failed", "its process was killed by signal 11")
    assert list(found.times_s) == [1]


def test_a_case_skipped_in_one_process_counts_the_others_and_says_so(tmp_path):
    spec = specification()
    skipped = write(tmp_path, spec, 0, None, outcome=NetworkOutcome("skipped", "it ran out of memory"))
    found = entry([skipped, write(tmp_path, spec, 1)])
    assert found.status == "measured"
    assert found.reason == "skipped in 1 of 2 processes: it ran out of memory"


def test_arms_with_different_threads_are_doubted(tmp_path):
    a, b = (
        arm(tmp_path, name, [1.0] * 2, facts=NetworkFacts({"threads": n}, "m"))
        for name, n in (("torch", 2), ("jax", 1))
    )
    assert "different numbers of threads (torch 2, jax 1)" in summarise_networks([[a, b]]).suspect[0]


def test_arms_that_were_measured_one_after_the_other_are_doubted(tmp_path):
    a = [write(tmp_path, specification(), seed) for seed in range(2)]
    late = "2026-01-03T03:04:05.000+00:00"
    b = [write(tmp_path, specification("jax"), seed, started=late) for seed in range(2)]
    assert any("one after the other, not in turns" in each for each in summarise_networks([[a, b]]).suspect)


def test_each_doubt_of_processes_is_given_once_with_their_number(tmp_path):
    summary = summarise_networks([[arm(tmp_path, "torch", [1.0] * 2, suspect=("others kept a core busy",))]])
    assert summary.suspect == ("2 of 2 processes of torch: others kept a core busy",)


def test_a_transformed_network_is_an_arm_of_its_own(tmp_path):
    spec = specification(transforms=("precision:bfloat16",))
    a, b = arm(tmp_path, "torch", [1.0] * 2), [write(tmp_path, spec, seed, [0.9] * 6) for seed in range(2)]
    summary = summarise_networks([[a, b]])
    assert [each.title for each in summary.arms] == ["torch", "torch + precision:bfloat16"]
    assert summary.rows[0][1][1].verdict.ratio == pytest.approx(0.9)
