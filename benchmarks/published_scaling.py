"""The simulator against published scaling: ImageNet on 1, 4, 8 and 16 machines, as two teams entered it in DAWNBench.

An entry says after how many hours each epoch was over, at which image size and batch, so what a step
takes is fitted on a team's smallest entries and the others are predicted. What an entry does not say is an assumption
with a name, and is listed in ``docs/evidence/simulation.md``.

Seconds of an epoch are medians over the epochs of a size of image and batch, of the differences between rows of the
entries' tables (ImageNet/train of stanford-futuredata/dawn-bench-entries), without the first after a change, in which
loaders start anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from levelbench.distributed.schemes.all_reduce import AllReduce
from levelbench.distributed.simulation.model import Compute, ModelShape
from levelbench.distributed.simulation.networks import Interconnect, collective_s
from levelbench.distributed.simulation.predict import predict

__all__ = ["ALIBABA", "FAST_AI", "Calibrated", "Comparison", "Stretch", "Team", "calibrate", "compare"]

TRAINING, VALIDATION = 1_281_167, 50_000
"""Images."""
PARAMETERS = 25_557_032
"""Of ResNet-50."""
PER_MACHINE = 8
"""V100s, in every entry used here."""
_EVALUATED = 1 / 3
"""What an image costs in evaluation, of what it costs in training: the forward pass alone."""


@dataclass(frozen=True)
class Stretch:
    """Epochs of one image size and batch."""

    machines: int
    pixels: int
    """Of an image's side."""
    batch: int
    """Of all machines together."""
    epoch_s: float
    epochs: int
    """How many of them until the target was reached."""

    @property
    def ranks(self) -> int:
        """GPUs."""
        return self.machines * PER_MACHINE

    @property
    def steps(self) -> int:
        """In an epoch; the last may be smaller."""
        return -(-TRAINING // self.batch)


@dataclass(frozen=True)
class Team:
    """What one team published, and the network between its machines."""

    name: str
    stretches: tuple[Stretch, ...]
    network: Interconnect

    def on(self, machines: Sequence[int]) -> list[Stretch]:
        """The stretches on these numbers of machines."""
        return [each for each in self.stretches if each.machines in machines]


def _machines(gigabits: float) -> Interconnect:
    """Machines of eight V100s. What is within one is assumed: an all-reduce there takes less than a millisecond."""
    return Interconnect(25e-6, gigabits / 8 * 1e9, per_host=PER_MACHINE, local_alpha_s=5e-6, local_beta=130e9)


FAST_AI = Team(
    "fast.ai and DIUx, September 2018, AWS p3.16xlarge (25 Gbit/s)",
    (
        Stretch(4, 128, 8192, 34.74, 6),
        Stretch(4, 128, 16384, 27.97, 7),
        Stretch(4, 224, 7168, 69.73, 14),
        Stretch(4, 288, 4096, 123.75, 2),
        Stretch(8, 128, 8192, 29.16, 6),
        Stretch(8, 128, 16384, 20.20, 8),
        Stretch(8, 224, 8192, 45.16, 3),
        Stretch(8, 224, 14336, 39.92, 12),
        Stretch(8, 288, 8192, 72.31, 1),
        Stretch(16, 128, 8192, 26.89, 6),
        Stretch(16, 128, 16384, 16.27, 10),
        Stretch(16, 224, 8192, 36.24, 3),
        Stretch(16, 224, 24576, 27.25, 18),
    ),
    _machines(25),
)
"""Entries fastai_resnet50_p3_4_machine, _8_machine and dawn_resnet50_18minutes. The batch of the last images on 4
machines is that of the team's program; the entry says twice as many."""

ALIBABA = Team(
    "Alibaba Cloud AIACC, March 2020, gn6e-c12g1.24xlarge (32 Gbit/s)",
    (
        Stretch(1, 96, 2048, 37.31, 12),
        Stretch(1, 128, 2048, 56.0, 6),
        Stretch(1, 224, 2048, 138.7, 2),
        Stretch(16, 96, 32768, 3.91, 13),
        Stretch(16, 128, 32768, 5.17, 11),
        Stretch(16, 224, 32768, 10.26, 3),
    ),
    _machines(32),
)
"""Entries alibabacloud_resnet50_gn6e_1_machine and _16_machine: the same batch a GPU on both."""


@dataclass(frozen=True)
class Calibrated:
    """What was fitted: seconds an image of each size, seconds a step and seconds an epoch beside."""

    image_s: dict[int, float]
    step_s: float
    epoch_s: float
    fitted_on: tuple[int, ...]


@dataclass(frozen=True)
class Comparison:
    """A stretch, and what the simulation says of it."""

    stretch: Stretch
    predicted_s: float
    calibrated: bool
    """Whether it was fitted on: then its error is no test."""

    @property
    def error(self) -> float:
        """Predicted / published - 1."""
        return self.predicted_s / self.stretch.epoch_s - 1


def _gradients(itemsize: int) -> ModelShape:
    return ModelShape({"gradients": (PARAMETERS,)}, itemsize)


def _evaluation_s(stretch: Stretch, image_s: float) -> float:
    return VALIDATION / stretch.ranks * _EVALUATED * image_s


def calibrate(
    team: Team,
    machines: Sequence[int],
    *,
    itemsize: int = 2,
    algorithm: str = "ring",
    each_step: bool = True,
    each_epoch: bool = False,
) -> Calibrated:
    """Fit what is not published on the entries of these numbers of machines, by least squares of relative errors.

    An epoch is its steps, each of an all-reduce of ``itemsize`` bytes a parameter after the backward pass, its images,
    and its evaluation. ``each_step`` and ``each_epoch`` allow a time beside these.
    """
    chosen = team.on(machines)
    sizes = sorted({each.pixels for each in chosen})
    rows, targets = [], []
    for each in chosen:
        nbytes = _gradients(itemsize).nbytes
        talking = each.steps * collective_s(team.network, "all_reduce", float(nbytes), each.ranks, algorithm)
        images = TRAINING / each.ranks + _evaluation_s(each, 1.0)
        row = [images if each.pixels == size else 0.0 for size in sizes]
        row += [float(each.steps)] * each_step + [1.0] * each_epoch
        rows.append(np.array(row) / each.epoch_s)
        targets.append((each.epoch_s - talking) / each.epoch_s)
    solution, *_ = np.linalg.lstsq(np.stack(rows), np.array(targets), rcond=None)
    beside = iter(solution[len(sizes) :].tolist())
    step_s = next(beside) if each_step else 0.0
    return Calibrated(
        dict(zip(sizes, solution.tolist(), strict=False)), step_s, next(beside) if each_epoch else 0.0, tuple(machines)
    )


def compare(
    team: Team, known: Calibrated, *, itemsize: int = 2, algorithm: str = "ring", overlap: bool = False
) -> list[Comparison]:
    """Simulate a few steps of every stretch whose image size is known, and compare its epochs."""
    scheme = AllReduce(bucket_mb=25.0 if overlap else 1e4, overlap=overlap)
    model = (
        ModelShape({f"part {at}": (PARAMETERS // 16,) for at in range(16)}, itemsize)
        if overlap
        else _gradients(itemsize)
    )
    result = []
    for each in team.stretches:
        if each.pixels not in known.image_s:
            continue
        image_s = known.image_s[each.pixels]
        batch = each.batch / each.ranks
        step = Compute(image_s * batch + known.step_s, batch=round(batch), fixed_s=max(0.0, known.step_s))
        step_s = predict(
            scheme,
            each.ranks,
            model,
            step,
            team.network,
            batch=step.batch,
            scaling="weak",
            draws=0,
            steps=2,
            algorithm=algorithm,
        ).step_s.value
        # The last batch of an epoch is smaller: its images count as they are.
        spared = image_s * (each.steps * batch - TRAINING / each.ranks)
        predicted_s = each.steps * step_s - spared + _evaluation_s(each, image_s) + known.epoch_s
        result.append(Comparison(each, predicted_s, each.machines in known.fitted_on))
    return result
