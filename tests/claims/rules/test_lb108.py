"""LB108: the speed of one set of options and the quality of another."""

from tests.claims.clean import changes, clean_claim, found, other_findings

from levelbench.claims.rules.lb108_options_a_and_b import rule

SPEED, QUALITY = "sides[0].performance", "sides[0].accuracy"
FAST = {"name": "fast", "time_of": "call", "time_s": 0.01}
ACCURATE = {"name": "accurate", "quality": {"metric": "top-1 accuracy", "value": 0.95}}
SAME = {name: {"specification": "sha256:one"} for name in ("performance", "accuracy")}
TIMED = {"time_s": 30.0, "specification": "sha256:fast"}
JUDGED = {"quality": 0.943, "specification": "sha256:accurate"}


def two_variants(**more):
    return {
        "scaling": [],
        "sides[2]": FAST,
        "sides[3]": {**ACCURATE, **more},
        "comparisons[0]": {"new": "fast", "base": "base", "of": "throughput", "ratio": 2.0},
        "comparisons[1]": {"new": "accurate", "base": "base", "of": "quality"},
    }


GUILTY = {
    "the specifications differ": (
        {f"{QUALITY}.specification": "sha256:other"},
        ("error", f"{QUALITY}.specification"),
    ),
    "an option differs": (
        {f"{QUALITY}.options": {"batch": 500, "learning_rate": 0.4, "precision": "float32"}},
        ("error", f"{QUALITY}.options"),
    ),
    "an option differs from that of the rate": (
        {f"{QUALITY}.options": {"precision": "float32"}, f"{SPEED}.options": {"precision": "int8"}}
        | {"sides[0].time_s": None, "sides[0].throughput": 4100.0, "sides[0].operations.flops": None, "scaling": []},
        ("error", f"{QUALITY}.options"),
    ),
    "the commits differ": ({f"{QUALITY}.commit": "77aa01b"}, ("warning", f"{QUALITY}.commit")),
    "one of them had changes that are not in the commit": ({f"{SPEED}.dirty": True}, ("warning", f"{QUALITY}.dirty")),
    "the environments differ": ({f"{QUALITY}.environment": "sha256:77"}, ("warning", f"{QUALITY}.environment")),
    "no seed is in both": ({f"{QUALITY}.seeds": [6, 7]}, ("warning", f"{QUALITY}.seeds")),
    "the runs with a time have no quality and those with a quality no time": (
        {"sides[0].runs": [TIMED, TIMED, JUDGED]},
        ("error", "sides[0].runs"),
    ),
    "the speed is of one variant and the quality of another": (
        two_variants(),
        ("error", "comparisons[0].new"),
    ),
}
INNOCENT = {
    "the specification of a side without a speed": {
        f"{QUALITY}.specification": "sha256:other",
        "sides[0].time_s": None,
        "sides[0].operations.flops": None,
        "scaling": [],
    },
    "one commit, written shorter": {f"{QUALITY}.commit": "4f1c2aa90be11"},
    "both had the same changes": {f"{SPEED}.dirty": True, f"{QUALITY}.dirty": True},
    "the quality is of some of the seeds": {f"{QUALITY}.seeds": [2, 4]},
    "the two sides of the comparison have other options than each other": {
        f"{SPEED}.options": {"batch": 1000},
        f"{QUALITY}.options": {"batch": 1000},
    },
    "a time to the target, of which nothing but the runs is known": {QUALITY: {}},
    "runs of one specification, some without quality": {
        "sides[0].runs": [TIMED, {**JUDGED, "specification": "sha256:fast"}]
    },
    "a failed run of another specification": {"sides[0].runs": [TIMED, {**JUDGED, "failed": True}]},
    "the fast variant has its quality": {**two_variants(), "sides[2]": {**FAST, **SAME, "quality": {"value": 0.94}}},
    "the accurate variant has its time": two_variants(**SAME, time_s=0.04),
}


OTHER_OPTIONS = {"batch": 500, "learning_rate": 0.4, "precision": "float32"}

PLANTED = "the quality is of other options than the speed", {"sides[0].accuracy.options": OTHER_OPTIONS}
IN_RECORDS = "speed and quality of a record are of one run"


def test_a_time_of_a_step_is_asked_whether_the_quality_was_seen_with_the_same_options():
    claim = changes(clean_claim(), {"sides[0].time_of": "step", QUALITY: {}})
    assert found(rule, claim) == [("not-stated", QUALITY)]


def test_options_that_are_given_once_only_are_asked_for():
    once = {f"{SPEED}.specification": None, f"{QUALITY}.options": {"batch": 500, "precision": "bfloat16"}}
    (finding,) = rule.check(changes(clean_claim(), once))
    assert (finding.severity, finding.field) == ("not-stated", f"{QUALITY}.options")
    assert "learning_rate" in finding.found


def test_the_finding_names_the_options_with_both_values():
    other = {"batch": 64, "learning_rate": 0.4, "precision": "float32"}
    (finding,) = rule.check(changes(clean_claim(), {f"{QUALITY}.options": other}))
    assert "batch 500 and 64; precision bfloat16 and float32" in finding.found


def test_the_fault_alone_is_found_by_no_other_rule():
    assert other_findings(rule, changes(clean_claim(), {f"{QUALITY}.specification": "sha256:other"})) == []
