"""``levelbench new KIND NAME``: write a first file of your own, which passes ``levelbench check`` as it is."""

from __future__ import annotations

import importlib.util
import keyword
import re
from importlib import resources
from pathlib import Path
from string import Template

import click

from levelbench.cli import options as shared
from levelbench.errors import UnknownNameError, UsageError

__all__ = ["KINDS", "command"]

KINDS = {
    "task": ("A task with its data, target and a recipe.", "levelbench run {file} -n 5"),
    "operator": ("An operator with its gradient, its oracle and examples.", "levelbench operator {file}"),
    "optimizer": (
        "An update rule, and the reference that it is compared with.",
        "levelbench optimizer {file} --beside SGD",
    ),
    "scheme": (
        "A scheme of distributed training, with its traffic.",
        "levelbench run digits --ranks 2 --scheme {file} -n 5",
    ),
    "engine": (
        "A framework that executes operators and networks.",
        "levelbench conformance --framework {file} --summary",
    ),
}
"""What each is, and the command after ``levelbench check``."""


@click.command("new")
@click.argument("part", metavar=f"{{{'|'.join(KINDS)}}}")
@click.argument("name")
@shared.answer_options
def command(part: str, name: str, as_json: bool) -> int:
    """Write NAME.py, a small complete task, operator, optimizer, scheme or engine to change into your own.

    \b
      levelbench new task my_task
      levelbench check my_task.py
      levelbench run my_task.py

    An engine is a framework that executes operators and networks. A file that exists is never overwritten.
    """
    from levelbench.report.drawing import write_whole

    if part not in KINDS:
        raise UnknownNameError("kind of file", part, KINDS, "see levelbench new --help")
    path, title = Path(f"{name}.py"), name.strip("_").replace("_", "-")
    made = "".join(word[:1].upper() + word[1:] for word in name.split("_"))
    text = resources.files("levelbench.cli").joinpath("templates", f"{part}.txt").read_text(encoding="utf-8")
    _refuse(part, name, path, title, taken=re.search(rf"^(from|import) .*\b{made}\b", text, re.MULTILINE) is not None)
    written = Template(text).substitute(name=name, file=path.name, Class=made, title=title)
    shared.check_writable(path)
    write_whole(path, written)
    after = [f"levelbench check {path}", *([KINDS[part][1].format(file=path)] if KINDS[part][1] else [])]
    if as_json:
        shared.emit_json({"kind": part, "file": str(path), "next": after})
        return 0
    click.echo(f"wrote {path}")
    for word, line in zip(("next:", "then:"), after, strict=False):
        click.echo(f"{word} {line}")
    return 0


def _refuse(kind: str, name: str, path: Path, title: str, *, taken: bool) -> None:
    """Refuse what is no name, an existing file, and names that already mean something."""
    from levelbench import plugins

    asked = f"levelbench new {kind} {name}"
    if not name.isidentifier() or keyword.iskeyword(name) or not title:
        found = "the file and its class need a name of letters, digits and underscores that is not a keyword"
        raise UsageError(asked, found, f"levelbench new {kind} my_{kind}")
    if path.exists() or path.is_symlink():
        raise UsageError(asked, f"{path} exists already", "choose another name, or move the file away")
    another = f"choose another name, such as my_{name.strip('_')}"
    named = {"task": "task", "scheme": "scheme", "engine": "framework"}.get(kind)
    if named is not None and title in plugins.names(named):
        raise UsageError(asked, f"there is a {named} {title!r} already, and records tell them apart by name", another)
    if taken or importlib.util.find_spec(name) is not None:
        found = "Python has a module or class of that name already, which the file would hide"
        raise UsageError(asked, found, another)
