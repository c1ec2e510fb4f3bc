"""Ranks as threads of one process: for tests, for checking schemes, and to try a scheme without launching.

A thread that starts to wait says what for, and how to tell that it has arrived. So a deadlock is detected as soon as
the last thread that could resolve it starts to wait, and its report says where each rank is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import sleep
from typing import Any, TypeVar, final

from levelbench.distributed.communicator import Communicator, Done, Handle
from levelbench.distributed.communicators.meeting import (
    ANY,
    Collective,
    CollectiveCall,
    Combine,
    LocalCommunicator,
    Meeting,
    Parcel,
    Receipt,
)
from levelbench.distributed.communicators.wrapping import DelayedCommunicator, Delays
from levelbench.distributed.packing import HostArray, view
from levelbench.errors import CommunicationError
from levelbench.networks.executor import Array

T = TypeVar("T")


@dataclass(frozen=True)
class _Waiting:
    rank: int
    what: object
    ready: Callable[[], bool]
    lost: Callable[[], bool]


@final
class ThreadMeeting(Meeting):
    """The meeting of threads. All methods are thread-safe."""

    name = "threads"

    def __init__(self, size: int, timeout_s: float) -> None:
        super().__init__()
        self.size, self.timeout_s = size, timeout_s
        self._lock = threading.Lock()
        # One for each rank, so that a message wakes only its receiver.
        self._conditions = [threading.Condition(self._lock) for _ in range(size)]
        self._collectives: dict[int, Collective] = {}
        self._next_numbers = [0] * size
        self._waiting: dict[int, _Waiting] = {}
        self._failure: str | None = None
        self._threads: list[threading.Thread] = []
        self._bystanders: frozenset[threading.Thread] = frozenset()

    def register(self, threads: list[threading.Thread]) -> None:
        """Set the thread of each rank, before any of them starts; needed to detect a deadlock at once."""
        self._threads, self._bystanders = threads, frozenset(threading.enumerate())

    # Messages

    def send(self, rank: int, array: Array, to: int, tag: int) -> Handle:
        """Deliver a copy; never waits."""
        message = Parcel(view(array).copy(), rank)
        with self._lock:
            self._check_usable(rank, "send")
            self.box(to, tag).deliver(message)
            self._conditions[to].notify_all()
        return Done(array)

    def post_receive(self, rank: int, source: int, tag: int) -> Receipt:
        receipt = Receipt(source, tag)
        with self._lock:
            self._check_usable(rank, receipt)
            self.box(rank, tag).post(receipt)
        return receipt

    def receive(self, rank: int, receipt: Receipt) -> Parcel:
        """Wait until the message arrives, or can no longer arrive."""
        source, others = receipt.source, set(range(self.size)) - {rank}
        with self._lock:
            self._wait(
                rank,
                receipt,
                lambda: receipt.message is not None,
                lambda: others <= self.gone if source == ANY else source in self.gone,
            )
        assert receipt.message is not None
        return receipt.message

    def arrived(self, receipt: Receipt) -> bool:
        return _yield_unless(receipt.message is not None or self._failure is not None)

    # Collectives

    def enter(
        self, rank: int, call: CollectiveCall, value: Any, combine: Combine | None = None, like: HostArray | None = None
    ) -> Collective:
        """The last rank to enter combines."""
        with self._lock:
            self._check_usable(rank, call)
            number = self._next_numbers[rank]
            self._next_numbers[rank] += 1
            entered = self._collectives.get(number)
            if entered is None:
                entered = self._collectives[number] = Collective(call, number, rank)
            elif entered.call != call:
                self._fail(
                    f"rank {entered.first} called {entered.call} where rank {rank} called {call}"
                    f" (collective number {number + 1})"
                )
                self._raise_failure(call)
            entered.values[rank] = value
            last = len(entered.values) == self.size
            entered.complete = last and combine is None
            # Others wait either for one rank or for the last.
            if rank == call.source or (entered.complete and call.source is None):
                self._wake_all()
        if last and combine is not None:
            result = combine([entered.values[each] for each in range(self.size)])
            with self._lock:
                entered.result, entered.complete = result, True
                self._wake_all()
        return entered

    def finish(self, rank: int, entered: Collective) -> None:
        source = entered.call.source
        with self._lock:
            self._wait(
                rank,
                entered.call,
                lambda: entered.ready,
                lambda: bool(self.gone - entered.values.keys()) if source is None else source in self.gone,
            )

    def completed(self, entered: Collective) -> bool:
        return _yield_unless(entered.ready or self._failure is not None)

    def leave(self, entered: Collective) -> None:
        """Drop the collective once all have left it."""
        with self._lock:
            entered.taken += 1
            if entered.taken == self.size:
                del self._collectives[entered.number]

    # Endings

    def depart(self, rank: int) -> None:
        with self._lock:
            self.gone.add(rank)
            for waiting in list(self._waiting.values()):
                if waiting.lost() and not waiting.ready():
                    self._fail(self._rank_left(waiting.what))
            self._detect_deadlock()

    def fail(self, why: str) -> None:
        with self._lock:
            self._fail(why)

    def _fail(self, why: str) -> None:
        # Later failures are consequences of the first.
        self._failure = self._failure or why
        self._wake_all()

    def _wake_all(self) -> None:
        for bell in self._conditions:
            bell.notify_all()

    def _check_usable(self, rank: int, what: object) -> None:
        self.require_open(rank, what)
        self._raise_failure(what)

    def _raise_failure(self, what: object) -> None:
        if self._failure is not None:
            raise CommunicationError(str(what), self._failure, "look at what the named rank did")

    def _rank_left(self, what: object) -> str:
        ranks = ", ".join(str(rank) for rank in sorted(self.gone))
        return f"{what} waits for a rank that has left (gone: {ranks})"

    def _wait(self, rank: int, what: object, ready: Callable[[], bool], lost: Callable[[], bool]) -> None:
        self._check_usable(rank, what)
        if ready():
            return
        me = threading.get_ident()
        self._waiting[me] = _Waiting(rank, what, ready, lost)
        try:
            if lost():
                self._fail(self._rank_left(what))
            self._detect_deadlock()
            if not self._conditions[rank].wait_for(lambda: self._failure is not None or ready(), self.timeout_s):
                self._fail(f"nothing came in {self.timeout_s:g} s; {self._positions()}")
        finally:
            del self._waiting[me]
        self._raise_failure(what)

    def _detect_deadlock(self) -> None:
        """Fail if every rank waits for something that no thread can provide any more."""
        if not self._threads or self._failure is not None or len(self.gone) == self.size:
            return
        for rank, thread in enumerate(self._threads):
            if rank not in self.gone and thread.ident not in self._waiting:
                return
        helpers = set(threading.enumerate()) - self._bystanders - set(self._threads)
        if helpers or any(waiting.ready() for waiting in self._waiting.values()):
            return
        self._fail(f"all ranks wait for each other: {self._positions()}")

    def _positions(self) -> str:
        waiting = sorted(self._waiting.values(), key=lambda each: each.rank)
        places = [f"rank {each.rank} in {each.what}" for each in waiting]
        return "; ".join([*places, *(f"rank {rank} has left" for rank in sorted(self.gone))])


def _yield_unless(over: bool) -> bool:
    # A thread that polls in a loop would otherwise hold the interpreter for milliseconds.
    if not over:
        sleep(0)
    return over


def run_ranks(
    size: int, work: Callable[[Communicator], T], *, timeout_s: float = 30.0, delays: Delays | None = None
) -> list[T]:
    """Run ``work`` on ``size`` ranks, each in a thread; returns the results in rank order.

    The first exception on any rank ends the run and is raised; the other ranks get ``CommunicationError``. In a
    deadlock all do: at once if no other thread was started meanwhile that could resolve it, else after ``timeout_s``
    seconds, which is also the longest that a rank may wait in a single call.
    """
    results, errors = _run(size, work, timeout_s, delays)
    if errors:
        raise next(iter(errors.values()))
    return [results[rank] for rank in range(size)]


def rank_outcomes(
    size: int, work: Callable[[Communicator], T], *, timeout_s: float = 30.0, delays: Delays | None = None
) -> list[T | BaseException]:
    """Like :func:`run_ranks`, but a rank's exception takes the place of its result."""
    results, errors = _run(size, work, timeout_s, delays)
    return [errors[rank] if rank in errors else results[rank] for rank in range(size)]


def _run(
    size: int, work: Callable[[Communicator], T], timeout_s: float, delays: Delays | None
) -> tuple[dict[int, T], dict[int, BaseException]]:
    """Results by rank, and exceptions by rank in the order they were raised."""
    meeting = ThreadMeeting(size, timeout_s)
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}
    over = threading.Semaphore(0)

    def run_rank(rank: int) -> None:
        communicator: Communicator = LocalCommunicator(meeting, rank)
        try:
            results[rank] = work(communicator if delays is None else DelayedCommunicator(communicator, delays))
        except BaseException as error:  # noqa: BLE001  # user code; the caller raises what it raised
            errors[rank] = error
            meeting.fail(f"rank {rank} failed with {type(error).__name__}: {error}")
        else:
            meeting.depart(rank)
        over.release()

    threads = [
        threading.Thread(target=run_rank, args=(rank,), name=f"rank-{rank}", daemon=True) for rank in range(size)
    ]
    meeting.register(threads)
    try:
        for thread in threads:
            thread.start()
        # Once a rank has failed, wait for the others no longer than for a message.
        while len(results) + len(errors) < size and over.acquire(timeout=timeout_s if errors else None):
            pass
        ended = results.keys() | errors.keys()
        for rank in set(range(size)) - ended:
            errors[rank] = CommunicationError(
                f"the end of rank {rank}",
                "it continued after another rank had failed",
                "call the communicator in its loop",
            )
    finally:
        meeting.fail("the ranks' run is over")
    return results, errors
