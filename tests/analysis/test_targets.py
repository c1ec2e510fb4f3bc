"""Proposing a target from learning curves."""

import math

import numpy as np
import pytest

from levelbench.analysis.targets import propose_target
from levelbench.errors import UnknownNameError, UsageError

EPOCHS = np.arange(1, 41) * 0.5
SEEDS = 12


def curves(constant=2.0, top=0.95, noise=0.002, seed=1):
    """Saturating exponentials from 0.1 to ``top`` with independent evaluation noise."""
    random = np.random.default_rng(seed)
    mean = 0.1 + (top - 0.1) * (1 - np.exp(-EPOCHS / constant))
    return mean[:, None] + noise * random.standard_normal((len(EPOCHS), SEEDS))


def exact_knee(constant):
    """Where the exponential's slope is that of its chord."""
    start, end = EPOCHS[0], EPOCHS[-1]
    chord = (math.exp(-start / constant) - math.exp(-end / constant)) / (end - start)
    return -constant * math.log(constant * chord)


@pytest.mark.parametrize("constant", [1.0, 2.0, 3.0])
def test_the_knee_is_where_the_slope_is_the_chords(constant):
    proposal = propose_target(curves(constant, noise=0.0005), EPOCHS)
    assert proposal.knee_x == pytest.approx(exact_knee(constant), abs=0.5)


def test_the_target_is_a_round_value_just_after_the_knee():
    proposal = propose_target(curves(), EPOCHS)
    assert proposal.target == 0.92
    assert proposal.knee_quality < proposal.target < 0.95
    assert proposal.seeds == SEEDS
    assert "all 12 seeds" in proposal.reason


def test_every_seed_confirms_the_target():
    table = curves()
    proposal = propose_target(table, EPOCHS)
    hits = table >= proposal.target
    assert (hits[1:] & hits[:-1]).any(axis=0).all()


def test_the_table_tells_steep_good_flat_and_unreached_apart():
    proposal = propose_target(curves(), EPOCHS)
    findings = [candidate.finding for candidate in proposal.candidates]
    assert findings == sorted(findings, key=["steep", "good", "flat", "unreached"].index)
    assert {"steep", "good", "flat"} <= set(findings)


def test_conditioning_worsens_towards_the_tail_and_is_one_at_the_knee():
    proposal = propose_target(curves(noise=0.0), EPOCHS)
    conditioning = [candidate.conditioning for candidate in proposal.candidates]
    assert conditioning == sorted(conditioning)
    at_knee = min(proposal.candidates, key=lambda candidate: abs(candidate.threshold - proposal.knee_quality))
    assert at_knee.conditioning == pytest.approx(1.0, abs=0.25)


def test_of_a_metric_where_lower_is_better_the_lowest_value_is_proposed_and_said_to_be():
    proposal = propose_target(-curves(), EPOCHS, direction="lower")
    assert proposal.target == -0.92
    assert proposal.reason.startswith("the lowest round value after the knee")
    assert propose_target(curves(), EPOCHS).reason.startswith("the highest round value after the knee")


def test_one_seed_that_stays_below_lowers_the_target():
    table = curves(noise=0.0)
    table[:, 0] = np.minimum(table[:, 0], 0.905)
    proposal = propose_target(table, EPOCHS)
    assert proposal.target == 0.90
    assert next(c for c in proposal.candidates if c.threshold == 0.91).finding == "unreached"


def test_a_diverged_seed_reaches_nothing_and_forbids_every_target():
    table = curves()
    table[5:, 3] = np.nan
    proposal = propose_target(table, EPOCHS)
    assert proposal.target is None
    assert "unreached" in proposal.reason
    assert max(candidate.reached for candidate in proposal.candidates) == SEEDS - 1


def test_crossings_that_scatter_are_not_proposed():
    random = np.random.default_rng(5)
    constants = random.uniform(0.7, 4.0, SEEDS)
    table = 0.1 + 0.85 * (1 - np.exp(-EPOCHS[:, None] / constants))
    proposal = propose_target(table, EPOCHS)
    assert proposal.target is None
    assert "scattered" in {candidate.finding for candidate in proposal.candidates}


def test_a_loss_is_mirrored():
    table = curves(noise=0.0)
    up, down = propose_target(table, EPOCHS), propose_target(-table, EPOCHS, direction="lower")
    assert down.target == -up.target
    assert down.knee_quality == -up.knee_quality
    assert [c.reached for c in down.candidates] == [c.reached for c in up.candidates]


def test_the_unit_of_x_does_not_matter():
    table = curves()
    epochs, steps = propose_target(table, EPOCHS), propose_target(table, EPOCHS * 500)
    assert steps.target == epochs.target
    assert steps.candidates[0].crossing == pytest.approx(500 * epochs.candidates[0].crossing)
    assert steps.candidates[0].conditioning == pytest.approx(epochs.candidates[0].conditioning)


def test_the_cost_of_one_more_evaluation_is_told():
    proposal = propose_target(curves(noise=0.0), EPOCHS)
    candidate = next(c for c in proposal.candidates if c.threshold == proposal.target)
    assert candidate.quantisation == pytest.approx(0.5 / candidate.crossing)


def test_a_step_can_be_chosen():
    proposal = propose_target(curves(), EPOCHS, step=0.05)
    assert [c.threshold for c in proposal.candidates] == pytest.approx([0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95])


def test_curves_that_still_climb_have_no_knee():
    proposal = propose_target(np.tile(EPOCHS[:, None], (1, 10)), EPOCHS)
    assert (proposal.target, proposal.candidates) == (None, ())
    assert "train longer" in proposal.reason


def test_curves_that_are_flat_have_no_knee():
    assert "does not improve" in propose_target(np.ones((10, 10))).reason


def test_a_knee_before_the_second_evaluation_asks_for_more_evaluations():
    table = np.ones((10, 10))
    table[0] = 0.1
    assert "evaluate more often" in propose_target(table).reason


@pytest.mark.parametrize(
    ("table", "options"),
    [
        (np.ones((20, 9)), {}),
        (np.ones((7, 10)), {}),
        (np.ones(20), {}),
        (np.ones((8, 10)), {"x": [1.0] * 8}),
        (np.ones((8, 10)), {"x": [1.0, 2.0]}),
        (np.ones((8, 10)), {"step": 0.0}),
        (np.full((8, 10), np.nan), {}),
    ],
)
def test_what_shows_no_curves_is_refused(table, options):
    with pytest.raises(UsageError):
        propose_target(table, **options)


def test_an_unknown_direction_is_refused():
    with pytest.raises(UnknownNameError):
        propose_target(np.ones((8, 10)), direction="up")
