import numpy as np
import pytest
from tests.distributed.simulation.simulated import run_simulated

from levelbench.distributed.communicators.algorithmic import Algorithmic
from levelbench.distributed.simulation.networks import ALL_REDUCE, Interconnect, collective_s, parse
from levelbench.errors import UnknownNameError

pytest.importorskip("greenlet")

ALPHA, BETA = 5e-6, 1e9
FLAT = Interconnect(ALPHA, BETA)


def messages_s(size, network, work):
    """When the last rank is done with what is made of messages alone."""

    def rank(communicator):
        work(communicator)
        return communicator.meeting.now_s

    return max(run_simulated(size, rank, network, scale=1e3))


@pytest.mark.parametrize("size", [2, 4, 8, 16])
@pytest.mark.parametrize("algorithm", ["ring", "recursive-doubling", "halving-doubling"])
def test_the_closed_form_of_all_reduce_is_exact(size, algorithm):
    array = np.ones(128 * size, np.float32)
    took = messages_s(size, FLAT, lambda each: Algorithmic(each, algorithm).all_reduce(array.copy()))
    assert took == pytest.approx(collective_s(FLAT, "all_reduce", array.nbytes * 1e3, size, algorithm), rel=1e-9)


@pytest.mark.parametrize("size", [2, 3, 7, 8])
def test_a_ring_follows_hockneys_model(size):
    nbytes = 7e6
    expected = 2 * (size - 1) * (ALPHA + nbytes / size / BETA)
    assert collective_s(FLAT, "all_reduce", nbytes, size, "ring") == pytest.approx(expected)


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("operation", ["reduce_scatter", "all_gather"])
def test_the_closed_form_of_half_a_ring_is_exact(size, operation):
    array = np.ones(64 * size, np.float32)
    took = messages_s(size, FLAT, lambda each: getattr(Algorithmic(each, "ring"), operation)(array.copy()))
    assert took == pytest.approx(collective_s(FLAT, operation, array.nbytes * 1e3, size), rel=1e-9)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_the_closed_form_of_a_broadcast_tree_is_exact(size):
    array = np.ones(1000, np.float32)
    took = messages_s(size, FLAT, lambda each: Algorithmic(each).broadcast(array.copy()))
    assert took == pytest.approx(collective_s(FLAT, "broadcast", array.nbytes * 1e3, size), rel=1e-9)


@pytest.mark.parametrize(
    "settings",
    [
        {"topology": "ring"},
        {"topology": "torus"},
        {"topology": "tree", "radix": 4},
        {"topology": "fat-tree", "radix": 4, "taper": 2.0},
    ],
    ids=lambda each: each["topology"],
)
@pytest.mark.parametrize(
    ("algorithm", "most"), [("ring", 1.001), ("recursive-doubling", 1.1), ("halving-doubling", 1.7)]
)
def test_on_shared_links_closed_forms_are_right_to_first_order(settings, algorithm, most):
    network = Interconnect(ALPHA, BETA, **settings)
    array = np.ones(2048, np.float32)
    took = messages_s(16, network, lambda each: Algorithmic(each, algorithm).all_reduce(array.copy()))
    assert 0.9 < took / collective_s(network, "all_reduce", array.nbytes * 1e3, 16, algorithm) < most


def test_on_hosts_the_sum_of_rounds_bounds_the_messages_from_above():
    network = Interconnect(ALPHA, BETA, per_host=4, local_alpha_s=1e-6, local_beta=5e10)
    array = np.ones(1600, np.float32)
    took = messages_s(16, network, lambda each: Algorithmic(each, "ring").all_reduce(array.copy()))
    bound = collective_s(network, "all_reduce", array.nbytes * 1e3, 16, "ring")
    assert 0.7 * bound < took <= bound * (1 + 1e-9)


def test_hierarchical_sends_as_much_between_hosts_as_a_ring_of_hosts():
    network = Interconnect(0.0, BETA, per_host=8, local_beta=1e30)
    expected = 2 * 3 / 4 * 100e6 / BETA
    assert collective_s(network, "all_reduce", 100e6, 32, "hierarchical") == pytest.approx(expected)


@pytest.mark.parametrize("nbytes", [4, 1e4, 1e9])
@pytest.mark.parametrize("size", [3, 64])
def test_auto_is_the_fastest(nbytes, size):
    times = [collective_s(FLAT, "all_reduce", nbytes, size, each) for each in ALL_REDUCE[1:]]
    assert collective_s(FLAT, "all_reduce", nbytes, size) == min(times)


def test_small_arrays_need_few_rounds_and_large_ones_few_bytes():
    small, large = (
        [collective_s(FLAT, "all_reduce", nbytes, 1024, each) for each in ("recursive-doubling", "ring")]
        for nbytes in (8, 1e9)
    )
    assert small[0] < small[1]
    assert large[1] < large[0]


@pytest.mark.parametrize("operation", ["all_reduce", "broadcast", "barrier", "all_to_all", "gather", "scatter"])
def test_a_single_rank_does_not_wait(operation):
    assert collective_s(FLAT, operation, 1e6, 1) == 0.0


@pytest.mark.parametrize("operation", ["gather", "scatter"])
def test_a_root_receives_or_sends_everything_but_its_own_part(operation):
    assert collective_s(FLAT, operation, 1e6, 8) == pytest.approx(3 * ALPHA + 7e6 / BETA)


def test_all_to_all_takes_one_message_for_each_distance():
    assert collective_s(FLAT, "all_to_all", 1e6, 5) == pytest.approx(4 * (ALPHA + 1e6 / BETA))


def test_an_unknown_algorithm_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match="ring"):
        collective_s(FLAT, "all_reduce", 1.0, 4, "rings")


@pytest.mark.parametrize(
    ("network", "meeting"),
    [("flat", 1), ("fat-tree", 1), ("ring", 6), ("torus", 6), ("tree", 6), ("tree,radix=64", 1)],
)
def test_levels_of_a_pipelined_tree_compete_for_shared_inner_links(network, meeting):
    parsed = parse(f"alpha=0us,beta=1GB/s,topology={network}")
    seconds = collective_s(parsed, "all_reduce", 1e6, 64, "double-tree")
    assert seconds == pytest.approx(2 * meeting * 1e6 / 1e9)
