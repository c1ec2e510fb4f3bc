"""Training programs that are not ours, run from outside: what they print of their quality makes the record of a run.

The clock is levelbench's: it starts with the process, and an evaluation is when its line arrives. The quality is what
the program says, and the record says so.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, cast, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import CheckFailedError, LevelbenchError, UsageError
from levelbench.experiments.command_process import Command, EndedCommand, carry_out_command
from levelbench.experiments.commands import Preparation, doubts_of, failure_of, files_named, peak_memory, which_python
from levelbench.experiments.file_events import IN_ACCESS, IN_OPEN, Earlier, FileEvents, LeftFiles
from levelbench.experiments.kernel import Kind, Make, Plan, Turn, Watcher, disagreement
from levelbench.experiments.off_clock import Spent, after_training
from levelbench.experiments.progress import Printed, ProgressFile
from levelbench.experiments.request import Arm
from levelbench.experiments.told import TRAINED, ToldChannel, channel_of
from levelbench.experiments.track import target_of
from levelbench.experiments.tracked import Outside, TrackedRun
from levelbench.measure.clocks import HOST
from levelbench.measure.meters.resources import children_cpu_s
from levelbench.records import Record, Specification, read_record
from levelbench.records.doubts import FIRST_SEED
from levelbench.records.replicates import uncounted_first
from levelbench.records.schema import Source, Target, instant_s, redact, scale_of, source_of_text
from levelbench.records.selection import Selector
from levelbench.records.store import Store
from levelbench.records.summary import refuse_contradictory
from levelbench.records.writer import path_part

__all__ = ["HeldOut", "ProgramRuns", "make_arm", "program_name", "read_held_out", "read_target"]

Rule = Literal["confirmed", "final", "first", "sustained"]

_TOGETHER_NS = 100_000

_TEXT_BYTES = 1 << 20

_MOST_BYTES = 1 << 30

_FAR = 0.03


@dataclass(frozen=True)
class HeldOut:
    """Inputs whose labels a program is not given: it writes its predictions for them, and levelbench scores these.

    ``inputs`` (n, ...) and ``labels`` (n,). With ``after`` it gets the inputs once it has printed a line with
    ``levelbench: trained``, where its clock stops. ``public`` says that the labels lie on this machine anyway.
    ``files`` are those that inputs and labels were read from, if they are the user's own.
    """

    inputs: NDArray[Any]
    labels: NDArray[Any]
    after: bool = False
    public: bool = False
    files: tuple[Path, ...] = ()

    @property
    def words(self) -> str:
        """What a record says of them."""
        digest = hashlib.sha256(self.inputs.tobytes() + self.labels.tobytes()).hexdigest()[:12]
        when = "after training" if self.after else "before training"
        return f"{len(self.labels)} inputs ({digest}), given {when}, {'public' if self.public else 'private'} labels"

    def score(self, path: Path, target: Target) -> float:
        """Accuracy of the predictions in ``path``, or error rate for a target that is one; in per cent if that is.

        They are classes (n,) or scores (n, classes), in NumPy's format or as text, a line an input. ``UsageError`` for
        anything else.
        """
        asked = f"the predictions in {path.name}"
        try:
            if not path.is_file():
                raise UsageError(asked, "it is there and no file" if path.exists() else "there are none", _PREDICT)
            if path.stat().st_size > _MOST_BYTES:
                raise UsageError(asked, "they are larger than 1 GiB", "write classes or scores of these inputs alone")
            if path.read_bytes()[:6] == b"\x93NUMPY":
                found = np.load(path, allow_pickle=False)
            else:
                delimiter = "," if "," in path.read_text()[:4096] else None
                with warnings.catch_warnings():
                    # An empty file; it is refused below.
                    warnings.simplefilter("ignore")
                    found = np.loadtxt(path, delimiter=delimiter, ndmin=1)
        except OSError as error:
            raise UsageError(asked, f"they cannot be read: {error.strerror}", _PREDICT) from error
        except (ValueError, MemoryError) as error:
            raise UsageError(asked, f"they are no numbers: {error or 'too many'}", _PREDICT) from error
        if found.ndim not in (1, 2) or len(found) != len(self.labels) or not np.issubdtype(found.dtype, np.number):
            shown = f"they are {found.dtype} of shape {found.shape}, for {len(self.labels)} inputs"
            raise UsageError(asked, shown, _PREDICT)
        if found.ndim == 2 and found.shape[1] > 1:
            if unknown := int(np.isnan(found).any(axis=1).sum()):
                raise UsageError(asked, f"{unknown} of {len(found)} rows have scores that are not a number", _PREDICT)
            first, count = found[:, 0], np.arange(len(found))
            if len(found) > 2 and (np.array_equal(first, count) or np.array_equal(first, count + 1)):
                numbered = "their first column numbers the inputs, and so is no score"
                raise UsageError(asked, numbered, f"{_PREDICT}, without that column")
            classes = found.argmax(axis=1)
        else:
            classes = found.reshape(len(found))
            odd = classes[classes != np.round(classes)]
            if len(odd):
                raise UsageError(asked, f"they are one number each, such as {odd[0]:.4g}, and no classes", _PREDICT)
        right = int(np.sum(classes == self.labels))
        counted = right if target.direction == "higher" else len(self.labels) - right
        return _whole_of(target) * counted / len(self.labels)


def _whole_of(target: Target) -> float:
    """What a score of all examples is: 100 for a target in per cent, 1 for one that is a share."""
    return 100.0 if target.high == 100 or target.threshold > 1 else 1.0


_PREDICT = "write a class for each input, or a row of scores, to the file that LEVELBENCH_PREDICTIONS names"


def read_held_out(text: str, target: Target, *, after: bool) -> HeldOut:
    """``digits``, the test split of a task, or ``INPUTS.npy,LABELS.npy``; ``UsageError`` for anything else."""
    asked = f"--held-out {text}"
    if not re.search(r"acc|accuracy|top1|error", target.metric):
        raise UsageError(
            f"{asked} with --target {target.metric}", "levelbench scores classes alone", "use accuracy or error"
        )
    if "," not in text:
        from levelbench.experiments.request import load_task

        test = load_task(text).data.load().test
        if np.ndim(test.labels) != 1 or not np.issubdtype(np.asarray(test.labels).dtype, np.integer):
            raise UsageError(asked, "its labels are no classes", "give inputs and labels of your own: X.npy,y.npy")
        return HeldOut(np.asarray(test.inputs), np.asarray(test.labels), after, public=True)
    arrays = []
    for name in text.split(","):
        try:
            arrays.append(np.load(name.strip(), allow_pickle=False))
        except (OSError, ValueError, EOFError) as error:
            raise UsageError(asked, f"{name} is no array: {error}", "give INPUTS.npy,LABELS.npy") from error
    if len(arrays) == 2 and not np.issubdtype(arrays[1].dtype, np.integer):
        raise UsageError(asked, f"its labels are {arrays[1].dtype}, no classes", "give them as integers")
    if len(arrays) != 2 or arrays[1].ndim != 1 or len(arrays[0]) != len(arrays[1]) or not len(arrays[1]):
        shapes = " and ".join(str(each.shape) for each in arrays)
        raise UsageError(asked, f"they have shapes {shapes}", "give inputs (n, ...) and labels (n,)")
    return HeldOut(arrays[0], arrays[1], after, files=tuple(Path(name.strip()) for name in text.split(",")))


def make_arm(
    command: Command,
    task: str,
    target: Target,
    *,
    held_out: HeldOut | None = None,
    crossing: str = "confirmed",
    budget_s: float | None = None,
    pattern: str | None = None,
    setup: str = "",
    progress_file: str | None = None,
) -> Arm:
    """The runs of a command: its program's text is their source; the command, as it is typed, is their setting.

    So is what is done before it, off its clock, and the ``pattern`` and file that its quality is found by and in.
    """
    said = command.specification
    settings: dict[str, int | float | str | bool] = {"command": said.command}
    if said.revision:
        settings["revision"] = f"{said.label} {said.revision[:12]}"
    if said.copy:
        settings["copy"] = said.copy + 1
    also = {"progress": pattern, "progress_file": progress_file, "setup": setup, "prepare": said.prepare}
    settings |= {name: redact(value) for name, value in also.items() if value}
    source = _source_of(command)
    specification = Specification(
        task=task,
        recipe=path_part(program_name(command)),
        framework=said.title,
        device="cpu",
        settings=settings,
        target=target,
        crossing=cast(Rule, crossing),
        clock="wall",
        evaluate_every="time its program prints it",
        budget_epochs=0.0,
        budget_s=budget_s,
        scored_by="program" if held_out is None else "held-out",
        held_out=None if held_out is None else held_out.words,
    )
    return Arm(said.command, specification, source)


def program_name(command: Command) -> str:
    """The name of its program, ``train`` for ``python train.py``."""
    return Path(_source_of(command).name).stem


def _source_of(command: Command) -> Source:
    """The program itself, or what an interpreter is given to carry out: the first file of text; else the command."""
    words = command.text.split() if command.specification.shell else command.words
    for path in files_named(words, command.folder):
        try:
            content = path.read_bytes()
        except OSError:
            continue
        digest = hashlib.sha256(content).hexdigest()
        try:
            if len(content) <= _TEXT_BYTES:
                return source_of_text(path.name, content.decode())
        except UnicodeDecodeError:
            pass
        if path == command.folder / words[0]:
            return source_of_text(path.name, f"{path.name}\nsha256 {digest}\n")
    return source_of_text(Path(words[0]).name, command.specification.command)


def read_target(text: str, direction: Literal["higher", "lower"] | None = None, scale: str | None = None) -> Target:
    """``accuracy=0.94`` as a target, on a ``scale`` such as ``0,100``; ``UsageError`` if it is not ``METRIC=VALUE``."""
    metric, equals, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        number, equals = 0.0, ""
    if not metric.strip() or not equals:
        raise UsageError(f"--target {text}", "it is not METRIC=VALUE", "write it as in --target accuracy=0.94")
    metric = metric.strip()
    low, high = scale_of(metric)
    ends = (low, 100.0) if high == 1.0 < number <= 100.0 else (low, high)
    if scale is not None:
        try:
            # An end that is left out is none: -100, has no highest value.
            low, high = (float(each) if each.strip() else None for each in scale.split(","))
        except ValueError:
            do = "give the lowest and the highest value, or leave out one: --scale 0,100 or --scale -1000,"
            raise UsageError(f"--scale {scale}", "it is not LOWEST,HIGHEST", do) from None
        ends = low, high
    return target_of(f"--target {text}", {metric: number}, direction, ends)


@dataclass(frozen=True)
class _Settings:
    pattern: str | None
    effect: float | None
    show: bool
    held_out: HeldOut | None
    progress_file: str | None


@final
class ProgramRuns(Kind[Arm, Record]):
    """Runs of programs; ``commands`` are those of the plan's arms, in their order.

    ``pattern`` finds the quality in what they print, or write to ``progress_file``; ``effect`` is what looks at the
    comparison are planned for, if they are; the programs are scored on ``held_out``, if there are any; ``setup`` and
    ``prepare`` as for ``CommandBenchmarks``. A program that fails ends the plan.
    """

    processes = False

    def __init__(
        self,
        store: Store,
        commands: Sequence[Command],
        *,
        pattern: str | None = None,
        effect: float | None = None,
        show: bool = False,
        held_out: HeldOut | None = None,
        setup: str = "",
        prepare: str = "",
        progress_file: str | None = None,
    ) -> None:
        self._store, self._commands = store, tuple(commands)
        self._preparation = Preparation(setup, prepare, show)
        self._settings = _Settings(pattern, effect, show, held_out, progress_file)
        self._read: dict[bool, str] = {}
        self._by_key: dict[str, Command] = {}
        self._large, self._earlier = False, Earlier()

    def check(self, arms: Sequence[Arm]) -> None:
        """``UsageError`` for a pattern that finds nothing."""
        self._by_key = {arm.key: command for arm, command in zip(arms, self._commands, strict=True)}
        Printed(arms[0].specification.target, self._settings.pattern)

    def key(self, wanted: Arm) -> str:
        """That of its specification."""
        return wanted.key

    def title(self, wanted: Arm) -> str:
        """Its command."""
        return wanted.reference

    def find(self, wanted: Arm) -> list[Record]:
        """The store's records of it, oldest first."""
        found = self._store.records(Selector("", word=wanted.specification.task, filters=(("key", wanted.key),)))
        return sorted(found, key=lambda record: record.header.started)

    def why_not(self, record: Record, wanted: Arm, environment: Mapping[str, object]) -> str:
        """It did not end well, its program has changed, or it was made on another machine."""
        if record.status != "done":
            return f"the run before {'failed' if record.status == 'failed' else 'was ' + record.status}"
        if record.header.source.digest != wanted.source.digest:
            return "the program has changed since"
        after = {} if record.end is None else record.end.environment_after
        return disagreement(
            record.header.version, record.header.environment, environment, ()
        ) or self._preparation.outdated(record.header.id, after, self._by_key[wanted.key])

    def is_replaced(self, record: Record, wanted: Arm, environment: Mapping[str, object]) -> bool:
        """It ended, of the same program."""
        return record.status in ("done", "failed") and record.header.source.digest == wanted.source.digest

    def _score(self, run: TrackedRun, held_out: HeldOut, predictions: Path, outside: Outside, ended_ns: int) -> None:
        """The last evaluation is ours; ``ended_ns`` is when the program had ended, since 1970."""
        told = run.quality
        if held_out.after and not run.held:
            outside.failed = f"it did not print {TRAINED!r}, and so got no inputs"
            return
        run.hold()
        try:
            if predictions.is_file() and predictions.stat().st_ctime_ns > ended_ns:
                raise UsageError(
                    f"the predictions in {predictions.name}", "they were written after it had ended", _PREDICT
                )
            found = held_out.score(predictions, run.target)
        except UsageError as error:
            outside.failed = f"{error.asked}: {error.found}"
            return
        run.evaluate_held(found)
        n, whole = len(held_out.labels), _whole_of(run.target)
        share = found / whole
        # The standard error of a share, at least that of a single example.
        deviation = math.sqrt(max(share * (1 - share), 1 / n) / n)
        if told is not None and abs(told - found) > whole * (_FAR + 3 * deviation):
            metric = run.target.metric
            outside.suspect.append(
                f"it reports {metric} {told:.3g}, and its predictions have {found:.3g} on held-out data"
            )

    @contextmanager
    def opened(self, plan: Plan[Arm, Record], watcher: Watcher[Record]) -> Iterator[Make[Record]]:
        """Set up once."""
        self._preparation.set_up(self._commands, watcher.preparing)
        first = []
        for at, arm in enumerate(plan.arms):
            why_not = partial(self.why_not, wanted=arm, environment=plan.environment)
            self._earlier.add_spans(self._spans_ns(arm))
            first.append(uncounted_first(self._store, arm.specification, plan.replaced(at), why_not))
        asked = {FIRST_SEED: min(plan.seeds)}

        def make(turn: Turn, begin: Callable[[], None]) -> tuple[Record | None, LevelbenchError | None]:
            command = self._commands[turn.arm]
            self._preparation.prepare(command)
            begin()
            record, error = self._run(
                turn,
                plan.arms[turn.arm],
                command,
                Outside(self._settings.effect, len(plan.seeds), turn.replaced, first[turn.arm] | asked),
                watcher,
            )
            if error is None:
                self._store.supersede(turn.replaces)
            return record, error

        yield make

    def _spans_ns(self, arm: Arm) -> list[tuple[int, int]]:
        """When earlier runs of this program began and ended, to whatever target."""
        rows = self._store.rows(Selector("", filters=(("recipe", arm.specification.recipe),)))
        began_s = ((instant_s(row.started), row.wall_s) for row in rows)
        return [(int(began * 1e9), int((began + wall_s) * 1e9)) for began, wall_s in began_s if began is not None]

    def _run(
        self, turn: Turn, arm: Arm, command: Command, outside: Outside, watcher: Watcher[Record]
    ) -> tuple[Record, LevelbenchError | None]:
        held_out = self._settings.held_out
        target = arm.specification.target
        printed = Printed(target, self._settings.pattern)
        outside.suspect += self._preparation.changed(command)
        run = TrackedRun(
            arm.specification, arm.key, turn.seed, arm.source, self._store.path, first=True, quiet=True, outside=outside
        )
        # From when an evaluation was dealt with to when the next arrived: below zero where both arrived at once.
        gaps_ns: list[int] = []
        trained_ns, ended_ns, trained, spent_s = 0, 0, Spent(), 0.0
        began_ns = read_ns = HOST.now_ns()

        def end() -> None:
            nonlocal ended_ns, spent_s
            ended_ns, spent_s = time.time_ns(), children_cpu_s()
            if held_out is not None and not held_out.after:
                run.hold()
            run.program_ended()

        def read(line: str, arrived_ns: int) -> bool:
            nonlocal read_ns, trained_ns, trained
            if held_out is not None and held_out.after and TRAINED in line and not inputs.exists():
                trained_ns, trained = HOST.now_ns(), Spent(children_cpu_s(), time.time())
                run.hold()
                withheld.look()
                _save(inputs, held_out)
            found = printed.read(line)
            if found is not None and not run.over and not run.held:
                gaps_ns.append(arrived_ns - read_ns)
                watcher.progress(turn, "other", (HOST.now_ns() - began_ns) * 1e-9, [run.evaluate_at(*found)])
                read_ns = HOST.now_ns()
            return run.over

        with (
            LeftFiles(command.folder, command.text.split(), [self._store.path], self._earlier) as left,
            _Withheld(held_out) as withheld,
            TemporaryDirectory(prefix="levelbench-") as folder,
            self._written(command, turn) as written,
            run,
        ):
            inputs, predictions, page = (Path(folder) / each for each in ("inputs.npy", "predictions", "phases"))
            environment = {"LEVELBENCH_SEED": str(turn.seed), "PYTHONUNBUFFERED": "1"} | run.listen(page)
            if held_out is not None:
                environment |= {"LEVELBENCH_INPUTS": str(inputs), "LEVELBENCH_PREDICTIONS": str(predictions)}
                if not held_out.after:
                    _save(inputs, held_out)
            began_ns = read_ns = HOST.now_ns()
            # What it is doing is known only if it says so; else all of it is one phase, which counts under every clock.
            with ToldChannel(channel_of(page), run.program_ended) as told, run.phase("train"):
                ended = carry_out_command(
                    command.with_seed(turn.seed),
                    arm.specification.budget_s,
                    show=self._settings.show,
                    environment=environment,
                    read=read,
                    written=None if written is None else written.lines,
                    on_end=end,
                    told=told,
                )
            if trained_ns:
                after = Spent(spent_s, _predicted_s(_saved(predictions), ended_ns)) - trained
                outside.suspect += after_training((trained_ns - began_ns) * 1e-9, after)
            if ended.timed_out and held_out is not None:
                outside.failed = f"it had not predicted after {arm.specification.budget_s:g} s"
            _note_end(outside, ended, run.program_ended())
            if held_out is not None and not outside.failed:
                self._score(run, held_out, _saved(predictions), outside, ended_ns)
            elif not gaps_ns and not outside.failed:
                outside.failed = self._none_read(printed, target.metric, target.threshold)
            if ended.timed_out:
                run.spend()
            outside.measured["peak_memory"] = peak_memory(ended.peak_memory_b)
            outside.suspect += [*withheld.doubts(), *_kept_back(gaps_ns), *printed.doubts(), *doubts_of(command, ended)]
            outside.suspect += [*self._read_elsewhere(printed), *left.doubts(torn=ended.writing)]
            outside.read, outside.data, outside.prepared = left.texts(), left.data(), self._preparation.prepared(left)
            outside.suspect += self._preparation.made(run.id, outside.read or {}, command)
            self._say_of_files(left, outside, command, watcher)
        record = read_record(run.path)
        refuse_contradictory(record)
        return record, self._failure(turn, arm, outside.failed, command, ended) if outside.failed else None

    def _failure(self, turn: Turn, arm: Arm, failed: str, command: Command, ended: EndedCommand) -> CheckFailedError:
        """Why a program made no run, with what it printed last."""
        errors = ended.errors
        found = f"{failed}{'; its last line is: ' + errors.splitlines()[-1] if errors else ''}"
        do = "see --show-output"
        if self._settings.held_out is not None:
            do += f"; {_PREDICT}"
        elif not ended.exit_code or ended.timed_out:
            do += "; --progress says how the quality is printed, --progress-file where"
        do += which_python(command, errors)
        return CheckFailedError(f"seed {turn.seed} of {arm.reference!r}", found, do)

    def _say_of_files(self, left: LeftFiles, outside: Outside, command: Command, watcher: Watcher[Record]) -> None:
        """That a run failed on a file that an earlier one left incomplete; once, that not all files are watched."""
        if outside.failed and left.torn:
            outside.failed += f"; it read {left.torn[0]}, which an earlier run was ended in the middle of writing"
        if left.incomplete and not self._large:
            self._large = True
            watcher.preparing(f"{command.folder} has many files: not all are watched for checkpoints")

    def _none_read(self, printed: Printed, metric: str, threshold: float) -> str:
        """Why a run has failed of whose qualities none was read."""
        place = self._settings.progress_file
        found = f"it {'printed' if place is None else f'wrote to {place}'} no {metric}"
        if not printed.missed:
            return found
        named = printed.missed_name not in ("", metric)
        name = f": --target {printed.missed_name}={threshold:g} reads it" if named else ""
        return f"{found} under that name and not of training, and {printed.missed!r} was not read{name}"

    def _read_elsewhere(self, printed: Printed) -> list[str]:
        """A doubt where of runs that are made together some say of no quality that it is of held-out data."""
        if self._settings.held_out is not None or not printed.forms:
            return []
        own = printed.held_out or next(iter(printed.forms.values()))
        self._read.setdefault(printed.held_out is not None, own)
        other = self._read.get(printed.held_out is None)
        if other is None or self._settings.pattern is not None:
            return []
        return [
            f"its quality was read in lines such as {own[:80]!r}, and that of other runs in such as {other[:80]!r}: one"
            " may be of training, so say with --progress which is meant"
        ]

    def _written(self, command: Command, turn: Turn) -> ProgressFile | nullcontext[None]:
        name = self._settings.progress_file
        return nullcontext() if name is None else ProgressFile(command.folder / name.replace("{seed}", str(turn.seed)))


@final
class _Withheld:
    """Whether files are opened while a program runs that have what it is not given: the labels, or inputs too early.

    A context manager; it sees the files by any name (on Linux), and no copies of them.
    """

    def __init__(self, held_out: HeldOut | None) -> None:
        self._events, self._early = FileEvents(0), set[Path]()
        self._inputs, self._labels = (*(held_out.files if held_out is not None else ()), None, None)[:2]
        self._after = held_out is not None and held_out.after

    def __enter__(self) -> _Withheld:
        for each in (self._labels, self._inputs if self._after else None):
            if each is not None:
                # One that is mapped into memory is opened, and never read.
                self._events.watch_first(IN_ACCESS | IN_OPEN, each)
        return self

    def __exit__(self, *_: object) -> None:
        self._events.__exit__()

    def look(self) -> None:
        """Take in what was opened before the inputs are given."""
        self._early |= {path for path, _ in self._events.take()}

    def doubts(self) -> list[str]:
        """Of a program that has ended."""
        opened = self._early | {path for path, _ in self._events.take()}
        found = []
        if self._labels in opened:
            text = "whose labels score it, was opened while it ran (by it, or by another program)"
            found.append(f"{self._labels}, {text}: it may have used them")
        if self._inputs in self._early:
            text = "was opened before it had trained (by it, or by another program)"
            found.append(f"{self._inputs} {text}: these inputs may have shaped its training")
        return [redact(f"{each}; keep that file where the program does not look") for each in found]


def _save(path: Path, held_out: HeldOut) -> None:
    """Whole, or not there: a program may wait for it."""
    with path.with_suffix(".new").open("wb") as file:
        np.save(file, held_out.inputs)
    path.with_suffix(".new").rename(path)


def _saved(predictions: Path) -> Path:
    """Where the predictions are: ``np.save`` adds ``.npy`` to a name."""
    named = predictions.with_name(f"{predictions.name}.npy")
    return named if named.is_file() and not predictions.exists() else predictions


def _predicted_s(predictions: Path, ended_ns: int) -> float:
    """When the predictions were there: what a process does then, such as ending, changes nothing any more."""
    ended_s = ended_ns * 1e-9
    return min(predictions.stat().st_ctime, ended_s) if predictions.is_file() else ended_s


def _note_end(outside: Outside, ended: EndedCommand, inside: str) -> None:
    """How a program ended, if by itself, ``inside`` a phase that it reported and had not left."""
    if ended.stopped or ended.timed_out:
        return
    failed = failure_of(ended, None)
    outside.failed = f"{failed} in its phase {inside!r}" if failed and inside else failed
    if inside and not failed:
        outside.suspect.append(
            f"the process that reports its phases ended inside {inside!r}, as after os._exit or a signal: that phase "
            "is counted to the end of that process"
        )


def _kept_back(gaps_ns: Sequence[int]) -> list[str]:
    together = sum(1 for gap_ns in gaps_ns[1:] if gap_ns < _TOGETHER_NS)
    if not together:
        return []
    return [
        f"{together} of {len(gaps_ns)} evaluations arrived together with the one before: the program keeps back "
        "what it prints, or this machine was too busy to read it, so that their times are too late: let it flush"
    ]
