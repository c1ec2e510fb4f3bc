"""How to measure: clocks, timelines, sampling, statistics, verdicts, meters, ceilings, environment.

Knows nothing of deep learning and imports numpy at most.
"""
