"""The command line: one file a verb, found when it is called, so that ``--help`` imports none of them.

The one idea: an error a user can act on leaves here as three lines and an exit code; a traceback is for ``--debug``.
"""

from __future__ import annotations

import sys
from importlib import import_module

import click

from levelbench import __version__
from levelbench.errors import LevelbenchError

__all__ = ["cli", "main"]

VERBS = {
    "list": "What can run here, and what each item lacks; or the runs there are.",
    "run": "Run or resume; several are interleaved and compared.",
    "show": "One run: phases, curve, warnings.",
    "compare": "Verdict, attribution and difference of environments of two sides.",
    "report": "One HTML file, with Markdown and CSV of every table.",
    "doctor": "This machine: clocks, noise, ceilings, an A/A self-test.",
}

EPILOG = """Runs are selected by an id or its beginning, task, task[key=value,...], a path, or latest.

Exit codes: 0 as wished, 1 a worse verdict or a missed target, 2 usage, 3 something is missing here, 4 cannot tell."""


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"levelbench.cli.{cmd_name}_verb").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            from levelbench.errors import UnknownNameError

            raise UnknownNameError("verb", args[0], VERBS, "see levelbench --help")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=_Verbs, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="levelbench")
def cli() -> None:
    """Measure deep learning: time to accuracy, with its spread, its clock and a verdict."""


def main(arguments: list[str] | None = None) -> None:
    """The program ``levelbench``; ends the process with the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        code = cli.main(args=words, standalone_mode=False)
    except LevelbenchError as error:
        code = _fail(error, words)
    except click.ClickException as error:
        error.show()
        code = 2
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted: what is finished is kept; the same command goes on from there", err=True)
        code = 130
    except BrokenPipeError:
        # Whoever read our output has seen enough; a second failure at the final flush would print a traceback.
        sys.stdout = None
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def _fail(error: LevelbenchError, words: list[str]) -> int:
    if "--debug" in words:
        import traceback

        click.echo(getattr(error, "trace", "") or "".join(traceback.format_exception(error)), err=True)
    click.echo(f"error: {error.asked}\nfound: {error.found}\n   do: {error.do}", err=True)
    if "--json" in words:
        import json

        parts = {"asked": error.asked, "found": error.found, "do": error.do, "exit_code": error.exit_code}
        click.echo(json.dumps({"error": parts}))
    return error.exit_code
