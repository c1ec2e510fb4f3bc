"""Checkpoints of schemes that talk past the communicator, as DDP and FSDP do: tried on ranks that are processes.

The one idea: such a scheme cannot be watched from outside, but what it leaves out of its state shows in what becomes of
a run, so real ranks train a network, and fresh steppers that go on from a kept state must do bit by bit the same.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from levelbench import plugins
from levelbench.distributed.finding import communicator_kinds, settings_of, with_settings
from levelbench.distributed.launching import ENGINES
from levelbench.distributed.scheme import Scheme
from levelbench.errors import DefinitionError
from levelbench.training.validation.probes import Finding, failed, not_tried, noted, passed

__all__ = ["JOB", "Named", "Resumption", "Wanted", "checkpoints_in_processes", "judged", "name_of", "resumptions"]

JOB = "job.json"
_START_S = 60.0
"""What ranks may take to start: they import a framework."""
_DO = "let state() hold all that step() reads and has not got from its arguments, and restore() put it back"


class Named(msgspec.Struct, frozen=True):
    """A scheme as another process finds it: its class in a module, or in a file, and its settings."""

    kind: str
    module: str
    file: str
    settings: dict[str, int | float | str | bool]

    def scheme(self) -> Scheme:
        """The scheme; a file is run."""
        if self.file:
            home = plugins.load_file("scheme", Path(self.file))
        else:
            home = __import__(self.module, fromlist=[self.kind])
        kind: Any = getattr(home, self.kind)
        made: Scheme = kind()
        return with_settings(made, self.settings)


class Wanted(msgspec.Struct, frozen=True):
    """What ranks are to try."""

    schemes: list[Named]
    framework: str
    communicator: str
    seed: int
    timeout_s: float


class Resumption(msgspec.Struct, frozen=True):
    """What a rank found of one scheme: an empty text where nothing was."""

    unkept: str = ""
    """Why it cannot be kept, as the stepper says."""
    refused: str = ""
    """What it raised before its first step, as it does not run here."""
    wrong: str = ""
    """Where a run that went on, or kept its state, was another one."""


def name_of(scheme: Scheme) -> Named:
    """How another process finds a scheme; ``DefinitionError`` for a class inside of a function."""
    kind = type(scheme)
    file = inspect.getfile(kind)
    if "." in kind.__qualname__:
        raise DefinitionError(
            f"scheme {kind.__qualname__}", "its class is inside of another thing", "let a file have it"
        )
    known = "." in kind.__module__ and find_spec(kind.__module__) is not None
    return Named(kind.__name__, kind.__module__, "" if known else str(Path(file).resolve()), settings_of(scheme))


def checkpoints_in_processes(
    scheme: Scheme, framework: str, ranks: int, seed: int, seconds: float
) -> Iterator[Finding]:
    """Fresh ranks that go on from the state of others do bit by bit what those do: the probe ``checkpoints``."""
    if lacking := scheme.lacks():
        yield not_tried("checkpoints", lacking)
        return
    there = communicator_kinds()
    kinds = [kind for kind in scheme.communicators or ("gloo",) if there.get(kind, "unknown") is None]
    if not kinds:
        yield not_tried("checkpoints", f"none of its communicators is here ({', '.join(scheme.communicators)})")
        return
    wanted = Wanted([name_of(scheme)], framework, kinds[0], seed, seconds)
    found = resumptions(wanted, ranks)
    yield judged(found, ranks) if isinstance(found, list) else failed("checkpoints", found, _DO)


def judged(found: Sequence[Sequence[Resumption]], ranks: int, at: int = 0) -> Finding:
    """The finding on the scheme of number ``at``, of what each rank found."""
    own = [each[at] for each in found]
    for rank, each in enumerate(own):
        where = f"{ranks} ranks (processes), rank {rank}"
        if each.refused:
            return not_tried("checkpoints", each.refused)
        if each.unkept:
            do = "say kept = True in its class once state() and restore() are whole"
            return noted("checkpoints", f"{each.unkept}: a run with --checkpoint is refused", do)
        if each.wrong:
            return failed("checkpoints", f"{where}, {each.wrong}", _DO)
    return passed("checkpoints", f"{ranks} ranks (processes): fresh ones go on to the same bits")


def resumptions(wanted: Wanted, ranks: int) -> list[list[Resumption]] | str:
    """What each rank found, by scheme; or what ended them."""
    with tempfile.TemporaryDirectory(prefix="levelbench-check-") as name:
        folder = Path(name)
        (folder / JOB).write_bytes(msgspec.json.encode(wanted))
        command = [sys.executable, "-m", "levelbench.distributed.validation.process_rank", str(folder)]
        limit_s = _START_S + wanted.timeout_s * len(wanted.schemes)
        with ENGINES["process"].start(command, ranks, folder, {}) as running:
            if not running.wait(limit_s):
                return f"{ranks} ranks (processes) have not ended after {limit_s:g} s"
            if failure := running.failure():
                last = next((line for line in reversed(failure.lines) if line.strip()), "nothing printed")
                return f"{ranks} ranks (processes), {failure.reason}: {last.strip()}"
        paths = [folder / f"found-{rank}.json" for rank in range(ranks)]
        return [msgspec.json.decode(path.read_bytes(), type=list[Resumption]) for path in paths]
