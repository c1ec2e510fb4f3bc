"""Checks whether an optimizer is right: by itself, beside a reference, and on several frameworks.

The one idea: the loss of a network falls with many a wrong optimizer, only more slowly. So it is not training that is
looked at, but every step: against the same step taken in another way, or by another optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from levelbench.errors import DefinitionError, LevelbenchError
from levelbench.networks.executor import Backend
from levelbench.training.optimizers.base import Optimizer
from levelbench.training.optimizers.wrappers import Groups, Native
from levelbench.training.validation.optimizer_alone import ALONE
from levelbench.training.validation.optimizer_beside import Beside, across
from levelbench.training.validation.optimizer_divergence import Divergence
from levelbench.training.validation.optimizer_runs import SHAPES, Quadratic, run
from levelbench.training.validation.optimizer_subject import (
    Subject,
    check_settings,
    framework_of,
    open_backend,
    reference_of,
)
from levelbench.training.validation.probes import Finding, Probe, Report, failed, not_tried, noted, passed, run_probes

__all__ = ["Checked", "check_optimizer"]


@dataclass(frozen=True)
class Checked:
    """A report, and how far the optimizer was from its reference on each problem, step by step."""

    report: Report
    divergences: tuple[Divergence, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {**self.report.to_dict(), "divergences": [each.to_dict() for each in self.divergences]}


def check_optimizer(
    optimizer: Optimizer,
    reference: str | Optimizer | None = None,
    *,
    frameworks: Sequence[str] = ("numpy",),
    seed: int = 0,
    steps: int = 100,
    name: str = "",
    tell: Callable[[str], None] = lambda _: None,
) -> Checked:
    """Check an optimizer on CPU, in a second or a few.

    ``reference`` is another optimizer, or the name of one of ours (``adam``) or of a framework's
    (``torch.optim.Adam``), which then gets the same rate and those settings that have the same name. ``frameworks``:
    all checks run on the first, and the others must go the same way. A run is of ``steps``, and one beside the
    reference of ten times as many. ``tell`` hears of each probe as it begins. Raises
    ``UnknownNameError`` for a reference that is none, ``DefinitionError`` for ``Groups``.
    """
    check_settings(steps, frameworks)
    if isinstance(optimizer, Groups):
        found = "its patterns are those of a network's parameters, and here are others"
        raise DefinitionError("a check of Groups", found, "check each of its optimizers by itself")
    title = name or type(optimizer).__name__
    first = framework_of(optimizer, frameworks[0])
    backend = open_backend(first)
    other = reference_of(optimizer, reference)
    shapes, findings = _shapes(optimizer, backend, seed)
    beside = other if other is None else _Reference(other, open_backend(framework_of(other, first)))
    if beside is not None:
        taken, _ = _shapes(beside.optimizer, beside.backend, seed)
        shapes = {each: shapes[each] for each in shapes if each in taken}
    if not shapes:
        if not any(each.status == "failed" for each in findings):
            findings.append(failed("shapes", "there is no shape that it takes", "take parameters of two axes at least"))
        return Checked(Report(title, tuple(findings)), ())
    subject = Subject(optimizer, backend, seed, steps, shapes)
    seen: list[Divergence] = []
    rest = [] if isinstance(optimizer, Native) else [each for each in dict.fromkeys(frameworks) if each != first]
    report = run_probes(title, _probes(subject, beside, rest, seen), tell)
    return Checked(replace(report, findings=(*findings, *report.findings)), tuple(seen))


@dataclass(frozen=True)
class _Reference:
    optimizer: Optimizer
    backend: Backend


def _probes(
    subject: Subject, reference: _Reference | None, frameworks: Sequence[str], seen: list[Divergence]
) -> Iterator[Probe]:
    for probe in ALONE:
        yield probe.__name__.replace("_", " "), lambda probe=probe: probe(subject)  # type: ignore[misc]
    if reference is None:
        found = "no reference was named, so whether the formula is right was not looked at"
        do = 'name one: reference = "adam", or --reference torch.optim.Adam'
        yield "reference", lambda: [not_tried("reference", found, do)]
    else:
        both = Beside(subject, reference.optimizer, reference.backend, seen)
        yield "first step", both.first_step
        yield "reference", both.trajectories
        yield "long", both.long
        yield "float32", both.rounding
        yield "averaged", both.averages
    if frameworks:
        yield "frameworks", lambda: across(subject, frameworks)
    else:
        yield "frameworks", lambda: [not_tried("frameworks", "one alone was asked for", "--framework numpy,torch,jax")]


def _shapes(optimizer: Optimizer, backend: Backend, seed: int) -> tuple[dict[str, tuple[int, ...]], list[Finding]]:
    """The shapes that it takes, and what was found on the others."""
    taken: dict[str, tuple[int, ...]] = {}
    findings = []
    for name, shape in SHAPES.items():
        try:
            run(optimizer, backend, Quadratic(name, {name: shape}, seed), 2)
        except LevelbenchError as error:
            findings.append(noted("shapes", f"it refuses a {name} of shape {shape}: {error.found}"))
        except Exception as error:  # noqa: BLE001  # the boundary to a user's rule, which may raise anything
            found = f"a {name} of shape {shape} raised {type(error).__name__}: {error}"
            findings.append(failed("shapes", found, "take parameters of any shape, or refuse with a DefinitionError"))
        else:
            taken[name] = shape
    if not findings:
        findings.append(passed("shapes", ", ".join(SHAPES)))
    return taken, findings
