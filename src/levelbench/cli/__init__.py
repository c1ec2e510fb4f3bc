"""The command line: one file per verb, imported when the verb is called, so that ``--help`` imports none of them.

Every outcome becomes an exit code. An error that a user can act on is printed in three lines; ``--debug`` adds the
traceback.
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
        "list": "List what can run here and what is missing, or the runs and measurements in the store.",
        "show": "Show a run (phases, curve, doubts), or what infer or time measured.",
        "time": "Time and compare programs written in any language.",
        "import": "Import results of TensorBoard, MLflow, W&B, hyperfine and pyperf.",
        "compare": "Compare two sides: verdict, attribution, environments.",
        "analyze": "Analyse many runs: stability, scaling, batch size, roofline, ...",
        "tune": "Search settings under a budget that is the same for both sides, and compare the winners.",
        "rerun": "Make recorded runs again, and see whether the same comes out.",
        "report": "Write one HTML file, and each table as Markdown and CSV.",
        "rm": "Remove runs with their checkpoints and trained networks.",
    },
    "Levels": {
        "operator": "Level 0: compare operators with each other and with the machine's ceilings.",
        "network": "Level 1: whole networks: latency, memory, and where the time goes.",
        "optimizer": "Level 2: compare optimizers: an update, a step of training, time to accuracy.",
        "infer": "Measure latency, throughput and accuracy of a trained network under a scenario.",
        "scale": "Level 3: time to accuracy as the number of ranks grows.",
        "communicator": "Level 3: latency and bandwidth of communicators.",
    },
    "Checks": {
        "new": "Write a first task, operator, optimizer, scheme or engine of your own.",
        "check": "Check whether an operator, network, optimizer, task, recipe, scheme or engine is correct.",
        "conformance": "Run ONNX's node tests in each framework.",
        "lint": "Check a performance claim against the twelve ways to fool the masses.",
    },
    "Competition": {
        "board": "Submit to leaderboards; check, sign, build, import and export them.",
    },
    "Machine": {
        "data": "List, download, check and describe datasets.",
        "doctor": "Examine this machine: clocks, noise, ceilings, an A/A self-test.",
    },
}
VERBS = [verb for verbs in SECTIONS.values() for verb in verbs]

EPILOG = """Select runs by an id or its beginning, task, task[key=value,...], a path, or latest.

Exit codes: 0 success, 1 a finding, a worse verdict or a missed target, 2 usage error, 3 something is missing here,
4 inconclusive, 70 a bug in levelbench.

\b
Completion, for the start-up file of bash, zsh or fish:
  eval "$(_LEVELBENCH_COMPLETE=bash_source levelbench)"
  eval "$(_LEVELBENCH_COMPLETE=zsh_source levelbench)"
  _LEVELBENCH_COMPLETE=fish_source levelbench | source"""

_BUG = 70
_COMPLETE = "_LEVELBENCH_COMPLETE"
"""Set when a shell asks for completions."""


class _PipeClosedError(Exception):
    """The reader of our output is gone. Click would turn a ``BrokenPipeError`` into exit code 1, but not this."""


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
            # Its only command, ``tune-target``, is now ``analyze target``; scripts may still call it.
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
        # The reader has closed our output.
        shared.mute()
        code = 0
    except KeyboardInterrupt:
        # A second Ctrl-C, after the first has been answered.
        code = 128 + signal.SIGINT
    sys.exit(code)


def _carried_out(words: list[str], received: list[int]) -> int:
    if _COMPLETE in os.environ:
        import_module("levelbench.cli.completion").complete_option_values()
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
        return _fail(_in_three_parts(error, words), words)
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
    """Let SIGTERM and SIGHUP end the program as Ctrl-C does, with clean-up; yields the list of signals received.

    A signal that is ignored (``nohup``) or already has a handler is left alone.
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
    verbs = ("run", "operator", "network", "optimizer", "infer", "scale", "time", "analyze", "task", "tune", "rerun")
    if not words or words[0] not in verbs:
        return "interrupted"
    again = "the same command without --fresh" if "--fresh" in words else "the same command"
    if words[0] == "time":
        again = "the same command with --resume"
    return f"interrupted: finished work is kept; {again} resumes from there"


def _in_three_parts(error: click.ClickException, words: list[str]) -> LevelbenchError:
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = context.command_path if context else "levelbench"
    if isinstance(error, click.NoSuchOption) and (task := _task_with(error.option_name, words)):
        name = error.option_name.strip("-").replace("-", "_")
        do = f"write '{task}[{name}=...]' (levelbench list settings {task})"
        return UsageError(f"{path} {error.option_name}", f"{name} is a setting of {task}, not an option", do)
    do = f"see {path} --help"
    if isinstance(error, click.NoSuchOption) and path == "levelbench":
        do = f"options follow the command: levelbench run ... {error.option_name}; {do}"
    return UsageError(path, error.format_message().rstrip("."), do)


def _task_with(option: str, words: list[str]) -> str:
    """The first task among ``words`` that has a setting of the option's name, if one of its recipes does."""
    from levelbench import plugins
    from levelbench.experiments.request import load_task

    for name in (word.partition("[")[0] for word in words):
        if name in plugins.names("task"):
            task = load_task(name)
            if any(option.strip("-").replace("-", "_") in task.settings(recipe) for recipe in task.recipes):
                return name
    return ""


def _bug(error: Exception) -> LevelbenchError:
    found = f"{type(error).__name__}: {error}".splitlines()[0]
    bug = LevelbenchError("levelbench", f"a bug in levelbench, {found}", "report it; --debug shows the traceback")
    bug.exit_code = _BUG
    bug.__cause__ = error
    return bug


def _fail(error: LevelbenchError, words: list[str]) -> int:
    # It stays an error even if nothing reads the output any more.
    with shared.as_far_as_read(err=True):
        if error.exit_code == _BUG and "--debug" not in words:
            click.echo(shared.visible(f"error: {error.found}; {error.do}"), err=True)
        else:
            shared.say_error(error, "--debug" in words)
    if "--json" in words:
        with shared.as_far_as_read():
            shared.emit_json({"error": shared.error_parts(error)})
    return error.exit_code
