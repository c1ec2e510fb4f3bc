"""The optimizers that a user's file defines, and the reference that it names for them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from levelbench import plugins
from levelbench.errors import DefinitionError, LevelbenchError
from levelbench.training.optimizers.base import Optimizer, UpdateRule

__all__ = ["load_optimizers"]

_USUAL_RATE = 0.01


def load_optimizers(path: Path) -> tuple[dict[str, Optimizer], str | Optimizer | None]:
    """The optimizers of a file by name, and what it calls ``reference``.

    That is ``optimizer`` where the file defines it; else every optimizer that it makes; else its own subclasses of
    ``UpdateRule``, made of their defaults (and a rate of 0.01 where ``lr`` has none). The file is run. Raises
    ``UsageError`` where it is not there, ``DefinitionError`` where it raises, naming the line, or defines none.
    """
    module = plugins.load_file("optimizer", path)
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
            f"{kind.__name__} of {path}", f"making it raised {plugins.place(error, path)}", "correct the file"
        ) from error
