"""Dataset latency: how long a training loop waits for a minibatch.

The one idea: it is sampled like any other call: warm-up found, a rule that says when it is enough, every raw value
kept. One value is one batch, from asking for it to having it; the epochs follow each other as in training.
"""

from __future__ import annotations

from collections.abc import Iterator

from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.sampling import DEFAULT_RULE, Sample, sample
from levelbench.measure.stopping import StoppingRule
from levelbench.networks.executor import Array, Backend
from levelbench.training.input.base import Loader

__all__ = ["dataset_latency"]


def dataset_latency(
    loader: Loader,
    until: StoppingRule = DEFAULT_RULE,
    *,
    backend: Backend | None = None,
    clock: Clock = HOST,
    warmup: str | int = "auto",
) -> Sample:
    """Seconds a minibatch of ``loader``, as a sample; its ``estimate`` has the interval.

    On a device that computes asynchronously ``backend`` makes each call wait until its batch is there. The loader
    stays open; workers that read ahead make the first batches of an epoch dearer than the rest, and the values say so.
    """
    batches = _endless(loader)

    def work() -> None:
        batch = next(batches)
        if backend is not None:
            backend.finish(batch)

    return sample(work, until, clock=clock, warmup=warmup, name="dataset latency")


def _endless(loader: Loader) -> Iterator[tuple[Array, ...]]:
    epoch = 0
    while True:
        yield from loader.batches(epoch)
        epoch += 1
