"""Profiles of the training steps of recorded recipes: how forward and backward split into operators, off any clock.

A profile is made on demand, in processes of its own, long after the runs whose time it explains. Each process loads the
task, trains on the first batches of one seed, and times every step twice: as it is, and with a clock around each
operator. What counts are the shares of the operators in the step as it is. The sides take turns (A B B A), so that a
drift of the machine hits both, and the replicate is the process.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

import msgspec

from levelbench.errors import DefinitionError, LevelbenchError, UnsupportedError, UsageError
from levelbench.experiments.processes import ProcessNote, listen, raise_reported, serve
from levelbench.experiments.request import load_task, source_of
from levelbench.measure.clocks import HOST
from levelbench.measure.environment import capture, same_machine
from levelbench.measure.timeline import Timeline
from levelbench.networks.executor import Array, Backend, OperatorTime
from levelbench.operators.frameworks import open_framework
from levelbench.records import RunSummary, Specification
from levelbench.training.stopping import Evaluate, Stopping
from levelbench.training.trainer import Trainer

__all__ = ["ProfileJob", "StepProfile", "main", "profile_sides", "why_no_profile"]

_CHILD = "levelbench.experiments.profiling"
_WARM_UP, _FEWEST, _MOST = 3, 8, 60
_BUDGET_S = 1.5


class ProfileJob(msgspec.Struct, frozen=True):
    """A recipe to be profiled. ``source`` is the digest that its source must have, ``seed`` that of its batches."""

    reference: str
    specification: Specification
    source: str
    seed: int
    data: str | None = None
    budget_s: float = _BUDGET_S


class StepProfile(msgspec.Struct, frozen=True):
    """One process: the medians of a step's ``forward_s`` and ``backward_s`` as they are, over ``steps`` steps.

    ``forward`` and ``backward`` have the seconds in each type of operator. They are less than the whole by what the
    framework adds between operators; where the framework runs the whole faster than its parts, they are more.
    """

    steps: int
    forward_s: float
    backward_s: float
    forward: dict[str, float]
    backward: dict[str, float]


class ProfileNote(ProcessNote, frozen=True, kw_only=True):
    """A line to the parent: also the profile."""

    profile: StepProfile | None = None


def main(arguments: list[str]) -> int:
    """Read a job from standard input and carry it out; the first argument is the file descriptor for notes."""
    return serve(arguments, ProfileJob, lambda job, tell: tell(ProfileNote(profile=measure_profile(job))))


def why_no_profile(run: RunSummary, reference: str) -> str:
    """Why the recipe of ``run`` cannot be profiled here, in a sentence; empty if nothing is known to forbid it."""
    specification = run.specification
    if specification.scored_by is not None:
        return f"{specification.task} is a program or a loop of its own, whose operators are not seen from outside"
    if specification.distribution is not None:
        return "a run on several ranks is split by its phases, not by operators"
    if not same_machine(capture(), run.environment):
        return "the runs were made on another machine: profile them there"
    try:
        task = load_task(reference)
        source = source_of(task, specification.recipe).whole
    except LevelbenchError as error:
        return f"the task is not found here ({error.found}): name its file: --task-file"
    # The settings that a task reads from files count as its source, and only a run knows them.
    if run.source_digest != source and not run.settings_read:
        return f"the source of {specification.task} has changed since its runs: make them again, or check out theirs"
    return ""


def profile_sides(
    jobs: tuple[ProfileJob, ProfileJob], processes: int, on_turn: Callable[[int, int], None] = lambda at, of: None
) -> tuple[list[StepProfile], list[StepProfile]]:
    """The profiles of both sides, ``processes`` each, in turns; ``on_turn`` gets the number of each and of all.

    Raises ``UnsupportedError`` if an executor cannot distinguish its operators, and what else a process reports.
    """
    if processes < 2:
        raise UsageError(f"{processes} profiles a side", "one has no spread", "make two or more: --profiles 4")
    sides = [side for turn in range(processes) for side in ((0, 1) if turn % 2 == 0 else (1, 0))]
    found: tuple[list[StepProfile], list[StepProfile]] = [], []
    for at, side in enumerate(sides, 1):
        on_turn(at, len(sides))
        found[side].append(_profiled(jobs[side]))
    return found


def _profiled(job: ProfileJob) -> StepProfile:
    notes, code, output = listen(_CHILD, job, ProfileNote)
    title = f"{job.specification.task} on {job.specification.framework}"
    raise_reported(notes, code, output, f"a profile of {title}", "", 0)
    return next(note.profile for note in notes if note.profile is not None)


def trainer_of(job: ProfileJob) -> Trainer:
    """A trainer of the job's recipe that nobody has started, with its data loaded."""
    specification = job.specification
    backend = open_framework(specification.framework, specification.device)
    if not isinstance(backend, Backend):
        raise UnsupportedError(f"a profile on {specification.framework}", "it cannot train", "use another framework")
    task = load_task(job.reference)
    if job.source and source_of(task, specification.recipe).whole != job.source:
        do = "make the runs again, or check out their source"
        raise DefinitionError(f"a profile of {task.name}", "its source has changed since the runs", do)
    dataset = task.data.load(Path(job.data) if job.data else None)
    stopping = Stopping(
        specification.target,
        specification.crossing,
        Evaluate.parse(specification.evaluate_every),
        specification.budget_epochs,
    )
    recipe = task.assemble(specification.recipe, specification.settings)
    timeline = Timeline(backend.clock())
    return Trainer(backend, dataset, recipe, task.quality, stopping, seed=job.seed, timeline=timeline)


def batches_of(trainer: Trainer) -> Iterator[tuple[Array, ...]]:
    """The batches of all epochs, in the order of a run; one of another size than the first is left out."""
    size: int | None = None
    for epoch in range(trainer.recipe.epochs + 1):
        for batch in trainer.loader.batches(epoch, 0, trainer.loader.steps, 0.0):
            size = len(batch[0]) if size is None else size
            if len(batch[0]) == size:
                yield batch


def measure_profile(job: ProfileJob) -> StepProfile:
    """Profile in this process. Raises ``UnsupportedError`` if the executor cannot distinguish its operators."""
    trainer = trainer_of(job)
    executor, backend = trainer.executor, trainer.backend
    plain: tuple[list[float], list[float]] = [], []
    parts: tuple[list[dict[str, float]], list[dict[str, float]]] = [], []
    began_ns = HOST.now_ns()
    try:
        for at, batch in enumerate(batches_of(trainer)):
            start = HOST.now_ns()
            backend.finish([executor.forward(*batch)])
            middle = HOST.now_ns()
            gradients = executor.backward()
            backend.finish(list(gradients.values()))
            end = HOST.now_ns()
            trainer.stepper.step(gradients, at + 1, 1.0)
            timed = executor.step_times(*batch)
            if at < _WARM_UP:
                continue
            plain[0].append((middle - start) * 1e-9)
            plain[1].append((end - middle) * 1e-9)
            for kept, times in zip(parts, timed, strict=True):
                kept.append(_by_title(times))
            spent_s = (HOST.now_ns() - began_ns) * 1e-9
            if len(plain[0]) >= _MOST or (spent_s > job.budget_s and len(plain[0]) >= _FEWEST):
                break
    finally:
        trainer.loader.close()
    if not plain[0]:
        found = f"its schedule has at most {_WARM_UP} whole batches"
        raise UnsupportedError(f"a profile of {job.specification.task}", found, "train with smaller batches")
    forward, backward = (_medians(each) for each in parts)
    return StepProfile(len(plain[0]), median(plain[0]), median(plain[1]), forward, backward)


def _by_title(times: Sequence[OperatorTime]) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for each in times:
        sums[each.title] += each.times_s[0]
    return sums


def _medians(steps: Sequence[dict[str, float]]) -> dict[str, float]:
    """The median over the steps by title, so that an interruption of one step does not count."""
    return {name: median(step.get(name, 0.0) for step in steps) for name in dict.fromkeys(n for s in steps for n in s)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
