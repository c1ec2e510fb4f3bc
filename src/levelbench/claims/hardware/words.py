"""Finds names and counts in a description: "Tesla 8*V100-16GB" holds "V100" eight times, "TPUv3-32" 32 cores of one.

The one idea: a name counts only as a whole word (a number may stand glued before it, as in "4xV100" or "1k80"), so
that "A1000 pixels" holds no A100; patterns have no nested repetition, so a hostile text costs nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Hit", "count_of_all", "hits", "names_pattern", "nodes_of_all", "normalised"]

_LONGEST = 1000
_BY = r"[x×*]"
_BEGINS = r"(?:(?<![A-Za-z0-9.])|(?<=[0-9][xX]))"
_FOLLOWS = r"(?![\s_-]{0,2}(?:ti|super|max[\s-]?q|mobile|laptop|nvl)\b)"
_NOT_A_DEVICE = re.compile(
    r"\s*(?:pixels?|images?|samples?|epochs?|steps?|layers?|classes|iterations?|parameters?|runs?|seconds?|tokens?|latency|percentile)\b",
    re.I,
)
_MAKERS = (
    r"(?:(?:nvidia|tesla|geforce|quadro|amd|instinct|radeon|google|cloud|intel|xeon|epyc|gpus?|of)[\s-]{1,3}){0,4}"
)
_BEFORE = re.compile(rf"(?<![\w.,-])(?P<n>\d{{1,5}})\s*(?P<by>{_BY})?\s*{_MAKERS}$", re.I)
_BRACKETED = re.compile(rf"\((?P<n>\d{{1,5}})\s?{_BY}?\)\s*{_MAKERS}$", re.I)
_AFTER = re.compile(rf"\s*(?:{_BY}\s*|\(\s*)(?P<n>\d{{1,5}})(?![\d.])(?!\s*[gt]i?b)", re.I)
_MAY_PRECEDE = re.compile(r"(?:^|[,;:/|+(\[{&x×*]|\b(?:on|of|with|using|and|has|have|holds|by))\s*$", re.I)
_COUNTED = re.compile(rf"(?<![\w.-])(\d{{1,5}})\s*(?:{_BY}\s*)?(?:gpus?|accelerators|(?:tpu\s)?chips|cards)\b", re.I)
_NODES = re.compile(
    rf"(?<![\w.-])(\d{{1,5}})\s*(?:{_BY}\s*)?(?:compute\s)?(?:nodes?|servers?|machines?|hosts?)\b", re.I
)
_EACH = re.compile(
    rf"\beach\b|\bper\s(?:node|server|machine|host)\b|(?:nodes|servers|machines|hosts)\s*{_BY}\s*\d", re.I
)


@dataclass(frozen=True)
class Hit:
    """``name`` of the table stands at ``start`` to ``end`` of the text; ``count`` is the number beside it, if any."""

    name: str
    start: int
    end: int
    count: int | None
    rest: str
    """What follows up to the next comma, slash, plus or bracket: there a variant is named ("-SXM2-16GB")."""

    weak: bool = False


def normalised(text: str) -> str:
    """The text in one form of Unicode, on one line, at most 1,000 characters of it."""
    return " ".join(unicodedata.normalize("NFKC", text[:_LONGEST]).split())[:_LONGEST]


def names_pattern(names: Iterable[str]) -> re.Pattern[str]:
    """One pattern for all names, the longest first. Between the parts of a name any space or hyphen may stand.

    A number may stand glued before a name that begins with a letter, and with an "x" between before any.
    """
    known = {name.lower() for name in names}
    longest = sorted(known, key=lambda name: (-len(name), name))
    lettered = "|".join(_pattern(name, known) for name in longest if name[:1].isalpha())
    numbered = "|".join(_pattern(name, known) for name in longest if not name[:1].isalpha())
    groups = [rf"(?:{_BEGINS}|(?<=[0-9]))(?:{lettered})"] * bool(lettered)
    groups += [rf"{_BEGINS}(?:{numbered})"] * bool(numbered)
    return re.compile(rf"(?:{'|'.join(groups)})(?-i:s)?(?:(?![A-Za-z0-9])|(?=x\d)){_FOLLOWS}", re.I)


def _pattern(name: str, known: set[str]) -> str:
    parts = [re.escape(part) for part in re.split(r"[\s_-]+", name)]
    if name[-1:] == "s" and name[:-1] in known:
        parts[-1] = parts[-1][:-1] + "(?-i:S)"  # "V100S" is a product, "V100s" several V100
    return r"[\s_-]{0,2}".join(parts)


def hits(text: str, pattern: re.Pattern[str]) -> list[Hit]:
    """Where names stand in the text, from left to right, each with the number that stands beside it."""
    found = []
    for match in pattern.finditer(text):
        if _NOT_A_DEVICE.match(text, match.end()):
            continue
        rest = re.split(r"[,;/+()\[\]|&]|\s-\s", text[match.end() : match.end() + 40], maxsplit=1)[0]
        found.append(Hit(match[0], match.start(), match.end(), _count(text, match.start(), match.end()), rest))
    return found


def _count(text: str, start: int, end: int) -> int | None:
    head = text[max(0, start - 60) : start]
    for pattern in (_BEFORE, _BRACKETED):
        before = pattern.search(head)
        if before is not None and (_certain(before) or _MAY_PRECEDE.search(head[: before.start()])):
            return int(before["n"])
    after = _AFTER.match(text, end)
    return int(after["n"]) if after is not None else None


def _certain(before: re.Match[str]) -> bool:
    """Whether the number is a count beyond doubt: "4 x", "(4)"; "ResNet 50 V100" are not fifty."""
    return before.re is _BRACKETED or before["by"] is not None


def count_of_all(text: str) -> int | None:
    """The one number of GPUs, chips or cards that a text gives anywhere; ``None`` if it gives none or several."""
    numbers = {int(each) for each in _COUNTED.findall(text)}
    return numbers.pop() if len(numbers) == 1 else None


def nodes_of_all(text: str) -> int:
    """By how many nodes a number of devices is multiplied: only where the text says "each" or "per node", else 1."""
    numbers = {int(each) for each in _NODES.findall(text)}
    return numbers.pop() if len(numbers) == 1 and _EACH.search(text) else 1
