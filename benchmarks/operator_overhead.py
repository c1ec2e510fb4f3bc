"""What levelbench adds to an operator: the framework's own call and ours, measured side by side.

    python benchmarks/operator_overhead.py [--seconds 5] [--frameworks torch,jax] [--json operator_overhead.json]

Each case is one kernel on one framework. One side is the call that a user of the framework writes (``torch.add``, a
function under ``jax.jit``, a session of ONNX Runtime, a function of NumPy), on the same arrays as the other, which is
``Operator.forward``. Both end with the same wait for the device and are warmed up alike. They take turns A B B A; the
figures are medians over pairs of neighbours, with their exact order-statistic intervals: the ratio, which is to stay
within 1 % for kernels of 100 microseconds and up, and the difference, which is to stay under a microsecond below that.
A kernel's answers are compared before it is timed: two calls that do not compute the same are not compared.

NumPy has no convolution and no softmax of its own, so there are no cases of these on it. ONNX Runtime's call is
``run_with_ortvaluevector``, the cheapest that its package has (``run_with_ort_values`` takes some 45 microseconds
more), on the operator's own session: two sessions have two arenas, and where these lie in memory makes up to 2 % of an
element-wise kernel, as a comparison of two equal sessions shows.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from levelbench.errors import UnsupportedError
from levelbench.measure.sampling import sample_interleaved
from levelbench.measure.statistics import median_interval
from levelbench.measure.stopping import Budget, FixedCount
from levelbench.operators.frameworks import load_framework
from levelbench.operators.node import operator_node

FRAMEWORKS = ("numpy", "torch", "jax", "onnxruntime")
LARGE_S, MOST_RATIO, MOST_DIFFERENCE_S = 100e-6, 1.01, 1e-6


@dataclass(frozen=True)
class Case:
    """An operator on inputs of given shapes, standard normal, float32."""

    op_type: str
    shapes: tuple[tuple[int, ...], ...]
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """``MatMul 64x64 64x64``."""
        return f"{self.op_type} {' '.join('x'.join(map(str, shape)) for shape in self.shapes)}"

    def node(self):
        """The ONNX node."""
        return operator_node(self.op_type, [f"x{at}" for at in range(len(self.shapes))], ["y"], **self.attributes)


def square(n):
    return (n, n), (n, n)


def conv(batch, channels, size):
    return Case("Conv", ((batch, channels, size, size), (channels, channels, 3, 3)), {"pads": [1, 1, 1, 1]})


CASES = (
    Case("Add", square(4)),
    Case("Add", square(1024)),
    Case("Relu", ((64,),)),
    Case("Relu", ((2048, 1024),)),
    Case("MatMul", square(8)),
    Case("MatMul", square(512)),
    Case("Gemm", ((4, 8), (8, 8), (8,)), {"transB": 1}),
    Case("Gemm", ((256, 512), (512, 512), (512,)), {"transB": 1}),
    conv(1, 4, 8),
    conv(8, 32, 28),
    Case("Softmax", ((4, 10),)),
    Case("Softmax", ((512, 1000),)),
    Case("LayerNormalization", ((4, 16), (16,), (16,))),
    Case("LayerNormalization", ((1024, 768), (768,), (768,))),
)


def numpy_native(case, *_):
    """NumPy's own function; ``None`` where it has none."""
    return {
        "Add": np.add,
        "MatMul": np.matmul,
        "Relu": lambda x: np.maximum(x, 0),
        "Gemm": lambda x, w, b: x @ w.T + b,
    }.get(case.op_type)


def torch_native(case, *_):
    """The function of torch, under no_grad by the absence of parameters."""
    import torch
    from torch.nn import functional

    return {
        "Add": torch.add,
        "MatMul": torch.matmul,
        "Relu": torch.relu,
        "Gemm": functional.linear,
        "Conv": lambda x, w: functional.conv2d(x, w, None, 1, 1),
        "Softmax": lambda x: torch.softmax(x, -1),
        "LayerNormalization": lambda x, scale, bias: functional.layer_norm(x, scale.shape, scale, bias, 1e-5),
    }[case.op_type]


def jax_native(case, *_):
    """A function under ``jax.jit``; ``None`` for the layer norm, of which JAX has no one function."""
    import jax
    from jax import numpy as jnp

    functions = {
        "Add": jnp.add,
        "MatMul": jnp.matmul,
        "Relu": lambda x: jnp.maximum(x, 0),
        "Gemm": lambda x, w, b: x @ w.T + b,
        "Conv": lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), [(1, 1), (1, 1)]),
        "Softmax": lambda x: jax.nn.softmax(x, -1),
    }
    return jax.jit(functions[case.op_type]) if case.op_type in functions else None


def onnxruntime_native(_, operator, inputs):
    """The session of the operator itself, called by hand on values in place."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    session = operator.session(*inputs)
    names, outputs = [each.name for each in session.get_inputs()], [each.name for each in session.get_outputs()]
    options, devices = onnxruntime.RunOptions(), [state.OrtDevice(0, 0, 0)]

    def call(*values):
        feeds, found = state.OrtValueVector(), state.OrtValueVector()
        for each in values:
            feeds.push_back(each._ortvalue)
        session.run_with_ortvaluevector(options, names, feeds, outputs, found, devices)
        return onnxruntime.OrtValue(found[0])

    return call


NATIVE = {"numpy": numpy_native, "torch": torch_native, "jax": jax_native, "onnxruntime": onnxruntime_native}


def paired(a: Sequence[float], b: Sequence[float]) -> tuple[Any, Any]:
    """Ratios b / a and differences b - a of neighbours in turns A B B A, so that drift inside a turn cancels."""
    n = min(len(a), len(b)) // 2 * 2
    left, right = np.asarray(a[:n]), np.asarray(b[:n])
    ratios = np.exp((np.log(right) - np.log(left)).reshape(-1, 2).mean(axis=1))
    return ratios, (right - left).reshape(-1, 2).mean(axis=1)


def with_interval(values, what: str) -> dict[str, float]:
    """The median of ``values`` and its 95 % interval."""
    interval = median_interval(values)
    if interval is None:
        raise SystemExit(f"only {len(values)} pairs of {what}: give more --seconds")
    return {"median": float(np.median(values)), "low": interval.low, "high": interval.high}


def verdict(native_s: float, ratio: dict[str, float], difference: dict[str, float]) -> str:
    """``met`` or ``missed`` if the interval says so, else ``open``."""
    found, most = (ratio, MOST_RATIO) if native_s >= LARGE_S else (difference, MOST_DIFFERENCE_S)
    return "met" if found["high"] <= most else "missed" if found["low"] > most else "open"


def measure(framework: str, case: Case, seconds: float) -> dict[str, Any] | None:
    """Both calls of a case, side by side; ``None`` where the framework has no such call of its own."""
    backend = load_framework(framework).open()
    generator = np.random.default_rng(0)
    inputs = [backend.array(generator.standard_normal(shape).astype(np.float32)) for shape in case.shapes]
    operator = backend.operator(case.node())
    native: Callable[..., Any] | None = NATIVE[framework](case, operator, inputs)
    if native is None:
        return None
    forward, finish = operator.forward, backend.finish

    def theirs() -> None:
        finish((native(*inputs),))

    def ours() -> None:
        finish(forward(*inputs))

    expected, found = backend.host(native(*inputs)), backend.host(forward(*inputs)[0])
    if not np.allclose(found, expected, rtol=1e-3, atol=1e-4):
        raise SystemExit(f"{case.title} on {framework}: the two calls do not compute the same")
    a, b = sample_interleaved(theirs, ours, until=Budget(seconds=seconds) & FixedCount(16))
    title = f"{case.title} on {framework}"
    ratios, differences = paired(a.values, b.values)
    ratio, difference = with_interval(ratios, title), with_interval(differences, title)
    native_s = float(np.median(a.values))
    return {
        "framework": framework,
        "case": case.title,
        "native_s": native_s,
        "levelbench_s": float(np.median(b.values)),
        "ratio": ratio,
        "difference_s": difference,
        "pairs": len(ratios),
        "verdict": verdict(native_s, ratio, difference),
    }


def row(found: dict[str, Any]) -> str:
    ratio, difference = found["ratio"], {name: value * 1e6 for name, value in found["difference_s"].items()}
    return (
        f"| {found['framework']} | {found['case']} | {found['native_s'] * 1e6:.2f} "
        f"| {found['levelbench_s'] * 1e6:.2f} | {ratio['median']:.4f} | {ratio['low']:.4f} to {ratio['high']:.4f} "
        f"| {difference['median']:+.2f} | {difference['low']:+.2f} to {difference['high']:+.2f} "
        f"| {found['pairs']} | {found['verdict']} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each case")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS), help="which, with commas between them")
    parser.add_argument("--match", default="", help="only cases whose title contains this")
    options = parser.parse_args()
    results = []
    print("| framework | kernel | native, us | ours, us | ratio | 95 % | difference, us | 95 % | pairs | goal |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for framework in options.frameworks.split(","):
        if lacking := load_framework(framework).lacks():
            print(f"{framework} is left out: {lacking}")
            continue
        for case in (each for each in CASES if options.match in each.title):
            try:
                found = measure(framework, case, options.seconds)
            except UnsupportedError as error:
                print(f"| {framework} | {case.title} | left out: {error} |", flush=True)
                continue
            if found is not None:
                results.append(found)
                print(row(found), flush=True)
    counts = {name: sum(each["verdict"] == name for each in results) for name in ("met", "missed", "open")}
    print(f"\nThe goal is met by {counts['met']}, missed by {counts['missed']}, open for {counts['open']} of them.")
    if options.json:
        with tempfile.NamedTemporaryFile("w", dir=options.json.parent, delete=False) as file:
            file.write(json.dumps({"cases": results}, indent=2))
        Path(file.name).replace(options.json)


if __name__ == "__main__":
    main()
