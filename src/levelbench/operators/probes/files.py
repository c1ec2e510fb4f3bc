"""Checks the custom operators of a file on one framework, each in its own process.

The framework's own adapter creates the operator, as for a node of a network, so what is checked is what will run.
A crash or a hang is just a finding.
"""

from __future__ import annotations

import importlib.util
import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.checks.arrays import Host, is_float
from levelbench.checks.findings import Finding, Report, failed
from levelbench.checks.isolation import JsonLine, Say, run_isolated
from levelbench.errors import DefinitionError, MissingError, UnknownNameError, UsageError
from levelbench.operators.contract import DType
from levelbench.operators.custom.definition import CustomOperator, node_of
from levelbench.operators.custom.library import load_file
from levelbench.operators.frameworks import open_framework
from levelbench.operators.probes.check import DTYPES, check_operator
from levelbench.operators.probes.forward import Oracle
from levelbench.operators.probes.subject import Checkable, HostOperator, Inputs, attempt, subject_of

_MOST_EXAMPLES = 6


@dataclass(frozen=True)
class Request:
    """One operator of a file, on one framework.

    ``reference`` is ``FILE.py:function``. ``shapes`` maps inputs to shapes, and ``kinds`` maps inputs that are not
    floating-point to dtypes. ``attributes`` are those of the constructor. ``runs`` is how often it is called to measure
    its repeatability.
    """

    path: str
    operator: str
    framework: str
    device: str = "cpu"
    reference: str = ""
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    dtypes: Sequence[str] = ()
    seed: int = 0
    kinds: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    runs: int = 100


def check_in_file(
    request: Request, tell: Callable[[str], None], hear: Callable[[Finding], None]
) -> tuple[Report, NDArray[np.float64] | None]:
    """The report, and the deviation of the first output from the reference on the first example, if there is one."""
    classes = {each.name: each for each in load_file(request.path)}
    if request.operator not in classes:
        raise UnknownNameError(f"operator of {request.path}", request.operator, classes)
    try:
        operator: CustomOperator = classes[request.operator](**request.attributes)
    except UsageError as error:
        raise UsageError(error.asked, error.found, f"{error.do}; give them with --attr name=value") from error
    samples = _samples(operator, request)
    backend = open_framework(request.framework, request.device)
    subject = replace(
        subject_of(backend.operator(node_of(operator)), backend, name=operator.name),
        infer=operator.infer,
        aliases=bool(getattr(operator, "aliases", False)),
        deterministic=bool(getattr(operator, "deterministic", True)),
    )
    if not operator.has_backward:
        subject = replace(subject, pull=None)
    reference = _reference(operator, request.reference)
    report = check_operator(
        subject,
        samples,
        reference=reference,
        dtypes=request.dtypes,
        seed=request.seed,
        runs=request.runs,
        tell=tell,
        hear=hear,
    )
    return report, _deviation(subject, samples[0], reference)


def _samples(operator: CustomOperator, request: Request) -> list[Inputs]:
    random = np.random.default_rng(request.seed)
    if request.shapes:
        return [_of_shapes(operator, request, random)]
    examples = [list(each) for each in islice(operator.examples(random), _MOST_EXAMPLES)]
    if not examples:
        do = f"define examples, or give --shape for each input, such as --shape {operator.inputs[0]}=8x16"
        raise UsageError(f"operator {operator.name}", "it has no examples to check it with", do)
    return [[np.asarray(value) for value in example] for example in examples]


def _of_shapes(operator: CustomOperator, request: Request, random: np.random.Generator) -> Inputs:
    for name in request.shapes:
        if name not in operator.inputs:
            raise UnknownNameError(f"input of {operator.name}", name, operator.inputs)
    missing = [name for name in operator.inputs if name not in request.shapes]
    if missing:
        found = f"input {missing[0]!r} has no shape"
        raise UsageError(f"operator {operator.name} with --shape", found, f"give --shape {missing[0]}=8x16")
    dtype = DTYPES[request.dtypes[0]] if request.dtypes else DTYPES["float32"]
    largest = max(math.prod(each) for each in request.shapes.values())
    if largest > 2**24:
        found = f"an input would have {largest} elements"
        raise UsageError(
            f"operator {operator.name} with --shape", found, "give at most 2^24; that is enough for a check"
        )
    return [
        _drawn(tuple(request.shapes[name]), np.dtype(request.kinds.get(name, dtype)), random)
        for name in operator.inputs
    ]


def _drawn(shape: tuple[int, ...], dtype: DType, random: np.random.Generator) -> Host:
    """Normal numbers, or integers from 0 to 7, which are small enough to be valid indices in most cases."""
    return (
        random.standard_normal(shape).astype(dtype) if is_float(dtype) else random.integers(0, 8, shape).astype(dtype)
    )


def _reference(operator: CustomOperator, word: str) -> Checkable | None:
    """The function that the user names, else the operator's own reference; ``None`` if there is neither."""
    if not word:
        return operator.reference if operator.has_reference else None
    place, colon, name = word.rpartition(":")
    path = Path(place)
    if not colon or path.suffix != ".py" or not name.isidentifier():
        raise UsageError(f"--reference {word}", "it does not name a function in a file", "write FILE.py:function")
    if not path.is_file():
        raise MissingError(f"--reference {word}", f"there is no file {place}", "give the path of a .py file")
    spec = importlib.util.spec_from_file_location("levelbench_reference", path.resolve())
    if spec is None or spec.loader is None:
        raise DefinitionError(f"--reference {word}", "Python cannot import it", "give a .py file")
    module = importlib.util.module_from_spec(spec)
    made = attempt(spec.loader.exec_module, module)
    if not made.worked:
        raise DefinitionError(f"--reference {word}", f"it raises {made.error}", "correct the file")
    function = getattr(module, name, None)
    if not callable(function):
        known = [each for each in vars(module) if callable(getattr(module, each)) and not each.startswith("_")]
        raise UnknownNameError(f"function of {place}", name, known)
    return function


def _deviation(subject: HostOperator, inputs: Inputs, reference: Checkable) -> NDArray[np.float64] | None:
    """Actual minus expected of the first output, if both exist and have the same shape."""
    if reference is None:
        return None
    wanted, found = attempt(Oracle(reference).outputs, inputs), attempt(subject.forward, inputs)
    if not (wanted.worked and found.worked):
        return None
    first, second = found.value[0], wanted.value.wide[0]
    if first is None or second is None or first.shape != second.shape:
        return None
    with np.errstate(all="ignore"):
        return np.asarray(first.astype(np.float64) - second.astype(np.float64))


def names_isolated(path: Path, timeout_s: float = 300.0) -> list[str]:
    """The names of the operators in a file, which is loaded (and compiled) in its own process.

    Raises what loading it raises, and ``DefinitionError`` if the file ends or hangs the process.
    """
    said: list[JsonLine] = []
    ended = run_isolated(f"{__name__}:list_operators", {"path": str(path)}, said.append, timeout_s=timeout_s)
    if ended.error is not None:
        raise ended.error
    if not said:
        raise ended.death(f"the operator file {path}")
    names: list[str] = said[0]["names"]
    return names


def check_isolated(
    request: Request, tell: Callable[[str], None] = lambda _: None, timeout_s: float = 300.0
) -> tuple[Report, NDArray[np.float64] | None]:
    """The report on one operator, and its deviation from the reference; ``tell`` is called as each probe begins.

    If the process dies by a signal or does not end within ``timeout_s`` seconds, that is a failure of the operator, as
    is an error from asking for more memory than the machine has. Raises what prevents the check altogether.
    """
    findings: list[Finding] = []
    done: list[Finding] = []
    started = ""

    def hear(line: JsonLine) -> None:
        nonlocal started
        if "started" in line:
            started = line["started"]
            tell(started)
        elif "finding" in line:
            findings.append(Finding(**line["finding"]))
        else:
            done.extend(Finding(**each) for each in line["done"])

    with tempfile.TemporaryDirectory(prefix="levelbench-") as folder:
        place = Path(folder) / "deviation.npy"
        job = {"operator": asdict(request), "deviation": str(place)}
        # No cap on an accelerator, whose drivers map far more memory than they use.
        cap = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if request.device == "cpu" else None
        ended = run_isolated(f"{__name__}:check_request", job, hear, timeout_s=timeout_s, memory_bytes=cap)
        if ended.error is not None:
            raise ended.error
        deviation = np.load(place, allow_pickle=False) if done and place.exists() else None
    if done:
        return Report(request.operator, tuple(done), request.framework), deviation
    if not started:
        raise ended.death(f"operator {request.operator} on {request.framework}")
    probe, _, case = started.partition(" on ")
    crash = failed(f"its process ended in the check {probe!r}: {ended.how}", case=case, probe="crash")
    return Report(request.operator, (*findings, crash), request.framework), None


def list_operators(request: JsonLine, say: Say) -> None:
    """The part of :func:`names_isolated` that runs in the other process."""
    say({"names": [each.name for each in load_file(request["path"])]})


def check_request(request: JsonLine, say: Say) -> None:
    """The part of :func:`check_isolated` that runs in the other process."""
    report, deviation = check_in_file(
        Request(**request["operator"]),
        lambda probe: say({"started": probe}),
        lambda finding: say({"finding": asdict(finding)}),
    )
    if deviation is not None:
        np.save(request["deviation"], deviation, allow_pickle=False)
    say({"done": [asdict(finding) for finding in report.findings]})
