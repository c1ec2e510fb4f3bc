import pytest

from levelbench.distributed.simulation.networks import Interconnect, bandwidth, duration_s, parse
from levelbench.errors import UnknownNameError, UsageError


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
def test_a_time_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match="unit"):
        duration_s(text, "alpha")


def test_a_network_is_what_its_line_says():
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
def test_what_cannot_be_meant_is_refused_with_the_reason(text, says):
    with pytest.raises(UsageError, match=says):
        parse(text)


def test_an_unknown_topology_names_the_nearest():
    with pytest.raises(UnknownNameError, match="fat-tree"):
        parse("alpha=1us,beta=1GB/s,topology=fattree")


def test_an_unknown_setting_names_the_nearest():
    with pytest.raises(UnknownNameError, match="alpha"):
        parse("alfa=1us,beta=1GB/s")
