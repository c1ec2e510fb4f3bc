"""Shows records: tables, figures, HTML reports in one file, the live line.

Everything is data first (a ``Table``, a ``Curves``) and rendered afterwards, so that the terminal, the HTML page, the
Markdown and the CSV cannot disagree. Names are imported when they are first used.

``levelbench.report`` is also the name of a verb, so the package can be called: ``levelbench.report("digits")``.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

_HOMES = {
    "LiveLine": "live",
    "Table": "tables",
    "estimate_text": "numbers",
    "groups_table": "runs",
    "listing": "tables",
    "live_line": "live",
    "phases_by_group": "runs",
    "print_table": "tables",
    "runs_table": "runs",
    "to_csv": "tables",
    "to_html": "markup",
    "to_json": "tables",
    "to_markdown": "tables",
    "to_text": "tables",
    "write_csv": "page",
    "write_markdown": "page",
    "write_report": "page",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - one list of names, with their modules


def __getattr__(name: str) -> object:
    """Import the module of ``name`` and return the object."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(_HOMES)


class _Callable(ModuleType):
    """A package that is a function as well (Python's data model, "Customizing module attribute access")."""

    def __call__(self, *runs: object, **options: object) -> object:
        """Write a report: ``levelbench.cli.api.report``, which the top of the package finds."""
        return import_module("levelbench").write_report(*runs, **options)


sys.modules[__name__].__class__ = _Callable
