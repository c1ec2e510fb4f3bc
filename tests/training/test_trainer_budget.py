"""How a budget ends a run of the trainer."""

import pytest
from tests.training.toy import make_trainer

from levelbench.measure.clocks import FakeClock
from levelbench.training import Observer

TENTH_S = 100_000_000


class Epochs(Observer):
    def __init__(self):
        self.told = []

    def on_epoch(self, progress):
        self.told.append(progress.epoch)


# A step is four readings of the clock, an epoch is three steps: 2 s are over in the second epoch.
@pytest.mark.parametrize(("every", "evaluated"), [("5 epochs", [5]), ("2 steps", [2, 4]), ("1 epoch", [3, 4])])
def test_a_budget_in_seconds_ends_the_run_at_the_step_in_which_it_is_spent(every, evaluated):
    epochs = Epochs()
    trainer, _, _ = make_trainer(
        [0.1] * 9, every=every, epochs=9, clock=FakeClock(tick_ns=TENTH_S), s=2.0, observers=(epochs,)
    )
    outcome = trainer.run()
    assert outcome.stopped_by == "budget of 2 s spent"
    assert [each.step for each in outcome.evaluations] == evaluated
    assert 2e9 < outcome.evaluations[-1].t_ns < 2e9 + 8 * TENTH_S
    assert epochs.told == [1.0]


def test_a_budget_that_was_spent_before_the_first_step_lets_it_make_one_and_evaluates_it():
    outcome = make_trainer([0.1] * 9, clock=FakeClock(tick_ns=TENTH_S), s=1e-6)[0].run()
    assert [(each.step, each.epoch) for each in outcome.evaluations] == [(1, pytest.approx(1 / 3))]
    assert outcome.evaluations[0].loss is not None


def test_the_time_before_a_resume_counts_towards_the_budget():
    options = {"clock": FakeClock(tick_ns=TENTH_S), "s": 3.9, "every": "9 epochs", "epochs": 9}
    outcome = make_trainer([0.1] * 9, before_ns={"forward": 3_000_000_000}, **options)[0].run()
    assert [each.step for each in outcome.evaluations] == [2]


def test_a_budget_is_looked_at_without_a_clock_reading():
    with_budget, without = (make_trainer([0.1] * 2, epochs=2, s=s)[0].run().evaluations for s in (1e9, None))
    assert [each.phases_ns for each in with_budget] == [each.phases_ns for each in without]


def test_a_budget_of_half_an_epoch_ends_within_it_and_is_evaluated():
    trainer, _, _ = make_trainer([0.1], budget_epochs=0.5)
    outcome = trainer.run()
    assert [each.step for each in outcome.evaluations] == [2]
