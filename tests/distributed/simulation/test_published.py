import sys
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("greenlet")
sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
from published_scaling import ALIBABA, FAST_AI, calibrate, compare


@cache
def compared(*machines):
    """fast.ai's entries, fitted on these numbers of machines."""
    return compare(FAST_AI, calibrate(FAST_AI, machines, each_epoch=len(machines) > 1))


def errors(comparisons, machines):
    found = [each for each in comparisons if each.stretch.machines == machines]
    assert found
    assert not any(each.calibrated for each in found)
    return [each.error for each in found]


def test_what_was_fitted_is_met():
    assert [each.error for each in compared(4) if each.calibrated] == pytest.approx([0.0] * 4, abs=2e-3)


def test_from_four_machines_alone_more_are_predicted_too_fast():
    assert all(-0.17 < each < -0.08 for each in errors(compared(4), 8))
    assert all(-0.33 < each < -0.22 for each in errors(compared(4), 16))


def test_from_four_and_eight_machines_sixteen_are_predicted_to_an_eighth():
    assert 5 < calibrate(FAST_AI, [4, 8], each_epoch=True).epoch_s < 9
    assert all(abs(each) < 0.13 for each in errors(compared(4, 8), 16))


@pytest.mark.parametrize(("itemsize", "low", "high"), [(2, -0.09, -0.03), (4, 0.06, 0.17)])
def test_from_one_machine_and_the_published_network_sixteen_are_predicted_between_two_assumptions(itemsize, low, high):
    known = calibrate(ALIBABA, [1], itemsize=itemsize, each_step=False)
    assert all(low < each < high for each in errors(compare(ALIBABA, known, itemsize=itemsize), 16))


def test_the_same_gpus_take_the_same_time_an_image_for_both_teams_to_a_factor_of_two():
    first = calibrate(FAST_AI, [4, 8], each_epoch=True)
    second = calibrate(ALIBABA, [1], each_step=False)
    assert 0.5 < first.image_s[224] / second.image_s[224] < 2
