"""Places under measured roofs: shares, their intervals, and which of the two is wrong if a result lies above."""

import msgspec
import pytest

from levelbench.analysis.roofline import place_under_roofs, with_recorded
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
        ({"name": "Softmax"}, "count", "some were left out"),
        ({"time_s": 1e-6}, "time", "too short for the clock"),
    ],
)
def test_above_the_roof_there_is_no_share_but_which_of_both_is_wrong(given, wrong, why):
    (place,) = place_under_roofs("x", profiles(ABOVE, **given)).places
    assert (place.share, place.wrong) == (None, wrong)
    assert why in place.reason
    assert "by a factor of 2.82" in place.reason


@pytest.mark.parametrize(("name", "why"), [("Conv", "Winograd"), ("Softmax", "left out")])
def test_a_little_above_the_roof_its_products_may_not_reach_the_peak(name, why):
    (place,) = place_under_roofs("x", profiles([each / 2.7 for each in ABOVE], name=name)).places
    assert (place.share, place.wrong) == (None, "count or roof")
    assert why in place.reason
    assert "nearer to the machine's peak than the products of the roof" in place.reason


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


def stepped(share, spread=0.02, operator=0.5):
    """Six processes with an operator and a training step of 20 ms, both under the float32 roof."""
    found = profiles([share] * 6, spread, kind="training step", name="training step")
    (row,) = profiles([operator])[0].rows
    return place_under_roofs("x", [msgspec.structs.replace(each, rows=[*each.rows, row]) for each in found])


def test_recorded_steps_get_the_share_of_the_roofs_of_now():
    found = with_recorded(stepped(0.5), [0.025] * 6, "6 runs")
    assert found.places[1].share.value == pytest.approx(0.4)
    assert found.places[1].name == "recorded steps (6 runs)"
    assert found.lacks[-1].endswith("the shares of now are the ones to trust")


@pytest.mark.parametrize("recorded_s", [0.04, 0.012])
def test_steps_of_now_that_are_far_from_the_recorded_ones_are_not_the_ones_to_trust(recorded_s):
    said = with_recorded(stepped(0.5), [recorded_s] * 6, "6 runs").lacks[-1]
    assert said.startswith("doubt: a step takes 20 ms now and")
    assert "trust neither share" in said


@pytest.mark.parametrize(("recorded_s", "apart"), [(0.0001, "200"), (0.04, "2.0"), (2.0, "100")])
def test_how_far_apart_the_steps_are_is_said_in_plain_digits(recorded_s, apart):
    said = with_recorded(stepped(0.001), [recorded_s] * 6, "6 runs").lacks[-1]
    assert f"recorded runs, {apart} times apart" in said


@pytest.mark.parametrize(("spread", "why"), [(0.02, "the machine was slower now"), (0.4, "it varied by 40%")])
def test_recorded_steps_above_the_roof_refute_it_and_take_its_shares(spread, why):
    found = with_recorded(stepped(0.9, spread), [0.005] * 6)
    assert {each.share for each in found.places} == {None}
    assert found.places[1].wrong == "roof"
    assert why in found.places[1].reason
    assert "(above it: recorded steps)" in found.places[2].reason
    assert "the ones to trust" not in found.lacks[-1]


def test_an_operator_above_a_wrong_roof_takes_the_share_of_the_whole_step():
    step, operator = stepped(0.9, operator=4.7).places
    assert (operator.wrong, step.wrong, step.share) == ("roof", "", None)
    assert step.reason == "no share: the float32 roof is wrong (above it: Gemm)"
    assert "Gemm is above it, too" in stepped(1.8, operator=4.7).places[0].reason


@pytest.mark.slow
@pytest.mark.parametrize(("rates", "bands"), [((60e9, 90e9, 100e9, 110e9, 120e9, 160e9), 3), ((100e9,), 0)])
def test_the_figure_has_bands_for_what_is_known_of_each_roof(tmp_path, rates, bands):
    pytest.importorskip("matplotlib")
    from levelbench.report.roofline import write_under_roofs

    found = place_under_roofs(
        "x",
        [
            msgspec.structs.replace(each, flop_s={"float32": rate}, bytes_s={"L1": 2 * rate, "memory": rate / 5})
            for each, rate in zip(profiles([0.5] * len(rates)), rates, strict=True)
        ],
    )
    text = write_under_roofs(found, tmp_path / "r.svg").read_text()
    assert text.count("FillBetweenPolyCollection") == bands
    assert ("bars and bands: 95 % intervals" in text) == bool(bands)
