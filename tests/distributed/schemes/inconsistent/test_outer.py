import numpy as np
import pytest

from levelbench.distributed.schemes.periodic import DiLoCo, LocalSGD
from levelbench.errors import DefinitionError
from levelbench.training import Adam


def test_a_whole_outer_step_without_momentum_is_local_sgd(play):
    outer = play(DiLoCo(period=4, outer_lr=1.0, outer_momentum=0.0), 3, 10)
    local = play(LocalSGD(period=4), 3, 10)
    for one, other in zip(outer, local, strict=True):
        for name in one.parameters:
            np.testing.assert_allclose(one.parameters[name], other.parameters[name], rtol=1e-13)
            np.testing.assert_allclose(one.averaged[name], other.averaged[name], rtol=1e-13)


@pytest.mark.parametrize("nesterov", [True, False])
def test_the_outer_optimizer_takes_the_mean_movement_for_a_gradient(play, begun, nesterov):
    ends = play(DiLoCo(period=3, outer_lr=0.7, outer_momentum=0.9, nesterov=nesterov), 2, 12)
    model, velocity = begun["w"], 0.0
    for _ in range(4):
        inner = [target + 0.9**3 * (model - target) for target in (1, 2)]
        moved = model - np.mean(inner, axis=0)
        velocity = 0.9 * velocity + moved
        model = model - 0.7 * (moved + 0.9 * velocity if nesterov else velocity)
    np.testing.assert_allclose(ends[0].parameters["w"], model, rtol=1e-12)


def test_after_a_round_all_workers_hold_the_same_bits_and_go_on_with_states_of_their_own(play):
    ends = play(DiLoCo(period=3), 3, 6, optimizer=Adam(0.1))
    for end in ends[1:]:
        assert (end.parameters["w"] == ends[0].parameters["w"]).all()
        assert any(
            (value != ends[0].stepper.inner.state()[name]).any() for name, value in end.stepper.inner.state().items()
        )


@pytest.mark.parametrize("settings", [{"period": 0}, {"outer_lr": 0.0}, {"outer_momentum": 1.0}])
def test_settings_that_cannot_be_meant_are_refused(settings):
    with pytest.raises(DefinitionError):
        DiLoCo(**settings)
