"""LB106: input that is not on the clock, or was ready before it began."""

from tests.claims.clean import changes, clean_claim, found, other_findings

from levelbench.claims.rules.lb106_no_input import rule

CLOCK, DATA = "sides[0].clock.data", "sides[0].data"
RATE = {
    **{f"sides[0].{name}": None for name in ("time_s", "time_of")},
    "sides[0].throughput": 4900.0,
    "comparisons": [],
    "sides[1].baseline": None,
    "title": "4,900 images/s in training",
}

GUILTY = {
    "the rate of a training whose batches lay in memory": (
        {**RATE, f"{DATA}.in_memory": True},
        [("warning", f"{DATA}.in_memory")],
    ),
    "input is not on the clock": ({CLOCK: False}, [("error", CLOCK)]),
    "nor when a step is timed": ({CLOCK: False, "sides[0].time_of": "step"}, [("error", CLOCK)]),
    "the data lay in memory beforehand": ({f"{DATA}.in_memory": True}, [("warning", f"{DATA}.in_memory")]),
    "both": (
        {CLOCK: False, f"{DATA}.in_memory": True},
        [("error", CLOCK), ("warning", f"{DATA}.in_memory")],
    ),
}
INNOCENT = {
    "a run that waits for input most of its time, on the clock": {f"{DATA}.stall_share": 0.7},
    "warm caches whose share of waiting is given": {f"{DATA}.cold": False},
    "cold caches without a share of waiting": {f"{DATA}.stall_share": None},
    "inference on tensors that are there": {CLOCK: False, "sides[0].time_of": "call"},
    "the rate of requests that are there": {**RATE, "title": "4,900 requests/s", f"{DATA}.in_memory": True},
    "synthetic data, which is another rule's": {CLOCK: None, f"{DATA}.synthetic": True, f"{DATA}.in_memory": True},
}
UNSTATED = {
    "whether input is on the clock": ({CLOCK: None}, CLOCK),
    "whether the data lay in memory": ({f"{DATA}.in_memory": None}, f"{DATA}.in_memory"),
    "cold or not, and what waiting costs": (
        {f"{DATA}.cold": None, f"{DATA}.stall_share": None},
        f"{DATA}.stall_share",
    ),
    "what a cold start costs": ({f"{DATA}.cold": False, f"{DATA}.stall_share": None}, f"{DATA}.stall_share"),
}


OWN = {"title": "94 % of CIFAR-10 in 30 s", CLOCK: None, "sides[0].clock.policy": None}


def test_input_is_asked_for_where_it_may_be_missing_from_an_own_figure():
    alone = {**OWN, "comparisons": [], "sides[1].baseline": None}
    assert found(rule, changes(clean_claim(), alone)) == [("not-stated", CLOCK)]


def test_two_sides_with_one_input_are_not_asked_about_it():
    assert found(rule, changes(clean_claim(), OWN)) == []


PLANTED = "input is not on the clock", {"sides[0].clock.data": False, "sides[1].clock.data": False}
IN_RECORDS = "every clock of ours has the input on it; under one that leaves preparation out it is not stated"


def test_a_hidden_stall_is_given_with_its_share():
    (finding,) = rule.check(changes(clean_claim(), {CLOCK: False, f"{DATA}.stall_share": 0.41}))
    assert "41 % of the whole time waits for it" in finding.found


def test_the_fault_alone_is_found_by_no_other_rule():
    both = {f"sides[{at}].clock.data": False for at in range(2)}
    assert other_findings(rule, changes(clean_claim(), both)) == []
