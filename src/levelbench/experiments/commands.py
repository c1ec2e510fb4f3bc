"""Commands that are not ours, in any language, as arms of an experiment: read, started, judged and recorded.

What a process prints is thrown away, but for the last of its errors, which are shown where it fails and are not
recorded.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, final

from msgspec import structs

from levelbench.checks.isolation import signal_name
from levelbench.errors import CheckFailedError, UsageError
from levelbench.experiments.command_process import Command, EndedCommand, carry_out_command
from levelbench.experiments.file_events import Earlier, LeftFiles
from levelbench.experiments.kernel import Kind, Make, Plan, Standing, Turn, Watcher, disagreement, measured_before
from levelbench.experiments.own_code import changed_files, data_digests, settings_outside, settings_path
from levelbench.experiments.processes import need_folder
from levelbench.experiments.revisions import IN_CHECKOUT, INSTALLED, TreeReads
from levelbench.measure.clocks import HOST
from levelbench.measure.environment import capture, capture_after, doubts
from levelbench.records import Measurement, key_of, new_id
from levelbench.records.caveats import listed
from levelbench.records.commands import (
    FOLDER,
    LEFT_RUNNING,
    MAY_USE_CACHE,
    CommandOutcome,
    CommandRecord,
    CommandSpecification,
    CommandWriter,
    slow_first,
)
from levelbench.records.doubts import AGAIN, CUT_SHORT, FIRST
from levelbench.records.processes import Planned, ProcessEnd
from levelbench.records.schema import redact
from levelbench.records.writer import path_part

__all__ = [
    "CommandBenchmarks",
    "Preparation",
    "doubts_of",
    "failure_of",
    "files_named",
    "make_command",
]
__all__ += ["numbered", "peak_memory", "refuse_missing", "which_python"]

_SHELL = re.compile(r"[|&;<>()$`*?~#\n\[\]]|^\s*\w+=")
_QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""", re.DOTALL)
_INTERPRETER = re.compile(r"(?:python|pypy|bash|dash|sh|zsh|node|ruby|perl|julia|Rscript)[\d.]*$")
_WRAPPER = re.compile(r"(?:env|nice|ionice|nohup|setsid|stdbuf|taskset|chrt|numactl|time|timeout)$")
"""What starts the program that is named after it."""
_SHELLS = re.compile(r"(?:ba|da|z|k)?sh")
_BUILTINS = re.compile(
    r"(?:(?:cd|export|source|\.|set|unset|ulimit|umask|:|for|while|until|if|case|echo)\b.*|\w+=\S*)?$", re.S
)
"""What comes before a program and does none of the work."""
_RUNS_OTHERS = re.compile(r"(?:source|\.)\s|.*(?:\$\((?!\()|`)", re.S)
"""Such a part that runs programs nevertheless: those of another file, or for what they print."""
_ENDS_THE_SHELL = re.compile(r"[^\n;|]*\|\|\s*(?:\{[^}]*?\s)?(?:exit|return)\b(?!\s+0\b)[^\n;&|}]*(?:;\s*\})?")
"""``cd x || exit 1``, whose failure nobody misses."""
_CRASHED = re.compile(
    r"^Traceback \(most recent call last\)|Segmentation fault|core dumped|: command not found$|^make: .*\(ignored\)$"
    r"|^EnvironmentNameNotFound: .*|^Lmod has detected the following error:.*"
    # Shells go on after a builtin that failed: dash and bash write "run.sh: 1: cd: ", zsh "run.sh:cd:1: ", and bash
    # names no builtin where it lacks a file.
    r"|^[^:\n]+: (?:\w+ )?\d+: (?:cd|\.|source|export|set|unset|ulimit|umask|pushd|popd): .*"
    r"|^[^:\n]+:(?:cd|\.|source|export|set|unset|ulimit|umask|pushd|popd):\d+: .*"
    r"|^[^:\n]+: line \d+: .*: No such file or directory$",
    re.MULTILINE,
)
_SHELL_SAYS = re.compile(
    r"^(?P<name>[^\s:+][^\s:]*)(?:: (?:line )?(?P<line>\d+)|:(?:(?P<builtin>[\w.\[]*[a-z.\[]):)?(?P<zsh_line>\d+)): "
    r"(?P<said>(?!\s+[^\s\d]).*)$",
    re.MULTILINE,
)
"""What a shell says of a line of a script: "a.sh: line 1: x" is bash's, "a.sh: 1: x" dash's, "a.sh:cd:1: x" zsh's."""
_NO_FAILURE = re.compile(
    r"(?:[Ww]arning|note|info|kill|type|hash|unalias):|\d+:|\s*\d+\s+(?:Terminated|Killed|Hangup|Interrupt|Alarm|User)\b"
)
"""A warning, a question that has an answer, a column, or a process in the background (its number) that was ended."""
_SHELL_FILE = re.compile(r"-?(?:ba|da|z|k)?sh|activate|environment|.*\.(?:ba|z|k)?sh")
_SOURCED = re.compile(r"(?:^|[\s;&|(])(?:source|\.)\s+[\"']?([^\s;&|\"']+)")
_SHEBANG = re.compile(r"#!\s*(?:\S*/env\s+)?(?:\S*/)?([\w.-]+)((?:\s.*)?)$")
_FAILED = re.compile(
    # Libraries that look for others say so (shared object file); a server that a script ends is Terminated.
    r"(?<!shared object file): No such file or directory$|: [Nn]ot found$|: cannot open (?!shared object).*"
    r"|can't open file|can't cd to|No module named|Permission denied|: error: .*|^error: .*|\b(?:Killed|Aborted)\b"
    r"|^make: \*\*\*.*",
    re.MULTILINE,
)
"""What a program or a shell says of one that failed; elsewhere than in a script it may be a warning."""
_NOT_STARTED = re.compile(
    r"^(?:\S*/)?(?:python[\d.]*|(?:ba|da|z|k)?sh|env|node|perl|ruby): .*"
    r"(?:can't open (?:file|perl script)|[Nn]o such file|not found|Permission denied|Cannot find module).*$",
    re.MULTILINE,
)
"""What interpreters and shells say of what they cannot start, for whoever started them."""
_GAVE_UP = re.compile(
    # As a logger prints it: "2026-01-02 03:04:05,678 ERROR no GPU", "[ERROR] no GPU".
    r"[\[(\d][\d\s:,.\-+/TZ\[\]()]*(?P<level>ERROR|CRITICAL|FATAL)\b"
    r"|(?:[\w./-]+: )?(?P<error>[\w.]*(?:Error|Exception)|[Ee]rror|[Ff]atal|FATAL|ERROR)\b"
    # An error may also be a quality, as "Error: 0.053" or "error(val)=0.05", and "error: none" is none.
    r"(?:\s*:|\((?!\w*\)\s*[:=]\s*[\d.]))"
    r"(?!\s*[<~]?\s*[-+]?(?:\d*\.\d|\d+(?:e|\s*(?:%|$|±))|0\b|nan\b|inf\b)|\s*(?:none|n/a)$)"
    r"|(?P<module>No module named) "
)
"""Begins the last line of one that caught its own error."""
_IGNORED = re.compile(r"^Exception ignored in.*\n(?:Traceback.*\n)?(?:[ \t].*\n)*.*$", re.MULTILINE)
"""What Python prints of an error while objects are deleted, which ends nothing."""
_ENDS_IN_TRACEBACK = re.compile(
    r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+[A-Za-z_][\w.]*(?::.*)?\Z", re.MULTILINE
)
"""The end of what Python prints of an error that was caught, and was the last that happened."""
_LAST_LINES = 200
_SCRIPT_BYTES = 1 << 20
_LEAST_FLOORS = 20
"""A process that takes fewer times as long as one that does nothing is doubted."""
_CHANGED = "{} changed after the first process here, so that they are not of one program: measure again"
_KILLED, _ENDED_BEFORE = "it was killed by", "the process before was killed"
_REMOVE, _WRITE_BEFORE = "let --prepare remove it before each process", ", or --warmup 1 write it before all"


def make_command(
    text: str,
    folder: Path,
    *,
    shell: bool = False,
    label: str = "",
    revision: str = "",
    prepare: str = "",
    timeout_s: float | None = None,
    reads: TreeReads | None = None,
) -> Command:
    """The command that ``text`` is, in words as a shell would split it; with what only a shell knows, by a shell.

    Raises ``UsageError`` for a command that is empty or whose quotes are open.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"command {text!r}", str(error).lower(), "close its quotes") from error
    if not words:
        raise UsageError("a command", "it is empty", "give one, as in levelbench time 'python train.py'")
    # Within quotes only a shell's $ and ` mean something, and within single ones nothing does.
    outside = _QUOTED.sub(lambda each: "$" if each[0][0] == '"' and re.search(r"[$`]", each[0]) else "", text)
    shell = shell or bool(_SHELL.search(outside))
    hidden = redact(text)
    specification = CommandSpecification(
        title=path_part(Path(_program_of(words)).name),
        # What is hidden is a part of what is measured.
        command=hidden if hidden == text else f"{hidden} #{hashlib.sha256(text.encode()).hexdigest()[:4]}",
        shell=shell,
        folder=hashlib.sha256(os.fsencode(Path.cwd())).hexdigest(),
        label=label,
        revision=revision,
        prepare=redact(prepare),
        timeout_s=timeout_s,
        source=next((_digest(each) for each in files_named(text.split() if shell else words, folder)), ""),
    )
    return Command(("/bin/sh", "-c", text) if shell else tuple(words), folder, specification, text, reads)


def _program_of(words: Sequence[str]) -> str:
    """The first word that names a program: no setting, and nothing that starts the program named after it."""
    wrapped = False
    for word in words:
        wrapper = _WRAPPER.match(Path(word).name) is not None
        option = wrapped and re.match(r"-|[\d.,:]+[smhdx]?$", word) is not None
        if not (wrapper or option or re.match(r"\w+=", word)):
            return word
        wrapped = wrapped or wrapper
    return words[0].partition("=")[0]


def refuse_missing(command: Command) -> None:
    """``UsageError`` for a program that is not installed, or a script that is not there, before any measurement."""
    if command.specification.shell:
        return
    program, *others = command.words
    asked, place = f"command {command.text!r}", command.folder / program
    if shutil.which(program if "/" not in program else str(place)) is None:
        found, do = "there is no such program", "correct its name, or install it"
        if " " in program.strip():
            found, do = "it is a whole command", "put --vs between commands: 'python a.py' --vs 'python b.py'"
        elif "/" in program and place.exists():
            found, do = "it is there, but not executable", f"name what runs it before it, or chmod +x {program}"
        raise UsageError(asked, f"{program!r} cannot be started: {found}", do)
    script = Path(others[0]) if others and _INTERPRETER.match(Path(program).name) else Path()
    if script.suffix and not script.name.startswith("-") and not (command.folder / script).exists():
        found = f"{str(script)!r} cannot be started: there is no such file in {command.folder}"
        raise UsageError(asked, found, "correct its name, or start from its folder")


def which_python(command: Command, errors: str) -> str:
    """Where the Python of a command lacks a module: which one that is, since levelbench may run in another."""
    program = command.words[0]
    lacks = bool(errors) and errors.splitlines()[-1].startswith("ModuleNotFoundError")
    if not lacks or not re.fullmatch(r"python[\d.]*", program):
        return ""
    return f"; {program!r} is {shutil.which(program)} here: activate or name the environment that has the module"


def files_named(words: Iterable[str], folder: Path) -> Iterator[Path]:
    """The files that the words of a command name, apart from interpreters and what starts a program."""
    for word in words:
        path = folder / word
        with suppress(OSError, ValueError):
            if path.is_file() and not (_INTERPRETER.match(path.name) or _WRAPPER.match(path.name)):
                yield path


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


@final
class Preparation:
    """What is run off the clock: ``setup`` once in the folder of each command, ``prepare`` before each process."""

    def __init__(self, setup: str, prepare: str, show: bool) -> None:
        self._setup, self._prepare, self._show = setup, prepare, show
        self._digests: dict[Path, str] = {}
        self._first_read: dict[tuple[Path, str], dict[str, str]] = {}
        self._made: set[str] = set()
        self._span_ns, self._prepared_s = (0, 0), 0.0
        self.done = False

    def set_up(self, commands: Iterable[Command], say: Callable[[str], None]) -> None:
        """Set up, unless that was done. Raises ``CheckFailedError`` where it fails."""
        if self.done:
            return
        self.done = True
        for folder in dict.fromkeys(each.folder for each in commands) if self._setup else ():
            say(f"setting up: {self._setup}")
            self._must_succeed("--setup", self._setup, folder)

    def prepare(self, command: Command) -> None:
        """Before a process of ``command``."""
        if self._prepare:
            began_ns = time.time_ns()
            self._prepared_s = self._must_succeed("--prepare", self._prepare, command.folder)
            self._span_ns = began_ns, time.time_ns()

    def prepared(self, left: LeftFiles) -> dict[str, Any]:
        """What a record says of the last preparation: how long it took, and what it left that its process read."""
        if not self._prepare:
            return {}
        return {"wall_s": self._prepared_s, "left": left.written_in(*self._span_ns)}

    def changed(self, command: Command) -> list[str]:
        """A doubt if the command's own file is no longer what it was for its first process here."""
        words = command.text.split() if command.specification.shell else command.words
        path = next(files_named(words, command.folder), None)
        if path is None or self._prepare:
            return []
        if self._digests.setdefault(path, digest := _digest(path)) == digest:
            return []
        return [_CHANGED.format(path.name)]

    def outdated(self, identity: str, after: Mapping[str, Any], command: Command) -> str:
        """Why an earlier process of ``command``, whose record ends with ``after``, does not count; empty if it does.

        One that was made here takes part whatever has changed; if that is what it read, it is a doubt.
        """
        if identity in self._made:
            return ""
        read = after.get("files_read")
        if not isinstance(read, dict):
            return "which files it read is not known"
        files = {name: digest for name, digest in read.items() if not name.startswith("$")}
        changed = changed_files(files, lambda name: settings_path(name, command.folder))
        here = settings_outside(map(command.folder.joinpath, files), command.text.split(), command.folder)
        changed += sorted(name for name in {*here, *read} - files.keys() if here.get(name) != read.get(name))
        data = after.get("data_read") or {}
        now = data_digests((Path(os.path.normpath(command.folder / name)) for name in data), command.folder)
        changed += sorted(name for name, digest in data.items() if now.get(name) != digest)
        self._read(command).update(read if not changed else {})
        return f"what it reads has changed since: {listed(changed)}" if changed else ""

    def made(self, identity: str, read: Mapping[str, str], command: Command) -> list[str]:
        """A process was made here, which has ``read`` these texts: a doubt if one before has read others."""
        self._made.add(identity)
        first = self._read(command)
        changed = [name for name, digest in read.items() if first.setdefault(name, digest) != digest]
        return [] if self._prepare or not changed else [_CHANGED.format(listed(changed))]

    def _read(self, command: Command) -> dict[str, str]:
        """What the first of its processes read that take part here."""
        return self._first_read.setdefault((command.folder, command.text), {})

    def _must_succeed(self, option: str, text: str, folder: Path) -> float:
        ended = carry_out_command(make_command(text, folder), show=self._show)
        if reason := failure_of(ended, None):
            raise CheckFailedError(f"{option} {text!r}", f"{reason}: {ended.errors}".rstrip(": "), "see --show-output")
        return ended.wall_ns * 1e-9


@final
class CommandBenchmarks(Kind[CommandSpecification, CommandRecord]):
    """Processes of commands; ``commands`` are those whose specifications the plan has.

    ``setup`` is run once in the folder of each command, its ``prepare`` before each process, both off the clock;
    ``warmup`` processes of each command are not recorded. A failure ends the plan, unless it is to be ignored.
    """

    def __init__(
        self,
        store: Path,
        commands: Sequence[Command],
        *,
        setup: str = "",
        prepare: str = "",
        warmup: int = 0,
        ignore_failure: bool = False,
        show: bool = False,
        effect: float | None = None,
    ) -> None:
        self._store = store
        self._commands = {key_of(each.specification): each for each in commands}
        self._preparation, self._warmup = Preparation(setup, prepare, show), warmup
        self._ignore, self._show, self._effect = ignore_failure, show, effect
        self._floor_s, self._earlier = 0.0, Earlier()
        self._cut: dict[tuple[str, int], float | None] = {}
        """How long interrupted processes ran that are made again, by key and number."""
        self._before: dict[str, int] = {}
        self._first_s: dict[str, float] = {}
        """How long the first process of a command in this store took, by its text."""
        self._warmed: dict[str, list[str]] = {}
        """Doubts on what was before the processes of a command here: a warm-up, or earlier ones in the store."""

    def check(self, arms: Sequence[CommandSpecification]) -> None:
        """Nothing can be said of them before they are started."""

    def key(self, wanted: CommandSpecification) -> str:
        """Its records' own."""
        return key_of(wanted)

    def title(self, wanted: CommandSpecification) -> str:
        """As tables have it."""
        return wanted.name

    def find(self, wanted: CommandSpecification) -> Iterable[CommandRecord]:
        """In the store."""
        return CommandRecord.find(self._store, key_of(wanted))

    def standing(self, record: CommandRecord, wanted: CommandSpecification, environment: Mapping[str, Any]) -> Standing:
        """As for others, and remembers how long an interrupted one ran."""
        if record.status == "interrupted":
            place, wall = (self.key(wanted), record.header.seed), record.measurements.get("wall")
            known = [each for each in (self._cut.get(place), None if wall is None else wall.value) if each is not None]
            self._cut[place] = max(known, default=None)
        return super().standing(record, wanted, environment)

    def why_not(self, record: CommandRecord, wanted: CommandSpecification, environment: Mapping[str, object]) -> str:
        """Another machine or levelbench, or a failure."""
        if record.outcome is None or (record.outcome.reason and not self._ignore):
            # One that somebody ended may have been a slow one.
            killed = record.outcome is not None and record.outcome.reason.startswith(_KILLED)
            return _ENDED_BEFORE if killed else "the process before failed"
        after = {} if record.end is None else record.end.environment_after
        return disagreement(
            record.header.version, record.header.environment, environment, ()
        ) or self._preparation.outdated(record.header.id, after, self._commands[key_of(wanted)])

    @contextmanager
    def opened(
        self, plan: Plan[CommandSpecification, CommandRecord], watcher: Watcher[CommandRecord]
    ) -> Iterator[Make[CommandRecord]]:
        """Set up and warm up once."""
        need_folder(self._store / FOLDER)
        if not self._preparation.done:
            # A warm-up fills caches by intention, also those that were full before.
            if not self._warmup:
                for key, command in self._commands.items():
                    self._remember(command, CommandRecord.find(self._store, key))
            before = measured_before(self, plan)
            self._before = {self.key(wanted): before[arm] for arm, wanted in enumerate(plan.arms)}
            self._preparation.set_up(self._commands.values(), watcher.preparing)
            nothing = make_command("true", Path.cwd())
            self._floor_s = min(carry_out_command(nothing).wall_ns for _ in range(5)) * 1e-9
            for command in self._commands.values():
                for number in range(self._warmup):
                    watcher.preparing(f"warming up {command.specification.name} ({number + 1} of {self._warmup})")
                    self._warmed[command.text] = [f"its warm-up: {each}" for each in self._warm_up(command)]

        def make(turn: Turn, begin: Callable[[], None]) -> tuple[CommandRecord, CheckFailedError | None]:
            command = self._commands[key_of(plan.arms[turn.arm])]
            self._preparation.prepare(command)
            begin()
            return self._record(command, turn, len(plan.seeds))

        yield make

    def _remember(self, command: Command, records: Iterable[CommandRecord]) -> None:
        """What earlier commands with this store may have left behind for the processes of this one."""
        ended = [
            each
            for each in records
            if each.end is not None and (wall := each.measurements.get("wall")) is not None and wall.value
        ]
        ended.sort(key=lambda each: each.header.started)
        self._earlier.add_spans(map(_span_ns, ended))
        if ended:
            self._first_s[command.text] = ended[0].measurements["wall"].value or 0.0
        if longer := slow_first([each.measurements["wall"].value or 0.0 for each in ended]):
            self._warmed[command.text] = [
                f"the first process of the command in this store took {longer:.2g} times as long as any later one, "
                + MAY_USE_CACHE
            ]

    def _warm_up(self, command: Command) -> list[str]:
        """Doubts on a process that does not count, and whose output may therefore be read: a pipe takes time."""
        if self._show:
            return doubts_of(command, self._run(command))
        lines = deque[str](maxlen=_LAST_LINES)

        def keep(line: str, arrived_ns: int) -> bool:
            # Between parts of the output an empty line may stand.
            if line:
                lines.append(line)
            return False

        ended = carry_out_command(command, command.specification.timeout_s, read=keep)
        found = doubts_of(command, ended)
        if not ended.exit_code and (end := _ENDS_IN_TRACEBACK.search("\n".join(lines).rstrip())):
            last = end[0].rpartition("\n")[2]
            found.append(f"it ended with exit code 0 after a traceback ({last}): look whether it did all of its work")
        return list(dict.fromkeys(found))

    def _run(self, command: Command) -> EndedCommand:
        return carry_out_command(command, command.specification.timeout_s, show=self._show)

    def _record(self, command: Command, turn: Turn, wanted: int) -> tuple[CommandRecord, CheckFailedError | None]:
        environment, changed = capture(command.folder, self._store), self._preparation.changed(command)
        environment |= {AGAIN: turn.why} if turn.why not in ("", _ENDED_BEFORE) else {}
        key = key_of(command.specification)
        if command.text in self._first_s and command.text not in self._warmed:
            environment[FIRST] = self._first_s[command.text]
        environment |= {CUT_SHORT: self._cut[key, turn.seed]} if (key, turn.seed) in self._cut else {}
        identity = new_id()
        with CommandWriter.start(
            self._store,
            command.specification,
            seed=turn.seed,
            identity=identity,
            environment=environment,
            planned=Planned(self._effect, wanted, self._before[key]),
        ) as writer:
            with LeftFiles(
                command.folder, command.text.split(), [self._store], self._earlier, light=True, training=False
            ) as left:
                with _noted_if_interrupted(writer):
                    ended = self._run(command)
                files, read = left.doubts(_REMOVE, ended.writing, _WRITE_BEFORE), left.texts()
                data = left.data()
            after, reason = capture_after(), failure_of(ended, command.specification.timeout_s)
            if read is not None:
                after["files_read"] = read
            if data is not None:
                after["data_read"] = data
            # Whether it read what the others did, their summary says.
            self._preparation.made(identity, {}, command)
            rusage = "rusage of the process and of those that it waited for"
            writer.add(Measurement("wall", "s", ended.wall_ns * 1e-9, "the parent's monotonic clock"))
            writer.add(Measurement("user", "s", ended.user_s, rusage))
            writer.add(Measurement("system", "s", ended.system_s, rusage))
            writer.add(peak_memory(ended.peak_memory_b))
            writer.add(CommandOutcome(ended.exit_code, reason))
            suspect = list(doubts(environment, after))
            suspect += [*changed, *doubts_of(command, ended), *files, *self._warmed.get(command.text, [])]
            if reason and self._ignore and not ended.timed_out:
                suspect.append(f"{reason}, and its time counts all the same (--ignore-failure)")
            if ended.wall_ns * 1e-9 < _LEAST_FLOORS * self._floor_s:
                suspect.append(
                    f"to start a process that does nothing takes {self._floor_s * 1e3:.2g} ms of this: let it do more "
                    "in one process"
                )
            writer.add(ProcessEnd(suspect, after))
        record = CommandRecord.read(writer.path)
        # What was ended at its time limit has no time of its own.
        if not reason or (self._ignore and not ended.timed_out):
            return record, None
        said = ended.errors.splitlines()
        found = f"{reason}{': ' + said[-1] if said else ''}"
        asked = f"process {turn.seed + 1} of {command.specification.name!r}"
        do = "let it print with --show-output" + ("; give it more time: --timeout" if ended.timed_out else "")
        do += which_python(command, ended.errors)
        return record, CheckFailedError(asked, found, do)


@contextmanager
def _noted_if_interrupted(writer: CommandWriter) -> Iterator[None]:
    """For how long it ran: only a process that takes long is worth interrupting to somebody who chooses."""
    began_ns = HOST.now_ns()
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        took_s = (HOST.now_ns() - began_ns) * 1e-9
        writer.add(Measurement("wall", "s", took_s, "the parent's monotonic clock, until it was interrupted"))
        raise


_NOTING_NS = 5_000_000_000
"""A record is begun, and complete, within this time before and after its process."""


def _span_ns(record: CommandRecord) -> tuple[int, int]:
    """When the process began and ended, since 1970."""
    start_ns = int(datetime.fromisoformat(record.header.started).timestamp() * 1e9)
    end_ns = start_ns + int((record.measurements["wall"].value or 0.0) * 1e9) + _NOTING_NS
    # The next one is prepared once this record is complete.
    return start_ns, min(end_ns, record.path.stat().st_mtime_ns)


def peak_memory(found_b: int | None) -> Measurement:
    """What a record holds of it."""
    if found_b is None:
        return Measurement("peak_memory", "B", None, None, "it is below that of levelbench, which started the process")
    return Measurement(
        "peak_memory", "B", float(found_b), "the largest of these processes (ru_maxrss; VmHWM of those that were ended)"
    )


def doubts_of(command: Command, ended: EndedCommand) -> list[str]:
    """Reasons to doubt that the time of a process is that of the work that is meant."""
    found = []
    if ended.left:
        found.append(f"{LEFT_RUNNING} when it ended: they were ended, and their time is not in its")
    if ended.lingered:
        found.append("processes that it had started ended right after it, and that time is not in its")
    if ended.paused:
        found.append("it was stopped for a time (SIGSTOP), and that time counts: measure it again")
    if ended.strays:
        first, more = ended.strays[0], f" and {len(ended.strays) - 1} more files" if len(ended.strays) > 1 else ""
        where = "" if IN_CHECKOUT in first else " of the working tree, which is neither revision"
        there = f"{where}: if it is installed from there (pip install -e), all revisions ran the same code"
        if INSTALLED in first:
            there = ", which is not what this revision has: if it imports that copy, all revisions ran the same code"
        found.append(f"it read {first}{more}{there}; docs/guides/gate.md says what to do")
    if ended.fled:
        found.append(
            f"{LEFT_RUNNING} in a session of their own: what they do is not in its time, and may slow down what is "
            "measured next"
        )
    inline, script = _shell_text(command)
    told = [_QUOTED.sub("''", command.text), *(each[0] for each in (inline, script) if each is not None)]
    if over := next(filter(None, map(_hands_over, told)), None):
        name, do = over
        found.append(f"{name} hands work over and ends, so its time is not that of the work: {do}")
    if inline and _fails_silently(*inline):
        found.append("the shell tells whether its last program failed: where one before it fails, nobody notices")
    # Most scripts have no set -e, and fail nowhere: of those it has to look as if something had failed.
    unheard = any(_fails_silently(*each, _RUNS_OTHERS) for each in (inline, script) if each is not None)
    errors = _SHELL_SAYS.sub(lambda said: "" if _is_caught(said, command) else said[0], _IGNORED.sub("", ended.errors))
    of_a_shell = (said for said in _SHELL_SAYS.finditer(errors) if _is_failure_of_a_script(said, command))
    crash = _CRASHED.search(errors) or (_FAILED if unheard else _NOT_STARTED).search(errors)
    crash = crash or _GAVE_UP.match(errors.rstrip().rpartition("\n")[2])
    lines = [crash[crash.lastgroup or 0].strip(": ")] if crash else [said[0] for said in of_a_shell]
    if lines and not ended.exit_code:
        found.append(f"it ended with exit code 0 and printed {lines[0]!r}: look whether it did all of its work")
    return found


_HANDS_OVER = (
    (re.compile(r"(sbatch)\b(?!.*\s(?:-W|--wait)\b)"), "use sbatch --wait"),
    (re.compile(r"(qsub)\b(?!.*\s(?:-sync\s+y|-W\s*block=true|-I\b))"), "use qsub -sync y, or -W block=true"),
    (re.compile(r"(bsub)\b(?!.*\s-(?:K|I\w*)\b)"), "use bsub -K"),
    (
        # Of options only those before the image's name are meant; most have a value.
        re.compile(
            r"((?:docker|podman)\s+(?:container\s+)?run)\s+"
            r"(?:(?:--rm|--init|--privileged|-[it]+|--\S+=\S+)\s+|(?!--rm|--init|--privileged|-[it]+\s)-\S+\s+[^-\s]\S*\s+)*"
            r"(?:-[it]*d[it]*|--detach)\s"
        ),
        "leave out its -d",
    ),
    (re.compile(r"(kubectl\s+(?:apply|create))\b"), "let kubectl wait follow it"),
    (re.compile(r"(systemd-run)\b(?!.*\s(?:--wait|--scope|--pty|--pipe|-t|-P)\b)"), "use systemd-run --wait"),
    (re.compile(r"(tmux\s+new(?:-session)?)\b(?=.*\s-\w*d)|(screen)\s+-\w*d"), "start the program without it"),
)
"""Programs that let others do the work, unless these options are there, and what to do instead."""
_WAITS = re.compile(
    r"(?:^|[;&|\n(]|\bdo|\bwhile)\s*(?:wait|squeue|sacct|qstat|bjobs|bwait|kubectl\s+wait|\w+\s+(?:logs|attach))\b"
)
"""What waits for work that was handed over, or looks after it."""


def _hands_over(text: str) -> tuple[str, str] | None:
    """Which program in a shell's ``text`` only hands work over, and what to do; ``None``: none, or it is waited for."""
    if _WAITS.search(text):
        return None
    for part in re.split(r"[;&|\n]+", text):
        words = re.sub(r"^\s*(?:(?:do|then|else|\{|\()\s+|\w+=\S*\s+)*", "", part)
        for pattern, do in _HANDS_OVER:
            if found := pattern.match(words + " "):
                return found[1] or found[2], do
    return None


_Told = tuple[str, Sequence[str]]


def _shell_text(command: Command) -> tuple[_Told | None, _Told | None]:
    """What a shell is given in the command itself, or in a script or makefile, each with the shell's options."""
    words = list(command.words)
    if Path(words[0]).name in ("make", "gmake"):
        # make sees the shell's exit code for each recipe, and prints what it ignores.
        return None, ("make; make", ())
    if not _SHELLS.fullmatch(Path(words[0]).name):
        text = _script(command.folder / words[0])
        first, _, rest = text.partition("\n")
        shebang = _SHEBANG.match(first)
        return None, (rest, shebang[2].split()) if shebang and _SHELLS.fullmatch(shebang[1]) else None
    # sh -c TEXT, as we start it and as a user may.
    flags = [at for at, word in enumerate(words[:-1]) if re.fullmatch(r"-\w*c", word)]
    if flags:
        return (words[flags[0] + 1], words[1 : flags[0] + 1]), None
    at = next((at for at, word in enumerate(words[1:], 1) if not word.startswith(("-", "+"))), None)
    return None, None if at is None else (_script(command.folder / words[at]), words[1:at])


def _is_failure_of_a_script(said: re.Match[str], command: Command) -> bool:
    """Whether a line has not only the form of what a shell says, but also the name of a shell or of a script of one."""
    if _NO_FAILURE.match(f"{said['builtin'] or ''}:{said['said']}".lstrip(":")):
        return False
    name = Path(said["name"]).name
    started = next((word for word in command.words[1:] if not word.startswith(("-", "+"))), "")
    if _SHELL_FILE.fullmatch(name) or (_SHELLS.fullmatch(Path(command.words[0]).name) and said["name"] == started):
        return True
    shebang = _SHEBANG.match(_script(command.folder / said["name"]).partition("\n")[0])
    if shebang and _SHELLS.fullmatch(shebang[1]):
        return True
    texts = [each[0] for each in _shell_text(command) if each is not None]
    return name in {Path(each).name for text in texts for each in _SOURCED.findall(text)}


def _is_caught(said: re.Match[str], command: Command) -> bool:
    """Whether a shell says that a builtin failed for which the script has an alternative: ``cd x || echo none``."""
    builtin = said["builtin"] or said["said"].partition(":")[0]
    named = re.escape(builtin)
    if said["said"] == f"{builtin}: No such file or directory":
        # So does bash say that there is no file to source.
        named = r"(?:source|\.)"
    elif not re.fullmatch(r"cd|\.|source|export|set|unset|ulimit|umask|pushd|popd|shopt", builtin):
        return False
    inline, _ = _shell_text(command)
    with suppress(OSError, ValueError, IndexError):
        in_command = inline if _SHELLS.fullmatch(Path(said["name"]).name) else None
        text = in_command[0] if in_command else (command.folder / said["name"]).read_text()
        line = text.splitlines()[int(said["line"] or said["zsh_line"]) - 1]
        return re.search(rf"(?<![\w./-]){named}\s[^;&|]*\|\|", line) is not None
    return False


def _script(path: Path) -> str:
    """The text of a script, without its comments; empty for any other file."""
    try:
        with path.open("rb") as file:
            text = file.read(_SCRIPT_BYTES).decode()
    except (OSError, ValueError):
        return ""
    return re.sub(r"^\s*#(?!!).*\n?|\\\n", "", text, flags=re.MULTILINE)


def _fails_silently(text: str, options: Sequence[str], programs: re.Pattern[str] | None = None) -> bool:
    """Whether a shell hears of no failure but that of the last program: after others, without ``set -e``.

    Parts that match ``programs`` count as such, too.
    """
    if any(re.fullmatch(r"-\w*e\w*", each) for each in options) or re.search(r"\bset\s+-\w*e", text):
        return False
    plain = _ENDS_THE_SHELL.sub("", _QUOTED.sub("''", text)).strip(" ;\n")
    *before, _ = re.split(r"[;\n]", re.sub(r"&&\s*\n", "&&", plain))
    parts = [re.sub(r"^\s*((do|then|else|\{|\()\s+)?", "", part) for each in before for part in each.split("&&")]
    does_work = [not _BUILTINS.match(each) or bool(programs and programs.match(each)) for each in map(str.strip, parts)]
    return "|" in plain or any(does_work)


def failure_of(ended: EndedCommand, timeout_s: float | None) -> str:
    """Why it failed; empty where it did not."""
    if ended.timed_out:
        return f"it did not end within {timeout_s:g} s"
    if ended.exit_code < 0:
        return f"{_KILLED} {signal_name(-ended.exit_code)}"
    return f"it ended with exit code {ended.exit_code}" if ended.exit_code else ""


def numbered(commands: Iterable[Command]) -> list[Command]:
    """The same commands, with equal ones numbered: a command against itself shows the false alarms."""
    seen: Counter[str] = Counter()
    found = []
    for each in commands:
        key = key_of(each.specification)
        found.append(replace(each, specification=structs.replace(each.specification, copy=seen[key])))
        seen[key] += 1
    return found
