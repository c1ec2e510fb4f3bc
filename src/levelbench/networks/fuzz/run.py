"""Runs generated networks on several frameworks, shrinks those on which they diverge, and writes these as files.

What is found is a model, its inputs and a sentence; ``levelbench check`` takes them as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from levelbench.errors import CheckFailedError, LevelbenchError
from levelbench.networks.files import save
from levelbench.networks.fuzz.generate import Specimen, generate_seeded, shrunk
from levelbench.networks.probes import Agreement, compare_network
from levelbench.networks.probes.running import Runner
from levelbench.operators.contract import OperatorBackend


@dataclass
class FuzzCounts:
    """How many cases agree, by framework how many it could not run, and the agreements that failed, by seed."""

    agree: int = 0
    unsupported: dict[str, int] = field(default_factory=dict)
    failed: list[tuple[int, Agreement]] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)


def agreement_on(
    case: Specimen,
    backends: Mapping[str, OperatorBackend],
    reference: OperatorBackend,
    *,
    gradients: bool = True,
    locate: bool = True,
) -> Agreement:
    """The case on each of ``backends`` against ``reference``."""
    return compare_network(
        case.network, backends, reference, case.inputs, case.parameters, gradients=gradients, locate=locate
    )


def fuzz(
    count: int,
    seed: int,
    backends: Mapping[str, OperatorBackend],
    reference: OperatorBackend,
    *,
    folder: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> FuzzCounts:
    """``count`` cases from ``seed`` on; each that fails is shrunk and written to ``folder``."""
    tally = FuzzCounts()
    for each in range(seed, seed + count):
        case = generate_seeded(each)
        found = agreement_on(case, backends, reference)
        for one in found.backends:
            if one.lacks:
                tally.unsupported[one.backend] = tally.unsupported.get(one.backend, 0) + 1
        if not found.failed:
            tally.agree += 1
            continue
        wrong = {one.backend: backends[one.backend] for one in found.failed}
        small = shrunk(case, partial(_fails, backends=wrong, reference=reference), Runner("", reference))
        found = agreement_on(small, wrong, reference)
        tally.failed.append((each, found))
        if folder is not None:
            tally.files.append(write_case(small, found, folder, f"fuzz-{each}"))
        tell(f"seed {each}: {said(found)}")
    return tally


def _fails(case: Specimen, backends: Mapping[str, OperatorBackend], reference: OperatorBackend) -> bool:
    try:
        return bool(agreement_on(case, backends, reference, locate=False).failed)
    except LevelbenchError:
        # What is left may be no network: then it is no smaller example.
        return False


def said(found: Agreement) -> str:
    """What is wrong, in a sentence; empty if nothing is."""
    try:
        found.raise_for_findings()
    except CheckFailedError as error:
        return f"{error.asked}: {error.found}"
    return ""


def write_case(case: Specimen, found: Agreement, folder: Path, name: str) -> Path:
    """Write ``name.onnx`` with its parameters, ``name.npz`` with its inputs and ``name.txt``; the model's path."""
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / f"{name}.onnx"
    save(case.network, model, case.parameters)
    np.savez(folder / f"{name}.npz", allow_pickle=False, **dict(case.inputs))
    frameworks = ",".join(each.backend for each in found.backends)
    command = f"levelbench check {name}.onnx --inputs {name}.npz --framework {frameworks}"
    nodes = "\n".join(
        f"  {each.title}({', '.join(each.inputs)}) -> {', '.join(each.outputs)}  {dict(each.attributes) or ''}".rstrip()
        for each in case.network.nodes
    )
    (folder / f"{name}.txt").write_text(f"{said(found)}\n\n{nodes}\n\n{command}\n", encoding="utf-8")
    return model
