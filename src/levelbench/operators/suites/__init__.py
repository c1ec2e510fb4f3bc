"""Problem suites by name, and problems made of words: what ``levelbench operator`` measures.

A problem is data (a node, and how its inputs are made), so that a record holds all of it and another process, or
another year, can make the same one.
"""

from __future__ import annotations

from levelbench.operators.suites.deepbench import AllReduceMessage, all_reduce_messages, load_suite, suite_names
from levelbench.operators.suites.single import dtype_of, make_inputs, node_of, tensor_bytes

__all__ = ["AllReduceMessage", "all_reduce_messages", "dtype_of", "load_suite", "make_inputs", "node_of", "suite_names"]
__all__ += ["tensor_bytes"]
