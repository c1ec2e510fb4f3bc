"""Processes of commands that are not ours, in any language: how one is started, timed, ended and recorded.

A process is alone in a session and group of its own, so that it can be ended with what it started. What it prints
is thrown away, but for the last of its errors, which are shown where it fails and are not recorded.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import re
import resource
import select
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import IO, final

from msgspec import structs

from levelbench.checks.isolation import signal_name
from levelbench.errors import CheckFailedError, MissingError, UsageError
from levelbench.experiments.file_events import Earlier, LeftFiles
from levelbench.experiments.kernel import Kind, Make, Plan, Turn, Watcher, disagreement
from levelbench.experiments.processes import need_folder
from levelbench.experiments.revisions import TreeReads
from levelbench.experiments.told import ToldChannel
from levelbench.measure.clocks import HOST
from levelbench.measure.environment import capture, capture_after, doubts
from levelbench.measure.forking import adopting
from levelbench.measure.meters.resources import children_of
from levelbench.records import Measurement, key_of, new_id
from levelbench.records.commands import FOLDER, CommandOutcome, CommandRecord, CommandSpecification, CommandWriter
from levelbench.records.processes import ProcessEnd
from levelbench.records.schema import redact
from levelbench.records.writer import path_part

__all__ = [
    "Command",
    "CommandBenchmarks",
    "EndedCommand",
    "Preparation",
    "carry_out_command",
    "doubts_of",
    "failure_of",
    "files_named",
    "make_command",
]
__all__ += ["numbered", "peak_memory", "refuse_missing"]

_SHELL = re.compile(r"[|&;<>()$`*?~#\n\[\]]|^\s*\w+=")
_QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""", re.DOTALL)
_INTERPRETER = re.compile(r"(?:python|pypy|bash|dash|sh|zsh|node|ruby|perl|julia|Rscript)[\d.]*$")
_SHELLS = re.compile(r"(?:ba|da|z|k)?sh")
_BUILTINS = re.compile(
    r"(?:(?:cd|export|source|\.|set|unset|ulimit|umask|:|for|while|until|if|case|echo)\b.*|\w+=\S*)?$", re.S
)
"""What comes before a program and does none of the work."""
_CRASHED = re.compile(
    r"^Traceback \(most recent call last\)|Segmentation fault|core dumped|: command not found$|^make: .*\(ignored\)$",
    re.MULTILINE,
)
_FAILED = re.compile(
    # Libraries that look for others say so (shared object file); a server that a script ends is Terminated.
    r"(?<!shared object file): No such file or directory$|: [Nn]ot found$|: cannot open (?!shared object).*"
    r"|can't open file|can't cd to|No module named|Permission denied|: error: .*|^error: .*|\b(?:Killed|Aborted)\b"
    r"|^make: \*\*\*.*",
    re.MULTILINE,
)
"""What a program or a shell says of one that failed; elsewhere than in a script it may be a warning."""
_LOOK_MS = 10.0
"""How often a file that a program writes is looked at."""
_TAIL_BYTES = 4096
_RETURNS = re.compile(rb"(?<=\r)")
_PIPE_BYTES = 1 << 20
"""So much may a program print while this process waits for a processor; without it that is 64 KiB."""
_LINE_BYTES = 1 << 16
_GRACE_S, _GONE_S = 2.0, 1.0
_SCRIPT_BYTES = 1 << 20
_LEAST_FLOORS = 20
"""A process that takes fewer times as long as one that does nothing is doubted."""
_REMOVE, _WRITE_BEFORE = "let --prepare remove it before each process", ", or --warmup 1 write it before all"


@dataclass(frozen=True)
class Command:
    """What an arm starts: the words of the program, where, and how records and tables know it."""

    words: tuple[str, ...]
    folder: Path
    specification: CommandSpecification
    text: str = ""
    reads: TreeReads | None = None
    """Sees what is read of the working tree that its revision was checked out of."""

    def with_seed(self, seed: int) -> Command:
        """The same with the number in place of ``{seed}``."""
        return replace(self, words=tuple(word.replace("{seed}", str(seed)) for word in self.words))


@dataclass(frozen=True)
class EndedCommand:
    """How a process ended: wall time and resources, its exit code (negative for a signal), the last of its errors.

    ``peak_memory_b`` is ``None`` where it is below that of the process that started it, which hides it.
    ``left`` says that it left processes behind, which were ended, ``fled`` that it left some in sessions of their own;
    ``timed_out`` that its time was up, ``stopped`` that whoever read what it printed ended it; ``writing`` are
    the files that it then had open for writing.
    """

    wall_ns: int
    user_s: float
    system_s: float
    peak_memory_b: int | None
    exit_code: int
    errors: str
    left: bool = False
    timed_out: bool = False
    stopped: bool = False
    strays: tuple[str, ...] = ()
    fled: bool = False
    writing: tuple[Path, ...] = ()


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
    program = next((word for word in words if not re.match(r"\w+=", word)), words[0].partition("=")[0])
    hidden = redact(text)
    specification = CommandSpecification(
        title=path_part(Path(program).name),
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


def refuse_missing(command: Command) -> None:
    """``UsageError`` for a program that is not installed, or a script that is not there, before any measurement."""
    if command.specification.shell:
        return
    program, *others = command.words
    if shutil.which(program if "/" not in program else str(command.folder / program)) is None:
        found = f"{program!r} cannot be started: there is no such program"
        raise UsageError(f"command {command.text!r}", found, "correct its name, or install it")
    script = Path(others[0]) if others and _INTERPRETER.match(Path(program).name) else Path()
    if script.suffix and not script.name.startswith("-") and not (command.folder / script).exists():
        found = f"{str(script)!r} cannot be started: there is no such file in {command.folder}"
        raise UsageError(f"command {command.text!r}", found, "correct its name, or start from its folder")


def files_named(words: Iterable[str], folder: Path) -> Iterator[Path]:
    """The files that the words of a command name, interpreters apart."""
    for word in words:
        path = folder / word
        with suppress(OSError, ValueError):
            if path.is_file() and not _INTERPRETER.match(path.name):
                yield path


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


@adopting()
def carry_out_command(
    command: Command,
    timeout_s: float | None = None,
    *,
    show: bool = False,
    environment: Mapping[str, str] | None = None,
    read: Callable[[str], bool] | None = None,
    written: Callable[[bool], Iterable[str]] | None = None,
    on_end: Callable[[], object] = lambda: None,
    told: ToldChannel | None = None,
) -> EndedCommand:
    """Start it, wait until it has ended, and end what it leaves behind.

    With ``show`` it prints where levelbench does. ``read`` gets each line that it prints, and those that ``written``
    gives, which is asked every hundredth of a second with whether it has ended, and ends it where it returns true;
    ``on_end`` is called when it has ended. So are the lines that it tells through ``told``. ``environment`` is added to
    ours. Raises ``MissingError`` for a program that
    cannot be started.
    """
    output = subprocess.PIPE if read is not None else None if show else subprocess.DEVNULL
    errors = subprocess.STDOUT if read is not None else None if show else subprocess.PIPE
    if command.reads is not None:
        command.reads.take()
    own_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    had = set(children_of("self"))
    began_ns = HOST.now_ns()
    process, tail, stopped, last, writing = None, None, False, "", set[Path]()
    try:
        with _uninterrupted():
            process = subprocess.Popen(
                command.words,
                cwd=command.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        tail = _Tail(process.stderr)
        if read is None:
            timed_out = timeout_s is not None and not _ends_within(process.pid, timeout_s)
        else:
            stopped, timed_out, last = _follow(process, read, timeout_s, show, written, told)
        if timed_out or stopped:
            _end_group(process.pid, writing)
        _, status, usage = os.wait4(process.pid, 0)
        wall_ns = HOST.now_ns() - began_ns
        on_end()
        process.returncode = os.waitstatus_to_exitcode(status)
    except OSError as error:
        if process is not None:
            raise
        found = f"{command.words[0]!r} cannot be started: {error.strerror}"
        raise MissingError(f"command {command.specification.command!r}", found, "check its name and path") from error
    finally:
        left = process is not None and _end_group(process.pid)
        # The tail's thread closes what it reads.
        for stream in (process.stdout, None if tail else process.stderr) if process is not None else ():
            if stream is not None:
                stream.close()
        if process is not None and process.returncode is None:
            process.kill()
            process.wait()
        elif process is not None:
            _wait_for_group(process.pid)
    return EndedCommand(
        wall_ns,
        usage.ru_utime,
        usage.ru_stime,
        # What a process had before it became another program counts to that program, and it began as this one.
        usage.ru_maxrss * 1024 if usage.ru_maxrss > own_kib else None,
        process.returncode,
        last or tail.read(),
        left and not timed_out and not stopped,
        timed_out,
        stopped,
        () if command.reads is None else tuple(command.reads.take()),
        # Without a parent they have become children of this process.
        any(_runs(each) for each in set(children_of("self")) - had),
        tuple(sorted(writing)),
    )


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Signals take effect at its end: raised between a process's start and its name, they would leave it behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    ours = {each: handler for each, handler in handlers.items() if callable(handler)}
    for each in ours:
        signal.signal(each, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        for each, handler in ours.items():
            signal.signal(each, handler)
    for number, frame in came:
        ours[signal.Signals(number)](number, frame)


@final
class _Tail:
    """Reads what a process prints, however much that is, and keeps the last of it."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        self._stream, self._kept = stream, b""
        self._thread = threading.Thread(target=self._drain, daemon=True)
        if stream is not None:
            self._thread.start()

    def _drain(self) -> None:
        assert self._stream is not None
        with suppress(OSError, ValueError):
            while part := os.read(self._stream.fileno(), 1 << 16):
                self._kept = (self._kept + part)[-_TAIL_BYTES:]

    def read(self) -> str:
        """The last that was printed. A process that holds the other end for longer than a moment is not waited for."""
        if self._stream is None:
            return ""
        self._thread.join(0.5)
        if not self._thread.is_alive():
            self._stream.close()
        return self._kept.decode("utf-8", "replace").strip()


def _follow(
    process: subprocess.Popen[bytes],
    read: Callable[[str], bool],
    timeout_s: float | None,
    show: bool,
    written: Callable[[bool], Iterable[str]] | None,
    told: ToldChannel | None,
) -> tuple[bool, bool, str]:
    """Read what a process prints until it ends, whoever else holds its output, or ``read`` returns true, or time is up.

    Whether it was the second or the third, and the last line.
    """
    assert process.stdout is not None
    output, end = process.stdout.fileno(), os.pidfd_open(process.pid)
    with suppress(OSError, AttributeError):
        fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    until_ns = None if timeout_s is None else HOST.now_ns() + int(timeout_s * 1e9)
    poll = select.poll()
    poll.register(output, select.POLLIN)
    poll.register(end, select.POLLIN)
    if told is not None:
        poll.register(told.descriptor, select.POLLIN)
    pending, last, reading, since_told = b"", "", True, 0
    try:
        while True:
            left_ms = math.inf if until_ns is None else max(0.0, (until_ns - HOST.now_ns()) / 1e6)
            wait_ms = min(left_ms, math.inf if written is None else _LOOK_MS)
            ready = dict(poll.poll(None if math.isinf(wait_ms) else wait_ms))
            if written is not None and any(read(line) for line in written(end in ready)):
                return True, False, last
            if not ready and wait_ms < left_ms:
                continue
            if not ready:
                return False, True, last
            # What was printed before it was told comes first, but for the end of a process.
            if told is not None and told.descriptor in ready:
                is_end = not ready[told.descriptor] & select.POLLIN
                if is_end or output not in ready or since_told > _PIPE_BYTES:
                    since_told = 0
                    if any(read(line) for line in told.take()):
                        return True, False, last
                if output not in ready and end not in ready:
                    continue
            # Once it has ended, what it has printed is read, and nothing is waited for.
            part = os.read(output, 1 << 16) if output in ready else b""
            since_told += len(part)
            if show:
                sys.stderr.write(part.decode("utf-8", "replace"))
            if not part and reading:
                poll.unregister(output)
                reading = False
            text = pending + part
            # Without an end, the last line is whole once there is no more.
            cut = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1 if part else len(text)
            # What goes on for so long is no line that tells a quality.
            whole, pending = text[:cut], text[cut:][-_LINE_BYTES:]
            for line in _lines_of(whole):
                printed = line.decode("utf-8", "replace")
                last = printed.strip() or last
                if read(printed):
                    return True, False, last
            if not part:
                pending = b""
                if end in ready:
                    return False, False, last
    finally:
        os.close(end)


def _lines_of(text: bytes) -> list[bytes]:
    """Its lines; a carriage return that does not belong to a new line stays with its line, and says what it is."""
    if b"\r" not in text:
        return text.removesuffix(b"\n").split(b"\n")
    *whole, rest = text.split(b"\n")
    found = [line for each in whole for line in _RETURNS.split(each.removesuffix(b"\r"))]
    return [*found, *(line for line in _RETURNS.split(rest) if line)]


def _ends_within(pid: int, timeout_s: float) -> bool:
    """Whether a child ends in time; it is not reaped."""
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(timeout_s * 1e3))
    finally:
        os.close(descriptor)


def _end_group(group: int, writing: set[Path] | None = None) -> bool:
    """End the processes of a group, those that do not listen with force; whether there were any.

    ``writing`` gets the files that they have open for writing.
    """
    # Zombies still belong to the group.
    found = _alive(group)
    if writing is not None:
        writing |= _written_by(group)
    _signal_group(group, signal.SIGTERM)
    # A stopped process gets its SIGTERM when it goes on.
    _signal_group(group, signal.SIGCONT)
    _until_gone(group, _GRACE_S if found else 0.0)
    if writing is not None:
        writing |= _written_by(group)
    # What was killed is gone a moment later, unless it waits for a disk.
    _until_gone(group, _GONE_S if _signal_group(group, signal.SIGKILL) else 0.0)
    return found


def _wait_for_group(group: int) -> None:
    """Wait for those whose parent, the program, is gone: their processor time is then ours, and no load of others."""
    with suppress(ChildProcessError):
        while os.waitid(os.P_PGID, group, os.WEXITED | os.WNOHANG) is not None:
            pass


def _until_gone(group: int, most_s: float) -> None:
    deadline_ns = HOST.now_ns() + int(most_s * 1e9)
    while HOST.now_ns() < deadline_ns and _alive(group):
        time.sleep(0.005)


def _alive(group: int) -> bool:
    """Whether a process of the group still runs; a zombie does not."""
    return any(_runs(each.name, group) for each in Path("/proc").glob("[0-9]*"))


def _written_by(group: int) -> set[Path]:
    """The files that processes of a group have open for writing."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for each in (process / "fd").iterdir() if _runs(process.name, group) else ():
                with suppress(OSError):
                    path = each.readlink()
                    flags = re.search(r"^flags:\s*([0-7]+)", (process / "fdinfo" / each.name).read_text(), re.MULTILINE)
                    if flags is not None and int(flags[1], 8) & os.O_ACCMODE and path.is_file():
                        found.add(path)
    return found


def _runs(pid: str, group: int | None = None) -> bool:
    """Whether a process, of this group, still runs."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return group in (None, int(fields[2])) and fields[0] not in "ZX"
    return False


def _signal_group(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


@final
class Preparation:
    """What is run off the clock: ``setup`` once in the folder of each command, ``prepare`` before each process."""

    def __init__(self, setup: str, prepare: str, show: bool) -> None:
        self._setup, self._prepare, self._show = setup, prepare, show
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
            self._must_succeed("--prepare", self._prepare, command.folder)

    def _must_succeed(self, option: str, text: str, folder: Path) -> None:
        ended = carry_out_command(make_command(text, folder), show=self._show)
        if reason := failure_of(ended, None):
            raise CheckFailedError(f"{option} {text!r}", f"{reason}: {ended.errors}".rstrip(": "), "see --show-output")


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

    def why_not(self, record: CommandRecord, wanted: CommandSpecification, environment: Mapping[str, object]) -> str:
        """Another machine or levelbench, or a failure."""
        if record.outcome is None or (record.outcome.reason and not self._ignore):
            return "the process before failed"
        return disagreement(record.header.version, record.header.environment, environment, ())

    @contextmanager
    def opened(
        self, plan: Plan[CommandSpecification, CommandRecord], watcher: Watcher[CommandRecord]
    ) -> Iterator[Make[CommandRecord]]:
        """Set up and warm up once."""
        need_folder(self._store / FOLDER)
        if not self._preparation.done:
            self._preparation.set_up(self._commands.values(), watcher.preparing)
            nothing = make_command("true", Path.cwd())
            self._floor_s = min(carry_out_command(nothing).wall_ns for _ in range(5)) * 1e-9
            for command in self._commands.values():
                for number in range(self._warmup):
                    watcher.preparing(f"warming up {command.specification.name} ({number + 1} of {self._warmup})")
                    self._run(command)

        def make(turn: Turn, begin: Callable[[], None]) -> tuple[CommandRecord, CheckFailedError | None]:
            command = self._commands[key_of(plan.arms[turn.arm])]
            self._preparation.prepare(command)
            begin()
            return self._record(command, turn.seed, len(plan.seeds))

        yield make

    def _run(self, command: Command) -> EndedCommand:
        return carry_out_command(command, command.specification.timeout_s, show=self._show)

    def _record(self, command: Command, seed: int, wanted: int) -> tuple[CommandRecord, CheckFailedError | None]:
        environment = capture(command.folder)
        with CommandWriter.start(
            self._store,
            command.specification,
            seed=seed,
            identity=new_id(),
            environment=environment,
            planned=(self._effect, wanted),
        ) as writer:
            with LeftFiles(
                command.folder, command.text.split(), [self._store], self._earlier, light=True, training=False
            ) as left:
                ended = self._run(command)
                files = left.doubts(_REMOVE, ended.writing, _WRITE_BEFORE)
            after, reason = capture_after(), failure_of(ended, command.specification.timeout_s)
            rusage = "rusage of the process and of those that it waited for"
            writer.add(Measurement("wall", "s", ended.wall_ns * 1e-9, "the parent's monotonic clock"))
            writer.add(Measurement("user", "s", ended.user_s, rusage))
            writer.add(Measurement("system", "s", ended.system_s, rusage))
            writer.add(peak_memory(ended.peak_memory_b))
            writer.add(CommandOutcome(ended.exit_code, reason))
            suspect = list(doubts(environment, after))
            suspect += [*doubts_of(command, ended), *files]
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
        asked = f"process {seed + 1} of {command.specification.name!r}"
        do = "let it print with --show-output" + ("; give it more time: --timeout" if ended.timed_out else "")
        return record, CheckFailedError(asked, found, do)


def peak_memory(found_b: int | None) -> Measurement:
    """What a record holds of it."""
    if found_b is None:
        return Measurement("peak_memory", "B", None, None, "it is below that of levelbench, which started the process")
    return Measurement("peak_memory", "B", float(found_b), "ru_maxrss: the largest of these processes")


def doubts_of(command: Command, ended: EndedCommand) -> list[str]:
    """Reasons to doubt that the time of a process is that of the work that is meant."""
    found = []
    if ended.left:
        found.append("it left processes running when it ended: they were ended, and their time is not in its")
    if ended.strays:
        more = f" and {len(ended.strays) - 1} more files" if len(ended.strays) > 1 else ""
        found.append(
            f"it read {ended.strays[0]}{more} of the working tree, which is neither revision: if it is installed from "
            "there (pip install -e), all revisions ran the same code; docs/guides/gate.md says what to do"
        )
    if ended.fled:
        found.append(
            "it left processes running in a session of their own: what they do is not in its time, and may slow down "
            "what is measured next"
        )
    inline, script = _shell_text(command)
    if inline and _fails_silently(*inline):
        found.append("the shell tells whether its last program failed: where one before it fails, nobody notices")
    # Most scripts have no set -e, and fail nowhere: of those it has to look as if something had failed.
    unheard = any(_fails_silently(*each) for each in (inline, script) if each is not None)
    crash = _CRASHED.search(ended.errors) or (_FAILED.search(ended.errors) if unheard else None)
    if not ended.exit_code and crash is not None:
        line = crash[0].strip(": ")
        found.append(f"it ended with exit code 0 and printed {line!r}: look whether it did all of its work")
    return found


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
        shebang = re.match(r"#!\s*(?:\S*/env\s+)?(?:\S*/)?([\w.-]+)((?:\s.*)?)$", first)
        return None, (rest, shebang[2].split()) if shebang and _SHELLS.fullmatch(shebang[1]) else None
    # sh -c TEXT, as we start it and as a user may.
    flags = [at for at, word in enumerate(words[:-1]) if re.fullmatch(r"-\w*c", word)]
    if flags:
        return (words[flags[0] + 1], words[1 : flags[0] + 1]), None
    at = next((at for at, word in enumerate(words[1:], 1) if not word.startswith(("-", "+"))), None)
    return None, None if at is None else (_script(command.folder / words[at]), words[1:at])


def _script(path: Path) -> str:
    """The text of a script, without its comments; empty for any other file."""
    try:
        with path.open("rb") as file:
            text = file.read(_SCRIPT_BYTES).decode()
    except (OSError, ValueError):
        return ""
    return re.sub(r"^\s*#(?!!).*\n?|\\\n", "", text, flags=re.MULTILINE)


def _fails_silently(text: str, options: Sequence[str]) -> bool:
    """Whether a shell hears of no failure but that of the last program: after others, without ``set -e``."""
    if any(re.fullmatch(r"-\w*e\w*", each) for each in options) or re.search(r"\bset\s+-\w*e", text):
        return False
    plain = _QUOTED.sub("''", text).strip(" ;\n")
    *before, _ = re.split(r"[;\n]", plain)
    programs = [re.sub(r"^\s*((do|then|else|\{|\()\s+)?", "", part) for each in before for part in each.split("&&")]
    return "|" in plain or not all(_BUILTINS.match(each.strip()) for each in programs)


def failure_of(ended: EndedCommand, timeout_s: float | None) -> str:
    """Why it failed; empty where it did not."""
    if ended.timed_out:
        return f"it did not end within {timeout_s:g} s"
    if ended.exit_code < 0:
        return f"it was killed by {signal_name(-ended.exit_code)}"
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
