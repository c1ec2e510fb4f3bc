"""The competition: entries made from records, rulesets, checks, ranking, exchange with other systems, and the site.

A submission is untrusted. It is read under limits, its figures are computed again from its curves, and what it cannot
prove is said beside it.
"""
