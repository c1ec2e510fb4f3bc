"""Analyses of records beyond a single score: stability, thresholds, composition, scaling, attribution.

Imports only ``records`` and ``measure``. Every analysis is a function of values, never of live objects.
"""
