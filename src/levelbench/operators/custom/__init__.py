"""Custom operators: written once, as a Python class or one C++ file, and run by every framework, forward and backward.

The names here are what an operator's file imports; how a framework runs it is in that framework's own ``custom``.
"""

from __future__ import annotations

from levelbench.operators.custom.definition import Cost, CustomOperator, Spec, find, namespace, register
from levelbench.operators.custom.library import compiled, load_file

__all__ = ["Cost", "CustomOperator", "Spec", "compiled", "find", "load_file", "namespace", "register"]
