"""The checks of messages, handles and arguments; each is a function that all ranks call at the same time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from time import sleep

import numpy as np

from levelbench.distributed.communicator import Handle
from levelbench.distributed.validation.communicator_probe import DTYPES, Probe
from levelbench.errors import UsageError

__all__ = ["exchange", "from_any", "handles", "large", "messages", "native", "order", "strangers", "tags"]

_LARGE = 1 << 20
_POLLS, _POLL_S = 20_000, 0.0005
_MOVED = [*product((*DTYPES, "uint8"), ((5,), (0,))), ("float32", ())]


def messages(probe: Probe) -> None:
    """Around rings of every stride; what was sent may be overwritten after it was waited for."""
    size, rank, talk = probe.size, probe.rank, probe.communicator
    for stride, (dtype, shape) in product(range(1, size), _MOVED):
        probe.next_case(f"{dtype} {shape} to the rank {stride} after")
        like = probe.native(np.zeros(shape, dtype))
        source = (rank - stride) % size
        coming = talk.start_receive(like, source)
        given = probe.own(shape, dtype)
        talk.start_send(given, (rank + stride) % size).wait()
        given *= 0
        probe.expect(f"what rank {source} sent", coming.wait(), probe.values(source, shape, dtype))
        probe.expect("the array to receive into", like, probe.values(source, shape, dtype))


def order(probe: Probe) -> None:
    """Messages of one tag arrive in the order in which they were sent, and go to receives in the order of start."""
    for stride in range(1, probe.size):
        probe.next_case(f"six messages to the rank {stride} after")
        to, source = (probe.rank + stride) % probe.size, (probe.rank - stride) % probe.size
        going = [probe.communicator.start_send(probe.own(at=at), to, 3) for at in range(6)]
        coming = [probe.communicator.start_receive(probe.native(np.zeros(5, np.float32)), source, 3) for _ in range(6)]
        for at in (2, 0, 1, 5, 4, 3):
            probe.expect(f"message {at} of rank {source}", coming[at].wait(), probe.values(source, at=at))
        for each in reversed(going):
            each.wait()


def tags(probe: Probe) -> None:
    """Messages of different tags do not meet, in whatever order they are asked for."""
    for stride in range(1, probe.size):
        probe.next_case(f"tags 5, 0 and 9 to the rank {stride} after")
        to, source = (probe.rank + stride) % probe.size, (probe.rank - stride) % probe.size
        going = [probe.communicator.start_send(probe.own(at=tag), to, tag) for tag in (5, 0, 9)]
        for tag in (9, 5, 0):
            found = probe.communicator.receive(probe.native(np.zeros(5, np.float32)), source, tag)
            probe.expect(f"tag {tag} of rank {source}", found, probe.values(source, at=tag))
        for each in going:
            each.wait()


def from_any(probe: Probe) -> None:
    """Each message once, from whom it is."""
    for root in sorted({0, probe.size - 1}):
        probe.next_case(f"two messages of each rank to rank {root}")
        if probe.rank != root:
            for at in range(2):
                probe.communicator.send(probe.own(at=at), root, 7)
            continue
        seen = [0] * probe.size
        for _ in range(2 * (probe.size - 1)):
            found, source = probe.communicator.receive_any(probe.native(np.zeros(5, np.float32)), 7)
            known = 0 <= source < probe.size and source != root and seen[source] < 2
            probe.require(known, f"a message is said to be from rank {source}, which has sent no more")
            if known:
                probe.expect(f"message {seen[source]} of rank {source}", found, probe.values(source, at=seen[source]))
                seen[source] += 1


def exchange(probe: Probe) -> None:
    """On a ring, and between all, in any order of neighbours."""
    size, rank = probe.size, probe.rank
    ring = sorted({(rank - 1) % size, (rank + 1) % size} - {rank})
    everybody = [each for each in reversed(range(size)) if each != rank]
    for words, neighbours in (("on a ring", ring), ("with everybody", everybody), ("on a ring, again", ring)):
        probe.next_case(words)
        found = probe.communicator.exchange(probe.own((4, 2)), neighbours)
        probe.require(len(found) == len(neighbours), f"there are {len(found)} arrays of {len(neighbours)} neighbours")
        for neighbour, each in zip(neighbours, found, strict=False):
            probe.expect(f"the array of rank {neighbour}", each, probe.values(neighbour, (4, 2)))


def handles(probe: Probe) -> None:
    """Several operations under way at once, waited for in another order; ``done`` comes true."""
    talk, size, rank = probe.communicator, probe.size, probe.rank
    probe.next_case("four sums, waited for backwards")
    shapes = ((300,), (1,), (7, 5), (2,))
    under_way = [talk.start_all_reduce(probe.own(shape, at=at)) for at, shape in enumerate(shapes)]
    for at in reversed(range(len(shapes))):
        probe.expect(f"sum {at}", under_way[at].wait(), probe.total(shapes[at], at=at))
    probe.next_case("sums, broadcasts and messages at once")
    first = talk.start_all_reduce(probe.own((20,), at=1))
    coming = talk.start_receive(probe.native(np.zeros(5, np.float32)), (rank - 1) % size, 2) if size > 1 else None
    second = talk.start_broadcast(probe.own(at=2), size - 1)
    going = talk.start_send(probe.own(at=3), (rank + 1) % size, 2) if size > 1 else None
    third = talk.start_all_reduce(probe.own((3,), at=4), "mean")
    probe.require(_comes_true(third), "done() did not come true")
    mean = (probe.total((3,), at=4) / size).astype(np.float32)
    probe.expect("the mean", third.wait(), mean, 1e-6)
    probe.expect("the broadcast", second.wait(), probe.values(size - 1, at=2))
    if coming is not None and going is not None:
        probe.require(_comes_true(coming), "done() of a receive did not come true")
        probe.expect("the message", coming.wait(), probe.values((rank - 1) % size, at=3))
        going.wait()
    probe.expect("the sum", first.wait(), probe.total((20,), at=1))


def _comes_true(handle: Handle) -> bool:
    for _ in range(_POLLS):
        if handle.done():
            return True
        sleep(_POLL_S)
    return False


def large(probe: Probe) -> None:
    """4 MiB to the next rank while as much comes from the one before: nobody waits for the other to receive first."""
    talk, size, rank = probe.communicator, probe.size, probe.rank
    shape = (_LARGE,)
    probe.next_case("a sum")
    probe.expect("the sum", talk.all_reduce(probe.own(shape)), probe.total(shape))
    if size == 1:
        return
    probe.next_case("a message each way around the ring")
    for step in (1, size - 1):
        going = talk.start_send(probe.own(shape, at=step), (rank + step) % size)
        source = (rank - step) % size
        found = talk.receive(probe.native(np.zeros(shape, np.float32)), source)
        probe.expect(f"the message of rank {source}", found, probe.values(source, shape, at=step))
        going.wait()
    probe.next_case("an exchange")
    neighbour = rank ^ 1
    if neighbour < size:
        (found,) = talk.exchange(probe.own(shape), [neighbour])
        probe.expect(f"the array of rank {neighbour}", found, probe.values(neighbour, shape))


def strangers(probe: Probe) -> None:
    """``UsageError`` on the rank that asks, and nothing is sent."""
    talk, size = probe.communicator, probe.size
    for rank in (-1, size):
        probe.next_case(f"rank {rank} of {size}")
        own, arrays = probe.own(), [probe.own() for _ in range(size)]
        calls: dict[str, tuple[Callable[..., object], tuple[object, ...]]] = {
            "send": (talk.send, (own, rank)),
            "receive": (talk.receive, (own, rank)),
            "broadcast": (talk.broadcast, (own, rank)),
            "gather": (talk.gather, (own, rank)),
            "scatter": (talk.scatter, (arrays, own, rank)),
            "exchange": (talk.exchange, (own, [rank])),
        }
        for operation, (call, arguments) in calls.items():
            probe.raises(UsageError, operation, partial(call, *arguments))
    probe.next_case("a sum afterwards")
    probe.expect("the sum", talk.all_reduce(probe.own()), probe.total())


def native(probe: Probe) -> None:
    """A framework's arrays come back as its own, of the same type and device."""
    talk, size, rank = probe.communicator, probe.size, probe.rank
    probe.next_case("float32 (3, 4)")
    shape, root = (3, 4), size - 1
    zeros = probe.native(np.zeros(shape, np.float32))
    own = probe.own(shape)
    kind, device = type(own), getattr(own, "device", None)
    results = {
        "all_reduce": (talk.all_reduce(probe.own(shape)), probe.total(shape)),
        "broadcast": (talk.broadcast(probe.own(shape), root), probe.values(root, shape)),
        "reduce_scatter": (talk.reduce_scatter(probe.own((size,))), probe.total((size,))[rank : rank + 1]),
        "scatter": (
            talk.scatter([probe.own(shape, at=each) for each in range(size)] if rank == root else None, zeros, root),
            probe.values(root, shape, at=rank),
        ),
    }
    for each, found in enumerate(talk.all_gather(probe.own(shape))):
        results[f"all_gather of rank {each}"] = (found, probe.values(each, shape))
    for each, found in enumerate(talk.gather(probe.own(shape), root) or ()):
        results[f"gather of rank {each}"] = (found, probe.values(each, shape))
    for each, found in enumerate(talk.all_to_all([probe.own(shape, at=to) for to in range(size)])):
        results[f"all_to_all of rank {each}"] = (found, probe.values(each, shape, at=rank))
    if size > 1:
        going = talk.start_send(probe.own(shape), (rank + 1) % size)
        before = (rank - 1) % size
        results["receive"] = (
            talk.receive(probe.native(np.zeros(shape, np.float32)), before),
            probe.values(before, shape),
        )
        going.wait()
    for what, (found, expected) in results.items():
        right = type(found) is kind and getattr(found, "device", None) == device
        probe.require(right, f"{what} gives a {type(found).__name__}, and was given a {kind.__name__}")
        probe.expect(f"the result of {what}", found, expected)
