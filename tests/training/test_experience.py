"""Experience: advantages, what a rollout becomes, and runs on it that are fresh, deterministic and resumable."""

import numpy as np
import pytest
from tests.training.test_checkpoints import KillAt, Killed

from levelbench.errors import DataError, DefinitionError, UnsupportedError
from levelbench.frameworks.numpy import framework
from levelbench.measure.clocks import FakeClock
from levelbench.measure.timeline import Timeline
from levelbench.networks import Draw, GraphBuilder
from levelbench.training import Adam, Flip, Recipe, Shuffled, Trainer
from levelbench.training.checkpoints import Saving, load
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.datasets.episodes import Environment, play
from levelbench.training.experience import ExperienceLoader, Rollouts, advantages
from levelbench.training.input import Held
from levelbench.training.observers.files import GradientNoise
from levelbench.training.quality import MeanReturn
from levelbench.training.stopping import Evaluate, Stopping
from levelbench.training.trainer import Team


class Walk(Environment):
    """From 0 to 1, which gives 1, and from there to the end, which gives 2, whatever is done."""

    actions, limit, highest = 2, 10, 3.0

    def starts(self, count, seed):
        return np.zeros((count, 1))

    def step(self, states, actions):
        return states + 1.0, states[:, 0] + 1.0, states[:, 0] == 1.0


class Endless(Walk):
    """A reward of 1 a step; only the limit of 3 steps stops it."""

    limit, highest = 3, 3.0

    def step(self, states, actions):
        return states + 1.0, np.ones(len(states)), np.zeros(len(states), np.bool_)


class Bandit(Walk):
    """Two states, drawn at random; the action of the state's number gives 1, and the episode ends."""

    limit, highest = 1, 1.0

    def __init__(self):
        self.seeds = []

    def starts(self, count, seed):
        self.seeds.append(tuple(seed))
        return np.random.default_rng(seed).integers(2, size=(count, 1)).astype(np.float64)

    def step(self, states, actions):
        return states, (states[:, 0] == actions).astype(np.float64), np.ones(len(states), np.bool_)


class Fixed:
    """In place of an executor: the same logits and value in every state."""

    def __init__(self, logits=(0.0, 1.0), value=5.0):
        self.logits, self.value, self.rows = np.array(logits, np.float32), np.float32(value), []

    def infer(self, states):
        self.rows.append(len(states))
        return np.tile(self.logits, (len(states), 1)), np.full(len(states), self.value)


def loader_of(environment, rollouts, executor=None, batch=4, seed=0):
    return ExperienceLoader(
        framework.open(), environment, rollouts, Shuffled(batch), seed=seed, executor=executor or Fixed()
    )


def columns_of(loader, epoch=0):
    """The columns of an epoch's first pass, in the order of the rollout: by state, then as they come."""
    batches = list(loader.batches(epoch))
    return [np.concatenate(each) for each in zip(*batches, strict=True)]


def test_advantages_are_the_direct_sum():
    random = np.random.default_rng(0)
    rewards, values, following = random.standard_normal((3, 7, 2))
    ended = random.random((7, 2)) < 0.3
    deltas = rewards + 0.9 * following - values
    expected = np.zeros((7, 2))
    for start, each in np.ndindex(7, 2):
        for at in range(start, 7):
            expected[start, each] += (0.9 * 0.8) ** (at - start) * deltas[at, each]
            if ended[at, each]:
                break
    np.testing.assert_allclose(advantages(rewards, values, following, ended, discount=0.9, trace=0.8), expected)


def test_returns_of_whole_episodes_are_discounted_sums_whatever_the_values():
    states, _, _, returns, _ = columns_of(loader_of(Walk(), Rollouts(2, 4, 1, discount=0.9, trace=1.0)))
    np.testing.assert_allclose(returns, np.where(states[:, 0] == 0, 1 + 0.9 * 2, 2), rtol=1e-6)


def test_a_truncated_episode_goes_on_in_its_value_and_a_terminated_one_does_not():
    rollouts = Rollouts(1, 6, 1, discount=0.5, trace=1.0)
    states, _, _, returns, _ = columns_of(loader_of(Endless(), rollouts, Fixed(value=8.0)))
    np.testing.assert_allclose(returns, np.array([1 + 0.5 * (1 + 0.5 * 5), 1 + 0.5 * 5, 5])[states[:, 0].astype(int)])
    *_, returns, _ = columns_of(loader_of(Walk(), rollouts, Fixed(value=8.0)))
    np.testing.assert_allclose(returns, 2.0)  # 1 + 0.5 * 2 from the first state, 2 from the second


def test_a_rollout_that_stops_inside_an_episode_goes_on_in_its_value():
    _, _, _, returns, _ = columns_of(loader_of(Endless(), Rollouts(1, 2, 1, discount=0.5, trace=1.0), Fixed(value=8.0)))
    assert sorted(returns) == [1 + 0.5 * (1 + 0.5 * 8), 1 + 0.5 * 8]


def test_an_episode_goes_on_in_the_next_rollout():
    loader = loader_of(Endless(), Rollouts(1, 2, 1))
    seen = [sorted(columns_of(loader, epoch)[0][:, 0].tolist()) for epoch in range(3)]
    assert seen == [[0, 1], [0, 2], [1, 2]]


def test_the_bandit_has_its_closed_form():
    """Returns are rewards, advantages are reward minus value up to shift and scale, chances are the softmax."""
    states, likely, gains, returns, actions = columns_of(loader_of(Bandit(), Rollouts(50, 20, 1), batch=100))
    np.testing.assert_array_equal(returns, states[:, 0] == actions)
    np.testing.assert_allclose(gains, (returns - returns.mean()) / returns.std(), rtol=1e-4)
    chance = np.e / (1 + np.e)
    np.testing.assert_allclose(likely, np.log(np.where(actions == 1, chance, 1 - chance)), rtol=1e-5)
    assert abs(actions.mean() - chance) < 5 * np.sqrt(chance * (1 - chance) / 1000)


def test_sizes_are_shares_of_the_environments_steps_however_often_they_are_visited():
    loader = loader_of(Walk(), Rollouts(3, 7, passes=2))
    assert loader.steps == 2 * 6
    assert loader.sizes(0).sum() == 21
    assert loader.sizes(0).min() >= 1
    assert sum(len(batch[0]) for batch in loader.batches(0)) == 2 * 21


def test_an_epoch_is_made_once_and_its_middle_is_the_same_batches():
    executor = Fixed()
    loader, other = loader_of(Bandit(), Rollouts(4, 8, 2), executor), loader_of(Bandit(), Rollouts(4, 8, 2))
    parts = [*loader.batches(0, 0, 5), *loader.batches(0, 5, 11), *loader.batches(0, 11)]
    assert len(executor.rows) == 8 + 1
    for ours, its in zip(parts, other.batches(0), strict=True):
        assert [each.tobytes() for each in ours] == [each.tobytes() for each in its]


def test_an_epoch_out_of_order_is_refused():
    with pytest.raises(DataError, match="Take epochs in their order"):
        next(loader_of(Walk(), Rollouts(1, 4, 1)).batches(1))


def test_more_updates_than_steps_of_the_environment_are_refused():
    with pytest.raises(DefinitionError, match="16 updates for 8 steps"):
        loader_of(Walk(), Rollouts(1, 8, passes=16), batch=8)


def test_the_draws_depend_on_the_seed_and_the_epoch():
    first, again, other = (columns_of(loader_of(Bandit(), Rollouts(8, 8, 1), seed=seed)) for seed in (0, 0, 1))
    assert [each.tobytes() for each in first] == [each.tobytes() for each in again]
    assert first[4].tobytes() != other[4].tobytes()


def network(outputs=2):
    g = GraphBuilder("small")
    state = g.input("state", ("batch", 1))
    weight, bias = (g.parameter(name, size, Draw("normal", 1.0)) for name, size in (("weight", (1, 8)), ("bias", (8,))))
    hidden = g.node("Tanh", g.node("Gemm", state, weight, bias))
    g.output(g.node("MatMul", hidden, g.parameter("actor", (8, 2), Draw("normal", 0.1))), "logits")
    if outputs > 1:
        value = g.node("MatMul", hidden, g.parameter("critic", (8, 1), Draw("normal", 0.1)))
        g.output(g.node("Reshape", value, g.constant([-1])), "value")
    return g.build()


def dataset_of(environment):
    def split(count):
        zeros = np.zeros(count, np.float32)
        return Split((zeros[:, None], zeros, zeros, zeros, np.zeros(count, np.int64)), targets=4)

    return Dataset("made", split(32), split(8), split(8), 2, {}, "none", "none", "here", environment=environment)


def trainer_of(environment=None, *, seed=3, dataset=None, **more):
    environment = environment or Bandit()
    recipe = Recipe(
        network().with_policy_loss(), Shuffled(8), Adam(0.01), epochs=4, experience=Rollouts(4, 8, passes=2)
    )
    quality = MeanReturn(target=0.9, environment=environment)
    stopping = Stopping(quality.as_target(), "final", Evaluate.parse("6 steps"), 4)
    timeline = Timeline(FakeClock(tick_ns=1000), before_ns=more["resume"].facts.totals_ns if "resume" in more else None)
    about = framework.open(), dataset or dataset_of(environment), recipe, quality, stopping
    return Trainer(*about, seed=seed, timeline=timeline, **more)


def ends(trainer):
    outcome = trainer.run()
    found = [(each.step, each.samples, each.quality, each.loss) for each in outcome.evaluations]
    return found, outcome.quality, {name: value.tobytes() for name, value in trainer.executor.parameters.items()}


def test_a_run_is_the_same_twice_and_another_for_another_seed():
    first, again, other = ends(trainer_of()), ends(trainer_of()), ends(trainer_of(seed=4))
    assert first == again
    assert first != other


def test_samples_are_steps_of_the_environment_and_have_a_phase_of_their_own():
    trainer = trainer_of()
    evaluations = trainer.run().evaluations
    assert evaluations[-1].samples == 4 * 4 * 8
    assert evaluations[-1].phases_ns["environment"] >= 4 * 8 * 1000


def test_each_evaluation_begins_in_new_states_that_training_never_draws():
    environment = Bandit()
    count = len(trainer_of(environment).run().evaluations)
    training = {each for each in environment.seeds if each[1] == 0}
    held = [each for each in environment.seeds if each[1] != 0]
    assert held == [*((3, 1, number) for number in range(count)), (3, 2, count)]
    assert training == {(3, 0, number) for number in range(5)}


@pytest.mark.parametrize("killed", [7, 16, 21])
def test_a_resumed_run_is_bitwise_the_same(tmp_path, killed):
    path = tmp_path / "run.checkpoint.npz"
    saving = Saving(path, Evaluate.parse("5 steps"), "key")
    with pytest.raises(Killed):
        trainer_of(saving=saving, observers=(KillAt(killed),)).run()
    assert ends(trainer_of(resume=load(path))) == ends(trainer_of())


def test_the_bandit_is_learnt():
    recipe = Recipe(
        network().with_policy_loss(), Shuffled(32), Adam(0.05), epochs=40, experience=Rollouts(16, 8, passes=4)
    )
    environment = Bandit()
    quality = MeanReturn(target=1.0, environment=environment)
    stopping = Stopping(quality.as_target(), "confirmed", Evaluate.parse("1 epoch"), 40)
    about = framework.open(), dataset_of(environment), recipe, quality, stopping
    outcome = Trainer(*about, seed=0, timeline=Timeline(FakeClock(tick_ns=1000))).run()
    assert outcome.stopped_by == "target reached"
    assert outcome.quality["test"] == 1.0


def test_the_quality_is_that_of_actions_drawn_by_the_policy():
    environment = Bandit()
    states = environment.starts(4000, (0, 0, 0)).astype(np.float32)
    # Each state is there many times, and the draws of an episode depend on its first state alone.
    states += np.linspace(0, 0.4, len(states), dtype=np.float32)[:, None]
    environment.step = lambda states, actions: (states, states[:, 0].round() == actions, np.ones(len(states), np.bool_))
    held = Held(framework.open(), dataset_of(None), Split((states, np.zeros(len(states), np.int64))))
    chance = np.e / (1 + np.e)
    ones = states[:, 0].round().mean()
    expected = ones * chance + (1 - ones) * (1 - chance)
    found = MeanReturn(target=1.0, environment=environment).measure(Fixed(logits=(0.0, 1.0)), held)
    assert abs(found - expected) < 5 * np.sqrt(0.25 / len(states))


def test_play_gives_the_sum_of_rewards_up_to_the_end_or_the_limit():
    for environment, expected in ((Walk(), 3.0), (Endless(), 3.0)):
        returns = play(environment, lambda states: np.zeros(len(states), np.int64), np.zeros((2, 1)))
        assert returns.tolist() == [expected] * 2


def test_a_dataset_without_an_environment_is_refused():
    with pytest.raises(DefinitionError, match="no environment"):
        trainer_of(dataset=dataset_of(None))


def test_several_processes_are_refused():
    with pytest.raises(UnsupportedError, match="without --ranks"):
        trainer_of(team=Team())


def test_the_gradient_noise_of_examples_that_nothing_else_is_like_is_refused(tmp_path):
    with pytest.raises(UnsupportedError, match="made by the network"):
        trainer_of(observers=(GradientNoise(tmp_path, "run"),)).run()


@pytest.mark.parametrize("more", [{"workers": 1}, {"augment": (Flip(),)}, {"network": network()}])
def test_parts_that_experience_has_no_use_for_are_refused(more):
    parts = {"network": network().with_policy_loss(), "sampler": Shuffled(8), "optimizer": Adam(0.01), "epochs": 1}
    with pytest.raises(DefinitionError, match="experience"):
        Recipe(**{**parts, **more}, experience=Rollouts())


def test_a_network_without_a_value_is_refused():
    with pytest.raises(DefinitionError, match="value"):
        network(outputs=1).with_policy_loss()
