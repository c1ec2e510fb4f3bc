"""Model averaging, local SGD and DiLoCo: presets of one scheme."""

import numpy as np
import pytest

from levelbench.distributed.schemes.periodic import DiLoCo, LocalSGD, ModelAveraging
from levelbench.errors import DefinitionError
from levelbench.training import SGD, Adam, Momentum

SHARES = [0.5, 0.3, 0.2]


def one_process(parameters, steps, update):
    """One process with the gradient of the whole batch: each part pulls towards rank + 1, weighted by its share."""
    target = sum(share * (rank + 1) for rank, share in enumerate(SHARES))
    state = {name: np.zeros_like(each) for name, each in parameters.items()}
    for _ in range(steps):
        for name, each in parameters.items():
            parameters[name], state[name] = update(each, each - target, state[name])
    return parameters


@pytest.mark.parametrize("scheme", [ModelAveraging(), LocalSGD(period=1), LocalSGD(period=9, post_local=20)])
def test_averaging_after_each_step_of_plain_sgd_equals_one_process(play, begun, scheme):
    ends = play(scheme, 3, 20, shares=SHARES)
    alone = one_process(begun, 20, lambda x, g, v: (x - 0.1 * g, v))
    for end in ends:
        for name in alone:
            np.testing.assert_allclose(end.parameters[name], alone[name], rtol=1e-13)


def test_averaging_after_each_step_of_momentum_equals_one_process(play, begun):
    ends = play(ModelAveraging(), 3, 20, shares=SHARES, optimizer=Momentum(0.1, 0.9))
    alone = one_process(begun, 20, lambda x, g, v: (x - 0.1 * (0.9 * v + g), 0.9 * v + g))
    np.testing.assert_allclose(ends[1].parameters["w"], alone["w"], rtol=1e-12)


def test_optimizer_state_stays_local_unless_averaged(play):
    def first_moments(scheme):
        ends = play(scheme, 3, 6, optimizer=Adam(0.1))
        return [end.stepper.inner.state() for end in ends]

    own, shared = first_moments(ModelAveraging()), first_moments(ModelAveraging(optimizer_state=True))
    for name, value in shared[0].items():
        assert all((state[name] == value).all() for state in shared)
        assert value.dtype.kind != "f" or any((state[name] != own[0][name]).any() for state in own[1:])
    means = {name: np.mean([state[name] for state in own], 0) for name in own[0]}
    assert {name: each.shape for name, each in shared[0].items()} == {name: np.shape(means[name]) for name in means}


def test_models_differ_between_two_averages(play, begun):
    ends = play(ModelAveraging(every=4), 3, 3)
    for rank, end in enumerate(ends):
        expected = (rank + 1) + 0.9**3 * (begun["w"] - (rank + 1))
        np.testing.assert_allclose(end.parameters["w"], expected, rtol=1e-13)


def test_every_worker_evaluates_the_mean_of_all_models(play):
    ends = play(ModelAveraging(every=4), 3, 6)
    for name in ("w", "b"):
        mean = np.mean([end.parameters[name] for end in ends], axis=0)
        for end in ends:
            np.testing.assert_allclose(end.averaged[name], mean, rtol=1e-14)


def test_models_are_averaged_in_every_nth_step(play):
    apart = []

    def after(rank, step, stepper):
        if rank == 0:
            apart.append(stepper.parameters["w"].copy())

    ends = play(LocalSGD(period=3), 2, 6, after=after)
    assert [bool((ends[1].parameters["w"] == each).all()) for each in apart][-1]
    jumps = np.abs(np.diff([each[0, 0] for each in apart]))
    assert jumps[1] > jumps[0]
    assert ends[0].notes["period"] == [3, 3]


def test_divergence_is_noted_at_meetings(play):
    ends = play(ModelAveraging(every=4), 2, 6, meet=3)
    values = [np.concatenate([each.ravel() for each in end.parameters.values()]) for end in ends]
    mean = np.mean(values, axis=0)
    assert ends[1].notes["divergence"][-1] == pytest.approx(np.linalg.norm(values[1] - mean) / np.linalg.norm(mean))
    assert ends[0].notes["divergence"][0] > 0


def test_drift_is_noted_in_each_round(play, begun):
    ends = play(ModelAveraging(every=3), 2, 6)
    flat = np.concatenate([begun["w"].ravel(), begun["b"]])
    models = [target + 0.9**3 * (flat - target) for target in (1, 2)]
    mean = np.mean(models, axis=0)
    drift = np.linalg.norm(models[0] - mean) / np.linalg.norm(mean)
    assert ends[0].notes["drift"][0] == pytest.approx(drift, rel=1e-12)
    assert len(ends[0].notes["drift"]) == 2
    assert "drift" not in play(ModelAveraging(), 2, 2)[0].notes


def test_a_worker_without_examples_only_takes_the_mean(play, begun):
    def gradient(rank, parameters, step):
        return {name: np.full_like(each, 3.0 if rank == 0 else 7.0) for name, each in parameters.items()}

    ends = play(ModelAveraging(), 2, 1, shares=[1.0, 0.0], gradient=gradient)
    np.testing.assert_allclose(ends[1].parameters["b"], begun["b"] - 0.1 * 3, rtol=1e-14)


def test_after_the_first_steps_the_period_is_the_long_one():
    scheme = LocalSGD(period=8, post_local=10).meant
    assert [scheme.steps_of_round(step, 0.1) for step in (1, 10, 11)] == [1, 1, 8]


@pytest.mark.parametrize(("lr", "steps"), [(0.1, 4), (0.02, 6), (0.01, 25), (0.0, 4)])
def test_the_period_grows_as_the_square_of_the_falling_rate(lr, steps):
    assert LocalSGD(period=4, growth=0.05).meant.steps_of_round(1, lr) == steps


@pytest.mark.parametrize(("kind", "settings"), [(ModelAveraging, {"every": 0}), (LocalSGD, {"period": 0})])
def test_a_period_below_one_is_refused(kind, settings):
    with pytest.raises(DefinitionError, match="integer >= 1"):
        kind(**settings)


def test_the_length_of_a_round_follows_from_its_initial_rate(play):
    # The schedule's factor is 1 here, so a round at rate 0.1 with growth 0.25 takes 6 steps.
    ends = play(LocalSGD(period=2, growth=0.25), 2, 12, optimizer=SGD(0.1))
    assert ends[0].notes["period"] == [6, 6]


def test_a_full_outer_step_without_momentum_is_local_sgd(play):
    outer = play(DiLoCo(period=4, outer_lr=1.0, outer_momentum=0.0), 3, 10)
    local = play(LocalSGD(period=4), 3, 10)
    for one, other in zip(outer, local, strict=True):
        for name in one.parameters:
            np.testing.assert_allclose(one.parameters[name], other.parameters[name], rtol=1e-13)
            np.testing.assert_allclose(one.averaged[name], other.averaged[name], rtol=1e-13)


@pytest.mark.parametrize("nesterov", [True, False])
def test_the_outer_optimizer_uses_the_mean_movement_as_gradient(play, begun, nesterov):
    ends = play(DiLoCo(period=3, outer_lr=0.7, outer_momentum=0.9, nesterov=nesterov), 2, 12)
    model, velocity = begun["w"], 0.0
    for _ in range(4):
        inner = [target + 0.9**3 * (model - target) for target in (1, 2)]
        moved = model - np.mean(inner, axis=0)
        velocity = 0.9 * velocity + moved
        model = model - 0.7 * (moved + 0.9 * velocity if nesterov else velocity)
    np.testing.assert_allclose(ends[0].parameters["w"], model, rtol=1e-12)


def test_after_a_round_workers_hold_the_same_bits_and_keep_their_own_state(play):
    ends = play(DiLoCo(period=3), 3, 6, optimizer=Adam(0.1))
    for end in ends[1:]:
        assert (end.parameters["w"] == ends[0].parameters["w"]).all()
        assert any(
            (value != ends[0].stepper.inner.state()[name]).any() for name, value in end.stepper.inner.state().items()
        )


@pytest.mark.parametrize("settings", [{"period": 0}, {"outer_lr": 0.0}, {"outer_momentum": 1.0}])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(DefinitionError):
        DiLoCo(**settings)
