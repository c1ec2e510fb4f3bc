"""``levelbench board``: the competition; its commands are imported when they are called."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from levelbench.errors import UnknownNameError

__all__ = ["WORDS", "command"]

WORDS = {
    "submit": "Write an entry from the records of runs.",
    "check": "Check a leaderboard, or one entry, against every rule.",
    "score": "Score predictions on a private test set, as its organiser.",
    "freeze": "Close a round: its entries may no longer change.",
    "build": "Build the static site of a leaderboard.",
    "verify": "Run an entry again from its own source, and see whether its claim holds.",
    "import": "Read other systems' entries and logs into a leaderboard.",
    "museum": "Build one site of what other systems published.",
    "export": "Write entries in other systems' formats.",
    "keys": "Make a key, show it, sign an entry.",
}
_COMMANDS = {
    "submit": "board_submit:submit",
    "check": "board_check:check",
    "score": "board_check:score_entry",
    "freeze": "board_check:freeze_round",
    "build": "board_check:build_site",
    "verify": "rerun_verb:verify",
    "import": "board_exchange:import_entries",
    "museum": "board_exchange:museum",
    "export": "board_exchange:export",
    "keys": "board_submit:keys",
}


class _BoardGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(WORDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in WORDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(f"levelbench.cli.{module}"), name)
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


@click.group("board", cls=_BoardGroup)
def command() -> None:
    """The competition: entries made from records, checked automatically, and a site built from one folder."""
