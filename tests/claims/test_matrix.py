"""The confusion matrix: each rule fires at its own planted fault, and no other does but what a list explains."""

import pytest
from tests.claims.clean import changes, clean_claim, found
from tests.claims.matrix import (
    ALSO,
    ALSO_IN_RECORDS,
    CASES,
    IN_CLAIM,
    IN_RECORDS,
    PAGE,
    fired,
    found_in_claim,
    found_in_records,
    page,
)

ENOUGH = 3


def also(reasons, code):
    return {fired for planted, fired in reasons if planted == code}


def cases(kind):
    """(rule, claim, what the case says) for each case of that kind, which is a dict in a rule's test."""
    for code, case in CASES.items():
        for name, value in case.get(kind, {}).items():
            planted, said = value if isinstance(value, tuple) else (value, case.get("FINDING"))
            yield pytest.param(case["rule"], case.get("claim", in_clean)(planted), said, id=f"{code}: {name}")


def in_clean(planted):
    return changes(clean_claim(), planted)


@pytest.mark.parametrize("code", CASES)
def test_a_rule_has_three_guilty_and_three_innocent_cases(code):
    assert len(CASES[code]["GUILTY"]) >= ENOUGH
    assert len(CASES[code]["INNOCENT"]) >= ENOUGH


@pytest.mark.parametrize(("rule", "claim", "findings"), [*cases("GUILTY")])
def test_what_is_guilty_is_found(rule, claim, findings):
    assert found(rule, claim) == (findings if isinstance(findings, list) else [findings])


@pytest.mark.parametrize(("rule", "claim", "_"), [*cases("INNOCENT")])
def test_what_is_close_to_it_is_innocent(rule, claim, _):
    assert found(rule, claim) == []


@pytest.mark.parametrize(("rule", "claim", "field"), [*cases("UNSTATED")])
def test_what_is_missing_is_asked_for(rule, claim, field):
    assert found(rule, claim) == [("not-stated", field)]


@pytest.mark.parametrize("code", CASES)
def test_a_fault_in_a_claim_is_seen_by_its_rule_and_by_no_other(code):
    assert fired(found_in_claim(code)) == {code} | also(ALSO, code)


@pytest.mark.parametrize("code", IN_RECORDS)
def test_a_fault_in_records_is_seen_by_its_rule_and_by_no_other(code):
    assert fired(found_in_records(code)) == {code} | also(ALSO_IN_RECORDS, code)


@pytest.mark.parametrize("code", CASES)
def test_a_finding_says_where_the_fault_was_planted(code):
    paths = [path.partition("[")[0] for path in IN_CLAIM[code][1]]
    found = [each for each in found_in_claim(code) if each.code == code]
    assert any(each.field.partition("[")[0] in paths for each in found)


def test_the_page_says_what_the_rules_do():
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.claims.matrix writes it"
