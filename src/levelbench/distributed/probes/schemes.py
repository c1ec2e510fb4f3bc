"""Checks whether a scheme is right, before measuring whether it is fast.

A wrong scheme still learns, only worse. So the check does not look at a loss but at what happens to each rank's
gradient, on ranks in this process, with full control over numbers, order of arrival and failures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from levelbench.checks.findings import EndProbe, Finding, Probe, Report, failed, not_tried, noted, passed, run_probes
from levelbench.distributed.probes.breadth import BREADTH
from levelbench.distributed.probes.conduct import (
    AGREEMENT,
    ROBUSTNESS,
    checkpoints,
    random_delays,
    ranks_agree,
    traffic,
)
from levelbench.distributed.probes.doubles import SHORT
from levelbench.distributed.probes.expectation import EXPECTATION, right_on_average
from levelbench.distributed.probes.gradients import (
    CONSISTENT,
    INCONSISTENT,
    every_worker_counts,
    first_misfit,
    gradients,
    learns,
    one_process,
)
from levelbench.distributed.probes.processes import checkpoints_in_processes
from levelbench.distributed.probes.runs import RanksOutcome, Rehearsal, SchemeTrial, stopped
from levelbench.distributed.scheme import Scheme
from levelbench.errors import DefinitionError, UsageError
from levelbench.training.datasets.base import Split
from levelbench.training.samplers import Partitioned, Sampler, Shuffled

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_CLAIMS = ("consistent", "replicated", "lockstep")


def well_formed(scheme: Scheme) -> Iterator[Finding]:
    """What makes a scheme a value that can be named, compared, and written to a record."""
    wrong = [*_value(scheme), *_words(scheme), *_claims(scheme)]
    for found, do in wrong:
        yield failed(found, do)
    if not wrong:
        kind: Any = type(scheme)
        settings = ", ".join(each.name for each in fields(kind))
        yield passed(f"settings: {settings or 'none'}")


def _value(scheme: Scheme) -> Iterator[tuple[str, str]]:
    kind: Any = type(scheme)
    if not is_dataclass(kind):
        yield "it is not a dataclass", "write @dataclass(frozen=True) before the class"
        return
    made: Any = getattr(kind, "__dataclass_params__")  # noqa: B009  # unknown to the type checker
    if not made.frozen:
        yield "it is mutable", "write @dataclass(frozen=True)"
    for each in fields(kind):
        if each.default is MISSING and each.default_factory is MISSING:
            yield f"the setting {each.name!r} has no default", "give it one"
        elif not isinstance(getattr(scheme, each.name), int | float | str | bool):
            named = type(getattr(scheme, each.name)).__name__
            yield f"the setting {each.name!r} is a {named}", "let settings be int, float, str or bool"
    declared: Any = scheme
    if scheme != replace(declared):
        yield "two schemes with the same settings are not equal", "leave the comparison to the dataclass"


def _words(scheme: Scheme) -> Iterator[tuple[str, str]]:
    name, source = getattr(scheme, "name", None), getattr(scheme, "source", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield f"its name is {name!r}", "give the class a name of lower-case letters, digits and dashes"
    if not isinstance(source, str) or not source.strip():
        yield "it has no source", "name the paper that describes it, or say that there is none"


def _claims(scheme: Scheme) -> Iterator[tuple[str, str]]:
    for claim in _CLAIMS:
        value = getattr(scheme, claim, None)
        if not isinstance(value, bool):
            yield f"{claim} is {value!r}", f"declare whether it is {claim}: True or False"
    if not isinstance(getattr(scheme, "frameworks", None), tuple):
        yield "frameworks is not a tuple", "name the frameworks that it runs on; () stands for all"


Cut = Callable[[Sampler, int, int], Sampler]
"""A rank's part of a sampler, from sampler, rank and number of ranks."""

_EXAMPLES, _EPOCHS = 53, 3


def check_partition(
    cut: Cut = Partitioned,
    *,
    sampler: Sampler | None = None,
    workers: Sequence[int] = (1, 2, 3, 4, 5),
    seed: int = 0,
    tell: Callable[[str], None] = lambda _: None,
) -> Report:
    """Check a way to give each rank its part of a sampler's batches (default: those of a shuffled one).

    Every epoch must visit the same examples as the sampler, equally often, even if their number, or the batch, is not
    divisible by the number of ranks; and step t of all ranks together must be batch t.
    """
    whole = Shuffled(8) if sampler is None else sampler
    split = Split.of(np.zeros((_EXAMPLES, 1), np.float32), np.arange(_EXAMPLES) % 3)
    probes: list[Probe] = [("every sample once", lambda: _covered(cut, whole, workers, split, seed))]
    return run_probes(type(whole).__name__, probes, tell)


def _covered(cut: Cut, whole: Sampler, workers: Sequence[int], split: Split, seed: int) -> Iterator[Finding]:
    for ranks in workers:
        parts = [cut(whole, rank, ranks) for rank in range(ranks)]
        for epoch in range(_EPOCHS):
            if found := _misfit(whole, parts, split, seed, epoch):
                where = f"{ranks} workers, epoch {epoch}"
                do = "let all ranks draw one order from the run's seed, and cut each batch of it"
                yield failed(f"{where}: {found}", do)
                return
    listed = ", ".join(map(str, workers))
    yield passed(f"{_EPOCHS} epochs of {len(split)} examples on {listed} workers")


def _misfit(whole: Sampler, parts: Sequence[Sampler], split: Split, seed: int, epoch: int) -> str:
    expected = whole.epoch(split, seed, epoch)
    found = [part.epoch(split, seed, epoch) for part in parts]
    visits = np.bincount(np.concatenate([each.order for each in found]), minlength=len(split))
    wanted = np.bincount(expected.order, minlength=len(split))
    for rank, part in enumerate(found):
        if len(part.sizes) != len(expected.sizes):
            return f"rank {rank} makes {len(part.sizes)} steps, but the epoch has {len(expected.sizes)}"
    if (visits != wanted).any():
        never, often = int((visits < wanted).sum()), int((visits > wanted).sum())
        return f"{never} of {len(split)} examples are visited too rarely, and {often} too often"
    for step in range(len(expected.sizes)):
        together = np.concatenate([each.batch(step) for each in found])
        if sorted(together.tolist()) != sorted(expected.batch(step).tolist()):
            return f"step {step + 1} of all ranks together is not batch {step + 1} of the sampler"
    sizes = np.stack([each.sizes for each in found])
    if (np.ptp(sizes, axis=0) > 1).any():
        step = int(np.argmax(np.ptp(sizes, axis=0))) + 1
        listed = ", ".join(map(str, sizes[:, step - 1].tolist()))
        return f"at step {step} ranks have {listed} examples: not as even as possible"
    return ""


Test = Callable[[SchemeTrial], Finding | list[Finding]]

_UPDATES: tuple[Test, ...] = (ranks_agree, gradients, one_process, every_worker_counts)
_LONG: tuple[Test, ...] = (one_process, learns, right_on_average, *BREADTH, random_delays)


def _title(test: Test) -> str:
    return test.__name__.replace("_", " ")


def check_scheme(
    scheme: Scheme,
    *,
    ranks: Sequence[int] = (2, 3, 4),
    framework: str = "numpy",
    seed: int = 0,
    steps: int = 100,
    seconds: float = 10.0,
    only: Sequence[str] = (),
    name: str = "",
    tell: Callable[[str], None] = lambda _: None,
    hear: Callable[[Finding], None] = lambda _: None,
) -> Report:
    """Check a scheme on ranks that are threads of this process, in a few seconds.

    For a scheme that bypasses the communicator (``counted = False``), only checkpoints are checked, in processes.
    ``ranks`` are the numbers of ranks to check; one that the scheme refuses is noted. ``steps`` is the length of each
    comparison with one process. A run that has not ended after ``seconds`` counts as hung. ``only`` names the probes to
    run (default: all that apply to the scheme's claims). ``tell`` is called with the name of each probe as it begins,
    and ``hear`` with each finding as it is made.
    """
    if not ranks or min(ranks) < 2 or steps < 2 or not seconds > 0:
        asked = f"a check on {', '.join(map(str, ranks)) or 'no'} ranks, of {steps} steps and {seconds:g} s"
        raise DefinitionError(
            asked, "there would be nothing to see", "use at least 2 ranks, at least 2 steps and some time"
        )
    title = name or getattr(scheme, "name", type(scheme).__name__)
    if scheme.frameworks and framework not in scheme.frameworks:
        listed = ", ".join(scheme.frameworks)
        refused = not_tried(f"it runs on {listed}", f"--framework {scheme.frameworks[0]}", probe="goes through")
        return Report(title, (refused,), framework)
    found = _Check(SchemeTrial(scheme, framework, seed, seconds, steps), sorted(set(ranks)), frozenset(only))
    report = run_probes(title, found.probes(), tell, framework=framework, hear=hear)
    return replace(report, findings=tuple(sorted(report.findings, key=found.place)))


@dataclass
class _Check:
    """The probes; later ones depend on the findings of the first ones."""

    trial: SchemeTrial
    asked: list[int]
    only: frozenset[str]
    wrong: str = ""
    """The first probe that found an update wrong: what is wrong in a few steps is so in many."""

    def probes(self) -> Iterator[Probe]:
        if self._wanted("well formed"):
            yield "well formed", lambda: well_formed(self.trial.scheme)
        yield "goes through", self._goes_through
        # What takes long comes last, so that a check that ends with the first failure ends early.
        for test in sorted(self._tests, key=_LONG.__contains__):
            title = _title(test)
            if self._wanted(title):
                own = test is checkpoints and not self.trial.scheme.counted
                yield title, self._in_processes if own else partial(self._tested, test)
        if self._wanted("every sample once"):
            yield "every sample once", self._partition

    @property
    def _tests(self) -> tuple[Test, ...]:
        """Those that apply to the scheme's claims, in the order of the report."""
        claims = CONSISTENT if self.trial.scheme.consistent else (*INCONSISTENT, *EXPECTATION)
        return (*AGREEMENT, *claims, *BREADTH, traffic, *ROBUSTNESS, checkpoints)

    def place(self, finding: Finding) -> int:
        """Where a finding stands in the report."""
        titles = ["well formed", "goes through", *map(_title, self._tests)]
        return titles.index(finding.probe) if finding.probe in titles else len(titles)

    def _wanted(self, title: str) -> bool:
        return not self.only or title in self.only

    def _goes_through(self) -> Iterator[Finding]:
        """Which numbers of ranks it accepts, and whether it completes on them."""
        taken, refused = [], []
        for ranks in self.asked:
            try:
                self.trial.scheme.workers(ranks)
                outcome = self.trial.run(Rehearsal(ranks))
            except UsageError as error:
                refused.append(error)
                yield noted(f"it refuses {ranks} ranks: {error.found}", error.do)
                continue
            if outcome.error is not None:
                yield self._stopped(outcome)
                continue
            taken.append(ranks)
        self.trial.ranks = tuple(taken)
        if taken:
            listed = ", ".join(map(str, taken))
            yield passed(f"{SHORT} steps on {listed} ranks")
        elif len(refused) == len(self.asked):
            yield failed("it accepts none of these numbers of ranks", "ask for others: --ranks 5,6")

    def _stopped(self, outcome: RanksOutcome) -> Finding:
        finding = stopped(outcome)
        # A run need not end where it goes wrong: a call that one rank leaves out is only noticed at the next.
        misfit = first_misfit(outcome, self.trial.seed) if self.trial.scheme.consistent else ""
        also = f"; the first wrong update: {misfit}" if misfit else ""
        return replace(finding, found=finding.found + also)

    def _tested(self, test: Test) -> list[Finding]:
        if not self.trial.ranks:
            return [not_tried("no run completed")]
        if test in (*BREADTH, right_on_average) and self.wrong:
            return [not_tried(f"see {self.wrong}")]
        try:
            found = test(self.trial)
        except EndProbe as end:
            found = end.finding
        listed = found if isinstance(found, list) else [found]
        if test in _UPDATES and any(each.status == "failed" for each in listed):
            self.wrong = self.wrong or _title(test)
        return listed

    def _in_processes(self) -> Iterator[Finding]:
        """A scheme that bypasses the communicator cannot run in threads."""
        trial = self.trial
        return checkpoints_in_processes(trial.scheme, trial.framework, min(self.asked), trial.seed, trial.seconds)

    def _partition(self) -> Iterator[Finding]:
        """The data pipeline's part: the batches that the trainer gives each of the scheme's workers."""
        workers = sorted({self.trial.scheme.workers(ranks) for ranks in self.trial.ranks})
        if not workers:
            yield not_tried("no run completed")
            return
        yield from check_partition(workers=workers, seed=self.trial.seed).findings
