"""Checks whether a scheme is right before anybody asks whether it is fast.

The one idea: a wrong scheme still learns, only worse. So it is not a loss that is looked at, but what became of each
rank's gradient, on ranks in this process, whose every number, order of arrival and death is in the check's hands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from levelbench.distributed.scheme import Scheme
from levelbench.distributed.validation.agreement import AGREEMENT
from levelbench.distributed.validation.counting import first_misfit
from levelbench.distributed.validation.equality import CONSISTENT
from levelbench.distributed.validation.form import well_formed
from levelbench.distributed.validation.keeping import checkpoints
from levelbench.distributed.validation.learning import INCONSISTENT
from levelbench.distributed.validation.partition import check_partition
from levelbench.distributed.validation.processes import checkpoints_in_processes
from levelbench.distributed.validation.robustness import ROBUSTNESS
from levelbench.distributed.validation.rules import SHORT
from levelbench.distributed.validation.runs import Bench, Case, Outcome
from levelbench.distributed.validation.subject import Subject, stopped
from levelbench.distributed.validation.volume import traffic
from levelbench.errors import DefinitionError, UsageError
from levelbench.training.validation.probes import Finding, Probe, Report, failed, not_tried, noted, passed, run_probes

__all__ = ["check_scheme"]

Test = Callable[[Subject], Iterable[Finding]]


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
) -> Report:
    """Check a scheme on ranks that are threads of this process, in a few seconds.

    Of one that talks past the communicator (``counted = False``) only its checkpoints are tried, in processes.
    ``ranks`` are the numbers of ranks to look at; one that the scheme refuses is noted. ``steps`` are those of each
    comparison with one process. A run that has not ended after ``seconds`` is taken for hung. ``only`` names the probes
    to run (default: all that suit the scheme's claims). ``tell`` hears of each probe as it begins.
    """
    if not ranks or min(ranks) < 2 or steps < 2 or not seconds > 0:
        asked = f"a check on {', '.join(map(str, ranks)) or 'no'} ranks, of {steps} steps and {seconds:g} s"
        raise DefinitionError(
            asked, "there would be nothing to see", "take 2 ranks or more, 2 steps or more, some time"
        )
    title = name or getattr(scheme, "name", type(scheme).__name__)
    if scheme.frameworks and framework not in scheme.frameworks:
        listed = ", ".join(scheme.frameworks)
        return Report(
            title, (not_tried("goes through", f"it runs on {listed}", f"--framework {scheme.frameworks[0]}"),)
        )
    found = _Check(Bench(scheme, framework, seed, seconds), tuple(sorted(set(ranks))), steps, frozenset(only))
    return run_probes(title, found.probes(), tell)


@dataclass
class _Check:
    """The probes, the later of which depend on what the first ones find."""

    bench: Bench
    asked: tuple[int, ...]
    steps: int
    only: frozenset[str]
    taken: tuple[int, ...] = field(default=())

    def probes(self) -> Iterator[Probe]:
        if self._wanted("well formed"):
            yield "well formed", lambda: well_formed(self.bench.scheme)
        yield "goes through", self._goes_through
        claims = CONSISTENT if self.bench.scheme.consistent else INCONSISTENT
        for test in (*AGREEMENT, *claims, traffic, *ROBUSTNESS, checkpoints):
            title = test.__name__.replace("_", " ")
            if self._wanted(title):
                own = test is checkpoints and not self.bench.scheme.counted
                yield title, self._in_processes if own else partial(self._tested, title, test)
        if self._wanted("every sample once"):
            yield "every sample once", self._partition

    def _wanted(self, title: str) -> bool:
        return not self.only or title in self.only

    def _goes_through(self) -> Iterator[Finding]:
        """Which numbers of ranks it takes, and whether it comes to its end on them."""
        taken, refused = [], []
        for ranks in self.asked:
            try:
                self.bench.scheme.workers(ranks)
                outcome = self.bench.run(Case(ranks))
            except UsageError as error:
                refused.append(error)
                yield noted("goes through", f"it refuses {ranks} ranks: {error.found}", error.do)
                continue
            if outcome.error is not None:
                yield self._stopped(outcome)
                continue
            taken.append(ranks)
        self.taken = tuple(taken)
        if taken:
            listed = ", ".join(map(str, taken))
            yield passed("goes through", f"{SHORT} steps on {listed} ranks")
        elif len(refused) == len(self.asked):
            yield failed("goes through", "it takes none of these numbers of ranks", "ask for others: --ranks 5,6")

    def _stopped(self, outcome: Outcome) -> Finding:
        finding = stopped("goes through", outcome)
        # What ends a run need not be where it goes wrong: a call that one rank leaves out is seen at the next.
        misfit = first_misfit(outcome, self.bench.seed) if self.bench.scheme.consistent else None
        if misfit is None:
            return finding
        return replace(
            finding, found=f"{finding.found}; the first update that is wrong: {misfit.where}: {misfit.found}"
        )

    def _tested(self, title: str, test: Test) -> Iterator[Finding]:
        if not self.taken:
            yield not_tried(title, "no run came to its end")
            return
        yield from test(Subject(self.bench, self.taken, self.steps))

    def _in_processes(self) -> Iterator[Finding]:
        """A scheme that talks past the communicator does not run in threads."""
        bench = self.bench
        return checkpoints_in_processes(bench.scheme, bench.framework, min(self.asked), bench.seed, bench.seconds)

    def _partition(self) -> Iterator[Finding]:
        """The pipeline's part: what the trainer gives each of the scheme's workers."""
        workers = sorted({self.bench.scheme.workers(ranks) for ranks in self.taken})
        if not workers:
            yield not_tried("every sample once", "no run came to its end")
            return
        yield from check_partition(workers=workers, seed=self.bench.seed).findings
