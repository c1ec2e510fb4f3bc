"""What a task should fix, from recorded curves."""

import math
from pathlib import Path

import numpy as np
import pytest

from levelbench.analysis.targets import propose_cadence, propose_runs, tune
from levelbench.errors import UsageError
from levelbench.measure.statistics.distributions import t_quantile
from levelbench.records.reader import Record
from levelbench.records.schema import Evaluation, Header, Source, Specification, Target

MS = 1_000_000


def record(
    qualities, seed=0, steps=100, step_ms=1.0, evaluation_ms=10.0, every="1 epoch", direction="higher", per_epoch=1
):
    """A run of an evaluation every ``steps`` steps, which are ``1 / per_epoch`` of an epoch."""
    target = Target("error", 0.5, direction)
    specification = Specification("toy", "mlp", "numpy", "cpu", {}, target, "sustained", "wall", every, 20.0)
    header = Header(1, f"{seed:08d}", "k", seed, "2026-01-01T00:00:00", specification, {}, Source("t", "", ""), "0")
    evaluations = []
    for epoch, quality in enumerate(qualities, 1):
        training, looking = round(epoch * steps * step_ms * MS), round(epoch * evaluation_ms * MS)
        phases = {"forward": training // 2, "backward": training - training // 2, "evaluate": looking}
        t_ns = training + looking
        evaluations.append(
            Evaluation(t_ns, epoch * steps, epoch / per_epoch, 32 * epoch * steps, {"validation": quality}, 1.0, phases)
        )
    return Record(Path(), header, tuple(evaluations), {}, (), None, "done")


def curves(n=12, **more):
    random = np.random.default_rng(0)
    x = np.arange(1, 21)
    mean = 0.95 - 0.85 * np.exp(-x / 3)
    return [record((mean + 0.002 * random.standard_normal(20)).tolist(), seed, **more) for seed in range(n)]


def test_a_target_cadence_and_number_of_runs_are_proposed_together():
    found = tune(curves())
    assert found.target.target is not None
    assert 0.85 < found.target.target < 0.95
    assert found.runs.reached == found.runs.n == 12
    assert found.cadence.quantisation is not None
    assert found.final == pytest.approx(0.95, abs=0.005)


def test_lower_is_better_is_the_same_upside_down():
    flipped = [
        record([1 - each.quality["validation"] for each in one.evaluations], direction="lower") for one in curves()
    ]
    assert tune(flipped).target.target == pytest.approx(1 - tune(curves()).target.target)


def fine(evaluation_ms, per_epoch=10, epochs=20, steps=10, threshold_at=30, n=1):
    """Runs of 100 steps an epoch of 1 ms that are evaluated every 10 steps, and reach the target at one of these."""
    return [
        record(
            [0.1] * (threshold_at - 1) + [0.9] * (per_epoch * epochs - threshold_at + 1),
            seed,
            steps=steps,
            evaluation_ms=evaluation_ms,
            every="10 steps",
            per_epoch=per_epoch,
        )
        for seed in range(n)
    ]


@pytest.mark.parametrize(
    ("evaluation_ms", "every", "steps"),
    [
        (0.3, "10 steps", 10),
        (0.9, "20 steps", 20),
        (2.5, "50 steps", 50),
        (4.0, "1 epoch", 100),
        (12.0, "250 steps", 250),
        (14.0, "3 epochs", 300),
    ],
)
def test_the_interval_is_the_shortest_round_one_that_costs_a_twentieth(evaluation_ms, every, steps):
    found = propose_cadence(fine(evaluation_ms))
    assert (found.every, found.steps) == (every, steps)
    assert found.cost == pytest.approx(evaluation_ms / (evaluation_ms + steps))
    assert found.cost <= 0.05


def test_an_interval_longer_than_an_epoch_need_not_be_whole_epochs():
    # 17 steps an epoch, evaluated every 4: of the whole epochs, only every fourth is a multiple.
    runs = [record([0.1] * 20 + [0.9] * 31, steps=4, every="4 steps", evaluation_ms=0.8, per_epoch=17 / 4)]
    found = propose_cadence(runs)
    assert (found.every, found.steps) == ("20 steps", 20)
    assert found.coarse == ""


def test_an_interval_that_is_a_large_part_of_the_way_to_the_target_is_said_to_be_coarse():
    # Confirmed after 90 steps, of which 50 are more than a third; 20 steps cost 2.5 of 22.5.
    found = propose_cadence(fine(2.5, threshold_at=8))
    assert (found.every, found.reason) == ("50 steps", "")
    assert found.coarse.startswith("50 steps is 56% of the 0.9 epochs")
    assert "(--cost 0.12)" in found.coarse
    assert propose_cadence(fine(2.5, threshold_at=8), cost=0.12).coarse == ""
    assert "shorter --every" in propose_cadence(fine(2.5, threshold_at=1)).coarse


def test_the_crossing_is_that_of_the_curves_at_the_proposed_interval():
    # Reached at the 30th evaluation, after 300 steps; at every 200 steps at the second, after 400, confirmed at 600.
    found = propose_cadence(fine(10.0))
    assert (found.every, found.shown) == ("2 epochs", 20)
    assert found.crossing == pytest.approx(6.0)
    assert found.quantisation == pytest.approx(2.0 / 6.0)


def test_a_shorter_interval_than_that_of_the_curves_is_not_proposed():
    found = propose_cadence([record([0.5] * 10, evaluation_ms=0.01)])
    assert (found.every, found.steps) == ("1 epoch", 100)
    assert "cannot show a shorter interval" in found.reason


def test_a_shorter_interval_to_evaluate_at_is_named():
    # Ten steps of a millisecond: half a millisecond is a twentieth of their time.
    assert '(--every "10 steps")' in propose_cadence([record([0.5] * 10, evaluation_ms=0.5)]).reason
    coarse = [record([0.1] + [0.9] * 9, seed) for seed in range(10)]
    assert '(--every "25 steps")' in tune(coarse).target.reason


def test_a_longer_interval_than_the_curves_can_confirm_is_not_proposed():
    # Three epochs would be cheap enough, but the curves end after four: no second evaluation could confirm it.
    found = propose_cadence([record([0.1, 0.9, 0.9, 0.9], evaluation_ms=12.0)])
    assert found.every == "2 epochs"
    assert found.cost > 0.05
    assert "train longer" in found.reason
    late = propose_cadence([record([0.1] * 7 + [0.9, 0.9], seed, evaluation_ms=12.0) for seed in range(3)])
    assert (late.every, late.reached) == ("1 epoch", 3)
    assert "at 2 epochs only 0 of the 3 runs" in late.reason


def test_times_at_the_proposed_interval_leave_out_the_evaluations_that_are_not_made():
    records = curves(evaluation_ms=12.0)
    found = tune(records)
    assert found.cadence.every == "3 epochs"
    crossing = found.cadence.crossing
    # Every run takes 100 ms an epoch, and 12 ms for each evaluation of which only every third is made.
    assert crossing % 3 == 0
    assert found.runs.reached == found.cadence.reached


def test_the_cost_of_the_cadence_that_the_runs_had_is_told():
    found = propose_cadence([record([0.5] * 10, evaluation_ms=100.0)])
    assert (found.now, found.now_cost) == ("1 epoch", pytest.approx(0.5))


def test_the_number_of_runs_is_the_least_whose_interval_is_narrow_enough():
    times = np.exp(np.random.default_rng(1).normal(1.0, 0.1, 12))
    found = propose_runs(times.tolist(), 12, 0.05)
    deviation = np.log(times).std(ddof=1)

    def width(n):
        return math.expm1(t_quantile(0.975, n - 1) * deviation / math.sqrt(n))

    assert width(found.needed) <= 0.05 < width(found.needed - 1)
    assert found.width_now == pytest.approx(width(12))


def test_runs_that_do_not_vary_need_two():
    assert propose_runs([2.0] * 10, 10, 0.05).needed == 2


def test_runs_that_vary_too_much_have_no_number():
    times = [math.exp(each) for each in np.linspace(-8, 8, 12)]
    assert propose_runs(times, 12, 0.001).needed is None


def test_one_run_that_reached_says_nothing_of_how_they_vary():
    found = propose_runs([2.0], 10, 0.05)
    assert (found.needed, found.deviation, found.reached, found.n) == (None, None, 1, 10)


@pytest.mark.parametrize("given", [{"cost": 0.0}, {"cost": 1.0}, {"width": -0.1}])
def test_an_impossible_share_is_refused(given):
    with pytest.raises(UsageError, match="not a share"):
        tune(curves(), **given)


def test_where_there_is_no_target_nothing_else_is_proposed():
    early = [record([0.1, *[0.9 + 0.001 * at for at in range(9)]], seed) for seed in range(10)]
    found = tune(early)
    assert "no knee" in found.target.reason
    assert (found.target.target, found.cadence, found.runs) == (None, None, None)


def test_too_few_runs_or_none_are_refused():
    with pytest.raises(UsageError, match="no finished run"):
        tune([])
    with pytest.raises(UsageError, match="at least 10 seeds"):
        tune(curves(4))
