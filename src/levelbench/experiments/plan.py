"""What is wanted, what is done already, and what is to go, in which order.

`run` is also resume. A run is done if the store holds one of the same specification and seed that came
to its end, from the same task source on this machine; everything else is run, and the plan says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from levelbench.distributed.launching.environment import THREADS
from levelbench.errors import UsageError
from levelbench.experiments.agreement import disagreement
from levelbench.experiments.request import Arm
from levelbench.measure.design import turns
from levelbench.measure.environment import same_machine
from levelbench.records import Distribution, Record, Store, parse_item, summarise
from levelbench.records.groups import labels_of
from levelbench.records.schema import Source
from levelbench.records.selection import Selector, format_item
from levelbench.training.checkpoints import checkpoint_of

__all__ = ["Plan", "Step", "label_with_recipe", "make_plan"]

_CONTRADICTS = "the run before contradicts itself"


@dataclass(frozen=True)
class Step:
    """One run to go: which arm, which seed, and why it is run (empty for a run that was never tried).

    ``resume`` is the checkpoint from which it goes on, if an interrupted run left one; ``replaces`` are the records
    that it supersedes once it is done, and ``replaced`` counts these with those that they themselves had replaced.
    """

    arm: int
    seed: int
    why: str = ""
    resume: Path | None = None
    replaces: tuple[Path, ...] = ()
    replaced: int = 0


@dataclass(frozen=True)
class Plan:
    """``done`` holds the records that count already, by arm and seed; ``steps`` the runs to go, interleaved.

    ``failed`` are runs of the same seeds that failed before: they are made again, and count as failures all the same.
    ``known`` are the ids of all runs that were looked at, ``environment`` is that of this machine.
    """

    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    done: Mapping[tuple[int, int], Record]
    steps: tuple[Step, ...]
    failed: tuple[tuple[int, Record], ...] = ()
    known: frozenset[str] = frozenset()
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def wanted(self) -> int:
        """Runs in all."""
        return len(self.arms) * len(self.seeds)

    @property
    def labels(self) -> list[str]:
        """What each arm is called: by what differs, and by a recipe that is not its task's default."""
        labels = labels_of([arm.specification for arm in self.arms])
        return [label_with_recipe(label, arm) for label, arm in zip(labels, self.arms, strict=True)]

    def made_meanwhile(self, step: Step, store: Store) -> Record | None:
        """The record of this run that another process has made since the plan was, if it counts as done.

        Raises ``UsageError`` where one is being made that this process cannot wait for.
        """
        arm = self.arms[step.arm]
        new = [
            record
            for record in _records_of(store, arm)
            if record.header.seed == step.seed and (record.header.id not in self.known or record.status == "running")
        ]
        for record in new:
            if record.status == "running":
                raise _running(record)
        return next((record for record in reversed(new) if not _why_not(record, arm, self.environment)), None)

    def lines(self) -> list[str]:
        """The plan in words: the counts, then a line for each reason that something is run again."""
        counts = f"{self.wanted} wanted · {len(self.done)} done · {len(self.steps)} to go"
        reasons: dict[str, list[Step]] = {}
        for step in self.steps:
            if step.why:
                reasons.setdefault(step.why, []).append(step)
        return [counts, *(f"  again: {_runs(steps)}: {why}" for why, steps in reasons.items())]


def label_with_recipe(label: str, arm: Arm) -> str:
    """``label`` with the arm's recipe in it, where that is not its task's default."""
    name, told = parse_item(label)
    return label if arm.usual or "recipe" in told else format_item(name, {"recipe": arm.specification.recipe, **told})


def make_plan(
    arms: Sequence[Arm],
    seeds: Sequence[int],
    store: Store,
    environment: Mapping[str, Any],
    *,
    fresh: bool = False,
    since: str = "",
) -> Plan:
    """Look into the store, and interleave what is to go: the arms in turns, with the seeds shared.

    ``environment`` is that of this machine now, as ``capture`` gives it; with ``fresh`` only what started ``since``
    (ISO 8601; nothing without it) counts as done, and what is run replaces the rest. Raises ``UsageError`` for the
    same run twice.
    """
    if len({arm.key for arm in arms}) < len(arms):
        if len({(arm.key, arm.source.whole) for arm in arms}) == len(arms):
            raise UsageError(
                "a comparison of several runs",
                "two of them have the same specification, by different files",
                "give the recipe another name in one of the files, so that they can be told apart",
            )
        raise UsageError(
            "a comparison of several runs",
            "two of them have the same specification",
            "name each once; for an A/A comparison use levelbench doctor, or run one with other seeds (--seed)",
        )
    done: dict[tuple[int, int], Record] = {}
    whys: dict[tuple[int, int], str] = {}
    resumes: dict[tuple[int, int], Path] = {}
    replaced: dict[tuple[int, int], list[Record]] = {}
    failed: list[tuple[int, Record]] = []
    known: set[str] = set()
    for index, arm in enumerate(arms):
        for record in _records_of(store, arm):
            known.add(record.header.id)
            place = (index, record.header.seed)
            if fresh and (not since or record.header.started < since):
                if _is_replaced(record, arm, environment):
                    replaced.setdefault(place, []).append(record)
                continue
            why = _why_not(record, arm, environment)
            if why:
                whys[place] = why
                if why == _CONTRADICTS and _is_replaced(record, arm, environment):
                    replaced.setdefault(place, []).append(record)
                elif record.status == "failed" and record.header.seed in seeds:
                    failed.append((index, record))
                if kept := _resumable(record, arm, environment):
                    resumes[place] = kept
                    whys[place] = f"{why}; it goes on from its checkpoint"
            else:
                done[place] = record
    steps = []
    for reverse, seed in zip(turns(len(seeds), arms[0].key if arms else ""), seeds, strict=True):
        order = range(len(arms) - 1, -1, -1) if reverse else range(len(arms))
        steps += [
            _step(i, seed, whys.get((i, seed), ""), resumes.get((i, seed)), replaced.get((i, seed), []))
            for i in order
            if (i, seed) not in done
        ]
    wanted = {place: record for place, record in done.items() if place[1] in set(seeds)}
    return Plan(tuple(arms), tuple(seeds), wanted, tuple(steps), tuple(failed), frozenset(known), environment)


def _step(arm: int, seed: int, why: str, resume: Path | None, before: Sequence[Record]) -> Step:
    count = sum(1 + record.header.replaced for record in before)
    return Step(arm, seed, why, resume, tuple(record.path for record in before), count)


def _is_replaced(record: Record, arm: Arm, now: Mapping[str, Any]) -> bool:
    """Whether a fresh run takes the place of this one: it ended, of the same source, on a machine of this kind."""
    same = record.header.source.whole == arm.source.whole and same_machine(record.header.environment, now)
    return same and record.status in ("done", "failed")


def _records_of(store: Store, arm: Arm) -> list[Record]:
    """The store's records of this arm, oldest first, so that the newest one counts."""
    found = store.records(Selector("", word=arm.specification.task, filters=(("key", arm.key),)))
    return sorted(found, key=lambda record: record.header.started)


def _why_not(record: Record, arm: Arm, now: Mapping[str, Any]) -> str:
    """Why a record does not count as done, or an empty string."""
    if record.status == "running":
        return "another process is already running it; this one waits and takes its result"
    if record.status != "done":
        return "the run before failed" if record.status == "failed" else f"the run before was {record.status}"
    if summarise(record).contradictions:
        return _CONTRADICTS
    if record.header.source.digest != arm.source.digest:
        return "the task's source has changed since"
    if changed := _changed_modules(record.header.source, arm.source):
        return f"what the task's source imports has changed since: {', '.join(changed)}"
    if _defined_otherwise(record.header.source, arm.source):
        return "the task's quality or data have changed since"
    return _disagreement(record, arm, now)


def _changed_modules(then: Source, now: Source) -> list[str]:
    """The user's own modules that are others now, or are imported only then or now."""
    names = sorted({*then.modules, *now.modules})
    return [name for name in names if then.modules.get(name) != now.modules.get(name)]


def _defined_otherwise(then: Source, now: Source) -> bool:
    """Whether what the task fixes is other code now, in a file other than the recipe's; older records do not say."""
    return bool(then.quality) and (then.quality, then.data) != (now.quality, now.data)


def _resumable(record: Record, arm: Arm, now: Mapping[str, Any]) -> Path | None:
    """The checkpoint of an interrupted run that may go on here: of the same source, on the same machine."""
    path = checkpoint_of(record.path)
    if record.status != "interrupted" or record.header.source.whole != arm.source.whole or not path.is_file():
        return None
    return None if _disagreement(record, arm, now) else path


def _disagreement(record: Record, arm: Arm, now: Mapping[str, Any]) -> str:
    known = ("numpy", arm.specification.framework)
    team = arm.specification.distribution
    if team is None:
        return disagreement(record.header.version, record.header.environment, now, known)
    elsewhere = team.engine.startswith("slurm")
    threads = {} if elsewhere else _threads(team, now)
    return disagreement(record.header.version, record.header.environment, now, known, threads, elsewhere=elsewhere)


def _threads(team: Distribution, now: Mapping[str, Any]) -> dict[str, str]:
    """What the engine would set for each rank where the user has set nothing: its share of this machine's cores."""
    options = parse_item(team.engine)[1]
    here = max(1, team.ranks // int(options.get("nodes", 1)))
    share = max(1, (now.get("machine", {}).get("cores_allowed") or 1) // here)
    given = (now.get("threads", {}).get("settings") or {}).get(THREADS[0], str(share))
    return dict.fromkeys(THREADS, given)


def _running(record: Record) -> UsageError:
    return UsageError(
        f"seed {record.header.seed} of {record.header.specification.task}",
        f"another process is already running it ({record.path.name})",
        "wait for it, or choose other seeds with --seed",
    )


def _runs(steps: Sequence[Step]) -> str:
    seeds = sorted({step.seed for step in steps})
    return f"{len(steps)} run{'s' if len(steps) > 1 else ''} (seed {', '.join(map(str, seeds))})"
