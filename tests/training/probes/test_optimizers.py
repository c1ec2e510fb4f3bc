"""``check_optimizer`` finds what is wrong with an optimizer, and nothing if all is well."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from tests.training.probes.optimizer_faults import (
    FAULTS,
    EpsilonInsideTheRoot,
    MomentumLostLate,
    MyAdam,
    MyMomentum,
    WrongSign,
)

from levelbench.errors import CheckFailedError, DefinitionError, UnknownNameError
from levelbench.training import optimizers as ours
from levelbench.training.optimizers import SGD, Adam, AdamW, Clip, Groups, Momentum
from levelbench.training.optimizers.wrappers import Native
from levelbench.training.probes import optimizers as probes
from levelbench.training.probes.optimizer_runs import SHAPES, OptimizerTrial, Quadratic, open_backend
from levelbench.training.probes.optimizers import check_optimizer

pytestmark = pytest.mark.sampled(3)

STEPS = 8


def failed_probes(optimizer, reference=None):
    return {each.probe for each in check_optimizer(optimizer, reference, steps=STEPS).report.failed}


class Threshold(SGD):
    def update(self, parameter, gradient, state, step, lr):
        return parameter - lr * gradient * (abs(gradient) > 1e-3), state


class Begun(SGD):
    """Momentum whose state begins at ``begin``, as both moments do in optax's Yogi, and keeps ``kept`` of it a step."""

    begin, kept = 1e-6, 0.9

    def init(self, parameter):
        return 0 * parameter + self.begin

    def update(self, parameter, gradient, state, step, lr):
        state = self.kept * state + gradient
        return parameter - lr * state, state


class Drifts(Begun):
    kept = 1.0


def test_a_state_that_begins_above_zero_and_fades_is_noted_and_one_that_stays_is_found():
    (finding,) = check_optimizer(Begun(0.01), steps=STEPS).report.of("zero gradients")
    assert (finding.status, "does not begin at 0" in finding.found) == ("noted", True)
    assert "zero gradients" in failed_probes(Drifts(0.01))


class Coefficients(SGD):
    """A state in float64: coefficients that stay, or a count of steps."""

    grows = 0.0

    def init(self, parameter):
        return np.array([3.4445, -4.775, 2.0315])

    def update(self, parameter, gradient, state, step, lr):
        return parameter - lr * gradient, state + self.grows


class Counts(Coefficients):
    grows = 1.0


class NeedsClosure(SGD):
    def update(self, parameter, gradient, state, step, lr):
        raise RuntimeError("it needs a closure")


def test_what_all_shapes_raise_is_one_finding_and_a_closure_has_its_own_advice():
    (finding,) = check_optimizer(NeedsClosure(0.01), steps=STEPS).report.of("shapes")
    assert (finding.found, "without a closure" in finding.do) == (
        "a parameter of any shape raised RuntimeError: it needs a closure",
        True,
    )


def test_constants_in_float64_are_no_state_and_what_changes_is():
    assert "dtype and shape" not in failed_probes(Coefficients(0.01))
    assert "dtype and shape" in failed_probes(Counts(0.01))


def test_gradients_below_a_fixed_number_that_move_nothing_are_found():
    assert "scale of gradients" in failed_probes(Threshold(0.01))


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "reference", "probe"), FAULTS, ids=lambda each: type(each).__name__)
def test_a_planted_fault_is_caught_by_the_probe_that_it_is_for(optimizer, reference, probe):
    assert probe in failed_probes(optimizer, reference)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(0.1, weight_decay=0.1),
        Momentum(0.1, nesterov=True),
        ours.AdaGrad(0.1),
        ours.RMSProp(0.01, momentum=0.5, centered=True),
        ours.Adadelta(1.0),
        Adam(0.1, amsgrad=True),
        AdamW(0.1),
        ours.NAdam(0.1),
        ours.LAMB(0.01, weight_decay=0.1),
        ours.LARS(0.1),
        ours.Lion(0.01, weight_decay=0.1),
        ours.Adafactor(0.1),
        ours.Muon(0.02),
        ours.Shampoo(0.1),
        ours.ScheduleFreeSGD(0.1),
        ours.ScheduleFreeAdamW(0.1),
        ours.AcceleGrad(),
        Clip(Adam(0.1), 1.0),
        ours.ClipValue(Adam(0.1), 0.1),
        ours.EMA(Momentum(0.1), 0.9),
        ours.Decay(Momentum(0.1)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_correct_optimizer_passes(optimizer):
    assert failed_probes(optimizer) == set()


@pytest.mark.parametrize(
    ("mine", "reference"), [(MyAdam(), "adam"), (MyMomentum(), "Momentum"), (MyMomentum(), Momentum(0.05))]
)
def test_another_formulation_of_the_same_rule_passes(mine, reference):
    assert failed_probes(mine, reference) == set()


def test_the_divergence_is_reported_step_by_step():
    checked = check_optimizer(EpsilonInsideTheRoot(), "adam", steps=STEPS)
    small = next(each for each in checked.divergences if each.problem == "small gradients")
    assert small.first == 1
    assert small.l2.shape == small.linf.shape == (STEPS,)
    assert (small.linf > 1e-3).all()


@pytest.mark.slow
def test_a_fault_that_shows_after_900_steps_is_caught_by_the_long_run():
    checked = check_optimizer(MomentumLostLate(), "adam")
    assert "reference: long" in {each.probe for each in checked.report.failed}
    assert next(each.first for each in checked.divergences if each.problem == "long") == 900


def test_a_reference_gets_the_settings_that_have_the_same_name():
    assert "first step" not in failed_probes(MyAdam(beta2=0.7, lr=0.2), "adam")
    assert "reference: quadratic" in failed_probes(MyAdam(beta2=0.7), Adam(0.05, beta2=0.71))


def test_shapes_that_a_rule_refuses_are_noted_and_left_out():
    report = check_optimizer(ours.Muon(0.02), steps=STEPS).report
    assert [each.status for each in report.of("shapes")] == ["noted", "noted"]


def test_unchecked_parts_are_reported():
    report = check_optimizer(SGD(0.1), steps=STEPS).report
    assert [each.status for each in report.of("reference")] == ["not tried"]
    assert [each.status for each in report.of("frameworks")] == ["not tried"]


def test_an_unknown_reference_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="adamw"):
        check_optimizer(SGD(0.1), "adamwe")


def test_groups_are_checked_one_by_one():
    with pytest.raises(DefinitionError, match="separately"):
        check_optimizer(Groups(SGD(0.1), {"*.bias": SGD(0.2)}))


def test_findings_can_be_raised():
    with pytest.raises(CheckFailedError, match="descent"):
        check_optimizer(WrongSign(), steps=STEPS).report.raise_for_findings()


def test_a_rule_that_raises_is_a_finding():
    class Raises(MyAdam):
        def update(self, parameter, gradient, state, step, lr):
            raise RuntimeError("not written yet")

    assert failed_probes(Raises()) == {"shapes"}


def test_the_gradient_of_a_parameter_does_not_depend_on_which_others_are_asked_for():
    problem = Quadratic("alone", spoilt=(2, 5.0))
    start = problem.start()
    together = problem.gradients(2, start)
    assert together["matrix"].flat[0] == 5.0
    for name, each in start.items():
        alone = problem.gradients(2, {name: each})
        assert alone[name].shape == each.shape
        assert np.array_equal(alone[name], together[name])


def trial(optimizer):
    return OptimizerTrial(optimizer, open_backend("numpy"), 0, STEPS, {"vector": SHAPES["vector"]})


def test_a_run_that_gives_the_same_bits_twice_is_not_made_a_third_time():
    subject = trial(SGD(0.1))
    assert [each.status for each in probes._deterministic(subject)] == ["passed"]
    assert subject.usual() is subject.usual()


class Drawing(MyMomentum):
    def update(self, parameter, gradient, state, step, lr):
        return super().update(parameter, gradient * np.random.default_rng().random(), state, step, lr)


def test_a_run_that_gives_other_bits_each_time_is_made_again():
    subject = trial(Drawing())
    assert [each.status for each in probes._deterministic(subject)] == ["failed"]
    assert subject.usual() is not subject.usual()


@dataclass(frozen=True)
class DecayOfSchedule(SGD):
    """Decay follows the schedule, not the rate (Loshchilov & Hutter 2019, algorithm 1)."""

    def update(self, parameter, gradient, state, step, lr):
        return parameter * (1 - 0.01 * lr / self.lr) - lr * gradient, state


@dataclass(frozen=True)
class OwnRate(SGD):
    """Takes the schedule's factor and leaves out the rate."""

    def update(self, parameter, gradient, state, step, lr):
        return parameter - 0.01 * lr / self.lr * gradient, state


def test_what_follows_the_schedule_and_not_the_rate_is_noted():
    report = check_optimizer(DecayOfSchedule(0.01), steps=STEPS).report
    assert {each.status for each in report.of("rate")} == {"noted"}
    assert report.failed == ()


def test_a_rate_that_is_ignored_is_found_although_the_schedule_is_not():
    assert "rate" in failed_probes(OwnRate(0.01))


def test_a_rate_that_counts_from_the_next_step_on_is_no_limit():
    torch = pytest.importorskip("torch")
    found = check_optimizer(Native.of(partial(torch.optim.ASGD, lr=0.01)), frameworks=("torch",), steps=STEPS).report
    assert "high rates" not in {each.probe for each in found.failed}
