"""A witness beside ONNX Runtime's profiler, from which the times of its operators come: our own clock.

The one idea: each node is run as a session of its own, finished before the next, with a clock around it. Neither its
graph nor its profiler is in that, so where both give the same shares, both are right. A single session costs some ten
microseconds a call, which small operators show.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any

from levelbench.errors import UnsupportedError
from levelbench.measure.clocks import HOST
from levelbench.networks.executor import Executor
from levelbench.networks.lowering import Lowered
from levelbench.operators.contract import OperatorBackend

__all__ = ["profile"]


def profile(
    backend: OperatorBackend, executor: Executor, inputs: Sequence[Any], repeats: int
) -> tuple[str, dict[str, float]]:
    """The method, and the seconds of each type of operator in an inference: the median of ``repeats``.

    Raises ``UnsupportedError`` for an optimised session, whose fused operators are not those of the network.
    """
    network = executor.network
    if network is None or executor.mode != "unoptimised":
        raise UnsupportedError(
            f"sessions of single operators beside mode {executor.mode!r}",
            "its fused operators are not those of the network",
            "use mode unoptimised",
        )
    lowered = Lowered(network, backend)
    titles = {step.index: step.node.title for step in lowered.steps}
    live = {**executor.parameters, **executor.buffers}
    arrays = [live[name] for name in lowered.arrays]
    turns: list[dict[str, float]] = []
    for _ in range(repeats + 1):
        turns.append(defaultdict(float))
        for index, nanoseconds in lowered.run_timed(list(inputs), arrays, backend.clock(HOST), backend.finish):
            turns[-1][titles[index]] += nanoseconds * 1e-9
    # The first turn makes the sessions.
    found = {name: median(turn[name] for turn in turns[1:]) for name in turns[0]}
    return "sessions of single operators", found
