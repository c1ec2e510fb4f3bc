"""The claim to fill in: every field that a rule can see, and nothing that its reader would refuse."""

import re

import msgspec
from tests.claims.test_claim_file import uncommented

from levelbench.claims.lint import findings_of
from levelbench.claims.reading.claim_file import parse_claim
from levelbench.claims.reading.template import one_page, template
from levelbench.claims.rules import all_rules
from levelbench.claims.view import Claim


def test_the_template(golden):
    golden("lint_template", template(()))


def test_a_template_that_is_filled_in_states_every_field_but_who_read_it():
    claim = parse_claim(uncommented(template()))
    stated = msgspec.to_builtins(claim)

    def missing(value, kind, path):
        for field in msgspec.structs.fields(kind):
            at = f"{path}.{field.name}"
            inside = getattr(value, field.name)
            first = inside[0] if isinstance(inside, list) and inside else inside
            if isinstance(first, msgspec.Struct):
                yield from missing(first, type(first), at)
            elif inside is None or inside in ({}, []):
                yield at

    assert list(missing(claim, Claim, "claim")) == []
    assert stated["sides"][0]["quality"]["split"] == "train"


def test_an_empty_template_is_guilty_of_nothing():
    assert {each.severity for each in findings_of(parse_claim(template()))} <= {"not-stated"}


def test_a_field_is_asked_for_with_the_rules_that_read_it():
    asked = template()
    for rule in all_rules():
        assert rule.code in asked, f"{rule.code} reads {rule.reads}, and the template has none of it"


def test_no_line_is_too_long():
    assert max(len(line) for line in template().splitlines()) <= 120
    assert not re.search(r"[ \t]+\n", template())


def test_a_transcription_fits_on_a_page_and_is_read_as_it_is_filled_in():
    lines = one_page().splitlines()
    assert (len(lines) <= 60, max(map(len, lines)) <= 120) == (True, True)
    claim = parse_claim(uncommented(one_page()))
    assert (claim.sides[0].quality.split, claim.comparisons[0].of) == ("train", "target")
    assert {each.severity for each in findings_of(parse_claim(one_page()))} <= {"not-stated"}
