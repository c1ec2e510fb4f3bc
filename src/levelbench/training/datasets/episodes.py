"""Environments of reinforcement learning: where training examples come from that the model makes itself.

An environment here is a function of its state, so that a run can be resumed and an episode begun in any state. Only
states in which episodes begin are kept as a dataset; everything else depends on who acts.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
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
    """An environment with a choice of actions, whose state is what is observed.

    States have a row an episode: (n, values) in float64, which networks see in float32.
    """

    actions: ClassVar[int]
    limit: ClassVar[int]
    """Steps after which an episode is truncated: it stops there without an end."""
    lowest: ClassVar[float] = 0.0
    highest: ClassVar[float]
    """No episode has a lower or a higher return."""
    kept: ClassVar[int] = 1
    """Steps for which one that acts at random keeps an action, so that some episodes are better than others."""

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
class Acrobot(Environment):
    """Gymnasium's Acrobot-v1: swing two hanging links up to a bar; -1 for each of at most 500 steps before.

    A torque of -1, 0 or 1 Nm acts on the joint between the links. A state is the cosine and sine of the first link's
    angle from hanging, those of the second's to the first, and both speeds in rad/s. The equations are those of Sutton
    and Barto, Reinforcement Learning, section 11.3 of the first edition, with links of 1 m and 1 kg, a moment of
    inertia of 1 kg m², and one Runge-Kutta step of fourth order a torque, of 0.2 s.
    """

    actions = 3
    limit = 500
    lowest = -500.0
    highest = 0.0
    kept = 6

    def starts(self, count: int, seed: Sequence[int]) -> States:
        return self._observed(Generator(PCG64(list(seed))).uniform(-0.1, 0.1, (4, count)))

    def step(self, states: States, actions: Actions) -> tuple[States, NDArray[np.float64], NDArray[np.bool_]]:
        cos1, sin1, cos2, sin2, *speeds = states.T
        now, torque = (
            np.stack([np.arctan2(sin1, cos1), np.arctan2(sin2, cos2), *speeds]),
            actions.astype(np.float64) - 1.0,
        )
        first = self._slopes(now, torque)
        second = self._slopes(now + 0.1 * first, torque)
        third = self._slopes(now + 0.1 * second, torque)
        fourth = self._slopes(now + 0.2 * third, torque)
        angle1, angle2, speed1, speed2 = now + 0.2 / 6 * (first + 2 * second + 2 * third + fourth)
        speed1, speed2 = speed1.clip(-4 * np.pi, 4 * np.pi), speed2.clip(-9 * np.pi, 9 * np.pi)
        reached = -np.cos(angle1) - np.cos(angle1 + angle2) > 1.0
        return self._observed(np.stack([angle1, angle2, speed1, speed2])), reached - 1.0, reached

    @staticmethod
    def _observed(state: States) -> States:
        angle1, angle2, speed1, speed2 = state
        return np.stack([np.cos(angle1), np.sin(angle1), np.cos(angle2), np.sin(angle2), speed1, speed2], axis=1)

    @staticmethod
    def _slopes(state: States, torque: NDArray[np.float64]) -> States:
        angle1, angle2, speed1, speed2 = state
        gravity, sine = 9.8, np.sin(angle2)
        inertia1, inertia2 = 3.5 + np.cos(angle2), 1.25 + 0.5 * np.cos(angle2)
        force2 = 0.5 * gravity * np.sin(angle1 + angle2)
        force1 = force2 + 1.5 * gravity * np.sin(angle1) - (0.5 * speed2 + speed1) * speed2 * sine
        turned = torque + inertia2 / inertia1 * force1 - 0.5 * speed1**2 * sine - force2
        change2 = turned / (1.25 - inertia2**2 / inertia1)
        return np.stack([speed1, speed2, -(inertia2 * change2 + force1) / inertia1, change2])


class EpisodeStarts(DatasetSource):
    """States in which episodes of an environment begin, and what became of one that acts at random.

    Columns: the state (n, values) float32; for the loss the logarithm of the probability of the action, its advantage,
    the return above the lowest possible one, and the action int64. Returns and advantages are in standard deviations
    of the returns. A recipe with ``experience`` trains on none of them.
    """

    environment: ClassVar[type[Environment]]
    split_rule = (
        "states in which episodes begin, drawn by the environment from a seed for each split; a run draws its held-out "
        "ones anew for each evaluation, from its own seed and the evaluation's number, and trains on what its network "
        "makes"
    )

    def __init__(self, training: int = 2048, held_out: int = 100) -> None:
        self._sizes = training, held_out, held_out

    def load(self, folder: Path | None = None) -> Dataset:
        refuse_folder(self.name, folder)
        if lacking := self.lacks():
            found, _, remedy = lacking.partition(": ")
            raise MissingError(f"the dataset {self.name!r}", found, remedy)
        environment = self.environment()
        files, version = self.equations()
        splits = [_at_random(environment, count, _FIXED + at) for at, count in enumerate(self._sizes)]
        # Its equations are the data: of other ones, times are not compared.
        digests = {name: hashlib.sha256(text).hexdigest() for name, text in files.items()}
        return self.assembled(splits, environment.actions, digests, version, environment=environment)

    def lacks(self, folder: Path | None = None) -> str | None:
        return None

    @abstractmethod
    def equations(self) -> tuple[dict[str, bytes], str]:
        """The text of the environment's equations by the name of the file, and their version."""


@final
class CartPoleStarts(EpisodeStarts):
    """Those of CartPole-v1; a state has 4 values."""

    name = "cartpole"
    environment = CartPole
    licence = "MIT, as part of Gymnasium"
    attribution = "CartPole-v1 of Gymnasium, the Farama Foundation, after Barto, Sutton and Anderson 1983"

    def equations(self) -> tuple[dict[str, bytes], str]:
        from gymnasium import __version__
        from gymnasium.envs.classic_control import cartpole

        return {"cartpole.py": Path(str(cartpole.__file__)).read_bytes()}, f"Gymnasium {__version__}"

    def lacks(self, folder: Path | None = None) -> str | None:
        return None if find_spec("gymnasium") else 'Gymnasium is not installed: pip install "levelbench[rl]"'


@final
class AcrobotStarts(EpisodeStarts):
    """Those of Acrobot-v1; a state has 6 values."""

    name = "acrobot"
    environment = Acrobot
    licence = "MIT, as levelbench"
    attribution = "Acrobot-v1 as Gymnasium, the Farama Foundation, defines it, after Sutton 1996"

    def equations(self) -> tuple[dict[str, bytes], str]:
        return {"Acrobot": inspect.getsource(Acrobot).encode()}, "Acrobot-v1"


def _at_random(environment: Environment, count: int, stream: int) -> Split:
    """Episodes in which all actions are equally likely, and each is kept for some steps."""
    states, generator = environment.starts(count, (0, stream, 0)), Generator(PCG64([0, stream, 1]))
    taken: list[Actions] = []
    steps = itertools.count()

    def act(_: NDArray[np.float32]) -> Actions:
        if next(steps) % environment.kept == 0:
            taken.append(generator.integers(environment.actions, size=count))
        return taken[-1]

    returns = play(environment, act, states)
    deviation = max(float(returns.std()), 1e-8)
    advantages, gained = (returns - returns.mean()) / deviation, (returns - environment.lowest) / deviation
    likely = np.full(count, -np.log(environment.actions))
    numbers = [each.astype(np.float32) for each in (states, likely, advantages, gained)]
    return Split((*numbers, taken[0]), targets=4)
