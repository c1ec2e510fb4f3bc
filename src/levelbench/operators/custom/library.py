"""Loads operators from files as classes: a Python file is imported, a C++ file is compiled and loaded.

A compiled library describes its operators itself (names, attributes with their defaults, types). Loading runs code from
the file; :mod:`levelbench.operators.custom.isolation` does that in a separate process.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from levelbench.checks.isolation import JsonLine
from levelbench.errors import DefinitionError, LevelbenchError, MissingError, UnknownNameError, UnsupportedError
from levelbench.operators.custom.compile import compile_source
from levelbench.operators.custom.compiled import CompiledOperator, Library
from levelbench.operators.custom.definition import Attribute, CustomOperator, register


def classes_of(library: Library) -> list[type[CompiledOperator]]:
    """One class per operator of the file."""
    return [_class(library, at, each) for at, each in enumerate(library.descriptions)]


def _class(library: Library, index: int, description: JsonLine) -> type[CompiledOperator]:
    name, inputs = description["name"], _names(description["inputs"])
    place = f"the operator {name} in {library.source}"
    members = {
        "__doc__": f"{name} of {library.source.name}.",
        "__module__": __name__,
        "name": name,
        "inputs": inputs,
        "outputs": _names(description["outputs"]),
        "library": library,
        "index": index,
        "source": library.source,
        "types": tuple(description["types"]),
        "typed_by": description["typed_by"],
        "defaults": {name: _default(kind, values) for name, kind, values in description["attributes"]},
        "kinds": {name: kind for name, kind, _ in description["attributes"]},
        "example_shapes": _shapes(description.get("examples", ""), len(inputs), place),
        "runs_on_cuda": description["cuda"],
    }
    if not 0 <= description["typed_by"] < len(inputs):
        found = f"its typed_by is {description['typed_by']}, and its inputs are {description['inputs']}"
        raise DefinitionError(place, found, "give the number of an input, from 0")
    made: type[CompiledOperator] = type(name, (CompiledOperator,), members)
    made.has_backward = description["backward"]
    return made


def _default(kind: str, values: Sequence[float | str]) -> Attribute:
    """The value with its type: in the JSON that C++ writes, 2.0 may look like 2."""
    typed: list[Any] = [float(each) for each in values] if kind in "fF" else list(values)
    return typed if kind.isupper() else typed[0]


def _names(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(","))


def _shapes(text: str, inputs: int, place: str) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """``4x8, 8; 1x1, 1``: cases separated by semicolons, one shape per input by commas; ``-`` for a scalar."""
    cases = []
    for case in (each for each in text.split(";") if each.strip()):
        words = [each.strip() for each in case.split(",")]
        try:
            shapes = tuple(() if word == "-" else tuple(int(size) for size in word.split("x")) for word in words)
        except ValueError:
            shapes = ()
        if len(shapes) != inputs or any(size < 0 for shape in shapes for size in shape):
            found = f"the example {case.strip()!r} does not give {inputs} shapes"
            raise DefinitionError(place, found, 'write them as "4x8, 8; 1x1, 1" ("-" for a scalar)')
        cases.append(shapes)
    return tuple(cases)


SUFFIXES: Final = (".cc", ".cpp", ".cu", ".cxx")
"""The suffixes of C++ files."""

_LIBRARIES: dict[tuple[Path, Path], list[type[CompiledOperator]]] = {}


def load_file(path: str | Path) -> list[type[CustomOperator]]:
    """The operators that a file defines, in its order, registered by their names.

    Raises ``MissingError`` without the file or a compiler, and ``DefinitionError`` for a file that raises, does not
    compile, or defines no operator.
    """
    path = Path(path)
    if not path.is_file():
        raise MissingError(f"the operator file {path}", "there is no such file", "give the path of a .py or .cpp file")
    if path.suffix not in (".py", *SUFFIXES):
        do = f"give a file that ends in .py, {', '.join(SUFFIXES)}"
        raise DefinitionError(f"the operator file {path}", f"unknown suffix {path.suffix!r}", do)
    classes: list[type[CustomOperator]]
    classes = _of_module(_import(path), path) if path.suffix == ".py" else [*_compiled(path)]
    names = [each.name for each in classes]
    if twice := {name for name in names if names.count(name) > 1}:
        found = f"it defines {' and '.join(sorted(twice))} more than once"
        raise DefinitionError(f"the operator file {path}", found, "give each operator a different name")
    for each in classes:
        register(each)
    return classes


def compiled(path: str | Path, name: str = "") -> type[CompiledOperator]:
    """The class of a C++ file's operator, to derive from: for a reference, examples or a cost written in Python.

    A relative path is relative to the calling file. ``name`` chooses an operator if the file defines several.
    """
    path = Path(path)
    if not path.is_absolute():
        frame = inspect.currentframe()
        caller = frame.f_back.f_code.co_filename if frame is not None and frame.f_back is not None else ""
        path = Path(caller).parent / path if Path(caller).is_file() else path
    classes = {each.name: each for each in _compiled(path)}
    if not name and len(classes) == 1:
        return next(iter(classes.values()))
    if name not in classes:
        raise UnknownNameError(f"operator of {path.name}", name, classes)
    return classes[name]


def cuda_class(cls: type[CompiledOperator]) -> type[CompiledOperator]:
    """The same operator compiled with nvcc for this machine's GPU; ``UnsupportedError`` if it has no CUDA code."""
    base = next(each for each in cls.__mro__ if "index" in each.__dict__)
    found = {each.index: each for each in _compiled(cls.source, cuda=True)}[base.__dict__["index"]]
    if not found.runs_on_cuda:
        raise UnsupportedError(f"{cls.name} on CUDA", "it has no forward_cuda", "write one, or use --device cpu")
    return found


def _compiled(path: Path, cuda: bool = False) -> list[type[CompiledOperator]]:
    source = path.resolve()
    made = compile_source(path, cuda=cuda)
    # A library never changes, so its classes are made once.
    if (made, source) not in _LIBRARIES:
        _LIBRARIES[made, source] = classes_of(Library(made, source))
    return _LIBRARIES[made, source]


_OWN: Final = str(Path(__file__).resolve().parents[2]) + os.sep


def is_foreign(file: str) -> bool:
    """Whether a file of Python code is the user's, and not of this package, Python or an installed package."""
    return not (
        file.startswith((_OWN, "<")) or f"{os.sep}site-packages{os.sep}" in file or f"{os.sep}lib{os.sep}python" in file
    )


def _import(path: Path) -> ModuleType:
    """The module of a file, under a name that is unique to its path."""
    resolved = path.resolve()
    name = f"levelbench_operators_{path.stem}_{hashlib.sha256(str(resolved).encode()).hexdigest()[:12]}"
    loader = _Loader(name, str(resolved))
    spec = importlib.util.spec_from_file_location(name, resolved, loader=loader)
    if spec is None:
        raise DefinitionError(f"the operator file {path}", "Python cannot import it", "give a .py file")
    module = importlib.util.module_from_spec(spec)
    known = sys.modules.get(name)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except LevelbenchError:
        _put_back(name, known)
        raise
    except (Exception, SystemExit) as error:  # a user's file may raise anything
        _put_back(name, known)
        found = f"it raised {_place(error, resolved)}"
        raise DefinitionError(f"the operator file {path}", found, "correct the file") from error
    return module


def _put_back(name: str, known: ModuleType | None) -> None:
    """Replace a module that failed to load by the previous one, if any."""
    if known is None:
        sys.modules.pop(name, None)
    else:
        sys.modules[name] = known


_CODES: dict[tuple[str, bytes], CodeType] = {}


def keep_code(path: str) -> None:
    """Compile a Python file of operators, for this process and those forked from it while its text is the same."""
    loader = _Loader("", str(Path(path).resolve()))
    data = loader.get_data(loader.path)
    _CODES[loader.path, data] = loader.source_to_code(data, loader.path)


class _Loader(SourceFileLoader):
    """Compiles the current text: Python's own cache treats a file as unchanged if its second and size are."""

    def get_code(self, fullname: str) -> CodeType | None:
        data = self.get_data(self.path)
        return _CODES.get((self.path, data)) or self.source_to_code(data, self.path)


def _place(error: BaseException, path: Path) -> str:
    """The error, with the line of the user's file that raised it."""
    lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == str(path)]
    line = error.lineno if isinstance(error, SyntaxError) else (lines[-1] if lines else None)
    return f"{type(error).__name__}: {error}" + (f" at line {line}" if line else "")


def _of_module(module: ModuleType, path: Path) -> list[type[CustomOperator]]:
    """The concrete operator classes that the module itself defines, not those that it imports."""
    found = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, CustomOperator) and each.__module__ == module.__name__
    ]
    found = [each for each in dict.fromkeys(found) if not inspect.isabstract(each)]
    if not found:
        do = "write a class derived from levelbench.operators.custom.CustomOperator"
        raise DefinitionError(f"the operator file {path}", "it defines no operator", do)
    return found
