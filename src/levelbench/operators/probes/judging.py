"""Judges one case of an operator against its reference, and what all probes of an operator share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from levelbench.checks.arrays import Host, is_float
from levelbench.checks.findings import Finding, failed, not_tried, noted, passed
from levelbench.operators.custom.definition import Attribute
from levelbench.operators.probes.forward import Expected, Oracle, judge_outputs
from levelbench.operators.probes.inputs import other_values
from levelbench.operators.probes.memory import summed
from levelbench.operators.probes.subject import HostOperator, Inputs, attempt

NO_REFERENCE = "there is no reference to compare with"


@dataclass(frozen=True)
class Setting:
    """What all probes of an operator share.

    ``compared`` is whether ``reference`` is something other than the operator itself; ``dtypes`` are the requested
    ones. ``runs`` is how often the operator is called to measure its repeatability, which is not tried below 2.
    ``ranks`` are the numbers of axes that the first input has in the examples. ``variants`` are the operator with other
    attributes, and its reference with the same ones.
    """

    subject: HostOperator
    reference: Oracle
    compared: bool
    dtypes: tuple[str, ...]
    seed: int
    runs: int
    ranks: frozenset[int] = frozenset()
    variants: Sequence[Variant] = field(default=())

    def other(self, inputs: Inputs, random: np.random.Generator) -> Inputs:
        """The same shapes with values a hundred times as large, so that any state kept from them shows."""
        return dict(other_values(inputs, self.subject.fixed, random))["values times 100"]

    def judged(
        self,
        inputs: Inputs,
        case: str,
        *,
        first: bool = False,
        finite_only: bool = False,
        may_raise: bool = False,
        infinite: bool = False,
    ) -> Finding:
        """Compare one case with the reference: passed, failed, or not tried if the reference refuses the inputs.

        ``first`` is true for the example itself, for which a reference without float64 is trusted. ``may_raise`` is
        true for inputs that the operator need not accept because the reference does. ``infinite`` is true for inputs
        with an infinity: where a reference computes NaN from it, a better operator need not. The values of a random
        operator are not compared.
        """
        wanted = attempt(self.reference.outputs, inputs, self.subject.fixed)
        if not wanted.worked:
            return not_tried("the reference does not accept it", case=case)
        found = attempt(self.subject.forward, inputs)
        if not found.worked:
            # Offsets that rise to the number of values, or indices below a size, fit no size that is changed alone.
            declined = found.declined and not first and indexed(inputs)
            if self.subject.ours and not found.refused and not declined:
                report = noted if may_raise else failed
                return report(f"it raises {found.error}, but the reference does not", case=case)
            return not_tried(f"refused: {found.error}", case=case)
        expected: Expected = wanted.value
        outputs = with_expected_nonfinites(found.value, expected, finite_only or not self.subject.ours)
        if not self.subject.deterministic:
            outputs = _with_expected_values(outputs, expected)
        if infinite:
            outputs = _with_expected_nans(outputs, expected)
        fault = judge_outputs(self.subject, inputs, outputs, expected, self.reference)
        if fault and not expected.exact and not first:
            # It is unclear which of the two is wrong; a failure on the example itself must be looked into.
            return noted(f"the reference has no float64 and may itself be wrong: {fault}", case=case)
        if not fault and not self.subject.deterministic:
            return not_tried("it is declared random: shapes and types are right, values are not compared", case=case)
        return failed(fault, case=case) if fault else passed(case=case)

    def marked(self, found: Iterable[Finding]) -> Iterator[Finding]:
        """The findings, marked if the operator was compared with itself."""
        for each in found:
            own = each.status == "passed" and not self.compared
            yield replace(each, found=f"{each.found}, compared with its own float64 results") if own else each


@dataclass(frozen=True)
class Variant:
    """The operator with other ``attributes``. ``make`` returns it and its reference; it raises if it refuses them.

    ``unless`` is the title of another variant: if that one is accepted, a wrong result here does not count.
    """

    title: str
    make: Callable[[], tuple[HostOperator, Oracle]]
    unless: str = ""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


def indexed(inputs: Inputs) -> bool:
    """Whether there are integers beside floating-point numbers, which may be indices or labels."""
    kinds = {is_float(each.dtype) for each in inputs if each is not None and each.dtype.kind != "b"}
    return len(kinds) == 2


Probe = Callable[[Setting, Inputs, np.random.Generator], Iterable[Finding]]


def with_expected_nonfinites(outputs: Sequence[Host | None], expected: Expected, lenient: bool) -> list[Host | None]:
    """The outputs with the reference's value wherever both are not finite: NaN and infinity are equally right there.

    Infinities of opposite signs are not. ``lenient``: also where only the reference is not finite.
    """
    found: list[Host | None] = []
    for at, output in enumerate(outputs):
        wide = expected.wide[at] if at < len(expected.wide) else None
        floats = output is not None and wide is not None and is_float(output.dtype) and is_float(wide.dtype)
        if output is None or wide is None or not floats or output.shape != wide.shape:
            found.append(output)
            continue
        with np.errstate(all="ignore"):
            known, own = wide.astype(np.float64), output.astype(np.float64)
            replaced = ~np.isfinite(known)
            if not lenient:
                replaced &= ~np.isfinite(own) & ~(np.isinf(known) & np.isinf(own) & (known != own))
            found.append(np.where(replaced, known.astype(output.dtype), output))
    return found


def _with_expected_nans(outputs: Sequence[Host | None], expected: Expected) -> list[Host | None]:
    """The outputs with NaN wherever the reference has NaN."""
    found = list(outputs)
    for at, (output, wide) in enumerate(zip(outputs, expected.wide, strict=False)):
        if output is not None and wide is not None and is_float(output.dtype) and output.shape == wide.shape:
            found[at] = np.where(np.isnan(wide.astype(np.float64)), np.asarray(np.nan, output.dtype), output)
    return found


def _with_expected_values(outputs: Sequence[Host | None], expected: Expected) -> list[Host | None]:
    """The outputs with the reference's values, in their own dtype, wherever they have its shape."""
    return [
        wide.astype(output.dtype) if output is not None and wide is not None and output.shape == wide.shape else output
        for output, wide in zip(outputs, (*expected.wide, *[None] * len(outputs)), strict=False)
    ]


def brief(found: Sequence[Finding]) -> list[Finding]:
    """One finding for all that passed, one for all that were not tried, and the rest."""
    refused = [each for each in found if each.status == "not tried"]
    rest = summed([each for each in found if each.status != "not tried"])
    if refused and len(refused) == len(found):
        return refused[:1]
    if refused:
        detail = f"{len(refused)} of {len(found)} cases: {refused[0].found}"
        rest.append(not_tried(detail, case=refused[0].case))
    return rest
