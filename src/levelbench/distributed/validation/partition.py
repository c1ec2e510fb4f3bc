"""Whether the parts of all ranks make up each batch exactly, for any number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from levelbench.training.datasets.base import Split
from levelbench.training.samplers import Partitioned, Sampler, Shuffled
from levelbench.training.validation.probes import Finding, Probe, Report, failed, passed, run_probes

__all__ = ["Cut", "check_partition"]

Cut = Callable[[Sampler, int, int], Sampler]
"""What a rank has of a sampler: sampler, rank and number of ranks."""

_EXAMPLES, _EPOCHS = 53, 3


def check_partition(
    cut: Cut = Partitioned,
    *,
    sampler: Sampler | None = None,
    workers: Sequence[int] = (1, 2, 3, 4, 5),
    seed: int = 0,
    tell: Callable[[str], None] = lambda _: None,
) -> Report:
    """Check a way to give each rank its part of a sampler's batches (default: of a shuffled one's).

    Every epoch must visit the examples that the sampler visits, each as often, also where their number, and that of a
    batch, is not divisible by the number of ranks; and step t of all ranks together must be batch t.
    """
    whole = sampler or Shuffled(8)
    split = Split.of(np.zeros((_EXAMPLES, 1), np.float32), np.arange(_EXAMPLES) % 3)
    probes: list[Probe] = [("every sample once", lambda: _covered(cut, whole, workers, split, seed))]
    return run_probes(type(whole).__name__, probes, tell)


def _covered(cut: Cut, whole: Sampler, workers: Sequence[int], split: Split, seed: int) -> Iterator[Finding]:
    for ranks in workers:
        parts = [cut(whole, rank, ranks) for rank in range(ranks)]
        for epoch in range(_EPOCHS):
            if found := _misfit(whole, parts, split, seed, epoch):
                where = f"{ranks} workers, epoch {epoch}"
                do = "let all ranks draw one order from the run's seed, and cut each batch of it"
                yield failed("every sample once", f"{where}: {found}", do)
                return
    listed = ", ".join(map(str, workers))
    yield passed("every sample once", f"{_EPOCHS} epochs of {len(split)} examples on {listed} workers")


def _misfit(whole: Sampler, parts: Sequence[Sampler], split: Split, seed: int, epoch: int) -> str:
    expected = whole.epoch(split, seed, epoch)
    found = [part.epoch(split, seed, epoch) for part in parts]
    visits = np.bincount(np.concatenate([each.order for each in found]), minlength=len(split))
    wanted = np.bincount(expected.order, minlength=len(split))
    for rank, part in enumerate(found):
        if len(part.sizes) != len(expected.sizes):
            return f"rank {rank} makes {len(part.sizes)} steps, and the epoch has {len(expected.sizes)}"
    if (visits != wanted).any():
        never, often = int((visits < wanted).sum()), int((visits > wanted).sum())
        return f"{never} of {len(split)} examples are visited too seldom, and {often} too often"
    for step in range(len(expected.sizes)):
        together = np.concatenate([each.batch(step) for each in found])
        if sorted(together.tolist()) != sorted(expected.batch(step).tolist()):
            return f"step {step + 1} of all ranks together is not batch {step + 1} of the sampler"
    sizes = np.stack([each.sizes for each in found])
    if (np.ptp(sizes, axis=0) > 1).any():
        step = int(np.argmax(np.ptp(sizes, axis=0))) + 1
        listed = ", ".join(map(str, sizes[:, step - 1].tolist()))
        return f"at step {step} ranks have {listed} examples: not as even as can be"
    return ""
