"""Custom operators: written once as a Python class or a C++ file, and run by every framework, forward and backward.

An operator's file imports the names from here. How a framework runs it is in that framework's own ``custom`` module.
"""

from __future__ import annotations

from levelbench.operators.custom.definition import Cost, CustomOperator, Spec, find, namespace, register
from levelbench.operators.custom.library import compiled, load_file

__all__ = ["Cost", "CustomOperator", "Spec", "compiled", "find", "load_file", "namespace", "register"]
