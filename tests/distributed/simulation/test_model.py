"""The simulator's model of training: stand-ins for large models, and step times."""

import numpy as np
import pytest

from levelbench.distributed.simulation.model import (
    Calibrated,
    Compute,
    ModelShape,
    Uncertain,
    link_of,
    of_samples,
    stand_in,
)
from levelbench.distributed.simulation.networks import Interconnect
from levelbench.distributed.sweep import Round, Timed, fit
from levelbench.errors import UsageError


@pytest.mark.parametrize("parts", [1, 4, 8])
def test_a_stand_in_keeps_the_bytes_and_the_order_of_the_model(parts):
    model = ModelShape({"first": (10, 100), "large": (5000, 20), "last": (1000,)})
    small = stand_in(model, elements=500, parts=parts)
    elements = sum(shape[0] for shape in small.shapes.values())
    assert len(small.shapes) <= parts
    assert small.scale * 4 * elements == pytest.approx(model.nbytes)
    assert sum(small.weights.values()) == pytest.approx(1)


def test_a_small_model_is_its_own_stand_in():
    model = ModelShape({"weight": (3, 4), "bias": (4,)}, itemsize=2)
    small = stand_in(model)
    assert small.shapes == model.parameters
    assert small.scale == 0.5


def test_measured_steps_are_resampled():
    compute = Compute.measured((0.1, 0.2, 0.4), batch=8)
    assert set(compute.draw(0, 50, seed=1)) == {0.1, 0.2, 0.4}
    assert compute.at(16).mean_s == pytest.approx(2 * compute.mean_s)


def test_drawn_steps_have_the_requested_mean_and_spread():
    drawn = Compute(0.1, 0.03).draw_all(200, 200, seed=0)
    assert drawn.mean() == pytest.approx(0.1, rel=0.01)
    assert drawn.std() == pytest.approx(0.03, rel=0.03)


def test_draws_from_an_interval_have_its_nominal_coverage():
    generator = np.random.default_rng(0)
    interval = Calibrated(1.0, 0.7, 1.2)
    drawn = np.array([interval.draw(generator) for _ in range(20_000)])
    assert np.mean((drawn >= 0.7) & (drawn <= 1.2)) == pytest.approx(0.95, abs=0.005)
    assert np.median(drawn) == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("ends", [(1.1, 1.2), (0.5, 0.9), (0.0, 2.0), (-1.0, 2.0)])
def test_an_interval_without_its_value_or_down_to_zero_is_refused(ends):
    with pytest.raises(UsageError, match="low <= value <= high"):
        Calibrated(1.0, *ends)


def test_a_draw_is_the_same_for_the_same_seed_and_number():
    uncertain = Uncertain(Calibrated(0.1, 0.09, 0.11), Calibrated(1e-6, 5e-7, 2e-6), Calibrated(1e9, 8e8, 1.2e9))
    draws = [uncertain.draw(Compute(0.1), Interconnect(1e-6, 1e9), 5, at) for at in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


def test_exact_parameters_are_not_drawn():
    compute, network = Compute(0.1, 0.01), Interconnect(1e-6, 1e9)
    assert Uncertain().draw(compute, network, 0, 0) == (compute, network)


def test_a_drawn_computation_keeps_its_relative_spread():
    compute, _ = Uncertain(Calibrated(0.1, 0.05, 0.2)).draw(Compute(0.1, 0.02), Interconnect(0, 1e9), 0, 0)
    assert compute.mean_s != 0.1
    assert compute.sigma_s / compute.mean_s == pytest.approx(0.2)


@pytest.mark.parametrize("related", [False, True])
def test_the_interval_of_a_mean_has_its_nominal_coverage(related):
    generator, held = np.random.default_rng(1), 0
    for _ in range(300):
        steps = generator.normal(0.1, 0.01, 400)
        if related:
            steps = 0.1 + np.convolve(steps - 0.1, np.ones(5), mode="same")
        interval = of_samples(tuple(steps))
        held += interval.low <= 0.1 <= interval.high
    assert held / 300 > 0.85


def test_a_single_step_is_refused():
    with pytest.raises(UsageError, match="at least 30"):
        of_samples((0.1,))


def test_a_link_follows_from_a_fitted_all_reduce():
    ring = Round(6, 1 / 4)
    points = [Timed(n, 6 * (2e-6 + n / 4 / 1e9), 1e-7) for n in (1e3, 1e5, 1e6, 1e7)]
    alpha, beta = link_of(fit(points), ring)
    assert alpha.value == pytest.approx(2e-6, rel=1e-3)
    assert beta.value == pytest.approx(1e9, rel=1e-3)
    assert alpha.low <= 2e-6 <= alpha.high
    assert beta.low <= 1e9 <= beta.high


def test_a_fit_without_latency_gives_a_small_latency():
    points = [Timed(n, n / 1e9, 1e-4) for n in (1e3, 1e5, 1e6, 1e7)]
    alpha, _ = link_of(fit(points))
    assert 0 < alpha.low <= alpha.value <= alpha.high


def test_a_fitted_latency_of_zero_keeps_the_upper_end_of_its_interval():
    found = fit([Timed(n, n / 1e9 - 1e-5, 1e-5) for n in (1e5, 1e6, 1e7, 2e7)])
    assert found.alpha_s == 0.0
    alpha, _ = link_of(found, Round(6, 1 / 4))
    assert alpha.high == pytest.approx(found.alpha_interval.high / 6)
