import pytest

from levelbench.distributed.launching.relay import Port, Relay

pytestmark = pytest.mark.usefixtures("namespaces_here")

MS = 1_000_000


def frame(to, size=1000):
    return (b"\0" * 10 + bytes([2, 0x4C, 0x42, 0, 0, to])).ljust(size + 10, b"\0")


def relay(*ports):
    return Relay([Port(tap, **settings) for tap, settings in enumerate(ports)])


def received(switch, until_ns):
    """The receivers of frames by then, frame by frame."""
    return [target for target, _ in switch.due(until_ns)]


def test_a_frame_only_goes_to_its_destination():
    switch = relay({}, {}, {})
    switch.take(0, frame(2), 0)
    assert received(switch, 0) == [2]


def test_a_broadcast_goes_to_all_others():
    switch = relay({}, {}, {})
    switch.take(1, b"\0" * 10 + b"\xff" * 60, 0)
    assert sorted(received(switch, 0)) == [0, 2]


@pytest.mark.parametrize("to", [b"\x02\x4c\x42\x00\x00\x07", b"\x02\x00\x00\x00\x00\x01"])
def test_a_frame_without_a_known_destination_is_dropped(to):
    switch = relay({}, {})
    switch.take(0, b"\0" * 10 + to + b"\0" * 60, 0)
    assert received(switch, 10**12) == []


def test_a_frame_is_delayed_by_its_senders_delay():
    switch = relay({"delay_ns": 5 * MS}, {"delay_ns": 70 * MS})
    switch.take(0, frame(1), 0)
    assert switch.next_ns() == 5 * MS
    assert received(switch, 5 * MS - 1) == []
    assert received(switch, 5 * MS) == [1]


def test_a_receiver_makes_up_for_5_ms_of_relay_delay():
    switch = relay({}, {"bits_per_s": 8e6})
    for _ in range(10):
        switch.take(0, frame(1), 100 * MS)
    # Five frames of 1 ms at once, although none came before; then one per millisecond.
    assert [len(received(switch, 100 * MS - 1)), len(received(switch, 100 * MS))] == [0, 5]
    assert len(received(switch, 103 * MS)) == 3


def test_frames_of_two_senders_share_the_receivers_rate():
    switch = relay({}, {}, {"bits_per_s": 8e6})
    switch.take(0, frame(2), 0)
    switch.take(1, frame(2), 0)
    assert received(switch, MS) == [2]
    assert received(switch, 2 * MS) == [2]


def test_a_frame_that_finds_the_receivers_queue_full_is_lost():
    switch = relay({}, {"bits_per_s": 8e6})
    for _ in range(1000):
        switch.take(0, frame(1), 0)
    # 0.2 s at 1 MB/s is less than the minimum queue, 256 KiB, and one frame is being received.
    assert len(received(switch, 10**12)) == (1 << 18) // 1000 + 1


@pytest.mark.parametrize("loss", [0.0, 0.1, 1.0])
def test_frames_are_lost_at_the_requested_rate(loss):
    switch = relay({"loss": loss}, {})
    for _ in range(10_000):
        switch.take(0, frame(1), 0)
    got = len(received(switch, 0))
    # Five standard deviations of a binomial count.
    assert abs(got - (1 - loss) * 10_000) <= 5 * (10_000 * loss * (1 - loss)) ** 0.5


@pytest.mark.parametrize("down", [0, 1])
def test_nothing_leaves_or_reaches_a_disconnected_host(down):
    settings = [{}, {}]
    settings[down] = {"up": False}
    switch = relay(*settings)
    switch.take(0, frame(1), 0)
    assert received(switch, 10**12) == []
