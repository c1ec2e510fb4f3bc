"""What is not stated is never guilt: every field of the clean claim is taken out, one at a time."""

import msgspec
import pytest
from tests.claims.clean import changed, clean_claim

from levelbench.claims.lint import findings_of

# Fields whose absence is the fault itself: the values that an interval would be of are there.
EXPLAINED = {
    "sides[0].interval": "LB204",
    "sides[1].interval": "LB204",
    "summaries[0].interval": "LB204",
    "summaries[1].interval": "LB204",
}


def places(value, path=""):
    """Every field below ``value``, as rules name it."""
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from places(getattr(value, name), f"{path}.{name}" if path else name)
        return
    if isinstance(value, list) and value and isinstance(value[0], msgspec.Struct):
        for at, each in enumerate(value):
            yield from places(each, f"{path}[{at}]")
    yield path


def without(path):
    """The clean claim without the field; ``None`` where a claim must have it."""
    for blank in (None, [], {}):
        try:
            return changed(clean_claim(), path, blank)
        except msgspec.ValidationError:
            continue
    return None


TAKEN_OUT = {path: claim for path in places(clean_claim()) if (claim := without(path)) is not None}


@pytest.mark.parametrize("part", sorted({path.partition(".")[0].partition("[")[0] for path in TAKEN_OUT}))
def test_a_field_that_is_not_stated_is_no_guilt(part):
    taken = {path: claim for path, claim in TAKEN_OUT.items() if path.startswith(part)}
    guilty = {
        path: each.code for path, claim in taken.items() for each in findings_of(claim) if each.severity != "not-stated"
    }
    assert guilty.items() <= EXPLAINED.items()


def test_there_are_fields_to_take_out():
    assert len(TAKEN_OUT) > 300
