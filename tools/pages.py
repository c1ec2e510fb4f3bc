"""The pages of the documentation site that are made from something else, as a hook of MkDocs (see mkdocs.yml).

They exist only in the built site: the command line from click, the Python interface from its docstrings, the schema of
the records from the types that write them, which framework implements which operator, the notebooks and the changelog.
An operator needs its framework to be installed to be listed; the page names the frameworks that were missing.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click
import msgspec

import levelbench
from levelbench.cli import SECTIONS, cli

DOCS = Path(__file__).parents[1] / "docs"
EVIDENCE = runpy.run_path(str(DOCS.parent / "benchmarks" / "evidence.py"))
SCHEMA = "reference/records.schema.json"


def command_line() -> str:
    """Every verb with its arguments and options."""
    root = click.Context(cli, info_name="levelbench", max_content_width=100)
    parts = ["# Command line", "This page is generated from the program; `levelbench VERB --help` prints the same."]
    parts.append(f"```text\n{cleandoc(cli.epilog or '')}\n```")
    for section, verbs in SECTIONS.items():
        parts.append(f"## {section}")
        for verb in verbs:
            command = cli.get_command(root, verb)
            assert command is not None
            parts += _command(command, click.Context(command, root, verb), 3)
    return "\n\n".join(parts) + "\n"


def _command(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    path = context.command_path
    yield f"{'#' * level} {path}"
    yield _text(command.help or "")
    yield "```text\n" + " ".join(context.get_usage().removeprefix("Usage: ").split()) + "\n```"
    rows = [record for each in command.get_params(context) if (record := each.get_help_record(context))]
    if rows:
        yield "\n".join(
            ["| Option | Meaning |", "|---|---|", *(f"| `{a.replace('|', '&#124;')}` | {_cell(b)} |" for a, b in rows)]
        )
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from _command(below, click.Context(below, context, name), level + 1)


def _text(text: str) -> str:
    r"""Help as Markdown: a paragraph after ``\b`` keeps its lines."""
    paragraphs = []
    for each in re.split(r"\n\s*\n", cleandoc(text)):
        kept = each.removeprefix("\b\n")
        paragraphs.append(f"```text\n{cleandoc(kept)}\n```" if kept != each else _escaped(kept))
    return "\n\n".join(paragraphs)


def _escaped(text: str) -> str:
    return re.sub(r"([<>*_\[\]])", r"\\\1", text)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("[", "&#91;")


def python_interface() -> str:
    """The public names and what they return; mkdocstrings fills in their docstrings."""
    head = ["# Python interface", "`import levelbench` gives these names; each is imported when it is first used."]
    homes = [f"levelbench.{levelbench._HOME[name]}.{name}" for name in levelbench.__all__]
    homes += [f"levelbench.{name}" for name in ("cli.api.report", "cli.api.Measured", "analysis.comparison.Comparison")]
    homes += [] if "TrackedRun" in levelbench.__all__ else ["levelbench.experiments.tracked.TrackedRun"]
    return "\n\n".join([*head, *(f"::: {each}\n    options: {{heading_level: 2}}" for each in homes)]) + "\n"


def records_schema() -> dict[str, Any]:
    """One line of any record, as JSON Schema (2020-12): a kind of record for each pair of a header and its events."""
    from levelbench.records import benchmarks, commands, inference, networks, schema

    lines = {
        "RunLine": schema.Header | schema.Event,
        "OperatorLine": benchmarks.BenchmarkHeader | benchmarks.BenchmarkEvent,
        "NetworkLine": networks.NetworkHeader | networks.NetworkEvent,
        "InferenceLine": inference.InferenceHeader | inference.InferenceEvent,
        "CommandLine": commands.CommandHeader | commands.CommandEvent,
    }
    # "end" is a line of every record but not the same in each, so each kind of record has a union of its own.
    made = {name: msgspec.json.schema(of, ref_template="#/$defs/{name}") for name, of in lines.items()}
    definitions = {name: of for each in made.values() for name, of in each.pop("$defs").items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A line of a record of levelbench {levelbench.__version__}",
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in made],
        "$defs": {**made, **definitions},
    }


def records_schema_page() -> str:
    """The schema in words: each kind of line with its fields."""
    schema = records_schema()
    parts = [
        "# Schema of the records",
        "A record is a file of JSON objects, one a line. [records.schema.json](records.schema.json) describes each"
        " line as JSON Schema; these tables are made from it. Check a run against `#/$defs/RunLine`, a measurement"
        " against `OperatorLine`, `NetworkLine`, `InferenceLine` or `CommandLine`. Checksums are checked by"
        " levelbench alone. [Records](records.md) says what the lines mean.",
    ]
    for name, each in sorted(schema["$defs"].items()):
        if not each.keys() & {"properties", "prefixItems"}:
            continue
        parts.append(f"## {name}")
        if "prefixItems" in each:
            types = ", ".join(map(_type, each["prefixItems"]))
            parts += [
                cleandoc(each.get("description", "")).replace("``", "`"),
                f"A list of these, in this order: {types}.",
            ]
            continue
        if each.get("description"):
            parts.append(_escaped(cleandoc(each["description"]).split("\n\n")[0]))
        rows = [
            f"| `{field}` | {_type(of)} | {'yes' if field in each.get('required', ()) else ''} |"
            for field, of in each["properties"].items()
        ]
        parts.append("\n".join(["| Field | Type | Required |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _type(of: dict[str, Any]) -> str:
    if "$ref" in of:
        name = of["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in of:
        return ", ".join(f"`{each}`" for each in of["enum"])
    if "anyOf" in of:
        return " or ".join(_type(each) for each in of["anyOf"])
    if of.get("type") == "array" and "prefixItems" in of:
        return f"list of {' and '.join(map(_type, of['prefixItems']))}"
    if of.get("type") == "array":
        return f"list of {_type(of['items'])}" if of.get("items") else "list"
    return str(of.get("type", "any"))


def operators_page() -> str:
    """Which framework implements which operator, and which runs through ONNX's definition of it."""
    have: dict[str, set[str]] = {}
    missing = []
    for framework in ("numpy", "torch", "jax", "tensorflow"):
        try:
            module = import_module(f"levelbench.frameworks.{framework}.operators")
        except ImportError:
            missing.append(framework)
        else:
            have[framework] = set(module.names() if hasattr(module, "names") else module.OPERATORS)
    every = sorted(set().union(*have.values()), key=str.lower)
    parts = [
        "# Operators by framework",
        "A dot marks an operator that the adapter implements itself. numpy runs the others with ONNX's reference"
        " implementation, and onnxruntime its own kernels; [conformance](conformance.md) says how each is tested.",
        "| | " + " | ".join(f"{name} ({len(ops)})" for name, ops in have.items()) + " |",
    ]
    rows = [f"| `{each}` | " + " | ".join("●" if each in ops else "" for ops in have.values()) + " |" for each in every]
    parts[-1] += "\n" + "|---" * (len(have) + 1) + "|\n" + "\n".join(rows)
    if missing:
        parts.insert(2, f"Not installed where this page was built: {', '.join(missing)}.")
    return "\n\n".join(parts) + "\n"


_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
"""What makes text bold or coloured in a terminal (a control sequence), or makes a link of it."""


def notebook_page(path: Path) -> str:
    """A notebook with its outputs, as it was executed."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {"text/plain": output.get("text")})
            if html := "".join(data.get("text/html", ())):
                # pandas' style is for all tables of the page.
                html = re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL)
                parts.append(f'<div class="output" tabindex="0">{html}</div>')
            else:
                text = _ESCAPE.sub("", "".join(data["text/plain"]))
                parts.append(f"```text\n{text.rstrip()}\n```")
    parts.append(f'<a href="{path.name}" download>Download this notebook</a>')
    return "\n\n".join(parts) + "\n"


GENERATED = {
    "changelog.md": (DOCS.parent / "CHANGELOG.md").read_text,
    **{f"notebooks/{path.stem}.md": partial(notebook_page, path) for path in DOCS.glob("notebooks/*.ipynb")},
    "reference/cli.md": command_line,
    "reference/python.md": python_interface,
    "reference/records-schema.md": records_schema_page,
    "reference/operators-by-framework.md": operators_page,
    SCHEMA: lambda: msgspec.json.format(msgspec.json.encode(records_schema()), indent=2).decode() + "\n",
}
"""What the site has beyond ``docs/``."""


def inside(markdown: str, page: Path) -> str:
    """``markdown`` without its links to folders and to files outside of the site, which keep their words.

    Links to notebooks lead to their pages.
    """

    def one(link: re.Match[str]) -> str:
        if link[2].endswith(".ipynb"):
            return f"[{link[1]}]({link[2].removesuffix('ipynb')}md)"
        target = (page.parent / link[2].partition("#")[0]).resolve()
        known = target.is_relative_to(DOCS) and (target.is_file() or str(target.relative_to(DOCS)) in GENERATED)
        return link[0] if "://" in link[2] or link[2].startswith("#") or known else link[1]

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", one, markdown)


def on_config(config: Any) -> Any:
    """MkDocs: name the version that the site speaks of, and let readers select another of those that mike publishes.

    Only mike's sites ask for the list of versions: in a folder without a server that would be an error.
    """
    config.site_name = f"levelbench {levelbench.__version__}"
    if "MIKE_DOCS_VERSION" in os.environ:
        config.extra["version"] = {"provider": "mike"}
    return config


def on_files(files: Any, config: Any) -> Any:
    """MkDocs: add the generated pages."""
    from mkdocs.structure.files import File

    for path, made in GENERATED.items():
        files.append(File.generated(config, path, content=made()))
    return files


def on_post_build(config: Any) -> None:
    """MkDocs: copy the Markdown of the board in the gallery, which is no page of the site."""
    place = Path("gallery", "board", "leaderboard.md")
    shutil.copy(DOCS / place, Path(config["site_dir"]) / place)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """MkDocs: say which sources of a measured table have changed, and drop the links that lead out of the site."""
    path = DOCS / page.file.src_uri
    return inside(EVIDENCE["with_changes"](markdown, path) if path.parent.name == "evidence" else markdown, path)


def on_page_content(html: str, **_: Any) -> str:
    """MkDocs: no header of a table without a word, which a screen reader would announce; no roles of docstrings."""
    return without_roles(re.sub(r"<th([^>]*)></th>", r"<td\1></td>", html))


def without_roles(html: str) -> str:
    """Names that docstrings refer to, as code alone: Markdown leaves ``:meth:`` before them, and the ``~`` in them."""
    return re.sub(r":[a-z]+:<code>(?:~[\w.]*\.(?=\w))?", "<code>", html)
