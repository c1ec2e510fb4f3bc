"""Checks checkpoints of schemes that bypass the communicator, such as DDP and FSDP, on ranks that are processes.

Such a scheme cannot be observed from outside, but what is missing in its state changes the course of a run. So real
ranks train a network, and fresh steppers that resume from a saved state must continue bit by bit the same. A rank is
``python -m levelbench.distributed.probes.processes FOLDER``.
"""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from levelbench import plugins
from levelbench.checks.arrays import Host
from levelbench.checks.findings import Finding, failed, not_tried, noted, passed
from levelbench.distributed.communicator import Communicator
from levelbench.distributed.finding import communicator_kinds, open_communicator, settings_of, with_settings
from levelbench.distributed.launching import ENGINES
from levelbench.distributed.launching.environment import place_of
from levelbench.distributed.probes.conduct import KEPT_AFTER, RESTORABLE
from levelbench.distributed.probes.runs import part_of
from levelbench.distributed.scheme import Scheme, SchemeStepper, Worker
from levelbench.errors import DefinitionError, MissingError, UnsupportedError, UsageError
from levelbench.measure.forking import die_with_parent
from levelbench.networks import zoo
from levelbench.networks.executor import Backend, Executor, host_copies
from levelbench.operators.frameworks import open_framework
from levelbench.training.optimizers.rules import Adam

JOB = "job.json"
_START_S = 60.0
"""The time that ranks may take to start, since they import a framework."""


class SchemeAddress(msgspec.Struct, frozen=True):
    """How another process finds a scheme: its class in a module or file, and its settings."""

    kind: str
    module: str
    file: str
    settings: dict[str, int | float | str | bool]

    def scheme(self) -> Scheme:
        """The scheme; a file is executed."""
        if self.file:
            home = plugins.load_file("scheme", Path(self.file))
        else:
            home = __import__(self.module, fromlist=[self.kind])
        kind: Any = getattr(home, self.kind)
        made: Scheme = kind()
        return with_settings(made, self.settings)


class ResumptionJob(msgspec.Struct, frozen=True):
    """The task of the ranks."""

    schemes: list[SchemeAddress]
    framework: str
    communicator: str
    seed: int
    timeout_s: float


class Resumption(msgspec.Struct, frozen=True):
    """What a rank found for one scheme; empty strings if nothing."""

    unkept: str = ""
    """Why it cannot be resumed, according to the stepper."""
    refused: str = ""
    """What it raised before its first step because it does not run here."""
    wrong: str = ""
    """Where a run that resumed, or saved its state, differed."""


def name_of(scheme: Scheme) -> SchemeAddress:
    """The address of a scheme; ``DefinitionError`` for a class inside a function."""
    kind = type(scheme)
    file = inspect.getfile(kind)
    if "." in kind.__qualname__:
        raise DefinitionError(
            f"scheme {kind.__qualname__}", "its class is nested", "define it at the top level of a file"
        )
    known = "." in kind.__module__ and find_spec(kind.__module__) is not None
    return SchemeAddress(
        kind.__name__, kind.__module__, "" if known else str(Path(file).resolve()), settings_of(scheme)
    )


def checkpoints_in_processes(
    scheme: Scheme, framework: str, ranks: int, seed: int, seconds: float
) -> Iterator[Finding]:
    """Fresh ranks that resume from the state of others continue bit by bit like those: the probe ``checkpoints``."""
    if lacking := scheme.lacks():
        yield not_tried(lacking)
        return
    there = communicator_kinds()
    kinds = [kind for kind in scheme.communicators or ("gloo",) if there.get(kind, "unknown") is None]
    if not kinds:
        yield not_tried(f"none of its communicators is available here ({', '.join(scheme.communicators)})")
        return
    wanted = ResumptionJob([name_of(scheme)], framework, kinds[0], seed, seconds)
    found = resumptions(wanted, ranks)
    yield judged(found, ranks) if isinstance(found, list) else failed(found, RESTORABLE)


def judged(found: Sequence[Sequence[Resumption]], ranks: int, at: int = 0) -> Finding:
    """The finding on scheme number ``at`` from the results of all ranks."""
    own = [each[at] for each in found]
    for rank, each in enumerate(own):
        where = f"{ranks} ranks (processes), rank {rank}"
        if each.refused:
            return not_tried(each.refused)
        if each.unkept:
            do = "declare kept = True in its class once state() and restore() are complete"
            return noted(f"{each.unkept}: a run with --checkpoint is refused", do)
        if each.wrong:
            return failed(f"{where}, {each.wrong}", RESTORABLE)
    return passed(f"{ranks} ranks (processes): fresh ones resume with the same bits")


def resumptions(wanted: ResumptionJob, ranks: int) -> list[list[Resumption]] | str:
    """What each rank found, by scheme; or what ended them."""
    with tempfile.TemporaryDirectory(prefix="levelbench-check-") as name:
        folder = Path(name)
        (folder / JOB).write_bytes(msgspec.json.encode(wanted))
        command = [sys.executable, "-m", "levelbench.distributed.probes.processes", str(folder)]
        limit_s = _START_S + wanted.timeout_s * len(wanted.schemes)
        with ENGINES["process"].start(command, ranks, folder, {}) as running:
            if not running.wait(limit_s):
                return f"{ranks} ranks (processes) have not ended after {limit_s:g} s"
            if failure := running.failure():
                last = next((line for line in reversed(failure.lines) if line.strip()), "nothing printed")
                return f"{ranks} ranks (processes), {failure.reason}: {last.strip()}"
        paths = [folder / f"found-{rank}.json" for rank in range(ranks)]
        return [msgspec.json.decode(path.read_bytes(), type=list[Resumption]) for path in paths]


Arrays = dict[str, Host]

_STEPS, _BATCH, _INPUTS, _CLASSES = 12, 9, 6, 4
_NETWORK = zoo.mlp(_INPUTS, 8, _CLASSES).with_loss("cross-entropy").training()


@dataclass(frozen=True)
class _Kept:
    step: int
    state: Arrays
    parameters: Arrays


@dataclass
class _Course:
    """A rank's view of a run: the loss at each step, and what it holds at the end."""

    losses: dict[int, float] = field(default_factory=dict)
    final: Arrays = field(default_factory=dict)
    kept: _Kept | None = None


@dataclass(frozen=True)
class _Bench:
    communicator: Communicator
    backend: Backend
    scheme: Scheme
    seed: int

    def start(self, apart: int) -> tuple[Executor, SchemeStepper]:
        """An executor with its own initial parameters, and the stepper."""
        executor = self.backend.executor(_NETWORK, _NETWORK.initialise(self.seed + apart))
        worker = Worker(self.communicator, self.backend, executor, Adam(0.01), self.seed)
        return executor, self.scheme.start(worker)

    def course(self, keeps: int = 0, before: _Kept | None = None) -> _Course:
        """Run all steps, or those after ``before``; the state is saved after step ``keeps``."""
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
                found.kept = _Kept(step, state, host_copies(self.backend, executor.parameters))
                self.communicator.barrier()
        stepper.meet()
        found.final = host_copies(self.backend, stepper.averaged() or executor.parameters)
        stepper.close()
        return found


def resumption(communicator: Communicator, backend: Backend, scheme: Scheme, seed: int) -> Resumption:
    """Whether ``scheme`` resumes as if it had not been interrupted. Collective."""
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
    for at in KEPT_AFTER:
        kept = bench.course(keeps=at)
        assert kept.kept is not None
        odd = next((name for name, each in kept.kept.state.items() if each.dtype.kind not in "biufc"), "")
        # Whatever one rank finds, all make the same calls.
        resumed = bench.course(before=kept.kept)
        if odd:
            wrong = wrong or f"{odd!r} of its state is not an array of numbers"
        if found := _difference(whole, kept):
            wrong = wrong or f"{found} if the state is saved after step {at}"
        if found := _difference(whole, resumed):
            wrong = wrong or f"{found}, in fresh ranks resumed after step {at}"
    return Resumption(wrong=wrong)


def _difference(whole: _Course, other: _Course) -> str:
    for step, loss in other.losses.items():
        if loss != whole.losses[step]:
            return f"step {step}: different loss"
    differs = next((name for name, each in whole.final.items() if each.tobytes() != other.final[name].tobytes()), "")
    return f"{differs!r}: different bits at the end" if differs else ""


def main(arguments: Sequence[str]) -> int:
    """Try all schemes with the other ranks, and write the results."""
    die_with_parent()
    folder = Path(arguments[0])
    wanted = msgspec.json.decode((folder / JOB).read_bytes(), type=ResumptionJob)
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
