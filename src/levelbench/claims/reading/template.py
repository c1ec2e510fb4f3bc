"""The questions that an author should answer before publishing, as a ``claim.toml`` to fill in.

It is generated from the view, whose docstrings become comments, and from the rules, which list the fields that they
read: every field that a rule can see is in the template.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from types import UnionType
from typing import Literal, Union, get_args, get_origin

import msgspec

from levelbench.claims.reading.claim_file import hints
from levelbench.claims.rule import Rule
from levelbench.claims.rules import all_rules
from levelbench.claims.view import Claim, ComparisonView, ScalingPoint, Side

__all__ = ["one_page", "template"]

_HEAD = """\
# A performance claim, written down for `levelbench lint claim.toml`.
#
# Remove the # before what you can answer. What you leave out is "not stated": it is counted, but never held
# against you. Times are in seconds, rates per second, shares between 0 and 1. After a field come the rules that
# read it: levelbench lint --explain CODE prints one of them.
"""
_SAMPLES: dict[tuple[type, str], str] = {
    (Claim, "title"): '"What is claimed, in one sentence"',
    (Side, "name"): '"ours"',
    (ComparisonView, "new"): '"ours"',
    (ComparisonView, "base"): '"baseline"',
    (ScalingPoint, "side"): '"ours"',
}
_PLAIN = {int: "0", float: "0.0", str: '"..."', bool: "false"}
_WIDTH = 118
# Filled in by the reader of the file, not by its author.
_LEFT_OUT = {(Claim, "read_from"), (Claim, "where")}


def template(rules: Sequence[Rule] | None = None) -> str:
    """The text of a claim with every field; all but the required ones are commented out.

    Each field is followed by the codes of the ``rules`` (by default all) that read it.
    """
    asked: dict[str, list[str]] = {}
    for rule in all_rules() if rules is None else rules:
        for path in dict.fromkeys(each.replace("[]", "") for each in rule.reads):
            asked.setdefault(path, []).append(rule.code)
    return "\n".join([_HEAD, *_struct(Claim, "", "", asked), ""])


_MOSTLY = {
    Side: (
        "time_s time_of reported runs_made runs_reached interval cost_usd framework year source tuned quality.metric "
        "quality.value quality.target quality.split quality.stopping_split data.name data.synthetic clock.policy "
        "clock.whole clock.data clock.crossing timing.method timing.synchronised hardware.description "
        "hardware.accelerators workload.global_batch workload.ranks operations.precisions tuning.trials"
    ),
    ComparisonView: (
        "of ratio interval claimed_for part_share base_kind base_time_s p_value test quality_compared "
        "performance_compared"
    ),
}
"""What papers mostly state, or should: the fields of a transcription on one page."""


def one_page() -> str:
    """The text of a claim with the fields that decide most claims, each with its question on its line."""
    lines = [
        "# A claim of a paper, to transcribe for `levelbench lint claim.toml`: remove the # before what it states, and",
        "# leave the rest. Seconds, rates per second, shares from 0 to 1. levelbench lint --template has every field.",
        'title = "What is claimed, in its own words"',
        "",
        "[[sides]]",
        'name = "ours"',
        *_listed(Side),
        "",
        "[[sides]]  # the other side, if there is one: copy the lines above",
        'name = "baseline"',
        "",
        "#[[comparisons]]",
        '#new = "ours"',
        '#base = "baseline"',
        *_listed(ComparisonView),
    ]
    return "\n".join([*lines, ""])


def _listed(kind: type[msgspec.Struct]) -> Iterator[str]:
    for path in _MOSTLY[kind].split():
        inner: type = kind
        *tables, name = path.split(".")
        for each in tables:
            inner = _table(hints(inner)[each])[0] or inner
        words = ", ".join(_words(hints(inner)[name])).replace('"', "")
        question = (words or _question(inner, name)).replace("``", "`")
        line = f"#{path} = {_sample(hints(inner)[name], name)}"
        yield f"{line:<36} # {question}" if question else line


def _struct(kind: type[msgspec.Struct], path: str, mark: str, asked: Mapping[str, list[str]]) -> Iterator[str]:
    """The fields of ``kind`` at ``path``: values first, as TOML requires, then the nested tables.

    ``mark`` is ``"#"`` inside an optional table, where required fields are commented out too.
    """
    inner: list[tuple[str, type[msgspec.Struct], bool]] = []
    for field in msgspec.structs.fields(kind):
        if (kind, field.name) in _LEFT_OUT:
            continue
        table, listed = _table(hints(kind)[field.name])
        at = f"{path}.{field.name}" if path else field.name
        if table is not None:
            inner.append((at, table, listed))
            continue
        yield from _comment(_question(kind, field.name))
        value = _SAMPLES.get((kind, field.name)) or _sample(hints(kind)[field.name], field.name)
        codes = f"  # {', '.join(asked[at])}" if at in asked else ""
        yield f"{mark if field.required else '#'}{field.name} = {value}{codes}"
    for at, table, listed in inner:
        yield from _section(at, table, listed, mark, asked)


def _section(
    at: str, table: type[msgspec.Struct], listed: bool, mark: str, asked: Mapping[str, list[str]]
) -> Iterator[str]:
    mark = "" if table is Side else "#" if listed or mark else ""
    yield ""
    if listed and table is not Side:
        yield from _comment(f"One [[{at}]] for each.")
    yield f"{mark}[[{at}]]" if listed else f"{mark}[{at}]"
    codes = f" Asked for by {', '.join(asked[at])}." if at in asked else ""
    yield from _comment(" ".join((table.__doc__ or "").split()) + codes)
    yield from _struct(table, at, mark, asked)
    if table is Side:
        yield ""
        yield from _comment("The other side of the comparison, if there is one: the same questions.")
        yield from (f"[[{at}]]", 'name = "baseline"')


def _question(kind: type, name: str) -> str:
    """What the field means, and which words it takes."""
    parts = [_documented(kind).get(name, "")]
    if words := _words(hints(kind)[name]):
        parts.append(f"{' | '.join(words)}.")
    return " ".join(part for part in parts if part)


@cache
def _documented(kind: type) -> dict[str, str]:
    """The docstrings of fields, which Python does not keep, read from the source; none without the source."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[kind.__module__]))
    except OSError:
        return {}
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__)
    found = {}
    for before, node in pairwise(body):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(node, ast.Expr):
            text = ast.literal_eval(node.value)
            found[before.target.id] = " ".join(str(text).split())
    return found


def _comment(text: str) -> Iterator[str]:
    if text:
        yield from (f"# {line}" for line in textwrap.wrap(text.replace("``", "`"), _WIDTH, break_on_hyphens=False))


def _table(kind: object) -> tuple[type[msgspec.Struct] | None, bool]:
    """The struct that a field contains, and whether it is a list of them."""
    kind, listed = _present(kind), False
    if get_origin(kind) is list:
        kind, listed = get_args(kind)[0], True
    return (kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None), listed


def _words(kind: object) -> list[str]:
    kind = _present(kind)
    return [f'"{word}"' for word in get_args(kind)] if get_origin(kind) is Literal else []


def _sample(kind: object, name: str) -> str:
    kind = _present(kind)
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return f'"{inside[0]}"'
    if origin is list:
        return f"[{_sample(inside[0], name)}]"
    if origin is tuple:
        return "[0.0, 0.0]"
    if origin is dict:
        key = "float32" if name in ("peak_flops", "precisions") else "name"
        return f"{{{key} = {_sample(inside[1], name)}}}"
    return _PLAIN[kind] if kind in _PLAIN else _PLAIN[str]


def _present(kind: object) -> object:
    """The type of a value that is present, without ``None``."""
    if get_origin(kind) in (Union, UnionType):
        kinds = [each for each in get_args(kind) if each is not type(None)]
        return kinds[0] if len(kinds) == 1 else kind
    return kind
