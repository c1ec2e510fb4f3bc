import os
import signal
import subprocess
import sys

import pytest

from levelbench.distributed.launching import namespaces
from levelbench.distributed.launching.namespaces import Hosts, Link, discipline
from levelbench.errors import CommunicationError, MissingError, UsageError

pytestmark = [pytest.mark.sampled(3), pytest.mark.usefixtures("namespaces_here")]


def test_a_link_is_parsed_in_units_of_tc():
    link = Link("2.5gbit", "200us", "0.5%")
    assert (link.bits_per_s, link.delay_s, link.loss_share) == (2.5e9, pytest.approx(2e-4), 0.005)


def test_an_empty_link_has_no_limit():
    assert (Link().bits_per_s, Link().delay_s, Link().loss_share) == (None, 0, 0)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("100mbyte",), "its unit must be one of bit, kbit, mbit, gbit"),
        (("fast",), "its unit must be"),
        (("0mbit",), "nothing would get through"),
        (("", "5"), "its unit must be one of us, ms, s"),
        (("10",), "its unit must be"),
        (("", "", "1"), "its unit must be one of %"),
        (("", "", "101%"), "at most 100%"),
    ],
)
def test_an_impossible_link_is_refused(words, found):
    with pytest.raises(UsageError, match=found):
        Link(*words)


@pytest.mark.parametrize(
    ("link", "words"),
    [
        (Link(), ""),
        (Link("1mbit"), "tbf rate 1000000bit burst 3200 limit 262144"),
        (Link("1gbit"), "tbf rate 1000000000bit burst 125000 limit 25000000"),
        (Link(delay="5ms"), "netem limit 100000 delay 5000us loss 0%"),
        (Link("100mbit", "1ms", "2%"), "netem limit 100000 delay 1000us loss 2% rate 100000000bit"),
    ],
)
def test_a_link_becomes_a_queueing_discipline(link, words):
    assert discipline(link) == words


METHODS = ["kernel", "relay"]


def there():
    """The namespaces of this process."""
    folder = namespaces.FOLDER
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return [name for name in names if (namespaces.owned_by(name) or (0,))[0] == os.getpid()]


@pytest.mark.parametrize("method", METHODS)
def test_transfers_between_hosts_arrive_intact(talk, method):
    with Hosts(2, method=method) as hosts:
        assert talk(hosts, 0, 1, 1 << 20)[2]


@pytest.mark.parametrize("method", METHODS)
def test_a_link_has_about_its_rate_and_not_more(talk, method):
    with Hosts(2, Link("20mbit"), method) as hosts:
        _, seconds, whole = talk(hosts, 0, 1, 1 << 20)
    rate = 8 * (1 << 20) / seconds
    assert whole
    # Frames have 5 % overhead, and a burst of 1 ms passes at once. A busy machine may be slower.
    assert 10e6 < rate < 20.5e6
    assert hosts.link(0).method == {"kernel": "tbf", "relay": "relay+tbf"}[method]


def test_a_slow_link_is_slow_in_both_directions(talk):
    with Hosts(3) as hosts:
        hosts.set_link(2, Link("10mbit"))
        to_slow = talk(hosts, 0, 2, 1 << 19)[1]
        among_others = talk(hosts, 0, 1, 1 << 19)[1]
    assert to_slow > 0.4 > among_others


def test_a_round_trip_takes_both_hosts_delays(talk):
    with Hosts(2, Link(delay="4ms")) as hosts:
        hosts.set_link(1, Link(delay="10ms"))
        trip, _, _ = talk(hosts, 0, 1, 1)
    assert 14e-3 <= trip < 26e-3


@pytest.mark.slow
def test_lost_packets_delay_but_do_not_corrupt(talk):
    with Hosts(2, Link(delay="2ms")) as hosts:
        clean_s = min(talk(hosts, 0, 1, 1 << 19)[1] for _ in range(2))
        hosts.set_link(0, Link(delay="2ms", loss="30%"))
        _, lossy_s, whole = talk(hosts, 0, 1, 1 << 19)
    assert whole
    assert lossy_s > clean_s


@pytest.mark.parametrize("method", METHODS)
def test_a_disconnected_host_is_detected_and_can_be_reconnected(method):
    with Hosts(3, method=method) as hosts:
        assert hosts.unreachable() == []
        hosts.down(1)
        assert hosts.unreachable(0.3) == [1]
        hosts.up(1)
        assert hosts.unreachable() == []


def test_hosts_see_one_another_and_nothing_else():
    with Hosts(1) as hosts:
        words = hosts.command(0, ["ip", "-o", "link", "show"])
        devices = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
        routes = subprocess.run(hosts.command(0, ["ip", "route"]), capture_output=True, text=True, check=True).stdout
    assert sorted(line.split(": ")[1].split("@")[0] for line in devices) == ["eth0", "lo"]
    assert routes.split()[0] == "10.77.0.0/24"
    assert "default" not in routes


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_left_at_the_end(method):
    with Hosts(2, method=method):
        assert len(there()) == {"kernel": 3, "relay": 2}[method]
    assert there() == []


def test_nothing_is_left_if_the_link_is_impossible(monkeypatch):
    monkeypatch.setattr(namespaces, "tc", lambda *words, must=True: False)
    with pytest.raises(UsageError, match="no netem"), Hosts(2, Link(delay="1ms"), "kernel"):
        pass
    assert there() == []


def test_nothing_is_left_if_the_switch_fails(monkeypatch):
    making = namespaces.ip

    def no_bridge(name, *lines):
        making(name, *("no such word" if "bridge" in line else line for line in lines))

    monkeypatch.setattr(namespaces, "ip", no_bridge)
    with pytest.raises(CommunicationError, match=r"no such word .*it printed: Object"), Hosts(1):
        pass
    assert there() == []


OWNER = """
import signal
from levelbench.distributed.launching.namespaces import Hosts
with Hosts(2, method="relay") as hosts:
    print(*hosts.names, flush=True)
    signal.pause()
"""


def test_what_a_killed_owner_left_is_removed_by_the_next():
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        names = owner.stdout.readline().split()
        # Not while it is alive.
        assert not set(names) & set(namespaces.remove_stale())
        owner.send_signal(signal.SIGKILL)
    with Hosts(1):
        left = {path.name for path in namespaces.FOLDER.iterdir()}
    assert len(names) == 2
    assert not left & set(names)


INTERRUPTED = """
from levelbench.distributed.launching import namespaces
from levelbench.distributed.launching.namespaces import Hosts
deleting = namespaces.delete
def interrupted(name):
    namespaces.delete = deleting
    raise KeyboardInterrupt
try:
    with Hosts(2) as hosts:
        print(*hosts.names, flush=True)
        namespaces.delete = interrupted
        raise KeyboardInterrupt
except KeyboardInterrupt:
    pass
"""


def test_nothing_is_left_after_a_second_interrupt_during_cleanup():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=True)
    assert len(done.stdout.split()) == 2
    assert not {path.name for path in namespaces.FOLDER.iterdir()} & set(done.stdout.split())


@pytest.mark.parametrize("count", [0, 201])
def test_an_impossible_number_of_hosts_is_refused(count):
    with pytest.raises(UsageError, match="1 to 200"):
        Hosts(count)


def test_an_unknown_host_is_refused():
    with Hosts(1) as hosts, pytest.raises(UsageError, match="hosts 0 to 0"):
        hosts.down(1)


def test_hosts_cannot_be_changed_before_they_exist():
    with pytest.raises(UsageError, match="do not exist yet"):
        Hosts(1).set_link(0, Link())


def test_hosts_need_root(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(MissingError, match="need root"), Hosts(1):
        pass
