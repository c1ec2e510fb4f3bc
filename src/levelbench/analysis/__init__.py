"""What records say beyond one score: stability, thresholds, composition, scaling, attribution.

Sees only ``records`` and ``measure``; every analysis is a function of values and never of live objects.
"""
