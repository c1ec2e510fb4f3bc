"""The rules under which entries are compared: what each version fixes, and the versions that ship or lie in a folder.

Thresholds differ between the README and the tests of one competition, and from year to year. So they are data, one TOML
file per version, and an entry is always scored under a named version.
"""

from __future__ import annotations

import math
import re
import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, field

from levelbench.competition.entries import Scenario, UnreadableError, day_of, read_bytes
from levelbench.errors import DefinitionError, LevelbenchError, StoreError, UnknownNameError
from levelbench.measure.policies import POLICIES
from levelbench.records.schema import Target


class Aggregation(Struct, frozen=True, forbid_unknown_fields=True):
    """How runs become one figure.

    ``first-run``: the crossing of the only run (DAWNBench). ``olympic``: the fastest ``drop`` and slowest ``drop`` of
    ``runs`` are dropped and the rest averaged; up to ``drop`` failures count as slowest (MLPerf). ``median``: the
    median over all runs, where a run that missed the target counts as never, with an interval (ours). ``mean-test``:
    the mean over all runs, if the mean of their final qualities is at the target by a one-sided t test (speed runs).
    """

    rule: Literal["first-run", "olympic", "median", "mean-test"]
    runs: int
    """The number of runs that an entry needs."""
    drop: int = 0
    exact_runs: bool = False
    """Whether more than ``runs`` runs are refused."""
    windows: Literal["lower", "upper", "mean"] | None = None
    """Olympic with more runs than ``runs``: the median over all windows of ``runs`` runs in the order of their start.

    With an even number of windows, one of the two in the middle counts: the ``lower`` score (the faster), the
    ``upper``, or their ``mean``. ``None``: no windows; all runs go into one mean.
    """
    best_of: int = 1
    """Median: the fastest of so many consecutive runs (a study) counts (AlgoPerf); 1: every run."""
    level: float | None = None
    """Mean-test: the p value that the test of the mean final quality must stay below."""
    ranking: Literal["test", "value"] | None = None
    """``test``: a test of the runs says which entries are distinguishable, and fewer than three runs have no rank.

    ``value``: figures are put in order without a test, as published boards do. ``None``: ``test`` for ``median`` and
    ``mean-test``, else ``value``.
    """

    @property
    def by_test(self) -> bool:
        """Whether the entries are compared by a test."""
        return self.ranking == "test" or (self.ranking is None and self.rule in ("median", "mean-test"))


class CostRules(Struct, frozen=True, forbid_unknown_fields=True):
    """Requirements on a price: on-demand only, with source and day; ``rounding`` is how the board prints seconds."""

    on_demand_only: bool = True
    source_required: bool = False
    rounding: Literal["ceil-seconds", "significant"] = "significant"


class Division(Struct, frozen=True, forbid_unknown_fields=True):
    """The settings that a recipe of this division may change; an empty list means any, but none in ``closed``."""

    name: str
    may_change: list[str] = field(default_factory=list)


class MachineRules(Struct, frozen=True, forbid_unknown_fields=True):
    """The machine that every entry has to run on, as entries state their hardware; ``None``: any (one node)."""

    processor: str | None = None
    cores: int | None = None
    accelerator: str | None = None
    accelerators: int | None = None
    nodes: int | None = None

    @property
    def parts(self) -> dict[str, str | int]:
        """The parts that are fixed, by their name in the hardware of an entry."""
        known = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in known.items() if value is not None}

    def words(self) -> str:
        """The machine in words: ``processor AMD EPYC, cores 2``."""
        return ", ".join(f"{name} {value}" for name, value in self.parts.items())


class InferenceRules(Struct, frozen=True, forbid_unknown_fields=True):
    """The allowed scenarios, the quality an entry must keep, and minimum queries or seconds (0: no such rule)."""

    scenarios: list[Scenario]
    threshold: float | None = None
    least_queries: int = 0
    least_duration_s: float = 0.0
    latency_bound_s: float | None = None
    queries: dict[Scenario, int] = field(default_factory=dict)
    """The minimum queries of a scenario (offline: samples), overriding ``least_queries``."""

    def least(self, scenario: Scenario) -> int:
        """The minimum queries (offline: samples) of a measurement under ``scenario``."""
        return self.queries.get(scenario, self.least_queries)


class PrivateRules(Struct, frozen=True, forbid_unknown_fields=True):
    """A test set whose labels only the organiser has: the SHA-256 of their file, and the key that signs scores."""

    labels: str
    key: str


class TaskRules(Struct, frozen=True, forbid_unknown_fields=True):
    """One task under these rules: its target, its data and other systems' names for it."""

    task: str
    target: Target
    inference: InferenceRules | None = None
    private: PrivateRules | None = None
    samples: int | None = None
    """The number of samples answered in inference (those of the test split), if fixed."""
    aliases: list[str] = field(default_factory=list)
    unit: str = ""
    """What the quality is called in print ("top-1 accuracy"); empty: the metric's own name."""


RankedBy = Literal["time", "cost", "samples", "steps", "energy"]
"""What ranks an entry of training: how much of it a run needs to the target."""


class Ruleset(Struct, frozen=True, forbid_unknown_fields=True):
    """One version of a competition's rules; ``id`` is ``name-version``."""

    id: str
    name: str
    version: str
    date: str
    source: str
    clock: str
    crossing: Literal["first", "confirmed", "sustained", "final"]
    aggregation: Aggregation
    tasks: list[TaskRules]
    ranked_by: RankedBy = "time"
    deadline: str = ""
    """The last day on which an entry may be dated; empty: none."""
    machine: MachineRules | None = None
    cost: CostRules = field(default_factory=CostRules)
    divisions: list[Division] = field(default_factory=list)
    notes: str = ""

    @property
    def division_names(self) -> list[str]:
        """The divisions in the order of a board: the rules' own, or else ``closed`` and ``open``."""
        return [each.name for each in self.divisions] or ["closed", "open"]

    def may_change(self, division: str) -> frozenset[str] | None:
        """The settings that an entry of ``division`` may change; ``None``: any."""
        listed = {each.name: each.may_change for each in self.divisions or [Division("closed")]}.get(division)
        return frozenset(listed) if listed or (listed is not None and division == "closed") else None


_ENDING = ".toml"
_LARGEST_BYTES = 1 << 20
_KEY = re.compile(r"ed25519:[A-Za-z0-9+/]{43}=")
_DIVISION = re.compile(r"[a-z0-9](?:[a-z0-9 -]{0,38}[a-z0-9])?")
_DO = "correct the file; docs/reference/rulesets.md lists every field"


@cache
def ruleset_ids() -> tuple[str, ...]:
    """The ids of the shipped rulesets, in order."""
    names = (each.name for each in resources.files(__package__).joinpath("data").iterdir())
    return tuple(sorted(name.removesuffix(_ENDING) for name in names if name.endswith(_ENDING)))


def ruleset(id: str) -> Ruleset:
    """The shipped ruleset of that id; ``UnknownNameError`` if there is none.

    It never opens a user's file, because the id may come from a stranger's submission.
    """
    if id not in ruleset_ids():
        raise UnknownNameError("ruleset", id, ruleset_ids())
    return _shipped(id)


def rulesets() -> list[Ruleset]:
    """All shipped rulesets, by id."""
    return [_shipped(id) for id in ruleset_ids()]


def task_rules(rules: Ruleset, task: str) -> TaskRules | None:
    """The rules for the task of that name or alias; ``None`` if there are none."""
    exact = (each for each in rules.tasks if each.task == task)
    return next(exact, None) or next((each for each in rules.tasks if task in each.aliases), None)


@cache
def _shipped(id: str) -> Ruleset:
    file = resources.files(__package__).joinpath("data").joinpath(f"{id}{_ENDING}")
    return _parsed(file.read_bytes(), f"reading the ruleset {id}")


def read_ruleset(path: str | Path) -> Ruleset:
    """The ruleset in a user's own file.

    Raises ``StoreError`` for a file that cannot be read, and ``DefinitionError``, which names the field, for one that
    is not a ruleset or uses the id of a shipped one.
    """
    path = Path(path)
    asked = f"reading the ruleset {path}"
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise DefinitionError(asked, f"it is larger than {_LARGEST_BYTES} bytes", "give a ruleset")
        raw = path.read_bytes()
    except OSError as error:
        raise StoreError(asked, error.strerror or str(error), "give the path of a .toml file") from error
    return _owned(_parsed(raw, asked), asked)


def folder_rulesets(folder: str | Path, refused: dict[str, LevelbenchError] | None = None) -> dict[str, Ruleset]:
    """The rulesets that entries of a leaderboard may name, by id: the shipped ones and its ``rulesets/*.toml``.

    The files may come from strangers: links are not followed, and anything but a regular file is an error
    (``StoreError``), as are two files with the same id (``DefinitionError``). With ``refused``, such a file is skipped
    and its error stored there under its path in the leaderboard: entries that do not need its rules are unaffected.
    """
    found = {each.id: each for each in rulesets()}
    place = Path(folder, "rulesets")
    own: dict[str, str] = {}
    for path in [] if place.is_symlink() else sorted(place.glob(f"*{_ENDING}")):
        try:
            asked = f"reading the ruleset {path}"
            try:
                raw = read_bytes(path, limit=_LARGEST_BYTES)
            except UnreadableError as error:
                raise StoreError(asked, error.found, "put the ruleset file itself there") from error
            rules = _owned(_parsed(raw, asked), asked)
            if rules.id in own:
                raise DefinitionError(asked, f"{own[rules.id]} has its id {rules.id!r} too", "remove one, or rename it")
        except LevelbenchError as error:
            if refused is None:
                raise
            refused[f"rulesets/{path.name}"] = error
            continue
        own[rules.id] = path.name
        found[rules.id] = rules
    return found


def _owned(rules: Ruleset, asked: str) -> Ruleset:
    """``rules``, unless they use the id of a shipped ruleset."""
    if rules.id in ruleset_ids() and rules != _shipped(rules.id):
        found = f"id is {rules.id!r}, which levelbench ships with other content"
        raise DefinitionError(asked, found, "choose another id")
    return rules


def _parsed(raw: bytes, asked: str) -> Ruleset:
    try:
        read = tomllib.loads(raw.decode("utf-8"))
        rules = msgspec.convert(_without_infinity(read), Ruleset)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DefinitionError(asked, f"it is not TOML ({error})", _DO) from error
    except msgspec.ValidationError as error:
        found = str(error).replace("$.", "")
        do = f"write it in quotes; {_DO}" if found.startswith("Expected `str`, got") else _DO
        raise DefinitionError(asked, found, do) from error
    for found in _faults(rules):
        raise DefinitionError(asked, found, _DO)
    return rules


def _without_infinity(value: object) -> object:
    """``high = inf`` and ``low = -inf`` are how TOML, which lacks null, says that a scale is unbounded."""
    if isinstance(value, dict):
        return {name: _without_infinity(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_infinity(each) for each in value]
    return None if isinstance(value, float) and abs(value) == math.inf else value


def _faults(rules: Ruleset) -> list[str]:
    """Faults that types cannot express, each with its field."""
    found = []
    if rules.id != f"{rules.name}-{rules.version}":
        found.append(f"id is {rules.id!r}, not name-version ({rules.name}-{rules.version})")
    if rules.clock not in POLICIES:
        found.append(f"clock is {rules.clock!r}; known are {', '.join(POLICIES)}")
    if day_of(rules.date) is None:
        found.append(f"date is {rules.date!r}, not a day as in 2026-01-31")
    if rules.deadline and day_of(rules.deadline) is None:
        found.append(f"deadline is {rules.deadline!r}, not a day as in 2026-01-31")
    elif rules.deadline and rules.deadline < rules.date:
        found.append(f"deadline is {rules.deadline}, before the date of the rules, {rules.date}")
    if rules.machine is not None and not rules.machine.parts:
        found.append(f"machine is empty: fix {', '.join(MachineRules.__struct_fields__)}, or remove it")
    named = [each.name for each in rules.divisions]
    found += [f"divisions lists {name!r} twice" for name in dict.fromkeys(named) if named.count(name) > 1]
    for at, each in enumerate(rules.divisions):
        if _DIVISION.fullmatch(each.name) is None:
            do = "use at most 40 lower-case letters, digits, hyphens and spaces"
            found.append(f"divisions[{at}].name is {each.name[:60]!r}: {do}")
        if each.name == "open" and each.may_change:
            found.append(f"divisions[{at}].may_change is set: open may change anything, so give it another name")
    if rules.aggregation.runs < 1:
        found.append(f"aggregation.runs is {rules.aggregation.runs}: an entry needs at least one run")
    if not 0 <= 2 * rules.aggregation.drop < rules.aggregation.runs:
        found.append(f"aggregation.drop is {rules.aggregation.drop}: none of {rules.aggregation.runs} runs is left")
    if rules.aggregation.windows is not None and (rules.aggregation.rule != "olympic" or rules.aggregation.exact_runs):
        found.append("aggregation.windows is set: it needs the rule olympic and exact_runs = false")
    best_of = rules.aggregation.best_of
    if best_of < 1 or (best_of > 1 and rules.aggregation.rule != "median") or rules.aggregation.runs % best_of:
        found.append(f"aggregation.best_of is {best_of}: only median has it, and it must divide the number of runs")
    found += _mean_test_faults(rules)
    if rules.aggregation.rule == "first-run" and rules.aggregation.by_test:
        found.append('aggregation.ranking is "test": the first run alone cannot be tested')
    names: set[str] = set()
    for at, task in enumerate(rules.tasks):
        for name in {task.task, *task.aliases}:
            if name in names:
                found.append(f"tasks[{at}] has the name {name!r} of another task")
            names.add(name)
        found += [f"tasks[{at}].{fault}" for fault in _task_faults(task)]
    return found


def _mean_test_faults(rules: Ruleset) -> list[str]:
    level, runs = rules.aggregation.level, rules.aggregation.runs
    if rules.aggregation.rule != "mean-test":
        return [] if level is None else [f"aggregation.level is {level:g}: only the rule mean-test has it"]
    found = []
    if level is None or not 0.0 < level <= 0.5:
        stated = "not set" if level is None else f"{level:g}"
        found.append(f"aggregation.level is {stated}: mean-test needs one above 0 and at most 0.5, such as 0.01")
    if runs < 2:
        found.append(f"aggregation.runs is {runs}: a test of the mean needs two runs")
    if rules.crossing != "final":
        found.append(f"crossing is {rules.crossing!r}: mean-test judges runs at their end, so it needs final")
    return found


def _task_faults(rules: TaskRules) -> list[str]:
    target, inference = rules.target, rules.inference
    found: list[str] = []
    low, high = target.ends
    if not low <= target.threshold <= high:
        found.append(f"target.threshold is {target.threshold:g}, off its scale {target.scale}")
    kept = inference.threshold if inference else None
    if kept is not None and not low <= kept <= high:
        found.append(f"inference.threshold is {kept:g}, off the scale {target.scale}")
    if rules.samples is not None and rules.samples < 1:
        found.append(f"samples is {rules.samples}: an evaluation has at least one")
    if rules.private is not None and re.fullmatch("[0-9a-f]{64}", rules.private.labels) is None:
        found.append(f"private.labels is {rules.private.labels[:70]!r}: give the SHA-256 of the file of the labels")
    if rules.private is not None and _KEY.fullmatch(rules.private.key) is None:
        do = "write it as levelbench board keys show prints it"
        found.append(f"private.key is {rules.private.key[:60]!r}: {do}")
    if inference is None:
        return found
    if not inference.scenarios:
        found.append("inference.scenarios is empty: name one, or remove inference")
    least = {"least_queries": inference.least_queries, "least_duration_s": inference.least_duration_s}
    least |= {f"queries.{name}": count for name, count in inference.queries.items()}
    found += [f"inference.{name} is {value:g}, below 0" for name, value in least.items() if not value >= 0]
    if inference.latency_bound_s is not None and not inference.latency_bound_s > 0:
        found.append(f"inference.latency_bound_s is {inference.latency_bound_s:g}, not above 0")
    return found
