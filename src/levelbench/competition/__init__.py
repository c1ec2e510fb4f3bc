"""The competition: entries made from records, rulesets, checks, ranking, exchange with other systems, and the site.

Submissions are untrusted: they are read under limits, their figures are recomputed from their curves, and whatever they
cannot prove is shown next to them.
"""
