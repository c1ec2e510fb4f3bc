"""Schedules have the documented factors, and know whether they have an end."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.errors import DefinitionError
from levelbench.training.schedules import (
    Constant,
    Cosine,
    InverseSquareRoot,
    OneCycle,
    PiecewiseLinear,
    Polynomial,
    Step,
    Trapezoid,
    Warmup,
    WarmupCosine,
    has_fixed_length,
)

ALL = (
    Constant(),
    Step(),
    PiecewiseLinear(),
    Cosine(),
    Cosine(0.1),
    WarmupCosine(),
    Warmup(Cosine()),
    Warmup(Constant()),
    Trapezoid(),
    Polynomial(),
    InverseSquareRoot(),
)


@given(st.floats(0, 1), st.sampled_from(ALL))
def test_a_factor_is_between_zero_and_one(progress, schedule):
    assert 0 <= schedule.factor(progress) <= 1


@pytest.mark.parametrize("schedule", ALL, ids=repr)
def test_a_factor_is_a_plain_number(schedule):
    assert type(schedule.factor(0.3)) is float


@pytest.mark.parametrize("schedule", [Constant(), InverseSquareRoot(), Warmup(Constant())], ids=repr)
def test_a_schedule_without_an_end_may_stop_early_or_continue(schedule):
    assert not schedule.fixed_length
    assert schedule.factor(2.0) > 0


@pytest.mark.parametrize(
    "schedule",
    [Step(), PiecewiseLinear(), Cosine(), WarmupCosine(), Warmup(Cosine()), Trapezoid(), Polynomial()],
    ids=repr,
)
def test_a_schedule_that_comes_down_to_an_end_has_a_fixed_length(schedule):
    assert schedule.fixed_length


@pytest.mark.parametrize(
    "factor",
    [
        lambda share: 1.0 if share < 0.002 else max(0.02, 1.0 - (share - 0.002) / 0.004),
        lambda share: 1.0 if share < 0.9 or abs(share * 128 - round(share * 128)) < 1e-9 else 0.05,
    ],
    ids=["in the first thousandths", "between the points that are looked at"],
)
def test_a_fall_between_grid_points_is_found(factor):
    class Hiding(Constant):
        def factor(self, progress):
            return factor(progress)

    assert has_fixed_length(Hiding())


def test_a_factor_that_raises_is_reported_as_the_schedules_error():
    class Broken(Constant):
        def factor(self, progress):
            raise ZeroDivisionError("by nothing")

    with pytest.raises(DefinitionError, match="its factor raised ZeroDivisionError: by nothing"):
        has_fixed_length(Broken())


def test_a_schedules_class_knows_its_fixed_length():
    assert not Constant.fixed_length
    assert WarmupCosine.fixed_length


@pytest.mark.parametrize("schedule", ALL, ids=repr)
def test_a_schedules_declared_length_matches_its_factor(schedule):
    assert has_fixed_length(schedule) == schedule.fixed_length


class Calling:
    """A schedule that calls itself open-ended."""

    def __init__(self, factor):
        self.fixed_length, self.factor = False, factor


@pytest.mark.parametrize(
    "factor",
    [
        Cosine().factor,
        Cosine(0.5).factor,
        WarmupCosine().factor,
        Step((0.5,), 0.5).factor,
        Trapezoid(floor=0.1).factor,
        lambda progress: 1 - 0.3 * progress,
        lambda progress: math.exp(-3 * progress),
        lambda progress: 1.0 if progress < 1 else 0.1,
        lambda progress: 1.0 if progress == 1 else Cosine().factor(progress),
        lambda progress: 1.1 if progress > 0.99 else Cosine().factor(progress),
    ],
)
def test_a_falling_factor_means_a_fixed_length_whatever_is_declared(factor):
    assert has_fixed_length(Calling(factor))


@pytest.mark.parametrize(
    "factor",
    [
        lambda progress: 1.0,
        lambda progress: min(1.0, progress / 0.2),
        lambda progress: 1 / max(1.0, 10 * progress),
        lambda progress: (progress + 1) ** 0.5,
    ],
)
def test_the_same_curve_for_any_length_is_open_ended(factor):
    assert not has_fixed_length(Calling(factor))


def test_one_cycle_is_the_earlier_name_of_a_cosine_with_a_warmup():
    assert OneCycle is WarmupCosine


@given(st.floats(0, 1), st.floats(0.01, 0.99))
def test_warmup_cosine_equals_warmup_of_cosine(progress, share):
    expected = Warmup(Cosine(), share).factor(progress)
    assert WarmupCosine(share).factor(progress) == pytest.approx(expected, abs=1e-12)


def test_a_cosine_with_a_warmup_rises_to_one_and_falls_to_zero():
    schedule = WarmupCosine(0.25)
    assert schedule.factor(0) == 0
    assert schedule.factor(0.125) == pytest.approx(0.5)
    assert schedule.factor(0.25) == pytest.approx(1)
    assert schedule.factor(0.625) == pytest.approx(0.5)
    assert schedule.factor(1) == pytest.approx(0)


def test_one_cycle_is_that_of_published_records():
    made = [WarmupCosine().factor(at / 7).hex() for at in range(7)]
    cosine = [0.5 * (1 + math.cos(math.pi * (at / 7 - 0.25) / 0.75)) for at in range(2, 7)]
    assert made == [(0.0).hex(), (1 / 7 / 0.25).hex(), *(each.hex() for each in cosine)]


def test_steps_fall_at_their_milestones():
    schedule = Step((0.5, 0.75), 0.1)
    assert [schedule.factor(at) for at in (0, 0.49, 0.5, 0.75, 1)] == pytest.approx([1, 1, 0.1, 0.01, 0.01])


def test_piecewise_linear_agrees_with_numpys_interpolation():
    points = ((0.1, 0.5), (0.3, 1.0), (0.9, 0.2))
    grid = np.linspace(0, 1, 101)
    ours = [PiecewiseLinear(points).factor(float(at)) for at in grid]
    assert ours == pytest.approx(np.interp(grid, *zip(*points, strict=True)), abs=1e-12)


def test_a_trapezoid_rises_holds_and_falls_to_its_floor():
    schedule = Trapezoid(0.2, 0.4, floor=0.1)
    assert [schedule.factor(at) for at in (0, 0.1, 0.2, 0.6, 0.8, 1)] == pytest.approx([0, 0.5, 1, 1, 0.55, 0.1])


def test_a_trapezoid_may_lack_a_level_part():
    assert Trapezoid(0.7, 0.3).factor(0.7) == pytest.approx(1)


def test_the_inverse_square_root_falls_to_half_at_four_times_the_warm_up():
    schedule = InverseSquareRoot(0.1)
    assert [schedule.factor(at) for at in (0, 0.05, 0.1, 0.4)] == pytest.approx([0, 0.5, 1, 0.5])


def test_a_warm_up_leads_to_the_start_of_the_next_schedule_and_keeps_all_of_it():
    schedule = Warmup(Cosine(0.2), share=0.5, start=0.1)
    assert [schedule.factor(at) for at in (0, 0.25, 0.5, 0.75, 1)] == pytest.approx([0.1, 0.55, 1, 0.6, 0.2])


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: Step(()), "ascend"),
        (lambda: Step((0.5, 0.5)), "ascend"),
        (lambda: Step((0.0,)), "share"),
        (lambda: Step(by=-1.0), "by is -1"),
        (lambda: PiecewiseLinear(((0.0, 1.0),)), "fewer than two"),
        (lambda: PiecewiseLinear(((0.0, 1.0), (1.5, 0.0))), "between 0 and 1"),
        (lambda: PiecewiseLinear(((0.0, 1.0), (1.0, math.nan))), "nan"),
        (lambda: Cosine(-0.1), "floor"),
        (lambda: WarmupCosine(1.0), "not a share"),
        (lambda: Warmup(Cosine(), 0.0), "not a share"),
        (lambda: Warmup(0.1), "not a schedule"),
        (lambda: Trapezoid(0.6, 0.6), "overlap"),
        (lambda: Polynomial(0.0), "power"),
        (lambda: Polynomial(math.inf), "power"),
        (lambda: InverseSquareRoot(0.0), "not a share"),
    ],
)
def test_an_impossible_setting_is_refused(make, found):
    with pytest.raises(DefinitionError, match=found):
        make()


STEPS = 40


def natives(torch):
    """Ours and PyTorch's, over 40 steps."""
    rates = torch.optim.lr_scheduler
    return [
        (Step((0.5, 0.75), 0.1), lambda o: rates.MultiStepLR(o, [20, 30], 0.1)),
        (Cosine(), lambda o: rates.CosineAnnealingLR(o, STEPS)),
        (Cosine(0.05), lambda o: rates.CosineAnnealingLR(o, STEPS, eta_min=0.05)),
        (Polynomial(2.0), lambda o: rates.PolynomialLR(o, STEPS, 2.0)),
        (Polynomial(1.0), lambda o: rates.LinearLR(o, 1.0, 0.0, STEPS)),
        (
            Warmup(Cosine(), 0.25, 0.1),
            lambda o: rates.SequentialLR(o, [rates.LinearLR(o, 0.1, 1.0, 10), rates.CosineAnnealingLR(o, 30)], [10]),
        ),
        (
            Trapezoid(0.25, 0.25),
            lambda o: rates.SequentialLR(
                o,
                [rates.LambdaLR(o, lambda s: s / 10), rates.ConstantLR(o, 1.0, 1), rates.LinearLR(o, 1.0, 0.0, 10)],
                [10, 30],
            ),
        ),
    ]


def test_schedules_agree_with_pytorchs_at_every_step():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for ours, make in natives(torch):
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        with warnings.catch_warnings():
            # SequentialLR calls a deprecated form of its own parts.
            warnings.simplefilter("ignore")
            native = make(optimizer)
            theirs = []
            for _ in range(STEPS):
                theirs.append(optimizer.param_groups[0]["lr"])
                optimizer.step()
                native.step()
        assert [ours.factor(at / STEPS) for at in range(STEPS)] == pytest.approx(theirs, abs=1e-7), ours
