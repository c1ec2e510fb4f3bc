"""Training programs that are not ours, run from outside: what they print of their quality makes the record of a run.

The clock is levelbench's: it starts with the process, and an evaluation is when its line arrives. The quality is what
the program says, and the record says so.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, cast, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import CheckFailedError, LevelbenchError, MissingError, UsageError
from levelbench.experiments.commands import (
    Command,
    Preparation,
    carry_out_command,
    doubts_of,
    failure_of,
    files_named,
    peak_memory,
)
from levelbench.experiments.kernel import Kind, Make, Plan, Turn, Watcher, disagreement
from levelbench.experiments.request import Arm
from levelbench.experiments.track import Outside, TrackedRun, target_of
from levelbench.importing.runs import scalars
from levelbench.measure.clocks import HOST
from levelbench.records import Record, Specification, read_record
from levelbench.records.schema import Source, Target, is_share, redact, source_of_text
from levelbench.records.selection import Selector
from levelbench.records.store import Store
from levelbench.records.writer import path_part

__all__ = [
    "HeldOut",
    "Printed",
    "ProgramRuns",
    "ProgressFile",
    "make_arm",
    "program_name",
    "read_held_out",
    "read_target",
]

Rule = Literal["confirmed", "final", "first", "sustained"]
_NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf"
_BAR = re.compile(r"\d%\|")
"""In the lines of tqdm's progress bars."""
_RANK = re.compile(r"(?:(?<![a-z])rank[\s:=#_]*|^\[default|^\[\d+,)(\d+)", re.I)
"""As programs say it, and before lines torchrun (``[default0]:``) and mpirun (``[1,0]<stdout>:``)."""
_OTHER = re.compile(
    r"(?<![a-z])(?:train(?:ing)?|best|target|goal|baseline|threshold|required|desired|expected|max(?:imum)?|min(?:imum)?|(?:mini)?batch|running|moving|stop(?:ping|ped)?|top[\s_-]?(?:[2-9]|k|\d\d))(?![a-z])"
    # A pair such as train_loss=0.3 is of itself, and the learning rate of training no quality.
    rf"(?![_/-]\w+[\"']?\s*[:=]\s*(?:{_NUMBER}))",
    re.IGNORECASE,
)
"""What before a metric's name says that the number after it is another quality: one of training, or the best so far."""
_HELD_OUT_WORDS = r"(?<![a-z])(?:val(?:id(?:ation)?)?|test(?:ing)?|eval(?:uation)?|dev|held[\s_-]?out)"
_HELD_OUT = re.compile(rf"{_HELD_OUT_WORDS}(?![a-z])", re.I)
"""What says that it is the one that is meant."""
_OF_TRAINING = re.compile(rf"(?<![a-z])train(?:ing)?(?![a-z])(?![\s_/-]*\w+[\"']?[\s:=]+(?:{_NUMBER}))", re.IGNORECASE)
"""What says so behind it, as in ``accuracy: 0.98 (train)``."""
_HEADING_BYTES = 120
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_OF_WHAT = (
    r"(?:\s*\([^()\d:=]*\)|\s+(?:on|of|for|over|in|after|at)\s[^:=|,;()]{0,80}?(?:set|data(?:set)?|images?|examples?|samples?"
    r"|split|network|model|epochs?(?:\s*\d+)?|steps?(?:\s*\d+)?|test|val(?:id(?:ation)?)?|train(?:ing)?))"
)
"""What may stand between a metric's name and the mark after it: ``(val)``, ``of the network on the test images``."""
_AFTER_NAME = rf"[\"']?(?:{_OF_WHAT}?\s*(?:[:=]|[-=]>|→)\s*|(?P<bare>\s+)(?:(?:is|of)\s+)?)[\"']?"
_WRAPPED = r"(?:(?:\w+\.)*(?:tensor|array|float\d+)\()?"
"""As arrays and their numbers print themselves: ``tensor(0.85)``, ``np.float64(0.85)``."""
_VALUE_ALONE = re.compile(rf"{_HELD_OUT_WORDS}\s*[:=]?\s*(?:\d*\.\d+)(?![\w.])", re.I)
"""The quality on held-out data without its name, as in ``accuracy=0.99 val=0.85``."""
_HEADING = re.compile(
    r"\W*(?:epoch\W*\d+(?:\s*/\s*\d+)?\W*)?(?:(?P<training>train(?:ing)?)|val(?:id(?:ation)?)?|test(?:ing)?|eval(?:uation)?)"
    r"(?:\s+(?:set|data|phase|split|results?|metrics?))?(?!\s*(?:\.\.|…))\W*",
    re.IGNORECASE,
)
"""A line that says of those below it what they are of. One that ends in dots tells what begins."""
_MLLOG = ":::MLL"
_TOGETHER_NS = 100_000
_TEXT_BYTES = 1 << 20


def _is_another(line: str, found: re.Match[str]) -> bool:
    """Whether the number is another quality than that on held-out data, as far as the words around it tell."""
    # A name such as val_accuracy says it itself.
    before = line[: found.start("quality")]
    other, own = ([each.end() for each in words.finditer(before)] for words in (_OTHER, _HELD_OUT))
    if other or own:
        return max(other, default=-1) > max(own, default=-1)
    after = line[found.end() :]
    told = _OF_TRAINING.search(after)
    return told is not None and not _HELD_OUT.search(after[: told.start()])


class Printed:
    """Finds the quality in what a program prints.

    Without a ``pattern`` it is the number after the metric's name, in whatever case: ``val_loss:4.37``,
    ``Accuracy = 93.8 %``, ``{"accuracy": 0.938}``, or the value of that key in a line of MLPerf's log. Raises
    ``UsageError`` for a line of which nobody could say which number is meant. A ``pattern`` is a regular expression
    whose group ``quality``, or first group, is the number; groups ``epoch`` and ``step`` are read, too.
    """

    def __init__(self, target: Target, pattern: str | None = None) -> None:
        self._target = target
        name = r"[\s_-]".join(map(re.escape, re.split(r"[\s_-]", target.metric)))
        self._name = re.compile(name, re.IGNORECASE)
        start = rf"(?<![\w.-]){name}{_AFTER_NAME}"
        default = rf"{start}{_WRAPPED}(?P<quality>{_NUMBER})(?![\w.]|[,/]\d)(?P<percent>\s*%)?"
        default += rf"(?P<another>\s+(?:{_NUMBER})(?!\w))?"
        # As PyTorch's examples print it: 9825/10000 (98%).
        self._fraction = re.compile(rf"{start}(?P<quality>\d+)\s*/\s*(\d+)\s*\((\d+(?:\.\d+)?)\s*%\)", re.I)
        self._beside = re.compile(rf"({_HELD_OUT_WORDS}[_./-]{name})[\"']?\s*[:=]?\s*{_WRAPPED}(?:{_NUMBER})", re.I)
        self._alike = re.compile(re.escape(re.split(r"[\s_-]", target.metric)[-1][:3]), re.I)
        try:
            self._quality = re.compile(pattern) if pattern is not None else re.compile(default, re.IGNORECASE)
        except re.error as error:
            raise UsageError(
                f"--progress {pattern!r}", f"it is no regular expression: {error}", "correct it"
            ) from error
        if pattern is not None and not self._quality.groups:
            raise UsageError(
                f"--progress {pattern!r}", "it has no group", "put the number in one, as in 'acc=([0-9.]+)'"
            )
        self._marks = [
            # The last of an epoch's steps, 20/20, is the last of the next one, too.
            re.compile(rf"(?<![\w.-]){word}s?[\"']?[\s:=#]*(\d+(?:\.\d+)?)(?!\d|\.\d){but}", re.I)
            for word, but in (("epoch", ""), ("step", r"(?!\s*/\s*\1\b)"))
        ]
        self._before: tuple[float, float | None, float | None] | None = None
        self._guessed = pattern is None
        self._ranks: dict[str, None] = {}
        self._stood = self._below_training = False
        self.missed = ""
        """The first line that may have told a quality and was not read."""
        self.held_out: str | None = None
        """A line that was read and says that it is of held-out data."""
        self.forms: dict[str, str] = {}
        """A line of each form that told a quality, by the words before it."""

    def read(self, line: str) -> tuple[float, float | None] | None:
        """The quality in a line, and its epoch where that is told; ``None`` without one, or for the same once more.

        A value that is printed again with the same epoch and step is no second evaluation, nor is one in a line of a
        progress bar, which shows the last one all the time. Without them each line is one: qualities stay where they
        are for a while. Of several ranks the first that tells one is read.
        """
        found = self._of_mllog(line) if _MLLOG in line else self._of_text(line)
        if found is None or self._is_of_another_rank(line):
            return None
        if before := self._before:
            if line.endswith("\r") or _BAR.search(line):
                again = found[0] == before[0]
                self._stood = self._stood or (again and (found[1] or 0.0) > (before[1] or 0.0) + 1.0)
            else:
                again = found == before and found[1:] != (None, None)
            if again:
                return None
        self._before = found
        return found[0], found[1]

    def _is_of_another_rank(self, line: str) -> bool:
        told = _RANK.search(line)
        if told is None:
            return False
        self._ranks.setdefault(told[1])
        return told[1] != next(iter(self._ranks))

    def doubts(self) -> list[str]:
        """Where what was read may not be what was meant: lines of several forms, ranks, a bar that stood still."""
        found = []
        if len(self.forms) > 1:
            shown = " and ".join(repr(each[:80]) for each in list(self.forms.values())[:2])
            found.append(
                f"lines of {len(self.forms)} forms tell its quality, such as {shown}: "
                "say with --progress which is meant"
            )
        if len(self._ranks) > 1:
            found.append(
                f"{len(self._ranks)} ranks tell their quality: that of rank {next(iter(self._ranks))} was read"
            )
        if self._stood:
            found.append(
                "its progress bar showed one quality for several epochs, which counts once, since nobody knows whether "
                "it was measured again: print each evaluation on a line of its own"
            )
        return found

    def _of_text(self, line: str) -> tuple[float, float | None, float | None] | None:
        if self._guessed and len(line) < _HEADING_BYTES and (heading := _HEADING.fullmatch(line.strip())):
            self._below_training = heading["training"] is not None
        if self._guessed and self._name.search(line) is None:
            self._note_missed(line)
            return None
        line = _COLOURS.sub("", line)
        found = list(self._quality.finditer(line))
        if self._guessed:
            if not found and (fraction := self._fraction.search(line)) and not self._is_passed_over(line, fraction):
                return self._of_fraction(line, fraction)
            found = [] if "Namespace(" in line else [each for each in found if not self._is_passed_over(line, each)]
            # One that is written as it was asked for is meant rather than one in another case.
            found = [each for each in found if each[0].startswith(self._target.metric)] or found
        if not found:
            self._note_missed(line)
            return None
        if self._guessed:
            self._need_clear(line, found)
        match = found[-1]
        self._remember(line, match)
        groups = match.groupdict()
        try:
            value = float((groups["quality"] if "quality" in groups else match[1]).replace(",", ""))
        except (AttributeError, ValueError):
            return None
        if groups.get("percent") and self._target.high == 1:
            value /= 100
        return value, *self._marks_of(line, groups)

    def _of_fraction(self, line: str, found: re.Match[str]) -> tuple[float, float | None, float | None] | None:
        part, whole, share = float(found["quality"]), float(found[found.re.groups - 1]), float(found[found.re.groups])
        # The same number twice is a share of examples; anything else might be a count.
        if not whole or abs(100 * part / whole - share) > 1 or self._target.high not in (1, 100):
            return None
        self._remember(line, found)
        return part / whole * self._target.high, *self._marks_of(line, {})

    def _is_passed_over(self, line: str, found: re.Match[str]) -> bool:
        if _is_another(line, found):
            return True
        return self._below_training and not _HELD_OUT.search(line[: found.start("quality")])

    def _need_clear(self, line: str, found: Sequence[re.Match[str]]) -> None:
        """``UsageError`` for a line of which nobody could say which number is meant."""
        texts = sorted({each["quality"] for each in found})
        asked, do = (
            f"the {self._target.metric} that a program prints",
            "say which: --progress 'val accuracy: ([0-9.]+)'",
        )
        if len(texts) > 1:
            raise UsageError(asked, f"a line has several: {', '.join(texts)}", do)
        first = found[0]
        if first["bare"] and first["another"] and first["quality"].isdigit():
            raise UsageError(asked, f"two numbers follow its name: {first[0].strip()!r}", do)
        if _HELD_OUT.search(line[: first.start("quality")]):
            return
        if beside := self._beside.search(line):
            name = beside[1]
            do = f"that of held-out data is another: --target {name}={self._target.threshold:g}; else {do}"
            raise UsageError(asked, f"a line has {name} beside it, so that it may be of training", do)
        if alone := _VALUE_ALONE.search(line[first.end("quality") :]):
            raise UsageError(asked, f"a line has {alone[0]!r} beside {first['quality']}", do)

    def _note_missed(self, line: str) -> None:
        if not self.missed and not self.forms and self._guessed and self._alike.search(line) and re.search(r"\d", line):
            self.missed = _COLOURS.sub("", line).strip()[:80]

    def _remember(self, line: str, match: re.Match[str]) -> None:
        before = line[: match.start()]
        self.forms.setdefault(" ".join(re.findall(r"[^\W\d]+", before)), line.strip())
        if self._guessed and self.held_out is None and _HELD_OUT.search(line):
            self.held_out = line.strip()

    def _marks_of(self, line: str, groups: Mapping[str, str | None]) -> tuple[float | None, float | None]:
        marks = []
        for name, pattern in zip(("epoch", "step"), self._marks, strict=True):
            text = groups.get(name)
            if text is None and (told := pattern.search(line)) is not None:
                text = told[1]
            marks.append(None if text is None else float(text))
        return marks[0], marks[1]

    def _of_mllog(self, line: str) -> tuple[float, float | None, float | None] | None:
        try:
            told = json.loads(line[line.index("{") :])
            if told["key"] != self._target.metric:
                return None
            epoch = (told.get("metadata") or {}).get("epoch_num")
            return float(told["value"]), None if epoch is None else float(epoch), None
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


@final
class ProgressFile:
    """What a program writes to a file, or logs for TensorBoard into a folder, from now on, as lines.

    Rows of a ``.csv`` file are told with the names of its first row. A file may be written anew each time: lines that
    were there before are told once. Raises ``UsageError`` for a file that is there already: nobody could tell whose
    lines those are; ``MissingError`` for a folder of TensorBoard's files without its library.
    """

    def __init__(self, place: Path) -> None:
        self._asked = f"--progress-file {place}"
        if place.is_file():
            do = "remove it before each run, as by --prepare 'rm -f FILE', or name one for each seed: log-{seed}.jsonl"
            raise UsageError(self._asked, "it is there before the program has begun", do)
        self._place, self._rest = place, b""
        self._pipe: int | None = None
        self._seen: tuple[int, ...] = ()
        self._head, self._read_bytes, self._anew = b"", 0, False
        self._names: list[str] = []
        self._told: list[str] = []
        self._again = 0
        self._old = set(self._events())
        self._loaders: dict[Path, Any] = {}

    def __enter__(self) -> ProgressFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pipe is not None:
            os.close(self._pipe)

    def lines(self, ended: bool = False) -> list[str]:
        """Those that are new; once the program has ``ended``, also a last one without an end."""
        if self._place.is_dir():
            return self._logged()
        try:
            found, still = self._found()
        except OSError:
            found, still = b"", False
        *whole, self._rest = (self._rest + found).split(b"\n")
        # A line without an end may go on. In a file that is written anew it is the last as soon as nothing is added.
        if self._rest and (ended or (self._anew and still) or _is_object(self._rest)):
            whole, self._rest = [*whole, self._rest], b""
        return [line for each in whole if (line := self._new(each.decode("utf-8", "replace"))) is not None]

    def _found(self) -> tuple[bytes, bool]:
        """What was added to the file, and whether nothing has changed since the look before."""
        if self._pipe is None and self._place.is_fifo():
            # One that nobody writes to yet is no reason to wait.
            self._pipe = os.open(self._place, os.O_RDONLY | os.O_NONBLOCK)
        if self._pipe is not None:
            read = b""
            with suppress(BlockingIOError):
                while part := os.read(self._pipe, 1 << 16):
                    read += part
            return read, False
        with self._place.open("rb") as file:
            state = os.fstat(file.fileno())
            seen = (state.st_ino, state.st_size, state.st_mtime_ns)
            if seen == self._seen:
                return b"", True
            self._seen = seen
            head = file.read(_HEAD_BYTES)
            # While it is written anew a part of it is there.
            if self._head.startswith(head) and len(head) < len(self._head):
                return b"", False
            if not head.startswith(self._head):
                self._anew, self._read_bytes, self._again, self._names = True, 0, 0, []
                # What stood there without an end was all.
                self._rest += b"\n" if self._rest else b""
            self._head = head
            file.seek(self._read_bytes)
            found = file.read()
            self._read_bytes += len(found)
            return found, False

    def _new(self, line: str) -> str | None:
        """``line`` as it is told, or ``None`` where that was done before the file was written anew."""
        if self._place.suffix == ".csv":
            cells = next(csv.reader([line]), [])
            if not self._names:
                self._names = cells
                return None
            line = ", ".join(f"{name}: {cell}" for name, cell in zip(self._names, cells, strict=False) if cell)
        again = self._again < len(self._told) and self._told[self._again] == line
        if again:
            self._again += 1
            return None
        if len(self._told) < _TOLD:
            self._told[self._again :] = [line]
            self._again += 1
        return line

    def _events(self) -> Iterator[Path]:
        return (each for each in self._place.rglob("*.tfevents.*") if each.is_file())

    def _logged(self) -> list[str]:
        for path in self._events():
            if path not in self._old and path not in self._loaders:
                try:
                    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
                except ImportError as error:
                    do = 'pip install "levelbench[tensorboard]"'
                    raise MissingError(self._asked, "to read these files takes tensorboard", do) from error
                self._loaders[path] = EventFileLoader(str(path))
        return [
            f"{tag}: {value!r} step {event.step}"
            for loader in self._loaders.values()
            for event in loader.Load()
            for tag, value in scalars(event)
        ]


def _is_object(text: bytes) -> bool:
    try:
        return text.rstrip().endswith(b"}") and isinstance(json.loads(text), dict)
    except ValueError:
        return False


_HEAD_BYTES = 1 << 16
"""So much of a file is compared with what it held before: a log is added to."""
_TOLD = 10_000
_TRAINED = "levelbench: trained"
_MOST_BYTES = 1 << 30
_FAR = 0.05
_PREDICTING_S, _PREDICTING_SHARE = 0.1, 0.2
"""Predictions may take so many seconds, or this share of the training, before they are a doubt."""


@dataclass(frozen=True)
class HeldOut:
    """Inputs whose labels a program is not given: it writes its predictions for them, and levelbench scores these.

    ``inputs`` (n, ...) and ``labels`` (n,). With ``after`` it gets the inputs once it has printed a line with
    ``levelbench: trained``, where its clock stops. ``public`` says that the labels lie on this machine anyway.
    """

    inputs: NDArray[Any]
    labels: NDArray[Any]
    after: bool = False
    public: bool = False

    @property
    def words(self) -> str:
        """What a record says of them."""
        digest = hashlib.sha256(self.inputs.tobytes() + self.labels.tobytes()).hexdigest()[:12]
        when = "after training" if self.after else "before training"
        return f"{len(self.labels)} inputs ({digest}), given {when}, {'public' if self.public else 'private'} labels"

    def score(self, path: Path, target: Target) -> float:
        """The accuracy of the predictions in ``path``, or the error rate for a target that is one.

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
                found = np.loadtxt(path, delimiter="," if "," in path.read_text()[:4096] else None, ndmin=1)
        except OSError as error:
            raise UsageError(asked, f"they cannot be read: {error.strerror}", _PREDICT) from error
        except (ValueError, MemoryError) as error:
            raise UsageError(asked, f"they are no numbers: {error or 'too many'}", _PREDICT) from error
        if found.ndim not in (1, 2) or len(found) != len(self.labels) or not np.issubdtype(found.dtype, np.number):
            shown = f"they are {found.dtype} of shape {found.shape}, for {len(self.labels)} inputs"
            raise UsageError(asked, shown, _PREDICT)
        classes = found.argmax(axis=1) if found.ndim == 2 and found.shape[1] > 1 else found.reshape(len(found))
        right = float(np.mean(classes == self.labels))
        return right if target.direction == "higher" else 1.0 - right


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
    return HeldOut(arrays[0], arrays[1], after)


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
                return _source(path.name, content.decode())
        except UnicodeDecodeError:
            pass
        if path == command.folder / words[0]:
            return _source(path.name, f"{command.specification.command}\nsha256 {digest}\n")
    return _source(Path(words[0]).name, command.specification.command)


def _source(name: str, text: str) -> Source:
    return source_of_text(name, text)


def read_target(text: str, direction: Literal["higher", "lower"] | None = None) -> Target:
    """``accuracy=0.94`` as a target; ``UsageError`` where it is not ``METRIC=VALUE``."""
    metric, equals, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        number, equals = 0.0, ""
    if not metric.strip() or not equals:
        raise UsageError(f"--target {text}", "it is not METRIC=VALUE", "write it as in --target accuracy=0.94")
    per_cent = (0.0, 100.0) if is_share(metric) and 1.0 < number <= 100.0 else None
    return target_of(f"--target {text}", {metric.strip(): number}, direction, per_cent)


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

    def check(self, arms: Sequence[Arm]) -> None:
        """``UsageError`` for a pattern that finds nothing."""
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
        return disagreement(record.header.version, record.header.environment, environment, ())

    def is_replaced(self, record: Record, wanted: Arm, environment: Mapping[str, object]) -> bool:
        """It ended, of the same program."""
        return record.status in ("done", "failed") and record.header.source.digest == wanted.source.digest

    def _score(self, run: TrackedRun, held_out: HeldOut, predictions: Path, outside: Outside, ended_ns: int) -> None:
        """The last evaluation is ours; ``ended_ns`` is when the program had ended, since 1970."""
        told = run.quality
        if held_out.after and not run.held:
            outside.failed = f"it did not print {_TRAINED!r}, and so got no inputs"
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
        if told is not None and abs(told - found) > _FAR + 3 * math.sqrt(0.25 / len(held_out.labels)):
            metric = run.target.metric
            outside.suspect.append(
                f"it reports {metric} {told:.3g}, and its predictions have {found:.3g} on held-out data"
            )

    @contextmanager
    def opened(self, plan: Plan[Arm, Record], watcher: Watcher[Record]) -> Iterator[Make[Record]]:
        """Set up once."""
        self._preparation.set_up(self._commands, watcher.preparing)

        def make(turn: Turn, begin: Callable[[], None]) -> tuple[Record | None, LevelbenchError | None]:
            command = self._commands[turn.arm]
            self._preparation.prepare(command)
            begin()
            record, error = self._run(turn, plan.arms[turn.arm], command, len(plan.seeds), watcher)
            if error is None:
                self._store.supersede(turn.replaces)
            return record, error

        yield make

    def _run(
        self, turn: Turn, arm: Arm, command: Command, wanted: int, watcher: Watcher[Record]
    ) -> tuple[Record, LevelbenchError | None]:
        held_out = self._settings.held_out
        printed = Printed(arm.specification.target, self._settings.pattern)
        outside = Outside(self._settings.effect, wanted, turn.replaced)
        run = TrackedRun(
            arm.specification, arm.key, turn.seed, arm.source, self._store.path, first=True, quiet=True, outside=outside
        )
        # How long nobody waited for a line after the one before.
        gaps_ns: list[int] = []
        trained_ns = ended_ns = 0
        began_ns = read_ns = HOST.now_ns()

        def end() -> None:
            nonlocal ended_ns
            ended_ns = time.time_ns()
            if held_out is not None and not held_out.after:
                run.hold()

        def read(line: str) -> bool:
            nonlocal read_ns, trained_ns
            if held_out is not None and held_out.after and _TRAINED in line and not inputs.exists():
                trained_ns = HOST.now_ns()
                run.hold()
                _save(inputs, held_out)
            found = printed.read(line)
            if found is not None and not run.over and not run.held:
                gaps_ns.append(HOST.now_ns() - read_ns)
                watcher.progress(turn, "other", (HOST.now_ns() - began_ns) * 1e-9, [run.evaluate_at(*found)])
                read_ns = HOST.now_ns()
            return run.over

        with TemporaryDirectory(prefix="levelbench-") as folder, self._written(command, turn) as written, run:
            inputs, predictions = Path(folder) / "inputs.npy", Path(folder) / "predictions"
            environment = {"LEVELBENCH_SEED": str(turn.seed), "PYTHONUNBUFFERED": "1"}
            if held_out is not None:
                environment |= {"LEVELBENCH_INPUTS": str(inputs), "LEVELBENCH_PREDICTIONS": str(predictions)}
                if not held_out.after:
                    _save(inputs, held_out)
            began_ns = read_ns = HOST.now_ns()
            # What it is at is not known: all of it is one phase, which counts under every clock.
            with run.phase("train"):
                ended = carry_out_command(
                    command.with_seed(turn.seed),
                    arm.specification.budget_s,
                    show=self._settings.show,
                    environment=environment,
                    read=read,
                    written=None if written is None else written.lines,
                    on_end=end,
                )
            if trained_ns:
                outside.suspect += _after(trained_ns - began_ns, ended.wall_ns)
            if ended.timed_out and held_out is not None:
                outside.failed = f"it had not predicted after {arm.specification.budget_s:g} s"
            if not ended.stopped and not ended.timed_out:
                outside.failed = failure_of(ended, None)
            if held_out is not None and not outside.failed:
                self._score(run, held_out, predictions, outside, ended_ns)
            elif not gaps_ns and not outside.failed:
                where = "printed" if written is None else f"wrote to {self._settings.progress_file}"
                outside.failed = f"it {where} no {arm.specification.target.metric}"
                if printed.missed:
                    outside.failed += f" under that name and not of training, and {printed.missed!r} was not read"
            if ended.timed_out:
                run.spend()
            outside.measured["peak_memory"] = peak_memory(ended.peak_memory_b)
            outside.suspect += [*_kept_back(gaps_ns), *printed.doubts(), *doubts_of(command, ended)]
            outside.suspect += self._read_elsewhere(printed)
        record = read_record(run.path)
        if not outside.failed:
            return record, None
        found = f"{outside.failed}{': ' + ended.errors.splitlines()[-1] if ended.errors else ''}"
        do = "see --show-output; --progress says how the quality is printed, --progress-file where"
        if held_out is not None:
            do = f"see --show-output; {_PREDICT}"
        return record, CheckFailedError(f"seed {turn.seed} of {arm.reference!r}", found, do)

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


def _save(path: Path, held_out: HeldOut) -> None:
    """Whole, or not there: a program may wait for it."""
    with path.with_suffix(".new").open("wb") as file:
        np.save(file, held_out.inputs)
    path.with_suffix(".new").rename(path)


def _after(trained_ns: int, whole_ns: int) -> list[str]:
    """A doubt where a program goes on for long after its clock has stopped."""
    after_s = (whole_ns - trained_ns) * 1e-9
    if after_s <= max(_PREDICTING_S, _PREDICTING_SHARE * trained_ns * 1e-9):
        return []
    return [
        f"it went on for {after_s:.3g} s after it had said that it was trained, which took {trained_ns * 1e-9:.3g} s: "
        "what it did then is on no clock"
    ]


def _kept_back(gaps_ns: Sequence[int]) -> list[str]:
    together = sum(1 for gap_ns in gaps_ns[1:] if gap_ns < _TOGETHER_NS)
    if not together:
        return []
    return [
        f"{together} of {len(gaps_ns)} evaluations arrived together with the one before: the program keeps back "
        "what it prints, or this machine was too busy to read it, so that their times are too late: let it flush"
    ]
