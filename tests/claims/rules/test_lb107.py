"""LB107: rates of operations without their precision, convention, share of the peak, or what they achieve."""

from tests.claims.clean import changes, clean_claim, found, other_findings

from levelbench.claims.rules.lb107_highest_operations import rule

NEW = "sides[0].operations"
RATE = {"comparisons[0].of": "operations", "comparisons[0].ratio": 1.3}
MORE = {f"{NEW}.to_target": 1.4 * 1.4e16}

GUILTY = {
    "mixed precision is said, and no share": (
        {f"{NEW}.mixed": True, f"{NEW}.precisions": {}},
        ("warning", f"{NEW}.precisions"),
    ),
    "mixed precision is said, and one precision is given": (
        {f"{NEW}.mixed": True},
        ("warning", f"{NEW}.precisions"),
    ),
    "the shares leave a part out": (
        {f"{NEW}.precisions": {"bf16": 0.6, "fp32": 0.1}},
        ("warning", f"{NEW}.precisions"),
    ),
    "the rate is above the peak of its precision": (
        {f"{NEW}.flops": 4.0e14, f"{NEW}.precisions": {"float32": 1.0}, f"{NEW}.share_of_peak": 0.32},
        ("error", f"{NEW}.flops"),
    ),
    "the rate is above the peak of a precision by another of its names": (
        {
            f"{NEW}.flops": 4.0e14,
            f"{NEW}.precisions": {"fp8": 1.0},
            f"{NEW}.share_of_peak": 0.32,
            "sides[0].hardware.peak_flops": {"float8": 1e14},
        },
        ("error", f"{NEW}.flops"),
    ),
    "the share is above the whole": (
        {f"{NEW}.share_of_peak": 1.3, "sides[0].hardware": {}},
        ("error", f"{NEW}.share_of_peak"),
    ),
    "the share is of the peak of another precision": (
        {f"{NEW}.precisions": {"bfloat16": 0.5, "float32": 0.5}, f"{NEW}.flops": 1e13, f"{NEW}.share_of_peak": 0.008},
        ("warning", f"{NEW}.share_of_peak"),
    ),
    "rates of two precisions are compared": (
        {**RATE, "sides[1].operations.precisions": {"tf32": 1.0}, "sides[1].operations.share_of_peak": None},
        ("error", "comparisons[0].of"),
    ),
    "rates of two conventions are compared": (
        {**RATE, "sides[1].operations.counted_as": "1 a multiply-add"},
        ("error", "comparisons[0].of"),
    ),
    "a higher rate needs so many more operations that it is behind": (
        {**RATE, **MORE},
        ("error", f"{NEW}.to_target"),
    ),
    "a higher rate needs more operations and stays ahead": (
        {**RATE, f"{NEW}.to_target": 1.2 * 1.4e16},
        ("warning", f"{NEW}.to_target"),
    ),
    "the throughput is compared and its progress is less": (
        {**RATE, **MORE, "comparisons[0].of": "throughput"},
        ("error", f"{NEW}.to_target"),
    ),
}
INNOCENT = {
    "the share of the peak in the precision that most operations have": {
        f"{NEW}.precisions": {"bfloat16": 0.9, "float32": 0.1},
        f"{NEW}.flops": 1.25e14,
        f"{NEW}.share_of_peak": 0.1,
    },
    "mixed precision with its shares": {
        f"{NEW}.mixed": True,
        f"{NEW}.precisions": {"bfloat16": 0.97, "float32": 0.03},
        f"{NEW}.share_of_peak": None,
    },
    "shares that are rounded": {f"{NEW}.precisions": {"bfloat16": 0.667, "fp16": 0.33}},
    "no rate is claimed": {f"{NEW}.flops": None, f"{NEW}.precisions": {}, f"{NEW}.counted_as": None},
    "the share is rounded": {f"{NEW}.share_of_peak": 0.34},
    "a rate just below the peak": {
        f"{NEW}.flops": 4 * 19.4e12,
        f"{NEW}.precisions": {"fp32": 1.0},
        f"{NEW}.share_of_peak": None,
    },
    "more operations in a time to the target that is compared": MORE,
    "rates of one precision under two names": {**RATE, "sides[1].operations.precisions": {"BF16": 1.0}},
    "one convention in two spellings": {
        **RATE,
        "sides[1].operations.counted_as": "2 a Multiply-Add,  without recomputation",
    },
    "more operations at a lower rate hide nothing": {**RATE, **MORE, "comparisons[0].ratio": 0.9},
}


PLANTED = "mixed precision, of which no shares are given", {"sides[0].operations.mixed": True}
IN_RECORDS = (
    "operations of a record are stated with how they were counted, their precisions and share of a measured peak"
)


def test_a_bare_rate_is_asked_for_its_precision_share_and_convention():
    bare = {f"{NEW}.precisions": {}, f"{NEW}.mixed": None, f"{NEW}.share_of_peak": None, f"{NEW}.counted_as": None}
    missing = found(rule, changes(clean_claim(), bare))
    assert missing == [("not-stated", f"{NEW}.{name}") for name in ("precisions", "share_of_peak", "counted_as")]


def test_rates_that_are_compared_are_asked_for_the_operations_to_the_target():
    assert found(rule, changes(clean_claim(), {**RATE, f"{NEW}.to_target": None})) == [
        ("not-stated", f"{NEW}.to_target")
    ]


def test_the_finding_holds_the_rate_the_operations_and_the_progress():
    (finding,) = rule.check(changes(clean_claim(), {**RATE, **MORE}))
    assert "1.3 times the rate of 'base' and needs 1.4 times the operations" in finding.found
    assert "0.929 times the progress" in finding.found


def test_a_peak_that_is_not_stated_is_the_tables():
    unstated = {"sides[0].hardware.peak_flops": {}, f"{NEW}.share_of_peak": None}
    assert found(rule, changes(clean_claim(), unstated)) == []
    assert found(rule, changes(clean_claim(), {**unstated, f"{NEW}.flops": 1.4e15})) == [("error", f"{NEW}.flops")]


def test_a_mixture_has_the_peak_that_its_parts_allow():
    """Half at 1,248 and half at 78 TFLOP/s take 1 / (0.5 / 1248 + 0.5 / 78) = 146.8."""
    half = {f"{NEW}.precisions": {"bfloat16": 0.5, "float32": 0.5}, f"{NEW}.share_of_peak": None}
    assert found(rule, changes(clean_claim(), {**half, f"{NEW}.flops": 1.46e14})) == []
    assert found(rule, changes(clean_claim(), {**half, f"{NEW}.flops": 1.48e14})) == [("error", f"{NEW}.flops")]


def test_the_fault_alone_is_found_by_no_other_rule():
    assert other_findings(rule, changes(clean_claim(), {f"{NEW}.mixed": True, f"{NEW}.precisions": {}})) == []


def test_the_precision_of_a_rate_that_only_the_title_has_is_asked_for():
    untold = {f"sides[{at}].operations": {} for at in (0, 1)}
    claim = changes(clean_claim(), {**untold, "title": "600 TFLOP/s sustained"})
    assert found(rule, claim) == [("not-stated", "title")]
    assert found(rule, changes(claim, {"title": "600 TFLOP/s in bfloat16"})) == []
    assert found(rule, changes(claim, {"title": "A network of 4 GFLOPs is trained"})) == []
