"""A rank of a check in processes: ``python -m levelbench.distributed.validation.process_rank FOLDER``.

It trains a small network three times under each scheme: without a pause, keeping its state on the way, and as a fresh
stepper that goes on from what was kept; and writes down where the latter two are not the first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from levelbench.distributed.communicator import Communicator
from levelbench.distributed.finding import open_communicator
from levelbench.distributed.launching.environment import place_of
from levelbench.distributed.scheme import Scheme, SchemeStepper, Worker
from levelbench.distributed.validation.loop import part_of
from levelbench.distributed.validation.processes import JOB, Resumption, Wanted
from levelbench.errors import MissingError, UnsupportedError, UsageError
from levelbench.measure.lifetime import die_with_parent
from levelbench.networks import zoo
from levelbench.networks.executor import Backend
from levelbench.operators.frameworks import open_framework
from levelbench.training.optimizers.rules import Adam

__all__ = ["main", "resumption"]

Arrays = dict[str, NDArray[Any]]

_STEPS, _BATCH, _INPUTS, _CLASSES = 12, 9, 6, 4
_AT = (5, 6)
"""Steps after which the state is kept: no round of two steps or more is over at both."""
_NETWORK = zoo.mlp(_INPUTS, 8, _CLASSES).with_loss("cross-entropy").training()


@dataclass(frozen=True)
class _Kept:
    step: int
    state: Arrays
    parameters: Arrays


@dataclass
class _Course:
    """What a rank saw of a run: its loss at each step, and what it holds at the end."""

    losses: dict[int, float] = field(default_factory=dict)
    final: Arrays = field(default_factory=dict)
    kept: _Kept | None = None


@dataclass(frozen=True)
class _Bench:
    communicator: Communicator
    backend: Backend
    scheme: Scheme
    seed: int

    def start(self, apart: int) -> tuple[Any, SchemeStepper]:
        """An executor that begins elsewhere than others, and the stepper."""
        executor = self.backend.executor(_NETWORK, _NETWORK.initialise(self.seed + apart))
        worker = Worker(self.communicator, self.backend, executor, Adam(0.01), self.seed)
        return executor, self.scheme.start(worker)

    def course(self, keeps: int = 0, before: _Kept | None = None) -> _Course:
        """All steps, or those after ``before``; the state is kept after step ``keeps``."""
        rank, size = self.communicator.rank, self.communicator.size
        executor, stepper = self.start(rank if before is None else size + rank)
        if before is not None:
            arrays = {name: self.backend.array(each.copy()) for name, each in before.parameters.items()}
            executor.parameters.update(arrays)
            stepper.restore({name: each.copy() for name, each in before.state.items()})
        found, own = _Course(), part_of(_BATCH, rank, size)
        stepper.share = (own.stop - own.start) / _BATCH
        for step in range(1 if before is None else before.step + 1, _STEPS + 1):
            draws = np.random.default_rng((self.seed, step))
            columns = draws.standard_normal((_BATCH, _INPUTS)).astype(np.float32), draws.integers(0, _CLASSES, _BATCH)
            inputs = [self.backend.array(each[own]) for each in columns]
            found.losses[step] = float(stepper.executor.forward(*inputs))
            stepper.step(stepper.executor.backward(), step, 1.0 / step)
            if step == keeps:
                state = {name: np.array(each) for name, each in stepper.state().items()}
                found.kept = _Kept(step, state, self.held(executor.parameters))
                self.communicator.barrier()
        stepper.meet()
        found.final = self.held(stepper.averaged() or executor.parameters)
        stepper.close()
        return found

    def held(self, arrays: Any) -> Arrays:
        """Copies on the host."""
        return {name: np.array(self.backend.host(each)) for name, each in arrays.items()}


def resumption(communicator: Communicator, backend: Backend, scheme: Scheme, seed: int) -> Resumption:
    """Whether ``scheme`` goes on as if nothing had been. Collective."""
    bench = _Bench(communicator, backend, scheme, seed)
    try:
        _, stepper = bench.start(communicator.rank)
    except (UsageError, UnsupportedError, MissingError) as error:
        return Resumption(refused=f"{error.asked}: {error.found}")
    if why := stepper.unkept:
        return Resumption(unkept=why)
    stepper.close()
    whole = bench.course()
    wrong = ""
    for at in _AT:
        kept = bench.course(keeps=at)
        assert kept.kept is not None
        odd = next((name for name, each in kept.kept.state.items() if each.dtype.kind not in "biufc"), "")
        # Whatever is found on one rank, all make the same calls.
        resumed = bench.course(before=kept.kept)
        if odd:
            wrong = wrong or f"{odd!r} of its state is no array of numbers"
        if found := _parting(whole, kept):
            wrong = wrong or f"{found} where the state is kept after step {at}"
        if found := _parting(whole, resumed):
            wrong = wrong or f"{found}, in fresh ranks that go on after step {at}"
    return Resumption(wrong=wrong)


def _parting(whole: _Course, other: _Course) -> str:
    for step, loss in other.losses.items():
        if loss != whole.losses[step]:
            return f"step {step}: another loss"
    differs = next((name for name, each in whole.final.items() if each.tobytes() != other.final[name].tobytes()), "")
    return f"{differs!r}: other bits at the end" if differs else ""


def main(arguments: Sequence[str]) -> int:
    """Try all schemes with the other ranks, and write down what was found."""
    die_with_parent()
    folder = Path(arguments[0])
    wanted = msgspec.json.decode((folder / JOB).read_bytes(), type=Wanted)
    place = place_of(os.environ)
    backend = open_framework(wanted.framework)
    assert isinstance(backend, Backend)
    schemes = [each.scheme() for each in wanted.schemes]
    communicator = open_communicator(wanted.communicator, place, wanted.timeout_s)
    found = []
    for scheme in schemes:
        scheme.load()
        communicator.barrier()
        found.append(resumption(communicator, backend, scheme, wanted.seed))
    (folder / f"found-{place.rank}.json").write_bytes(msgspec.json.encode(found))
    communicator.barrier()
    communicator.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
