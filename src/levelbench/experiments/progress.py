"""The quality in what a training program prints, or writes to a file or for TensorBoard."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, final

from levelbench.errors import MissingError, UsageError
from levelbench.experiments.told import OWN_LINE, told_quality
from levelbench.importing.runs import scalars
from levelbench.records.schema import Target

__all__ = ["Printed", "ProgressFile"]

_THOUSANDS = r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?"

_NUMBER = rf"[-+]?(?:{_THOUSANDS}|\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|nan|[-+]?inf"

_IN_BLANKS = re.compile(
    r"(?:[ \u00a0\u202f\u2009]\d{3})+(?![\d/:%])(?!\s?(?:%|[A-Za-zµ]+\b(?![\"']?\s*[:=]|\s+[-+.]?\d)))"
    r"|(?:['’]\d{3})+(?!\d)"
)
"""What goes on with an integer of one to three digits: groups of thousands, if no unit follows as in ``3 150 ms``."""

_SEPARATOR = re.compile(r"[\s_/-]")

_BAR = re.compile(r"\d%\|")
"""In the lines of tqdm's progress bars."""

_RANK = re.compile(r"(?:(?<![a-z])rank[\s:=#_]*|^\[default|^\[\d+,)(\d+)", re.I)
"""As programs say it, and before lines torchrun (``[default0]:``) and mpirun (``[1,0]<stdout>:``)."""

_GLUED = re.compile(r"(?<=[\w.%)\]])(?=[\[(<]?rank[\s:=#_]*\d)", re.I)
"""Where the line of another rank begins on that of the first: Python writes the end of an unbuffered line apart."""

_NO_FILE = r"(?![\w/-]*\.(?:py|pyx|ipynb|c|cc|cpp|cu|go|jl|rs|java)\b)"
"""A word that is part of a file's name, as in ``train.py:55``, says nothing of what is measured."""

_LEVEL = "(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL)"

_LOGGER = re.compile(
    rf"{_LEVEL}\]?(?:\s*[:|-]|\s*(?=\[))\s*\[?[\w.]+(?:\s*[]:|]|\s+-\s)"
    rf"|(?<![\w.])[\w.]+\]?(?:\s*[:|]\s*|\s+-\s+|\s*\[){_LEVEL}\b"
)
"""The name of a logger beside the level: ``INFO:train:``, ``train - INFO -``, ``[train][INFO]``."""

_OTHER = re.compile(
    r"(?<![a-z])(?:train(?:ing)?|best|target|goal|baseline|threshold|required|desired|expected|running|moving"
    r"|stop(?:ping|ped)?|top[\s_-]?(?:[2-9]|k|\d\d)"
    # Minutes, the learning rate's maximum and the time or size of a batch are no qualities.
    rf"|(?:max(?:imum)?|(?<!\d)(?<!\d\s)min(?:imum)?(?!\)))(?!\s*[:=]?\s*(?:{_NUMBER}))(?!\s\w+\s*[:=]?\s*(?:{_NUMBER}))"
    rf"|(?:mini)?batch(?!\s(?:time|size)\b))(?![a-z])"
    # A pair such as train_loss=0.3 is of itself, and the learning rate of training no quality.
    rf"(?![_/-]\w+[\"']?(?:\s*[:=]\s*|\s+)(?:{_NUMBER})){_NO_FILE}",
    re.IGNORECASE,
)
"""What before a metric's name says that the number after it is another quality: one of training, or the best so far."""

_HELD_OUT_WORDS = r"(?<![a-z])(?:val(?:id(?:ation)?)?|test(?:ing)?|eval(?:uation)?|dev|held[\s_-]?out)"

_HELD_OUT = re.compile(rf"{_HELD_OUT_WORDS}(?![a-z])", re.I)
"""What says that it is the one that is meant."""

_OF_TRAINING = re.compile(
    rf"(?<![a-z])train(?:ing)?(?![a-z])(?![\s_/-]*\w+[\"']?[\s:=]+(?:{_NUMBER})){_NO_FILE}", re.IGNORECASE
)
"""What says so behind it, as in ``accuracy: 0.98 (train)``."""

_HEADING_BYTES = 120

_MOST_BYTES = 1 << 12
"""Of a longer line the first half of this and the last half is read."""

_UNIT = (
    r"(?:[nuµm]?s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?"
    r"|it|steps?|samples?|tok(?:ens?)?|ex|[kmgt]?i?b|[ap]m)"
)

_NO_FORM = re.compile(
    rf"(?<!\w)(?:(?:\d{{1,4}}{_UNIT}){{2,4}}|[-+]?\.?\d(?:[\d.,:]{{0,30}}\d)?(?:e[-+]?\d+)?[kmb%]?(?:\s?{_UNIT}(?:/{_UNIT})?)?)(?!\w)"
    rf"|\?{_UNIT}/{_UNIT}(?!\w)|(?<!\w)(?:nan|none|[-+]?inf|(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?"
    r"|jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)(?!\w)",
    re.IGNORECASE,
)
"""Numbers with their units, and dates: ``3s``, ``9.3e-05``, ``1.1 GiB``, ``Nov``. They change, the form does not."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

_OF_WHAT = (
    r"(?:\s*\((?:[^()\d:=]*|[\d,. ]+[a-z ]{0,12}(?:images?|examples?|samples?))\)|\s+#?\d+(?=\s*:)"
    r"|\s+(?:on|of|for|over|in|after|at)\s(?:[^:=|,;()]|(?<=\d),(?=\d{3}\b)){0,80}?"
    r"(?:set|data(?:set)?|images?|examples?|samples?"
    r"|split|network|model|epochs?(?:\s*\d+)?|steps?(?:\s*\d+)?|test|val(?:id(?:ation)?)?|train(?:ing)?))"
)
"""Between a metric's name and the mark after it: ``(val)``, ``of the network on the test images``, an index."""

_AFTER_NAME = rf"[\"']?(?:{_OF_WHAT}?\s*(?:[:=]|[-=]>|→)\s*|(?P<bare>\s+)(?:(?:is|of)\s+)?(?!\d+\s*:))[\"']?"

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

_ERROR_RATE = re.compile(r"(?:^|[_/-])(?:err(?:or)?|(?:err(?:or)?|miss)[_-]?rate|[wcp]er)(?:@\d)?$", re.IGNORECASE)
"""Metrics that are often given in per cent."""

_MLLOG = ":::MLL"


def _is_another(line: str, found: re.Match[str]) -> bool:
    """Whether the number is another quality than that on held-out data, as far as the words around it tell."""
    # A name such as val_accuracy says it itself.
    before = line[: found.start("quality")]
    if re.search(_LEVEL, before):
        before = _LOGGER.sub("", before)
    other, own = ([each.end() for each in words.finditer(before)] for words in (_OTHER, _HELD_OUT))
    if other or own:
        return max(other, default=-1) > max(own, default=-1)
    after = line[found.end() :]
    told = _OF_TRAINING.search(after)
    return told is not None and not _HELD_OUT.search(after[: told.start()])


def _name(word: str) -> str:
    """A part of a metric's name, as an expression; programs shorten accuracy."""
    return "acc(?:uracy)?" if word.lower() in ("acc", "accuracy") else re.escape(word)


class Printed:
    """Finds the quality in what a program prints.

    Without a ``pattern`` it is the number after the metric's name, in whatever case: ``val_loss:4.37``,
    ``Accuracy = 93.8 %``, ``test acc: 93.8 %``, ``{"accuracy": 0.938}``, or the value of that key in a line of MLPerf's
    log. Raises ``UsageError`` for an ambiguous line. A ``pattern`` is a regular expression whose group ``quality``, or
    first group, is the number; groups ``epoch`` and ``step`` are read, too.
    """

    def __init__(self, target: Target, pattern: str | None = None) -> None:
        self._target = target
        name = _SEPARATOR.pattern.join(map(_name, _SEPARATOR.split(target.metric)))
        self._name = re.compile(name, re.IGNORECASE)
        start = rf"(?<![\w.-]){name}{_AFTER_NAME}"
        default = rf"{start}{_WRAPPED}(?P<quality>{_NUMBER})(?![\w.]|[,/]\d)(?P<percent>\s*%)?"
        default += rf"(?P<another>\s+(?:{_NUMBER})(?!\w))?"
        # As PyTorch's examples print it: 9825/10000 (98%).
        self._fraction = re.compile(rf"{start}(?P<quality>\d+)\s*/\s*(\d+)\s*\((\d+(?:\.\d+)?)\s*%\)", re.I)
        self._with_comma = re.compile(rf"{start}{_WRAPPED}(?P<quality>[-+]?\d*,\d+(?:[eE][-+]?\d+)?)(?![\w.,])", re.I)
        self._held_out_value = re.compile(
            rf"({_HELD_OUT_WORDS}[_./-]{name})[\"']?\s*[:=]?\s*{_WRAPPED}(?:{_NUMBER})", re.I
        )
        self._alike = re.compile(
            rf"(?<![\w.-])({name}(?:@1)?)[\"']?\s*[:=]?\s*{_WRAPPED}(?:{_NUMBER})(?![\w.]|[,/]\d)", re.I
        )
        """Short for it, as training loops write it, too: ``acc=0.3``, ``Acc@1 30.0``."""
        self._first = _SEPARATOR.split(target.metric)[-1][:3].lower()
        """Also in a name that is only like the metric's."""
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
        self._stood = self._below_training = self._own_lines = self._missed_held_out = False
        self._beside = self._grouped = self._decimal = self._unread = self._in_blanks = ""
        self._commas: Mapping[str, str] = {}
        self._highest, self._in_per_cent = 0.0, False
        self._lines = self._lines_beside = 0
        self.missed = ""
        """The first line that may have held a quality and was not read; one of held-out data, where there is one."""
        self.missed_name = ""
        """What that line calls it, if that is the metric's name with the split before it."""
        self.held_out: str | None = None
        """A line that was read and says that it is of held-out data."""
        self.forms: dict[str, str] = {}
        """A line of each form that held a quality, by the words before it."""

    def read(self, line: str) -> tuple[float, float | None] | None:
        """The quality in a line, and its epoch if it has one; ``None`` without one, or for the same once more.

        A value that is printed again with the same epoch and step is no second evaluation, nor is one in a line of a
        progress bar, which shows the last one all the time. Without them each line is one: qualities stay where they
        are for a while. Of several ranks the first that tells one is read. Where a callback of levelbench prints it,
        its trainer may print the same, and only the callback is read.
        """
        if self._guessed and line.rstrip() == told_quality({"prints": self._target.metric}):
            self._own_lines = True
        if self._own_lines and not line.startswith(OWN_LINE):
            return None
        if "rank" in line.lower() and len(parts := _GLUED.split(line)) > 1 and self._quality.search(parts[0]):
            return next((each for each in [*map(self.read, parts)] if each is not None), None)
        self._commas = line.commas if isinstance(line, _Row) else {}
        if self._guessed and len(line) > _MOST_BYTES and _MLLOG not in line:
            line = f"{line[: _MOST_BYTES // 2]} … {line[-_MOST_BYTES // 2 :]}"
        # Most lines are none, and to find that out takes a tenth of what an expression would.
        if self._guessed and self._first not in line.lower() and len(line) >= _HEADING_BYTES:
            return None
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
        self._lines += 1
        self._highest = max(self._highest, found[0])
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
        asked = f"--target {self._beside}={self._target.threshold:g}"
        if self._beside and self.forms and self.held_out is None:
            found.append(f"other lines tell {self._beside}, so that it may be of training: {asked} reads that")
        elif self._beside and self.forms and self._lines_beside > self._lines:
            found.append(
                f"{self._lines_beside} other lines tell {self._beside}, which were not read, and {self._lines} "
                f"{'were' if self._lines > 1 else 'was'}: {asked} reads those"
            )
        if self._grouped:
            found.append(
                f"a comma in {self._grouped!r} was read as one of thousands: print a decimal point, or no comma"
            )
        elif self._unread and self.forms:
            found.append(f"a line with {self._unread!r} was not read, and others were: print a decimal point")
        if self._in_blanks:
            mark = "apostrophes" if re.search("['’]", self._in_blanks) else "blanks"
            found.append(f"a line with {self._in_blanks!r} was not read: print the number without {mark}")
        found += self._doubt_of_shares(self._target)
        if self._stood:
            found.append(
                "its progress bar showed one quality for several epochs, which counts once, as it may not have been "
                "measured again: print each evaluation on a line of its own"
            )
        return found

    def _doubt_of_shares(self, target: Target) -> list[str]:
        in_per_cent = target.high == 100 and target.direction == "higher"
        may_be = target.direction == "lower" and target.threshold <= 100 and _ERROR_RATE.search(target.metric)
        shares = target.threshold > 1 and 0 < self._highest <= 1 and not self._in_per_cent
        if not shares or not (in_per_cent or may_be):
            return []
        return [
            f"its {target.metric} is at most {self._highest:g} and the target {target.threshold:g} "
            f"{'is' if in_per_cent else 'may be'} in per cent: does it print shares? give the target as "
            f"{target.threshold / 100:g}"
        ]

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
            found = [each for each in found if not self._goes_on_in_blanks(line, each)]
        if not found:
            self._note_missed(line)
            if self._guessed and (match := self._with_comma.search(line)) and not self._is_passed_over(line, match):
                self._note_comma(match["quality"])
                self._unread = self._unread or match["quality"]
            if self._guessed and (named := self._held_out_value.search(line)):
                self._beside = self._beside or named[1]
                # A bar shows the last one all the time, and the best so far is none of its own.
                shown = line.endswith("\r") or _BAR.search(line) or _OTHER.search(line[: named.start()])
                self._lines_beside += not shown
            return None
        if self._guessed:
            self._need_clear(line, found)
        match = found[-1]
        self._remember(line, match)
        groups = match.groupdict()
        try:
            text = groups["quality"] if "quality" in groups else match[1]
            value = self._number(text)
            self._note_comma(self._commas.get(text.strip().rstrip(","), text))
        except (AttributeError, ValueError):
            return None
        self._in_per_cent = self._in_per_cent or bool(groups.get("percent"))
        if groups.get("percent") and self._target.high in (None, 1) and self._target.threshold <= 1:
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
        # Short names are what training loops print, too.
        exact = _SEPARATOR.sub(" ", found[0].lower()).startswith(_SEPARATOR.sub(" ", self._target.metric.lower()))
        return (self._below_training or not exact) and not _HELD_OUT.search(line[: found.start("quality")])

    def _goes_on_in_blanks(self, line: str, found: re.Match[str]) -> bool:
        """Whether the number is the first group of one such as ``98 765`` or ``1'404``, which is not read."""
        text = found["quality"]
        # Two numbers after a name without a mark are refused.
        if not re.fullmatch(r"[-+]?[1-9]\d{0,2}", text) or (found["bare"] and found["another"]):
            return False
        rest = _IN_BLANKS.match(line, found.end("quality"))
        if rest is not None:
            self._in_blanks = self._in_blanks or text + re.sub(r"\s", " ", rest[0])
        return rest is not None

    def _need_clear(self, line: str, found: Sequence[re.Match[str]]) -> None:
        """``UsageError`` for an ambiguous line."""
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
        if held_out := self._held_out_value.search(line):
            name = held_out[1]
            do = f"that of held-out data is another: --target {name}={self._target.threshold:g}; else {do}"
            raise UsageError(asked, f"a line has {name} beside it, so that it may be of training", do)
        if alone := _VALUE_ALONE.search(line[first.end("quality") :]):
            raise UsageError(asked, f"a line has {alone[0]!r} beside {first['quality']}", do)

    def _note_missed(self, line: str) -> None:
        alike = self._guessed and self._first in line.lower() and re.search(r"\d", line) is not None
        if not alike or self.forms or self._missed_held_out:
            return
        named = self._held_out_value.search(line)
        self._missed_held_out = named is not None
        if self._missed_held_out or not self.missed:
            self.missed = _COLOURS.sub("", line).strip()[:80]
            named = named or self._alike.search(line)
            self.missed_name = named[1] if named is not None else ""

    def _remember(self, line: str, match: re.Match[str]) -> None:
        form = " ".join(re.findall(r"[^\W\d]+", _NO_FORM.sub(" ", line[: match.start()])))
        # Two ranks may have written the same on one line.
        if not any(known and form.startswith(f"{known} ") and form.endswith(f" {known}") for known in self.forms):
            self.forms.setdefault(form, line.strip())
        if self._guessed and self.held_out is None and _HELD_OUT.search(line):
            self.held_out = line.strip()

    def _marks_of(self, line: str, groups: Mapping[str, str | None]) -> tuple[float | None, float | None]:
        marks = []
        for name, pattern in zip(("epoch", "step"), self._marks, strict=True):
            text = groups.get(name)
            if text is None and (told := pattern.search(line)) is not None:
                text = told[1]
            marks.append(None if text is None else self._number(text))
        return marks[0], marks[1]

    def _number(self, text: str) -> float:
        """The number; ``UsageError`` for one with commas of which nobody can tell what they separate."""
        # That of the sentence, which an expression such as [0-9.,]+ takes along.
        plain = _without_commas(text.strip().rstrip(","))
        if "," in plain:
            do = "write it without commas, or let the expression find a number"
            raise UsageError(f"the {self._target.metric} that a program prints", f"{text!r} is no number", do)
        return float(plain)

    def _note_comma(self, text: str) -> None:
        """``UsageError`` once a run has both a comma that was read as one of thousands and a decimal one.

        Alone, ``1,404`` may be either.
        """
        plain = text.strip().rstrip(",")
        if re.fullmatch(rf"[-+]?{_THOUSANDS}(?:[eE][-+]?\d+)?", plain):
            if plain.count(",") == 1 and "." not in plain:
                self._grouped = self._grouped or plain
        elif _DECIMAL_COMMA.match(plain):
            self._decimal = self._decimal or plain
        if self._grouped and self._decimal:
            raise UsageError(
                f"the {self._target.metric} that a program prints",
                f"the comma in {self._decimal!r} is a decimal one, that in {self._grouped!r} may be of thousands",
                "print a decimal point",
            )

    def _of_mllog(self, line: str) -> tuple[float, float | None, float | None] | None:
        try:
            told = json.loads(line[line.index("{") :])
            # MLPerf's own key is eval_accuracy.
            if told["key"] not in (self._target.metric, f"eval_{self._target.metric}"):
                return None
            epoch = (told.get("metadata") or {}).get("epoch_num")
            return float(told["value"]), None if epoch is None else float(epoch), None
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


@final
class ProgressFile:
    """What a program writes to a file, or logs for TensorBoard into a folder, from now on, as lines.

    Rows of a ``.csv`` or ``.tsv`` file are told with the names of its first row. A file may be written anew each time:
    what it repeats from its beginning is told once. Raises ``UsageError`` for a file that is there already: nobody
    could tell whose lines those are; ``MissingError`` for a folder of TensorBoard's files without its library.
    """

    def __init__(self, place: Path) -> None:
        self._asked = f"--progress-file {place}"
        if place.is_file():
            do = "remove it before each run, as by --prepare 'rm -f FILE', or name one for each seed: log-{seed}.jsonl"
            raise UsageError(self._asked, "it is there before the program has begun", do)
        self._place, self._rest = place, b""
        self._pipe: int | None = None
        self._seen: tuple[int, ...] = ()
        self._head, self._read_bytes, self._rewritten = b"", 0, False
        self._heading = ""
        self._told: list[str] = []
        self._again = 0
        self._ended_lines: list[str] = []
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
        ended_lines, self._ended_lines = self._ended_lines, []
        *whole, self._rest = (self._rest + found).split(b"\n")
        # A line without an end may go on. In a file that is rewritten it is the last as soon as nothing is added.
        if self._rest and (ended or (self._rewritten and still) or _is_object(self._rest)):
            whole, self._rest = [*whole, self._rest], b""
        return ended_lines + self._new_among(whole)

    def _found(self) -> tuple[bytes, bool]:
        """What was added to the file, and whether nothing has changed since the look before."""
        if self._pipe is None and self._place.is_fifo():
            # Do not wait for a writer.
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
            # While it is rewritten, only a part is there.
            if self._head.startswith(head) and len(head) < len(self._head):
                return b"", False
            if not head.startswith(self._head):
                # What stood there without an end was all, and is the last line of what was there before.
                self._ended_lines += self._new_among([self._rest] if self._rest else [])
                self._rest, self._rewritten, self._read_bytes, self._again, self._heading = b"", True, 0, 0, ""
            self._head = head
            file.seek(self._read_bytes)
            found = file.read()
            self._read_bytes += len(found)
            return found, False

    def _new_among(self, whole: Sequence[bytes]) -> list[str]:
        return [line for each in whole if (line := self._new(each.decode("utf-8", "replace"))) is not None]

    def _new(self, line: str) -> str | None:
        """``line`` as it is reported, or ``None`` where that was done before the file was rewritten."""
        if self._place.suffix in (".csv", ".tsv"):
            if not self._heading:
                self._heading = line.lstrip("\ufeff#").strip("\r\n")
                return None
            if not line.strip():
                return None
            line = _row(self._asked, self._heading, line)
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


class _Row(str):
    """A row of a table as a line, and its numbers that had commas, by how they stand in the line."""

    __slots__ = ("commas",)
    commas: Mapping[str, str]


def _row(asked: str, heading: str, line: str) -> _Row:
    """A row of a table with the names of its columns; ``UsageError`` where they do not fit together.

    The separator is the one of comma, semicolon and tab that splits the heading into most names, or blanks. Without
    commas between them, numbers may have decimal commas.
    """
    separator = max(",;\t", key=lambda each: len(_cells(heading, each)))
    if len(_cells(heading, separator)) == 1 < len(_cells(heading, " ")) == len(_cells(line, " ")):
        separator = " "
    names, cells = _cells(heading, separator), _cells(line, separator)
    commas: dict[str, str] = {}
    if separator == ",":
        commas = {plain: each for each in cells if (plain := _without_commas(each)) != each}
    cells = [_without_commas(each) if separator == "," else _DECIMAL_COMMA.sub(r"\1.\2", each) for each in cells]
    while len(cells) > len(names) and not cells[-1]:
        cells.pop()
    if len(cells) > len(names) or (len(names) == 1 and not _VALUE.fullmatch(cells[0])):
        found = (
            f"its first row is {heading[:60]!r}, and a later one {line.strip()[:60]!r}: columns cannot be told apart"
        )
        raise UsageError(asked, found, "write one value for each name, with commas, semicolons or tabs between them")
    row = _Row(", ".join(f"{name}: {cell}" for name, cell in zip(names, cells, strict=False) if cell))
    row.commas = commas
    return row


def _cells(line: str, separator: str) -> list[str]:
    if separator == " ":
        return [each.strip("\"'") for each in line.split()]
    return [each.strip() for each in next(csv.reader([line], delimiter=separator, skipinitialspace=True), [""])]


def _without_commas(number: str) -> str:
    """Commas between thousands are left out, as in 1,234, and another single one is a decimal comma, as in 0,900."""
    if re.fullmatch(rf"[-+]?{_THOUSANDS}(?:[eE][-+]?\d+)?", number):
        return number.replace(",", "")
    return _DECIMAL_COMMA.sub(r"\1.\2", number)


_DECIMAL_COMMA = re.compile(r"^([-+]?\d*),(\d+(?:[eE][-+]?\d+)?)$")

_VALUE = re.compile(rf"(?:{_NUMBER})?(?:\s*%)?", re.IGNORECASE)


def _is_object(text: bytes) -> bool:
    try:
        return text.rstrip().endswith(b"}") and isinstance(json.loads(text), dict)
    except ValueError:
        return False


_HEAD_BYTES = 1 << 16
"""So much of a file is compared with what it held before: a log is added to."""

_TOLD = 100_000
