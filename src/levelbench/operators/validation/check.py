"""All checks on one operator, and what they found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from levelbench.errors import LevelbenchError, UsageError
from levelbench.operators.contract import OperatorBackend
from levelbench.operators.validation.checks import CHECKS, Setting
from levelbench.operators.validation.findings import Finding, Report, failed, not_tried, passed
from levelbench.operators.validation.forward import Reference
from levelbench.operators.validation.samples import Inputs, describe
from levelbench.operators.validation.subject import subject_of

__all__ = ["check_operator"]


def check_operator(
    operator: Any,
    inputs: Sequence[Sequence[Any]],
    *,
    reference: Any = None,
    backend: OperatorBackend | None = None,
    backward: Callable[..., Any] | None = None,
    dtypes: Sequence[str] = (),
    seed: int = 0,
    runs: int = 100,
    aliases: bool | None = None,
    name: str = "",
    tell: Callable[[str], None] = lambda _: None,
    hear: Callable[[Finding], None] = lambda _: None,
) -> Report:
    """Run every check on ``inputs``: one or more lists of NumPy arrays, one array an input of the operator.

    ``operator`` is what :func:`check_forward` takes, and so is ``reference``; without one its own float64 results stand
    in, and what only a reference can tell is not tried. ``dtypes`` are those to try, by default all floating ones.
    ``runs`` is how often it is called on equal inputs to see how well it repeats itself (below 2: not tried).
    ``aliases`` allows or forbids outputs that share memory with inputs; ``None`` is what the operator says. ``tell``
    is told each check before it is run, and ``hear`` each finding as it comes. What the operator raises is a finding.
    """
    subject = subject_of(operator, backend, name=name, backward=backward)
    if aliases is not None:
        subject = replace(subject, aliases=aliases)
    samples = [[None if each is None else np.asarray(each) for each in sample] for sample in inputs]
    if not samples:
        found = "there are no inputs to check it with"
        raise UsageError(f"operator {subject.name}", found, "give inputs, shapes, or write examples in the operator")
    stands_in = Reference(subject if reference is None else reference)
    setting = Setting(subject, stands_in, reference is not None, tuple(dtypes), seed, runs)
    findings: list[Finding] = []
    for at, sample in enumerate(samples):
        for finding in _on(setting, sample, first=at == 0, tell=tell):
            hear(finding)
            findings.append(finding)
    return Report(subject.name, tuple(_merged(findings)))


def _on(setting: Setting, inputs: Inputs, *, first: bool, tell: Callable[[str], None]) -> Iterator[Finding]:
    """The checks on one list of inputs; of later lists only those that other shapes can tell something new."""
    for check, run, again in CHECKS:
        if not (first or again):
            continue
        tell(f"{check} on {describe(inputs)}")
        found = _run(setting, check, run, inputs)
        yield from found
        if check == "forward" and any(each.detail.startswith("it raises") for each in found):
            return


def _run(setting: Setting, check: str, run: Callable[..., list[Finding]], inputs: Inputs) -> list[Finding]:
    try:
        return run(setting, inputs, np.random.default_rng(setting.seed))
    except LevelbenchError as error:
        return [not_tried(check, f"{error.asked}: {error.found}", describe(inputs))]
    except Exception as error:  # noqa: BLE001  # the boundary to operators
        return [failed(check, f"it raises {type(error).__name__}: {error}", describe(inputs))]


def _merged(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Findings in the order of the checks, one for all the inputs that a check passed with."""
    for check in dict.fromkeys(each.check for each in findings):
        mine = [each for each in findings if each.check == check]
        good = [each for each in mine if each.status == "passed"]
        if good:
            yield good[0] if len(good) == 1 else passed(check, good[0].detail, f"{len(good)} inputs")
        yield from dict.fromkeys(each for each in mine if each.status != "passed")
