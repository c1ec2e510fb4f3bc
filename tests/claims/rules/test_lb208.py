"""LB208: how a time was taken."""

from tests.claims.clean import changes, clean_claim, found, other_findings

from levelbench.claims.rules.lb208_timing_method_unstated import rule

T = "sides[0].timing"
STEP = {"sides[0].time_of": "step"}
ON_CPU = {
    "sides[0].hardware.accelerator": None,
    "sides[0].hardware.accelerators": None,
    "sides[0].hardware.description": "c5.18xlarge",
    "sides[0].workload.ranks": 1,
}

GUILTY = {
    "a step on accelerators that nobody waited for": (
        {**STEP, f"{T}.synchronised": False},
        ("error", f"{T}.synchronised"),
    ),
    "a call on a device that only the description names": (
        {**ON_CPU, "sides[0].time_of": "call", f"{T}.synchronised": False, "sides[0].hardware.description": "1 x V100"},
        ("error", f"{T}.synchronised"),
    ),
    "an epoch of several ranks that nobody waited for": (
        {**ON_CPU, "sides[0].time_of": "epoch", f"{T}.synchronised": False, "sides[0].workload.ranks": 8},
        ("error", f"{T}.synchronised"),
    ),
    "the first steps are in it": ({**STEP, f"{T}.warmup": False}, ("warning", f"{T}.warmup")),
}
INNOCENT = {
    "a step that was waited for": STEP,
    "a step on a processor waits by itself": {**STEP, **ON_CPU, f"{T}.synchronised": False},
    "a whole run ends with reading a result": {f"{T}.synchronised": False},
    "a whole run has its warm-up in it": {f"{T}.warmup": False},
    "no time is claimed": {"sides[0].time_s": None, f"{T}.method": None},
}


PLANTED = (
    "the time of a step was read without waiting for the device",
    {"sides[0].timing.synchronised": False, "sides[0].time_of": "step", "sides[1].time_of": "step"},
)
IN_RECORDS = "the clock of a record is known, and it waits for its device"


def test_the_method_is_asked_for():
    assert found(rule, changes(clean_claim(), {f"{T}.method": None})) == [("not-stated", f"{T}.method")]


def test_whether_a_step_on_an_accelerator_was_waited_for_is_asked():
    planted = changes(clean_claim(), {**STEP, f"{T}.synchronised": None})
    assert found(rule, planted) == [("not-stated", f"{T}.synchronised")]


def test_no_other_rule_fires_on_its_fault():
    assert other_findings(rule, changes(clean_claim(), {f"{T}.method": None})) == []
