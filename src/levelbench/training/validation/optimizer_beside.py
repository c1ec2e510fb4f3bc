"""Probes of an optimizer beside another one: its reference, and itself on other frameworks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from levelbench.networks import zoo
from levelbench.networks.executor import Backend
from levelbench.training.optimizers.base import Optimizer
from levelbench.training.optimizers.wrappers import Native
from levelbench.training.validation.optimizer_divergence import NATIVE_TOLERANCE, TOLERANCE, Divergence, divergence
from levelbench.training.validation.optimizer_runs import Problem, Quadratic, Recorded, Run, run
from levelbench.training.validation.optimizer_subject import Subject, open_backend
from levelbench.training.validation.probes import Finding, failed, passed

__all__ = ["Beside", "across", "recorded_network"]

_FEATURES, _HIDDEN, _CLASSES, _BATCH, _RECORDED = 6, 5, 3, 16, 20
_LONG, _OF_LONG = 10, ("matrix", "vector")
_ROUNDING = 10.0
"""How many times further from its float64 self than the reference an optimizer may be in float32."""


def recorded_network(optimizer: Optimizer, backend: Backend, seed: int, matrices: bool) -> Recorded:
    """The gradients of a small network that this optimizer trains on clustered points; ``matrices``: no biases."""
    network = zoo.mlp(_FEATURES, _HIDDEN, _CLASSES).with_loss().training()
    executor = backend.executor(network, network.initialise(seed))
    random = np.random.default_rng([seed, 11])
    centres = random.standard_normal((_CLASSES, _FEATURES)) * 2
    taken = [name for name, each in executor.parameters.items() if len(each.shape) > 1 or not matrices]
    parameters = {name: executor.parameters[name] for name in taken}
    start = {name: np.array(backend.host(each), np.float64) for name, each in parameters.items()}
    stepper = optimizer.start(backend, parameters)
    gradients = []
    for step in range(1, _RECORDED + 1):
        labels = random.integers(0, _CLASSES, _BATCH)
        points = (centres[labels] + random.standard_normal((_BATCH, _FEATURES))).astype(np.float32)
        _, found = executor.infer_and_backprop(backend.array(points), backend.array(labels.astype(np.int64)))
        kept = {name: found[name] for name in taken}
        gradients.append({name: np.array(backend.host(each), np.float64) for name, each in kept.items()})
        stepper.step(kept, step, 1.0)
        for name, each in parameters.items():
            executor.parameters[name] = each
    return Recorded("network", start, gradients)


@dataclass
class Beside:
    """A subject and its reference on the same problems; ``seen`` gathers the divergences."""

    subject: Subject
    reference: Optimizer
    backend: Backend
    seen: list[Divergence]

    @property
    def tolerance(self) -> float:
        """Of float64."""
        return NATIVE_TOLERANCE if isinstance(self.reference, Native) else TOLERANCE

    def problems(self) -> Iterator[tuple[Problem, Callable[[int], float]]]:
        """What both are run on, and the schedule's factors."""
        subject, steps = self.subject, self.subject.steps

        def constant(step: int) -> float:
            return 1.0

        yield subject.quadratic("quadratic"), constant
        yield subject.quadratic("small gradients", scale=1e-8), constant
        yield subject.quadratic("large gradients", scale=1e3), constant
        yield subject.quadratic("gradients that end", zero_after=max(1, steps // 4)), constant
        # From nothing up, and down again.
        yield subject.quadratic("schedule"), lambda step: min(step - 1, steps - step) * 2 / steps
        matrices = "vector" not in subject.shapes
        yield recorded_network(self.reference, self.backend, subject.seed, matrices), constant

    def runs(self, problem: Problem, **settings: Any) -> tuple[Run, Run]:
        """Both ways."""
        subject = self.subject
        ours = run(subject.optimizer, subject.backend, problem, subject.steps, **settings)
        return ours, run(self.reference, self.backend, problem, subject.steps, **settings)

    def first_step(self) -> Iterator[Finding]:
        """Before anything can add up."""
        subject = self.subject
        problem = subject.quadratic("first step")
        ours = run(subject.optimizer, subject.backend, problem, 1)
        found = divergence("first step", ours, run(self.reference, self.backend, problem, 1), self.tolerance)
        yield _judged("first step", found, "the very first step is another")

    def trajectories(self) -> Iterator[Finding]:
        """Step by step, in float64."""
        for problem, factor in self.problems():
            ours, theirs = self.runs(problem, factor=factor)
            found = divergence(problem.name, ours, theirs, self.tolerance)
            self.seen.append(found)
            yield _judged(f"reference: {problem.name}", found, "it parts from its reference")

    def long(self) -> Iterator[Finding]:
        """The recursion for ten times as many steps, on two parameters: what goes wrong late."""
        subject = self.subject
        shapes = {name: shape for name, shape in subject.shapes.items() if name in _OF_LONG} or subject.shapes
        problem, steps = Quadratic("long", dict(shapes), subject.seed), _LONG * subject.steps
        ours = run(subject.optimizer, subject.backend, problem, steps)
        theirs = run(self.reference, self.backend, problem, steps)
        found = divergence(problem.name, ours, theirs, self.tolerance)
        self.seen.append(found)
        yield _judged("reference: long", found, "it parts from its reference")

    def rounding(self) -> Iterator[Finding]:
        """In float32, as close to float64 as the reference is, within a factor."""
        problem = self.subject.quadratic("float32")
        _, exact = self.runs(problem)
        ours, theirs = self.runs(problem, dtype=np.float32)
        allowed = _ROUNDING * float(divergence("float32", theirs, exact).linf.max(initial=0)) + 1e-5
        found = divergence("float32", ours, exact, allowed)
        self.seen.append(found)
        yield _judged("reference: float32", found, f"it loses more than {_ROUNDING:g} times what its reference loses")

    def averages(self) -> Iterator[Finding]:
        """The weights to evaluate with are the reference's."""
        ours, theirs = self.runs(self.subject.quadratic("averaged weights"))
        if ours.averaged is None or theirs.averaged is None:
            if (ours.averaged is None) != (theirs.averaged is None):
                which = "it" if ours.averaged is not None else "its reference"
                do = "have `averaged` return what the reference evaluates with"
                yield failed("reference: averaged", f"{which} alone is evaluated with other weights", do)
            return
        left, right = Run([ours.values[0], ours.averaged], {}, None), Run([theirs.values[0], theirs.averaged], {}, None)
        found = divergence("averaged", left, right, self.tolerance)
        yield _judged("reference: averaged", found, "it is evaluated with other weights")


def across(subject: Subject, frameworks: Sequence[str]) -> Iterator[Finding]:
    """The same way on every framework, with its faster stepper where it has one."""
    problem, steps = subject.quadratic(), min(subject.steps, 20)
    base = run(subject.optimizer, subject.backend, problem, steps)
    for name in frameworks:
        try:
            other = run(subject.optimizer, open_backend(name), problem, steps)
        except Exception as error:  # noqa: BLE001  # the boundary to a user's rule, which may raise anything
            found = f"on {name} it raised {type(error).__name__}: {error}"
            do = "write it with operators and the functions of levelbench.training.optimizers.arrays"
            yield failed(f"framework {name}", found, do)
            continue
        yield _judged(f"framework {name}", divergence(name, other, base), "it goes another way there")


def _judged(probe: str, found: Divergence, wrong: str) -> Finding:
    size = f"L∞ {found.linf.max(initial=0):.1e}, L2 {found.l2.max(initial=0):.1e} in {len(found.linf)} steps"
    if found.first is None:
        return passed(probe, size)
    where = f"first at step {found.first} in {found.where!r}"
    do = "compare the formula of that step with the reference's"
    return failed(probe, f"{wrong}: {where} ({size}; {found.tolerance:.0e} is allowed)", do)
