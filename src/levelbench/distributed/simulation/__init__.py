"""A simulator of distributed training: schemes run unchanged on ranks whose clock is virtual.

Everything but time is real. A rank's scheme is the code that runs on a cluster, and its arrays hold
numbers; what its forward pass and its messages take is what the models of ``networks`` and ``model`` say.
"""
