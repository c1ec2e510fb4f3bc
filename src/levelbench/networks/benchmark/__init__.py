"""Measures networks on a framework: start-up, compilation, latency, memory, operators, and whether the result is right.

Results are checked before they are measured, and the time of a wrong result is shown as wrong.
"""
