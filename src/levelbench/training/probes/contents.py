"""Finds out what a Python file defines by reading it: operators, an optimizer, a scheme, an engine, a task, recipes.

The file is not executed for that. Its classes and names are traced to levelbench's own, which may be imported.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from levelbench.errors import DefinitionError
from levelbench.operators.contract import Framework
from levelbench.operators.custom.definition import CustomOperator
from levelbench.training.optimizers.base import Optimizer
from levelbench.training.task import Task

Kind = Literal["operators", "optimizer", "scheme", "communicator", "engine", "training"]
_MAKERS = ("load_task",)
# By name, because their packages import this one.
_LATER: dict[tuple[str, str], Kind] = {
    ("levelbench.distributed.scheme", "Scheme"): "scheme",
    ("levelbench.distributed.communicator", "Communicator"): "communicator",
}


def kind_of(path: Path) -> Kind | None:
    """The kind that a file is checked as; ``None`` if reading it does not tell.

    A task or recipe may define its own optimizer, which is checked as part of the recipe. It may also define a scheme,
    which is checked separately.

    :raises DefinitionError: when a file defines operators and something else.
    """
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, SyntaxError, ValueError):
        # Running the file will report the line, or that it does not exist.
        return None
    found = _Contents(tree).kinds
    if "operators" in found and len(found) > 1:
        others = " and ".join(sorted(_NAMES[each] for each in found if each != "operators"))
        do = "move the operators to a file of their own, and import them from there"
        raise DefinitionError(f"check {path}", f"it defines operators and {others}", do)
    order: tuple[Kind, ...] = ("training", "scheme", "communicator", "engine", "optimizer", "operators")
    return next((each for each in order if each in found), None)


def extends(path: Path, name: str) -> bool:
    """Whether a class at the top level of the file is derived from ``name``, such as ``torch.nn.Module``."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, SyntaxError, ValueError):
        return False
    found = _Contents(tree)
    classes = (each for each in _top(tree.body) if isinstance(each, ast.ClassDef))
    return any(found.dotted(base) == name for each in classes for base in each.bases)


_NAMES = {
    "operators": "operators",
    "optimizer": "an optimizer",
    "scheme": "a scheme",
    "communicator": "a communicator",
    "engine": "an engine",
    "training": "a task or recipe",
}


class _Contents:
    """The kinds of objects that a module defines at top level, or in an ``if`` or ``try`` there."""

    def __init__(self, tree: ast.Module) -> None:
        self._imported: dict[str, str] = {}
        self._classes: dict[str, Any] = {}
        self.kinds: set[Kind] = set()
        for node in ast.walk(tree):
            self._note_import(node)
        for statement in _top(tree.body):
            self._look(statement)

    def _note_import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                self._imported[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if alias.name == "*":
                    module = _ours(node.module)
                    public = [name for name in dir(module) if not name.startswith("_")]
                    names = getattr(module, "__all__", public)
                    self._imported.update({name: f"{node.module}.{name}" for name in names})
                else:
                    self._imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def _look(self, node: ast.stmt) -> None:
        if isinstance(node, ast.ClassDef):
            parents = [self._value(base) for base in node.bases]
            parent = next((each for each in parents if isinstance(each, type)), None)
            self._classes[node.name] = parent
            self._note_kind(parent, "operators")
            if any(self.dotted(base).startswith("torch.optim.") for base in node.bases):
                self.kinds.add("optimizer")
        elif isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                if isinstance(called, ast.Attribute) and called.attr == "recipe":
                    self.kinds.add("training")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            if isinstance(node.value, ast.Call):
                self._look_at_value(node.value)
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {each.id for each in targets if isinstance(each, ast.Name)}
            if "optimizer" in names:
                self.kinds.add("optimizer")
            # A function of the file, or of a module next to it, may make the task.
            if "task" in names and isinstance(node.value, ast.Call):
                self.kinds.add("training")

    def _look_at_value(self, call: ast.Call) -> None:
        made = self._value(call.func)
        name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        if name in _MAKERS:
            self.kinds.add("training")
        else:
            self._note_kind(made, "training")

    def _note_kind(self, kind: object, first: Literal["operators", "training"]) -> None:
        """Add the kind of a class; only a definition can be an operator, and only an object a task."""
        base = CustomOperator if first == "operators" else Task
        if not isinstance(kind, type):
            return
        if issubclass(kind, base):
            self.kinds.add(first)
        elif issubclass(kind, Optimizer):
            self.kinds.add("optimizer")
        elif issubclass(kind, Framework):
            self.kinds.add("engine")
        else:
            places = ((each.__module__, each.__name__) for each in kind.__mro__)
            self.kinds |= {_LATER[place] for place in places if place in _LATER}

    def _value(self, node: ast.expr) -> Any:
        """The levelbench object that an expression names, or the base of a class in the file."""
        if isinstance(node, ast.Name) and node.id in self._classes:
            return self._classes[node.id]
        dotted = self.dotted(node)
        if not dotted.startswith("levelbench."):
            return None
        home, _, name = dotted.rpartition(".")
        return getattr(_ours(home), name, None) or _ours(dotted)

    def dotted(self, node: ast.expr) -> str:
        """The full name of what an expression refers to; empty if it was not imported."""
        if isinstance(node, ast.Name):
            return self._imported.get(node.id, "")
        if isinstance(node, ast.Attribute):
            before = self.dotted(node.value)
            return f"{before}.{node.attr}" if before else ""
        return ""


def _top(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a module, including those in ``if``, ``try`` and ``with``."""
    found: list[ast.stmt] = []
    for node in body:
        found.append(node)
        for inner in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                found += _top(getattr(node, inner, []))
    return found


def _ours(name: str) -> ModuleType | None:
    """A module of levelbench, imported; ``None`` if there is no such module."""
    if name != "levelbench" and not name.startswith("levelbench."):
        return None
    try:
        return import_module(name)
    except ImportError:
        return None
