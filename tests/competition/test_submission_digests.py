"""Digests: equal entries have equal digests, however they were written; the canonical bytes are readable JSON."""

from __future__ import annotations

import hashlib
import json
import math

import msgspec
import pytest

from levelbench.competition.entries import (
    SubmittedCurve,
    curve_digest,
    encode,
    file_digest,
    parse_submission,
    submission_digest,
)
from levelbench.errors import RecordError


def test_a_curves_digest_is_that_of_its_canonical_text():
    text = b'{"time_s":[1.0,2.5],"quality":[0.5,0.75],"epoch":[1.0,2.0],"samples":[10,20],"others":{"a":[1.0,2.0]}}'
    curve = SubmittedCurve([1.0, 2.5], [0.5, 0.75], [1.0, 2.0], [10, 20], {"a": [1.0, 2.0]})
    assert curve_digest(curve) == hashlib.sha256(text).hexdigest()


def test_whole_numbers_and_floats_are_one_curve():
    assert curve_digest(SubmittedCurve([1, 2], [0, 1])) == curve_digest(SubmittedCurve([1.0, 2.0], [0.0, 1.0]))


@pytest.mark.parametrize(
    "other",
    [
        SubmittedCurve([1.0, 2.000001], [0.5, 0.6]),
        SubmittedCurve([1.0, 2.0], [0.5, 0.6], epoch=[1.0, 2.0]),
        SubmittedCurve([1.0], [0.5]),
    ],
)
def test_another_curve_has_another_digest(other):
    assert curve_digest(other) != curve_digest(SubmittedCurve([1.0, 2.0], [0.5, 0.6]))


def test_the_layout_of_a_file_does_not_change_its_digest(clean):
    submission = clean.make()
    laid_out = json.dumps(json.loads(encode(submission)), indent=4, sort_keys=True).encode()
    assert submission_digest(parse_submission(laid_out)) == submission_digest(submission)


def test_each_field_and_each_run_has_a_line_of_its_own(clean):
    lines = encode(clean.make()).decode().splitlines()
    assert lines[0] == "{"
    assert lines[1] == ' "schema": 1,'
    assert sum(line.startswith('  {"curve":') for line in lines) == 5


def test_what_is_not_finite_cannot_be_written(clean):
    broken = clean.make("training", {"runs[1].curve.quality": [math.nan] * 6}, digests=False)
    with pytest.raises(RecordError, match=r"runs\[1\].curve.quality\[0\] is nan"):
        encode(broken)


def test_a_value_that_another_format_left_open_is_written(clean):
    origin = {"format": "dawnbench", "file": "a.json", "fields": {"costPerHour": None}}
    submission = clean.make("training", {"origin": origin})
    assert parse_submission(encode(submission)) == submission


def test_a_text_that_is_not_unicode_cannot_be_written(clean):
    with pytest.raises(RecordError, match="not Unicode"):
        encode(msgspec.structs.replace(clean.make(), notes="\ud800"))


def test_a_files_digest_is_of_its_bytes(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert file_digest(tmp_path / "a") == hashlib.sha256(b"abc").hexdigest()
