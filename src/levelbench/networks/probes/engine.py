"""Checks an engine in a file: a framework that executes operators and networks, before anything is recorded of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from levelbench import plugins
from levelbench.checks.findings import Finding, Probe, Report, failed, not_tried, noted, passed, run_probes
from levelbench.errors import UnsupportedError
from levelbench.networks import zoo
from levelbench.networks.network import Network
from levelbench.networks.probes.check import compare_network
from levelbench.operators.conformance import NodeTest, collect_cases, run_conformance
from levelbench.operators.contract import Framework, OperatorBackend
from levelbench.operators.frameworks import named_framework, open_framework

_NEEDED, _USEFUL = ("float32", "int64", "bool"), ("float64", "float16", "int32", "uint8")
_SHAPES = ((2, 3), (), (0, 4))


def check_engine(
    path: Path, device: str = "cpu", operators: Collection[str] = (), tell: Callable[[str], None] = lambda _: None
) -> Report:
    """Check the framework that ``path`` defines, with the node tests of ``operators`` (empty: of all).

    Node tests run in another process, and small networks are compared with NumPy. What it refuses with
    ``UnsupportedError`` is noted. Raises what loading the file and opening the framework raise, and
    ``UnknownNameError`` for an operator without a node test.
    """
    framework, cases = named_framework(str(path)), collect_cases(operators)
    backend = framework.open(device)
    probes: list[Probe] = [
        ("well formed", partial(_well_formed, framework, backend, device)),
        ("arrays", partial(_arrays, backend)),
        ("node tests", partial(_node_tests, str(path), device, cases)),
    ]
    for network in (zoo.mlp(64, 32, 10), zoo.build("lenet5")):
        probes.append((f"network {network.name}", partial(_network, framework, backend, network)))
    return run_probes(framework.name, probes, tell)


def _well_formed(framework: Framework, backend: OperatorBackend, device: str) -> Iterator[Finding]:
    """Its name, what it lacks, and what goes into records."""
    if framework.name in plugins.names("framework"):
        yield failed(f"an installed framework is called {framework.name!r}, too", "give it another name")
    if (lacks := framework.lacks(device)) is not None:
        yield failed(f"it opens on {device}, but lacks() says {lacks!r}", "let lacks() return None where it runs")
    try:
        json.dumps(backend.describe())
    except TypeError as error:
        yield failed(f"describe() is not JSON: {error}", "return numbers and texts")
        return
    yield passed(f"{framework.name!r}; modes {', '.join(framework.modes)}; trains: {framework.trains}")


def _arrays(backend: OperatorBackend) -> Iterator[Finding]:
    """Arrays come back from the engine as they were given."""
    kept = []
    for name in (*_NEEDED, *_USEFUL):
        for shape in _SHAPES:
            given = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(name)
            try:
                found = backend.host(backend.array(given.copy()))
            except UnsupportedError as error:
                yield (failed if name in _NEEDED else noted)(f"it refuses {name}: {error.found}", case=name)
                break
            if not isinstance(found, np.ndarray) or (found.dtype, found.shape) != (given.dtype, given.shape):
                what = getattr(found, "dtype", type(found).__name__), getattr(found, "shape", "")
                do = "keep dtype and shape in `array` and `host`"
                yield failed(f"{name}{list(shape)} comes back as {what[0]}{what[1]}", do, case=name)
                break
            if not np.array_equal(found, given):
                yield failed(f"{name}{list(shape)} comes back with other values", "copy the values", case=name)
                break
        else:
            kept.append(name)
    if kept:
        yield passed(f"dtype, shape and values are kept: {', '.join(kept)}")


def _node_tests(name: str, device: str, cases: Sequence[NodeTest]) -> Iterator[Finding]:
    """ONNX's own tests of each operator that the engine does not refuse."""
    found = run_conformance(name, cases, device)
    for operator, counts in found.by_operator.items():
        wrong = next((each for each in found.of("wrong") if each.operator == operator), None)
        if wrong is not None:
            said = f"{counts['wrong']} of {sum(counts.values())} tests are wrong, such as {wrong.name}: {wrong.detail}"
            yield failed(said, "correct the operator, or refuse what it cannot do (UnsupportedError)", case=operator)
    able = [operator for operator, counts in found.by_operator.items() if counts["passed"]]
    if able:
        yield passed(f"{found.total['passed']:,} tests of {len(able)} operators pass")
    elif not found.total["wrong"]:
        yield not_tried("it refuses every operator", "add some: Add, MatMul, Gemm and Relu make a first network")
    if refused := found.total["unsupported"]:
        yield noted(f"{refused:,} tests are refused", f"levelbench conformance --framework {name} -v says why")


def _network(framework: Framework, backend: OperatorBackend, network: Network) -> Iterator[Finding]:
    """Outputs of a small network, and gradients where it trains, against NumPy's."""
    agreement = compare_network(network, {framework.name: backend}, open_framework("numpy"), gradients=framework.trains)
    for each in agreement.backends[0].report(network.name).findings:
        yield Finding("", each.status, each.found, each.do, f"{each.probe} {each.case}".strip())
