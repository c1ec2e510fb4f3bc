"""Level 1, networks: an ONNX model as data, and the contract by which a framework executes it."""

from levelbench.networks.builder import Builder, GraphBuilder
from levelbench.networks.executor import Array, Backend, Executor, OperatorTime
from levelbench.networks.files import load, save
from levelbench.networks.network import Network
from levelbench.networks.values import Draw, Parameter, Value

__all__ = [
    "Array",
    "Backend",
    "Builder",
    "Draw",
    "Executor",
    "GraphBuilder",
    "Network",
    "OperatorTime",
    "Parameter",
    "Value",
    "load",
    "save",
]
