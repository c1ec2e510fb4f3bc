"""Shows records: terminal tables, figures, one-file HTML reports, the live line.

The one idea: what is shown is data first (a ``Table``, a ``Curve``) and a rendering second, so that the terminal, the
HTML page, the Markdown and the CSV can never disagree. Names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module

_HOMES = {
    "LiveLine": "live",
    "Table": "tables",
    "estimate_text": "numbers",
    "groups_table": "runs.summaries",
    "listing": "runs.summaries",
    "live_line": "live",
    "phases_by_group": "runs.summaries",
    "print_table": "terminal",
    "runs_table": "runs.summaries",
    "to_csv": "exports",
    "to_markdown": "exports",
    "to_text": "terminal",
    "write_csv": "page.files",
    "write_markdown": "page.files",
    "write_report": "page.html",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - one list of names, kept with where they live


def __getattr__(name: str) -> object:
    """Import the home of ``name`` and return it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(_HOMES)
