import numpy as np
import pytest

from levelbench.distributed.communicators.wrapping import Delays
from levelbench.distributed.schemes.gossip import Gossip
from levelbench.distributed.schemes.neighbours import Neighbours
from levelbench.distributed.schemes.parameter_server import AsynchronousParameterServer, StaleSynchronous
from levelbench.distributed.schemes.periodic import DiLoCo, LocalSGD, ModelAveraging
from levelbench.training import Momentum

LOCKSTEP = [
    ModelAveraging(),
    LocalSGD(period=2),
    DiLoCo(period=2),
    Neighbours(),
    Neighbours(graph="one-peer", mix="after"),
    Gossip(ahead=0),
]
FREE = [
    Gossip(),
    Gossip(peers="random", ahead=1),
    AsynchronousParameterServer(),
    AsynchronousParameterServer(servers=2),
    StaleSynchronous(stale=1),
    StaleSynchronous(servers=2, stale=0),
]


def late(seed):
    return Delays(seed, 0.0002, slow={seed % 5: 0.0002})


@pytest.mark.parametrize("scheme", FREE, ids=repr)
def test_nobody_waits_for_ever_whatever_is_late(play, scheme):
    for seed in range(8):
        ends = play(scheme, 4, 4, delays=late(seed), meet=3, optimizer=Momentum(0.1, 0.5))
        assert all(np.isfinite(end.parameters["w"]).all() for end in ends)


@pytest.mark.parametrize("scheme", LOCKSTEP, ids=repr)
def test_what_is_late_changes_nothing_where_all_go_in_lockstep(play, scheme):
    punctual = play(scheme, 4, 4, meet=3)
    for seed in range(8):
        ends = play(scheme, 4, 4, delays=late(seed), meet=3)
        for end, other in zip(ends, punctual, strict=True):
            assert (end.parameters["w"] == other.parameters["w"]).all()
            assert (end.averaged["w"] == other.averaged["w"]).all()
