"""CartPole and Acrobot: the library's physics, what simple policies get, and states that depend on the seed."""

import numpy as np
import pytest

from levelbench.errors import MissingError
from levelbench.frameworks.numpy import framework
from levelbench.measure.timeline import Timeline
from levelbench.tasks import acrobot, cartpole
from levelbench.training import Trainer
from levelbench.training.datasets import episodes
from levelbench.training.datasets.episodes import Acrobot, AcrobotStarts, CartPole, CartPoleStarts, play
from levelbench.training.stopping import Evaluate, Stopping

STATES = 1000


@pytest.fixture(scope="module")
def gymnasium():
    return pytest.importorskip("gymnasium", reason="Gymnasium is not installed")


@pytest.fixture(scope="module")
def environment(gymnasium):
    return CartPole()


def mean_return(environment, policy):
    return play(environment, policy, environment.starts(STATES, (0, 1, 2))).mean()


def test_actions_at_random_get_22(environment):
    random = np.random.default_rng(0)
    assert mean_return(environment, lambda states: random.integers(2, size=len(states))) == pytest.approx(22, abs=1.5)


@pytest.mark.parametrize("action", [0, 1])
def test_always_the_same_action_gets_9(environment, action):
    returns = mean_return(environment, lambda states: np.full(len(states), action))
    assert returns == pytest.approx(9.4, abs=0.2)


def test_a_linear_rule_gets_500(environment):
    assert mean_return(environment, lambda states: (states @ [0.1, 0.5, 1, 1] > 0).astype(np.int64)) == 500


def test_an_episode_is_gymnasiums(gymnasium, environment):
    env, random = gymnasium.make("CartPole-v1"), np.random.default_rng(0)
    for seed in range(5):
        env.reset(seed=seed)
        states, terminated = np.array([env.unwrapped.state]), False
        while not terminated:
            action = int(random.integers(2))
            observed, reward, terminated, _, _ = env.step(action)
            states, rewards, ended = environment.step(states, np.array([action]))
            np.testing.assert_allclose(states[0], observed, rtol=1e-6)
            assert (rewards[0], ended[0]) == (reward, terminated)


def test_limit_and_target_are_gymnasiums(gymnasium):
    spec = gymnasium.spec("CartPole-v1")
    assert (spec.max_episode_steps, spec.reward_threshold) == (CartPole.limit, cartpole.task.quality.target)


def test_a_step_leaves_the_given_states_alone(environment):
    states = environment.starts(3, (0,))
    kept = states.copy()
    environment.step(states, np.array([0, 1, 0]))
    np.testing.assert_array_equal(states, kept)


def test_starts_depend_on_each_word_of_the_seed(environment):
    first, again, *others = (
        environment.starts(4, seed) for seed in ((1, 2, 3), (1, 2, 3), (2, 2, 3), (1, 1, 3), (1, 2))
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first).max() <= 0.05
    assert all((first != other).all() for other in others)


def test_held_out_states_are_others_at_each_evaluation(gymnasium):
    data = CartPoleStarts(training=16, held_out=8).load()
    keys = [("validation", 0, 0), ("validation", 0, 1), ("validation", 1, 0), ("test", 0, 0)]
    drawn = [data.held_out(*key).inputs for key in keys]
    rows = np.concatenate([data.train.inputs, data.validation.inputs, data.test.inputs, *drawn])
    assert len(np.unique(rows, axis=0)) == len(rows)
    np.testing.assert_array_equal(data.held_out(*keys[1]).inputs, drawn[1])


def test_without_gymnasium_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(episodes, "find_spec", lambda name: None)
    source = CartPoleStarts()
    assert source.lacks() == 'Gymnasium is not installed: pip install "levelbench[rl]"'
    with pytest.raises(MissingError, match="Gymnasium is not installed"):
        source.load()


def test_ppo_learns_in_four_rollouts(gymnasium):
    task = cartpole.task
    recipe = task.assemble("ppo", task.settings("ppo"))
    stopping = Stopping(task.quality.as_target(), "sustained", Evaluate.parse("4 epochs"), 4)
    about = framework.open(), task.data.load(), recipe, task.quality, stopping
    evaluations = Trainer(*about, seed=0, timeline=Timeline()).run().evaluations
    assert evaluations[-1].samples == 4 * 16 * 128
    assert evaluations[-1].quality["validation"] > 100


def test_an_episode_of_acrobot_is_gymnasiums(gymnasium):
    env, random, environment = gymnasium.make("Acrobot-v1"), np.random.default_rng(0), Acrobot()
    for seed in range(3):
        observed, _ = env.reset(seed=seed)
        states, terminated, steps = np.array([observed], float), False, 0
        while not terminated and steps < 300:
            # Against the first link's speed most of the time: this reaches the bar in about 85 steps.
            action = int(random.integers(3)) if random.random() < 0.3 else (0 if observed[4] > 0 else 2)
            observed, reward, terminated, _, _ = env.step(action)
            states, rewards, ended = environment.step(states, np.array([action]))
            np.testing.assert_allclose(states[0], observed, atol=1e-4)
            assert (rewards[0], ended[0]) == (reward, terminated)
            steps += 1
        assert terminated


def test_limit_and_target_of_acrobot_are_gymnasiums(gymnasium):
    spec = gymnasium.spec("Acrobot-v1")
    assert (spec.max_episode_steps, spec.reward_threshold) == (Acrobot.limit, acrobot.task.quality.target)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (lambda states: np.full(len(states), 1), -500),
        (lambda states: np.where(states[:, 4] > 0, 0, 2), -85),
    ],
    ids=["no torque", "against the first link's speed"],
)
def test_a_simple_policy_of_acrobot_gets_what_it_is_known_to_get(policy, expected):
    assert mean_return(Acrobot(), policy) == pytest.approx(expected, abs=1)


def test_states_in_which_acrobot_begins_are_those_of_two_angles_and_hang_nearly_down():
    data = AcrobotStarts(training=16, held_out=8).load()
    states = np.concatenate([data.train.inputs, data.held_out("validation", 0, 0).inputs])
    assert len(np.unique(states, axis=0)) == 24
    np.testing.assert_allclose(states[:, [0, 2]] ** 2 + states[:, [1, 3]] ** 2, 1, rtol=1e-6)
    assert np.abs(states[:, [1, 3, 4, 5]]).max() <= 0.1


def test_the_scale_of_returns_is_the_environments():
    assert (acrobot.task.quality.low, acrobot.task.quality.high) == (-500, 0)
    assert (cartpole.task.quality.low, cartpole.task.quality.high) == (0, 500)
