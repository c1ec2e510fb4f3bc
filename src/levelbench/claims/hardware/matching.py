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
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from levelbench.claims.hardware.counting import Counted, Named, counted_in, counts_nodes
from levelbench.claims.hardware.table import Chip, Instance, table

__all__ = [
    "Hit",
    "Identification",
    "accelerators_in",
    "hits",
    "lookup",
    "names_pattern",
    "normalised",
]

_LONGEST = 1000
_BY = r"[x×*]"
_BEGINS = r"(?:(?<![A-Za-z0-9.])|(?<=[0-9][xX]))"
_FOLLOWS = r"(?![\s_-]{0,2}(?:ti|super|max[\s-]?q|mobile|laptop|nvl)\b)(?!\s?\([^()]*\bnvl\b)"
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
# "V100 (16GB, PCIe)" says as much as "V100 16GB PCIe"; what a host has says nothing.
_REST = re.compile(
    r"(?:(?!\s-\s)[^,;/+()\[\]|&]|\((?![^()]*\b(?:ram|hosts?|nodes?|servers?|systems?|cpus?)\b)[^()]*\))*", re.I
)
_THOUSANDS = re.compile(r"(?:(?<![\w.,-])|(?<=v\d-))(\d{1,3})[,'’](\d{3})(?![\d,])")
_MAY_PRECEDE = re.compile(r"(?:^|[,;:/|+(\[{&x×*]|\b(?:on|of|with|using|and|has|have|holds|by))\s*$", re.I)
_WORDS = {"one": 1, "single": 1, "two": 2, "dual": 2, "three": 3, "four": 4, "quad": 4, "five": 5, "six": 6, "seven": 7}
_WORDS |= {"eight": 8, "nine": 9, "ten": 10, "twelve": 12, "sixteen": 16}
_WORD = re.compile(rf"(?<![\w-])({'|'.join(_WORDS)})(?=\s)", re.I)
# "8 x GTX 980" or "H800 * 8": devices that are not in the table.
_UNKNOWN = re.compile(r"(?<![\w.-])(?:(?:gtx|rtx)\s?\d{3,4}|tpu\s?v\d|[abhlmptv]\d{2,3})(?![a-z0-9])", re.I)


@dataclass(frozen=True)
class Hit:
    """``name`` from the table at ``start`` to ``end`` of the text; ``count`` is the number next to it, if any."""

    name: str
    start: int
    end: int
    count: int | None
    rest: str
    """The text up to the next comma, slash, plus or such bracket, which may name a variant ("-SXM2-16GB")."""

    weak: bool = False


def normalised(text: str) -> str:
    """The text in normalised Unicode, on one line, at most 1,000 characters."""
    plain = " ".join(unicodedata.normalize("NFKC", text[:_LONGEST]).split())[:_LONGEST]
    return _WORD.sub(lambda word: str(_WORDS[word[1].lower()]), _THOUSANDS.sub(r"\1\2", plain))


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
        rest = _REST.match(text[match.end() : match.end() + 60])
        count = _count(text, match.start(), match.end(), in_brackets)
        found.append(Hit(match[0], match.start(), match.end(), count, rest[0] if rest else ""))
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
_CORES_STATED = re.compile(r"(?<![\w.])(\d{1,5})\s?cores\b", re.I)
_ONE = "the number is not stated: one is assumed"


@lru_cache(maxsize=4096)
def lookup(description: str, accelerators: int | None = None, nodes: int | None = None) -> Identification | None:
    """The hardware that the description means; ``None`` if it is not in the table or the description is ambiguous.

    ``accelerators`` is their number if stated apart from the description; it then takes precedence. So is ``nodes``:
    the description is then that of one node, unless it counts nodes or instances itself.
    """
    text = normalised(description)
    found = _identified(text, accelerators)
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
    counted = counted_in(text, [(each.start(), each.end(), None) for each in _UNKNOWN.finditer(text)])
    if not counted.is_clear or counted.count is None:
        return None
    return round(counted.count * (nodes if nodes and _is_of_a_node(text) else 1)) or None


def _is_of_a_node(text: str) -> bool:
    """Whether neither nodes nor several instances are counted in the text."""
    return not counts_nodes(text) and all((hit.count or 1) == 1 for hit in _rented(text))


def _identified(text: str, accelerators: int | None = None) -> Identification | None:
    rented = [(hit, _instance_of(hit)) for hit in _rented(text)]
    inside = [range(hit.start, hit.end) for hit, _ in rented]
    named = [hit for hit in hits(text, _device_names()[0]) if not any(hit.start in each for each in inside)]
    named = [hit for hit in named if _credible(hit, text)]
    chips, sockets = ([hit for hit in named if _family(hit)[0].kind == kind] for kind in ("accelerator", "processor"))
    families = ({_family(hit)[0].family for hit in each} for each in (chips, sockets))
    if any(len(each) > 1 for each in (*families, {entry.name for _, entry in rented})):
        return None
    instance = rented[0] if rented else None
    if chips:
        return _accelerator(text, chips, instance, _family(sockets[0])[0] if sockets else None, accelerators)
    if instance is not None:
        return _instance(text, *instance, accelerators)
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


def _instance_of(hit: Hit) -> Instance:
    known, key = _instance_names()[1], _key(hit.name)
    return known[key] if key in known else known[key[:-1]]  # "DGX-1s"


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


def _named(text: str, chips: list[Hit], rented: tuple[Hit, Instance] | None) -> list[Named]:
    """The devices and the machine of the text as it counts them; what else is named is not counted."""
    found: list[Named] = []
    for hit in chips:
        device = _family(hit)[0]
        cores = _CORES.match(text, hit.end) if device.vendor == "Google" else None
        holds = None if cores is None else int(cores[1]) / device.cores_in_names
        found.append((hit.start, hit.end if cores is None else cores.end(), holds))
    if rented is not None:
        found.append((rented[0].start, rented[0].end, float(rented[1].count) if rented[1].device else 0.0))
    inside = [range(start, end) for start, end, _ in found]
    others = [*hits(text, _device_names()[0]), *_rented(text)]
    return [*found, *((each.start, each.end, 0.0) for each in others if not any(each.start in one for one in inside))]


def _accelerator(
    text: str,
    chips: list[Hit],
    rented: tuple[Hit, Instance] | None,
    processor: Chip | None,
    accelerators: int | None,
) -> Identification | None:
    variants = _variants(chips)
    if not variants:
        return None
    device, assumed = variants[0], []
    instance = None if rented is None else rented[1]
    if instance is not None and instance.device and table().devices[instance.device].family != device.family:
        if rented is not None and rented[0].count is not None:
            # "4 DGX-1 with 8 P100 each": what a machine of that kind holds is not in the table.
            return None
        assumed.append(f"{instance.name} has no {device.name}: the price of the instance is left out")
        instance = rented = None
    named = _named(text, chips, rented)
    counted = Counted(accelerators) if accelerators else counted_in(text, named)
    units, cores = counted.count, _CORES_STATED.search(text)
    if not accelerators and device.vendor == "Google":
        if units is not None and any(_CORES_AFTER.match(text, hit.end) for hit in chips):
            units /= device.cores_in_names
        elif cores is not None and all(holds is None for *_, holds in named):
            # "1 TPU v3 device (8 cores)"
            counted = counted if (units or 1) == 1 else replace(counted, is_clear=False)
            units = int(cores[1]) / device.cores_in_names
    if not counted.is_clear:
        return None
    how = f"'{chips[0].name}'" if units is None else f"'{chips[0].name}', {units:g} of them"
    if instance is not None and rented is not None and instance.device:
        device = device if len(variants) == 1 else table().devices[instance.device]
        how += f"; instance '{rented[0].name}' has {instance.count}"
    elif len(variants) > 1:
        assumed.append(f"the variant of {device.family} is not stated: {device.name} is assumed")
    if units is None:
        assumed.append(_ONE)
    return Identification(
        text, device, 1.0 if units is None else units, units is not None, how, instance, processor, tuple(assumed)
    )


def _instance(text: str, hit: Hit, instance: Instance, accelerators: int | None) -> Identification | None:
    devices, many = table().devices, hit.count or 1
    processor = devices.get(instance.processor)
    how = f"instance '{hit.name}'"
    if instance.device:
        counted = Counted(accelerators) if accelerators else counted_in(text, _named(text, [], (hit, instance)))
        if not counted.is_clear or counted.count is None:
            return None
        how += f" has {instance.count} x {instance.device}"
        return Identification(text, devices[instance.device], counted.count, True, how, instance, processor)
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
