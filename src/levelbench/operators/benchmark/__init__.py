"""Measures problems on a framework: time, operations, bytes, and the deviation from the reference.

Results are checked before they are measured, and the time of a wrong result is shown as wrong.
"""
