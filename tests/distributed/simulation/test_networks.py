import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.distributed.simulation.networks import (
    Interconnect,
    bandwidth,
    collective_s,
    duration_s,
    parse,
    torus_path,
)
from levelbench.errors import UnknownNameError, UsageError

ALPHA, BETA = 2e-6, 1e9
MEGABYTE = 1e6 / BETA


def network(**settings):
    return Interconnect(ALPHA, BETA, **settings)


@pytest.mark.parametrize("topology", ["flat", "ring", "tree", "fat-tree", "torus"])
def test_a_round_between_neighbours_is_not_contended(topology):
    assert network(topology=topology).round_s(1, 1e6, 64) == pytest.approx(ALPHA + MEGABYTE)


@pytest.mark.parametrize(("distance", "load"), [(1, 1), (4, 4), (32, 32), (60, 4)])
def test_on_a_ring_the_load_of_a_cable_is_the_distance(distance, load):
    ring = network(topology="ring", hop_s=1e-6)
    assert ring.round_s(distance, 1e6, 64) == pytest.approx(ALPHA + (load - 1) * 1e-6 + load * MEGABYTE)


def test_a_collective_takes_as_much_longer_as_was_measured_at_its_size():
    network = Interconnect(1e-5, 1e9, measured=(("all_gather", ((1e4, 2.0), (1e6, 3.0))),))
    for nbytes, factor in ((1e3, 2.0), (1e4, 2.0), (1e5, 2.5), (1e6, 3.0), (1e8, 3.0)):
        assert collective_s(network, "all_gather", nbytes, 4) == pytest.approx(factor * 3 * (1e-5 + nbytes / 1e9))
    assert collective_s(network, "all_reduce", 1e6, 4, "ring") == pytest.approx(6 * (1e-5 + 0.25e6 / 1e9))


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
def test_a_path_through_a_torus_is_a_shortest_one(dimensions, data):
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


@pytest.mark.parametrize(
    ("text", "seconds"), [("2us", 2e-6), ("0.5 ms", 5e-4), ("1e3ns", 1e-6), (".25s", 0.25), ("0us", 0.0)]
)
def test_times_have_units(text, seconds):
    assert duration_s(text, "alpha") == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("25GB/s", 25e9), ("100Gbit/s", 12.5e9), ("10Gbps", 1.25e9), ("1GiB/s", 2**30), ("800 Mb/s", 1e8), ("5B/s", 5)],
)
def test_bandwidths_in_bits_and_bytes(text, expected):
    assert bandwidth(text, "beta") == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("text", ["2", "us", "-2us", "2 minutes", "", "2us3", "nanus", "2us\n3"])
def test_an_invalid_time_is_refused(text):
    with pytest.raises(UsageError, match="unit"):
        duration_s(text, "alpha")


def test_a_network_is_parsed_from_its_settings():
    network = parse("alpha=2us, beta=25GB/s, topology=torus, dimensions=8x4, hop=1us")
    assert network == Interconnect(2e-6, 25e9, "torus", hop_s=1e-6, dimensions=(8, 4))


def test_hosts_are_a_flat_network_with_several_ranks_each():
    network = parse("alpha=20us,beta=3GB/s,topology=hosts,per-host=8,local-alpha=2us,local-beta=100GB/s")
    assert (network.topology, network.per_host, network.local_beta) == ("flat", 8, 100e9)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("beta=1GB/s", "no alpha"),
        ("alpha=1us", "no beta"),
        ("alpha=1us,beta=0GB/s", "nothing would ever arrive"),
        ("alpha=1us,beta=1GB/s,beta=2GB/s", "twice"),
        ("alpha=1us,beta", "key=value"),
        ("alpha=1us,beta=1GB/s,taper=2", "has no meaning for topology=flat"),
        ("alpha=1us,beta=1GB/s,topology=fat-tree,taper=0.5", "at least 1"),
        ("alpha=1us,beta=1GB/s,topology=tree,radix=1", "at least two children"),
        ("alpha=1us,beta=1GB/s,topology=hosts", "how many ranks a host has"),
        ("alpha=1us,beta=1GB/s,per-host=4", "cost of a message"),
        ("alpha=1us,beta=1GB/s,local-alpha=1us", "sends nothing within it"),
        ("alpha=1us,beta=1GB/s,topology=torus,dimensions=4x0", "whole number above zero"),
    ],
)
def test_contradictory_settings_are_refused_with_the_reason(text, says):
    with pytest.raises(UsageError, match=says):
        parse(text)


def test_an_unknown_topology_names_the_nearest():
    with pytest.raises(UnknownNameError, match="fat-tree"):
        parse("alpha=1us,beta=1GB/s,topology=fattree")


def test_an_unknown_setting_names_the_nearest():
    with pytest.raises(UnknownNameError, match="alpha"):
        parse("alfa=1us,beta=1GB/s")
