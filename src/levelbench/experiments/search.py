"""A search for settings under a budget: what may be proposed, who proposes, and how a trial is made.

Every trial is an ordinary run, so it resumes, is shared and is read like any other. Proposals are made again from the
first one each time: from the same seed and the same records they are the same, so a search that was killed goes on
where it was, without a file of its own state.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, final

import numpy as np

from levelbench.errors import LevelbenchError, MissingError, UnknownNameError, UsageError
from levelbench.experiments.kernel import Watcher, make_plan
from levelbench.experiments.request import Arm, Options, resolve
from levelbench.experiments.training import RunPlan, Training
from levelbench.records import Record
from levelbench.records.selection import format_value, parse_value
from levelbench.training.task import RESERVED, Setting

__all__ = ["SAMPLERS", "Dimension", "Proposer", "check_space", "make_trial", "proposer", "read_space", "space_size"]

SAMPLERS = ("random", "tpe")
_SHAPE = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(log|uniform|choice)\s*\((.*)\)\s*")
_WRITE = "write NAME=log(1e-4,1), NAME=uniform(0,0.99) or NAME=choice(32,64,128)"
_DIGITS = 4
_MOST_DRAWS = 1000
"""Draws until the search gives up finding settings that it has not tried."""

Settings = dict[str, Setting]


@dataclass(frozen=True)
class Dimension:
    """The values that a setting may have: one of ``choices``, or a number from ``low`` to ``high``.

    ``kind`` is how it is drawn: ``log`` (evenly in the logarithm), ``uniform`` or ``choice``; ``whole`` says that it is
    rounded to a whole number. Other numbers have four significant digits, so that a table shows them exactly.
    """

    name: str
    kind: Literal["log", "uniform", "choice"]
    choices: tuple[Setting, ...] = ()
    low: float = 0.0
    high: float = 0.0
    whole: bool = False

    def __str__(self) -> str:
        inside = self.choices if self.kind == "choice" else self.ends()
        return f"{self.name}={self.kind}({','.join(map(format_value, inside))})"

    def ends(self) -> tuple[Setting, ...]:
        """All choices, or both ends."""
        if self.kind == "choice":
            return self.choices
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)

    def value(self, number: float) -> Setting:
        """The setting at ``number``, between both ends."""
        if self.whole:
            return min(max(round(number), int(self.low)), int(self.high))
        return min(max(float(f"{number:.{_DIGITS}g}"), self.low), self.high)

    def draw(self, generator: np.random.Generator) -> Setting:
        """A value at random."""
        if self.kind == "choice":
            return self.choices[int(generator.integers(len(self.choices)))]
        if self.kind == "log":
            return self.value(math.exp(generator.uniform(math.log(self.low), math.log(self.high))))
        return self.value(float(generator.uniform(self.low, self.high)))


def read_space(words: Sequence[str], settings: Mapping[str, Setting], fixed: Mapping[str, Setting], what: str) -> Space:
    """The space that ``--space`` describes; ``settings`` are the recipe's, ``fixed`` those in the brackets.

    ``UsageError`` for a word of another form, a name twice or in the brackets, an empty range or a value of another
    type than the setting's; ``UnknownNameError`` for a setting that the recipe does not have.
    """
    if not words:
        raise UsageError(f"tuning {what}", "there is no space to search", f"{_WRITE} after --space")
    found: dict[str, Dimension] = {}
    for word in words:
        asked, shape = f"--space {word}", _SHAPE.fullmatch(word)
        if shape is None:
            raise UsageError(asked, "it is no space", _WRITE)
        name = shape[1]
        if name in RESERVED:
            do = "tune settings of the recipe, and compare others with --against"
            raise UsageError(asked, f"{name} is no setting of the recipe", do)
        if name not in settings:
            raise UnknownNameError(f"setting of {what}", name, list(settings))
        if name in found:
            raise UsageError(asked, f"{name} has a space already", "give it once")
        if name in fixed:
            do = "leave one of them out"
            raise UsageError(asked, f"the brackets fix {name}={format_value(fixed[name])}", do)
        found[name] = _dimension(asked, name, shape[2], shape[3], settings[name])
    return tuple(found.values())


Space = tuple[Dimension, ...]


def _dimension(asked: str, name: str, kind: str, inside: str, default: Setting) -> Dimension:
    from levelbench.plugins import typed_setting

    values: list[Setting] = [parse_value(each.strip()) for each in inside.split(",") if each.strip()]
    if kind == "choice":
        choices = tuple(dict.fromkeys(typed_setting(asked, name, each, default) for each in values))
        if len(choices) < 2:
            found = f"{len(choices)} value{'s' * (len(choices) != 1)} to choose from"
            raise UsageError(asked, found, "give two or more, or set it in the brackets of the task")
        return Dimension(name, "choice", choices)
    if isinstance(default, bool | str):
        raise UsageError(asked, f"{name} is no number (default {default!r})", f"write {name}=choice(...)")
    low, high = _ends(asked, kind, values)
    whole = isinstance(default, int)
    if whole and not (low.is_integer() and high.is_integer()):
        raise UsageError(asked, f"{name} is a whole number (default {default})", "give whole numbers")
    return Dimension(name, "log" if kind == "log" else "uniform", (), low, high, whole)


def _ends(asked: str, kind: str, values: Sequence[Setting]) -> tuple[float, float]:
    numbers = [float(each) for each in values if isinstance(each, int | float) and not isinstance(each, bool)]
    if len(values) != 2 or len(numbers) != 2:
        raise UsageError(asked, "a range has two numbers, its ends", _WRITE)
    low, high = numbers
    if not low < high:
        raise UsageError(asked, f"the range from {low:g} to {high:g} is empty", "give the smaller end first")
    if kind == "log" and low <= 0:
        raise UsageError(asked, f"{low:g} has no logarithm", "begin above zero, or write uniform(...)")
    return low, high


def space_size(space: Space) -> float:
    """The number of settings in the space; infinite if one of them is a real number."""
    sizes = [
        len(each.choices) if each.kind == "choice" else each.high - each.low + 1 if each.whole else math.inf
        for each in space
    ]
    return math.prod(sizes)


def check_space(space: Space, reference: str, settings: Mapping[str, Setting], options: Options) -> None:
    """Refuse a space that goes beyond what the recipe accepts, before any run: each end, the others at their defaults.

    ``UsageError`` names the value and what the recipe says of it.
    """
    for dimension in space:
        for value in dimension.ends():
            try:
                resolve(reference, {**settings, dimension.name: value}, options)
            except MissingError:
                raise
            except LevelbenchError as error:
                found = f"the recipe does not accept {dimension.name}={format_value(value)}: {error.found}"
                raise UsageError(f"--space {dimension}", found, "narrow the space") from error


class Proposer(ABC):
    """Proposes settings, one trial after the other; each settings once."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._generator = space, np.random.default_rng(seed)
        self._tried: set[tuple[Setting, ...]] = set()

    def propose(self) -> Settings:
        """The next settings; ``UsageError`` if there are hardly any left that have not been tried."""
        for _ in range(_MOST_DRAWS):
            found = self._next()
            values = tuple(found.values())
            if values not in self._tried:
                self._tried.add(values)
                return found
        raise UsageError(
            f"trial {len(self._tried) + 1}", "the space has no more settings to try", "give fewer --trials"
        )

    @abstractmethod
    def _next(self) -> Settings:
        """Settings, possibly some that were proposed before."""

    def learn(self, score: float) -> None:
        """The outcome of the last proposal: the lower the better; only the order of scores counts."""
        return

    def _drawn(self) -> Settings:
        return {each.name: each.draw(self._generator) for each in self._space}


@final
class _AtRandom(Proposer):
    """Independent draws (Bergstra & Bengio 2012)."""

    def _next(self) -> Settings:
        return self._drawn()


@final
class _TreeParzen(Proposer):
    """Optuna's tree-structured Parzen estimator (Bergstra et al. 2011), after ten trials at random."""

    def __init__(self, space: Space, seed: int) -> None:
        super().__init__(space, seed)
        try:
            import optuna
        except ImportError:
            do = 'pip install "levelbench[tune]", or leave --sampler out: random search needs nothing'
            raise MissingError("--sampler tpe", "Optuna is not installed", do) from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
        kinds = optuna.distributions
        self._distributions: dict[str, Any] = {}
        for each in space:
            if each.kind == "choice":
                self._distributions[each.name] = kinds.CategoricalDistribution(each.choices)
            elif each.whole:
                self._distributions[each.name] = kinds.IntDistribution(
                    int(each.low), int(each.high), each.kind == "log"
                )
            else:
                self._distributions[each.name] = kinds.FloatDistribution(each.low, each.high, each.kind == "log")
        self._states = optuna.trial.TrialState
        self._asked: Any = None

    def _next(self) -> Settings:
        if self._asked is not None:
            # Asked again without an outcome: those settings have been tried, and the estimator may insist on them.
            self._study.tell(self._asked, state=self._states.FAIL)
            self._asked = None
            return self._drawn()
        self._asked = self._study.ask(self._distributions)
        found = self._asked.params
        return {
            each.name: found[each.name] if each.kind == "choice" else each.value(found[each.name])
            for each in self._space
        }

    def learn(self, score: float) -> None:
        """Tell the estimator; what was drawn at random instead of its own proposal is left out."""
        if self._asked is not None:
            self._study.tell(self._asked, score)
            self._asked = None


def proposer(name: str, space: Space, seed: int) -> Proposer:
    """The sampler of that name; ``MissingError`` if it needs a library that is not installed."""
    if name not in SAMPLERS:
        raise UnknownNameError("sampler", name, SAMPLERS)
    return _TreeParzen(space, seed) if name == "tpe" else _AtRandom(space, seed)


def make_trial(
    kind: Training,
    arms: Sequence[Arm],
    seed: int,
    environment: Mapping[str, object],
    watch: Callable[[RunPlan], AbstractContextManager[Watcher[Record]]],
) -> list[Record]:
    """The record of one run of each arm, in their order, made in random order unless it is in the store already.

    A run that fails is the outcome of its settings, and is not repeated. ``LevelbenchError`` if one left no record.
    """
    distinct = list({arm.key: arm for arm in arms}.values())
    plan = make_plan(kind, distinct, [seed], environment)
    records = {place[0]: record for place, record in plan.done.items()}
    for at, record in plan.failed:
        if record.header.source.whole == distinct[at].source.whole:
            records[at] = record
    to_go = [turn for turn in plan.to_go if turn.arm not in records]
    if to_go:
        with watch(plan) as watcher, kind.opened(plan, watcher) as make:
            for number, turn in enumerate(to_go, 1):
                made, error = make(turn, partial(watcher.started, turn, number, len(to_go)))
                watcher.finished(turn, made)
                if made is None or made.status not in ("done", "failed"):
                    raise error or LevelbenchError("a trial", "it left no record", "repeat the command")
                records[turn.arm] = made
    places = {arm.key: at for at, arm in enumerate(distinct)}
    return [records[places[arm.key]] for arm in arms]
