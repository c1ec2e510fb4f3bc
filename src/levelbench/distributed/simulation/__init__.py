"""A simulator of distributed training: schemes run unchanged on ranks with a virtual clock.

Only time is simulated. A rank runs the same scheme code as on a cluster, on arrays that hold numbers; how long its
forward pass and its messages take comes from the models in ``networks`` and ``model``.
"""
