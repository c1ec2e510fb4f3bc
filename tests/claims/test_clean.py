"""The clean claim is clean, and a change to it is one that the schema allows."""

import msgspec
import pytest
from tests.claims.clean import changed, clean_claim

from levelbench.claims.rules import all_rules


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_no_rule_fires_on_the_clean_claim(rule):
    assert list(rule.check(clean_claim())) == []


def test_a_change_is_made_in_one_place_and_leaves_the_original():
    claim = changed(clean_claim(), "sides[1].hardware.peak_flops.float32", 1.0)
    assert claim.sides[1].hardware.peak_flops["float32"] == 1.0
    assert claim != clean_claim()
    assert changed(claim, "sides[1]", clean_claim().sides[1]) == clean_claim()


def test_an_index_beyond_the_end_adds_to_a_list():
    figure = clean_claim().figures[0]
    assert changed(clean_claim(), "figures[3]", figure).figures[3] == figure


@pytest.mark.parametrize(("path", "value"), [("sides[0].quality.split", "dev"), ("scaling[0].ranks", "four")])
def test_a_value_that_the_schema_does_not_allow_is_an_error(path, value):
    with pytest.raises(msgspec.ValidationError):
        changed(clean_claim(), path, value)


def test_a_field_that_does_not_exist_is_an_error():
    with pytest.raises(AttributeError, match="qualitty"):
        changed(clean_claim(), "sides[0].qualitty.split", "test")
