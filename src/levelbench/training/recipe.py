"""A recipe: the parts of one way to train, put together.

A recipe is a value. It names parts and holds no array, so it can be made again wherever it is needed, and two that are
equal train alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from levelbench.errors import DefinitionError
from levelbench.networks.network import Network
from levelbench.training.augmentation.base import Augmentation, Mixing
from levelbench.training.optimizers.base import Optimizer
from levelbench.training.samplers import Sampler
from levelbench.training.schedules import Constant, Schedule

_PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Recipe:
    """The parts of one way to train. It gives up after ``epochs``; with a schedule of fixed length it ends there.

    ``augment`` changes each training image by itself, in this order; ``mix`` the images of a batch with each other.
    ``label_smoothing`` is the share of each label that is spread over all classes. ``precision="bfloat16"`` computes
    in it what gains by it, with float32 parameters; ``channels_last`` is a layout of images in memory; ``mode`` is the
    executor's (eager, compiled, jit). ``accumulate`` batches of the sampler make one update of the optimizer.
    ``workers`` threads make batches ahead where they need work on the host.
    """

    network: Network
    sampler: Sampler
    optimizer: Optimizer
    epochs: int
    schedule: Schedule = field(default_factory=Constant)
    augment: tuple[Augmentation, ...] = ()
    mix: Mixing | None = None
    label_smoothing: float = 0.0
    precision: str = "float32"
    channels_last: bool = False
    mode: str | None = None
    accumulate: int = 1
    workers: int = 0

    def __post_init__(self) -> None:
        for fault, found, do in (
            (self.epochs < 1, f"epochs={self.epochs} trains nothing", "choose epochs >= 1"),
            (self.accumulate < 1, f"accumulate={self.accumulate}", "choose accumulate >= 1"),
            (self.workers < 0, f"workers={self.workers}", "choose workers >= 0"),
            (not 0 <= self.label_smoothing < 1, f"label_smoothing={self.label_smoothing}", "choose 0 <= share < 1"),
            (self.precision not in _PRECISIONS, f"precision={self.precision!r}", f"one of {', '.join(_PRECISIONS)}"),
        ):
            if fault:
                raise DefinitionError(f"a recipe for {self.network.name}", found, do)
        if self.network.loss and self.accumulate > 1:
            raise DefinitionError(
                f"a recipe for {self.network.name} with accumulate={self.accumulate}",
                "its network brings a loss, which need not be a mean over examples, as accumulated batches are",
                "train on larger batches, or with the network's outputs alone and the recipe's cross-entropy",
            )
        if self.network.loss and (self.label_smoothing or self.mix):
            raise DefinitionError(
                f"a recipe for {self.network.name}",
                "its network brings a loss, and label_smoothing and mix need one of their own",
                "give the network without its loss",
            )

    def trained_network(self) -> Network:
        """The network in training mode, with the mean cross-entropy of its first output if it brings no loss."""
        network = self.network
        if not network.loss:
            # Mixed labels are shares of classes already: smoothing them is the loss's business as well.
            kind = "soft-cross-entropy" if self.mix else "cross-entropy"
            network = network.with_loss(kind, smoothing=self.label_smoothing)
        return network.training()
