"""Dead nodes: takes out nodes and arrays that no output needs.

The one idea: walk back from the outputs (and from the values that replace buffers); what a subgraph reads is needed.
"""

from __future__ import annotations

from levelbench.networks.network import Network
from levelbench.networks.order import outer_reads
from levelbench.networks.transforms.graph import Graph
from levelbench.networks.transforms.transform import Arrays, Transform, Transformed

__all__ = ["DeadNodes"]


class DeadNodes(Transform):
    """Takes out nodes, parameters and constants that no output needs. Inputs of the network stay, read or not."""

    name = "dead-nodes"
    summary = "takes out nodes and arrays that no output needs"

    def transform(self, network: Network, parameters: Arrays | None) -> Transformed:
        """The network without them."""
        graph = Graph(network, parameters)
        needed = graph.kept()
        alive = []
        for node in reversed(graph.nodes):
            if any(name in needed for name in node.output if name):
                needed.update(outer_reads(node))
                alive.append(node)
        dead = len(graph.nodes) - len(alive)
        graph.nodes = alive[::-1]
        gone = graph.drop_unread()
        changed = []
        if dead:
            changed.append(f"took out {dead} of {len(network.model.graph.node)} nodes")
        if gone:
            changed.append(f"took out {len(gone)} arrays that nothing reads: {', '.join(gone[:5])}")
        new, values = graph.finish()
        return Transformed(new, values, self.name, tuple(changed))
