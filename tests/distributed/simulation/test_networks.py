import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.distributed.simulation.networks import Interconnect, torus_path
from levelbench.errors import UsageError

ALPHA, BETA = 2e-6, 1e9
MEGABYTE = 1e6 / BETA


def network(**settings):
    return Interconnect(ALPHA, BETA, **settings)


@pytest.mark.parametrize("topology", ["flat", "ring", "tree", "fat-tree", "torus"])
def test_a_round_between_neighbours_is_not_contended(topology):
    assert network(topology=topology).round_s(1, 1e6, 64) == pytest.approx(ALPHA + MEGABYTE)


@pytest.mark.parametrize(("distance", "load"), [(1, 1), (4, 4), (32, 32), (60, 4)])
def test_on_a_ring_a_cable_carries_as_many_messages_as_they_go_far(distance, load):
    ring = network(topology="ring", hop_s=1e-6)
    assert ring.round_s(distance, 1e6, 64) == pytest.approx(ALPHA + (load - 1) * 1e-6 + load * MEGABYTE)


def test_on_a_torus_a_step_in_the_second_dimension_is_one_hop():
    torus = network(topology="torus", dimensions=(8, 8), hop_s=1e-6)
    assert torus.round_s(8, 1e6, 64) == pytest.approx(ALPHA + MEGABYTE)
    assert torus.round_s(16, 1e6, 64) == pytest.approx(ALPHA + 1e-6 + 2 * MEGABYTE)


def test_in_a_tree_all_messages_of_a_subtree_share_its_link():
    tree = network(topology="tree", radix=4)
    assert tree.round_s(16, 1e6, 64, exchange=True) == pytest.approx(ALPHA + 16 * MEGABYTE)
    assert tree.round_s(2, 1e6, 64, exchange=True) == pytest.approx(ALPHA + MEGABYTE)


@pytest.mark.parametrize(("taper", "load"), [(1.0, 1), (2.0, 4)])
def test_a_fat_tree_is_only_contended_where_it_tapers(taper, load):
    tree = network(topology="fat-tree", radix=4, taper=taper)
    assert tree.round_s(16, 1e6, 64, exchange=True) == pytest.approx(ALPHA + load * MEGABYTE)


def test_switches_further_up_cost_latency():
    tree = network(topology="fat-tree", radix=4, hop_s=1e-6)
    assert tree.round_s(1, 0, 64, exchange=True) == pytest.approx(ALPHA)
    assert tree.round_s(16, 0, 64, exchange=True) == pytest.approx(ALPHA + 4e-6)
    assert tree.route(0, 63, 64).latency_s == pytest.approx(ALPHA + 4e-6)


def test_ranks_of_a_host_share_its_link():
    hosts = network(per_host=8, local_alpha_s=1e-7, local_beta=1e11)
    assert hosts.round_s(8, 1e6, 64) == pytest.approx(ALPHA + 8 * MEGABYTE)
    assert hosts.round_s(1, 1e6, 64) == pytest.approx(ALPHA + MEGABYTE)
    assert hosts.round_s(4, 1e6, 64, exchange=True) == pytest.approx(1e-7 + 1e6 / 1e11)
    assert hosts.round_s(1, 1e6, 8) == pytest.approx(1e-7 + 1e6 / 1e11)


def test_a_torus_of_another_size_is_refused():
    with pytest.raises(UsageError, match="there are 64 hosts"):
        network(topology="torus", dimensions=(3, 5)).round_s(1, 1, 64)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=3), st.data())
def test_a_way_through_a_torus_joins_its_ends_by_the_fewest_cables(dimensions, data):
    size = 1
    for each in dimensions:
        size *= each
    start, end = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, size - 1))
    steps = torus_path(tuple(dimensions), start, end)
    here, fewest, stride = start, 0, 1
    for before, after in steps:
        assert before == here
        here = after
    for length in dimensions:
        apart = abs(start // stride % length - end // stride % length)
        fewest, stride = fewest + min(apart, length - apart), stride * length
    assert here == end
    assert len(steps) == fewest
