from __future__ import annotations

import math
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.errors import UsageError
from levelbench.records import Specification, key_of

values = (
    st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.booleans()
)
settings = st.dictionaries(st.text(max_size=5), values, max_size=5)


def test_the_key_of_a_known_specification_never_changes(make_specification):
    assert key_of(make_specification()) == "a78efd3856efbd714a7119778852197a501acd5742de36ffc70cd556bb904afb"


@given(settings=settings)
def test_the_key_survives_writing_and_reading_and_any_order_of_the_settings(make_specification, settings):
    spec = make_specification(settings=settings)
    shuffled = list(settings.items())
    random.Random(1).shuffle(shuffled)
    assert key_of(make_specification(settings=dict(shuffled))) == key_of(spec)
    read = msgspec.json.decode(msgspec.json.encode(spec), type=Specification)
    assert key_of(read) == key_of(spec)


def test_equal_numbers_have_one_key_however_they_are_written(make_specification):
    assert key_of(make_specification(budget_epochs=10)) == key_of(make_specification(budget_epochs=10.0))
    assert key_of(make_specification(settings={"lr": 1})) == key_of(make_specification(settings={"lr": 1.0}))


def test_booleans_numbers_and_text_have_different_keys(make_specification):
    keys = {key_of(make_specification(settings={"x": value})) for value in (1, True, "1", "true", 0, False)}
    assert len(keys) == 6


@pytest.mark.parametrize(
    "part",
    ["task", "recipe", "framework", "device", "settings", "crossing", "evaluate_every", "budget_epochs"],
)
def test_every_part_of_a_specification_except_its_clock_changes_its_key(make_specification, part):
    other = {"settings": {"lr": 0.2}, "budget_epochs": 11.0}.get(part, "first")
    assert key_of(make_specification(**{part: other})) != key_of(make_specification())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_setting_that_is_not_finite_has_no_key(make_specification, value):
    with pytest.raises(UsageError, match="finite"):
        key_of(make_specification(settings={"lr": value}))


def test_the_clock_does_not_change_the_key(make_specification):
    assert key_of(make_specification(clock="dawnbench")) == key_of(make_specification(clock="wall"))
