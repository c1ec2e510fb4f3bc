"""Times of a network's operators, and the framework's own profiler as a witness.

Our clock stands around each operator, so it is asked of somebody else as well: where the framework has a
profiler, its shares are recorded beside ours, and a reader sees whether both tell the same story.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from levelbench.errors import UnsupportedError
from levelbench.networks.benchmark.facts import Known
from levelbench.networks.benchmark.trial import PreparedCase
from levelbench.networks.executor import OperatorTime
from levelbench.networks.network import Network
from levelbench.operators.cost import Cost
from levelbench.records.networks import NetworkEvent, NetworkSpecification, OperatorSamples, ProfileShares

_FEWEST, _MOST = 5, 50
_BUDGET_SHARE = 0.5


def repeats_for(call_s: float, budget_s: float) -> int:
    """How many instrumented calls half the budget pays for, from 5 to 50."""
    return min(_MOST, max(_FEWEST, int(_BUDGET_SHARE * budget_s / max(call_s, 1e-9))))


def record_operators(
    trial: PreparedCase,
    known: Known,
    call_s: float,
    specification: NetworkSpecification,
    record: Callable[[NetworkEvent], None],
) -> None:
    """Record times of all operators, then the profiler's shares; ``UnsupportedError`` where the mode has no operators.

    ``call_s`` is what a whole call takes, by which the number of repetitions is chosen.
    """
    repeats = repeats_for(call_s, specification.budget_s)
    found = trial.executor.operator_times(*trial.inputs, repeats=repeats)
    for each, cost in zip(found, costs_of(found, trial.made.network, known), strict=True):
        record(OperatorSamples(each.index, each.title, each.output, each.times_s, cost.flops, cost.bytes))
    record(_profiled(trial, repeats))


def costs_of(found: Sequence[OperatorTime], network: Network | None, known: Known) -> list[Cost]:
    """The cost of each: of the node that it is or, where the framework fused nodes, of all that lead to its output.

    A fused operator has its nodes' operations, and their bytes but for those of values that only pass between them.
    """
    covered = {each.index for each in found if each.index >= 0}
    nodes = () if network is None else network.model.graph.node
    makers = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    answer = []
    for each in found:
        if each.index >= 0:
            answer.append(known.nodes.get(each.index, Cost(None, None)))
            continue
        mine = _leading_to(each.output, nodes, makers, covered)
        covered |= mine
        answer.append(_fused(mine, each.output, nodes, known))
    return answer


def _fused(mine: set[int], output: str, nodes: Sequence[Any], known: Known) -> Cost:
    costs = [known.nodes.get(at, Cost(None, None)) for at in mine]
    made = {name for at in mine for name in nodes[at].output if name} - {output}
    # Written by one of them and read by another, and neither in the fused operator.
    passed = [name for at in mine for name in (*nodes[at].output, *nodes[at].input) if name in made]
    flops, moved = [each.flops for each in costs], [each.bytes for each in costs]
    if not mine or None in flops:
        return Cost(None, None)
    whole = sum(each for each in flops if each is not None)
    if None in moved or any(name not in known.value_bytes for name in passed):
        return Cost(whole, None)
    return Cost(
        whole, sum(each for each in moved if each is not None) - sum(known.value_bytes[name] for name in passed)
    )


def _leading_to(output: str, nodes: Sequence[Any], makers: Mapping[str, int], covered: set[int]) -> set[int]:
    """The nodes that compute ``output`` and are in nobody else's time."""
    found: set[int] = set()
    waiting = [output]
    while waiting:
        at = makers.get(waiting.pop(), -1)
        if at >= 0 and at not in covered and at not in found:
            found.add(at)
            waiting.extend(nodes[at].input)
    return found


def _profiled(trial: PreparedCase, repeats: int) -> ProfileShares:
    backend = trial.backend
    try:
        method, seconds = backend.profile(trial.executor, trial.inputs, repeats)
    except UnsupportedError as error:
        return ProfileShares(reason=error.found)
    whole = sum(seconds.values())
    if whole <= 0:
        return ProfileShares(method, reason="the profiler saw no operator")
    return ProfileShares(method, {name: value / whole for name, value in seconds.items()})
