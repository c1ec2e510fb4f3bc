"""Training examples that the network makes itself: it acts in an environment, and learns from what that led to.

An epoch is one rollout: some steps of several environments, with the network as it is when the epoch starts. Stepping
the environments is a phase of its own; choosing actions and computing advantages is ``data``. Everything drawn depends
on the run's seed and the epoch alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from levelbench.errors import DataError, DefinitionError, UnsupportedError
from levelbench.measure.timeline import Phase, Timeline
from levelbench.networks.executor import Array, Backend, Executor
from levelbench.training.datasets.base import Split
from levelbench.training.datasets.episodes import TRAINING, Environment, States, drawn
from levelbench.training.input import Loader, ResidentLoader
from levelbench.training.samplers import Sampler

Table = NDArray[np.float64]
"""A value for each step of each environment, (length, environments)."""
_ACTING = 0xAC7


@final
@dataclass(frozen=True)
class Rollouts:
    """``length`` steps of each of ``environments``, visited ``passes`` times in the sampler's batches.

    Advantages are those of Schulman et al. 2016 (equation 16) with discount gamma and trace lambda, shifted and scaled
    to mean 0 and deviation 1 over a rollout. The first output of the network are the logits of the actions (n,
    actions), the second the value of the state (n,); its loss is ``network.with_policy_loss(...)`` or one with the same
    inputs.
    """

    environments: int = 16
    length: int = 128
    passes: int = 4
    discount: float = 0.99
    trace: float = 0.95

    def __post_init__(self) -> None:
        for name in ("environments", "length", "passes"):
            if getattr(self, name) < 1:
                found = f"{name}={getattr(self, name)}"
                raise DefinitionError("rollouts", found, "give whole numbers of 1 or more")
        for name in ("discount", "trace"):
            if not 0 <= getattr(self, name) <= 1:
                raise DefinitionError("rollouts", f"{name}={getattr(self, name)}", "give a number from 0 to 1")

    @property
    def steps(self) -> int:
        """Steps of all environments in a rollout."""
        return self.environments * self.length


def advantages(
    rewards: Table, values: Table, next_values: Table, ended: NDArray[np.bool_], *, discount: float, trace: float
) -> Table:
    """The sum of (discount * trace)^k delta over the steps to the end of the episode or of the rollout.

    delta = reward + discount * next value - value. ``next_values`` are of the state that a step led to: 0 where the
    episode terminated, and the value of that state where it was truncated, since it would have gone on.
    """
    result, following = np.empty_like(rewards), np.zeros(rewards.shape[1])
    deltas = rewards + discount * next_values - values
    for at in range(len(rewards) - 1, -1, -1):
        following = deltas[at] + discount * trace * np.where(ended[at], 0.0, following)
        result[at] = following
    return result


@final
class ExperienceLoader(Loader):
    """Batches of what ``executor`` does in an environment. A step's size is its share of the rollout's steps."""

    def __init__(
        self,
        backend: Backend,
        environment: Environment | None,
        rollouts: Rollouts,
        sampler: Sampler,
        *,
        seed: int,
        executor: Executor,
        timeline: Timeline | None = None,
    ) -> None:
        if environment is None:
            do = "train on a task whose dataset has one, such as cartpole"
            raise DefinitionError("experience of a dataset", "it has no environment", do)
        self._backend, self._environment, self._rollouts = backend, environment, rollouts
        self._sampler, self._seed, self._executor = sampler, seed, executor
        self._timeline = timeline or Timeline()
        self._made = -1
        self._states = environment.starts(rollouts.environments, (seed, TRAINING, 0))
        self._lived = np.zeros(rollouts.environments, np.int64)
        rows = np.zeros(rollouts.steps)
        self._per_pass = sampler.steps(Split((rows, rows.astype(np.int64))))
        self.steps = self._per_pass * rollouts.passes
        if self.steps > rollouts.steps:
            found = f"{self.steps} updates for {rollouts.steps} steps of the environments"
            raise DefinitionError("the rollouts of a recipe", found, "choose larger batches, or fewer passes")
        self._columns: tuple[NDArray[Any], ...] = ()
        self._batches: ResidentLoader

    def sizes(self, epoch: int) -> NDArray[np.int64]:
        bounds = np.linspace(0, self._rollouts.steps, self.steps + 1).astype(np.int64)
        return bounds[1:] - bounds[:-1]

    def batches(
        self, epoch: int, first: int = 0, last: int | None = None, progress: float = 0.0
    ) -> Iterator[tuple[Array, ...]]:
        """The epoch's examples, made when its first batch is asked for."""
        if epoch != self._made:
            if epoch != self._made + 1:
                found = f"epoch {epoch} is asked for after epoch {self._made}"
                raise DataError("experience", found, "take epochs in their order: each begins where the last one ended")
            self._hold(epoch, self._act(epoch))
        stop, per_pass = self.steps if last is None else last, self._per_pass
        while first < stop:
            number, at = divmod(first, per_pass)
            count = min(stop - first, per_pass - at)
            yield from self._batches.batches(epoch * self._rollouts.passes + number, at, at + count)
            first += count

    def state(self) -> dict[str, NDArray[Any]]:
        columns = {f"column{at}": column for at, column in enumerate(self._columns)}
        return {"epoch": np.array(self._made), "states": self._states, "lived": self._lived, **columns}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._states, self._lived = np.array(state["states"]), np.array(state["lived"])
        self._made = int(state["epoch"])
        if self._made >= 0:
            self._hold(self._made, tuple(state[f"column{at}"] for at in range(len(state) - 3)))

    def _hold(self, epoch: int, columns: tuple[NDArray[Any], ...]) -> None:
        self._made, self._columns = epoch, columns
        split = Split(columns, targets=len(columns) - 1)
        self._batches = ResidentLoader(self._backend, split, self._sampler, self._seed, None)

    def _act(self, epoch: int) -> tuple[NDArray[Any], ...]:
        """Take a rollout's steps; the columns are the states, and what :meth:`Network.with_policy_loss` reads."""
        rollouts, environment, switch = self._rollouts, self._environment, self._timeline.switch
        shape = rollouts.length, rollouts.environments
        rewards, values, next_values, likely = (np.zeros(shape) for _ in range(4))
        actions, ended = np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
        seen = np.zeros((*shape, self._states.shape[1]), np.float32)
        draws = Generator(PCG64([self._seed, epoch, _ACTING])).random(shape)
        # Where each episode that ends in this rollout is followed by another; those of epoch 0 have begun already.
        others = environment.starts(rollouts.steps, (self._seed, TRAINING, epoch + 1))
        others = others.reshape(*shape, -1)
        for at in range(rollouts.length):
            seen[at] = self._states
            logits, values[at] = self._judged(self._states)
            actions[at], chances = drawn(logits, draws[at])
            likely[at] = np.take_along_axis(chances, actions[at][:, None], 1)[:, 0]
            switch(Phase.ENVIRONMENT)
            after, rewards[at], terminated = environment.step(self._states, actions[at])
            switch(Phase.DATA)
            self._lived += 1
            truncated = (self._lived >= environment.limit) & ~terminated
            if truncated.any():
                next_values[at] = np.where(truncated, self._judged(after)[1], 0.0)
            ended[at] = terminated | truncated
            self._lived[ended[at]] = 0
            self._states = np.where(ended[at][:, None], others[at], after)
        following = np.concatenate([values[1:], self._judged(self._states)[1][None]])
        next_values = np.where(ended, next_values, following)
        gains = advantages(rewards, values, next_values, ended, discount=rollouts.discount, trace=rollouts.trace)
        scaled = (gains - gains.mean()) / max(float(gains.std()), 1e-8)
        numbers = [each.reshape(-1).astype(np.float32) for each in (likely, scaled, gains + values)]
        return seen.reshape(rollouts.steps, -1), *numbers, actions.reshape(-1)

    def _judged(self, states: States) -> tuple[Table, NDArray[np.float64]]:
        """The logits (n, actions) and the values (n,) of these states."""
        outputs = self._executor.infer(self._backend.array(states.astype(np.float32)))
        if len(outputs) < 2:
            found = f"the network has {len(outputs)} output"
            raise UnsupportedError("experience", found, "give it two: the logits of the actions, and the value")
        logits, values = (np.asarray(self._backend.host(each), np.float64) for each in outputs[:2])
        return logits, values.reshape(-1)
