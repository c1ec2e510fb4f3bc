"""The command line: one file a verb, found when it is called, so that ``--help`` imports none of them.

Whatever happens leaves here as an exit code, and an error a user can act on as three lines before it; a
traceback is for ``--debug``.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any

import click

from levelbench import __version__
from levelbench.cli import options as shared
from levelbench.errors import LevelbenchError, UnknownNameError, UsageError

__all__ = ["cli", "main"]

SECTIONS = {
    "Main job": {
        "run": "Run or resume tasks; several are interleaved and compared.",
        "list": "What can run here, and what each item lacks; or the runs and measurements in the store.",
        "show": "One run: phases, curve, warnings; or what infer measured.",
        "time": "Programs that are not ours, in any language, timed and compared.",
        "import": "What TensorBoard, MLflow, W&B, hyperfine or pyperf left behind, as records.",
        "compare": "Verdict, attribution and difference of environments of two sides.",
        "analyze": "What many runs say together: composition, target.",
        "report": "One HTML file, with Markdown and CSV of every table.",
        "rm": "Remove runs with their checkpoints and trained networks.",
    },
    "Levels": {
        "operator": "Level 0: operators measured against each other and the machine's ceilings.",
        "network": "Level 1: whole networks, their latency and memory, and where the time goes.",
        "infer": "Latency, throughput and accuracy of a trained network under a scenario.",
        "scale": "Level 3: time to accuracy on more and more ranks, and what they gain.",
        "communicator": "Level 3: latency and bandwidth of what ranks talk through.",
    },
    "Checks": {
        "check": "Is this operator, network, optimizer, task, recipe or scheme well-formed and right?",
        "conformance": "ONNX's own node tests through each framework.",
        "lint": "The twelve ways to fool the masses, as rules over a performance claim.",
    },
    "Competition": {
        "board": "Submit, check, sign, build, import, export.",
    },
    "Machine": {
        "data": "Datasets: what there is, download, check, what they are made of.",
        "doctor": "This machine: clocks, noise, ceilings, an A/A self-test.",
    },
}
VERBS = [verb for verbs in SECTIONS.values() for verb in verbs]

EPILOG = """Runs are selected by an id or its beginning, task, task[key=value,...], a path, or latest.

Exit codes: 0 as wished, 1 a finding, a worse verdict or a missed target, 2 usage, 3 something is missing here,
4 cannot tell, 70 a bug of levelbench."""

_BUG = 70
_COMPLETE = "_LEVELBENCH_COMPLETE"
"""Set where a shell asks what the rest of a word may be."""


class _PipeClosedError(Exception):
    """A reader has gone. Click would end a ``BrokenPipeError`` in exit code 1; it lets this one through."""


@contextmanager
def _past_click() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _PipeClosedError from error


class _Verbs(click.Group):
    def make_context(self, *given: Any, **more: Any) -> click.Context:
        with _past_click():
            return super().make_context(*given, **more)

    def invoke(self, ctx: click.Context) -> Any:
        with _past_click():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return VERBS

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "task":
            # Its only command, ``tune-target``, has become ``analyze target``; scripts may still call it.
            former: click.Command = import_module("levelbench.cli.analyze_verb").task
            return former
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"levelbench.cli.{cmd_name}_verb").command
        if _COMPLETE in os.environ:
            import_module("levelbench.cli.completion").complete_values(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in (*VERBS, "task") and not args[0].startswith("-"):
            raise UnknownNameError("verb", args[0], VERBS, "see levelbench --help")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, VERBS))
        for title, verbs in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{verb:<{width}}", said) for verb, said in verbs.items()])


@click.group(cls=_Verbs, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="levelbench")
def cli() -> None:
    """Measure deep learning: time to accuracy, with its spread, its clock and a verdict."""


def main(arguments: list[str] | None = None) -> None:
    """The program ``levelbench``; ends the process with the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        with _interruptible() as received:
            code = _carried_out(words, received)
    except (BrokenPipeError, _PipeClosedError):
        # The reader of our output has closed it.
        shared.mute()
        code = 0
    sys.exit(code)


def _carried_out(words: list[str], received: list[int]) -> int:
    try:
        code = cli.main(args=words, prog_name="levelbench", standalone_mode=False)
        with shared.as_far_as_read():
            if sys.stdout is not None:
                sys.stdout.flush()
    except LevelbenchError as error:
        return _fail(error, words)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        return _fail(_in_three_parts(error), words)
    except (KeyboardInterrupt, click.Abort):
        with shared.as_far_as_read(err=True):
            click.echo(_advice(words), err=True)
        return 128 + (received[0] if received else signal.SIGINT)
    except (BrokenPipeError, _PipeClosedError):
        raise
    except Exception as error:  # noqa: BLE001  # the program's boundary
        return _fail(_bug(error), words)
    return code if isinstance(code, int) else 0


@contextmanager
def _interruptible() -> Iterator[list[int]]:
    """SIGTERM and SIGHUP end the program as Ctrl-C does: what is under way is put in order. The signals received.

    A signal that is ignored (``nohup``) or has a handler already stays as it is.
    """
    received: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    mine = []
    if threading.current_thread() is threading.main_thread():
        mine = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    for each in mine:
        signal.signal(each, interrupt)
    try:
        yield received
    finally:
        for each in mine:
            signal.signal(each, signal.SIG_DFL)


def _advice(words: list[str]) -> str:
    if words[:1] not in (["run"], ["operator"], ["network"], ["infer"], ["scale"], ["time"], ["analyze"], ["task"]):
        return "interrupted"
    again = "the same command without --fresh" if "--fresh" in words else "the same command"
    if words[0] == "time":
        again = "the same command with --resume"
    return f"interrupted: what is finished is kept; {again} goes on from there"


def _in_three_parts(error: click.ClickException) -> LevelbenchError:
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = context.command_path if context else "levelbench"
    return UsageError(path, error.format_message().rstrip("."), f"see {path} --help")


def _bug(error: Exception) -> LevelbenchError:
    found = f"{type(error).__name__}: {error}".splitlines()[0]
    bug = LevelbenchError("levelbench", f"a bug of levelbench, {found}", "report it; --debug shows the traceback")
    bug.exit_code = _BUG
    bug.__cause__ = error
    return bug


def _fail(error: LevelbenchError, words: list[str]) -> int:
    # It is an error even if nothing reads the output any more.
    with shared.as_far_as_read(err=True):
        if error.exit_code == _BUG and "--debug" not in words:
            click.echo(shared.visible(f"error: {error.found}; {error.do}"), err=True)
        else:
            shared.say_error(error, "--debug" in words)
    if "--json" in words:
        with shared.as_far_as_read():
            shared.emit_json({"error": shared.error_parts(error)})
    return error.exit_code
