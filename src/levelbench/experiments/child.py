"""One run in a separate process: ``python -m levelbench.experiments.child`` reads a job and leaves a record.

It opens the framework, writes the header, trains, and writes the end. A rank of a team does the same, except for the
record: the first rank writes it, each other rank writes a file with what it observed, and the first one merges these
files into the record before its end.

This is the boundary at which any exception becomes a recorded status. The parent learns what happened from the record
or, if there is none, from a message on its pipe.
"""

from __future__ import annotations

import gc
import os
import select
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from levelbench import __version__
from levelbench.errors import DataError, DefinitionError, LevelbenchError, StoreError
from levelbench.experiments.importing import Importing, files_read, files_written, processes_started, watched
from levelbench.experiments.jobs import (
    AloneMember,
    Hear,
    Job,
    Member,
    Message,
    Recorder,
    Sights,
    Tell,
    Written,
    no_parent,
)
from levelbench.experiments.off_clock import import_doubts, read_besides, refuse_data
from levelbench.experiments.own_code import (
    data_digests,
    file_of_module,
    is_data,
    is_ours,
    named_settings,
    replaced_code,
    texts_among,
)
from levelbench.experiments.recipe_checks import (
    augmentation_doubts,
    data_doubts,
    given_weights,
    operations,
    quality_again,
    replaced_methods,
    scored_answers,
    untrained,
)
from levelbench.experiments.request import file_of, load_watched, packages_of, source_of, variables_of
from levelbench.measure.clocks import HOST, utc_now
from levelbench.measure.environment import capture, capture_after, doubts
from levelbench.measure.forking import die_with_parent, end_on_interrupt, how_started
from levelbench.measure.meters import Meter, meters
from levelbench.measure.meters.resources import own_cpu_s
from levelbench.measure.timeline import Phase, Timeline
from levelbench.networks.executor import Backend
from levelbench.operators.frameworks import open_framework
from levelbench.records import SCHEMA, End, Header, Measurement, Samples, read_record
from levelbench.records.schema import Between, DatasetFacts, Source, fault, redact
from levelbench.training.checkpoints import Snapshot, checkpoint_of, record_of, remove_all
from levelbench.training.datasets.base import Dataset
from levelbench.training.datasets.places import cache_folder
from levelbench.training.observers import Observer, Pulse
from levelbench.training.observers import make as make_observers
from levelbench.training.optimizers import SGD
from levelbench.training.optimizers.arrays import namespace
from levelbench.training.stopping import Evaluate, Outcome, Stopping
from levelbench.training.task import Task
from levelbench.training.trainer import Trainer

__all__ = ["boundary", "execute", "main", "message_of"]


def execute(
    job: Job,
    tell: Tell,
    member: Member | None = None,
    pulse: Pulse | None = None,
    hear: Hear = no_parent,
    also: Sequence[Observer] = (),
) -> Path:
    """Carry out a job: open the framework, write the header, train, write the end; as ``member`` of a team, or alone.

    ``pulse`` shows the number of steps to the parent; ``hear`` waits for the parent's answer as a witness; ``also`` are
    more observers. Returns the record's path.
    """
    member = member or AloneMember()
    # Before the task is imported, so that its time is not attributed to the task.
    backend = open_framework(job.specification.framework, member.device(job.specification.device))
    if not isinstance(backend, Backend):
        raise DefinitionError(
            f"framework {job.specification.framework!r}",
            "its backend cannot train",
            "set trains = False in its Framework",
        )
    _warm_up(backend)
    task, importing = load_watched(job.reference)
    imported_s = _thread_s()
    _freeze()
    source = source_of(task, job.specification.recipe)
    if job.source not in ("", source.whole):
        raise DefinitionError(
            f"a run of {task.name}", "the task's source changed while the runs were made", "repeat the command"
        )
    job, resume = member.resumed(job)
    _require_same(job, resume)
    environment = {
        **capture(apart=Path(job.store)),
        "framework": {**backend.describe(), "name": job.specification.framework},
        "started": how_started(),
    }
    if signatures := _signatures(job.reference, task, importing):
        environment["signatures"] = {name: redact(text) for name, text in signatures.items()}
    if variables := variables_of(task, job.specification.recipe):
        environment["variables_read"] = variables
    if packages := packages_of(task, job.specification.recipe):
        environment["packages_imported"] = packages
    environment |= job.first
    environment["before_clock"] = {"cpu_s": round(own_cpu_s(), 4), **importing.facts()}
    header = _header(job, environment, source)
    watchers = make_observers(job.observe, job.specification, f"s{job.seed}-{job.id}") if member.first else ()
    with member.begin(Path(job.store), header) as writer:
        tell(Message(path=str(writer.path), phase="prepare"))
        gauges = meters()
        for gauge in gauges:
            gauge.start()
        # Otherwise the garbage of imports would be collected at some moment on the clock.
        _collect()
        _freeze()
        clock = member.clock(backend)
        sights = Sights(clock, tell, hear) if member.first else None
        if sights is not None:
            sights.begin(len(resume.facts.evaluations) if resume else 0)
        member.ready()
        if not is_ours(job.reference):
            importing.rest_s = _thread_s() - imported_s
        before_ns = member.before_ns(resume)
        early_ns = HOST.now_ns()
        marks = member.marks(backend)
        timeline = Timeline(clock if marks is None else HOST, before_ns=before_ns)
        if marks is not None:
            timeline.follow(marks)
        began_ns = early_ns - sum(before_ns.values()), HOST.now_ns() - sum(before_ns.values())
        looking = (Recorder(writer, tell, gauges), *watchers, *member.observers(), *also)
        observers = looking if sights is None else (sights, *looking)
        if sights is not None:
            sights.started(timeline)
        try:
            parts = (gauges, observers, resume, member, pulse, sights, importing, source)
            run = _Run(job, task, backend, timeline, writer, environment, *parts)
            run.train(sum(before_ns.values()), began_ns)
        except Exception as error:
            totals = timeline.totals_ns()
            if member.ends_failures:
                writer.append(End("failed", sum(totals.values()), totals, error=fault(error, file_of(job.reference))))
            raise
        member.leave()
    if member.first:
        remove_all(writer.path, job.key, job.seed)
    return writer.path


def _header(job: Job, environment: dict[str, object], source: Source) -> Header:
    return Header(
        schema=SCHEMA,
        id=job.id,
        key=job.key,
        seed=job.seed,
        started=utc_now().isoformat(timespec="milliseconds"),
        specification=job.specification,
        environment=environment,
        source=source,
        version=__version__,
        planned_effect=job.planned_effect,
        planned_runs=job.planned_runs,
        replaced=job.replaced,
        chosen=job.chosen,
    )


def _warm_up(backend: Backend) -> None:
    """Load the modules that a framework imports with its first array and first optimizer, before the clock starts."""
    array = backend.array(np.zeros(1, np.float32))
    namespace(array)
    SGD(1.0).start(backend, {"": array})


def _signatures(reference: str, task: Task, importing: Importing) -> dict[str, str]:
    """How the task's figures are computed; what its file does when asked counts as part of its import."""
    with nullcontext(importing) if is_ours(reference) else watched() as seen:
        found = {each.metric: text for each in (task.quality, *task.also) if (text := each.signature)}
    if seen is not importing:
        refuse_data(reference, seen, "when it is asked for a signature")
        importing.add(seen)
    return found


def _require_same(job: Job, kept: Snapshot | None) -> None:
    if kept is not None and (kept.facts.key, kept.facts.seed) != (job.key, job.seed):
        raise DataError(
            f"the checkpoint {job.resume}", "it belongs to another run", "remove it; the run then starts over"
        )


@dataclass(frozen=True)
class _Run:
    """One run, right before its clock starts."""

    job: Job
    task: Task
    backend: Backend
    timeline: Timeline
    writer: Written
    environment: dict[str, Any]
    gauges: Sequence[Meter]
    observers: Sequence[Observer]
    resume: Snapshot | None
    member: Member
    pulse: Pulse | None
    sights: Sights | None
    importing: Importing
    source: Source

    def train(self, before_ns: int, began_ns: tuple[int, int]) -> None:
        """Do everything on the clock, which began at ``before_ns``; then write the meters' readings and the end.

        ``began_ns`` are readings of the host's clock before and after the timeline began, minus ``before_ns``.
        """
        self._copy_earlier_events()
        loaded: list[Path] = []
        read: list[Path] = []
        late: list[Path] = []
        heard, loading = loaded, set[int | None]()

        def note(path: Path) -> None:
            if threading.get_ident() not in loading:
                heard.append(path)

        # Around both, so that files made by load() are known when the recipe reads them.
        # What load() starts reads data.
        with self._watched(note, lambda: heard is read, everywhere=True):
            dataset = self.task.data.load(Path(self.job.data) if self.job.data else None)
            # What these read on belongs to the data.
            loading = {each.ident for each in threading.enumerate()} - {threading.get_ident()}
            heard = read
            trainer = self._trainer(dataset, read)
        besides = read_besides(read, {*loaded})
        # What is not written on the way can wait until the clock has stopped.
        late += [path for path in (*loaded, *read) if path.suffix in _SOURCES]
        self.importing.texts |= texts_among(
            path for path in read if path.suffix not in _SOURCES and not self.importing.passing(path)
        )
        self.member.started(self.resume, bool(self.job.checkpoint))
        opened: set[str] = set()

        def hear(path: Path) -> None:
            if self.timeline.current in _COMPUTING and is_data(path):
                opened.add(path.name)
            elif path.suffix in _SOURCES or self.timeline.current in _READING:
                late.append(path)

        with self._watched(hear, lambda: self.timeline.current in _READING):
            outcome = trainer.run()
        read_ns = HOST.now_ns()
        totals = self.timeline.totals_ns()
        wall_ns = read_ns - began_ns[1], HOST.now_ns() - began_ns[0]
        witness = None if self.sights is None else self.sights.end()
        together = self.member.end([gauge.stop() for gauge in self.gauges])
        for each in together.readings:
            self.writer.append(Measurement(each.name, each.unit, each.value, each.method, each.reason))
        after = capture_after()
        if settings := self._settings_files(late):
            after["settings_files"] = settings
        if counters := after.get("load", {}).get("counters"):
            # The other ranks on this machine are not load from elsewhere.
            counters["own_s"] += together.others_cpu_s
        if together.facts:
            after["team"] = together.facts
        end = _end(outcome, dataset, totals, wall_ns, self.environment, after, before_ns)
        after |= self._data_read(end.dataset, {*loaded}, {*read})
        end.suspect.extend(together.doubts)
        end.suspect.extend(self._went_on())
        end.suspect.extend([*import_doubts(self.importing, wall_ns[0] * 1e-9), *besides, *self.job.doubts])
        if self.member.first:
            measured, doubt = untrained(trainer, self.task.quality, self.job.specification.target.threshold, totals)
            measured += [*scored_answers(trainer, self.task.quality), operations(trainer, self.job.specification)]
            for measurement in measured:
                self.writer.append(measurement)
            if not is_ours(self.job.reference):
                doubt += given_weights(trainer)
            doubt += [*augmentation_doubts(trainer), *replaced_code()]
            end.suspect.extend([*doubt, *replaced_methods(self.task.quality, *self.task.also)])
            if opened:
                names = ", ".join(sorted(opened))
                end.suspect.append(f"while it computed a step it opened data ({names}): it may have learned from them")
            if self.job.specification.distribution is None:
                held = dataset.held_out("validation", self.job.seed, trainer.evaluated - 1)
                end.suspect.extend(quality_again(trainer, held, self.task.quality, outcome))
            if trainer.changed_by_evaluation:
                end.suspect.append("measuring its quality changed its weights: that training is on no clock")
        self.writer.append(msgspec.structs.replace(end, witness=witness))

    @contextmanager
    def _watched(
        self, hear: Callable[[Path], object], counts: Callable[[], bool], *, everywhere: bool = False
    ) -> Iterator[None]:
        """Tell ``hear`` of what a user's task reads within, and take note of what is written.

        A process that it starts while ``counts`` is noted, and reads the files that its words name.
        """
        if is_ours(self.job.reference):
            yield
            return

        def start(program: str, files: list[Path]) -> None:
            if counts():
                self.importing.ran.append(program)
                for each in files:
                    hear(each)

        reading = files_read(hear, everywhere=everywhere)
        with reading, files_written(self.importing.writes), processes_started(start):
            yield

    def _settings_files(self, late: Iterable[Path]) -> dict[str, str]:
        """The small files and sources that it read, by their paths from the task's folder with their SHA-256.

        Those among the modules of its source are left out. ``late`` are files that it read after the import.
        """
        reference = self.job.reference
        if is_ours(reference):
            return {}
        apart = [self.job.data or os.environ.get("LEVELBENCH_DATA"), self.job.store, cache_folder()]
        texts = self.importing.read_in_all(late, self.job.id)
        file = file_of(reference)
        known = {None if file is None else file.resolve(), *map(file_of_module, self.source.modules)}
        # Where a task is named, nothing says from where its package's files would be named.
        unknown = {
            path: digest
            for path, digest in texts.items()
            if Path(path).suffix != ".py" or (file is not None and Path(path).resolve() not in known)
        }
        return named_settings(unknown, reference, [Path(each) for each in apart if each])

    def _data_read(self, facts: DatasetFacts | None, loaded: set[Path], read: set[Path]) -> dict[str, object]:
        """The data files that the task of a file read, of which ``loaded`` by ``load()``, with their digests.

        Where all inputs are known, what was loaded says no more, and may be the same data written in another way.
        """
        file = file_of(self.job.reference)
        if file is None or is_ours(self.job.reference):
            return {}
        sizes, known = ({}, {}) if facts is None else (facts.sizes, facts.whole_inputs)
        whole = bool(known) and all(name in known for name, size in sizes.items() if size)
        return {"data_read": data_digests(filter(is_data, read - loaded if whole else read | loaded), file.parent)}

    def _went_on(self) -> list[str]:
        """Doubts about a run that several processes made one after the other."""
        last = "energy and peak memory are those of the last process alone"
        if self.member.restarts:
            from_step = "its beginning" if self.resume is None else f"the checkpoint at step {self.resume.facts.step}"
            return [
                f"its ranks were restarted (times: {self.member.restarts}), last from {from_step}: the lost time is on "
                f"the clock, in phase {Phase.OTHER.label}, and {last}"
            ]
        if self.resume is None:
            return []
        return [
            f"it resumed from a checkpoint at step {self.resume.facts.step}: what an earlier process did after it is "
            f"off the clock, and {last}"
        ]

    def _copy_earlier_events(self) -> None:
        """Copy the events up to the checkpoint, so that this record is complete."""
        if self.resume is None or self.job.resume is None or not self.member.first:
            return
        facts = self.resume.facts
        before = read_record(record_of(Path(self.job.resume))).samples.get("step_time")
        if before is not None:
            # One per step, except those since the last evaluation, which come with the next one.
            self.writer.append(Samples("step_time", "ns", before.values[: facts.step - len(facts.step_times_ns)]))
        for evaluation in facts.evaluations:
            self.writer.append(evaluation)

    def _trainer(self, dataset: Dataset, read: Iterable[Path]) -> Trainer:
        """The trainer of a recipe, which will have ``read`` these files when it has been called."""
        job, task, specification = self.job, self.task, self.job.specification
        recipe = task.assemble(specification.recipe, specification.settings)
        saving = None
        if job.checkpoint:
            saving = self.member.saving(checkpoint_of(self.writer.path), Evaluate.parse(job.checkpoint), job.key)
            saving = replace(saving, settings=self._settings_files(read))
        return Trainer(
            self.backend,
            dataset,
            recipe,
            task.quality,
            self._stopping(),
            seed=job.seed,
            timeline=self.timeline,
            observers=self.observers,
            also=task.also,
            saving=saving,
            resume=self.resume,
            team=self.member.team,
            pulse=self.pulse,
        )

    def _stopping(self) -> Stopping:
        specification = self.job.specification
        energy = next((gauge for gauge in self.gauges if gauge.name == "energy"), None)
        return Stopping(
            specification.target,
            specification.crossing,
            Evaluate.parse(specification.evaluate_every),
            specification.budget_epochs,
            specification.budget_s,
            specification.budget_samples,
            specification.budget_j,
            specification.plateau,
            energy_j=None if energy is None else lambda: energy.stop().value,
        )


def _end(
    outcome: Outcome,
    dataset: Dataset,
    totals: dict[str, int],
    wall_ns: tuple[int, int],
    environment: dict[str, object],
    after: dict[str, object],
    before_ns: int,
) -> End:
    elapsed_ns = sum(totals.values())
    suspect = list(doubts(environment, after))
    # Between the two readings on each side this process may have waited for a processor.
    apart_ns = max(wall_ns[0] - elapsed_ns, elapsed_ns - wall_ns[1])
    if apart_ns > 0.01 * wall_ns[0] + 1_000_000:
        sums = f"phases sum to {elapsed_ns / 1e9:.3f} s where the host's clock saw {wall_ns[0] / 1e9:.3f} s"
        suspect.append(f"{sums}: something changes one of the clocks")
    facts = DatasetFacts(
        dataset.name,
        dataset.sizes(),
        dataset.checksums,
        dataset.split_rule,
        dataset.licence,
        dataset.synthetic,
        dataset.label_digests(),
        dataset.input_digests(),
        dataset.input_digests(whole=True),
    )
    suspect.extend(data_doubts(dataset, facts))
    why = outcome.stopped_by
    return End(
        "done", elapsed_ns, totals, outcome.quality, outcome.diverged, suspect, after, facts, why, before_ns=before_ns
    )


# Bound here, because a task's file may replace them.
_collect, _freeze, _thread_s = gc.collect, gc.freeze, time.thread_time

_ANSWER_S = 60.0

_COMPUTING = (Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE)

_READING = (*_COMPUTING, Phase.PREPARE, Phase.TRAIN)
"""Phases in which a small text that is read may be settings: those of data and of scoring read data."""

_SOURCES = (".py", ".pyc")


def message_of(error: LevelbenchError, file: Path | None = None) -> Message:
    """The error that is being handled, in its parts; ``file`` is the user's file."""
    return Message(
        error=(error.asked, error.found, error.do),
        exit_code=error.exit_code,
        trace=traceback.format_exc(),
        fault=fault(error, file),
    )


def boundary(
    job: Job, tell: Tell, member: Member | None = None, pulse: Pulse | None = None, hear: Hear = no_parent
) -> int:
    """Carry out the job (see ``execute``); any error is reported to the parent and determines the exit code."""
    try:
        if job.keep_model:
            _run_and_keep(job, tell, member, pulse, hear)
        else:
            execute(job, tell, member, pulse, hear)
        tell(Message(phase="done"))
    except LevelbenchError as error:
        lost = member is not None and member.lost(error)
        tell(msgspec.structs.replace(message_of(error, file_of(job.reference)), lost=lost))
        return error.exit_code
    except Exception as error:  # noqa: BLE001  # the run's boundary: recorded above, reported here
        place = fault(error, file_of(job.reference))
        failure = DefinitionError(
            f"a run of {job.specification.task} with recipe {job.specification.recipe!r}, seed {job.seed}",
            f"it raised {type(error).__name__}: {error}",
            "correct the task or recipe; --debug shows where",
        )
        parts, trace = (failure.asked, failure.found, failure.do), traceback.format_exc()
        tell(Message(error=parts, exit_code=2, trace=trace, fault=place))
        return failure.exit_code
    return 0


def _run_and_keep(job: Job, tell: Tell, member: Member | None, pulse: Pulse | None, hear: Hear) -> None:
    """Carry out the job and keep its network; ``StoreError`` if that fails, although the run is done and counts.

    Of several ranks the first keeps the weights that it evaluated: the common ones, or what the scheme makes of them.
    """
    from levelbench.experiments.inference.making import LastWeights, keep_network

    if member is not None and not member.first:
        execute(job, tell, member, pulse, hear)
        return
    weights = LastWeights()
    path = execute(job, tell, member, pulse, hear, (weights,))
    try:
        keep_network(job, path, weights, for_inference=False)
    except Exception as error:  # ONNX may raise anything, and it is not the task's fault
        found, do = f"{type(error).__name__}: {error}", ""
        if isinstance(error, LevelbenchError):
            found, do = error.found, f"{error.do}; "
        raise StoreError(
            f"the trained network of {job.specification.task}, seed {job.seed}",
            f"it was not kept ({found}); its run is done and counts",
            f"{do}repeat the run with --fresh to try again",
        ) from error


def main(arguments: list[str]) -> int:
    """Read a job from standard input and run it; the first argument is the descriptor of a socket to the parent.

    The second one, if given, is the descriptor of the memory from which the parent reads steps.
    """
    # The parent decides what an interrupt means; here it ends the process immediately, and the record stays readable.
    end_on_interrupt()
    die_with_parent()
    pipe, *steps = map(int, arguments)

    def tell(message: Message) -> None:
        os.write(pipe, msgspec.json.encode(message) + b"\n")

    def hear() -> list[Between] | str:
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([pipe], [], [], _ANSWER_S)[0]:
                return f"its parent gave no answer in {_ANSWER_S:g} s"
            if not (part := os.read(pipe, 1 << 20)):
                return "its parent is gone"
            line += part
        return msgspec.json.decode(line, type=list[Between])

    return boundary(msgspec.json.decode(sys.stdin.buffer.read(), type=Job), tell, pulse=Pulse(*steps), hear=hear)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
