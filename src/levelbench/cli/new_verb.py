"""``levelbench new``: write a file to begin with that passes ``levelbench check`` as it is."""

from __future__ import annotations

import keyword
import re
import shlex
import sys
from importlib.resources import files
from pathlib import Path

import click

from levelbench.cli import options as shared
from levelbench.errors import UsageError

__all__ = ["command"]

NEXT = {
    "task": ["levelbench check {file}", "levelbench run {file} -n 5"],
    "recipe": ["levelbench check {file}", "levelbench run {file} --recipe mlp,{identifier} -n 5"],
    "operator": ["levelbench check {file}", "levelbench check {file} --framework torch,jax"],
    "optimizer": ["levelbench check {file}", "levelbench check {file} --reference momentum"],
    "scheme": ["levelbench check {file}", "levelbench run digits --ranks 2 --scheme {file} -n 5"],
}
"""The commands that try each kind of file, the first of which every file passes as it is."""


@click.command("new")
@click.argument("kind", type=click.Choice(list(NEXT)))
@click.argument("name")
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), default=".", help="Where to write it.")
@shared.answer_options
def command(kind: str, name: str, folder: Path, as_json: bool) -> int:
    """Write NAME.py, a task, recipe, operator, optimizer or scheme to begin with, which passes `check` as it is.

    NAME consists of lower-case words, such as fast-digits. A file that exists is never overwritten.

    \b
      levelbench new task fast-digits
      levelbench check fast_digits.py
    """
    words = re.split("[-_]", name)
    identifier = "_".join(words)
    asked = f"new {kind} {name}"
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        raise UsageError(asked, "a name consists of lower-case words", f"{_proposal(name)} would do")
    if keyword.iskeyword(identifier) or identifier in sys.stdlib_module_names or identifier == "levelbench":
        raise UsageError(asked, f"{identifier} is a word or module of Python's own", f"my-{name} would do")
    file = folder / f"{identifier}.py"
    text = files("levelbench.cli").joinpath("templates", f"{kind}.txt").read_text(encoding="utf-8")
    filled = text.format(name="-".join(words), identifier=identifier, title="".join(map(str.capitalize, words)))
    _write(file, filled, asked)
    commands = [line.format(file=shlex.quote(str(file)), identifier=identifier) for line in NEXT[kind]]
    if as_json:
        shared.emit_json({"file": str(file), "commands": commands})
        return 0
    click.echo(f"written: {file}\nnext:")
    for line in commands:
        click.echo(f"  {line}")
    return 0


def _proposal(name: str) -> str:
    """The nearest allowed name."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", Path(name).stem).lower()
    return re.sub(r"[^a-z0-9]+", "-", spaced).strip("-0123456789") or "my-own"


def _write(file: Path, text: str, asked: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise UsageError(asked, f"{file} exists", "choose another name, or remove it") from None
    except OSError as error:
        raise UsageError(asked, f"{file} cannot be written: {error.strerror}", "choose another --folder") from None
