"""``levelbench board``: the competition; each of its words is a module of its own, found when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from levelbench.errors import UnknownNameError

__all__ = ["WORDS", "command"]

WORDS = {
    "submit": "Write an entry from the records of runs.",
    "check": "Hold a leaderboard, or one entry, to every rule.",
    "build": "Build the static site of a leaderboard.",
    "import": "Read other systems' entries and logs into a leaderboard.",
    "export": "Write entries in other systems' formats.",
    "keys": "Make a key, show it, sign an entry.",
}


def _module(word: str) -> str:
    # No module that is imported by name can be called "import".
    return f"levelbench.cli.board.{'importing' if word == 'import' else word}"


class _Words(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(WORDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in WORDS:
            return None
        command: click.Command = import_module(_module(cmd_name)).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            raise UnknownNameError("command of board", args[0], known, "see levelbench board --help")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(word, WORDS[word]) for word in self.list_commands(ctx)])


@click.group("board", cls=_Words)
def command() -> None:
    """The competition: entries made from records, checked by a machine, and a site that one folder builds."""
