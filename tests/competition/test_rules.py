"""Every rule about one entry: a clean one has no findings, and a finding says where it is and what to do."""

from __future__ import annotations

import pytest
from tests.competition import (
    test_curve_rules,
    test_identity_rules,
    test_provenance_rules,
    test_result_rules,
)
from tests.competition.planting import times

from levelbench.competition.checks import CODES

HERE = "digits/training/ada_mlp.json"
PLANTED = [
    case[0]
    for module in (test_curve_rules, test_identity_rules, test_provenance_rules, test_result_rules)
    for case in module.CASES.values()
]


@pytest.mark.parametrize("kind", ["training", "dawnbench", "olympic", "inference"])
def test_a_clean_entry_has_no_finding(clean, kind):
    submission = clean.make(kind)
    assert clean.find(submission, f"{submission.task}/{submission.mode}/ada_mlp.json") == []


def test_every_code_of_a_finding_is_explained():
    assert set(PLANTED) <= CODES.keys()


def test_a_finding_names_file_field_and_what_to_do(clean):
    (found,) = clean.find(clean.make("training", {"runs[0].curve.quality": times(81.0)}), HERE)
    assert (found.file, found.field, found.severity) == (HERE, "runs[0].curve.quality[0]", "error")
    assert found.found == "81, on a scale from 0 to 1"
    assert found.do == "divide by 100: the scale ends at 1"
