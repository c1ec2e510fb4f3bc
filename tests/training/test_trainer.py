"""The trainer on a tiny problem: what it visits, when it stops, what it reports."""

from dataclasses import replace

import numpy as np
import pytest
from tests.measure.test_timeline import Queue
from tests.training.toy import SAMPLES, Scripted, make_dataset, make_trainer

from levelbench.frameworks.numpy import framework
from levelbench.measure.clocks import FakeClock
from levelbench.measure.timeline import Phase, Timeline
from levelbench.networks import Builder
from levelbench.operators.frameworks import load_framework
from levelbench.training import SGD, Observer, OneCycle, Recipe, Shuffled, Trainer
from levelbench.training.input import Held
from levelbench.training.observers import overridden
from levelbench.training.optimizers import EMA
from levelbench.training.stopping import Evaluate, Stopping
from levelbench.training.trainer import _intervals


def test_training_stops_at_the_second_of_two_evaluations_at_the_target():
    trainer, _, _ = make_trainer([0.1, 0.95, 0.2, 0.95, 0.9, 0.99])
    outcome = trainer.run()
    assert outcome.stopped_by == "target reached"
    assert [each.quality["validation"] for each in outcome.evaluations] == [0.1, 0.95, 0.2, 0.95, 0.9]


def test_under_dawnbenchs_rule_the_first_crossing_stops_it():
    assert len(make_trainer([0.1, 0.95, 0.2], crossing="first")[0].run().evaluations) == 2


def test_a_schedule_of_fixed_length_runs_to_its_end_despite_reaching_the_target():
    trainer, _, _ = make_trainer([0.95] * 5, crossing="confirmed", schedule=OneCycle())
    outcome = trainer.run()
    assert outcome.stopped_by == "all epochs done"
    assert len(outcome.evaluations) == 5


def test_the_test_split_is_measured_once_after_the_end():
    trainer, quality, _ = make_trainer([0.1, 0.2], epochs=2)
    outcome = trainer.run()
    assert quality.sizes == [6, 6, 8]
    assert outcome.quality == {"validation": 0.2, "test": 0.5}


def test_others_see_when_the_validation_data_are_evaluated(monkeypatch):
    trainer, quality, _ = make_trainer([0.1, 0.2], epochs=2)
    measure, seen = quality.measure, []

    def watched(executor, held):
        seen.append(trainer.pulse.stage("train"))
        return measure(executor, held)

    monkeypatch.setattr(type(quality), "measure", lambda self, executor, held: watched(executor, held))
    trainer.run()
    assert seen == ["evaluate", "evaluate", "train"]


def test_evaluations_by_steps_cross_epoch_boundaries():
    trainer, _, _ = make_trainer([0.1] * 5, every="2 steps", epochs=3)
    outcome = trainer.run()
    assert [each.step for each in outcome.evaluations] == [2, 4, 6, 8, 9]
    assert [each.samples for each in outcome.evaluations] == [8, 14, 20, 28, 30]


@pytest.mark.parametrize(("every", "epochs"), [("1 epoch", 3), ("2 steps", 3), ("5 steps", 4), ("2 epochs", 4)])
def test_every_epoch_visits_every_sample_once_whatever_the_interval(every, epochs):
    trainer, _, _ = make_trainer([0.1] * 20, every=every, epochs=epochs)
    seen = []
    trainer.backend.take = _recording(trainer.backend.take, seen)
    trainer.run()
    orders = np.array(seen).reshape(epochs, SAMPLES)
    assert all(sorted(order) == list(range(SAMPLES)) for order in orders.tolist())


def _recording(take, seen):
    def recording(array, rows):
        if array.ndim > 1:
            seen.extend(rows.tolist())
        return take(array, rows)

    return recording


def test_phases_add_up_to_the_evaluations_time_and_never_decrease():
    trainer, _, _ = make_trainer([0.1] * 5)
    evaluations = trainer.run().evaluations
    assert all(sum(each.phases_ns.values()) == each.t_ns for each in evaluations)
    assert [each.t_ns for each in evaluations] == sorted(each.t_ns for each in evaluations)


def test_step_times_are_contiguous_and_exclude_the_evaluation():
    class Keep(Observer):
        times: list[int] = []  # noqa: RUF012

        def on_evaluation(self, progress, evaluation, step_times_ns):
            self.times.extend(step_times_ns)

    keep = Keep()
    trainer, _, timeline = make_trainer([0.1] * 2, epochs=2, observers=(keep,))
    trainer.run()
    totals = timeline.totals_ns()
    assert len(keep.times) == 6
    # Each epoch draws its order before its first step: one tick of data besides the steps.
    in_steps = sum(totals[phase.label] for phase in (Phase.DATA, Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE))
    assert 0 <= in_steps - sum(keep.times) <= 4 * 1000


def test_a_loss_that_is_not_finite_ends_the_run_as_diverged():
    trainer, _, _ = make_trainer([0.5] * 9, lr=3e38, epochs=9)
    with np.errstate(all="ignore"):
        outcome = trainer.run()
    assert outcome.diverged is not None
    assert outcome.evaluations[-1].loss is None
    assert len(outcome.evaluations) < 9


def test_equal_seeds_give_equal_bits():
    paths = []
    for _ in range(2):
        trainer, _, _ = make_trainer([0.1] * 3, epochs=3)
        paths.append([each.loss for each in trainer.run().evaluations])
    assert paths[0] == paths[1]


def test_evaluation_does_not_change_parameters():
    trainer, _, _ = make_trainer([])
    from levelbench.training import Top1

    before = {name: array.copy() for name, array in trainer.executor.parameters.items()}
    dataset = make_dataset()
    Top1(target=0.9).measure(trainer.executor, Held(framework.open(), dataset, dataset.test))
    assert all(np.array_equal(before[name], array) for name, array in trainer.executor.parameters.items())


def test_observers_are_called_in_the_order_of_a_run():
    calls = []

    class Watch(Observer):
        def on_start(self, progress):
            calls.append("start")

        def on_step(self, progress):
            calls.append(f"step {progress.step}")

        def on_epoch(self, progress):
            calls.append("epoch")

        def on_evaluation(self, progress, evaluation, step_times_ns):
            calls.append(f"evaluation of {len(step_times_ns)}")

        def on_end(self, progress):
            calls.append("end")

    make_trainer([0.1], epochs=1, observers=(Watch(),))[0].run()
    assert calls == ["start", "step 1", "step 2", "step 3", "epoch", "evaluation of 3", "end"]


def test_a_hook_that_is_not_overridden_is_never_called():
    class Quiet(Observer):
        def on_end(self, progress):
            pass

    assert overridden((Quiet(), Observer()), "on_step") == ()
    assert len(overridden((Quiet(), Observer()), "on_end")) == 1


@pytest.mark.parametrize(
    ("first", "last", "every", "pieces"),
    [
        (0, 3, 3, [(0, 3)]),
        (3, 6, 3, [(3, 6)]),
        (3, 6, 2, [(3, 4), (4, 6)]),
        (0, 3, 1, [(0, 1), (1, 2), (2, 3)]),
        (3, 6, 10, [(3, 6)]),
    ],
)
def test_an_epoch_is_split_where_an_evaluation_is_due(first, last, every, pieces):
    assert _intervals(first, last, every) == pieces


@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_averaged_weights_are_evaluated_and_the_trained_ones_are_put_back(name):
    found = load_framework(name)
    if lacking := found.lacks():
        pytest.skip(lacking)
    backend, seen = found.open(), []

    class Watching(Scripted):
        def measure(self, executor, held):
            seen.append(np.array(backend.host(executor.parameters["layer0.weight"])))
            return super().measure(executor, held)

    recipe = Recipe(Builder("linear", (3,)).gemm(2).build(), Shuffled(4), EMA(SGD(0.5), decay=0.9), epochs=2)
    quality = Watching([0.1, 0.2])
    stopping = Stopping(quality.as_target(), "confirmed", Evaluate.parse("1 epoch"), 2)
    timeline = Timeline(FakeClock(tick_ns=1000))
    trainer = Trainer(backend, make_dataset(), recipe, quality, stopping, seed=0, timeline=timeline)
    trainer.run()
    averaged = np.array(backend.host(trainer.stepper.averaged()["layer0.weight"]))
    trained = np.array(backend.host(trainer.executor.parameters["layer0.weight"]))
    assert np.array_equal(seen[-1], averaged)
    assert not np.array_equal(trained, averaged)
    # The average mixes trained weights; the loss continues from weights that no evaluation touched.
    plain = Trainer(
        backend,
        make_dataset(),
        replace(recipe, optimizer=SGD(0.5)),
        Scripted([0.1, 0.2]),
        stopping,
        seed=0,
        timeline=Timeline(FakeClock(tick_ns=1000)),
    )
    plain.run()
    assert np.array_equal(np.array(backend.host(plain.executor.parameters["layer0.weight"])), trained)


TENTH_S = 100_000_000


class Epochs(Observer):
    def __init__(self):
        self.seen = []

    def on_epoch(self, progress):
        self.seen.append(progress.epoch)


# A step is four readings of the clock, an epoch is three steps: 2 s are over in the second epoch.
@pytest.mark.parametrize(("every", "evaluated"), [("5 epochs", [5]), ("2 steps", [2, 3]), ("1 epoch", [3, 4])])
def test_a_time_budget_ends_the_run_at_the_step_that_exceeds_it(every, evaluated):
    epochs = Epochs()
    trainer, _, _ = make_trainer(
        [0.1] * 9, every=every, epochs=9, clock=FakeClock(tick_ns=TENTH_S), s=2.0, observers=(epochs,)
    )
    outcome = trainer.run()
    assert outcome.stopped_by == "budget of 2 s spent"
    assert [each.step for each in outcome.evaluations] == evaluated
    assert 2e9 < outcome.evaluations[-1].t_ns < 2e9 + 9 * TENTH_S
    assert epochs.seen == [1.0]


def test_a_budget_spent_before_the_first_step_allows_one_step_and_evaluation():
    outcome = make_trainer([0.1] * 9, clock=FakeClock(tick_ns=TENTH_S), s=1e-6)[0].run()
    assert [(each.step, each.epoch) for each in outcome.evaluations] == [(1, pytest.approx(1 / 3))]
    assert outcome.evaluations[0].loss is not None


def test_the_time_before_a_resume_counts_towards_the_budget():
    options = {"clock": FakeClock(tick_ns=TENTH_S), "s": 3.9, "every": "9 epochs", "epochs": 9}
    outcome = make_trainer([0.1] * 9, before_ns={"forward": 3_000_000_000}, **options)[0].run()
    assert [each.step for each in outcome.evaluations] == [2]


def test_a_budget_needs_no_clock_reading_of_its_own():
    with_budget, without = (make_trainer([0.1] * 2, epochs=2, s=s)[0].run().evaluations for s in (1e9, None))
    assert [each.phases_ns for each in with_budget] == [each.phases_ns for each in without]


def test_a_budget_of_half_an_epoch_ends_within_it_and_is_evaluated():
    trainer, _, _ = make_trainer([0.1], budget_epochs=0.5)
    outcome = trainer.run()
    assert [each.step for each in outcome.evaluations] == [2]


class Working(SGD):
    """An optimizer that computes the weights to evaluate."""

    def start(self, backend, parameters):
        stepper, clock = super().start(backend, parameters), self.clock

        def averaged():
            clock.advance(1_000_000_000)

        stepper.averaged = averaged
        return stepper


def test_an_optimizers_work_for_evaluation_counts_as_the_previous_steps_update(monkeypatch):
    clock = FakeClock()
    monkeypatch.setattr(Working, "clock", clock, raising=False)
    trainer, _, _ = make_trainer([0.1] * 3, epochs=3, clock=clock, optimizer=Working(0.1))
    times = []
    trainer.observers = (*trainer.observers, _Steps(times))
    last = trainer.run().evaluations[-1]
    assert last.phases_ns["update"] >= 3_000_000_000 > last.phases_ns.get("evaluate", 0)
    assert [sum(each) >= 1_000_000_000 for each in times] == [True] * 3


def test_phases_and_steps_on_a_device_are_times_of_its_work_and_no_step_waits_for_it():
    clock = FakeClock()
    device = Queue(clock)
    trainer, _, _ = make_trainer([0.1] * 2, epochs=2, clock=clock)
    trainer.timeline.follow(device)
    executor, waits, times = trainer.executor, [], []
    forward, backward = executor.forward, executor.backward
    finish = device.finish

    def launching(work, ns):
        def call(*given):
            device.launch(ns)
            clock.advance(10)
            return work(*given)

        return call

    def waiting():
        waits.append(trainer.progress.step)
        finish()

    device.finish = waiting
    executor.forward, executor.backward = launching(forward, 3_000), launching(backward, 7_000)
    trainer.observers = (*trainer.observers, _Steps(times))
    last = trainer.run().evaluations[-1]
    steps = trainer.steps_per_epoch
    assert last.phases_ns["forward"] == 2 * steps * 3_000
    assert last.phases_ns["backward"] == 2 * steps * 7_000
    assert times == [[10_000] * steps] * 2
    assert set(waits) == {steps, 2 * steps}


class _Steps(Observer):
    def __init__(self, times):
        self.times = times

    def on_evaluation(self, progress, evaluation, step_times_ns):
        self.times.append(step_times_ns)


@pytest.mark.parametrize("honest", [True, False])
def test_a_quality_that_changes_the_weights_is_noticed(honest):
    trainer, quality, _ = make_trainer([0.1, 0.2], epochs=2)
    measure = quality.measure

    def training(executor, held):
        for value in executor.parameters.values():
            value += 1.0
        return measure(executor, held)

    if not honest:
        object.__setattr__(quality, "measure", training)
    trainer.run()
    assert trainer.changed_by_evaluation is not honest
