"""A recipe: the parts of one way to train, put together.

A recipe is a value. It names parts and holds no array, so it can be made again wherever it is needed, and two that are
equal train alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from levelbench.errors import DefinitionError, UnsupportedError
from levelbench.networks.native import NativeNetwork, is_module
from levelbench.networks.network import Network
from levelbench.training.augmentation.base import Augmentation, Mixing
from levelbench.training.optimizers.base import Optimizer
from levelbench.training.optimizers.wrappers import Native
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

    ``network`` may also be a function that builds a ``torch.nn.Module``, or for JAX ``(f, parameters)``, as
    :class:`levelbench.networks.native.NativeNetwork` has it, with ``loss``, a function of its outputs and the labels,
    in the place of cross-entropy; ``optimizer`` a class of ``torch.optim`` with its settings in a
    ``functools.partial``, or a transformation of optax's.
    """

    network: Network | NativeNetwork
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
    loss: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        self._take_over_parts()
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

    def _take_over_parts(self) -> None:
        """Give what is a framework's own a place among ours."""
        network: Any = self.network
        optimizer: Any = self.optimizer
        if is_module(network):
            do = f"give what builds it, so that a run can seed it: network=lambda: {type(network).__name__}(...)"
            raise DefinitionError("a recipe's network", "it is a module whose weights have been drawn already", do)
        if not isinstance(network, Network | NativeNetwork):
            if not callable(network):
                found = f"it is a {type(network).__name__}"
                raise DefinitionError("a recipe's network", found, "give one of ours, or a function that builds yours")
            network = NativeNetwork(network)
        if self.loss is not None:
            if not isinstance(network, NativeNetwork):
                do = "network.with_loss(...), or a network of PyTorch's or JAX's own"
                raise DefinitionError("a recipe's loss", "its network is of ONNX's operators, and so is its loss", do)
            network = replace(network, loss=self.loss)
        if not isinstance(optimizer, Optimizer):
            optimizer = Native.of(optimizer)
        # The dataclass is frozen, and these are what the given parts mean.
        object.__setattr__(self, "network", network)
        object.__setattr__(self, "optimizer", optimizer)

    def onnx_network(self, purpose: str) -> Network:
        """The network, where it is one of ONNX's operators; ``UnsupportedError`` that names ``purpose`` otherwise."""
        if isinstance(self.network, NativeNetwork):
            found = f"its network {self.network.name} is a framework's own, whose operators nobody here knows"
            raise UnsupportedError(purpose, found, "use a recipe whose network is of ONNX's operators")
        return self.network

    def trained_network(self) -> Network | NativeNetwork:
        """The network in training mode, with the mean cross-entropy of its first output if it brings no loss."""
        network = self.network
        if not network.loss:
            # Mixed labels are shares of classes already: smoothing them is the loss's business as well.
            kind = "soft-cross-entropy" if self.mix else "cross-entropy"
            network = network.with_loss(kind, smoothing=self.label_smoothing)
        return network.training()
