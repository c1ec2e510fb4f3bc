"""How many accelerators a description counts: ``16 nodes x 8 V100``, ``128 GPUs (16 nodes of 8)``, ``2 x DGX-1``.

Every number in the text is a count of devices, of machines, a factor beside a sign of multiplication, or of something
else (``16 GB``, ``56 CPU``). If one is none of these, or the numbers do not agree, the count is not clear.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

__all__ = ["Counted", "Named", "counted_in", "counts_nodes"]

Named = tuple[int, int, float | None]
"""Start and end of a name in the text, and how many accelerators it has: ``None`` for a device, 0 for another thing."""

_MOST_IN_A_NODE = 16
_YEARS = range(1990, 2040)
_TOKENS = re.compile(
    r"""(?P<space>\s+|\((?:r|tm)\))|(?P<fraction>(?<![\w.])\d+/\d+(?=\s*(?:of\b|$)))
    |(?P<other>(?<![\w.-])\d[\d.]*\s?-?(?:[kmgtp]i?b(?:it)?(?:/s|ps)?|gbe|[mg]hz|w|watts?|threads?|sockets?|cores?
        |v?cpus?(?!\s(?:nodes|servers|machines))|processors?|epochs?|layers?|images?|samples?|classes|runs?|trials?|seeds?
        |months?|weeks?|days?|hours?|hrs?|h|minutes?|seconds?|years?|steps?|%)(?![a-z0-9])
        |(?:python|cuda|cudnn|pytorch|tensorflow|jax|ubuntu|linux|driver|version|release)\s\d[\w.]*)
    |(?P<number>(?:(?<![\w.-])|(?<=[\s\w)][x×*]))\d+(?:\.\d+)?(?=[x×*]|(?!\w|\.\d|-[a-z])))
    |(?P<cpu>(?:xeon|epyc|opteron|threadripper|power\d|parameter\sservers?)\b)
    |(?P<by>[×*]|(?<![a-z])x(?![a-z])(?!86\b)|(?<=\d)x(?=[a-z]))
    |(?P<pod>pods?\b)
    |(?P<node>(?:nodes?|servers?|machines?|hosts?|racks?|boxes|systems?|instances?|vms?|workers?)\b)
    |(?P<device>gpus?\b|accelerators?\b|(?:tpu\s)?chips?\b|cards?\b)
    |(?P<total>(?:in\s|a\s)?total(?:\sof)?\b|altogether\b|overall\b)
    |(?P<share>(?:per\s|/\s?)(?:gpu|device|accelerator|card|chip|core|cpu|socket|rank|process)\b)
    |(?P<each>each\b|per\s\w+|/\s?(?:node|server|machine|host)\b)
    |(?P<of>of\b)|(?P<on>(?:on|across|over|in)\b)
    |(?P<open>[(\[])|(?P<close>[)\]])|(?P<and>[+&,]|and\b)
    |(?P<word>[a-z][\w.-]*|-[\w.-]+)|(?P<mark>.)""",
    re.IGNORECASE | re.VERBOSE,
)

# Numbers that are no count of what was used: "8-16 V100", "up to 8 V100", "1 of 8 V100", a share of a device.
_VAGUE = re.compile(
    r"""(?<![\w.-])\d+\s?(?:[-–—~]|\.\.|to|or)\s?\d+(?=\s)|(?<![\w.-])\d+\s(?:out\s)?of\s(?:the\s)?\d|[~≈<>≥≤]\s?\d
    |\b(?:up\sto|at\s(?:least|most)|(?:more|fewer|less)\sthan|(?:from|between|about|around|roughly|approximately)(?=\s\d)
        |half|quarter|several|many|multiple|only|used|mig|v-?gpus?|(?:on|in)\san?\s\d+-gpu|\d+k(?=\s)
        |eleven|thirteen|fourteen|(?:fif|seven|eigh|nine)teen|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundreds?
        |thousands?|dozens?)\b
    |(?<![\w-])pci-?e(?:\s?gen)?\s?[\d.]*\s?x\s?\d|\bx\s?\d+\sgen""",
    re.IGNORECASE | re.VERBOSE,
)
_HOURS = r"(?:h|hrs?|hours?|days?|weeks?|months?|years?)\b"
_DEVICE_HOURS = re.compile(rf"\b(?:gpu|tpu|accelerator|chip|card|device|node|machine|core)s?[\s-]{_HOURS}", re.I)
"""Hours of devices, such as "1000 GPU hours", count none of them."""
_NAMED_HOURS = re.compile(rf"[\s-](?:(?:gpu|tpu|accelerator|chip)s?[\s-])?{_HOURS}", re.I)
"""The same behind a name: "8 V100-days"."""
_OF_NODES = re.compile(r"(\d)-(?=(?:node|server|machine|host|gpu|card|chip|accelerator)s?\b)", re.IGNORECASE)


@dataclass(frozen=True)
class Counted:
    """``count`` accelerators, or ``None`` if the text states no number; unless ``is_clear``, it may state several."""

    count: float | None
    is_clear: bool = True


_UNCLEAR = Counted(None, is_clear=False)


@dataclass(frozen=True)
class _Token:
    kind: str
    value: float = 0.0


@dataclass
class _Numbers:
    """The numbers of a text, by what they count."""

    devices: list[float] = field(default_factory=list)
    factors: list[float] = field(default_factory=list)
    """Of machines, or beside a sign, in a product with devices or with a machine that is named."""
    apart: list[float] = field(default_factory=list)
    """Of machines, in no such product."""


def counted_in(text: str, named: Iterable[Named]) -> Counted:
    """How many accelerators ``text`` counts, in which those of ``named`` are named."""
    names = sorted(named, key=lambda each: each[0])
    # Of equal length, so that names stay where they are.
    tokens = _read(_OF_NODES.sub(r"\1 ", text), names)
    if _VAGUE.search(text) or _DEVICE_HOURS.search(text) or any(_NAMED_HOURS.match(text, end) for _, end, _ in names):
        return _UNCLEAR
    numbers, held = _sorted(tokens), {token.value for token in tokens if token.kind == "machine"}
    shared = any(a.kind == "device" and b.kind == "share" for a, b in pairwise(tokens))
    if numbers is None or shared or len(held) > 1:
        return _UNCLEAR
    return _agreed(numbers, max(held, default=None), tokens)


def _agreed(numbers: _Numbers, held: float | None, tokens: Sequence[_Token]) -> Counted:
    """What the numbers amount to, if they agree; ``held`` is what a machine that is named has."""
    factors, apart = math.prod(numbers.factors), math.prod(numbers.apart)
    counts, kinds = sorted({*numbers.devices}), [token.kind for token in tokens]
    if "total" in kinds and len(counts) == 1 and held is None:
        # "4 nodes with a total of 32 V100"
        return Counted(counts[0]) if counts[0] % (factors * apart) == 0 else _UNCLEAR
    # "16 nodes with 8 V100 each"
    are_of_each = "each" in kinds
    if not are_of_each and "node open number" in (said := " ".join(kinds)) and len(counts) == 1:
        # "16 nodes (8 x V100)" and "2 nodes (8 V100)", of which the second may be of both.
        are_of_each = "node open number by" in said or counts[0] % apart != 0 or apart == 1
        if not are_of_each and counts[0] <= _MOST_IN_A_NODE:
            return _UNCLEAR
    if not counts and held is None and "device" not in kinds:
        return Counted(None)
    if not counts and held is None:
        # "4 nodes with V100" does not say how many a node has.
        clear = apart == 1 or are_of_each
        return Counted(float(factors * apart) if numbers.factors or numbers.apart else None) if clear else _UNCLEAR
    if not counts and held is not None:
        return Counted(factors * apart * held)
    most, least = counts[-1], counts[0]
    found = most
    if len(counts) > 1:
        # "128 x V100 (16 nodes, each 8 x V100)"
        clear = len(counts) == 2 and most == factors * apart * least
        # "128 V100 (8 per node)"
        clear |= len(counts) == 2 and factors * apart == 1 and are_of_each and most % least == 0
    elif len(numbers.apart) > 1 and apart == most:
        # "128 V100 (16 nodes x 8)"
        found, clear = most * factors, True
    elif held is not None and (numbers.factors or numbers.apart):
        # "2 x p3.16xlarge (8 x V100)" and "2 x p3.16xlarge (16 GPUs)"
        found = factors * apart * held
        clear = most in (held, found)
    elif are_of_each or apart == 1:
        found, clear = most * factors * apart, True
    else:
        # "8 V100 on 2 nodes"; and no node has more than 16.
        clear = (_is_of_all(tokens) or most > _MOST_IN_A_NODE) and most % apart == 0 and not numbers.factors
    return Counted(found) if clear and found > 0 else _UNCLEAR


def counts_nodes(text: str) -> bool:
    """Whether a number of nodes stands in the text."""
    return any(a.kind == "number" and b.kind == "node" for a, b in pairwise(_read(text, ())))


def _read(text: str, named: Sequence[Named]) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    for start, end, holds in [*named, (len(text), len(text), None)]:
        for found in _TOKENS.finditer(text, at, max(at, start)):
            kind = str(found.lastgroup)
            if kind != "space":
                tokens.append(_Token(kind, float(found[0]) if kind == "number" else 0.0))
        if end > start:
            tokens.append(
                _Token("device" if holds is None else "machine" if holds else "cpu", 1.0 if holds is None else holds)
            )
        at = max(at, end)
    return tokens


def _sorted(tokens: Sequence[_Token]) -> _Numbers | None:
    """The numbers by what they count; ``None`` if that of one cannot be told."""
    found = _Numbers()
    if any(token.kind == "fraction" for token in tokens):
        return None
    places = [(at, kind) for at, token in enumerate(tokens) if token.kind == "number" and (kind := _counts(tokens, at))]
    products: list[list[tuple[int, str]]] = []
    for at, kind in places:
        if products and _is_product(tokens, products[-1][-1][0], at):
            products[-1].append((at, kind))
        else:
            products.append([(at, kind)])
    own = [tokens[at].value for at, kind in places if kind == "device" and _is_of_a_name(tokens, at)]
    # "4x V100 (16 GB) + 4x V100 (32 GB)" may be eight, or one cluster named twice.
    if len(own) > len({*own}):
        return None
    for product in products:
        kinds = {kind for _, kind in product}
        if "unknown" in kinds or kinds == {"factor"}:
            return None
        found.devices += [tokens[at].value for at, kind in product if kind == "device"]
        rest = [tokens[at].value for at, kind in product if kind != "device"]
        (found.factors if kinds & {"device", "machine"} else found.apart).extend(rest)
    return found


def _counts(tokens: Sequence[_Token], at: int) -> str:
    """What the number at this place counts: device, machine, node or factor; empty for nothing, or else unknown."""
    kinds = " ".join(token.kind for token in tokens[max(0, at - 9) : at] if token.kind not in ("word", "other"))
    before = ["mark", "mark", "mark", "mark", *kinds.replace("open close", "").split()]
    after = [token.kind for token in tokens[at + 1 : at + 6]] + ["mark"] * 5
    value, sign = tokens[at].value, after[0] == "by"
    if sign:
        after = after[1:]
    if value != int(value):
        return "unknown" if sign or after[0] in ("device", "machine", "node") else ""
    if after[0] == "number" and len(f"{tokens[at + 1].value:g}") <= 3 and not sign:
        return "unknown"  # "1 024"
    target = next((kind for kind in after[:3] if kind != "word"), "mark")
    if before[-1] == "by" and before[-2] in ("device", "machine") and target != "node":
        # "V100 x 8", but "8 x V100 x 4"
        return "factor" if before[-2] == "device" and "number" in before[-4:-2] else before[-2]
    if sign and after[0] in ("number", "open"):
        return "factor"
    if (sign and after[0] == "other") or target == "cpu" or before[-2:] == ["cpu", "by"]:
        return ""
    if before[-1] == "open" and after[0] == "close":
        # "(2) Tesla T4" and "V100 (8)"
        next_kind = next(kind for kind in after[1:] if kind != "word")
        return "" if value in _YEARS else "device" if "device" in (before[-2], next_kind) else "unknown"
    if before[-1] == "by" and before[-2] not in ("number", "device", "machine", "node", "each", "close", "open"):
        return "unknown"
    if target in ("device", "machine", "node"):
        return "unknown" if after[after.index(target) + 1] == "pod" else target
    if after[0] == "each":
        return "device"
    if target == "share":
        return ""
    if target == "other" and after[0] == "other":
        return ""
    if before[-1] == "by":
        return {"device": "device", "machine": "machine", "mark": "unknown", "and": "unknown"}.get(before[-2], "factor")
    if before[-1] == "of" and before[-2] == "node":
        return "factor"
    # "PCIe 3", or a year
    after_word = at > 0 and tokens[at - 1].kind == "word"
    return "" if after_word or value == 1 or value in _YEARS else "unknown"


def _is_product(tokens: Sequence[_Token], first: int, second: int) -> bool:
    """Whether the number at ``first`` is multiplied by that at ``second``: "8 x V100 (16 GB) x 4 nodes"."""
    kinds = [token.kind for token in tokens[first + 1 : second]]
    if "close" in kinds and kinds[-1] == "by" and "open" in kinds:
        kinds = [*kinds[: kinds.index("open")], *kinds[len(kinds) - kinds[::-1].index("close") :]]
    opens = any(kind == "open" and (not at or kinds[at - 1] != "by") for at, kind in enumerate(kinds))
    return bool({"by", "of"} & {*kinds}) and not {"and", "mark", "on", "total"} & {*kinds} and not opens


def _is_of_all(tokens: Sequence[_Token]) -> bool:
    """Whether a number of devices is said to be "on" a number of machines."""
    kinds = [token.kind for token in tokens]
    return "on" in kinds and "node" in kinds and "device" in kinds[: kinds.index("on")]


def _is_of_a_name(tokens: Sequence[_Token], at: int) -> bool:
    """Whether the number stands beside the name of a device, not only beside "GPUs"."""
    after = [token for token in tokens[at + 1 : at + 5] if token.kind not in ("by", "word")]
    before = [token for token in tokens[max(0, at - 3) : at] if token.kind not in ("word", "other")]
    behind = len(before) > 1 and before[-1].kind == "by" and before[-2] == _Token("device", 1.0)
    return behind or after[:1] == [_Token("device", 1.0)]
