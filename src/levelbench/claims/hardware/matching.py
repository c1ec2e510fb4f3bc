"""``lookup``: from somebody's description of hardware to its entry in the table.

The one idea: it would rather not know than be wrong. Two different accelerators in one description, a name that is
only part of a word, a variant that the table has not: all of these are ``None``.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from levelbench.claims.hardware.match import Match
from levelbench.claims.hardware.table import Device, Instance, table
from levelbench.claims.hardware.words import Hit, count_of_all, hits, names_pattern, nodes_of_all, normalised

__all__ = ["lookup"]

_MARK = re.compile(r"(?<![a-z0-9])(pcie|pci-?e|sxm\d?|hbm3|(\d{1,3})\s?gb)(?![a-z0-9])", re.I)
_CONTEXT = re.compile(r"\b(?:nvidia|tesla|geforce|amd|google|gpus?|tpus?|accelerators?|instances?|aws|gcp)\b", re.I)
_CORES = re.compile(r"[-.](\d{1,5})(?![\d.])")
_CORES_AFTER = re.compile(r"\s*cores?\b", re.I)
_ONE = "how many there are is not stated: one is taken"


@lru_cache(maxsize=4096)
def lookup(description: str, accelerators: int | None = None) -> Match | None:
    """What the description means, or ``None`` where the table does not have it or the description is ambiguous.

    ``accelerators`` is their number where it is stated apart from the description; it then takes precedence.
    """
    text = normalised(description)
    found = _match(text)
    return found.with_accelerators(accelerators) if found is not None and accelerators else found


def _match(text: str) -> Match | None:
    rented = [(hit, _instance_names()[1][_key(hit.name)]) for hit in hits(text, _instance_names()[0])]
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
    """A pattern of all names, the family of each, and those that are weak."""
    family = {name: each.family for each in table().devices.values() for name in [*each.names, *each.weak]}
    weak = frozenset(_key(name) for each in table().devices.values() for name in each.weak)
    return names_pattern(family), {_key(name): of for name, of in family.items()}, weak


@cache
def _instance_names() -> tuple[re.Pattern[str], dict[str, Instance]]:
    by_name = {name: each for each in table().instances.values() for name in [each.name, *each.names]}
    return names_pattern(by_name), {_key(name): each for name, each in by_name.items()}


def _plain(hit: Hit) -> str:
    """The name as the table has it: without the ending of a plural."""
    key, known = _key(hit.name), _device_names()[1]
    return key if key in known and not (hit.name.endswith("s") and key[:-1] in known) else key[:-1]


def _credible(hit: Hit, text: str) -> bool:
    """Whether a weak name ("T4") stands where a device would: beside a count, a maker's name, or alone."""
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


def _family(hit: Hit) -> list[Device]:
    """The variants of the device of that name, the usual one first."""
    family = _device_names()[1][_plain(hit)]
    return [each for each in table().devices.values() if each.family == family]


def _variants(chips: list[Hit]) -> list[Device]:
    """The variants that the words after the names allow, the likeliest first; none where the words contradict."""
    allowed = _family(chips[0])
    told = {mark for hit in chips for mark in _marks(f"{hit.name} {hit.rest}")}
    told &= {mark for each in allowed for mark in each.marks}
    return [each for each in allowed if told <= set(each.marks)]


def _units(hit: Hit, device: Device, text: str) -> float | None:
    """How many chips stand at the name: a number beside it, or the cores of a name such as "v3-32"."""
    each = device.cores_in_names
    cores = _CORES.match(text, hit.end) if device.vendor == "Google" else None
    if cores is not None:
        return (hit.count or 1) * int(cores[1]) / each
    if hit.count is not None and _CORES_AFTER.match(text, hit.end):
        return hit.count / each
    return None if hit.count is None else float(hit.count)


def _accelerator(
    text: str, chips: list[Hit], rented: tuple[Hit, Instance] | None, processor: Device | None
) -> Match | None:
    variants = _variants(chips)
    if not variants:
        return None
    device, assumed = variants[0], []
    units = next((found for hit in chips if (found := _units(hit, device, text)) is not None), None)
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
    elif len(variants) > 1:
        assumed.append(f"which {device.family} it is, is not stated: {device.name} is taken")
    stated = units is not None
    if not stated:
        assumed.append(_ONE)
    total = (1.0 if units is None else units) * nodes_of_all(text)
    return Match(text, device, total, stated, how, instance, processor, tuple(assumed))


def _instance(text: str, hit: Hit, instance: Instance) -> Match:
    devices, many = table().devices, hit.count or 1
    processor = devices.get(instance.processor)
    how = f"instance '{hit.name}'"
    if instance.device:
        how += f" has {instance.count} x {instance.device}"
        return Match(text, devices[instance.device], float(many * instance.count), True, how, instance, processor)
    if processor is None or not processor.cores or not instance.cores:
        how += ", whose processor is not known"
        return Match(text, None, float(many), True, how, instance)
    how += f" has {instance.cores} cores of {processor.name}"
    return Match(text, processor, many * instance.cores / processor.cores, True, how, instance, processor)


def _processor(text: str, hit: Hit, device: Device) -> Match:
    stated = hit.count is not None
    how = f"'{hit.name}', {hit.count} of them" if stated else f"'{hit.name}'"
    assumed = () if stated else (_ONE,)
    return Match(text, device, float(hit.count or 1), stated, how, None, device, assumed)
