"""The user's own code and files: which modules, variables and data a task or program depends on."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.util import source_from_cache
from itertools import islice
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import numpy as np

from levelbench import plugins
from levelbench.records.caveats import canonical, kind_of

__all__ = [
    "Uses",
    "cells_behind",
    "changed_files",
    "data_digests",
    "file_of_module",
    "installed",
    "is_data",
    "is_ours",
    "is_own",
    "is_program",
    "is_settings",
    "is_table",
    "named_settings",
    "own_modules",
    "packages_imported",
    "replaced_code",
    "settings_digests",
    "settings_of_a_run",
    "settings_outside",
    "settings_path",
    "source_behind",
    "texts_among",
    "used_by",
    "variables_read",
]

_PACKAGE = Path(__file__).resolve().parents[1]

_SITES = {"site-packages", "dist-packages"}

# As this process began: a folder of such a name that a task file puts on the path later is the file's own.
_INSTALLED = (
    *(Path(sysconfig.get_path(each)).resolve() for each in ("stdlib", "platstdlib", "purelib", "platlib")),
    *(Path(each).resolve() for each in sys.path if Path(each).name in _SITES),
)

_OTHER_PLACES = tuple(Path(each).resolve() for each in sys.path if Path(each).resolve() not in _INSTALLED)
"""Among them folders of ``pip install --target``, which the variable ``PYTHONPATH`` names."""

_MODULES = {".py", ".pyc", ".so", ".pyd"}

_PROGRAMS = {".pyd", ".class", ".jar", ".wasm"}

_LIBRARY = re.compile(r"\.so(\.\d+)*$")

_ELF = b"\x7fELF"

_PROGRAM_BYTES = 64 << 20

_TEXTS = {".py", ".toml", ".cfg", ".ini"}

_CODE = _MODULES | _TEXTS

_DATA = {".npz", ".npy", ".pt", ".ckpt", ".safetensors", ".onnx", ".pkl", ".pickle", ".gz", ".xz", ".bz2", ".zst"}

_DATA |= {".tar", ".zip", ".parquet", ".arrow", ".h5", ".hdf5", ".csv", ".jsonl", ".bin", ".idx", ".pth", ".keras"}

_DATA |= {".msgpack", ".joblib", ".feather", ".mat"}

_TABLES = {".csv", ".jsonl"}
"""Data, or settings where they are small."""

_SYSTEM = ("/proc/", "/sys/", "/etc/")

_SYSTEM_FILES = ("/dev/", "/usr/share/", "/usr/lib/")

_CACHES = {".cache", ".git"}

_COMPILED = re.compile(r"/(torchinductor_[^/]+|\.?triton|jax_cache|__pycache__)/")
"""Folders in which compilers keep what they have made."""

_LARGE_BYTES = 64 * 1024


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


def cells_behind(text: str, names: Mapping[str, object]) -> dict[str, str]:
    """The functions and classes of other cells that a cell with this ``text`` uses, and those that they use in turn.

    ``names`` are those of its notebook. Each with the SHA-256 of the cell that defined it.
    """
    found, todo = dict[str, str](), [text]
    while todo:
        for name in set(_WORD.findall(todo.pop())) - found.keys():
            value = names.get(name)
            parts = [value, *vars(value).values()] if isinstance(value, type) else [value]
            files = [each.__code__.co_filename for each in parts if isinstance(each, FunctionType)]
            texts = ("".join(linecache.getlines(each)) for each in files if not Path(each).is_file())
            cell = next(filter(None, texts), "")
            if cell and cell != text:
                found[name] = hashlib.sha256(cell.encode()).hexdigest()
                todo.append(cell)
    return dict(sorted(found.items()))


_WORD = re.compile(r"[^\W\d]\w*")


# fmt: off
_DISTRIBUTIONS = {
    "sklearn": "scikit-learn", "PIL": "pillow", "cv2": "opencv-python", "yaml": "PyYAML", "skimage": "scikit-image",
    "open_clip": "open_clip_torch",
}
# fmt: on
"""Packages whose distributions have other names; to look through all that are installed takes too long."""


def packages_imported(root: ModuleType | None, others: Iterable[ModuleType | None] = ()) -> dict[str, str]:
    """The installed packages that the user's own texts import, by name with their versions, as far as these are known.

    Neither Python's own nor levelbench is among them, nor NumPy, whose version every record has.
    """
    names = set[str]()
    for name, file, text in _own_texts(root, others):
        if file.suffix == ".py":
            names |= {each.partition(".")[0] for each in _imports_of(text, name, file.stem == "__init__")}
    found = {}
    for name in sorted(names - sys.stdlib_module_names - {_PACKAGE.name, "numpy"}):
        with suppress(importlib.metadata.PackageNotFoundError, ValueError):
            distribution = _DISTRIBUTIONS.get(name, name)
            found[distribution] = importlib.metadata.version(distribution)
    return found


@dataclass(frozen=True)
class Uses:
    """What the texts of a program name: packages, with their versions, environment variables and files of settings."""

    packages: Mapping[str, str] = field(default_factory=dict)
    variables: frozenset[str] = frozenset()
    settings: frozenset[str] = frozenset()


def used_by(root: ModuleType | None, text: str) -> Uses:
    """What ``text``, or the module ``root`` that has it, and the user's own modules that this imports name."""
    texts = [text.encode(), *(each for _, file, each in _own_texts(root, ()) if file.suffix == ".py")]
    variables = {name for each in texts for name in _variables_of(each) if name not in _SESSION}
    named = {each.decode(errors="replace") for part in texts for each in _SETTINGS_NAMED.findall(part)}
    kept = frozenset(name for name in variables if not name.startswith(_LAUNCHERS))
    return Uses(packages_imported(root), kept, frozenset(named))


_SETTINGS_NAMED = re.compile(rb"""["']([\w./+-]*\.(?:ya?ml|toml|ini|cfg|conf|env))["']""")


def settings_of_a_run(names: Iterable[str], known: Collection[object]) -> dict[str, str]:
    """The environment variables ``names`` with the start of a digest, but for what tells one run from the next.

    Those are seeds, names, places and values that are ``known``, as the settings of the run are.
    """
    plain, found = {canonical(str(each)) for each in known}, dict[str, str]()
    for name in sorted(names):
        value = os.environ.get(name, "")
        place = "/" in value and not is_settings(value)
        if not (place or canonical(value) in plain or _OF_ONE_RUN.search(name.upper())):
            found[f"${name}"] = _variable_digest(name)
    return found


_OF_ONE_RUN = re.compile(r"SEED|NAME|ID$|DIR|PATH|KEY|TOKEN|LOG|OUT|^(?:WANDB|MLFLOW|COMET|NEPTUNE|CLEARML)_")


def is_settings(name: str) -> bool:
    """Whether a file of this name holds settings."""
    return name.lower().endswith((".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".env", ".json"))


def settings_digests(paths: Iterable[Path], folder: Path) -> dict[str, str]:
    """Small texts of settings by their paths from ``folder``, each with the SHA-256 of its text without its seed."""
    found = {}
    for path in sorted(paths):
        with suppress(OSError):
            if path.stat().st_size < _LARGE_BYTES and is_own(path.resolve()):
                text = _SEED.sub(b"seed", path.read_bytes())
                found[os.path.relpath(path, folder)] = hashlib.sha256(text).hexdigest()
    return found


_SEED = re.compile(rb"""seed["']?\s*[:=]\s*\d+""", re.IGNORECASE)


def variables_read(root: ModuleType | None, others: Iterable[ModuleType | None] = ()) -> dict[str, str]:
    """The environment variables whose names the user's own texts read, each with the start of a digest of its value.

    Four digits tell whether a value has changed, and do not give a secret away. What the session, a scheduler or a
    launcher sets is left out: it is another in every process.
    """
    names = {each for _, file, text in _own_texts(root, others) if file.suffix == ".py" for each in _variables_of(text)}
    kept = (name for name in sorted(names) if not name.startswith(_LAUNCHERS) and name not in _SESSION)
    return {name: _variable_digest(name) for name in kept}


def _variable_digest(name: str) -> str:
    return hashlib.sha256(os.environ[name].encode(errors="replace")).hexdigest()[:4] if name in os.environ else ""


def settings_outside(files: Iterable[str | Path], words: Iterable[str], folder: Path) -> dict[str, str]:
    """What a program of any language may read that does not lie in ``folder``, by what its files and words name.

    The environment variables that are set, as ``$NAME`` with the start of a digest of the value, and the small texts
    elsewhere that are named by a path (``/etc/x``, ``~/x``, ``../x``, or ``.config/x`` at home), with their SHA-256.
    """
    variables = {name for name in os.environ if not name.startswith(_LAUNCHERS) and name not in _SESSION}
    names, places = set[str](), set[Path]()
    for text in (" ".join(words).encode(), *map(_bytes_of, files)):
        names |= variables.intersection(each.decode() for each in _NAME.findall(text))
        for word in {each.decode(errors="replace") for each in _PATH.findall(text)}:
            place = _HOME.sub("~/", word)
            place = f"~/{place}" if place[0] == "." and place[1] not in "./" else place
            places.add(Path(os.path.normpath(folder / os.path.expanduser(place))))  # noqa: PTH111 - raises nothing
    near = {folder, folder.resolve()}
    far = (each for each in sorted(places) if not any(map(each.is_relative_to, near)) and _is_far_text(each))
    found = {f"${name}": _variable_digest(name) for name in sorted(names)}
    return found | {_from(folder, Path(path)): digest for path, digest in texts_among(far).items()}


def _bytes_of(file: str | Path) -> bytes:
    with suppress(OSError):
        return Path(file).read_bytes()
    return b""


def _is_far_text(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size < _LARGE_BYTES and _far_settings(path.resolve(), ())
    except (OSError, ValueError):
        return False


def _from(folder: Path, place: Path) -> str:
    """The path from ``folder``, or from the home of the user, where ``folder`` does not lie."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - raises nothing without a home
    hidden = place.is_relative_to(home) and not folder.is_relative_to(home)
    return f"~/{place.relative_to(home)}" if hidden else os.path.relpath(place, folder)


_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]+")

_PATH = re.compile(rb"""(?<![\w./~$}{-])(?:~?/|\$\{?HOME\}?/|\.\./|\.(?=\w))[\w./@+-]{2,200}""")

_HOME = re.compile(r"^\$\{?HOME\}?/")


# fmt: off
_LAUNCHERS = (
    "SLURM_", "OMPI_", "PMI", "TORCHELASTIC_", "LEVELBENCH_", "RANK", "LOCAL_", "WORLD_", "MASTER_", "GROUP_",
    "SSH_", "XDG_", "DBUS_", "TERM_", "VTE_", "TMUX", "GPG_", "JPY_", "VSCODE_", "CONDA_", "BASH_", "HIST",
)

_SESSION = {
    "PWD", "OLDPWD", "TMPDIR", "TMP", "TEMP", "PATH", "PYTHONPATH", "HOME", "USER", "COLUMNS", "LINES", "TERM", "SHLVL",
    "LOGNAME", "SHELL", "HOSTNAME", "DISPLAY", "WINDOWID", "STY", "LS_COLORS", "COLORTERM", "MAIL", "LANG", "EDITOR",
    "PAGER", "VIRTUAL_ENV", "PS1", "NO_COLOR", "FORCE_COLOR", "PYTHONUNBUFFERED", "INVOCATION_ID",
}
# fmt: on


def _own_texts(root: ModuleType | None, others: Iterable[ModuleType | None]) -> Iterator[tuple[str, Path, bytes]]:
    """The names, files and texts of ``root``, ``others`` and what they import, of those that are the user's own."""
    if root is None:
        return
    queue = [root.__name__, *(each.__name__ for each in others if each is not None)]
    # A notebook has no file that says what it imports.
    queue += _held_by(root) if file_of_module(root.__name__) is None else ()
    seen = set(queue)
    for name in queue:
        file = file_of_module(name)
        if file is None or not is_own(file):
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


def is_own(file: Path) -> bool:
    """Whether a file belongs to the user: neither to levelbench, to Python nor to an installed package."""
    if any(file.is_relative_to(each) for each in (_PACKAGE, *_INSTALLED)):
        return False
    places = (each for each in _OTHER_PLACES if each in file.parents)
    return not any(file.relative_to(each).parts[0] in _packages_in(each) for each in places)


@lru_cache
def _packages_in(folder: Path) -> frozenset[str]:
    """The files and folders that were installed into a folder, as far as its records of packages say."""
    found: set[str] = set()
    for record in folder.glob("*.dist-info/RECORD"):
        with suppress(OSError):
            text = record.read_text(errors="replace")
            found.update(re.findall(r"^([^./\\,\n][^/\\,\n]*)", text, re.MULTILINE))
    return frozenset(found)


def installed(module: object) -> bool:
    """Whether a package is Python's or installed; a module next to the task's file is neither."""
    file = getattr(module, "__file__", None)
    if file is None:
        return module is not None and not getattr(module, "__path__", None)
    return not is_own(Path(file).resolve())


def file_of_module(name: str) -> Path | None:
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
    if (
        path.suffix in _CODE
        or _LIBRARY.search(path.name)
        or str(path).startswith(_SYSTEM)
        or _COMPILED.search(str(path))
    ):
        return False
    try:
        return path.is_file() and (path.suffix.lower() in _DATA or path.stat().st_size >= _LARGE_BYTES)
    except OSError:
        return False


def is_table(path: Path) -> bool:
    """Whether it is a small table, as data are but also the settings of a program."""
    try:
        return path.suffix.lower() in _TABLES and path.stat().st_size < _LARGE_BYTES
    except OSError:
        return False


def is_program(path: Path) -> bool:
    """Whether it is compiled: a program, a library or a class, as one starts and loads them."""
    try:
        if path.stat().st_size > _PROGRAM_BYTES:
            return False
        if path.suffix in _PROGRAMS or _LIBRARY.search(path.name):
            return True
        with path.open("rb") as file:
            return path.suffix != ".o" and file.read(len(_ELF)) == _ELF
    except OSError:
        return False


def source_behind(path: Path) -> Path:
    """The Python source of which ``path`` is what Python has compiled; ``path`` itself if it is no such file."""
    try:
        return Path(source_from_cache(str(path))) if path.suffix == ".pyc" else path
    except ValueError:
        return path


def texts_among(paths: Iterable[Path]) -> dict[str, str]:
    """Sources, small files that may be settings and compiled programs, of the user's own: paths with their SHA-256.

    A link has its own path, for it may point elsewhere later.
    """
    found = {}
    for path in map(source_behind, paths):
        with suppress(OSError):
            resolved, named = path.resolve(), Path(os.path.normpath(path.absolute()))
            if not resolved.is_file() or str(resolved).startswith(_SYSTEM) or not is_own(resolved):
                continue
            text = resolved.suffix not in _CODE - _TEXTS and not is_data(resolved)
            if text or is_table(resolved) or is_program(resolved):
                # Where a link comes before "..", the two differ.
                place = named if named.resolve() == resolved else resolved
                found[str(place)] = hashlib.sha256(resolved.read_bytes()).hexdigest()
    return found


def data_digests(paths: Iterable[Path], folder: Path) -> dict[str, str]:
    """Data files by their paths from ``folder``, each with a digest of its size and of some parts of it.

    Of many files of one kind, such as the images of a folder, a choice stands for all: other runs choose the same.
    """
    found, kinds = dict[str, str](), dict[str, list[Path]]()
    for path in sorted(paths, key=lambda path: (hashlib.sha256(path.name.encode()).digest(), path)):
        kinds.setdefault(kind_of(path.name), []).append(path)
    chosen = (path for files in kinds.values() for path in files[:_MOST_OF_A_KIND])
    for path in sorted(islice(chosen, _MOST_FILES)):
        with suppress(OSError):
            state = path.stat()
            found[os.path.relpath(path, folder)] = _digest_of_parts(path, state.st_size, state.st_mtime_ns)
    return found


@lru_cache(maxsize=1 << 12)
def _digest_of_parts(path: Path, size: int, changed_ns: int) -> str:
    """A digest of the size and some parts of a file that was changed last at this time."""
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for at in range(_PARTS):
            file.seek(max(0, size - _PART_BYTES) * at // (_PARTS - 1))
            digest.update(file.read(_PART_BYTES))
    return digest.hexdigest()


_MOST_OF_A_KIND, _MOST_FILES, _PARTS, _PART_BYTES = 20, 256, 16, 1 << 16


def changed_files(then: Mapping[str, str], place: Callable[[str], Path]) -> list[str]:
    """The names under which ``then`` has other digests than their files have now; ``place`` says where these are."""
    return [name for name, digest in then.items() if {digest} != {*texts_among([place(name)]).values()}]


def named_settings(texts: Mapping[str, str], reference: str, apart: Iterable[Path]) -> dict[str, str]:
    """The ``texts`` that may be settings of the task's file ``reference``, by their paths from its folder.

    Of those that are not below it, none is binary, a cache, part of the system or in one of the folders ``apart``.
    """
    folder = Path(reference).absolute().parent
    found = {}
    for path, digest in sorted(texts.items()):
        place = Path(path)
        near = [str(place.relative_to(each)) for each in (folder, folder.resolve()) if place.is_relative_to(each)]
        if place.suffix == ".py" and _COMPILED.search(str(place)):
            continue
        if near:
            found[near[0]] = digest
        elif reference.endswith(".py") and _far_settings(place.resolve(), apart):
            found[_from(folder, place)] = digest
    return found


def _far_settings(file: Path, apart: Iterable[Path]) -> bool:
    if str(file).startswith(_SYSTEM_FILES) or _COMPILED.search(str(file)) or _CACHES.intersection(file.parts):
        return False
    venv = [Path(sys.prefix)] if sys.prefix != sys.base_prefix else []
    if any(file.is_relative_to(each.resolve()) for each in (*apart, *venv)):
        return False
    try:
        # What is compiled says nothing elsewhere, but belongs to the tree in which one works.
        return b"\0" not in file.read_bytes() or (is_program(file) and file.is_relative_to(Path.cwd()))
    except OSError:
        return False


def settings_path(name: str, folder: Path) -> Path:
    """The file that :func:`named_settings` or :func:`settings_outside` has named so, from this folder."""
    place = os.path.expanduser(name) if name.startswith("~/") else name  # noqa: PTH111
    return Path(os.path.normpath(folder / place))


def replaced_code(references: Iterable[str] | None = None) -> list[str]:
    """The functions and methods of levelbench and of Python in whose place is code of the user's own files.

    With ``references`` it is that of these tasks' files and of the files next to them.
    """
    found = {}
    tasks = [Path(each).resolve().parent for each in references or () if each.endswith(".py")]
    for name, module in list(sys.modules.items()):
        if name not in _RELIED_ON and not (name.startswith("levelbench.") and installed(module)):
            continue
        for holder in (module, *(each for each in vars(module).values() if isinstance(each, type))):
            if getattr(holder, "__module__", name) != name:
                continue
            for attribute, value in vars(holder).items():
                function = getattr(value, "__func__", getattr(value, "fget", value))
                code = getattr(function, "__code__", None)
                if not isinstance(code, CodeType) or not _of_the_user(code.co_filename):
                    continue
                # What NumPy does not have any more, or yet, an older program may add.
                if name == "numpy" and attribute not in _NUMPY:
                    continue
                if references is None or any(Path(code.co_filename).resolve().is_relative_to(each) for each in tasks):
                    shown = f"{holder.__qualname__}.{attribute}" if isinstance(holder, type) else attribute
                    whose = (
                        f"{'NumPy' if name == 'numpy' else 'Python'}'s own {name}."
                        if name in _RELIED_ON
                        else "levelbench's own "
                    )
                    found[whose + shown] = Path(code.co_filename).name
    return [f"{what} was replaced by code in {file}: run it without" for what, file in found.items()]


_NUMPY = frozenset(dir(np))

_RELIED_ON = {"gc", "hashlib", "json", "numpy", "os", "resource", "time"}
"""Modules that measuring itself calls; others are a program's to change, as ``warnings.showwarning``."""


@lru_cache(maxsize=4096)
def _of_the_user(file: str) -> bool:
    """Whether code is of a user's own file; what is made at run time, as by ``dataclass``, has none."""
    return not file.startswith("<") and is_own(Path(file).resolve())


def is_ours(reference: str) -> bool:
    """Whether a task comes with levelbench."""
    point = plugins.names("task").get(reference)
    return point is not None and point.value.startswith("levelbench.")
