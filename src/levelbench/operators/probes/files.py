"""Checks the custom operators of a file on one framework, each in its own process.

The framework's own adapter creates the operator, as for a node of a network, so what is checked is what will run.
A crash or a hang is just a finding.
"""

from __future__ import annotations

import importlib.util
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from levelbench.checks.arrays import Host, is_float
from levelbench.checks.findings import Finding, Report, failed, not_tried, passed
from levelbench.checks.isolation import JsonLine, Say, report_isolated, run_isolated
from levelbench.errors import DefinitionError, MissingError, UnknownNameError, UnsupportedError, UsageError
from levelbench.operators.benchmark.outside import call_from_outside
from levelbench.operators.benchmark.watching import SEAL
from levelbench.operators.contract import DType, OperatorBackend
from levelbench.operators.custom.compiled import CompiledOperator
from levelbench.operators.custom.definition import Attribute, CustomOperator, node_of
from levelbench.operators.custom.host import independent
from levelbench.operators.custom.isolation import read_arrays, write_arrays
from levelbench.operators.custom.library import load_file
from levelbench.operators.custom.sanitizers import SANITIZERS, run_sanitized
from levelbench.operators.frameworks import open_framework
from levelbench.operators.probes.attributes import other_attributes
from levelbench.operators.probes.check import DTYPES, RUNS, check_operator
from levelbench.operators.probes.forward import Oracle
from levelbench.operators.probes.inputs import more_sizes, other_shapes
from levelbench.operators.probes.judging import Setting, Variant
from levelbench.operators.probes.subject import Checkable, HostOperator, Inputs, attempt, subject_of
from levelbench.records.benchmarks import Problem

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
    runs: int = RUNS


def check_in_file(
    request: Request, tell: Callable[[str], None], hear: Callable[[Finding], None]
) -> tuple[Report, NDArray[np.float64] | None]:
    """The report, and the deviation of the first output from the reference on the first example, if there is one."""
    # Before the file is loaded, which may replace what checks consist of.
    backend = open_framework(request.framework, request.device)
    SEAL.add_framework(backend)
    classes = {each.name: each for each in load_file(request.path)}
    if request.operator not in classes:
        raise UnknownNameError(f"operator of {request.path}", request.operator, classes)
    try:
        operator: CustomOperator = classes[request.operator](**request.attributes)
    except UsageError as error:
        raise UsageError(error.asked, error.found, f"{error.do}; give them with --attr name=value") from error
    kept = {name: getattr(operator, name) for name in operator.attributes if hasattr(operator, name)}
    samples = _samples(operator, request)
    subject = _subject(operator, backend)
    reference = _reference(operator, request.reference)
    report = check_operator(
        subject,
        samples,
        reference=reference,
        dtypes=request.dtypes,
        seed=request.seed,
        runs=request.runs,
        variants=_variants(operator, backend, request.reference),
        tell=tell,
        hear=hear,
        more=[("sanitizers", partial(_sanitizers, operator, samples), False)]
        if isinstance(operator, CompiledOperator)
        else [("state", partial(_attributes_kept, operator, kept), True)],
    )
    return report, _deviation(subject, samples[0], reference)


def _subject(operator: CustomOperator, backend: OperatorBackend) -> HostOperator:
    """The operator as the framework's adapter makes it."""
    subject = replace(
        subject_of(backend.operator(node_of(operator)), backend, name=operator.name),
        infer=operator.infer,
        direct=None if operator.array_api or isinstance(operator, CompiledOperator) else operator.forward,
        aliases=bool(getattr(operator, "aliases", False)),
        deterministic=bool(getattr(operator, "deterministic", True)),
    )
    return subject if operator.has_backward else replace(subject, pull=None, begin=None)


def _attributes_kept(
    operator: CustomOperator, kept: Mapping[str, object], _: Setting, inputs: Inputs, random: np.random.Generator
) -> Iterator[Finding]:
    """Neither calls nor other instances change an attribute: a later call with other shapes would rely on it."""
    attempt(operator.forward, *inputs)
    for name, value in kept.items():
        if repr(now := getattr(operator, name, None)) != repr(value):
            found = f"its {name} is changed from {value!r} to {now!r} by a call or by another instance"
            yield failed(found, "set attributes in __init__ alone, and in the instance", case=name)


_MOST_SANITIZED = 12


def _sanitizers(
    operator: CompiledOperator,
    samples: Sequence[Inputs],
    setting: Setting,
    inputs: Inputs,
    random: np.random.Generator,
) -> Iterator[Finding]:
    """Builds of C++ with the compiler's sanitizers, on the examples and on other shapes that the reference accepts."""
    if setting.subject.backend is None or not isinstance(setting.subject.to_native(np.zeros(1)), np.ndarray):
        yield not_tried("it is tried on numpy")
        return
    given = [*samples]
    if setting.compared:
        others = (each for _, each in other_shapes(inputs, setting.subject.fixed, random))
        larger = (each for _, each in more_sizes(inputs, setting.subject.fixed, random))
        accepted = (each for each in (*others, *larger) if setting.judged(each, "").status in ("passed", "failed"))
        given += islice(accepted, _MOST_SANITIZED)
    for sanitizer in SANITIZERS:
        try:
            report = run_sanitized(operator, [[each for each in one if each is not None] for one in given], sanitizer)
        except (MissingError, UnsupportedError) as error:
            yield not_tried(f"{error.asked}: {error.found}")
            continue
        yield failed(f"{sanitizer.name}: {report}") if report else passed(sanitizer.name)


def _variants(operator: CustomOperator, backend: OperatorBackend, reference: str) -> list[Variant]:
    """The operator with other attributes; its reference is itself if it has none, or a function without attributes."""
    known = operator.has_reference and not reference

    def make(attributes: dict[str, Attribute]) -> tuple[HostOperator, Oracle]:
        made = type(operator)(**attributes)
        subject = _subject(made, backend)
        return subject, Oracle(independent(made) if known else subject)

    return [Variant(title, partial(make, each), unless, each) for title, each, unless in other_attributes(operator)]


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
        return independent(operator) if operator.has_reference else None
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
    with tempfile.TemporaryDirectory(prefix="levelbench-") as folder:
        place = Path(folder) / "deviation.npy"
        # No cap on an accelerator, whose drivers map far more memory than they use.
        cap = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if request.device == "cpu" else None
        report, _ = report_isolated(
            f"{__name__}:check_request",
            {"operator": asdict(request), "deviation": str(place)},
            request.operator,
            request.framework,
            tell=tell,
            timeout_s=timeout_s,
            memory_bytes=cap,
        )
        deviation = np.load(place, allow_pickle=False) if place.exists() else None
    if not report.failed and request.device == "cpu" and not request.reference:
        tell("from outside")
        report = replace(report, findings=(*report.findings, *_from_outside(request)))
    return report, deviation


def _from_outside(request: Request) -> Iterator[Finding]:
    """Whether it is grossly wrong where no code of the file can change the comparison, on its first example."""
    said: list[JsonLine] = []
    with tempfile.TemporaryDirectory(prefix="levelbench-") as folder:
        asked = {"operator": asdict(request), "folder": folder}
        run_isolated(f"{__name__}:first_example", asked, said.append, timeout_s=300.0)
        # What prevents that is in the report already.
        if not said:
            return
        inputs = read_arrays(Path(folder), said[0]["inputs"])
        problem = msgspec.convert(said[0]["problem"], Problem)
        found = call_from_outside(Path(request.path), problem, request.framework, inputs, math.inf)
    if found.status == "wrong" and found.grossly_wrong:
        yield failed(found.reason, "leave what checks it alone", probe="from outside")


def first_example(request: JsonLine, say: Say) -> None:
    """Write the first example of an operator whose results can be compared, and say what it is."""
    asked = Request(**request["operator"])
    classes = {each.name: each for each in load_file(asked.path)}
    operator = classes[asked.operator](**asked.attributes)
    if not operator.has_reference or not getattr(operator, "deterministic", True):
        return
    inputs, node = _samples(operator, asked)[0], node_of(operator)
    problem = Problem(node.op_type, node.op_type, node.inputs, node.outputs, (), node.opset, {}, node.domain)
    problem = msgspec.structs.replace(problem, attributes=dict(node.attributes))
    say({"problem": msgspec.to_builtins(problem), "inputs": write_arrays(Path(request["folder"]), "example", inputs)})


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
