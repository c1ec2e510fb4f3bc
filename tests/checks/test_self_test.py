"""Planted parts are counted by what a check said of them, and why."""

import pytest

from levelbench.checks import isolation
from levelbench.checks.findings import Finding, Report, failed
from levelbench.checks.self_test import JudgedPart, Planted, judge, outcome_of, score
from levelbench.errors import DefinitionError, MissingError

FAULT = Planted("the sign is wrong", ("value",))
RIGHT = Planted(None)
PROBES = {"value": ("forward", "reference")}


def said(*probes, found="it differs"):
    return [failed(found, probe=probe) for probe in probes]


@pytest.mark.parametrize(
    ("planted", "findings", "outcome"),
    [
        (FAULT, said("forward"), "right reason"),
        (FAULT, said("strides", "forward"), "right reason"),
        (FAULT, said("reference: long"), "right reason"),
        (FAULT, said("forwards"), "other reason"),
        (FAULT, said("strides"), "other reason"),
        (FAULT, [], "missed"),
        (RIGHT, [], "passed"),
        (RIGHT, said("forward"), "accused"),
        (FAULT, said("crash", found="its process ended in the check 'forward': SIGSEGV"), "right reason"),
        (FAULT, said("crash", found="its process ended in the check 'strides': SIGSEGV"), "other reason"),
        (Planted("a race", ("determinism",)), said("determinism"), "right reason"),
    ],
)
def test_the_outcome_is_decided_by_the_probes_that_failed(planted, findings, outcome):
    assert outcome_of(planted, findings, PROBES) == outcome


@pytest.mark.parametrize(
    ("planted", "all_findings", "enough"), [(FAULT, False, True), (RIGHT, False, False), (FAULT, True, False)]
)
def test_a_fault_that_is_found_needs_no_further_finding(planted, all_findings, enough):
    asked = []

    def check():
        asked.extend(isolation._enough.get()(each) for each in (*said("strides"), *said("forward")))
        return Report("one", ())

    judge("operators", "one", planted, check, PROBES, all_findings=all_findings)
    assert asked == [False, enough]


def raises(error):
    def check():
        raise error

    return check


def test_what_is_missing_here_is_not_counted():
    found = judge("operators", "one", FAULT, raises(MissingError("torch", "it is not installed", "install it")), PROBES)
    assert found.outcome == "not tried"
    assert score("operators", [found]).faults == 0


def test_a_right_part_that_cannot_be_checked_is_accused():
    found = judge("operators", "one", RIGHT, raises(DefinitionError("one", "it raises", "correct it")), PROBES)
    assert found.outcome == "accused"
    assert found.findings[0].found == "one: it raises"


def counted(**outcomes):
    found = []
    for outcome, number in outcomes.items():
        planted = RIGHT if outcome in ("passed", "accused") else FAULT
        found += [JudgedPart("operators", "one", planted, outcome.replace("_", " "), (), 1.0)] * number
    return score("operators", found)


def test_the_share_is_of_faults_found_for_the_right_reason():
    found = counted(right_reason=18, other_reason=1, missed=1, passed=7)
    assert (found.faults, found.right, found.share, found.seconds) == (20, 7, 0.9, 27.0)


@pytest.mark.parametrize(
    ("outcomes", "reached"),
    [
        ({"right_reason": 95, "missed": 5, "passed": 9}, True),
        ({"right_reason": 94, "missed": 6}, False),
        ({"right_reason": 94, "other_reason": 6}, False),
        ({"right_reason": 100, "accused": 1}, False),
        ({"passed": 3}, True),
    ],
)
def test_the_goal_is_95_in_100_and_nobody_accused(outcomes, reached):
    assert counted(**outcomes).reached is reached


def test_failures_with_one_thing_to_do_are_one_cause():
    one, two = failed("at step 1", "see its formula", probe="first step"), failed("at step 9", "copy it", probe="state")
    three = failed("at step 2", "see its formula", probe="reference")
    report = Report("mine", (one, two, three, Finding("rate", "passed")))
    assert report.causes == ((one, three), (two,))


def test_failures_of_one_probe_with_cases_and_without_advice_are_one_cause():
    alike = [failed(f"it differs by {by}", probe="dtypes", case=case) for by, case in ((1, "float16"), (2, "float32"))]
    assert Report("mine", tuple(alike)).causes == (tuple(alike),)


def test_different_failures_of_one_probe_without_cases_are_different_causes():
    one, two = failed("epsilon 0.1", probe="normalisation"), failed("momentum 0.2", probe="normalisation")
    assert Report("mine", (one, two)).causes == ((one,), (two,))
