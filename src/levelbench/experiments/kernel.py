"""The kernel of everything that is measured in separate processes: one plan, one order, one way to carry it out.

Repeating a command resumes it: a plan says what is wanted, what the store already holds, what is left to do, and why
anything is repeated. Training runs, operators, networks, inference and communicators each have a `Kind`, which finds
its records, says which of them count, and makes new ones.

Child processes import this module before the framework whose start they measure, so nothing heavy is imported at the
top.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from levelbench import __version__
from levelbench.errors import LevelbenchError, MissingError, UsageError
from levelbench.measure.clocks import HOST

if TYPE_CHECKING:
    from levelbench.measure.verdict import Verdict

__all__ = ["CLEAR_WITHIN_S", "Kind", "Looked", "MadeRecord", "Make", "Place", "Plan", "Standing", "Turn"]
__all__ += ["UntilClear", "Watcher"]
__all__ += ["carry_out", "disagreement", "go_on", "make_plan", "measured_before", "need_frameworks"]

Place = tuple[int, int]
"""Identifies a run or process in a plan: the index of its arm, and its seed."""


class _Header(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def started(self) -> str: ...


class MadeRecord(Protocol):
    """What a plan needs to know about a record."""

    @property
    def path(self) -> Path:
        """The record's file."""

    @property
    def header(self) -> _Header:
        """The record's first line."""

    @property
    def status(self) -> str:
        """``running``, ``done``, ``failed`` or ``interrupted``."""


W = TypeVar("W")
R = TypeVar("R", bound=MadeRecord)
T = TypeVar("T")


@dataclass(frozen=True)
class Turn:
    """One run or process to make: which arm, which seed, and why it is repeated (empty if it was never tried).

    ``resume`` is the checkpoint to resume from, if an interrupted run left one; ``replaces`` are the records that this
    one supersedes once it is done, and ``replaced`` counts them, including those that they had replaced themselves.
    """

    arm: int
    seed: int
    why: str = ""
    resume: Path | None = None
    replaces: tuple[Path, ...] = ()
    replaced: int = 0

    @property
    def place(self) -> Place:
        """Its arm and seed."""
        return self.arm, self.seed


@dataclass(frozen=True)
class Plan(Generic[W, R]):
    """``done`` holds the records that already count, by arm and seed; ``to_go`` what is left to make, interleaved.

    ``arms`` lists the arms of ``cases`` cases, one case after the other, each with the same arms. ``failed`` are
    earlier records of the same seeds that failed: they are repeated, but still count as failures. ``earlier`` are
    finished records by arm that are not part of this plan, the newest last; those runs of other seeds among them that
    would count are ``left_out``. ``known`` are the ids of all records that were
    considered, without those in progress that may count once they are done; ``environment`` is that of this machine.
    """

    arms: tuple[W, ...]
    seeds: tuple[int, ...]
    done: Mapping[Place, R]
    to_go: tuple[Turn, ...]
    cases: int = 1
    failed: tuple[tuple[int, R], ...] = ()
    earlier: tuple[tuple[int, R], ...] = ()
    known: frozenset[str] = frozenset()
    environment: Mapping[str, Any] = field(default_factory=dict)
    processes: bool = False
    """Whether these are processes of a benchmark instead of runs."""
    left_out: tuple[tuple[int, R], ...] = ()

    @property
    def wanted(self) -> int:
        """The total number of runs or processes."""
        return len(self.arms) * len(self.seeds)

    def replaced(self, arm: int) -> set[Path]:
        """The records that the turns of an arm are to supersede."""
        return {path for turn in self.to_go if turn.arm == arm for path in turn.replaces}

    def case_of(self, turn: Turn) -> int:
        """The index of the turn's case."""
        return turn.arm * self.cases // len(self.arms)

    def arranged(self, records: Mapping[Place, R]) -> list[list[list[R]]]:
        """The records by case, arm and seed, as summaries expect them."""
        width = len(self.arms) // self.cases
        rows = [[records[arm, seed] for seed in self.seeds] for arm in range(len(self.arms))]
        return [rows[at : at + width] for at in range(0, len(rows), width)]

    def lines(self) -> list[str]:
        """The plan in words: the counts, then a line for each reason why something is repeated."""
        kind = f" process{'es' if self.wanted != 1 else ''}" if self.processes else ""
        reasons: dict[str, list[Turn]] = {}
        for turn in self.to_go:
            if turn.why:
                reasons.setdefault(turn.why, []).append(turn)
        return [
            f"{self.wanted}{kind} wanted · {len(self.done)} done · {len(self.to_go)} to go",
            *(f"  again: {self._counted(again)}: {why}" for why, again in reasons.items()),
        ]

    def _counted(self, again: Sequence[Turn]) -> str:
        if self.processes:
            return str(len(again))
        seeds = sorted({turn.seed for turn in again})
        return f"{len(again)} run{'s' if len(again) > 1 else ''} (seed {', '.join(map(str, seeds))})"


@dataclass(frozen=True)
class Standing:
    """A record's role in a plan: why it does not count (empty if it does), and what that means for its repetition.

    ``replaced``: the repetition supersedes it. ``failed``: it still counts as a failure. ``resume`` is the checkpoint
    from which the repetition resumes.
    """

    why: str = ""
    replaced: bool = False
    failed: bool = False
    resume: Path | None = None


class Watcher(Generic[R]):
    """Gets the events of a plan that is carried out; this one ignores them."""

    def doubted(self, doubts: list[str]) -> None:
        """The next arm's runs will carry these doubts, whatever they show."""

    def preparing(self, what: str) -> None:
        """A preparation for all processes begins, such as measuring the ceilings with a framework."""

    def started(self, turn: Turn, number: int, total: int) -> None:
        """Process ``number`` (from 1) of ``total`` begins."""

    def progress(
        self,
        turn: Turn,
        stage: str,
        elapsed_s: float = 0.0,
        events: Sequence[object] = (),
        steps: tuple[int, int, int] = (0, 0, 0),
    ) -> None:
        """The current stage (such as ``train``), the elapsed time, new events of the record, and the steps.

        ``steps`` are the number done, the maximum, and the examples of one; 0 while unknown.
        """

    def finished(self, turn: Turn, record: R | None) -> None:
        """The process has ended; ``record`` is ``None`` if it ended before it began one."""


Make = Callable[[Turn, Callable[[], None]], tuple[R | None, LevelbenchError | None]]
"""Makes a turn's record and calls the function each time that a process begins; the error is raised after display."""


class Kind(ABC, Generic[W, R]):
    """What distinguishes a kind of measurement."""

    processes = True
    """Whether the plan counts processes instead of runs."""
    waits = False
    """Whether to wait for a record that another process is making; otherwise it is refused."""

    @abstractmethod
    def check(self, arms: Sequence[W]) -> None:
        """Refuse arms that cannot be measured here, or not together."""

    @abstractmethod
    def key(self, wanted: W) -> str:
        """The digest of the specification."""

    @abstractmethod
    def title(self, wanted: W) -> str:
        """Its name in messages."""

    @abstractmethod
    def find(self, wanted: W) -> Iterable[R]:
        """Its records in the store; of several for one seed the last counts."""

    @abstractmethod
    def why_not(self, record: R, wanted: W, environment: Mapping[str, object]) -> str:
        """Why a finished record does not count in this environment; empty if it does."""

    def standing(self, record: R, wanted: W, environment: Mapping[str, Any]) -> Standing:
        """The record's role in a plan."""
        done = record.status == "done"
        return Standing(self.why_not(record, wanted, environment) if done else "the previous process was interrupted")

    def is_replaced(self, record: R, wanted: W, environment: Mapping[str, object]) -> bool:
        """Whether a repetition replaces this record."""
        return False

    @abstractmethod
    def opened(self, plan: Plan[W, R], watcher: Watcher[R]) -> AbstractContextManager[Make[R]]:
        """Prepare what all processes of the plan need; yields the function that makes a record."""


def make_plan(
    kind: Kind[W, R],
    arms: Sequence[W],
    seeds: Sequence[int],
    environment: Mapping[str, object],
    *,
    cases: int = 1,
    fresh: bool = False,
    since: str = "",
) -> Plan[W, R]:
    """Find what is done and interleave the rest: arms take turns in random order and share their seeds.

    ``environment`` is that of this machine now, from ``capture``. With ``fresh``, only records that started ``since``
    (ISO 8601; none without it) count as done, and new ones replace the others. Raises what ``kind`` refuses, and
    ``UsageError`` for a record that another process is making, unless the kind waits for it.
    """
    kind.check(arms)
    done: dict[Place, R] = {}
    found: dict[Place, Standing] = {}
    replaced: dict[Place, list[R]] = {}
    failed: list[tuple[int, R]] = []
    earlier: list[tuple[int, R]] = []
    known: set[str] = set()
    for index, wanted in enumerate(arms):
        for record in kind.find(wanted):
            known.add(record.header.id)
            place = (index, record.header.seed)
            if record.header.seed not in seeds:
                earlier.append((index, record))
                continue
            if record.status == "running" and not kind.waits:
                raise UsageError(
                    f"process {record.header.seed} of {kind.title(wanted)}",
                    f"another process is already running it ({record.path.name})",
                    "wait for it",
                )
            if fresh and (not since or record.header.started < since):
                earlier.append((index, record))
                if kind.is_replaced(record, wanted, environment):
                    replaced.setdefault(place, []).append(record)
                continue
            if record.status == "running":
                known.discard(record.header.id)
            standing = kind.standing(record, wanted, environment)
            if not standing.why:
                # As for who reads them: of several runs of a seed the earliest counts, of several processes the newest.
                done[place] = record if kind.processes else done.get(place, record)
                continue
            before = found.get(place, Standing())
            found[place] = Standing(standing.why, resume=standing.resume or before.resume)
            if standing.replaced:
                replaced.setdefault(place, []).append(record)
            if standing.failed:
                failed.append((index, record))
    to_go = tuple(
        _turn(place, found.get(place, Standing()), replaced.get(place, []))
        for place in _interleaved(len(arms), cases, seeds, kind.key(arms[0]) if arms else "")
        if place not in done
    )
    ended = [(index, record) for index, record in earlier if record.status == "done"]
    return Plan(
        tuple(arms),
        tuple(seeds),
        done,
        to_go,
        cases,
        tuple(failed),
        tuple(ended),
        frozenset(known),
        environment,
        kind.processes,
        () if kind.processes else tuple(_left_out(kind, arms, seeds, environment, ended)),
    )


def _left_out(
    kind: Kind[W, R],
    arms: Sequence[W],
    seeds: Sequence[int],
    environment: Mapping[str, object],
    ended: Sequence[tuple[int, R]],
) -> Iterator[tuple[int, R]]:
    """Those of the records that ended which would count if their seeds had been asked for."""
    for index, record in ended:
        if record.header.seed not in seeds and not kind.why_not(record, arms[index], environment):
            yield index, record


def measured_before(kind: Kind[W, Any], plan: Plan[W, Any]) -> Counter[int]:
    """How often each arm was measured before, for a verdict and under the conditions of now, apart from this plan."""
    from levelbench.measure.verdict import LEAST_RUNS

    counts = Counter[Place]()
    for arm, record in plan.earlier:
        if record.header.planned_runs >= LEAST_RUNS and not kind.why_not(record, plan.arms[arm], plan.environment):
            counts[arm, record.header.seed] += 1
    return Counter({arm: max(count for (own, _), count in counts.items() if own == arm) for arm, _ in counts})


def _turn(place: Place, standing: Standing, before: Sequence[Any]) -> Turn:
    count = sum(1 + record.header.replaced for record in before)
    return Turn(*place, standing.why, standing.resume, tuple(record.path for record in before), count)


def _interleaved(arms: int, cases: int, seeds: Sequence[int], key: str) -> list[Place]:
    """All places: by seed, then case, then arm, with the order of the arms reversed in random turns."""
    from levelbench.measure.design import turns

    places = []
    for reverse, seed in zip(turns(len(seeds), key), seeds, strict=True):
        for at in range(0, arms, max(1, arms // cases)):
            row = range(at, at + arms // cases)
            places += [(arm, seed) for arm in (reversed(row) if reverse else row)]
    return places


def carry_out(plan: Plan[W, R], kind: Kind[W, R], watcher: Watcher[R]) -> dict[Place, R]:
    """Make what is left to do, one after the other; returns all records that count, old and new, by place.

    The first failure ends this and is raised, since its cause (a corrupt dataset, a task that raises) usually affects
    the others too. Finished records are kept, and the same command resumes from there.
    """
    records = dict(plan.done)
    if not plan.to_go:
        return records
    with kind.opened(plan, watcher) as make:
        for number, turn in enumerate(plan.to_go, 1):

            def begin(turn: Turn = turn, number: int = number) -> None:
                watcher.started(turn, number, len(plan.to_go))

            record, error = make(turn, begin)
            watcher.finished(turn, record)
            if error is not None:
                raise error
            if record is not None:
                records[turn.place] = record
    return records


def need_frameworks(wanted: Iterable[tuple[str, str]]) -> None:
    """Raise ``MissingError`` for a (framework, device) that is not available here."""
    from levelbench.operators.frameworks import load_framework

    for framework, device in dict.fromkeys(wanted):
        if lacking := load_framework(framework).lacks(device):
            asked = f"framework {framework!r} on device {device!r}"
            raise MissingError(asked, lacking, "levelbench list shows what runs")


_MUST_AGREE = {
    "machine.id": "recorded on another machine",
    "machine.cores_allowed": "recorded with a different number of allowed cores",
    "machine.cgroup_cores": "recorded with a different limit on cores",
    "accelerators": "recorded with different accelerators",
    "threads.settings": "recorded with different thread settings (such as OMP_NUM_THREADS)",
    "malloc": "recorded with different MALLOC_* settings",
}


def disagreement(
    version: str,
    then: Mapping[str, Any],
    now: Mapping[str, Any],
    libraries: Sequence[str],
    threads: Mapping[str, str] = MappingProxyType({}),
    *,
    elsewhere: bool = False,
) -> str:
    """Why a record of levelbench ``version`` in the environment ``then`` does not count now; empty if it does.

    ``threads`` are settings that a run gets unless the user has set them. ``elsewhere`` means that runs are made on
    other machines, so machine and cores are not compared.
    """
    if version != __version__:
        return f"recorded by levelbench {version}, and this is {__version__}"
    for path, words in _MUST_AGREE.items():
        if elsewhere and (path.startswith("machine.") or path == "accelerators"):
            continue
        wanted = _at(now, path)
        if path == "threads.settings" and threads:
            wanted = {**threads, **(wanted or {})}
        if _at(then, path) != wanted:
            return words
    for library in dict.fromkeys(libraries):
        before, after = _at(then, f"libraries.{library}"), _at(now, f"libraries.{library}")
        if before != after:
            return f"recorded with {library} {before}, and this is {after}"
    return ""


def _at(tree: Any, path: str) -> Any:
    """The value at the dotted ``path`` of nested mappings; ``None`` if there is none."""
    for name in path.split("."):
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree


CLEAR_WITHIN_S = 600.0
"""The default time limit of ``--until-clear``."""


@dataclass(frozen=True)
class UntilClear:
    """Looks planned for a relative difference of ``effect``; none begins after ``limit_s`` seconds."""

    effect: float
    limit_s: float = CLEAR_WITHIN_S


@dataclass(frozen=True)
class Looked:
    """The result of a look after ``count`` of each arm: verdicts by the name of the arm, or why there are none."""

    count: int
    verdicts: Sequence[tuple[str, Verdict]]
    why_none: str
    left_s: float

    @property
    def clear(self) -> bool:
        """Whether no further look is needed."""
        from levelbench.measure.verdict import VerdictKind

        return all(verdict.kind != VerdictKind.UNCLEAR for _, verdict in self.verdicts)


Judge = Callable[[T], "tuple[Sequence[tuple[str, Verdict]], str]"]


def go_on(
    until: UntilClear | None, count: int, make: Callable[[int], T], judge: Judge[T], say: Callable[[Looked], None]
) -> T:
    """What ``make`` returns for ``count`` of each arm, or with ``until`` for as many as it takes.

    ``measure/sequential.py`` decides when to look and how wide intervals must be. Records store the effect for which
    the looks were planned, so that later readers use the same widths. ``judge`` returns the verdicts on what was made,
    and why there are none; ``say`` gets each look.
    """
    from levelbench.measure.sequential import looks_at

    if until is None:
        return make(count)
    began_ns = HOST.now_ns()
    looks = looks_at()
    while True:
        count = next(looks)
        found = make(count)
        left_s = until.limit_s - (HOST.now_ns() - began_ns) * 1e-9
        looked = Looked(count, *judge(found), left_s)
        say(looked)
        if looked.clear or left_s <= 0:
            return found
