"""What tests of simulated ranks share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from levelbench.distributed.communicators.meeting import LocalCommunicator
from levelbench.distributed.simulation.cluster import Cluster
from levelbench.distributed.simulation.networks import Interconnect

T = TypeVar("T")


def run_simulated(
    size: int,
    work: Callable[[LocalCommunicator], T],
    network: Interconnect,
    *,
    scale: float = 1.0,
    algorithm: str = "auto",
) -> list[T]:
    """Run ``work`` on ``size`` simulated ranks; the results in rank order.

    The first exception of a rank ends the run; a deadlock is a ``CommunicationError`` that says where each rank waits.
    """
    cluster = Cluster(size, network, scale=scale, algorithm=algorithm)
    return cluster.scheduler.run([partial(work, LocalCommunicator(cluster, rank)) for rank in range(size)])
