"""A network from one line of text: ``alpha=2us,beta=25GB/s,topology=torus,dimensions=8x8``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from levelbench.distributed.simulation.networks import Network
from levelbench.distributed.simulation.units import bandwidth, duration_s
from levelbench.errors import UnknownNameError, UsageError

__all__ = ["TOPOLOGIES", "parse"]

TOPOLOGIES = ("flat", "ring", "tree", "fat-tree", "torus", "hosts")


def _count(text: str, asked: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,8}", text):
        raise UsageError(f"{asked}={text}", f"{text!r} is not a whole number above zero", "give one")
    return int(text)


def _radix(text: str, asked: str) -> int:
    if (value := _count(text, asked)) < 2:
        raise UsageError(f"{asked}={text}", "a tree branches at least in two", "give 2 or more")
    return value


def _taper(text: str, asked: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text) or float(text) < 1:
        raise UsageError(f"{asked}={text}", "it is not a number of at least 1", "give how much narrower each level is")
    return float(text)


def _dimensions(text: str, asked: str) -> tuple[int, ...]:
    return tuple(_count(each, asked) for each in text.split("x"))


def _topology(text: str, asked: str) -> str:
    if text not in TOPOLOGIES:
        raise UnknownNameError(asked, text, TOPOLOGIES)
    return text


_READ: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "alpha": ("alpha_s", duration_s),
    "beta": ("beta", bandwidth),
    "topology": ("topology", _topology),
    "hop": ("hop_s", duration_s),
    "radix": ("radix", _radix),
    "taper": ("taper", _taper),
    "dimensions": ("dimensions", _dimensions),
    "per-host": ("per_host", _count),
    "local-alpha": ("local_alpha_s", duration_s),
    "local-beta": ("local_beta", bandwidth),
}
_BELONG = {"radix": ("tree", "fat-tree"), "taper": ("fat-tree",), "dimensions": ("torus",)}


def parse(text: str) -> Network:
    """A network from ``key=value`` pairs, separated by commas. ``alpha`` and ``beta`` are needed.

    Keys: ``alpha``, ``hop``, ``local-alpha`` (times: ns us ms s), ``beta``, ``local-beta`` (GB/s, Gbit/s, ...),
    ``topology``, ``radix`` (tree, fat-tree), ``taper`` (fat-tree), ``dimensions`` (torus: 8x8), ``per-host``.
    ``topology=hosts`` is ``flat`` and asks for ``per-host``. ``UsageError`` says what cannot be meant.
    """
    asked = f"the network {text!r}"
    given: dict[str, str] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        key, equals, value = (each.strip() for each in part.partition("="))
        if not equals or not value:
            raise UsageError(asked, f"{part!r} is not of the form key=value", "write for example alpha=2us,beta=25GB/s")
        if key not in _READ:
            raise UnknownNameError("setting of a network", key, _READ)
        if key in given:
            raise UsageError(asked, f"{key} is there twice", "give it once")
        given[key] = value
    for key, unit in (("alpha", "2us"), ("beta", "25GB/s")):
        if key not in given:
            raise UsageError(asked, f"it has no {key}", f"add {key}={unit}, or what yours has")
    _check_pairs(asked, given)
    settings = {_READ[key][0]: _READ[key][1](value, key) for key, value in given.items()}
    if settings.get("topology") == "hosts":
        settings["topology"] = "flat"
    return Network(**settings)


def _check_pairs(asked: str, given: dict[str, str]) -> None:
    """Refuse what would be read and then have no effect, or lacks its other half."""
    topology = given.get("topology", "flat")
    for key, topologies in _BELONG.items():
        if key in given and topology not in topologies:
            raise UsageError(asked, f"{key} means nothing for topology={topology}", f"use it with {topologies[0]}")
    if topology == "hosts" and "per-host" not in given:
        raise UsageError(asked, "it does not say how many ranks a host has", "add per-host=8")
    local = {"local-alpha", "local-beta"} & set(given)
    several = given.get("per-host", "1") != "1"
    if several and len(local) < 2:
        raise UsageError(
            asked, "several ranks on a host, and not what a message takes there", "add local-alpha and local-beta"
        )
    if local and not several:
        raise UsageError(asked, "one rank on a host sends nothing within it", "add per-host=8, or leave local-* out")
