"""DeepBench's problems (Baidu Research, Apache-2.0; see README.md next to the CSV files) as ONNX nodes.

The sizes are data, which a dozen lines per kind turn into nodes. Values are scaled so that results are about 1 for any
size of problem, which keeps half precisions and recurrent states in range.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from levelbench.errors import UnknownNameError, UsageError
from levelbench.operators.node import DEFAULT_OPSET
from levelbench.records.benchmarks import Problem, Tensor

_FOLDER = Path(__file__).parent / "deepbench"
SUBSETS = ("training", "inference-server", "inference-device")
_FILES = {"gemm": "gemm", "conv": "conv", "rnn": "rnn", "sparse": "sparse_gemm"}
_GATES = {"vanilla": ("RNN", 1), "gru": ("GRU", 3), "lstm": ("LSTM", 4)}

Row = Mapping[str, str]


@dataclass(frozen=True)
class AllReduceMessage:
    """A message of ``elements`` float32 values, summed over all ranks ``repeats`` times."""

    elements: int
    repeats: int


def suite_names() -> list[str]:
    """The suites that ``load_suite`` knows, and the all-reduce suite."""
    return [*(f"deepbench-{kind}" for kind in _FILES), "deepbench-all-reduce"]


def subsets_of(name: str) -> list[str]:
    """The subsets of a suite in DeepBench, which has no sparse problems for training."""
    return [each for each in SUBSETS if _file(_kind(name), each).exists()]


def load_suite(name: str, subset: str | None = None, dtype: str = "float32") -> list[Problem]:
    """The problems of a suite in DeepBench's order, by default of its first subset (training if it exists).

    Raises ``UnknownNameError`` for an unknown suite or subset, and ``UsageError`` for the all-reduce suite, which
    contains messages and not operators.
    """
    kind = _kind(name)
    known = subsets_of(name)
    chosen = subset or known[0]
    if chosen not in known:
        raise UnknownNameError(f"subset of {name}", chosen, known)
    return [_MAKERS[kind](row, dtype) for row in _rows(_file(kind, chosen))]


def all_reduce_messages() -> list[AllReduceMessage]:
    """DeepBench's all-reduce messages."""
    return [AllReduceMessage(int(row["elements"]), int(row["repeats"])) for row in _rows(_FOLDER / "all_reduce.csv")]


def _kind(name: str) -> str:
    if name not in suite_names():
        raise UnknownNameError("suite", name, suite_names())
    kind = name.removeprefix("deepbench-")
    if kind not in _FILES:
        raise UsageError(
            f"suite {name!r}", "it lists all-reduce messages, which are not a single operator", "use another suite"
        )
    return kind


def _file(kind: str, subset: str) -> Path:
    return _FOLDER / f"{_FILES[kind]}_{subset.replace('-', '_')}.csv"


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _gemm(row: Row, dtype: str) -> Problem:
    m, n, k = (int(row[each]) for each in "mnk")
    left, right = (row[f"{each}_transposed"] == "true" for each in "ab")
    return Problem(
        name=f"{m}x{n}x{k} {'NT'[left]}{'NT'[right]}",
        operator="Gemm",
        inputs=("A", "B"),
        outputs=("Y",),
        tensors=(
            Tensor("A", (k, m) if left else (m, k), dtype, scale=1 / math.sqrt(k)),
            Tensor("B", (n, k) if right else (k, n), dtype),
        ),
        opset=DEFAULT_OPSET,
        attributes={"transA": int(left), "transB": int(right)},
    )


def _conv(row: Row, dtype: str) -> Problem:
    size = {name: int(value) for name, value in row.items()}
    height, width = size["filter_h"], size["filter_w"]
    across, up = size["pad_w"], size["pad_h"]
    stride = [size["stride_h"], size["stride_w"]]
    name = (
        f"{size['w']}x{size['h']}x{size['c']} n{size['n']} k{size['k']} f{width}x{height} p{across}x{up} "
        f"s{stride[1]}x{stride[0]}"
    )
    fan_in = size["c"] * height * width
    return Problem(
        name=name,
        operator="Conv",
        inputs=("X", "W"),
        outputs=("Y",),
        tensors=(
            Tensor("X", (size["n"], size["c"], size["h"], size["w"]), dtype),
            Tensor("W", (size["k"], size["c"], height, width), dtype, scale=1 / math.sqrt(fan_in)),
        ),
        opset=DEFAULT_OPSET,
        attributes={"pads": [up, across, up, across], "strides": stride},
    )


def _rnn(row: Row, dtype: str) -> Problem:
    hidden, batch, steps = (int(row[each]) for each in ("hidden", "batch", "timesteps"))
    operator, gates = _GATES[row["cell"]]
    scale = 1 / math.sqrt(hidden)
    weights = (Tensor(name, (1, gates * hidden, hidden), dtype, scale=scale) for name in "WR")
    return Problem(
        name=f"{row['cell']} h{hidden} b{batch} t{steps}",
        operator=operator,
        inputs=("X", "W", "R"),
        outputs=("Y",),
        tensors=(Tensor("X", (steps, batch, hidden), dtype), *weights),
        opset=DEFAULT_OPSET,
        attributes={"hidden_size": hidden} | ({"linear_before_reset": 1} if operator == "GRU" else {}),
    )


def _sparse(row: Row, dtype: str) -> Problem:
    m, n, k = (int(row[f"c{at}"]) for at in range(3))
    zeros = float(row["c5"])
    density = round(1 - zeros, 6)
    left = Tensor("A", (m, k), dtype, fill="sparse", scale=1 / math.sqrt(k * density), density=density)
    return Problem(
        name=f"{m}x{n}x{k} {zeros:.0%} zeros",
        operator="MatMul",
        inputs=("A", "B"),
        outputs=("Y",),
        tensors=(left, Tensor("B", (k, n), dtype)),
        opset=DEFAULT_OPSET,
        note="a sparse problem executed dense: zeros are multiplied and counted like other values",
    )


_MAKERS: dict[str, Callable[[Row, str], Problem]] = {"gemm": _gemm, "conv": _conv, "rnn": _rnn, "sparse": _sparse}
