"""How fast the reference is: levelbench's NumPy operators beside ``onnx.reference`` and PyTorch.

    python benchmarks/reference.py [--seconds 20] [--operator-seconds 3] [--match Conv] [--json reference.json]

First a ResNet-20 forward, batch 32: NumPy's model is to be at least three times as fast as ``onnx.reference``. Then
each operator of common networks: NumPy's time over PyTorch's, forward, and forward with gradients. An operator that
takes more than four times as long is marked. Two sides of a row take turns A B B A; ratios are medians over pairs of
neighbours, with their exact order-statistic intervals. Answers (gradients too) are compared before they are timed.

PyTorch uses its threads in every operator, NumPy only in matrix products: OMP_NUM_THREADS=1 compares one core with one.
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
from levelbench.measure.clocks import Clock
from levelbench.measure.sampling import sample_interleaved
from levelbench.measure.stopping import Budget, FixedCount
from levelbench.operators.contract import OperatorBackend
from levelbench.operators.frameworks import load_framework
from levelbench.operators.node import operator_node, structural
from operator_overhead import paired, with_interval
from ratios import clock_of
from resnet20 import in_torch, resnet20

BATCH, LEAST_SPEED_UP, MOST_SLOWER = 32, 3.0, 4.0


@dataclass(frozen=True)
class Case:
    """An operator of the zoo: inputs are shapes (standard normal, float32), arrays as they are, or left out."""

    op_type: str
    inputs: Sequence[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("y",)
    note: str = ""

    @property
    def title(self) -> str:
        """``Conv 8x64x56x56 64x64x3x3``, with the note that tells it from its neighbours."""
        shapes = " ".join("x".join(map(str, each)) for each in self.inputs if isinstance(each, tuple))
        return f"{self.op_type} {shapes}{f' ({self.note})' if self.note else ''}"

    def node(self):
        """The ONNX node; an input that is left out has no name."""
        names = [f"x{at}" if each is not None else "" for at, each in enumerate(self.inputs)]
        return operator_node(self.op_type, names, self.outputs, **self.attributes)

    def arrays(self) -> list[Any]:
        """The inputs on the host: variances and what a root is taken of are positive, recurrent weights small.

        Large recurrent weights make a sequence chaotic, and then no two correct sides agree.
        """
        generator = np.random.default_rng(0)
        made = list(self.inputs)
        for at, shape in enumerate(self.inputs):
            if isinstance(shape, tuple):
                made[at] = generator.standard_normal(shape).astype(np.float32)
        if self.op_type == "BatchNormalization":
            made[4] = np.abs(made[4]) + np.float32(0.5)
        elif self.op_type == "Sqrt":
            made[0] = np.abs(made[0]) + np.float32(0.5)
        elif self.op_type in {"LSTM", "GRU", "RNN"}:
            made[1:] = [each * np.float32(0.1) for each in made[1:]]
        return made


def integers(*values: int):
    return np.array(values, np.int64)


def indices(high: int, *shape: int):
    return np.random.default_rng(1).integers(0, high, shape)


def conv(batch, channels, out, size, kernel, stride=1, group=1, note=""):
    pads = [kernel // 2] * 4
    attributes = {"pads": pads, "strides": [stride, stride], "group": group}
    return Case(
        "Conv", ((batch, channels, size, size), (out, channels // group, kernel, kernel)), attributes, note=note
    )


IMAGE, TOKENS, HEADS = (32, 64, 28, 28), (16, 128, 256), (8, 8, 128, 32)
POOL = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
RECURRENT = ((32, 16, 64), (1, 512, 64), (1, 512, 128), (1, 1024))
CASES = (
    conv(32, 16, 16, 32, 3, note="3x3"),
    conv(8, 64, 64, 28, 3, note="3x3"),
    conv(8, 64, 128, 28, 3, 2, note="3x3, stride 2"),
    conv(8, 128, 128, 28, 1, note="1x1"),
    conv(8, 64, 64, 28, 3, group=64, note="depthwise"),
    conv(4, 3, 64, 112, 7, 2, note="7x7, stride 2"),
    Case("ConvTranspose", ((8, 32, 14, 14), (32, 32, 3, 3)), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    Case("MaxPool", (IMAGE,), POOL),
    Case("MaxPool", (IMAGE,), {"kernel_shape": [2, 2], "strides": [2, 2]}, note="2x2"),
    Case("AveragePool", (IMAGE,), POOL),
    Case("GlobalAveragePool", (IMAGE,)),
    Case("BatchNormalization", (IMAGE, *[(64,)] * 4), note="inference"),
    Case("InstanceNormalization", (IMAGE, (64,), (64,))),
    Case("GroupNormalization", (IMAGE, (64,), (64,)), {"num_groups": 8}),
    Case("LayerNormalization", (TOKENS, (256,), (256,))),
    Case("Gemm", ((128, 512), (512, 512), (512,)), {"transB": 1}),
    Case("MatMul", ((512, 512), (512, 512))),
    Case("MatMul", ((64, 64, 64), (64, 64, 64)), note="batched"),
    Case("Einsum", ((8, 64, 64), (8, 64, 64)), {"equation": "bij,bjk->bik"}),
    Case("Softmax", (TOKENS,)),
    Case("LogSoftmax", (TOKENS,)),
    *(Case(each, (TOKENS,)) for each in ("Relu", "LeakyRelu", "Elu", "Gelu", "Sigmoid", "Tanh", "Erf", "Exp", "Sqrt")),
    *(Case(each, (TOKENS, TOKENS)) for each in ("Add", "Mul", "Div")),
    Case("Add", (IMAGE, (1, 64, 1, 1)), note="broadcast"),
    Case("Where", (np.random.default_rng(2).random(TOKENS) < 0.5, TOKENS, TOKENS)),
    Case("Attention", (HEADS, HEADS, HEADS), {"opset": 23}),
    Case("LSTM", RECURRENT, {"hidden_size": 128}, ("y", "h", "c")),
    Case("GRU", ((32, 16, 64), (1, 384, 64), (1, 384, 128), (1, 768)), {"hidden_size": 128}, ("y", "h")),
    Case("RNN", ((32, 16, 64), (1, 128, 64), (1, 128, 128), (1, 256)), {"hidden_size": 128}, ("y", "h")),
    Case("Gather", ((5000, 128), indices(5000, 32, 64)), note="embedding"),
    Case("Resize", ((8, 32, 28, 28), None, np.array([1, 1, 2, 2], np.float32)), {"mode": "nearest"}, note="nearest x2"),
    Case("Resize", ((8, 32, 28, 28), None, np.array([1, 1, 2, 2], np.float32)), {"mode": "linear"}, note="linear x2"),
    Case("Concat", (IMAGE, IMAGE), {"axis": 1}),
    Case("Split", (IMAGE, integers(32, 32)), {"axis": 1}, ("a", "b")),
    Case("Slice", (IMAGE, integers(0, 0), integers(28, 28), integers(2, 3), integers(2, 2)), note="every other pixel"),
    Case("Pad", (IMAGE, integers(0, 0, 1, 1, 0, 0, 1, 1))),
    Case("Reshape", (IMAGE, integers(32, -1))),
    Case("Transpose", (IMAGE,), {"perm": [0, 2, 3, 1]}),
    *(Case(each, (TOKENS, integers(-1))) for each in ("ReduceMean", "ReduceSum", "ReduceMax")),
    Case("SoftmaxCrossEntropyLoss", ((512, 1000), indices(1000, 512)), {"reduction": "mean"}),
)


def side_by_side(
    a: Callable[[], object], b: Callable[[], object], seconds: float, title: str, clock: Clock
) -> dict[str, Any]:
    """Medians of both, and the ratio b / a with its interval."""
    first, second = sample_interleaved(a, b, until=Budget(seconds=seconds) & FixedCount(16), clock=clock)
    ratio = with_interval(paired(first.values, second.values)[0], title)
    return {"a_s": float(np.median(first.values)), "b_s": float(np.median(second.values)), "ratio": ratio}


def agree(what: str, found: Any, expected: Any) -> None:
    """Stop if two sides do not compute the same: their times would say nothing."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    if found.shape != expected.shape or not np.allclose(found, expected, rtol=1e-2, atol=1e-3):
        raise SystemExit(f"{what}: the two sides do not compute the same")


def whole_network(seconds: float, clock: Clock) -> list[dict[str, Any]]:
    """ResNet-20 forward on each side that is here, pair by pair."""
    import torch
    from onnx.reference import ReferenceEvaluator

    model = resnet20()
    images = np.random.default_rng(0).standard_normal((BATCH, 3, 32, 32)).astype(np.float32)
    evaluator, by_hand, tensor = ReferenceEvaluator(model), in_torch(model), torch.from_numpy(images)
    sides: dict[str, Callable[[], Any]] = {
        "onnx.reference": lambda: evaluator.run(None, {"images": images})[0],
        "torch by hand": lambda: by_hand(tensor).numpy(),
    }
    for name in ("numpy", "torch", "jax", "onnxruntime"):
        if load_framework(name).lacks() is None:
            try:
                sides[f"levelbench {name}"] = model_on(load_framework(name).open(), model, images)
            except UnsupportedError as error:
                print(f"levelbench {name} is left out: {error}")
    expected = by_hand(tensor).numpy()
    for name, side in sides.items():
        agree(f"ResNet-20 on {name}", side(), expected)
    print(f"\nResNet-20 forward, batch {BATCH}\n")
    print("| a | b | a, ms | b, ms | b / a | 95 % |\n|---|---|---|---|---|---|")
    rows = []
    ours = "levelbench numpy"
    pairs = [(ours, "onnx.reference"), (ours, "torch by hand"), ("torch by hand", "onnx.reference")]
    pairs += [("torch by hand", name) for name in sides if name.startswith("levelbench") and name != ours]
    for a, b in pairs:
        found = {"a": a, "b": b, **side_by_side(sides[a], sides[b], seconds, f"{a} and {b}", clock)}
        ratio = found["ratio"]
        print(
            f"| {a} | {b} | {found['a_s'] * 1e3:.2f} | {found['b_s'] * 1e3:.2f} | {ratio['median']:.2f} "
            f"| {ratio['low']:.2f} to {ratio['high']:.2f} |",
            flush=True,
        )
        rows.append(found)
    reached = rows[0]["ratio"]["low"] >= LEAST_SPEED_UP
    print(f"\nAt least {LEAST_SPEED_UP:g} times as fast as onnx.reference: {'met' if reached else 'not met'}.")
    return rows


def model_on(backend: OperatorBackend, model, images) -> Callable[[], Any]:
    """The model on a backend as a call that answers on the host."""
    function, inputs = backend.model(model), [backend.array(images)]
    return lambda: backend.host(function(inputs)[0])


class Side:
    """One framework's calls of a case: forward, and forward with gradients of all outputs."""

    def __init__(self, framework: str, case: Case) -> None:
        self._backend = load_framework(framework).open()
        node, host = case.node(), case.arrays()
        fixed = structural(node)
        self._operator = self._backend.operator(node)
        self._inputs = [
            each if each is None or at in fixed else self._backend.array(each) for at, each in enumerate(host)
        ]
        generator = np.random.default_rng(3)
        shapes = [self._backend.host(each).shape for each in self.forward()]
        self._gradients = [self._backend.array(generator.standard_normal(shape).astype(np.float32)) for shape in shapes]

    def forward(self) -> Any:
        """The outputs, computed."""
        outputs = self._operator.forward(*self._inputs)
        self._backend.finish(outputs)
        return outputs

    def both(self) -> Any:
        """The gradients, computed, after a forward of their own."""
        _, pullback = self._operator.vjp(*self._inputs)
        gradients = pullback(*self._gradients)
        self._backend.finish([each for each in gradients if each is not None])
        return gradients

    def host(self, arrays: Sequence[Any]) -> list[Any]:
        """The arrays on the host; those that are none are left out."""
        return [self._backend.host(each) for each in arrays if each is not None]


def measure(case: Case, seconds: float, clock: Clock) -> dict[str, Any]:
    """NumPy's time over PyTorch's, forward and with gradients; what is not supported is said in their place."""
    sides = [Side(name, case) for name in ("torch", "numpy")]
    row: dict[str, Any] = {"case": case.title}
    for what in ("forward", "both"):
        try:
            answers = [side.host(getattr(side, what)()) for side in sides]
        except UnsupportedError as error:
            row[what] = {"unsupported": str(error)}
            continue
        for found, expected in zip(*answers, strict=True):
            agree(f"{case.title}, {what}", found, expected)
        row[what] = side_by_side(*(getattr(side, what) for side in sides), seconds, case.title, clock)
    return row


def cells(found: dict[str, Any]) -> str:
    if "unsupported" in found:
        return " - | - | unsupported |"
    ratio, mark = found["ratio"], " **slow**" if found["ratio"]["low"] > MOST_SLOWER else ""
    interval = f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"
    return f" {found['a_s'] * 1e3:.3f} | {found['b_s'] * 1e3:.3f} | {interval}{mark} |"


def operators(seconds: float, match: str, clock: Clock) -> list[dict[str, Any]]:
    """Each case of the zoo whose title contains ``match``."""
    print("\nNumPy beside PyTorch, operator by operator: forward, then forward with gradients\n")
    print("| operator | torch, ms | numpy, ms | numpy / torch | torch, ms | numpy, ms | numpy / torch |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for case in (each for each in CASES if match in each.title):
        try:
            rows.append(measure(case, seconds, clock))
        except UnsupportedError as error:
            print(f"| {case.title} | unsupported: {error} |", flush=True)
            continue
        print(f"| {case.title} |{cells(rows[-1]['forward'])}{cells(rows[-1]['both'])}", flush=True)
    slow = [
        f"{row['case']} ({what})"
        for row in rows
        for what in ("forward", "both")
        if row[what].get("ratio", {"low": 0.0})["low"] > MOST_SLOWER
    ]
    print(f"\nMore than {MOST_SLOWER:g} times as long as PyTorch: {'; '.join(slow) or 'none'}.")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="for each pair of the whole network; 0 leaves it out"
    )
    parser.add_argument("--operator-seconds", type=float, default=3.0, help="for each operator, forward and gradients")
    parser.add_argument("--match", default="", help="only operators whose title contains this")
    parser.add_argument("--processor", action="store_true", help="in processor time, on a busy machine")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    clock = clock_of(options.processor)
    network = whole_network(options.seconds, clock) if options.seconds else []
    rows = operators(options.operator_seconds, options.match, clock)
    if options.json:
        with tempfile.NamedTemporaryFile("w", dir=options.json.parent, delete=False) as file:
            file.write(json.dumps({"resnet20": network, "operators": rows}, indent=2))
        Path(file.name).replace(options.json)


if __name__ == "__main__":
    main()
