"""A line on standard error that says how far something is: rewritten on a terminal, one after the other elsewhere."""

from __future__ import annotations

import shutil
import sys
from typing import Any, Self

import click

from levelbench.cli import options as shared

__all__ = ["ProgressLine"]


class ProgressLine:
    """Entered while the work lasts; the line is wiped at its end."""

    def __init__(self) -> None:
        self.live = bool(sys.stderr is not None and sys.stderr.isatty())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        if self.live:
            self._put("\r\x1b[2K", newline=False)

    def say(self, text: str) -> None:
        """Show ``text`` in place of what is there, cut to the terminal; elsewhere as a line of its own."""
        if self.live:
            self._put("\r\x1b[2K" + text[: shutil.get_terminal_size().columns - 1], newline=False)
        else:
            self._put(text, newline=True)

    def _put(self, text: str, newline: bool) -> None:
        with shared.as_far_as_read(err=True):
            click.echo(text, err=True, nl=newline)
