"""Level 1, networks: a network as data, and the contract by which a framework executes it."""

from levelbench.networks.executor import Array, Backend, Executor
from levelbench.networks.network import Builder, Network, Node, Parameter

__all__ = ["Array", "Backend", "Builder", "Executor", "Network", "Node", "Parameter"]
