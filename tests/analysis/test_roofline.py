"""Places under measured roofs: shares, their intervals, and which of the two is wrong if a result lies above."""

import msgspec
import pytest

from levelbench.analysis.roofline import place_under_roofs, recorded_place
from levelbench.errors import UsageError
from levelbench.records.rooflines import RooflineProfile, RooflineRow

ROW = RooflineRow("operator", "Gemm", "forward", 1, 1e9, 1e6, "float32", 0.02, 0.5, "compute", "float32")


def profiles(shares, spread=0.02, **row):
    found = []
    for share in shares:
        made = msgspec.structs.replace(ROW, share=share, **row)
        rates = {"float32": 100e9}, {"L1": 200e9, "memory": 20e9}
        spreads = {"float32": spread, "L1": 0.01, "memory": 0.01}
        found.append(RooflineProfile(9, *rates, spreads, [("L1", 65536.0), ("memory", None)], [made]))
    return found


def test_a_share_is_over_the_processes_with_its_interval():
    found = place_under_roofs("x", profiles([0.48, 0.49, 0.5, 0.5, 0.51, 0.52]))
    (place,) = found.places
    assert place.share.value == pytest.approx(0.5, rel=1e-3)
    assert 0.48 < place.share.interval.low < 0.5 < place.share.interval.high < 0.52
    assert (place.bound, place.roof, place.wrong, place.reason) == ("compute", "float32", "", "")
    assert place.flop_s.value == pytest.approx(50e9)
    assert place.bytes_s.value == pytest.approx(50e6)
    assert place.intensity == pytest.approx(1000)


def test_the_roofs_stand_beside_with_what_they_hold():
    roofs = place_under_roofs("x", profiles([0.5] * 6)).roofs
    assert [(each.kind, each.name, each.capacity_bytes) for each in roofs] == [
        ("compute", "float32", None),
        ("memory", "L1", 65536.0),
        ("memory", "memory", None),
    ]


ABOVE = [2.8, 2.82, 2.84, 2.8, 2.81, 2.83]


@pytest.mark.parametrize(
    ("given", "wrong", "why"),
    [
        ({"spread": 0.4}, "roof", "it varied by 40%"),
        ({}, "roof", "it is the better roof"),
        ({"name": "Conv"}, "count", "Winograd"),
        ({"name": "Relu", "bound": "memory", "roof": "L1"}, "count", "moved fewer bytes"),
        ({"name": "Softmax"}, "count", "a compiler left out"),
        ({"time_s": 1e-6}, "time", "too short for the clock"),
    ],
)
def test_above_the_roof_there_is_no_share_but_which_of_both_is_wrong(given, wrong, why):
    (place,) = place_under_roofs("x", profiles(ABOVE, **given)).places
    assert (place.share, place.wrong) == (None, wrong)
    assert why in place.reason
    assert "by a factor of 2.82" in place.reason


def test_what_cannot_be_told_from_the_roof_is_at_the_roof():
    (place,) = place_under_roofs("x", profiles([0.9, 1.1, 1.0, 1.2, 0.8, 1.1])).places
    assert (place.share.value, place.share.interval.high) == (1.0, 1.0)
    assert place.reason == "it cannot be told from the roof"


def test_no_share_is_ever_above_one():
    for scale in (0.5, 0.99, 1.0, 1.01, 3.0):
        (place,) = place_under_roofs(
            "x", profiles([scale * each for each in (0.98, 1.0, 1.0, 1.01, 0.99, 1.02)])
        ).places
        assert place.share is None or place.share.value <= 1


def test_a_view_has_a_time_and_no_share():
    given = {"name": "Reshape", "flops": 0.0, "bytes": 0.0, "reason": "a view: it moves nothing"}
    (place,) = place_under_roofs("x", profiles([None] * 6, **given)).places
    assert place.time_s.value == pytest.approx(0.02)
    assert (place.share, place.flop_s, place.bytes_s, place.reason) == (None, None, None, "a view: it moves nothing")


def test_one_process_has_no_interval_and_that_is_said():
    found = place_under_roofs("x", profiles([0.5]))
    assert found.places[0].share.interval is None
    assert found.lacks == ("one process has no interval: measure more (-n 6)",)


def test_disturbed_roofs_raise_a_doubt():
    assert "float32 by 30%" in place_under_roofs("x", profiles([0.5] * 6, spread=0.3)).lacks[0]


def test_no_process_is_refused():
    with pytest.raises(UsageError, match="no process"):
        place_under_roofs("x", [])


def test_recorded_steps_get_the_share_of_the_roofs_of_now():
    (step,) = place_under_roofs("x", profiles([0.5] * 6, kind="training step")).places
    found = recorded_place([0.04] * 6, step, when="6 runs")
    assert found.share.value == pytest.approx(0.25)
    assert found.name == "recorded steps (6 runs)"
    assert recorded_place([0.04] * 6, step, reason="another machine").share is None
