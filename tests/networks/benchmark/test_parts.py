"""Costs of what was timed: a node's own, and of a fused operator those of the nodes that lead to its output."""

from dataclasses import replace

from levelbench.networks import OperatorTime
from levelbench.networks.benchmark.cases import Known
from levelbench.networks.benchmark.measuring import costs_of
from levelbench.networks.zoo import cnn
from levelbench.operators.cost import Cost
from levelbench.records.networks import NetworkFacts

NETWORK = cnn((1, 8, 8), 2, 4, 2)
# Conv, Relu, MaxPool, Conv, Relu, MaxPool, Flatten, Gemm, Relu, Gemm
COSTS = {at: Cost(10.0**at, 100.0) for at in range(10)}
VALUES = dict.fromkeys((name for node in NETWORK.nodes for name in node.outputs), 30)
KNOWN = Known(NetworkFacts(), COSTS, VALUES)
UNKNOWN = Cost(None, None)


def timed(index, output=""):
    return OperatorTime(index, "title", output, (1.0,))


def output_of(at):
    return NETWORK.nodes[at].outputs[0]


def test_a_node_has_its_own_cost():
    assert costs_of([timed(3)], NETWORK, KNOWN) == [COSTS[3]]


def test_a_fused_operator_has_the_operations_of_its_nodes_and_not_the_bytes_that_pass_between_them():
    found = costs_of([timed(-1, output_of(1)), timed(2), timed(-1, output_of(4))], NETWORK, KNOWN)
    # What Conv writes and Relu reads, 30 bytes each, never moves.
    assert found == [Cost(11.0, 140.0), COSTS[2], Cost(11_000.0, 140.0)]


def test_a_fused_operator_with_a_part_of_unknown_cost_has_none():
    known = replace(KNOWN, nodes={**COSTS, 1: UNKNOWN})
    assert costs_of([timed(-1, output_of(1))], NETWORK, known) == [UNKNOWN]


def test_where_a_size_between_fused_nodes_is_unknown_so_are_the_bytes():
    known = replace(KNOWN, value_bytes={})
    assert costs_of([timed(-1, output_of(1))], NETWORK, known) == [Cost(11.0, None)]


def test_what_is_no_value_of_the_network_has_no_cost():
    assert costs_of([timed(-1, "a copy")], NETWORK, KNOWN) == [UNKNOWN]
    assert costs_of([timed(-1, "layer")], None, Known(NetworkFacts(), {}, {})) == [UNKNOWN]
