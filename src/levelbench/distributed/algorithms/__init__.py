"""Collective operations made of messages alone: the same algorithms over threads, sockets, MPI and simulated links."""

from levelbench.distributed.algorithms.algorithmic import FIRST_TAG, Algorithmic

__all__ = ["FIRST_TAG", "Algorithmic"]
