"""The optimizers that a user's file defines, and the reference that it names for them."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from levelbench.errors import DefinitionError, LevelbenchError, UsageError
from levelbench.training.optimizers.base import Optimizer, UpdateRule

__all__ = ["load_optimizers"]

_USUAL_RATE = 0.01


def load_optimizers(path: Path) -> tuple[dict[str, Optimizer], str | Optimizer | None]:
    """The optimizers of a file by name, and what it calls ``reference``.

    That is ``optimizer`` where the file defines it; else every optimizer that it makes; else its own subclasses of
    ``UpdateRule``, made of their defaults (and a rate of 0.01 where ``lr`` has none). The file is run. Raises
    ``UsageError`` where it is not there, ``DefinitionError`` where it raises, naming the line, or defines none.
    """
    module = _run(path)
    reference = getattr(module, "reference", None)
    if reference is not None and not isinstance(reference, str | Optimizer):
        raise DefinitionError(
            f"`reference` of {path}", f"it is of type {type(reference).__name__}", "give a name or an optimizer"
        )
    found = {
        name: each for name, each in vars(module).items() if isinstance(each, Optimizer) and not name.startswith("_")
    }
    if "optimizer" in found:
        return {_title(found["optimizer"]): found["optimizer"]}, reference
    found.pop("reference", None)
    if found:
        return found, reference
    own = [
        each
        for each in vars(module).values()
        if inspect.isclass(each) and issubclass(each, UpdateRule) and each.__module__ == module.__name__
    ]
    made: dict[str, Optimizer] = {each.__name__: _made(each, path) for each in own if not inspect.isabstract(each)}
    if not made:
        do = "write optimizer = ..., or a subclass of UpdateRule with defaults"
        raise DefinitionError(f"optimizer file {path}", "it defines no optimizer", do)
    return made, reference


def _title(optimizer: Optimizer) -> str:
    return type(optimizer).__name__


def _made(kind: type[UpdateRule], path: Path) -> UpdateRule:
    parameters = inspect.signature(kind).parameters
    needs = [name for name, each in parameters.items() if each.default is inspect.Parameter.empty]
    given: dict[str, Any] = {"lr": _USUAL_RATE} if needs == ["lr"] else {}
    if needs not in ([], ["lr"]):
        do = f"give them defaults, or write optimizer = {kind.__name__}(...)"
        raise DefinitionError(f"{kind.__name__} of {path}", f"{', '.join(needs)} have no default", do)
    try:
        return kind(**given)
    except LevelbenchError:
        raise
    except Exception as error:  # a user's class may raise anything; it becomes an error with its place
        raise DefinitionError(
            f"{kind.__name__} of {path}", f"making it raised {_place(error, path)}", "correct the file"
        ) from error


def _run(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"optimizer file {path}", "there is no such file", "give the path of a Python file")
    name = f"levelbench_optimizer_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DefinitionError(f"optimizer file {path}", "Python cannot import it", "give a .py file")
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up there.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except LevelbenchError:
        raise
    except Exception as error:  # a user's file may raise anything; it becomes an error with its place
        raise DefinitionError(
            f"optimizer file {path}", f"it raised {_place(error, path)}", "correct the file"
        ) from error
    return module


def _place(error: BaseException, path: Path) -> str:
    """The error, and the line of the user's file that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else (lines[-1] if lines else None)
    where = f" at line {line}" if line else ""
    return f"{type(error).__name__}: {error}{where}"
