"""Every rule is proved both ways: at least three guilty cases, and three that are close and innocent."""

from importlib import import_module

import pytest

from levelbench.claims.rules import all_rules

ENOUGH = 3


@pytest.mark.parametrize("code", [rule.code for rule in all_rules()])
def test_a_rule_has_three_guilty_and_three_innocent_cases(code):
    cases = vars(import_module(f"tests.claims.rules.test_{code.lower()}"))
    assert len(cases["GUILTY"]) >= ENOUGH
    assert len(cases["INNOCENT"]) >= ENOUGH
