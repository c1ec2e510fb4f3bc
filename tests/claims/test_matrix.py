"""The confusion matrix: each rule fires at its own planted fault, and no other does but what a list explains."""

import pytest
from tests.claims.matrix import PAGE, fired, found_in_claim, found_in_records, page
from tests.claims.planted import ALSO, ALSO_IN_RECORDS, IN_CLAIM, IN_RECORDS, NOT_IN_RECORDS

from levelbench.claims.rules import all_rules

CODES = [rule.code for rule in all_rules()]


def also(reasons, code):
    return {fired for planted, fired in reasons if planted == code}


def test_every_rule_has_a_planted_fault():
    assert set(IN_CLAIM) == set(CODES)


def test_every_rule_can_be_planted_in_records_or_says_why_not():
    assert set(IN_RECORDS) | set(NOT_IN_RECORDS) == set(CODES)
    assert not set(IN_RECORDS) & set(NOT_IN_RECORDS)


@pytest.mark.parametrize("code", CODES)
def test_a_fault_in_a_claim_is_seen_by_its_rule_and_by_no_other(code):
    assert fired(found_in_claim(code)) == {code} | also(ALSO, code)


@pytest.mark.parametrize("code", IN_RECORDS)
def test_a_fault_in_records_is_seen_by_its_rule_and_by_no_other(code):
    assert fired(found_in_records(code)) == {code} | also(ALSO_IN_RECORDS, code)


@pytest.mark.parametrize("code", CODES)
def test_a_finding_says_where_the_fault_was_planted(code):
    paths = [path.partition("[")[0] for path in IN_CLAIM[code][1]]
    found = [each for each in found_in_claim(code) if each.code == code]
    assert any(each.field.partition("[")[0] in paths for each in found)


def test_the_page_says_what_the_rules_do():
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.claims.matrix writes it anew"
