"""Environments of reinforcement learning: where training examples come from that the model makes itself.

An environment here is a function of its state, so that a run can be resumed and an episode begun in any state. Only
states in which episodes begin are kept as a dataset; everything else depends on who acts.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
from numpy.random import PCG64, Generator, SeedSequence
from numpy.typing import NDArray

from levelbench.errors import MissingError
from levelbench.training.datasets.base import Dataset, DatasetSource, Split
from levelbench.training.datasets.places import refuse_folder

States = NDArray[np.float64]
Actions = NDArray[np.int64]

TRAINING, _FIXED = 0, 3
"""The second word of a seed: 0 in training, 1 and 2 for the held-out splits of a run, 3 to 5 for splits as loaded."""


class Environment(ABC):
    """An environment with a choice of actions, whose state is what is observed; rewards are not negative.

    States have a row an episode: (n, values) in float64, which networks see in float32.
    """

    actions: ClassVar[int]
    limit: ClassVar[int]
    """Steps after which an episode is truncated: it stops there without an end."""
    highest: ClassVar[float]
    """The highest possible return of an episode."""

    @abstractmethod
    def starts(self, count: int, seed: Sequence[int]) -> States:
        """States in which ``count`` episodes begin: a function of the seed's words alone."""

    @abstractmethod
    def step(self, states: States, actions: Actions) -> tuple[States, NDArray[np.float64], NDArray[np.bool_]]:
        """The next states, the rewards (n,), and where the episode has terminated; ``states`` stay as they are."""

    def fresh(self, split: Split, seed: Sequence[int]) -> Split:
        """The split with other states to begin in, as many as before; what only the loss reads stays."""
        states = self.starts(len(split), seed).astype(np.float32)
        return Split((states, *split.columns[1:]), split.targets)


def drawn(logits: NDArray[Any], draws: NDArray[Any]) -> tuple[Actions, NDArray[np.float64]]:
    """The actions (n,) that draws (n,) from [0, 1) choose by softmax(logits), and the logarithms of all chances."""
    level = logits - logits.max(axis=1, keepdims=True)
    chances = level - np.log(np.exp(level).sum(axis=1, keepdims=True))
    return (np.exp(chances).cumsum(axis=1)[:, :-1] <= draws[:, None]).sum(axis=1), chances


def play(environment: Environment, policy: Callable[[NDArray[np.float32]], Actions], states: States) -> States:
    """The return of an episode from each state, (n,), where ``policy`` acts; without a discount."""
    states, returns, alive = states.copy(), np.zeros(len(states)), np.ones(len(states), np.bool_)
    for _ in range(environment.limit):
        after, rewards, terminated = environment.step(states, policy(states.astype(np.float32)))
        returns += rewards * alive
        alive &= ~terminated
        if not alive.any():
            break
        states[alive] = after[alive]
    return returns


@final
class CartPole(Environment):
    """Gymnasium's CartPole-v1: a reward of 1 for each of at most 500 steps until the pole falls or the cart leaves."""

    actions = 2
    limit = 500
    highest = 500.0

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}

    def starts(self, count: int, seed: Sequence[int]) -> States:
        env = self._envs(count)
        env.reset(seed=int.from_bytes(SeedSequence(seed).generate_state(2).tobytes(), "little"))
        return np.array(env.state.T)

    def step(self, states: States, actions: Actions) -> tuple[States, NDArray[np.float64], NDArray[np.bool_]]:
        env = self._envs(len(states))
        env.state = states.T
        # Its own count of steps and its restart of episodes are left out: callers know when an episode ends.
        env.steps[:], env.prev_done[:] = 0, False
        _, rewards, terminated, _, _ = env.step(actions)
        return np.array(env.state.T), rewards.astype(np.float64), np.array(terminated)

    def _envs(self, count: int) -> Any:
        if count not in self._made:
            from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

            self._made[count] = CartPoleVectorEnv(num_envs=count, max_episode_steps=self.limit)
            self._made[count].reset(seed=0)
        return self._made[count]


@final
class CartPoleStarts(DatasetSource):
    """States in which episodes of CartPole-v1 begin, and what became of one that acts at random.

    Columns: the state (n, 4) float32; for the loss the logarithm of the probability of the action, its advantage, the
    return, and the action int64. A recipe with ``experience`` trains on none of them.
    """

    name = "cartpole"
    licence = "MIT, as part of Gymnasium"
    attribution = "CartPole-v1 of Gymnasium, the Farama Foundation, after Barto, Sutton and Anderson 1983"
    split_rule = (
        "states in which episodes begin, drawn by the environment from a seed for each split; a run draws its held-out "
        "ones anew for each evaluation, from its own seed and the evaluation's number, and trains on what its network "
        "makes"
    )

    def __init__(self, training: int = 2048, held_out: int = 100) -> None:
        self._sizes = training, held_out, held_out

    def load(self, folder: Path | None = None) -> Dataset:
        refuse_folder(self.name, folder)
        if self.lacks():
            raise MissingError(
                f"the dataset {self.name!r}", "Gymnasium is not installed", 'pip install "levelbench[rl]"'
            )
        environment = CartPole()
        splits = [_at_random(environment, count, _FIXED + at) for at, count in enumerate(self._sizes)]
        from gymnasium import __version__
        from gymnasium.envs.classic_control import cartpole

        # Its equations are the data: of other ones, times are not compared.
        digest = hashlib.sha256(Path(str(cartpole.__file__)).read_bytes()).hexdigest()
        return self.assembled(
            splits, environment.actions, {"cartpole.py": digest}, f"Gymnasium {__version__}", environment=environment
        )

    def lacks(self, folder: Path | None = None) -> str | None:
        return None if find_spec("gymnasium") else 'Gymnasium is not installed: pip install "levelbench[rl]"'


def _at_random(environment: Environment, count: int, stream: int) -> Split:
    """Episodes in which all actions are equally likely."""
    states, generator = environment.starts(count, (0, stream, 0)), Generator(PCG64([0, stream, 1]))
    taken: list[Actions] = []

    def act(_: NDArray[np.float32]) -> Actions:
        taken.append(generator.integers(environment.actions, size=count))
        return taken[-1]

    returns = play(environment, act, states)
    advantages = (returns - returns.mean()) / max(float(returns.std()), 1e-8)
    likely = np.full(count, -np.log(environment.actions))
    numbers = [each.astype(np.float32) for each in (states, likely, advantages, returns)]
    return Split((*numbers, taken[0]), targets=4)
