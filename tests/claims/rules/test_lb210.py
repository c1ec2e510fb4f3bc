"""LB210: lines between points that have nothing between them."""

import pytest
from tests.claims.clean import changes, clean_claim, found, other_findings

from levelbench.claims.rules.lb210_lines_through_unrelated_points import rule

F = "figures[2]"
JOINED = {f"{F}.joined": True}

GUILTY = {
    "points along ranks that cannot be interpolated": JOINED,
    "categories": {**JOINED, f"{F}.x": "category"},
    "categories that are said to be a scale": {**JOINED, f"{F}.x": "category", f"{F}.interpolable": True},
    "nobody knows along what": {**JOINED, f"{F}.x": None},
}
INNOCENT = {
    "a curve over time": {"figures[1].interpolable": None},
    "points without lines": {f"{F}.x": "category"},
    "ranks between which values have a meaning": {**JOINED, f"{F}.interpolable": True},
    "nobody says whether a curve is joined": {"figures[0].joined": None},
}
UNKNOWN = {
    "joined points along ranks": ({**JOINED, f"{F}.interpolable": None}, f"{F}.interpolable"),
    "categories, joined or not": ({f"{F}.joined": None, f"{F}.x": "category"}, f"{F}.joined"),
}


FINDING = "warning", f"{F}.joined"

PLANTED = "ranks that were not measured are joined by a line", {"figures[2].joined": True}
IN_RECORDS = "a record draws nothing"


@pytest.mark.parametrize(("planted", "field"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_between_the_points_is_asked_for(planted, field):
    assert found(rule, changes(clean_claim(), planted)) == [("not-stated", field)]


def test_no_other_rule_fires_on_its_fault():
    assert other_findings(rule, changes(clean_claim(), JOINED)) == []
