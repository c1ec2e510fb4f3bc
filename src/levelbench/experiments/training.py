"""Training runs: which runs in the store count, and how one is made, in a separate process or by a team.

A run is done if the store holds a finished one with the same specification, seed and task source, made on this machine.
It is claimed while it is being made, so that concurrent commands share the work and make no run twice. The record is
the only channel for results: a live display reads the record's file, so it shows nothing that was not written.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import msgspec

from levelbench.errors import LevelbenchError, RecordError, UsageError
from levelbench.experiments.jobs import Job, Message, Parent, held
from levelbench.experiments.kernel import Kind, Make, Plan, Standing, Turn, Watcher, disagreement
from levelbench.experiments.own_code import changed_files, is_ours, settings_path
from levelbench.experiments.processes import Starter, death, reported_error, spawn
from levelbench.experiments.recipe_checks import quick_doubts, target_doubts
from levelbench.experiments.request import (
    Arm,
    file_of,
    load_task,
    packages_of,
    runs_elsewhere,
    starts_on_each_node,
    variables_of,
)
from levelbench.measure.clocks import HOST
from levelbench.measure.environment import same_machine
from levelbench.measure.forking import Child
from levelbench.records import Distribution, Event, Follower, Record, Store, new_id, parse_item, read_record, summarise
from levelbench.records.doubts import FIRST_SEED
from levelbench.records.locks import claimed
from levelbench.records.replicates import uncounted_first
from levelbench.records.schema import Between, Source
from levelbench.records.searches import TRIAL, is_trial, trial_ids
from levelbench.records.selection import Selector
from levelbench.records.summary import (
    labels_of,
    packages_imported,
    refuse_contradictory,
    settings_files,
    variables_read,
)
from levelbench.training.checkpoints import checkpoint_of, settings_of
from levelbench.training.observers import Pulse

__all__ = ["CHILD", "Extras", "Finished", "OnProgress", "RunPlan", "Training", "labels", "launch"]

RunPlan = Plan[Arm, Record]

CHILD = "levelbench.experiments.child"
"""The module that the process of a run executes."""

_CONTRADICTS = "the previous run contradicts itself"
_CLAIMS = ".claims"
"""Folder in the store with one file for each run in progress, locked by the process that makes it."""
_LOOK_S = 0.5
"""The interval between two looks at the record. On a machine with few cores each look takes time from the run."""


def labels(arms: Sequence[Arm]) -> list[str]:
    """The label of each arm: what distinguishes it, and what differs from the defaults."""
    return labels_of([arm.specification for arm in arms], chosen=[arm.chosen for arm in arms])


@dataclass(frozen=True)
class Extras:
    """What a run does besides training: how often it writes a checkpoint, and its observers.

    ``timeout_s`` is how long a rank waits for another one, ``keep_model`` whether trained networks are kept, and
    ``planned_effect`` the effect for which looks at the comparison are planned, if it continues until it is clear.
    ``fork`` says whether processes may be forked from one that has done the imports.
    """

    checkpoint: str | None = None
    observe: tuple[str, ...] = ()
    timeout_s: float = 300.0
    keep_model: bool = False
    planned_effect: float | None = None
    fork: bool = True


@final
class Training(Kind[Arm, Record]):
    """Runs of recipes; ``data`` is the dataset's folder, if the user named one.

    For a search (``searching``) only trials count as done, and for others only what is no trial: nobody may declare a
    run to be a trial once its result is known.
    """

    processes = False
    waits = True

    def __init__(
        self, store: Store, data: Path | None = None, extras: Extras | None = None, *, searching: bool = False
    ) -> None:
        self._store, self._data, self._extras, self._searching = store, data, extras or Extras(), searching
        self._read: dict[str, dict[str, str]] = {}
        self._packages: dict[tuple[str, str], dict[str, str]] = {}
        self._starter: Starter | None = None

    @contextlib.contextmanager
    def staying(self, arms: Sequence[Arm]) -> Iterator[None]:
        """Keep the processes that have done the imports over all plans made inside: for many plans of few runs."""
        with self._new_starter(arms) as self._starter:
            yield
        self._starter = None

    def _new_starter(self, arms: Sequence[Arm]) -> Starter:
        parts = [arm.specification for arm in arms]
        fork = self._extras.fork and all(each.distribution is None for each in parts)
        return Starter(CHILD, [(each.framework, each.device) for each in parts], fork=fork)

    def check(self, arms: Sequence[Arm]) -> None:
        """Raise ``UsageError`` if two arms are the same run."""
        if len({arm.key for arm in arms}) == len(arms):
            return
        if len({(arm.key, arm.source.whole) for arm in arms}) == len(arms):
            raise UsageError(
                "a comparison of several runs",
                "two of them have the same specification but come from different files",
                "rename the recipe in one of the files, so that they can be distinguished",
            )
        raise UsageError(
            "a comparison of several runs",
            "two of them have the same specification",
            "name each once; for an A/A comparison use levelbench doctor, or run one with other seeds (--seed)",
        )

    def key(self, wanted: Arm) -> str:
        """The digest of its specification."""
        return wanted.key

    def title(self, wanted: Arm) -> str:
        """Its task."""
        return wanted.specification.task

    def find(self, wanted: Arm) -> list[Record]:
        """Its records in the store, oldest first: trials for a search, else the others."""
        found = self._store.records(Selector("", word=wanted.specification.task, filters=(("key", wanted.key),)))
        tried = trial_ids(self._store.searches()) if found else frozenset[str]()
        if not self._searching:
            self._store.left_out |= {record.header.id for record in found if is_trial(record, tried)}
        found = [record for record in found if is_trial(record, tried) == self._searching]
        return sorted(found, key=lambda record: record.header.started)

    def why_not(self, record: Record, wanted: Arm, environment: Mapping[str, object]) -> str:
        """It is not done, contradicts itself, or something that it depends on has changed since."""
        if record.status == "running":
            return "another process is already running it; this one waits and uses its result"
        if record.status != "done":
            return "the previous run failed" if record.status == "failed" else f"the previous run was {record.status}"
        if summarise(record).contradictions:
            return _CONTRADICTS
        if record.header.source.digest != wanted.source.digest:
            return "the task's source has changed since"
        if changed := _changed_modules(record.header.source, wanted.source):
            return f"what the task's source imports has changed since: {', '.join(changed)}"
        if changed := _changed_files(record, wanted.reference) + _changed_variables(record, wanted):
            return f"what the task reads has changed since: {', '.join(changed)}"
        if changed := self._changed_data(record, wanted):
            return f"the data have changed since: {', '.join(changed)}"
        if _definition_changed(record.header.source, wanted.source):
            return "the task's quality or data have changed since"
        if changed := self._changed_packages(record, wanted):
            return f"what the task's source imports has changed since: {', '.join(changed)}"
        return _disagreement(record, wanted, environment)

    def _changed_packages(self, record: Record, wanted: Arm) -> list[str]:
        """The installed packages that its task's code imports, and which have another version since."""
        place = wanted.reference, wanted.specification.recipe
        if place not in self._packages:
            self._packages[place] = packages_of(load_task(wanted.reference), wanted.specification.recipe)
        then, now = packages_imported(record), self._packages[place]
        return [f"{name} {then[name]} -> {now[name]}" for name in now if then.get(name, now[name]) != now[name]]

    def _changed_data(self, record: Record, wanted: Arm) -> list[str]:
        """The data that differ from what the run read: files by their checksums, labels and inputs by split.

        Data that comes with levelbench is not checked. Data that cannot be loaded is ignored: the run will report it.
        """
        if is_ours(wanted.reference) or record.end is None or record.end.dataset is None:
            return []
        if wanted.reference not in self._read:
            self._read[wanted.reference] = {}
            with contextlib.suppress(Exception):
                dataset = load_task(wanted.reference).data.load(self._data)
                inputs = dataset.input_digests(), dataset.input_digests(whole=True)
                self._read[wanted.reference] = _by_part(dataset.checksums, dataset.label_digests(), *inputs)
        then = record.end.dataset
        now = self._read[wanted.reference]
        before = _by_part(then.checksums, then.digests, then.inputs, then.whole_inputs)
        changed = [name for name, digest in before.items() if now.get(name, digest) != digest]
        return list(dict.fromkeys(name.removeprefix("all ") for name in changed))

    def standing(self, record: Record, wanted: Arm, environment: Mapping[str, Any]) -> Standing:
        """An interrupted run may resume from its checkpoint, and a failed one counts as a failure.

        A run under conditions that have changed since is replaced: whoever reads the store would go on to count it.
        """
        why = self.why_not(record, wanted, environment)
        if why and record.status == "done":
            return Standing(why, replaced=self.is_replaced(record, wanted, environment))
        kept = _resumable(record, wanted, environment) if why else None
        words = f"{why}; it resumes from its checkpoint" if kept else why
        changed = [] if kept is None else _changed_before(kept, record, wanted) + self._changed_packages(record, wanted)
        if changed:
            kept, words = None, f"{why}, and what the task reads has changed since: {', '.join(changed)}"
        return Standing(words, failed=record.status == "failed", resume=kept)

    def is_replaced(self, record: Record, wanted: Arm, environment: Mapping[str, object]) -> bool:
        """It ended, has the same source, and was made on the same kind of machine."""
        header = record.header
        same = header.source.whole == wanted.source.whole and same_machine(header.environment, environment)
        return same and record.status in ("done", "failed")

    @contextlib.contextmanager
    def opened(self, plan: RunPlan, watcher: Watcher[Record]) -> Iterator[Make[Record]]:
        """Prepare to start runs. Ranks are new interpreters, and so are the runs that are compared with them."""
        doubts: dict[int, list[str]] = {}
        first = [self._first(plan, at) for at in range(len(plan.arms))]
        with contextlib.nullcontext(self._starter) if self._starter else self._new_starter(plan.arms) as starter:

            def make(turn: Turn, begin: Callable[[], None]) -> tuple[Record | None, LevelbenchError | None]:
                arm = plan.arms[turn.arm]
                if turn.arm not in doubts:
                    doubts[turn.arm] = self._doubts(arm)
                    watcher.doubted(doubts[turn.arm])
                begin()
                with self._claimed(arm, turn, watcher):
                    if (record := self._finished_meanwhile(plan, turn)) is not None:
                        return record, None
                    starter.begin(plan.seeds.index(turn.seed))
                    job = self._job(turn, arm, doubts[turn.arm], len(plan.seeds))
                    said = {FIRST_SEED: min(plan.seeds), **({TRIAL: True} if self._searching else {})}
                    job = msgspec.structs.replace(job, first={**first[turn.arm], **said})
                    return self._made(turn, job, starter, watcher)

            yield make

    def _claimed(self, arm: Arm, turn: Turn, watcher: Watcher[Record]) -> AbstractContextManager[None]:
        """Hold the claim on a run; where each node has a command of its own, the nodes make it together."""
        team = arm.specification.distribution
        if team is not None and starts_on_each_node(team):
            return contextlib.nullcontext()
        claim = self._store.path / _CLAIMS / f"{arm.key[:16]}-s{turn.seed}"
        return claimed(claim, lambda: watcher.progress(turn, "another process is making it"))

    def _first(self, plan: RunPlan, at: int) -> dict[str, Any]:
        arm = plan.arms[at]
        if is_ours(arm.reference) and not plan.replaced(at):
            return {}
        why_not = partial(self.why_not, wanted=arm, environment=plan.environment)
        return uncounted_first(self._store, arm.specification, plan.replaced(at), why_not)

    def _made(
        self, turn: Turn, job: Job, starter: Starter, watcher: Watcher[Record]
    ) -> tuple[Record | None, LevelbenchError | None]:
        """Make one run; once it is done, it supersedes the records that it replaces."""

        def on_progress(events: list[Event], elapsed_s: float, phase: str, steps: tuple[int, int, int]) -> None:
            watcher.progress(turn, phase, elapsed_s, events, steps)

        finished = launch(job, on_progress, starter)
        record = _require_testimony(finished)
        if record is not None:
            refuse_contradictory(record)
        if record is not None and record.status == "done":
            self._store.supersede(turn.replaces)
        return record, finished.error

    def _finished_meanwhile(self, plan: RunPlan, turn: Turn) -> Record | None:
        """The record of this run that another process has finished since the plan was made, if it counts as done.

        Raises ``UsageError`` if one is in progress and this process cannot wait for it.
        """
        arm = plan.arms[turn.arm]
        new = [
            record
            for record in self.find(arm)
            if record.header.seed == turn.seed and (record.header.id not in plan.known or record.status == "running")
        ]
        for record in new:
            if record.status == "running":
                raise UsageError(
                    f"seed {turn.seed} of {arm.specification.task}",
                    f"another process is already running it ({record.path.name})",
                    "wait for it, or choose other seeds with --seed",
                )
        return next((record for record in reversed(new) if not self.why_not(record, arm, plan.environment)), None)

    def _doubts(self, arm: Arm) -> list[str]:
        """What quick probes find wrong before the first run: with a user's task, or with a changed target."""
        task, specification = load_task(arm.reference), arm.specification
        target = specification.target.threshold
        if is_ours(arm.reference):
            return target_doubts(task, target, self._data)
        file = file_of(arm.reference)
        found = quick_doubts(
            task,
            specification.recipe,
            specification.settings,
            self._data,
            target,
            folder=Path.cwd() if file is None else file.resolve().parent,
            store=self._store.path,
        )
        return [*arm.doubts, *found]

    def _job(self, turn: Turn, arm: Arm, doubts: list[str], planned: int) -> Job:
        extras = self._extras
        return Job(
            reference=arm.reference,
            specification=arm.specification,
            key=arm.key,
            seed=turn.seed,
            id=new_id(),
            store=str(self._store.path),
            data=str(self._data) if self._data else None,
            source=arm.source.whole,
            resume=str(turn.resume) if turn.resume else None,
            checkpoint=extras.checkpoint,
            observe=list(extras.observe),
            timeout_s=extras.timeout_s,
            keep_model=extras.keep_model,
            doubts=doubts,
            planned_effect=extras.planned_effect,
            planned_runs=planned,
            replaced=turn.replaced,
            chosen=None if arm.chosen is None else list(arm.chosen),
        )


def _changed_modules(then: Source, now: Source) -> list[str]:
    """The user's own modules that have changed, or that are imported only then or only now."""
    names = sorted({*then.modules, *now.modules})
    return [name for name in names if then.modules.get(name) != now.modules.get(name)]


def _changed_files(record: Record, reference: str) -> list[str]:
    """The files from which the task of the file ``reference`` read settings, and which have changed since."""
    return changed_files(settings_files(record), lambda name: settings_path(name, Path(reference).absolute().parent))


def _changed_variables(record: Record, wanted: Arm) -> list[str]:
    """The environment variables that its task's code reads, and which have changed since."""
    then = variables_read(record)
    now = variables_of(load_task(wanted.reference), wanted.specification.recipe)
    return [f"${name}" for name in sorted({*then, *now}) if then.get(name) != now.get(name)]


def _by_part(
    files: Mapping[str, str], labels: Mapping[str, str], inputs: Mapping[str, str], whole_inputs: Mapping[str, str]
) -> dict[str, str]:
    """Digests of files, and of the labels and inputs of splits, by what they belong to."""
    return {
        **files,
        **{f"labels of {name}": digest for name, digest in labels.items()},
        **{f"inputs of {name}": digest for name, digest in inputs.items()},
        **{f"all inputs of {name}": digest for name, digest in whole_inputs.items()},
    }


def _definition_changed(then: Source, now: Source) -> bool:
    """Whether the code of the task's quality or data has changed; older records do not have its digests."""
    return bool(then.quality) and (then.quality, then.data) != (now.quality, now.data)


def _resumable(record: Record, arm: Arm, now: Mapping[str, object]) -> Path | None:
    """The checkpoint of an interrupted run that may be resumed here: with the same source, on the same machine."""
    path = checkpoint_of(record.path)
    if record.status != "interrupted" or record.header.source.whole != arm.source.whole or not path.is_file():
        return None
    return None if _disagreement(record, arm, now) else path


def _changed_before(checkpoint: Path, record: Record, wanted: Arm) -> list[str]:
    """What the recipe of an interrupted run had read, and what has changed since."""
    folder = Path(wanted.reference).absolute().parent
    files = changed_files(settings_of(checkpoint), lambda name: settings_path(name, folder))
    return files + _changed_variables(record, wanted)


def _disagreement(record: Record, arm: Arm, now: Mapping[str, object]) -> str:
    known = ("numpy", arm.specification.framework)
    team = arm.specification.distribution
    if team is None:
        return disagreement(record.header.version, record.header.environment, now, known)
    elsewhere = runs_elsewhere(team)
    threads = {} if elsewhere else _threads(team, now)
    return disagreement(record.header.version, record.header.environment, now, known, threads, elsewhere=elsewhere)


def _threads(team: Distribution, now: Mapping[str, Any]) -> dict[str, str]:
    """The thread settings of a rank, by default its share of this machine's cores."""
    from levelbench.distributed.launching.environment import THREADS

    options = parse_item(team.engine)[1]
    here = max(1, team.ranks // int(options.get("nodes", 1)))
    share = max(1, (now.get("machine", {}).get("cores_allowed") or 1) // here)
    given = (now.get("threads", {}).get("settings") or {}).get(THREADS[0], str(share))
    return dict.fromkeys(THREADS, given)


def _require_testimony(finished: Finished) -> Record | None:
    """The record; ``RecordError`` if it does not contain the parent's readings as its witness.

    Such a record is renamed, since any reader would accept it as an ordinary run.
    """
    record = read_record(finished.path) if finished.path else None
    if record is None or record.end is None or record.status != "done":
        return record
    testimony = finished.testimony
    if testimony is None or (testimony and held(record.end.witness, testimony)):
        return record
    aside = record.path.with_suffix(".refused")
    record.path.replace(aside)
    raise RecordError(
        f"the run of {record.header.specification.task}, seed {record.header.seed}",
        "its record does not contain the clock readings of the process that started it",
        f"find what changes the record while it is written ({aside}), and run it again",
    )


OnProgress = Callable[[list[Event], float, str, tuple[int, int, int]], None]


@dataclass(frozen=True)
class Finished:
    """How a process ended. ``path`` is its record, if it began one; ``error`` is what it reported, or how it died.

    ``testimony`` is what this process answered as the witness of its clock, which its record must contain; ``None`` if
    the command on another node is the witness.
    """

    path: Path | None
    error: LevelbenchError | None
    testimony: tuple[Between, ...] | None = None


def launch(job: Job, on_progress: OnProgress | None = None, starter: Starter | None = None) -> Finished:
    """Run ``job`` to its end.

    Twice a second ``on_progress`` gets new events, the elapsed seconds, the phase, and the steps as ``Pulse`` counts
    them. If this process is interrupted, the child is ended too, and its record stays interrupted. A run on several
    ranks is passed to its engine. Without a ``starter`` the child is a new interpreter.
    """
    if job.specification.distribution is not None:
        from levelbench.experiments.teams import run_team

        return Finished(*run_team(job, on_progress))
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as steps:
        pulse = Pulse(steps.fileno())
        passed = theirs.fileno(), steps.fileno()
        words = [str(each) for each in passed]
        if starter is None:
            process = spawn(CHILD, words, output.fileno(), passed)
        else:
            process = starter.start(job.specification.framework, words, output.fileno(), passed)
        theirs.close()
        witness = Parent()
        try:
            messages = _follow(process, job, ours, witness, pulse, on_progress)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            ours.close()
        output.seek(0)
        text = output.read().decode(errors="replace")
    return replace(_finished(process.wait(), messages, text, job), testimony=witness.testimony)


def _follow(
    process: Child,
    job: Job,
    link: socket.socket,
    witness: Parent,
    pulse: Pulse,
    on_progress: OnProgress | None,
) -> list[Message]:
    assert process.stdin is not None
    # It may have died before it read its job; this is reported below.
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(msgspec.json.encode(job))
        process.stdin.close()
    began_ns = HOST.now_ns()
    messages: list[Message] = []
    pending, phase = b"", "start"
    follower: Follower | None = None
    looked_ns = began_ns
    with _waiting(process, link) as wait:
        alive = True
        while alive:
            alive = not wait(max(0.0, _LOOK_S - (HOST.now_ns() - looked_ns) * 1e-9))
            witness.look()
            pending, new = _messages(link, pending)
            answer = witness.found(new)
            if answer is not None:
                # The child may have died since.
                with contextlib.suppress(OSError):
                    _send(link, msgspec.json.encode(answer) + b"\n")
            messages += new
            for message in new:
                phase = message.phase or phase
                if message.path is not None:
                    follower = Follower(Path(message.path))
            now_ns = HOST.now_ns()
            if on_progress is not None and (not alive or (now_ns - looked_ns) * 1e-9 >= _LOOK_S):
                looked_ns = now_ns
                elapsed_s = (now_ns - began_ns) * 1e-9
                on_progress(follower.poll() if follower else [], elapsed_s, pulse.stage(phase), pulse.steps)
    return messages


@contextlib.contextmanager
def _waiting(process: Child, link: socket.socket) -> Iterator[Callable[[float], bool]]:
    """A function that sleeps for up to so many seconds, and says whether the process has ended.

    It also wakes up for a message, since the witness of the run's clock has to answer at once. ``Popen.wait`` with a
    timeout would wake up twenty times a second and take time from the run.
    """
    descriptor = os.pidfd_open(process.pid)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.register(link, select.POLLIN)

    def wait(seconds: float) -> bool:
        ready = poll.poll(seconds * 1e3)
        if any(file == link.fileno() and event & select.POLLHUP for file, event in ready):
            # The child has closed its end.
            poll.unregister(link)
        if not any(file == descriptor for file, _ in ready):
            return False
        process.wait()
        return True

    try:
        yield wait
    finally:
        os.close(descriptor)


def _send(link: socket.socket, line: bytes) -> None:
    """Send the whole line; the child is waiting for it."""
    link.setblocking(True)
    try:
        link.sendall(line)
    finally:
        link.setblocking(False)


def _messages(link: socket.socket, pending: bytes) -> tuple[bytes, list[Message]]:
    """The complete lines that have arrived, and the rest."""
    while True:
        try:
            chunk = link.recv(65536)
        except (BlockingIOError, ConnectionResetError):
            break
        if not chunk:
            break
        pending += chunk
    *lines, rest = pending.split(b"\n")
    return rest, [msgspec.json.decode(line, type=Message) for line in lines]


def _finished(code: int, messages: list[Message], output: str, job: Job) -> Finished:
    path = next((Path(message.path) for message in messages if message.path), None)
    told = next((message for message in messages if message.error), None)
    if told is not None and told.error is not None:
        return Finished(path, reported_error(told.error, told.exit_code, told.trace))
    if code == 0 and any(message.phase == "done" for message in messages):
        return Finished(path, None)
    asked, early = f"a run of {job.specification.task}, seed {job.seed}", "" if code < 0 else " before the run was done"
    return Finished(path, death(asked, code, output, early))
