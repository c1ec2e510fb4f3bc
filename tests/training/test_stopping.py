"""When a run ends: from its evaluations, and with a budget of seconds between them."""

import pytest

from levelbench.errors import UsageError
from levelbench.measure.clocks import FakeClock
from levelbench.measure.timeline import Timeline
from levelbench.records.schema import Evaluation, Target
from levelbench.training.stopping import Evaluate, Stopping

TARGET = Target("top1", 0.9)


def evaluations(qualities, losses=None, samples=100):
    losses = losses or [1.0] * len(qualities)
    return [
        Evaluation(at * 10**9, at, float(at), at * samples, {"validation": quality}, loss, {})
        for at, (quality, loss) in enumerate(zip(qualities, losses, strict=True), 1)
    ]


def reason(qualities, *, losses=None, loss=1.0, fixed=False, last=False, target=TARGET, **options):
    stopping = Stopping(target, options.pop("crossing", "confirmed"), Evaluate(1, "epoch"), 10, **options)
    return stopping.reason(evaluations(qualities, losses), loss, fixed, last)


def test_two_evaluations_at_the_target_end_a_run():
    assert reason([0.1, 0.9]) == ""
    assert reason([0.1, 0.9, 0.91]) == "target reached"


def test_a_schedule_of_fixed_length_continues():
    assert reason([0.9, 0.91], fixed=True) == ""
    assert reason([0.9, 0.91], fixed=True, last=True) == "all epochs done"


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_nan_loss_is_divergence(loss):
    assert reason([0.9, 0.91], loss=loss).startswith("diverged: the training loss is")


def test_a_loss_that_grows_twentyfold_is_divergence():
    assert reason([0.1, 0.1], losses=[2.3, 45.0], loss=45.0) == ""
    assert reason([0.1, 0.1], losses=[2.3, 47.0], loss=47.0).startswith("diverged: the training loss went from 2.3")


def test_a_loss_near_zero_may_grow_to_an_ordinary_one():
    assert reason([0.1, 0.1], losses=[1e-9, 0.01], loss=0.01) == ""


def test_budgets_end_a_run():
    assert reason([0.1, 0.2, 0.3], budget_s=2.5) == "budget of 2.5 s spent"
    assert reason([0.1, 0.2, 0.3], budget_samples=300) == "budget of 300 samples spent"
    assert reason([0.1], budget_j=5.0, energy_j=lambda: 6.0) == "budget of 5 J spent"
    assert reason([0.1], budget_j=5.0, energy_j=lambda: 4.0) == ""
    assert reason([0.1], budget_j=5.0, energy_j=lambda: None) == ""


def test_without_a_time_budget_batches_are_not_wrapped():
    batches = iter([1, 2])
    stopping = Stopping(TARGET, "confirmed", Evaluate(1, "epoch"), 10)
    assert stopping.in_time(batches, Timeline(FakeClock()), []) is batches


def test_a_plateau_is_a_number_of_evaluations_without_improvement():
    assert reason([0.3, 0.5, 0.4], plateau=2) == ""
    assert reason([0.3, 0.5, 0.4, 0.5], plateau=2) == "plateau: no better in 2 evaluations"


def test_a_plateau_of_a_lower_is_better_metric_is_recognised():
    lower = Target("rmse", 0.1, "lower", 0.0, 10.0)
    assert reason([3.0, 2.0, 1.0], plateau=2, target=lower) == ""
    assert reason([1.0, 2.0, 3.0], plateau=2, target=lower).startswith("plateau")


def test_the_last_step_is_that_of_the_smallest_budget():
    stopping = Stopping(TARGET, "confirmed", Evaluate(1, "epoch"), 3, budget_samples=150)
    assert stopping.last_step(planned=100, steps_per_epoch=10, samples_per_epoch=100, fixed_length=False) == 15
    longer = Stopping(TARGET, "confirmed", Evaluate(1, "epoch"), 3)
    assert longer.last_step(planned=20, steps_per_epoch=10, samples_per_epoch=100, fixed_length=True) == 20


@pytest.mark.parametrize(
    ("text", "steps"), [("2 epochs", 20), ("7 steps", 7), ("1 step", 1), ("95 samples", 10), ("1 sample", 1)]
)
def test_an_interval_is_given_in_epochs_steps_or_samples(text, steps):
    every = Evaluate.parse(text)
    assert every.steps(10, 100) == steps
    assert str(every) == text


@pytest.mark.parametrize("text", ["", "epoch", "0 epochs", "-1 steps", "1.5 epochs", "2 minutes", "1 2 steps"])
def test_a_malformed_interval_is_refused(text):
    with pytest.raises(UsageError, match="not an interval"):
        Evaluate.parse(text)
