"""docs/reference/submission.md has every field of an entry, as the schema itself says it."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from levelbench.competition import entries as schema
from levelbench.competition.entries import DEPTH_LIMIT, FILE_LIMIT, POINT_LIMIT, RUN_LIMIT
from levelbench.records import schema as records

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "submission.md"
PARTS = (
    schema.Submission,
    schema.Author,
    schema.Hardware,
    records.Target,
    schema.Code,
    schema.SystemPrice,
    schema.SubmittedRun,
    schema.SubmittedCurve,
    schema.Inference,
    schema.TuningEffort,
    schema.Provenance,
    schema.Origin,
)
PLAIN = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null"}
HEAD = f"""# The file of an entry

One JSON file (UTF-8, at most {FILE_LIMIT >> 20} MiB, nested at most {DEPTH_LIMIT} deep, at most {RUN_LIMIT:,} runs and
{POINT_LIMIT:,} evaluations a run) is one entry of a leaderboard: one task, one mode, one system, all runs.
`levelbench board submit` writes it from records, and `levelbench board check` reads it. A field that is not there is
not stated, which never means "no"; a field that is not in these tables is refused. Times are in seconds.

This page is made from the schema, `levelbench.competition.entries`; a test compares them.
"""


def kind(hint: Any) -> str:
    """A type in words, with its limits."""
    if hasattr(hint, "__metadata__"):
        said, meta = kind(hint.__origin__), next(each for each in hint.__metadata__ if isinstance(each, msgspec.Meta))
        if get_origin(hint.__origin__) is dict:
            return said.replace("object of", f"object of at most {meta.max_length:,}", 1)
        if get_origin(hint.__origin__) is list:
            return f"{said}, at most {meta.max_length:,}"
        return f"{said} ({', '.join(bounds(meta))})"
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        named = [kind(each) for each in inner if each is not type(None)]
        return " or ".join(dict.fromkeys(named))
    if origin is Literal:
        return " or ".join(f'`"{each}"`' for each in inner)
    if origin is list:
        return f"list of {kind(inner[0])}"
    if origin is dict:
        return f"object of names, each with {kind(inner[1])}"
    return PLAIN.get(hint) or f"[{hint.__name__}](#{hint.__name__.lower()})"


def bounds(meta: msgspec.Meta) -> list[str]:
    numbers = {"above": meta.gt, "at least": meta.ge, "at most": None if meta.le == 2**63 - 1 else meta.le}
    said = [f"{word} {value:g}" for word, value in numbers.items() if value is not None]
    if meta.max_length is not None:
        least = f"{meta.min_length} to " if meta.min_length else "at most "
        said.append(f"{least}{meta.max_length:,} characters")
    return said


def remarks(struct: type) -> dict[str, str]:
    """The docstring below each field that has one."""
    (tree,) = ast.parse(inspect.getsource(struct)).body
    assert isinstance(tree, ast.ClassDef)
    found, before = {}, ""
    for each in tree.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            before = each.target.id
        elif isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and before:
            found[before] = " ".join(str(each.value.value).split())
    return found


def table(struct: type) -> str:
    hints, said = get_type_hints(struct, include_extras=True), remarks(struct)
    rows = ["| field | required | holds |", "|---|---|---|"]
    for each in msgspec.structs.fields(struct):
        remark = f". {said[each.name].replace('``', '`')}" if each.name in said else ""
        words = f"{kind(hints[each.name])}{remark}".replace("|", "\\|")
        rows.append(f"| `{each.encode_name}` | {'yes' if each.required else ''} | {words} |")
    text = inspect.cleandoc(struct.__doc__ or "").replace("``", "`")
    return "\n".join([f"## {struct.__name__}", "", text, "", *rows, ""])


def page() -> str:
    return "\n".join([HEAD, *map(table, PARTS)])


def test_the_page_is_what_the_schema_says(request):
    if request.config.getoption("--golden"):
        PAGE.write_text(page())
    assert PAGE.read_text() == page(), "docs/reference/submission.md is out of date: look at it, then pytest --golden"


@pytest.mark.parametrize("struct", PARTS)
def test_every_part_that_a_field_links_to_is_on_the_page(struct):
    linked = {line.partition("(#")[2].partition(")")[0] for line in table(struct).splitlines() if "(#" in line}
    assert linked <= {each.__name__.lower() for each in PARTS}
