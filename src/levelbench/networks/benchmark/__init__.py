"""Measures networks on a framework: start-up, compilation, latency, memory, operators, and whether the result is right.

What is measured is checked first, and a time of a wrong result is shown as wrong.
"""
