"""Level 1, networks: ONNX models as data, and the contract by which frameworks execute them."""

from typing import TYPE_CHECKING

from levelbench.networks.builder import Builder, GraphBuilder
from levelbench.networks.executor import Array, Backend, Executor, OperatorTime
from levelbench.networks.network import Network
from levelbench.networks.values import Draw, Parameter, Value

if TYPE_CHECKING:
    from levelbench.networks.files import load, save

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


def __getattr__(name: str) -> object:
    """Import the reader of files only when needed, because runs build their networks."""
    if name in ("load", "save"):
        from levelbench.networks import files

        return getattr(files, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
