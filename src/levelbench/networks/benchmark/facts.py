"""What is known of a network before it is measured: its sizes and its cost, of the whole and of each operator."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from levelbench.errors import LevelbenchError
from levelbench.networks.benchmark.cases import Made
from levelbench.networks.cost import network_cost
from levelbench.networks.network import Network
from levelbench.networks.shapes import infer_shapes
from levelbench.networks.values import Value, dtype_of
from levelbench.operators.cost import Cost
from levelbench.records.networks import NetworkFacts, NetworkSpecification

_TRAINING = 3
"""A training step counts as three forwards, the usual convention: a product has two gradients, each another product."""


@dataclass(frozen=True)
class Known:
    """The facts for the record, the cost of each node by its place in the network, and each value's bytes by name."""

    facts: NetworkFacts
    nodes: Mapping[int, Cost]
    value_bytes: Mapping[str, int]


def known_of(made: Made, specification: NetworkSpecification, framework: dict[str, Any], mode: str) -> Known:
    """The facts of what is measured; what nobody can tell (of a native model, of a shape that is open) is ``None``."""
    network, facts = made.transformed, NetworkFacts(framework=framework, mode=mode, transforms=made.said)
    if network is None:
        return Known(facts, {}, {})
    dtype = dtype_of_network(network)
    sizes = [math.prod(each.shape) * dtype_of(each.dtype).itemsize for each in network.parameters]
    common = {"parameters": network.parameter_count(), "parameter_bytes": sum(sizes), "nodes": len(network.nodes)}
    try:
        cost = network_cost(network, specification.case.batch, specification.case.sizes)
    except LevelbenchError:
        return Known(structs.replace(facts, dtype=dtype, **common), {}, {})
    backward = specification.direction == "backward"
    times = _TRAINING if backward else 1
    facts = structs.replace(
        facts,
        dtype=dtype,
        flops=cost.flops * times,
        multiply_adds=cost.multiply_adds * times,
        # What a training step must move at least depends on what is kept and what is computed again.
        bytes=None if backward else cost.bytes,
        activation_bytes=cost.training_activation_bytes if backward else cost.activation_bytes,
        unknown=dict(cost.unknown),
        **common,
    )
    sized = infer_shapes(network, {**specification.case.sizes, "batch": specification.case.batch})
    return Known(facts, {each.index: each.cost for each in cost.nodes}, _bytes(sized.values()))


def _bytes(values: Iterable[Value]) -> dict[str, int]:
    """The bytes of those values of which every size is known."""
    known = [each for each in values if each.dtype not in ("", "str", "object") and each.shape is not None]
    return {
        each.name: math.prod(size for size in each.shape if isinstance(size, int)) * dtype_of(each.dtype).itemsize
        for each in known
        if each.shape is not None and all(isinstance(size, int) for size in each.shape)
    }


def dtype_of_network(network: Network) -> str:
    """The dtype of most of its parameters, ``int8`` and ``uint8`` included; without any, that of its first input."""
    counts: Counter[str] = Counter()
    for each in network.parameters:
        counts[each.dtype] += each.size
    held = {each.name for each in network.parameters}
    for each in network.model.graph.initializer:
        if each.name not in held and each.data_type in (2, 3):
            counts["int8"] += math.prod(each.dims)
    if counts:
        return counts.most_common(1)[0][0]
    return next((each.dtype for each in network.inputs if each.dtype.startswith(("float", "bfloat"))), "float32")
