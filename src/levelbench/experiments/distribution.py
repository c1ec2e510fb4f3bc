"""From what a user says about ranks to a distribution, all checked before the first process starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from levelbench.errors import MissingError, UnknownNameError, UnsupportedError, UsageError
from levelbench.records import format_item, parse_item
from levelbench.records.schema import Distribution
from levelbench.training.task import Setting

__all__ = ["TEAM_WORDS", "TeamOptions", "resolve_distribution"]

TEAM_WORDS = ("ranks", "scheme", "engine", "communicator", "scaling", "lr_scale")
"""What may also stand in a task's brackets."""


@dataclass(frozen=True)
class TeamOptions:
    """What applies to all arms of a command; ``None`` leaves it to the default."""

    ranks: int | None = None
    scheme: str | None = None
    engine: str | None = None
    communicator: str | None = None
    scaling: str | None = None
    lr_scale: str | None = None


def resolve_distribution(
    options: TeamOptions, given: dict[str, Setting], framework: str, device: str
) -> Distribution | None:
    """The distribution that ``options`` mean, what is in the brackets winning and taken out of ``given``.

    ``None`` for one rank: a run of one process, which no scheme slows down.
    """
    words: dict[str, Any] = {name: given.pop(name, getattr(options, name)) for name in TEAM_WORDS}
    ranks = words["ranks"]
    if ranks is None:
        _refuse_without_ranks(words)
        return None
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        raise UsageError(f"ranks={ranks}", "that is no number of processes", "give a whole number from 1 on")
    scheme, settings, digest = _scheme(str(words["scheme"] or "all-reduce"), ranks, framework)
    engine, communicator = _engine(str(words["engine"] or "process"), words["communicator"], ranks, device)
    _check_together(scheme, communicator)
    scaling, lr_scale = _scaling(words)
    if ranks == 1:
        return None
    return Distribution(ranks, scheme, settings, engine, communicator, cast(Any, scaling), cast(Any, lr_scale), digest)


def _refuse_without_ranks(words: dict[str, Any]) -> None:
    for name, value in words.items():
        if value is not None:
            raise UsageError(f"{name}={value}", "a run of one process has no such thing", "say how many: --ranks 2")


def _scheme(text: str, ranks: int, framework: str) -> tuple[str, dict[str, Setting], str]:
    """Its name, all its settings, and the digest of its file."""
    from levelbench.distributed.finding import file_of, named_scheme, settings_of

    name, given = parse_item(text)
    scheme = named_scheme(name, given)
    if scheme.frameworks and framework not in scheme.frameworks:
        raise UnsupportedError(
            f"scheme {scheme.name!r} on {framework}",
            f"it is one of {', '.join(scheme.frameworks)}",
            f"use --framework {scheme.frameworks[0]}, or another scheme",
        )
    if lacking := scheme.lacks():
        raise MissingError(f"scheme {scheme.name!r}", lacking, "choose another scheme, or install what it needs")
    if ranks > 1:
        scheme.workers(ranks)
    # An alias is stored as the scheme's own name; of a file the path that the ranks will open, wherever they are.
    place, digest = file_of(name) if ".py" in name else (scheme.name, "")
    return place, settings_of(scheme), digest


def _check_together(name: str, communicator: str) -> None:
    from levelbench.distributed.finding import named_scheme

    scheme = named_scheme(name)
    if scheme.communicators and communicator not in scheme.communicators:
        raise UnsupportedError(
            f"scheme {scheme.name!r} over {communicator}",
            f"it talks through {', '.join(scheme.communicators)}",
            f"use --communicator {scheme.communicators[0]}, or another scheme",
        )


def _engine(text: str, communicator: Any, ranks: int, device: str) -> tuple[str, str]:
    """The engine with its options as they were given, and the communicator."""
    from levelbench.distributed.finding import communicator_kinds
    from levelbench.distributed.launching import ENGINES

    name, options = parse_item(text)
    if name not in ENGINES:
        raise UnknownNameError("engine", name, ENGINES)
    engine = ENGINES[name]
    if lacking := engine.lacks():
        raise MissingError(f"engine {name!r}", lacking, "choose another engine, or install what it needs")
    if ranks > 1:
        engine.check(ranks, options)
        if device.startswith("cuda:"):
            do = "say cuda: each rank takes the one of its number on its machine"
            raise UsageError(f"--device {device} for {ranks} ranks", "it is one, and each rank needs its own", do)
    usual = "nccl" if device.startswith("cuda") and "nccl" in engine.communicators else engine.communicators[0]
    chosen = str(communicator or usual)
    if chosen not in engine.communicators:
        fitting = [each.name for each in ENGINES.values() if chosen in each.communicators]
        if not fitting:
            raise UnknownNameError("communicator", chosen, communicator_kinds())
        raise UsageError(
            f"communicator {chosen!r} with engine {name!r}",
            f"its ranks open {', '.join(engine.communicators)}",
            f"use --engine {fitting[0]}",
        )
    if lacking := communicator_kinds().get(chosen):
        raise MissingError(f"communicator {chosen!r}", lacking, "choose another one, or install what it needs")
    return format_item(name, dict(sorted(options.items()))), chosen


def _scaling(words: dict[str, Any]) -> tuple[str, str]:
    from levelbench.distributed.scaling import LR_SCALES, SCALINGS

    scaling, lr_scale = words["scaling"] or "strong", words["lr_scale"] or "none"
    if scaling not in SCALINGS:
        raise UnknownNameError("way to scale", scaling, SCALINGS)
    if lr_scale not in LR_SCALES:
        raise UnknownNameError("rule of the learning rate", lr_scale, LR_SCALES)
    if scaling == "strong" and lr_scale != "none":
        raise UsageError(
            f"lr_scale={lr_scale} with strong scaling",
            "the batch does not grow with the ranks, so the learning rate has no reason to",
            "leave it out, or use weak scaling",
        )
    return scaling, lr_scale
