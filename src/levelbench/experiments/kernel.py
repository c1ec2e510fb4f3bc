"""The kernel of all that is measured in processes of its own: one plan, one order, one way to carry it out.

The same command resumes: a plan says what is wanted, what the store holds already and what is to go, and why anything
is made again. What is special to training runs, operators, networks and inference is a `Kind` each, which finds its
records, says which of them count, and makes one.

The processes of some kinds import this too, before the framework whose start they measure: nothing heavy is imported
at the top.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
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
__all__ += ["carry_out", "disagreement", "go_on", "make_plan", "need_frameworks"]

Place = tuple[int, int]
"""What a run or process is known by in a plan: the place of its arm, and its seed."""


class _Header(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def started(self) -> str: ...


class MadeRecord(Protocol):
    """What a plan needs to know of a record."""

    @property
    def path(self) -> Path:
        """Its file."""

    @property
    def header(self) -> _Header:
        """Its first line."""

    @property
    def status(self) -> str:
        """Whether it is running, done, failed or interrupted."""


W = TypeVar("W")
R = TypeVar("R", bound=MadeRecord)
T = TypeVar("T")


@dataclass(frozen=True)
class Turn:
    """One run or process to make: which arm, which seed, and why it is made (empty if it was never tried).

    ``resume`` is the checkpoint from which it goes on, if an interrupted run left one; ``replaces`` are the records
    that it supersedes once it is done, and ``replaced`` counts these with those that they themselves had replaced.
    """

    arm: int
    seed: int
    why: str = ""
    resume: Path | None = None
    replaces: tuple[Path, ...] = ()
    replaced: int = 0

    @property
    def place(self) -> Place:
        """What it is known by."""
        return self.arm, self.seed


@dataclass(frozen=True)
class Plan(Generic[W, R]):
    """``done`` holds the records that count already, by arm and seed; ``to_go`` what is to be made, interleaved.

    ``arms`` are those of ``cases`` cases, one case after the other, each with the same arms. ``failed`` are records of
    the same seeds that failed before: they are made again, and count as failures all the same. ``earlier`` are records
    by arm that ended and are no part of this plan, the newest last. ``known`` are the ids of all records that were
    looked at, ``environment`` is that of this machine.
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
    """Whether these are processes of a benchmark, and no runs."""

    @property
    def wanted(self) -> int:
        """Runs or processes in all."""
        return len(self.arms) * len(self.seeds)

    def case_of(self, turn: Turn) -> int:
        """The place of its case."""
        return turn.arm * self.cases // len(self.arms)

    def arranged(self, records: Mapping[Place, R]) -> list[list[list[R]]]:
        """The records by case, arm and seed, as summaries take them."""
        width = len(self.arms) // self.cases
        rows = [[records[arm, seed] for seed in self.seeds] for arm in range(len(self.arms))]
        return [rows[at : at + width] for at in range(0, len(rows), width)]

    def lines(self) -> list[str]:
        """The plan in words: the counts, then a line for each reason that something is made again."""
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
    """How a record stands in a plan: why it does not count (empty: it does), and what that means for the next one.

    ``replaced``: the next one supersedes it. ``failed``: it counts as a failure all the same. ``resume`` is the
    checkpoint from which the next one goes on.
    """

    why: str = ""
    replaced: bool = False
    failed: bool = False
    resume: Path | None = None


class Watcher(Generic[R]):
    """Looks on while a plan is carried out; this one says nothing."""

    def doubted(self, doubts: list[str]) -> None:
        """Why the runs of the arm that is next will be doubted, whatever they show."""

    def preparing(self, what: str) -> None:
        """Something begins that all processes need, as measuring the ceilings with a framework."""

    def started(self, turn: Turn, number: int, total: int) -> None:
        """The process with this number (from 1) of so many begins."""

    def progress(
        self,
        turn: Turn,
        stage: str,
        elapsed_s: float = 0.0,
        events: Sequence[object] = (),
        steps: tuple[int, int, int] = (0, 0, 0),
    ) -> None:
        """What it is at (``train``), how long it has been, which events of its record are new, and its steps.

        ``steps`` are those done, the most that there can be, and the examples of one; 0 while unknown.
        """

    def finished(self, turn: Turn, record: R | None) -> None:
        """The process has ended; there is no record where it never came so far."""


Make = Callable[[Turn, Callable[[], None]], tuple[R | None, LevelbenchError | None]]
"""Makes a record for a turn, and says each time that its process begins; the error is raised once it was shown."""


class Kind(ABC, Generic[W, R]):
    """What is special to a kind of measurement."""

    processes = True
    """Whether the plan counts processes, and not runs."""
    waits = False
    """Whether what another process is making right now is waited for; else it is refused."""

    @abstractmethod
    def check(self, arms: Sequence[W]) -> None:
        """Refuse arms that cannot be measured here, or not together."""

    @abstractmethod
    def key(self, wanted: W) -> str:
        """The digest of what is wanted."""

    @abstractmethod
    def title(self, wanted: W) -> str:
        """What messages call it."""

    @abstractmethod
    def find(self, wanted: W) -> Iterable[R]:
        """The records of it, the one that counts last."""

    @abstractmethod
    def why_not(self, record: R, wanted: W, environment: Mapping[str, object]) -> str:
        """Why a record that came to its end does not count in this environment; empty where it does."""

    def standing(self, record: R, wanted: W, environment: Mapping[str, Any]) -> Standing:
        """How a record stands in a plan."""
        done = record.status == "done"
        return Standing(self.why_not(record, wanted, environment) if done else "the process before was interrupted")

    def is_replaced(self, record: R, wanted: W, environment: Mapping[str, object]) -> bool:
        """Whether a repetition replaces this record."""
        return False

    @abstractmethod
    def opened(self, plan: Plan[W, R], watcher: Watcher[R]) -> AbstractContextManager[Make[R]]:
        """Prepare what all processes of the plan need; what makes one, while this is open."""


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
    """Look for what is done, and interleave what is to go: the arms in drawn turns, with the seeds shared.

    ``environment`` is that of this machine now, as ``capture`` gives it; with ``fresh`` only what started ``since``
    (ISO 8601; nothing without it) counts as done, and what is made replaces the rest. Raises what ``kind`` refuses,
    and ``UsageError`` for what another process is making right now, where that is not waited for.
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
            standing = kind.standing(record, wanted, environment)
            if not standing.why:
                done[place] = record
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
    return Plan(
        tuple(arms),
        tuple(seeds),
        done,
        to_go,
        cases,
        tuple(failed),
        tuple((index, record) for index, record in earlier if record.status == "done"),
        frozenset(known),
        environment,
        kind.processes,
    )


def _turn(place: Place, standing: Standing, before: Sequence[Any]) -> Turn:
    count = sum(1 + record.header.replaced for record in before)
    return Turn(*place, standing.why, standing.resume, tuple(record.path for record in before), count)


def _interleaved(arms: int, cases: int, seeds: Sequence[int], key: str) -> list[Place]:
    """All places: one seed after the other, in each the cases, in each the arms, or the arms in return."""
    from levelbench.measure.design import turns

    places = []
    for reverse, seed in zip(turns(len(seeds), key), seeds, strict=True):
        for at in range(0, arms, max(1, arms // cases)):
            row = range(at, at + arms // cases)
            places += [(arm, seed) for arm in (reversed(row) if reverse else row)]
    return places


def carry_out(plan: Plan[W, R], kind: Kind[W, R], watcher: Watcher[R]) -> dict[Place, R]:
    """Make what is to go, one after the other. All records that count, by place: those done before, and the new ones.

    The first that cannot be made ends it, and its error is raised, since what stops one (a corrupt dataset, a task that
    raises) mostly stops all; what was finished before is kept, and the same command goes on from there.
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
    """``MissingError`` for a (framework, device) that is not here."""
    from levelbench.operators.frameworks import load_framework

    for framework, device in dict.fromkeys(wanted):
        if lacking := load_framework(framework).lacks(device):
            asked = f"framework {framework!r} on device {device!r}"
            raise MissingError(asked, lacking, "levelbench list shows what runs")


_MUST_AGREE = {
    "machine.id": "recorded on another machine",
    "machine.cores_allowed": "recorded with another number of cores allowed",
    "machine.cgroup_cores": "recorded with another limit of cores",
    "accelerators": "recorded with other accelerators",
    "threads.settings": "recorded with other settings of threads (OMP_NUM_THREADS and the like)",
    "malloc": "recorded with other MALLOC_* settings",
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
    """Why a record of levelbench ``version`` in the environment ``then`` does not count now; empty where it does.

    ``threads`` are settings that a run gets unless the user has set them. ``elsewhere`` says that runs are made on
    other machines than this, whose kind and cores are then not compared.
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
    """What lies at ``path`` in a tree of unknown shape; ``None`` where it ends before."""
    for name in path.split("."):
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree


CLEAR_WITHIN_S = 600.0
"""What ``--until-clear`` takes at most by default."""


@dataclass(frozen=True)
class UntilClear:
    """Looks planned for a relative difference of ``effect``; no more is begun after ``limit_s`` seconds."""

    effect: float
    limit_s: float = CLEAR_WITHIN_S


@dataclass(frozen=True)
class Looked:
    """What a look shows after ``count`` of each arm: verdicts by the name of the arm, or why there are none."""

    count: int
    verdicts: Sequence[tuple[str, Verdict]]
    why_none: str
    left_s: float

    @property
    def clear(self) -> bool:
        """Whether no look is needed any more."""
        from levelbench.measure.verdict import VerdictKind

        return all(verdict.kind != VerdictKind.UNCLEAR for _, verdict in self.verdicts)


Judge = Callable[[T], "tuple[Sequence[tuple[str, Verdict]], str]"]


def go_on(
    until: UntilClear | None, count: int, make: Callable[[int], T], judge: Judge[T], say: Callable[[Looked], None]
) -> T:
    """What ``make`` gives for ``count`` of each arm, or with ``until`` for as many as it takes; ``say`` gets each look.

    When to look, and how wide an interval must be for that, is in ``measure/sequential.py``; records say which effect
    the looks were planned for, so that whoever reads them later takes the same width. ``judge`` has the verdicts on
    what was made, and why there are none.
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
