"""How long an operator takes on a piece of the batch: measured, or from a simple model where nobody measured.

The one idea: only ratios matter to a plan. The model knows the three things that make pieces slower: a call costs a
fixed time, weights are read once a piece, and cutting and joining move bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from levelbench.networks.executor import Backend
from levelbench.networks.network import Network
from levelbench.networks.transforms.constants import FoldConstants
from levelbench.networks.transforms.transform import Arrays
from levelbench.operators.cost import Signature, cost_of
from levelbench.operators.node import OperatorNode

__all__ = ["Machine", "TimeTable", "measure_times"]


@dataclass(frozen=True)
class Machine:
    """A machine as three numbers; the defaults are of the order of one core of a server of 2023."""

    call_s: float = 10e-6
    flops_per_s: float = 5e10
    bytes_per_s: float = 1e10

    def operator_s(
        self, node: OperatorNode, inputs: Sequence[Signature | None], outputs: Sequence[Signature | None]
    ) -> float:
        """One call: its fixed cost and the longer of computing and moving."""
        cost = cost_of(node, inputs, outputs)
        return self.call_s + max((cost.flops or 0.0) / self.flops_per_s, (cost.bytes or 0.0) / self.bytes_per_s)

    def copy_s(self, moved: float, calls: int) -> float:
        """Cutting or joining: ``moved`` bytes are read and written."""
        return calls * self.call_s + 2 * moved / self.bytes_per_s


class TimeTable:
    """Measured seconds by the name of a node's first output and the number of samples."""

    def __init__(self, seconds: Mapping[str, Mapping[int, float]]) -> None:
        self._points = {
            name: (np.array(sorted(each), float), np.array([each[size] for size in sorted(each)]))
            for name, each in seconds.items()
            if each
        }

    def seconds(self, output: str, samples: int) -> float | None:
        """Between two sizes the line through them, beyond the last in proportion; ``None`` for one not measured."""
        points = self._points.get(output)
        if points is None:
            return None
        sizes, times = points
        if samples > sizes[-1]:
            return float(times[-1] * samples / sizes[-1])
        return float(np.interp(samples, sizes, times))


def measure_times(
    backend: Backend,
    network: Network,
    sizes: Sequence[int],
    parameters: Arrays | None = None,
    *,
    repeats: int = 5,
    mode: str | None = None,
    open_sizes: Mapping[str, int] | None = None,
) -> TimeTable:
    """The median time of each operator at each number of samples, one inference at a time.

    ``UnsupportedError`` where the backend cannot tell its operators apart in that mode.
    """
    found: dict[str, dict[int, float]] = {}
    for size in sorted(set(sizes)):
        bound = FoldConstants(batch=size, sizes=open_sizes or {}).apply(network, parameters)
        executor = backend.executor(bound.network, bound.parameters, mode=mode, trains=False)
        given = _native(backend, bound.network, size)
        executor.operator_times(*given, repeats=1)
        for each in executor.operator_times(*given, repeats=repeats):
            found.setdefault(each.output, {})[size] = float(np.median(each.times_s))
    return TimeTable(found)


def _native(backend: Backend, network: Network, batch: int) -> list[Any]:
    made = network.make_inputs(batch)
    return [backend.array(made[each.name]) for each in network.inputs if network.loss == "" or each.name in made]
