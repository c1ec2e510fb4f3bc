"""Who trains: one process alone, or ranks that train together.

Whatever a trainer has to settle with others goes through here; alone there is nothing to settle.
Level 3 brings the team of ranks; this is the contract, and its null twin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, final

from levelbench.measure.timeline import Timeline
from levelbench.networks.executor import Array, Backend, Executor
from levelbench.training.optimizers.base import Stepper
from levelbench.training.recipe import Recipe
from levelbench.training.samplers import Sampler

if TYPE_CHECKING:
    from levelbench.training.trainer import Trainer

T = TypeVar("T")


class Team(ABC):
    """The processes that train one network, as one of them sees it."""

    @abstractmethod
    def recipe(self, recipe: Recipe) -> Recipe:
        """The recipe that all train together, given what the user wrote down."""

    @abstractmethod
    def sampler(self, sampler: Sampler) -> Sampler:
        """What this process has of each batch."""

    @abstractmethod
    def seed(self, seed: int) -> int:
        """The seed of this process's own random draws, such as dropout's."""

    @abstractmethod
    def start(
        self, recipe: Recipe, backend: Backend, executor: Executor, seed: int, timeline: Timeline
    ) -> tuple[Stepper, Executor]:
        """The optimizer at work, and the executor to train with."""

    @abstractmethod
    def examples(self, trainer: Trainer) -> int:
        """Training examples an epoch, of all together."""

    @abstractmethod
    def steps(self, trainer: Trainer, epoch: int, start: int, end: int, planned: int) -> None:
        """Steps ``start`` to ``end`` (exclusive) of an epoch, as :meth:`Trainer.steps` makes them."""

    @abstractmethod
    def meet(self, trainer: Trainer) -> None:
        """Come together before an evaluation."""

    @abstractmethod
    def averaged(self, stepper: Stepper) -> Mapping[str, Array] | None:
        """The weights to evaluate with, where they are not those that are trained."""

    @abstractmethod
    def decide(self, work: Callable[[], T]) -> T:
        """What ``work`` answers in the one process that decides, told to all. Of JSON's types."""

    @abstractmethod
    def mean(self, backend: Backend, losses: Sequence[Array]) -> float:
        """The mean training loss of all, of each one's losses a step."""


@final
class Alone(Team):
    """One process."""

    def recipe(self, recipe: Recipe) -> Recipe:
        return recipe

    def sampler(self, sampler: Sampler) -> Sampler:
        return sampler

    def seed(self, seed: int) -> int:
        return seed

    def start(
        self, recipe: Recipe, backend: Backend, executor: Executor, seed: int, timeline: Timeline
    ) -> tuple[Stepper, Executor]:
        return recipe.optimizer.start(backend, executor.parameters), executor

    def examples(self, trainer: Trainer) -> int:
        return int(trainer.loader.sizes(0).sum())

    def steps(self, trainer: Trainer, epoch: int, start: int, end: int, planned: int) -> None:
        trainer.steps(epoch, start, end, planned)

    def meet(self, trainer: Trainer) -> None:
        """Nobody else is there."""

    def averaged(self, stepper: Stepper) -> Mapping[str, Array] | None:
        return stepper.averaged()

    def decide(self, work: Callable[[], T]) -> T:
        return work()

    def mean(self, backend: Backend, losses: Sequence[Array]) -> float:
        return backend.mean(losses)
