"""Finds the table entry for a free-text description of hardware: names, counts and variants.

``lookup`` prefers no answer to a wrong one: two different accelerators in one description, a name that is only part of
a word, and a variant that is not in the table all give ``None``, which means "not stated", never "slow". A name counts
only as a whole word (possibly with an attached number, as in "4xV100" or "1k80"), so "A1000 pixels" contains no A100.
Patterns have no nested repetition, so hostile text cannot slow them down. Assumptions are listed in words.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise

from levelbench.claims.hardware.table import Chip, Instance, table

__all__ = [
    "Hit",
    "Identification",
    "accelerators_in",
    "count_of_all",
    "hits",
    "lookup",
    "names_pattern",
    "nodes_of_all",
    "normalised",
]

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
# "8", or "16 * 8"
_N = rf"(?P<n>\d{{1,5}}(?:\s?{_BY}\s?\d{{1,5}}){{0,3}})"
_BEFORE = re.compile(rf"(?<![\w.,-]){_N}\s*(?P<by>{_BY})?\s*{_MAKERS}$", re.I)
_BRACKETED = re.compile(rf"\((?P<n>\d{{1,5}})\s?{_BY}?\)\s*{_MAKERS}$", re.I)
_TIMES = re.compile(rf"\s*{_BY}\s*{_N}(?![\d.])(?!\s*[gt]i?b)", re.I)
# "V100 (8 GPUs)", but "V100 (8 nodes)" does not count them.
_IN_BRACKETS = re.compile(rf"\s*\(\s*{_N}\s*(?:\)|(?:{_BY}\s*)?(?:gpus?|accelerators|chips|cards|cores)\b)", re.I)
_THOUSANDS = re.compile(r"(?:(?<![\w.,-])|(?<=v\d-))(\d{1,3})[,'’](\d{3})(?![\d,])")
_MAY_PRECEDE = re.compile(r"(?:^|[,;:/|+(\[{&x×*]|\b(?:on|of|with|using|and|has|have|holds|by))\s*$", re.I)
_COUNTED = re.compile(rf"(?<![\w.-])(\d{{1,5}})\s*(?:{_BY}\s*)?(?:gpus?|accelerators|(?:tpu\s)?chips|cards)\b", re.I)
_WORDS = {"two": 2, "three": 3, "four": 4, "eight": 8, "sixteen": 16}
_WORD = re.compile(rf"(?<![\w-])({'|'.join(_WORDS)})(?=\s)", re.I)
# "2 x (8 x V100)"
_BRACKETED_PRODUCT = re.compile(rf"(?<![\w.-])(\d{{1,5}})\s?{_BY}\s?\(([^()]*)\)", re.I)
_NODES = re.compile(
    rf"(?<![\w.-])(\d{{1,5}})\s*(?:{_BY}\s*)?(?:compute\s)?(?:nodes?|servers?|machines?|hosts?)\b",
    re.I,
)
# "2 nodes with 8 x V100": eight in all, or of each
_NODES_WITH = re.compile(rf"{_NODES.pattern}\s(?:with|of|having|holding|containing)\s", re.I)
_EACH = re.compile(
    rf"\beach\b|\bper\s(?:node|server|machine|host)\b|(?:nodes|servers|machines|hosts)\s*{_BY}\s*\w", re.I
)
# "8 x GTX 980" or "H800 * 8": devices that are not in the table, with a number that is certainly a count.
_UNKNOWN = r"(?:(?:gtx|rtx)\s?\d{3,4}|tpu\s?v\d|[abhlmptv]\d{2,3})(?![a-z0-9])"
_UNKNOWN_COUNTED = (
    re.compile(rf"(?<![\w.-])(\d{{1,5}})\s*{_BY}\s*{_MAKERS}{_UNKNOWN}", re.I),
    re.compile(rf"(?<![\w.-]){_UNKNOWN}\s*{_BY}\s*(\d{{1,5}})(?![\d.])(?!\s*[gt]i?b)", re.I),
)
_OF_EACH = re.compile(rf"(?<![\w.-])(\d{{1,5}})\s*(?:{_BY}\s*)?(?:[\w-]+\s){{0,2}}(?:each|per)\b", re.I)
_NODES_TIMES = re.compile(rf"(?:nodes|servers|machines|hosts)\s*{_BY}\s*(\d{{1,5}})(?!\d)", re.I)


@dataclass(frozen=True)
class Hit:
    """``name`` from the table at ``start`` to ``end`` of the text; ``count`` is the number next to it, if any."""

    name: str
    start: int
    end: int
    count: int | None
    rest: str
    """The text up to the next comma, slash, plus or bracket, which may name a variant ("-SXM2-16GB")."""

    weak: bool = False


def normalised(text: str) -> str:
    """The text in normalised Unicode, on one line, at most 1,000 characters."""
    plain = " ".join(unicodedata.normalize("NFKC", text[:_LONGEST]).split())[:_LONGEST]
    plain = _BRACKETED_PRODUCT.sub(r"\1 x \2", _THOUSANDS.sub(r"\1\2", plain))
    return _WORD.sub(lambda word: str(_WORDS[word[1].lower()]), plain)


def names_pattern(names: Iterable[str]) -> re.Pattern[str]:
    """One pattern for all names, longest first. Spaces or hyphens may separate the parts of a name.

    A number may directly precede a name that begins with a letter; with an "x" in between, it may precede any name.
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


def hits(text: str, pattern: re.Pattern[str], *, in_brackets: bool = True) -> list[Hit]:
    """The names in the text, from left to right, each with the number next to it, also ``in_brackets`` behind it."""
    found = []
    for match in pattern.finditer(text):
        if _NOT_A_DEVICE.match(text, match.end()):
            continue
        rest = re.split(r"[,;/+()\[\]|&]|\s-\s", text[match.end() : match.end() + 40], maxsplit=1)[0]
        count = _count(text, match.start(), match.end(), in_brackets)
        found.append(Hit(match[0], match.start(), match.end(), count, rest))
    return found


def _count(text: str, start: int, end: int, in_brackets: bool) -> int | None:
    head = text[max(0, start - 60) : start]
    times = _TIMES.match(text, end)
    for pattern in (_BEFORE, _BRACKETED):
        before = pattern.search(head)
        if before is not None and (_certain(before) or _MAY_PRECEDE.search(head[: before.start()])):
            # "8 x V100 x 16 nodes"
            return _product(before["n"]) * (_product(times["n"]) if times is not None and _certain(before) else 1)
    after = times or (_IN_BRACKETS.match(text, end) if in_brackets else None)
    return _product(after["n"]) if after is not None else None


def _product(numbers: str) -> int:
    return math.prod(int(each) for each in re.findall(r"\d+", numbers))


def _certain(before: re.Match[str]) -> bool:
    """Whether the number is certainly a count: "4 x" or "(4)"; "ResNet 50 V100" does not mean fifty."""
    return before.re is _BRACKETED or before["by"] is not None


def count_of_all(text: str) -> int | None:
    """The only number of GPUs, chips or cards in the text; ``None`` if there is none or several."""
    numbers = {int(each) for each in _COUNTED.findall(text)}
    return numbers.pop() if len(numbers) == 1 else None


def nodes_of_all(text: str) -> int:
    """The number of nodes to multiply a device count by: 1 unless the text says "each" or "per node"."""
    numbers = {int(each) for each in _NODES.findall(text)}
    return numbers.pop() if len(numbers) == 1 and _EACH.search(text) else 1


@dataclass(frozen=True)
class Identification:
    """A number ``units`` of ``device``: accelerators, or sockets of a processor (a fraction if an instance has less).

    ``count_stated`` says whether the description or its instance gave the number; else it is taken as one. ``assumed``
    lists other assumptions in words.
    """

    description: str
    device: Chip | None
    units: float
    count_stated: bool
    how: str
    instance: Instance | None = None
    processor: Chip | None = None
    assumed: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The device's name, or the instance's if its device is unknown."""
        if self.device is not None:
            return self.device.name
        return "" if self.instance is None else self.instance.name

    @property
    def is_accelerator(self) -> bool:
        """Whether the figures are for accelerators, not processors."""
        return self.device is not None and self.device.kind == "accelerator"

    @property
    def release_year(self) -> int | None:
        """The release year of the device; ``None`` for an instance, whose machine may be younger than its name."""
        return None if self.device is None else self.device.release_year

    @property
    def peak_flops(self) -> dict[str, float]:
        """Dense FLOP/s of the whole system by precision; empty if the table has none."""
        tflops = {} if self.device is None else self.device.tflops
        return {precision: self.units * each * 1e12 for precision, each in tflops.items()}

    @property
    def bandwidth(self) -> float | None:
        """Memory bandwidth of the whole system in bytes/s."""
        each = None if self.device is None else self.device.gb_per_s
        return None if each is None else self.units * each * 1e9

    @property
    def power_w(self) -> float | None:
        """Design power of the devices alone in watts, without host and cooling."""
        each = None if self.device is None else self.device.watts
        return None if each is None else self.units * each

    @property
    def price_per_hour(self) -> float | None:
        """On-demand price in USD per hour of the instances that have the devices; ``None`` if no instance is named."""
        if self.instance is None or self.instance.usd_per_hour is None:
            return None
        return self._instances() * self.instance.usd_per_hour

    @property
    def price_source(self) -> str | None:
        """What the price is for, and when and where it applied."""
        if self.instance is None or self.price_per_hour is None:
            return None
        return f"{self._instances()} x {self.instance.name}, {self.instance.priced}"

    def with_accelerators(self, count: int) -> Identification:
        """The same with another number of accelerators, which is stated apart from the description."""
        if not self.is_accelerator or count < 1:
            return self
        assumed = tuple(each for each in self.assumed if each != _ONE)
        return replace(self, units=float(count), count_stated=True, assumed=assumed)

    def _instances(self) -> int:
        if self.instance is None or not self.instance.count or not self.is_accelerator:
            return 1
        return max(1, math.ceil(self.units / self.instance.count))


_MARK = re.compile(r"(?<![a-z0-9])(pcie|pci-?e|sxm\d?|hbm3|(\d{1,3})\s?gb)(?![a-z0-9])", re.I)
_CONTEXT = re.compile(r"\b(?:nvidia|tesla|geforce|amd|google|gpus?|tpus?|accelerators?|instances?|aws|gcp)\b", re.I)
_CORES = re.compile(r"[-.](\d{1,5})(?![\d.])")
_CORES_AFTER = re.compile(r"\s*cores?\b", re.I)
_ONE = "the number is not stated: one is assumed"


@lru_cache(maxsize=4096)
def lookup(description: str, accelerators: int | None = None, nodes: int | None = None) -> Identification | None:
    """The hardware that the description means; ``None`` if it is not in the table or the description is ambiguous.

    ``accelerators`` is their number if stated apart from the description; it then takes precedence. So is ``nodes``:
    the description is then that of one node, unless it counts nodes or instances itself.
    """
    text = normalised(description)
    found = _identified(text)
    if found is not None and not accelerators:
        found = _with_explained_count(found)
    if found is None or accelerators:
        return found.with_accelerators(accelerators) if found is not None and accelerators else found
    return replace(found, units=found.units * nodes) if nodes and _is_of_a_node(text) else found


def accelerators_in(description: str, accelerators: int | None = None, nodes: int | None = None) -> int | None:
    """How many accelerators a system has, counted as ``lookup`` counts them; ``None`` if that cannot be told.

    One if a device of the table is named without a number. A certain number ("4 GPUs", "8 x GTX 980") counts for
    devices that are not in the table, too.
    """
    if accelerators is not None:
        return accelerators
    text = normalised(description)
    found = lookup(description, None, nodes)
    if found is not None and found.is_accelerator:
        return round(found.units) or None
    if any(_family(hit)[0].kind == "accelerator" for hit in hits(text, _device_names()[0]) if _credible(hit, text)):
        return None
    named = {int(number) for pattern in _UNKNOWN_COUNTED for number in pattern.findall(text)}
    count = count_of_all(text) if not named else named.pop() if len(named) == 1 else None
    if count is None:
        return None
    total = count * nodes_of_all(text)
    if not _explained(text, total, [each.span() for each in re.finditer(_UNKNOWN, text, re.I)]):
        return None
    return (count * nodes if nodes and _is_of_a_node(text) else total) or None


def _with_explained_count(found: Identification) -> Identification | None:
    """With the number that agrees with all that the description counts; ``None`` if there is none."""
    text, total = found.description, found.units
    named = [hit for hit in hits(text, _device_names()[0]) if _credible(hit, text)]
    own = [hit for hit in named if found.device is not None and _family(hit)[0].family == found.device.family]
    between = [
        re.sub(rf"\d+|{_BY}|{_MAKERS}$", "", text[a.end : b.start]).strip(" -")
        for a, b in pairwise(own)
        if a.count is not None and b.count is not None
    ]
    # "8 x V100 + 8 x V100" may be sixteen, or one cluster named twice.
    if total == 0 or {"+", ",", "&", "and"} & {*between}:
        return None
    if not found.is_accelerator:
        return found
    whole = {int(each) for each in _COUNTED.findall(text)}
    nodes = {int(each) for each in _NODES.findall(text)}
    if len(whole) == 1 and {total * each for each in nodes} == whole:
        # "128 GPUs (16 nodes, 8 x V100)"
        found = replace(found, units=float(*whole))
    return found if _explained(text, found.units, [(hit.start, hit.end) for hit in own], found.device) else None


_TOKENS = re.compile(
    rf"""(?P<number>(?<![\w.-])\d+(?:\.\d+)?(?![\d.])(?!\s?[gtm]i?b\b)(?=[x×*\W]|$))
    |(?P<by>[×*]|(?<![a-z])x(?![a-z])(?!86\b))|(?P<open>[(\[])|(?P<close>[)\]])
    |(?P<unit>(?:compute\s)?(?:nodes?|servers?|machines?|hosts?|racks?|pods?|boxes|systems?|instances?|slices?)\b
        |gpus?\b|accelerators?\b|(?:tpu\s)?chips?\b|cards?\b)
    |(?P<skipped>{_MAKERS.replace("{0,4}", "{1,4}")}|each\b|per\s\w+|\s+)|(?P<word>[a-z][\w.-]*)|(?P<other>.)""",
    re.I | re.X,
)


def _explained(text: str, total: float, named: Sequence[tuple[int, int]], device: Chip | None = None) -> bool:
    """Whether ``total`` is a multiple of each product in the text, and agrees with each number of GPUs."""
    spans = [(*span, 1.0) for span in named]
    if device is not None:
        cores = device.cores_in_names
        for at, (start, end, _) in enumerate(spans):
            if device.vendor == "Google" and (found := _CORES.match(text, end)):
                spans[at] = start, found.end(), int(found[1]) / cores
            elif _CORES_AFTER.match(text, end):
                spans[at] = start, end, 1 / cores
    spans += [(hit.start, hit.end, float(_instance_names()[1][_key(hit.name)].count or 1)) for hit in _rented(text)]
    each_of = nodes_of_all(text)
    if not _EACH.search(text) and any(int(found[1]) > 1 for found in _NODES_WITH.finditer(text)):
        return False
    if any(total not in (int(number), int(number) * each_of) for number in _COUNTED.findall(text)):
        return bool(_EACH.search(text))
    return all(value and total >= value and total % value == 0 for value in _written_products(text, sorted(spans)))


def _written_products(text: str, named: Sequence[tuple[int, int, float]]) -> list[float]:
    """The value of each product of numbers, nodes and devices in the text; 0 for one that cannot be read.

    ``named`` are the devices and instances: start, end, and how many accelerators one is.
    """
    tokens: list[tuple[str, float]] = []
    at = 0
    for start, end, value in [*named, (len(text), len(text), 0.0)]:
        for token in _TOKENS.finditer(text, at, max(at, start)):
            kind = str(token.lastgroup)
            if kind != "skipped":
                # "1 024" may be one number or two.
                split = kind == "number" and len(token[0]) == 3 and bool(tokens) and tokens[-1][0] == "number"
                tokens.append((kind, 0.0 if kind != "number" or split else float(token[0])))
        tokens.append(("device" if end > start else "other", value))
        at = end
    found, product, signs, kinds = [], 1.0, 0, list[str]()
    for at, (kind, value) in enumerate(tokens):
        last = tokens[at - 1][0] if at else "other"
        joins = {
            "number": last == "by",
            "by": bool(kinds),
            "device": last in ("by", "number"),
            "unit": last in ("by", "number", "device"),
            "open": last == "by",
            "close": True,
        }.get(kind, False)
        if not joins:
            # "8 x 40 layers" counts no devices.
            if signs and {"device", "unit"} & {*kinds} and not (kind == "word" and last == "number"):
                found.append(product)
            product, signs, kinds = 1.0, 0, []
            if kind == "by" and last == "word" and at > 1 and tokens[at - 2][0] == "number":
                found.append(0.0)
            if kind not in ("number", "device", "unit"):
                continue
        kinds.append(kind)
        signs += kind == "by"
        product *= value if kind in ("number", "device") else 1.0
    return found


def _is_of_a_node(text: str) -> bool:
    """Whether neither nodes nor several instances are counted in the text."""
    return not _NODES.search(text) and all((hit.count or 1) == 1 for hit in _rented(text))


def _identified(text: str) -> Identification | None:
    rented = [(hit, _instance_names()[1][_key(hit.name)]) for hit in _rented(text)]
    inside = [range(hit.start, hit.end) for hit, _ in rented]
    named = [hit for hit in hits(text, _device_names()[0]) if not any(hit.start in each for each in inside)]
    named = [hit for hit in named if _credible(hit, text)]
    chips, sockets = ([hit for hit in named if _family(hit)[0].kind == kind] for kind in ("accelerator", "processor"))
    families = ({_family(hit)[0].family for hit in each} for each in (chips, sockets))
    if any(len(each) > 1 for each in (*families, {entry.name for _, entry in rented})):
        return None
    instance = rented[0] if rented else None
    if chips:
        return _accelerator(text, chips, instance, _family(sockets[0])[0] if sockets else None)
    if instance is not None:
        return _instance(text, *instance)
    return _processor(text, sockets[0], _family(sockets[0])[0]) if sockets else None


def _key(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).lower()


@cache
def _device_names() -> tuple[re.Pattern[str], dict[str, str], frozenset[str]]:
    """A pattern for all names, the family of each, and the weak names."""
    family = {name: each.family for each in table().devices.values() for name in [*each.names, *each.weak]}
    weak = frozenset(_key(name) for each in table().devices.values() for name in each.weak)
    return names_pattern(family), {_key(name): of for name, of in family.items()}, weak


@cache
def _instance_names() -> tuple[re.Pattern[str], dict[str, Instance]]:
    by_name = {name: each for each in table().instances.values() for name in [each.name, *each.names]}
    return names_pattern(by_name), {_key(name): each for name, each in by_name.items()}


def _rented(text: str) -> list[Hit]:
    """The instances. A number in brackets behind one is of what it holds: "DGX-1 (8 GPUs)"."""
    return hits(text, _instance_names()[0], in_brackets=False)


def _plain(hit: Hit) -> str:
    """The name as in the table, without a plural ending."""
    key, known = _key(hit.name), _device_names()[1]
    return key if key in known and not (hit.name.endswith("s") and key[:-1] in known) else key[:-1]


def _credible(hit: Hit, text: str) -> bool:
    """Whether a weak name ("T4") is in the position of a device: next to a count or a maker's name, or alone."""
    if _plain(hit) not in _device_names()[2]:
        return True
    alone = not re.search(r"[A-Za-z]", text[: hit.start] + text[hit.end :])
    return alone or _CONTEXT.search(text) is not None or (hit.count is not None and text[hit.start - 1] in "x×* ")


def _marks(text: str) -> set[str]:
    found = set()
    for match in _MARK.finditer(text):
        word = match[1].lower()
        found.add(f"{match[2]}gb" if match[2] else word[:3] if word.startswith("sxm") else word.replace("-", ""))
    return found


def _family(hit: Hit) -> list[Chip]:
    """The variants of the device of that name, the usual one first."""
    family = _device_names()[1][_plain(hit)]
    return [each for each in table().devices.values() if each.family == family]


def _variants(chips: list[Hit]) -> list[Chip]:
    """The variants that the words after the names allow, the likeliest first; none if the words conflict."""
    allowed = _family(chips[0])
    stated = {mark for hit in chips for mark in _marks(f"{hit.name} {hit.rest}")}
    stated &= {mark for each in allowed for mark in each.marks}
    return [each for each in allowed if stated <= set(each.marks)]


def _units(hit: Hit, device: Chip, text: str) -> float | None:
    """The number of chips at the name: a number next to it, or the cores of a name such as "v3-32"."""
    each = device.cores_in_names
    cores = _CORES.match(text, hit.end) if device.vendor == "Google" else None
    if cores is not None:
        times = _TIMES.match(text, cores.end())
        return (hit.count or 1) * int(cores[1]) / each * (1 if times is None else _product(times["n"]))
    if hit.count is not None and _CORES_AFTER.match(text, hit.end):
        return hit.count / each
    return None if hit.count is None else float(hit.count)


def _accelerator(
    text: str, chips: list[Hit], rented: tuple[Hit, Instance] | None, processor: Chip | None
) -> Identification | None:
    variants = _variants(chips)
    if not variants:
        return None
    device, assumed = variants[0], []
    counts = {found for hit in chips if (found := _units(hit, device, text)) is not None}
    if len(counts) > 1 and max(counts) != min(counts) * nodes_of_all(text):
        return None
    # "128 x V100 (16 nodes, each 8 x V100)" gives both.
    units = min(counts, default=None)
    units = float(count) if units is None and (count := count_of_all(text)) is not None else units
    how = f"'{chips[0].name}'" if units is None else f"'{chips[0].name}', {units:g} of them"
    instance = None if rented is None else rented[1]
    if instance is not None and instance.device and table().devices[instance.device].family != device.family:
        assumed.append(f"{instance.name} has no {device.name}: the price of the instance is left out")
        instance = None
    if instance is not None and rented is not None and instance.device:
        device = device if len(variants) == 1 else table().devices[instance.device]
        how += f"; instance '{rented[0].name}' has {instance.count}"
        if units is None:
            units = float((rented[0].count or 1) * instance.count)
        elif rented[0].count and (units == instance.count or _EACH.search(text)):
            # "2 x p3.16xlarge (8 x V100)": a number next to a number of instances is that of each.
            units *= rented[0].count
    elif len(variants) > 1:
        assumed.append(f"the variant of {device.family} is not stated: {device.name} is assumed")
    stated = units is not None
    if not stated:
        assumed.append(_ONE)
    nodes, total = nodes_of_all(text), 1.0 if units is None else units
    # "16 nodes, 128 V100, 8 per node" gives both, and so does "128 V100 (16 nodes x 8)".
    if not any(int(each) * nodes == total for each in (*_OF_EACH.findall(text), *_NODES_TIMES.findall(text))):
        total *= nodes
    return Identification(text, device, total, stated, how, instance, processor, tuple(assumed))


def _instance(text: str, hit: Hit, instance: Instance) -> Identification:
    devices, many = table().devices, hit.count or 1
    processor = devices.get(instance.processor)
    how = f"instance '{hit.name}'"
    if instance.device:
        many = hit.count or nodes_of_all(text)
        how += f" has {instance.count} x {instance.device}"
        return Identification(
            text, devices[instance.device], float(many * instance.count), True, how, instance, processor
        )
    if processor is None or not processor.cores or not instance.cores:
        how += ", whose processor is unknown"
        return Identification(text, None, float(many), True, how, instance)
    how += f" has {instance.cores} cores of {processor.name}"
    return Identification(text, processor, many * instance.cores / processor.cores, True, how, instance, processor)


def _processor(text: str, hit: Hit, device: Chip) -> Identification:
    stated = hit.count is not None
    how = f"'{hit.name}', {hit.count} of them" if stated else f"'{hit.name}'"
    assumed = () if stated else (_ONE,)
    return Identification(text, device, float(hit.count or 1), stated, how, None, device, assumed)
