"""Shows records: tables, figures, HTML reports in one file, the live line.

Everything is data first (a ``Table``, a ``Curves``) and rendered afterwards, so that the terminal, the HTML page, the
Markdown and the CSV cannot disagree. Names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module

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
