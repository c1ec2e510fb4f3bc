"""Watching the import of a task's file: what it does then would be off the clock.

A run's clock starts after its task was imported, so work that a file does at import would be free. What other packages
do while the file imports them is theirs; the rest is the file's own: its processor time is recorded, data that it opens
and processes that it starts are refused.
"""

from __future__ import annotations

import _thread
import builtins
import gc
import importlib
import os
import resource
import shlex
import signal
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from levelbench.experiments.own_code import (
    file_of_module,
    installed,
    is_data,
    is_own,
    is_program,
    source_behind,
    texts_among,
)
from levelbench.measure.clocks import utc_now
from levelbench.measure.meters.resources import children_of

__all__ = [
    "TASK_FOLDER",
    "Importing",
    "files_changed",
    "files_read",
    "files_written",
    "processes_started",
    "usual_cpu_s",
    "watched",
]

_STARTED = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"}

_OPENED = {"open", "sqlite3.connect", "ctypes.dlopen"}

_CHANGED = {"os.mkdir": 0, "os.remove": 0, "os.rmdir": 0, "os.truncate": 0, "os.utime": 0, "os.chmod": 0}
_CHANGED |= {"os.setxattr": 0, "os.rename": 1, "os.link": 1, "os.symlink": 1}
"""Events that change the file system, and which of their arguments is the path."""

_STARTERS = ("start_new_thread", "start_new", "start_joinable_thread", "_start_new_thread", "_start_joinable_thread")

_LEAST_CHILD_S = 0.1

_LARGE_S = 0.1


@dataclass
class Importing:
    """What a task's file did while it was imported.

    ``cpu_s`` is its own processor time, ``imports_cpu_s`` that of the packages which it imported, ``opened`` the data
    that it read, ``made`` what it wrote and ``texts`` the small files with their SHA-256, ``started`` the processes,
    ``threads`` how many it started, ``hooks`` what it left behind by which it would work later, unasked. ``rest_s`` is
    the processor time of its thread between its import and the clock. ``usual_s`` is what a plain task's file
    takes here and now, and ``watching_s`` what the watching itself took: on a busy machine both take longer.
    ``began_s`` is when it began, in seconds since 1970, and ``had`` are the modules that were loaded before.
    ``rewritten`` are the files that the run has opened for writing, each with its text's SHA-256 before that.
    ``ran`` are the programs that its own code started after the import, by their names.
    """

    cpu_s: float = 0.0
    imports_cpu_s: float = 0.0
    opened: list[Path] = field(default_factory=list)
    made: set[Path] = field(default_factory=set)
    texts: dict[str, str] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    threads: int = 0
    hooks: list[str] = field(default_factory=list)
    rest_s: float = 0.0
    usual_s: float = 0.0
    watching_s: float = 0.0
    began_s: float = field(default_factory=lambda: utc_now().timestamp())
    had: frozenset[str] = field(default_factory=lambda: frozenset(sys.modules))
    rewritten: dict[Path, set[str]] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)

    def add(self, later: Importing) -> None:
        """What it did later, before the clock, counts with it."""
        self.cpu_s += later.cpu_s
        self.imports_cpu_s += later.imports_cpu_s
        self.opened += later.opened
        self.made |= later.made
        self.texts |= later.texts
        self.started += later.started
        self.threads += later.threads
        self.hooks += later.hooks
        self.watching_s += later.watching_s
        self.rewritten = later.rewritten | self.rewritten

    def writes(self, path: Path) -> None:
        """It is about to write ``path``."""
        with suppress(OSError, ValueError):
            if (place := path.resolve()) not in self.rewritten:
                self.rewritten[place] = {*texts_among([place]).values()}

    def passing(self, path: Path) -> bool:
        """Whether it is a temporary file of its own, which has another name or content each time."""
        return path in self.made and path.is_relative_to(tempfile.gettempdir())

    def read_in_all(self, late: Iterable[Path], run: str) -> dict[str, str]:
        """The sources and small texts that the run has read, and the modules that it has loaded, with their SHA-256.

        Those that the run itself has changed are left out, as a log is; a file that it wrote as it was is settings. Of
        one read ``late`` that others have changed since the import nobody knows which text was read: what stands for
        its digest is like no other.
        """
        texts = texts_among(dict.fromkeys([*map(source_behind, late), *_loaded_since(self.had)]))
        for path in texts:
            if Path(path).resolve() not in self.rewritten and Path(path).stat().st_ctime > self.began_s:
                texts[path] = f"changed while {run} ran"
        return {path: digest for path, digest in (texts | self.texts).items() if not self._has_changed(Path(path))}

    def _has_changed(self, path: Path) -> bool:
        before = self.rewritten.get(path.resolve())
        return before is not None and before != {*texts_among([path]).values()}

    def facts(self) -> dict[str, float]:
        """For the record."""
        return {"task_cpu_s": round(self.cpu_s, 4), "task_imports_cpu_s": round(self.imports_cpu_s, 4)}


class _Hook:
    """An audit hook, active only while a task's file is imported or file reads are recorded.

    Python cannot remove an audit hook, so all files share one.
    """

    def __init__(self) -> None:
        self.watching: Importing | None = None
        self.listening: Callable[[Path, bool], object] | None = None
        self.noting: Callable[[Path], object] | None = None
        self.starting: Callable[[str, list[Path]], object] | None = None
        self.changing: Callable[[Path], object] | None = None
        self.installing = False
        """While a package is imported, whose time is counted as a whole."""
        self._in_place, self._telling = False, set[int]()

    def put_in_place(self) -> None:
        """Once."""
        if not self._in_place:
            sys.addaudithook(self)
            self._in_place = True

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        watching = self.watching
        if self.changing is not None and (changed := _changed(event, arguments)) is not None and _by_own_code():
            self._tell(self.changing, changed)
        path = arguments[0] if event in _OPENED else None
        if isinstance(path, str | bytes) and (watching or self.listening or self.noting):
            if threading.get_ident() in self._telling:
                return
            flags = (arguments[2] or 0) if event == "open" else 0
            # What it makes new, or empties, says nothing of what was there before.
            new = bool(flags & (os.O_TRUNC | os.O_EXCL))
            if flags & os.O_ACCMODE != os.O_RDONLY:
                self._tell_of_writing(path)
            if new or flags & os.O_ACCMODE != os.O_WRONLY:
                file = Path(os.fsdecode(path))
                if watching is not None:
                    (watching.made.add if new else watching.opened.append)(file)
                elif self.listening is not None:
                    self._tell(self.listening, file, new)
        elif event == "os.rename" and isinstance(arguments[1], str | bytes):
            self._tell_of_writing(arguments[1])
        elif event in _STARTED and self.starting is not None and _by_own_code():
            self._tell(self.starting, *_started(event, arguments))
        if watching is None:
            return
        if event in _STARTED:
            watching.started.append(event)
        elif event == "sys.addaudithook":
            watching.hooks.append("an audit hook")

    def _tell_of_writing(self, path: str | bytes) -> None:
        for hear in (self.noting, None if self.watching is None else self.watching.writes):
            if hear is not None:
                self._tell(hear, Path(os.fsdecode(path)))

    def _tell(self, hear: Callable[..., object], *what: object) -> None:
        """Whoever hears of a file may read it, which is not the program's reading."""
        here = threading.get_ident()
        self._telling.add(here)
        try:
            hear(*what)
        finally:
            self._telling.discard(here)


_HOOK = _Hook()

# A task's file may put something else in its place.
_collect, _thread_s = gc.collect, time.thread_time


@contextmanager
def files_read(hear: Callable[[Path], object], *, everywhere: bool = False) -> Iterator[None]:
    """Tell ``hear`` of each file that this thread opens for reading within, but of those that it has made itself.

    ``everywhere`` asks for those of all threads, in which ``hear`` is then called.
    """
    here, made = threading.get_ident(), set[Path]()

    def listen(path: Path, new: bool) -> None:
        if threading.get_ident() != here and not everywhere:
            return
        if new:
            made.add(path)
        elif path not in made:
            hear(path)

    _HOOK.put_in_place()
    _HOOK.listening = listen
    try:
        yield
    finally:
        _HOOK.listening = None


@contextmanager
def _told(hear: Callable[..., object], what: str) -> Iterator[None]:
    """Have ``hear`` told by the hook within."""
    _HOOK.put_in_place()
    setattr(_HOOK, what, hear)
    try:
        yield
    finally:
        setattr(_HOOK, what, None)


def files_written(hear: Callable[[Path], object]) -> AbstractContextManager[None]:
    """Tell ``hear`` of each file that is opened for writing within."""
    return _told(hear, "noting")


def files_changed(hear: Callable[[Path], object]) -> AbstractContextManager[None]:
    """Tell ``hear`` of each file or folder that the user's own code makes, writes, removes or marks within."""
    return _told(hear, "changing")


def _changed(event: str, arguments: tuple[Any, ...]) -> Path | None:
    """What an event changes, if it changes a file or folder."""
    at = _CHANGED.get(event)
    if at is None:
        writes = event == "open" and (arguments[2] or 0) & os.O_ACCMODE != os.O_RDONLY
        at = 0 if writes or event == "sqlite3.connect" else None
    path = None if at is None else arguments[at]
    return Path(os.fsdecode(path)) if isinstance(path, str | bytes) else None


def processes_started(hear: Callable[[str, list[Path]], object]) -> AbstractContextManager[None]:
    """Tell ``hear`` of each process that the user's own code starts within: its program, and the files that it names.

    What it reads happens in another process, where nothing hears it. A compiler that a package starts is not meant.
    """
    return _told(hear, "starting")


_PYTHONS = tuple(sysconfig.get_path(each) for each in ("stdlib", "platstdlib"))


def _by_own_code() -> bool:
    """Whether it is the user's own code that does what an audit hook is told of, itself or through Python's modules."""
    frame: FrameType | None = sys._getframe(2)  # of the hook's caller
    while frame is not None:
        file = frame.f_code.co_filename
        sites = "site-packages" in file or "dist-packages" in file
        if not file.startswith("<frozen") and (sites or not file.startswith(_PYTHONS)):
            return is_own(Path(file).resolve())
        frame = frame.f_back
    return False


def _started(event: str, arguments: tuple[Any, ...]) -> tuple[str, list[Path]]:
    """The name of a program that is started, and the files that its words name, those in a shell's text among them."""
    given = arguments[0] if event == "os.system" else arguments[1] if len(arguments) > 1 else ()
    words = [given] if isinstance(given, str | bytes | os.PathLike) else list(given or ())
    texts = [os.fsdecode(each) for each in words if isinstance(each, str | bytes | os.PathLike)]
    folder = Path(arguments[2]) if event == "subprocess.Popen" and arguments[2] else Path.cwd()
    split = list(texts)
    for each in texts:
        with suppress(ValueError):
            split += shlex.split(each)
    named = [folder / each.rpartition("=")[2] for each in dict.fromkeys(split)]
    # A shell is started for what stands in its text.
    shell = len(texts) > 2 and texts[1] == "-c"
    program = (texts[2] if shell else texts[0]).strip().partition(" ")[0] if texts else "a copy of itself"
    files = []
    for path in named:
        with suppress(OSError, ValueError):
            files += [path] if path.is_file() and not is_program(path) else []
    return Path(program).name, files


@contextmanager
def watched() -> Iterator[Importing]:
    """Watch the import of a task's file that happens within; one within another belongs to the outer one."""
    if _HOOK.watching is not None:
        yield _HOOK.watching
        return
    entered_s = _thread_s()
    _HOOK.put_in_place()
    seen, children_s = Importing(), 0.0

    def watching(original: Callable[..., Any]) -> Callable[..., Any]:
        def importing(name: str, *given: object, **named: object) -> object:
            nonlocal children_s
            # What an installed package imports is its own; what a module next to the file imports is looked at.
            if _HOOK.installing or not _is_installed(name, given, named):
                return original(name, *given, **named)
            before_s, before_children_s = _thread_s(), _children_cpu_s()
            opened, started, threads = len(seen.opened), len(seen.started), seen.threads
            _HOOK.installing = True
            try:
                module = original(name, *given, **named)
                # What a large package throws away is not to be looked for in the file's time.
                if _thread_s() - before_s > _LARGE_S:
                    _collect()
            finally:
                _HOOK.installing = False
            # With a finder of its own in place, what looks like the import of a package may be the file's work.
            if installed(sys.modules.get(name.partition(".")[0])) and not _own(sys.meta_path):
                seen.imports_cpu_s += _thread_s() - before_s
                children_s += _children_cpu_s() - before_children_s
                seen.threads = threads
                del seen.opened[opened:], seen.started[started:]
            return module

        return importing

    children_s, had = _children_cpu_s(), set(children_of("self"))

    ways: list[tuple[Any, str, Callable[[Any], object]]] = [
        (builtins, "__import__", watching),
        (importlib, "import_module", watching),
        (SourceFileLoader, "source_to_code", partial(_compiling, seen)),
        *(
            (place, name, partial(_counting, seen))
            for place in (_thread, threading)
            for name in _STARTERS
            if hasattr(place, name)
        ),
    ]
    originals, hooked = [getattr(place, name) for place, name, _ in ways], _hooks()
    _HOOK.watching = seen
    for (place, name, wrap), original in zip(ways, originals, strict=True):
        setattr(place, name, wrap(original))
    # Others than the file's own objects take long to look through.
    was_frozen = _is_frozen()
    _collect()
    gc.freeze()
    began_s = _thread_s()
    try:
        yield seen
    finally:
        # What is thrown away may have a last word, which is not to fall between the import and the clock. Looking for
        # it takes as long as a second time, when there is nothing any more.
        _collect()
        ended_s = _thread_s()
        _collect()
        looking_s = _thread_s() - ended_s
        if not was_frozen:
            gc.unfreeze()
        seen.cpu_s = max(0.0, ended_s - began_s - looking_s - seen.imports_cpu_s)
        _HOOK.watching = None
        for (place, name, _), original in zip(ways, originals, strict=True):
            setattr(place, name, original)
        seen.hooks += [each for each in _hooks() if each not in hooked]
        if not seen.started and (_children_cpu_s() - children_s > _LEAST_CHILD_S or set(children_of("self")) - had):
            seen.started.append("another process")
        seen.texts = texts_among(path for path in seen.opened if not seen.passing(path))
        seen.opened = [path for path in seen.opened if is_data(path)]
        seen.watching_s = _thread_s() - entered_s - seen.cpu_s - seen.imports_cpu_s


@cache
def _is_frozen() -> bool:
    """Whether something else than this keeps objects from the collector; to count them each time takes long."""
    return gc.get_freeze_count() > 0


def _loaded_since(had: Container[str]) -> Iterator[Path]:
    """The sources of the user's own modules that this process has loaded, those that it ``had`` before apart."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name in had or not isinstance(file, str) or not file.endswith(".py"):
            continue
        # What a package has made at run time, as a compiler does, is its own.
        if not installed(sys.modules.get(name.partition(".")[0])):
            yield Path(file)


class _TaskFolder:
    """The folder of the current task file: modules next to it can be imported, as those of a script can.

    It stays until another file's turn, for a recipe may import too. Each file gets the ``helper`` of its own folder:
    what an earlier one has imported from its folder is forgotten, as is what goes by the name of a module here.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._before: set[str] = set()

    @contextmanager
    def switch_to(self, folder: Path) -> Iterator[None]:
        """Make ``folder`` current: from now on, or only within the block if one task file loads another."""
        outer = self._folder if _HOOK.watching is not None else None
        self._turn(folder)
        try:
            yield
        finally:
            if outer is not None:
                self._turn(outer)

    def _turn(self, folder: Path) -> None:
        if folder == self._folder:
            return
        here = {each.stem for each in folder.glob("*.py")} | {each.parent.name for each in folder.glob("*/__init__.py")}
        for name, module in list(sys.modules.items()):
            top = name.partition(".")[0]
            place = _folder_of(sys.modules.get(top, module))
            old = place == self._folder and name not in self._before
            if place is not None and (old or (top in here and place != folder)):
                del sys.modules[name]
        if self._folder is not None and str(self._folder) in sys.path:
            sys.path.remove(str(self._folder))
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
        self._folder, self._before = folder, set(sys.modules)


def _folder_of(module: ModuleType) -> Path | None:
    """The folder in which a module of the user's own lies, or in which its package does; ``None`` for any other."""
    paths = list(getattr(module, "__path__", ())) or [getattr(module, "__file__", None)]
    if not isinstance(paths[0], str) or module.__name__ in ("__main__", "levelbench"):
        return None
    place = Path(paths[0]).resolve()
    return place.parent if is_own(place) and not module.__name__.startswith("levelbench_") else None


TASK_FOLDER = _TaskFolder()


def usual_cpu_s() -> float:
    """The processor time of what a plain task's file does while it is imported, here and now; 0 within an import."""
    if _HOOK.watching is not None:
        return 0.0
    code = compile(_PLAIN, "<a plain task>", "exec")
    began_s = _thread_s()
    exec(code, {"__name__": "plain_task"})  # a text of ours
    return _thread_s() - began_s


_PLAIN = """
from levelbench.training import Momentum, Recipe, Shuffled, Task, Top1, datasets

task = Task("plain", data=datasets.digits, quality=Top1(target=0.9), description="as an example has it")


@task.recipe
def plain(lr: float = 0.05, epochs: int = 20) -> Recipe:
    return Recipe(None, Shuffled(64), Momentum(lr), epochs=epochs)
"""


def _compiling(seen: Importing, original: Callable[..., object]) -> Callable[..., object]:
    def compile_text(*given: object, **named: object) -> object:
        before_s = _thread_s()
        try:
            return original(*given, **named)
        finally:
            # Python does it once, or each time where it may not keep what it has compiled.
            if not _HOOK.installing:
                seen.imports_cpu_s += _thread_s() - before_s

    return compile_text


def _counting(seen: Importing, original: Callable[..., object]) -> Callable[..., object]:
    def start(*given: object, **named: object) -> object:
        seen.threads += 1
        return original(*given, **named)

    return start


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _hooks() -> list[str]:
    """What is in place, of the user's own code, that is called without being asked for: timers, signals, callbacks."""
    timers = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
    found = ["a timer"] * any(signal.getitimer(each)[0] > 0 for each in timers)
    handlers = [signal.getsignal(each) for each in signal.valid_signals()]
    for what, values in (
        ("a signal handler", handlers),
        ("a callback of the garbage collector", gc.callbacks),
        ("an import hook", [*sys.meta_path, *sys.path_hooks]),
        ("a trace or profile function", [sys.gettrace(), sys.getprofile()]),
    ):
        found += [what] * bool(_own(values))
    return found


def _own(values: Iterable[object]) -> list[object]:
    """Those that are functions, methods or instances of classes of the user's own files."""
    found = []
    for each in values:
        code = getattr(getattr(each, "__func__", each), "__code__", None)
        module = sys.modules.get(getattr(each, "__module__", None) or type(each).__module__)
        file = code.co_filename if code is not None else getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and _own_file(os.path.abspath(file)):  # noqa: PTH100
            found.append(each)
    return found


@lru_cache(4096)
def _own_file(file: str) -> bool:
    return is_own(Path(file).resolve())


def _is_installed(name: str, given: tuple[object, ...], named: Mapping[str, object]) -> bool:
    """Whether an import, by the arguments of ``__import__`` or ``import_module``, is of an installed package."""
    level = given[3] if len(given) > 3 else named.get("level", 0)
    top = name.partition(".")[0]
    if level or not top:
        return False
    if top in sys.modules:
        return installed(sys.modules[top])
    file = file_of_module(top)
    return top in sys.stdlib_module_names if file is None else not is_own(file)
