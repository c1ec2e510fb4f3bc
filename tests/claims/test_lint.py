"""Running the rules: order, selection, what is ignored, what fails."""

from types import NoneType
from typing import get_args, get_origin

import msgspec
import pytest
from tests.claims.clean import clean_claim
from tests.claims.made import ERROR, PAGE, RULES, UNSAID, claim

from levelbench.claims.lint import checked_reason, chosen_rules, find_rule, findings_of, lint, read_ignore
from levelbench.claims.reading.claim_file import hints
from levelbench.claims.rule import SEVERITIES
from levelbench.claims.rules import all_rules
from levelbench.claims.rules._common import number, pairs, seconds
from levelbench.claims.view import Claim, ComparisonView, Side, TimingView
from levelbench.errors import UnknownNameError, UsageError
from levelbench.report.numbers import plural


def codes(findings):
    return [each.code for each in findings]


def test_the_same_question_about_several_sides_is_asked_once():
    three = [Side(name, time_s=1.0, time_of="call", timing=TimingView("a clock")) for name in ("a", "b", "c")]
    (asked,) = findings_of(Claim("three calls", three))
    assert asked.found.endswith("(and 2 more like it)")


def test_what_can_change_most_is_asked_first():
    asked = [each.code for each in findings_of(Claim("a training", [Side("a", time_s=9.0, time_of="run")]))]
    assert asked == ["LB102", "LB204", "LB208"]


def test_the_worst_comes_first():
    assert codes(findings_of(claim(), RULES)) == ["LB105", "LB204", "LB103"]


def test_a_clean_and_complete_claim_has_no_finding():
    assert findings_of(clean_claim()) == []


def test_a_claim_that_states_nothing_is_guilty_of_nothing():
    silent = Claim(
        "faster", [Side("ours"), Side("theirs", baseline=True)], comparisons=[ComparisonView("ours", "theirs")]
    )
    assert {each.severity for each in findings_of(silent)} <= {"not-stated"}


@pytest.mark.parametrize(("least", "shown"), [("error", 1), ("warning", 2), ("not-stated", 3)])
def test_a_severity_shows_what_is_so_severe_and_worse(least, shown):
    (linted,) = lint([("a.toml", claim())], RULES).linted
    assert len(linted.shown(least)) == shown


@pytest.mark.parametrize(("rules", "failing"), [(RULES, "error"), ((UNSAID,), "not-stated"), ((PAGE,), None)])
def test_a_report_fails_from_the_worst_severity_that_it_has(rules, failing):
    report = lint([("a.toml", claim())], rules)
    failed = {least for least in SEVERITIES if report.fails(least)}
    assert failed == (set(SEVERITIES[SEVERITIES.index(failing) :]) if failing else set())
    assert not report.fails(None)


def test_what_is_ignored_is_kept_with_its_reason_and_fails_nothing():
    report = lint([("a.toml", claim())], (ERROR,), {"LB105": "the part is the whole here"})
    (suppressed,) = report.suppressed()
    assert suppressed.reason == "the part is the whole here"
    assert codes([suppressed.finding]) == ["LB105"]
    assert not report.fails("not-stated")
    assert set(report.counts().values()) == {0}


@pytest.mark.parametrize("text", ["LB105", "LB105=", "LB105=  ", 'LB105=""', "kernels-only=--"])
def test_to_ignore_a_rule_without_a_reason_is_an_error(text):
    with pytest.raises(UsageError, match="no reason"):
        read_ignore([text])


def test_a_reason_may_hold_an_equals_sign_and_becomes_one_line():
    assert read_ignore(["kernels-only=n = 5,\n see note 4"]) == {"LB105": "n = 5, see note 4"}
    assert checked_reason("LB105", '"quoted"') == "quoted"


@pytest.mark.parametrize("word", ["LB105", "lb105", "kernels-only", " Kernels-Only "])
def test_a_rule_is_found_by_code_and_by_name(word):
    assert find_rule(word).code == "LB105"


@pytest.mark.parametrize(("word", "close"), [("kernel-only", "kernels-only"), ("LB1O5", "LB105")])
def test_an_unknown_rule_is_answered_with_the_nearest(word, close):
    with pytest.raises(UnknownNameError) as error:
        find_rule(word)
    assert close in error.value.close


def test_the_beginning_of_a_code_selects_all_that_begin_so():
    assert codes(chosen_rules(["LB10"])) == [code for code in codes(all_rules()) if code.startswith("LB10")]
    assert codes(chosen_rules(["best-of-n,LB105", "LB105"])) == ["LB105", "LB123"]
    assert chosen_rules([]) == all_rules()


def test_the_rules_are_sorted_and_each_file_is_named_after_its_rule():
    found = all_rules()
    assert codes(found) == sorted(set(codes(found)))
    for rule in found:
        expected = f"{rule.code.lower()}_{rule.name.replace('-', '_')}"
        assert rule.check.__module__.rpartition(".")[2] == expected


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_a_rule_has_a_whole_page(rule):
    words = (rule.why, rule.point, rule.practice, rule.bad, rule.good, rule.source, rule.blind)
    assert all(text.strip() for text in words)
    assert rule.reads
    assert rule.why.endswith(".")
    assert rule.way == (int(rule.code[3:]) % 20 if rule.code.startswith("LB1") else 0)


def reached(path):
    """What lies at the end of a path as rules name what they read; ``None`` where the view has no such place."""
    kind = Claim
    for name in path.replace("[]", "").split("."):
        if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
            return kind
        kind = hints(kind).get(name)
        kind = get_args(kind)[0] if get_origin(kind) is list else kind
        kind = next((each for each in get_args(kind) if isinstance(each, type) and each is not NoneType), kind)
    return kind


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_a_rule_reads_fields_that_exist(rule):
    assert [path for path in rule.reads if reached(path) is None] == []


def test_sides_are_paired_by_comparisons_or_else_by_the_one_baseline():
    sides = [Side("a"), Side("b", baseline=True), Side("c")]
    stated = Claim("t", sides, comparisons=[ComparisonView("a", "c"), ComparisonView("a", "gone")])
    assert [(pair.new.name, pair.base.name, pair.field) for pair in pairs(stated)] == [("a", "c", "comparisons[0]")]
    assert [(pair.new.name, pair.base.name) for pair in pairs(Claim("t", sides))] == [("a", "b"), ("c", "b")]
    assert list(pairs(Claim("t", [*sides, Side("d", baseline=True)]))) == []


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (number(1.6234), "1.62"),
        (number(12_345.6), "12,300"),
        (number(5.0), "5"),
        (number(0.94123, 4), "0.9412"),
        (number(2e13), "2e+13"),
        (number(float("nan")), "nan"),
        (seconds(0.002), "2 ms"),
        (seconds(90), "90 s"),
        (seconds(600), "10 min"),
        (seconds(9000), "2.5 h"),
        (plural(1, "run"), "1 run"),
        (plural(1200, "entry", "entries"), "1,200 entries"),
    ],
)
def test_numbers_are_printed_with_their_significant_digits(printed, expected):
    assert printed == expected
