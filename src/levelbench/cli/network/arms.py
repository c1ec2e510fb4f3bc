"""On what ``levelbench network`` measures: frameworks with their modes, and transforms beside the network as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from levelbench.cli.network.words import Named
from levelbench.errors import MissingError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from levelbench.records.networks import NetworkArm

__all__ = ["framework_words", "make_arms", "transform_lists"]

_PREFERRED = ("torch", "jax", "onnxruntime")


def make_arms(
    named: Named, frameworks: str | None, device: str, lists: Sequence[tuple[str, ...]], trains: bool
) -> list[NetworkArm]:
    """The arms: each framework without a transform, and beside it once for each list of transforms."""
    from levelbench.records.networks import NetworkArm

    words = framework_words(frameworks, device, trains) if named.native is None else _native_words(named, frameworks)
    return [NetworkArm(framework, mode, device, transforms) for framework, mode in words for transforms in ((), *lists)]


def _native_words(named: Named, words: str | None) -> list[tuple[str, str]]:
    """A native model runs on its own framework, in one mode or several."""
    assert named.native is not None
    own = named.native.framework
    found = [(own, "")] if words is None else _split(words)
    for framework, mode in found:
        if framework != own:
            raise UsageError(
                f"{named.name} on {framework}", f"it is a model of {own}", f"give --framework {own}, or leave it out"
            )
        _check_mode(framework, mode)
    return found


def framework_words(words: str | None, device: str, trains: bool = False) -> list[tuple[str, str]]:
    """Framework and mode (empty: the default one) of ``torch:compiled,jax``; without words, all that run there."""
    from levelbench import plugins
    from levelbench.operators.frameworks import load_framework

    if words is not None:
        found = _split(words)
        for framework, mode in found:
            load_framework(framework)
            _check_mode(framework, mode)
        return found
    known = plugins.names("framework")
    able = [name for name in _PREFERRED if name in known and load_framework(name).lacks(device) is None]
    able = [name for name in able if load_framework(name).trains or not trains]
    if not able and device == "cpu":
        able = ["numpy"]
    if not able:
        raise MissingError(f"a framework on {device!r}", "none can run there", "levelbench list shows what runs")
    return [(name, "") for name in able]


def _split(words: str) -> list[tuple[str, str]]:
    parts = [each.strip().partition(":") for each in words.split(",") if each.strip()]
    if not parts:
        raise UsageError("--framework", "it names none", "give one, as in --framework torch:compiled")
    return list(dict.fromkeys((framework, mode) for framework, _, mode in parts))


def _check_mode(framework: str, mode: str) -> None:
    """Refuse a mode that the framework has not."""
    if not mode:
        return
    from levelbench.operators.frameworks import load_framework

    known = load_framework(framework).modes
    if mode not in known:
        raise UnknownNameError(f"mode of {framework}", mode, known)


def transform_lists(words: Sequence[str], memory: str | None) -> list[tuple[str, ...]]:
    """The lists of transforms to measure beside the network as it is: one, or one for each limit of memory.

    ``words`` are names with commas between them, with a setting behind a colon: ``precision:bfloat16``. ``memory``
    are limits for micro-batching, such as ``1GiB,2GiB``.
    """
    from levelbench.networks import transforms

    given = [each.strip() for word in words for each in word.split(",") if each.strip()]
    if not given:
        if memory is not None:
            raise UsageError(f"--memory {memory}", "no transform uses it", "give --transform microbatch")
        return []
    known = transforms.names()
    for word in given:
        if (name := word.partition(":")[0]) not in known:
            raise UnknownNameError("transform", name, known, "see what there is: levelbench list transforms")
    if memory is None:
        if "microbatch" in given:
            raise UsageError("--transform microbatch", "it has no limit of memory", "give one: --memory 2GiB")
        return [tuple(given)]
    if "microbatch" not in given:
        raise UsageError(f"--memory {memory}", "no transform uses it", "give --transform microbatch")
    limits = [_bytes_of(each) for each in memory.split(",")]
    return [
        tuple(f"microbatch;memory={limit}" if each == "microbatch" else each for each in given)
        for limit in dict.fromkeys(limits)
    ]


def _bytes_of(text: str) -> int:
    from levelbench.networks.transforms.microbatch import parse_bytes

    amount = parse_bytes(text)
    if amount < 1:
        raise UsageError(f"--memory {text}", "that is no memory at all", "write it as in 2GiB")
    return amount
