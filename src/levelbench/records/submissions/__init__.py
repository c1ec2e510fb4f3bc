"""Entries of a leaderboard: what one is, how it is made from records, read safely, signed, checked, scored and ranked.

The one idea: a submission is untrusted. It is read under limits, its figures are computed again from its curves, and
what it cannot prove is said beside it.
"""
