import numpy as np
import pytest

from levelbench.distributed.fitting import Round, Timed, fit, fit_points, rounds_of
from levelbench.errors import UsageError
from levelbench.measure.statistics import Estimate, Interval

SIZES = 4.0 * 2.0 ** np.arange(0, 25, 2)
ALPHA, BETA = 5e-5, 2e-10


def drawn(random, noise=0.05, alpha=ALPHA, beta=BETA, claimed=None):
    truth = alpha + SIZES * beta
    times = truth * (1 + noise * random.standard_normal(len(SIZES)))
    errors = truth * (noise if claimed is None else claimed)
    return [Timed(*each) for each in zip(SIZES.tolist(), times.tolist(), errors.tolist(), strict=True)]


def coverage(points_of, trials=600):
    random = np.random.default_rng(1)
    fits = [fit(points_of(random)) for _ in range(trials)]
    alpha = np.mean([ALPHA in each.alpha_interval for each in fits])
    beta = np.mean([BETA in each.beta_interval for each in fits])
    return alpha, beta


def test_a_line_without_noise_is_found_exactly():
    found = fit([Timed(n, ALPHA + n * BETA, 1e-7) for n in SIZES.tolist()])
    assert found.alpha_s == pytest.approx(ALPHA)
    assert found.beta_s_b == pytest.approx(BETA)
    assert found.time_s(1e6) == pytest.approx(ALPHA + 1e6 * BETA)
    assert found.bandwidth_b_s == pytest.approx(5e9)
    assert found.half_size_b == pytest.approx(250_000)
    assert found.relative < 1e-9


def test_intervals_cover_what_was_planted_as_often_as_they_say():
    alpha, beta = coverage(drawn)
    # Birge's ratio only widens, so they cover a little more than 95 % (standard error 0.9 %).
    assert 0.93 <= alpha <= 0.99
    assert 0.93 <= beta <= 0.99


def test_intervals_cover_too_where_the_errors_were_claimed_too_small():
    alpha, beta = coverage(lambda random: drawn(random, noise=0.05, claimed=0.01))
    assert 0.92 <= alpha <= 0.98
    assert 0.92 <= beta <= 0.98


def test_a_large_message_does_not_drown_the_latency():
    found = fit(drawn(np.random.default_rng(2), noise=0.02))
    assert found.alpha_s == pytest.approx(ALPHA, rel=0.05)


def test_a_change_of_protocol_shows_as_a_misfit():
    points = [Timed(n, (2 * ALPHA if n > 1e5 else ALPHA) + n * BETA, 0.01 * ALPHA) for n in SIZES.tolist()]
    assert fit(points).misfit > 3
    assert fit([Timed(n, ALPHA + n * BETA, 0.01 * ALPHA) for n in SIZES.tolist()]).misfit < 0.1


def test_no_parameter_is_below_zero():
    falling = [Timed(1.0, 3.0, 0.1), Timed(2.0, 2.5, 0.1), Timed(3.0, 2.0, 0.1)]
    found = fit(falling)
    assert found.beta_s_b == 0.0
    assert found.alpha_s == pytest.approx(2.5)
    steep = fit([Timed(1.0, 0.5, 0.1), Timed(2.0, 2.0, 0.1), Timed(3.0, 3.5, 0.1)])
    assert steep.alpha_s == 0.0
    assert steep.alpha_interval.low == 0.0
    assert steep.beta_s_b > 0


def test_two_points_are_refused():
    with pytest.raises(UsageError, match="three"):
        fit([Timed(1.0, 1.0, 0.1), Timed(2.0, 1.0, 0.1)])
    with pytest.raises(UsageError, match="two sizes"):
        fit([Timed(1.0, 1.0, 0.1)] * 3)


def test_a_median_counts_with_its_interval():
    known = Estimate(1.0, Interval(0.9, 1.1, 0.95, "exact"), 10, "median")
    unknown = Estimate(1.0, None, 3, "median")
    sure = Estimate(1.0, Interval(1.0, 1.0, 0.95, "exact"), 10, "median")
    errors = [each.error_s for each in fit_points([(8.0, known), (8.0, unknown), (8.0, sure)])]
    assert errors == [pytest.approx(0.1 / 1.96, rel=1e-3), 0.1, 0.01]


def test_a_ring_has_two_rounds_of_all_but_one_of_the_ranks():
    whole = fit([Timed(n, ALPHA + n * BETA, 1e-7) for n in SIZES.tolist()])
    assert rounds_of("all-reduce", 4) == Round(6, 0.25)
    alpha, beta = Round(6, 0.25).per_message(whole)
    assert 6 * (alpha + 1e6 / 4 * beta) == pytest.approx(whole.time_s(1e6))
    assert rounds_of("all-gather", 4) == Round(3, 0.25)
    assert rounds_of("broadcast", 4) is None
    assert rounds_of("all-reduce", 1) is None


def test_a_parameter_that_would_be_negative_is_not_said_to_be_exactly_nothing():
    found = fit([Timed(1.0, 0.5, 0.1), Timed(2.0, 2.0, 0.1), Timed(3.0, 3.5, 0.1)])
    assert found.alpha_s == 0.0
    assert found.alpha_interval.high > 0


def test_a_parameter_lies_in_its_interval_where_the_other_would_be_negative():
    sizes = np.linspace(1.0, 3.0, 30).tolist()
    for found in (fit([Timed(n, 1.5 * n - 1, 0.01) for n in sizes]), fit([Timed(n, 3.5 - n, 0.01) for n in sizes])):
        assert found.alpha_s in found.alpha_interval
        assert found.beta_s_b in found.beta_interval
