"""Task files that are not ours: what one does while it is imported, and what quick probes find in it.

A run's clock starts after its task was imported, so work that a file does at import would be free. What other packages
do while the file imports them is theirs; the rest is the file's own: its processor time is recorded, data that it opens
and processes that it starts are refused.
"""

from __future__ import annotations

import _thread
import ast
import builtins
import gc
import hashlib
import importlib
import os
import re
import resource
import signal
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from levelbench import plugins
from levelbench.checks.findings import Report
from levelbench.errors import DefinitionError
from levelbench.measure.clocks import HOST
from levelbench.measure.meters.resources import children_of
from levelbench.records.schema import redact
from levelbench.training.task import Setting, Task

__all__ = ["Importing", "import_doubts", "is_ours", "own_modules", "quick_doubts", "refuse_data", "replaced_code"]
__all__ += ["BESIDE", "target_doubts", "usual_cpu_s", "variables_read", "watched"]

_PACKAGE = Path(__file__).resolve().parents[1]
_SITES = {"site-packages", "dist-packages"}
# As this process began: a folder of such a name that a task file puts on the path later is the file's own.
_INSTALLED = (
    *(Path(sysconfig.get_path(each)).resolve() for each in ("stdlib", "platstdlib", "purelib", "platlib")),
    *(Path(each).resolve() for each in sys.path if Path(each).name in _SITES),
)
_MODULES = {".py", ".pyc", ".so", ".pyd"}
_CODE = _MODULES | {".toml", ".cfg", ".ini"}
_DATA = {".npz", ".npy", ".pt", ".ckpt", ".safetensors", ".onnx", ".pkl", ".pickle", ".gz", ".xz", ".bz2", ".zst"}
_DATA |= {".tar", ".zip", ".parquet", ".arrow", ".h5", ".hdf5", ".csv", ".jsonl", ".bin", ".idx", ".pth", ".keras"}
_DATA |= {".msgpack", ".joblib", ".feather", ".mat"}
_SYSTEM = ("/proc/", "/sys/", "/etc/")
_COMPILED = re.compile(r"/(torchinductor_[^/]+|\.?triton|jax_cache|__pycache__)/")
"""Folders in which compilers keep what they have made."""
_LARGE_BYTES = 64 * 1024
_STARTED = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"}

_STARTERS = ("start_new_thread", "start_new", "start_joinable_thread", "_start_new_thread", "_start_joinable_thread")

_SHOWN = 4
_LEAST_CHILD_S = 0.1
_LARGE_S = 0.1
_LEAST_CPU_S = 0.005
_MOST_REST_S = 0.1
"""What the harness itself does between the import of a task and the clock takes a quarter of that, or all if busy."""
_TIMES_USUAL, _TIMES_WATCHING = 10, 5
"""Ordinary files take 1 to 3 times what a plain one takes, and the harness 2 times what the watching takes."""
_SHARE, _TASK_SHARE, _IMPORTS_SHARE = 0.01, 0.05, 0.02
_QUICK_BYTES = 512 * 2**20
_QUICK_S = 0.5


@dataclass
class Importing:
    """What a task's file did while it was imported.

    ``cpu_s`` is its own processor time, ``imports_cpu_s`` that of the packages which it imported, ``opened`` the data
    that it read and ``texts`` the small files with their SHA-256, ``started`` the processes, ``threads`` how many it
    started, ``hooks`` what it left behind by which it would work later, unasked. ``rest_s`` is the processor time of
    its thread between its import and the clock. ``usual_s`` is what a plain task's file takes here and now, and
    ``watching_s`` what the watching itself took: on a busy machine both take longer, as all does.
    """

    cpu_s: float = 0.0
    imports_cpu_s: float = 0.0
    opened: list[Path] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    threads: int = 0
    hooks: list[str] = field(default_factory=list)
    rest_s: float = 0.0
    usual_s: float = 0.0
    watching_s: float = 0.0

    def add(self, later: Importing) -> None:
        """What it did later, before the clock, counts with it."""
        self.cpu_s += later.cpu_s
        self.imports_cpu_s += later.imports_cpu_s
        self.opened += later.opened
        self.texts |= later.texts
        self.started += later.started
        self.threads += later.threads
        self.hooks += later.hooks
        self.watching_s += later.watching_s

    def facts(self) -> dict[str, float]:
        """For the record."""
        return {"task_cpu_s": round(self.cpu_s, 4), "task_imports_cpu_s": round(self.imports_cpu_s, 4)}


class _Hook:
    """Hears of what the interpreter does; deaf but while a task's file is imported, or somebody listens for files.

    It can never be taken away again once it is in place, so there is one for all files.
    """

    def __init__(self) -> None:
        self.watching: Importing | None = None
        self.listening: Callable[[Path, bool], object] | None = None
        self.installing = False
        """While a package is imported, whose time is counted as a whole."""
        self._in_place = False

    def put_in_place(self) -> None:
        """Once."""
        if not self._in_place:
            sys.addaudithook(self)
            self._in_place = True

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        watching = self.watching
        path = arguments[0] if event in ("open", "sqlite3.connect") else None
        if isinstance(path, str | bytes) and (watching is not None or self.listening is not None):
            flags = (arguments[2] or 0) if event == "open" else 0
            # What it makes new, or empties, says nothing of what was there before.
            new = bool(flags & (os.O_TRUNC | os.O_EXCL))
            if new or flags & os.O_ACCMODE != os.O_WRONLY:
                file = Path(os.fsdecode(path))
                if watching is None and self.listening is not None:
                    self.listening(file, new)
                elif watching is not None and not new:
                    watching.opened.append(file)
        if watching is None:
            return
        if event in _STARTED:
            watching.started.append(event)
        elif event == "sys.addaudithook":
            watching.hooks.append("an audit hook")


_HOOK = _Hook()
# A task's file may put something else in its place.
_collect, _thread_s = gc.collect, time.thread_time


@contextmanager
def files_read(hear: Callable[[Path], object]) -> Iterator[None]:
    """Tell ``hear`` of each file that this thread opens for reading within, but of those that it has made itself."""
    here, made = threading.get_ident(), set[Path]()

    def listen(path: Path, new: bool) -> None:
        if threading.get_ident() != here:
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
            if _installed(sys.modules.get(name.partition(".")[0])) and not _own(sys.meta_path):
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
    was_frozen = gc.get_freeze_count()
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
        seen.texts = texts_among(seen.opened)
        seen.opened = [path for path in seen.opened if is_data(path)]
        seen.watching_s = _thread_s() - entered_s - seen.cpu_s - seen.imports_cpu_s


class _Beside:
    """The folder of the task's file whose turn it is: modules next to it can be imported, as those of a script can.

    It stays until another file's turn, for a recipe may import too. Each file gets the ``helper`` of its own folder:
    what an earlier one has imported from its folder is forgotten, as is what goes by the name of a module here.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._before: set[str] = set()

    @contextmanager
    def turn_to(self, folder: Path) -> Iterator[None]:
        """It is the folder's turn, from now on, or within where a task's file loads that of another task."""
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
    return place.parent if _is_own(place) and not module.__name__.startswith("levelbench_") else None


BESIDE = _Beside()


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
        if isinstance(file, str) and file.endswith(".py") and _is_own(Path(file).resolve()):
            found.append(each)
    return found


def _is_installed(name: str, given: tuple[object, ...], named: Mapping[str, object]) -> bool:
    """Whether an import, by the arguments of ``__import__`` or ``import_module``, is of an installed package."""
    level = given[3] if len(given) > 3 else named.get("level", 0)
    top = name.partition(".")[0]
    if level or not top:
        return False
    if top in sys.modules:
        return _installed(sys.modules[top])
    file = _file_of(top)
    return top in sys.stdlib_module_names if file is None else not _is_own(file)


def _installed(module: object) -> bool:
    """Whether a package is of Python or installed; what lies beside the task's file is the file's own."""
    file = getattr(module, "__file__", None)
    if file is None:
        return module is not None and not getattr(module, "__path__", None)
    return not _is_own(Path(file).resolve())


def own_modules(root: ModuleType | None, others: Iterable[ModuleType | None] = ()) -> dict[str, str]:
    """The user's own modules that ``root`` and ``others`` import, by name with the SHA-256 of their files.

    They are found by what the texts say, wherever in a file it is said, and by what the modules hold: what else this
    process has loaded, or has not loaded yet, does not matter. Neither ``root`` nor what is installed is among them.
    """
    digests = {}
    for name, file, text in _own_texts(root, others):
        if root is None or name != root.__name__:
            # A task file has the digest of its path in its name, which says nothing elsewhere.
            known = file.stem if name.startswith("levelbench_task_") else name
            digests[known] = hashlib.sha256(text).hexdigest()
    return dict(sorted(digests.items()))


def variables_read(root: ModuleType | None, others: Iterable[ModuleType | None] = ()) -> dict[str, str]:
    """The environment variables whose names the user's own texts read, each with the start of a digest of its value.

    Four digits tell whether a value has changed, and do not give a secret away. What the session, a scheduler or a
    launcher sets is left out: it is another in every process.
    """
    names = {each for _, file, text in _own_texts(root, others) if file.suffix == ".py" for each in _variables_of(text)}
    return {
        name: hashlib.sha256(os.environ[name].encode(errors="replace")).hexdigest()[:4] if name in os.environ else ""
        for name in sorted(names)
        if not name.startswith(_LAUNCHERS) and name not in _SESSION
    }


_LAUNCHERS = ("SLURM_", "OMPI_", "PMI", "TORCHELASTIC_", "LEVELBENCH_", "RANK", "LOCAL_", "WORLD_", "MASTER_", "GROUP_")
_SESSION = {"PWD", "OLDPWD", "TMPDIR", "TMP", "TEMP", "PATH", "PYTHONPATH", "HOME", "USER", "COLUMNS", "LINES", "TERM"}


def _own_texts(root: ModuleType | None, others: Iterable[ModuleType | None]) -> Iterator[tuple[str, Path, bytes]]:
    """The names, files and texts of ``root``, ``others`` and what they import, of those that are the user's own."""
    if root is None:
        return
    queue = [root.__name__, *(each.__name__ for each in others if each is not None)]
    seen = set(queue)
    for name in queue:
        file = _file_of(name)
        if file is None or not _is_own(file):
            continue
        try:
            text = file.read_bytes()
        except OSError:
            continue
        yield name, file, text
        imported = _imports_of(text, name, file.stem == "__init__") if file.suffix == ".py" else ()
        for each in (*imported, *_held_by(sys.modules.get(name))):
            parts = each.split(".")
            wanted = [".".join(parts[: at + 1]) for at in range(len(parts))]
            queue += [one for one in wanted if one not in seen]
            seen.update(wanted)


def _is_own(file: Path) -> bool:
    return not any(file.is_relative_to(each) for each in (_PACKAGE, *_INSTALLED))


def _file_of(name: str) -> Path | None:
    """The file of a module that is loaded or, without loading it, of one that would be; none if it has no file."""
    module = sys.modules.get(name)
    if module is not None:
        file = getattr(module, "__file__", None)
        return Path(file).resolve() if isinstance(file, str) else None
    package, _, _ = name.rpartition(".")
    places = _places_of(package) if package else None
    try:
        spec = None if package and places is None else PathFinder.find_spec(name, places)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).resolve() if spec is not None and spec.has_location and spec.origin else None


def _places_of(package: str) -> list[str] | None:
    """Where the modules of a package lie; none if it is no package."""
    module = sys.modules.get(package)
    if module is not None:
        return list(getattr(module, "__path__", ())) or None
    outer, _, _ = package.rpartition(".")
    places = _places_of(outer) if outer else None
    spec = None if outer and places is None else PathFinder.find_spec(package, places)
    return list(spec.submodule_search_locations or ()) or None if spec is not None else None


def _nodes_of(text: bytes) -> Iterator[ast.AST]:
    try:
        yield from ast.walk(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return


@lru_cache(maxsize=1024)
def _variables_of(text: bytes) -> tuple[str, ...]:
    """The names that stand in ``os.environ["NAME"]``, ``os.environ.get("NAME")``, ``os.getenv("NAME")``."""
    found = []
    for node in _nodes_of(text):
        match node:
            case ast.Subscript(value=place, slice=ast.Constant(value=str(name)), ctx=ast.Load()) if (
                _last(place) == "environ"
            ):
                found.append(name)
            case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]):
                of = _last(function.value) if isinstance(function, ast.Attribute) else ""
                if _last(function) == "getenv" or (of == "environ" and _last(function) in ("get", "pop", "setdefault")):
                    found.append(name)
            case ast.Compare(left=ast.Constant(value=str(name)), comparators=[place]) if _last(place) == "environ":
                found.append(name)
    return tuple(found)


def _last(node: ast.expr) -> str:
    """The last name of ``a.b.c``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@lru_cache(maxsize=1024)
def _imports_of(text: bytes, name: str, is_package: bool) -> tuple[str, ...]:
    """The modules that a text imports anywhere; of ``from a import b`` also ``a.b``, which may be one."""
    here = name.split(".")
    names = []
    for node in _nodes_of(text):
        if isinstance(node, ast.Import):
            names += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            # One dot is the package itself, each more the one around it.
            outer = here[: len(here) - node.level + is_package] if node.level else []
            base = ".".join([*outer, *([node.module] if node.module else [])])
            if base:
                names += [base, *(f"{base}.{each.name}" for each in node.names if each.name != "*")]
    return tuple(dict.fromkeys(names))


def _held_by(module: ModuleType | None) -> list[str]:
    """The loaded modules that a module has in its names, or whose functions and classes it has."""
    held = []
    for value in list(vars(module).values()) if module is not None else ():
        if isinstance(value, ModuleType):
            held.append(value.__name__)
        elif isinstance(value, FunctionType | type) and isinstance(value.__module__, str):
            held.append(value.__module__)
    return list(dict.fromkeys(each for each in held if each in sys.modules))


def is_data(path: Path) -> bool:
    """Not code, nor what the system says of itself, nor a small text, which may be settings."""
    if path.suffix in _CODE or str(path).startswith(_SYSTEM) or _COMPILED.search(str(path)):
        return False
    try:
        return path.is_file() and (path.suffix.lower() in _DATA or path.stat().st_size >= _LARGE_BYTES)
    except OSError:
        return False


def read_besides(read: Iterable[Path], loaded: Container[Path]) -> list[str]:
    """The doubt on a run that ``read`` data of the user's own for its network, but for those that ``loaded`` has."""
    own = [path for path in dict.fromkeys(read) if path not in loaded and is_data(path) and _is_own(path.resolve())]
    if not own:
        return []
    names = ", ".join(path.name for path in own[:_SHOWN]) + (f" and {len(own) - _SHOWN} more" * (len(own) > _SHOWN))
    return [
        f"data were read while its recipe and network were made ({names}): look for weights that were trained before, "
        "or for what an earlier run has computed; read training data in load()"
    ]


def texts_among(paths: Iterable[Path]) -> dict[str, str]:
    """The small files that may be settings, no code and of nobody's package: their names with their SHA-256."""
    found = {}
    for path in paths:
        with suppress(OSError):
            resolved = path.resolve()
            other = resolved.suffix in _MODULES or str(resolved).startswith(_SYSTEM) or is_data(resolved)
            if resolved.is_file() and not other and _is_own(resolved):
                found[str(resolved)] = hashlib.sha256(resolved.read_bytes()).hexdigest()
    return found


def refuse_data(reference: str, seen: Importing, when: str = "while it is imported") -> None:
    """``DefinitionError`` where the file has opened data or started processes before the clock runs."""
    # Where a task's file loads another one, all that is open so far is still in it.
    if names := ", ".join(dict.fromkeys(path.name for path in seen.opened if is_data(path))):
        raise DefinitionError(
            f"task file {reference}",
            f"it opens data {when}, before any clock runs: {names}",
            "read data in load() of its DatasetSource, which is on the clock",
        )
    if seen.started:
        raise DefinitionError(
            f"task file {reference}",
            f"it starts a process {when}, before any clock runs ({seen.started[0]})",
            "do this work in load() of its DatasetSource or in its recipe, which are on the clock",
        )
    if seen.hooks:
        raise DefinitionError(
            f"task file {reference}",
            f"it leaves {', '.join(seen.hooks)} behind {when}, which may work before any clock runs",
            "install it in load() of its DatasetSource or in its recipe, which are on the clock",
        )


def replaced_code(references: Iterable[str] | None = None) -> list[str]:
    """The functions and methods of levelbench and of Python in whose place is code of the user's own files.

    With ``references`` it is that of these tasks' files and of what lies beside them.
    """
    found = {}
    tasks = [Path(each).resolve().parent for each in references or () if each.endswith(".py")]
    for name, module in list(sys.modules.items()):
        if name not in _RELIED_ON and not (name.startswith("levelbench.") and _installed(module)):
            continue
        for holder in (module, *(each for each in vars(module).values() if isinstance(each, type))):
            if getattr(holder, "__module__", name) != name:
                continue
            for attribute, value in vars(holder).items():
                function = getattr(value, "__func__", getattr(value, "fget", value))
                code = getattr(function, "__code__", None)
                if not isinstance(code, CodeType) or not _of_the_user(code.co_filename):
                    continue
                if references is None or any(Path(code.co_filename).resolve().is_relative_to(each) for each in tasks):
                    shown = f"{holder.__qualname__}.{attribute}" if isinstance(holder, type) else attribute
                    whose = f"Python's own {name}." if name in _RELIED_ON else "levelbench's own "
                    found[whose + shown] = Path(code.co_filename).name
    return [f"{what} was replaced by code in {file}: run it without" for what, file in found.items()]


_RELIED_ON = {"gc", "hashlib", "json", "os", "resource", "time"}
"""Modules of Python that measuring itself calls; others are a program's to change, as ``warnings.showwarning``."""


@lru_cache(maxsize=4096)
def _of_the_user(file: str) -> bool:
    """Whether code is of a user's own file; what is made at run time, as by ``dataclass``, has none."""
    return not file.startswith("<") and _is_own(Path(file).resolve())


def import_doubts(seen: Importing, wall_s: float) -> list[str]:
    """Why a run of so many seconds is to be doubted for what its task's file did before."""
    found = []
    least_s = max(_LEAST_CPU_S, _TIMES_USUAL * seen.usual_s)
    if seen.cpu_s > max(least_s + _IMPORTS_SHARE * seen.imports_cpu_s, _TASK_SHARE * wall_s):
        found.append(
            f"its task file spent {seen.cpu_s:.2g} s of processor time before its clock started: do this "
            "work in load(), or in the recipe"
        )
    if seen.rest_s > max(_MOST_REST_S, _TIMES_WATCHING * seen.watching_s, _SHARE * wall_s):
        found.append(
            f"{seen.rest_s:.2g} s of processor time went by between the import of its task file and its clock: look "
            "for what the file has started"
        )
    if seen.threads:
        threads = f"{seen.threads} thread{'s' * (seen.threads > 1)}"
        found.append(f"its task file started {threads} before its clock: start none there")
    return found


def is_ours(reference: str) -> bool:
    """Whether a task comes with levelbench."""
    point = plugins.names("task").get(reference)
    return point is not None and point.value.startswith("levelbench.")


def target_doubts(task: Task, target: float, data: Path | None) -> list[str]:
    """Whether any network reaches this target of a task of ours, where it is lower than the task's own."""
    from levelbench.training.probes.task import target_report

    if task.quality.direction != "higher" or target >= task.quality.target:
        return []
    try:
        dataset = task.data.load(data)
    except Exception:  # noqa: BLE001  # the run itself says so
        return []
    return _sentences(target_report(task, dataset, target))


def quick_doubts(
    task: Task, recipe: str, settings: Mapping[str, Setting], data: Path | None, target: float
) -> list[str]:
    """What the quick ones among the probes of ``levelbench check`` find wrong, in sentences.

    Empty where the data or the recipe cannot be made at all: the run itself says so.
    """
    from levelbench.training.probes.task import quick_report

    began_ns = HOST.now_ns()
    try:
        dataset = task.data.load(data)
        parts = task.assemble(recipe, settings)
    except Exception:  # noqa: BLE001  # the boundary to a user's file
        return []
    quick = (HOST.now_ns() - began_ns) * 1e-9 < _QUICK_S
    again = (lambda: task.data.load(data)) if quick else None
    report = quick_report(task, recipe, settings, parts, dataset, again, _QUICK_BYTES, target)
    return _sentences(report)


def _sentences(report: Report) -> list[str]:
    return [redact(f"levelbench check, {each.probe}: {each.found}: {each.do}") for each in report.failed]
