import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.distributed.communicators.wrapping import Delays
from levelbench.distributed.schemes.gossip import Gossip, half, peers_of
from levelbench.errors import DefinitionError


def apart_then_still(rank, parameters, step):
    """Separates the workers in the first step and does not move them afterwards."""
    return {name: np.full_like(each, float(rank) if step == 1 else 0.0) for name, each in parameters.items()}


def by_rank(rank, parameters, step):
    """The same gradient in every step."""
    return {name: np.full_like(each, float(rank)) for name, each in parameters.items()}


@pytest.mark.parametrize("peers", ["exponential", "random"])
@pytest.mark.parametrize("seed", range(5))
def test_mass_is_preserved_and_gradients_count_equally_with_late_messages(play, begun, peers, seed):
    size, steps = 4, 24
    delays = Delays(seed, 0.0005, slow={seed % size: 0.001})
    ends = play(Gossip(peers=peers), size, steps, gradient=by_rank, meet=8, delays=delays)
    weights = np.array([end.stepper.weight for end in ends])
    assert weights.sum() == pytest.approx(size, rel=1e-14)
    assert weights.min() >= 0.249
    for name, value in begun.items():
        mass = sum(weight * end.parameters[name] for weight, end in zip(weights, ends, strict=True))
        np.testing.assert_allclose(mass, sum(value - 0.1 * rank * steps for rank in range(size)), rtol=1e-12)
        np.testing.assert_allclose(ends[2].averaged[name], mass / size, rtol=1e-12)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_in_lockstep_without_gradients_all_hold_the_mean_after_log2_p_steps(play, begun, size):
    rounds = int(np.log2(size))
    # The workers separate before the first message.
    ends = play(Gossip(ahead=0), size, rounds, gradient=apart_then_still)
    for end in ends:
        np.testing.assert_allclose(end.parameters["w"], begun["w"] - 0.1 * (size - 1) / 2, rtol=1e-14)
        assert end.stepper.weight == 1
        assert set(end.notes["staleness"]) == {0}


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_a_worker_waits_for_a_message_that_was_due_ahead_steps_ago(play, ahead):
    ends = play(Gossip(ahead=ahead), 3, 15, delays=Delays(1, 0.0002, slow={1: 0.001}))
    ages = [age for end in ends for age in end.notes["staleness"]]
    assert max(ages) <= ahead
    assert len(ages) == 3 * 15
    assert ahead == 0 or max(ages) > 0


@given(weight=st.floats(0, 64))
def test_half_of_a_weight_is_exact_in_any_dtype(weight):
    given_away = half(weight)
    assert given_away == (0 if weight < 2**-6 else pytest.approx(weight / 2, rel=2**-8))
    assert float(np.float16(given_away)) == given_away
    assert np.frexp(given_away)[0] * 256 % 1 == 0
    assert (weight - given_away) + given_away == weight


@given(size=st.integers(2, 9), step=st.integers(1, 40), name=st.sampled_from(["exponential", "random"]))
def test_each_worker_gets_one_message_per_step(size, step, name):
    peers = peers_of(name, size, 5)
    pairs = [peers(rank, step) for rank in range(size)]
    assert sorted(target for _, target in pairs) == list(range(size))
    for rank, (source, target) in enumerate(pairs):
        assert source != rank != target
        assert pairs[target][0] == rank


def test_a_single_worker_equals_one_process(play, begun):
    (end,) = play(Gossip(), 1, 4)
    np.testing.assert_allclose(end.averaged["b"], 1 + 0.9**4 * (begun["b"] - 1), rtol=1e-13)


def test_impossible_settings_are_refused():
    with pytest.raises(DefinitionError, match="exponential, random"):
        Gossip(peers="nearest")
    with pytest.raises(DefinitionError, match="ahead"):
        Gossip(ahead=-1)
