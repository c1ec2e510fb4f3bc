"""LB121: the time of a training that was not done."""

from tests.claims.clean import changes, clean_claim, found, other_findings

from levelbench.claims.rules.lb121_iterations_extrapolated import rule

BIG = "scaling[2]"
FEW = {f"{BIG}.iterations_measured": 50, f"{BIG}.extrapolated": None, f"{BIG}.reached": None}
SILENT = {f"{BIG}.iterations_measured": None, f"{BIG}.extrapolated": None, f"{BIG}.reached": None}

GUILTY = {
    "few iterations at a point of scaling": (FEW, ("error", f"{BIG}.iterations_measured")),
    "stated to be extrapolated": ({f"{BIG}.extrapolated": True}, ("warning", f"{BIG}.extrapolated")),
    "a side's time to the target from fewer iterations than it takes": (
        {"sides[0].workload.iterations_measured": 100},
        ("error", "sides[0].workload.iterations_measured"),
    ),
    "a side's time of a run": (
        {"sides[1].workload.iterations_measured": 100, "sides[1].time_of": "run"},
        ("error", "sides[1].workload.iterations_measured"),
    ),
}
INNOCENT = {
    "trained for a fixed time": {**SILENT, f"{BIG}.fixed_time": True},
    "the time of a step from a few of them": {**FEW, "sides[0].time_of": "step"},
    "a side's time of a step": {"sides[0].workload.iterations_measured": 100, "sides[0].time_of": "step"},
    "throughput alone": {**FEW, f"{BIG}.time_s": None},
    "all iterations at the point, and nobody says more": {f"{BIG}.extrapolated": None, f"{BIG}.reached": None},
    "trained to the target, counts not given": {**SILENT, f"{BIG}.reached": True},
    "said to be measured to the end": {**SILENT, f"{BIG}.extrapolated": False},
}
UNSTATED = {
    "how many iterations were measured": (SILENT, f"{BIG}.extrapolated"),
    "what the time is of": ({**FEW, "sides[0].time_of": None}, f"{BIG}.iterations_measured"),
}


PLANTED = "the largest point is extrapolated", {"scaling[2].extrapolated": True}
IN_RECORDS = "a run of a record was run"


def test_a_point_of_a_side_that_is_not_there_is_read_all_the_same():
    assert found(rule, changes(clean_claim(), {f"{BIG}.side": "third", **SILENT})) == [
        ("not-stated", f"{BIG}.extrapolated")
    ]


def test_the_share_that_was_measured_is_given():
    (finding,) = rule.check(changes(clean_claim(), FEW))
    assert "(50 iterations of 1,000, 5 %)" in finding.found


def test_the_fault_alone_is_found_by_no_other_rule():
    assert other_findings(rule, changes(clean_claim(), {f"{BIG}.extrapolated": True})) == []
