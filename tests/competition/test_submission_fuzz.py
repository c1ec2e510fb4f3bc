"""Any input ends in a submission, a refusal or findings."""

from __future__ import annotations

import copy
from datetime import date
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from levelbench.competition.checks import CODES
from levelbench.competition.entries import UnreadableError, encode, parse_submission
from levelbench.competition.leaderboard import check
from levelbench.competition.rivals import Rivals, trace_of

ODD = st.sampled_from(
    [
        *(None, True, -1, 0, 2**63, -(2**70), 1e308, -1e308, 5e-324),
        *("", "\x00", "\u202e", "1e400", "../../etc/x.toml", "2026-13-01", "x" * 5000, "levelbench-1.0", "server"),
        *([], {}, [1e308] * 7, [0.0], {"": 0.5}, {"nan": 1.0, "0.5": 1e308}),
    ]
)
TODAY = date(2026, 12, 1)
FEW = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]}


def judged(raw: bytes) -> None:
    refused = False
    try:
        submission = parse_submission(raw)
    except UnreadableError as problem:
        refused = problem.code in CODES and bool(problem.do)
    if not refused:
        assert parse_submission(encode(submission)) == submission
        rivals = Rivals()
        found = [*check(submission, "digits/training/a.json", today=TODAY), *rivals.add(trace_of(submission), "a")]
        found += rivals.near(lambda file: [run.curve for run in submission.runs])
        assert all(each.code in CODES and each.found and each.do for each in found)


@hypothesis_settings(max_examples=30, **FEW)
@given(st.binary(max_size=200))
@example(b'"' + b'\\"' * 20_000)
@example(b'{"a": "' + b'\\"' * 20_000 + b"\\")
@example(b"[{" * 20_000)
def test_any_bytes_are_read_or_refused(raw):
    judged(raw)


@hypothesis_settings(max_examples=30, **FEW)
@given(st.data())
def test_any_bytes_in_a_good_file_are_read_or_refused(clean, data):
    raw = bytearray(encode(clean.make()))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    judged(bytes(raw))


@pytest.mark.parametrize("kind", ["training", "inference"])
@hypothesis_settings(max_examples=35, **FEW)
@given(data=st.data())
def test_any_value_in_any_place_is_read_or_refused(clean, kind, data):
    entry = copy.deepcopy(msgspec.to_builtins(clean.make(kind)))
    for _ in range(data.draw(st.integers(1, 3))):
        place: Any = entry
        while True:
            keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and data.draw(st.integers(0, 5)):
                place = place[key]
                continue
            # A copy, since a drawn value may be drawn again and modified in place.
            place[key] = copy.deepcopy(data.draw(ODD))
            break
    judged(msgspec.json.encode(entry))
