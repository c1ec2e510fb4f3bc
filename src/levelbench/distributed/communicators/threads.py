"""Ranks as threads of one process: for tests, for the validator of schemes, and to try a scheme out without launching.

Whoever begins to wait says what for and how to tell that it is there, so a deadlock is noticed in the moment in which
the last thread that could end it begins to wait, and its report says where each rank stands.
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
    """Where threads meet. All methods may be called by any thread."""

    name = "threads"

    def __init__(self, size: int, timeout_s: float) -> None:
        super().__init__()
        self.size, self.timeout_s = size, timeout_s
        self._lock = threading.Lock()
        # One for each rank, so that a message wakes its receiver alone.
        self._bells = [threading.Condition(self._lock) for _ in range(size)]
        self._collectives: dict[int, Collective] = {}
        self._turns = [0] * size
        self._waiting: dict[int, _Waiting] = {}
        self._failure: str | None = None
        self._threads: list[threading.Thread] = []
        self._bystanders: frozenset[threading.Thread] = frozenset()

    def expect(self, threads: list[threading.Thread]) -> None:
        """Say which thread plays which rank, before any of them starts: needed to notice a deadlock at once."""
        self._threads, self._bystanders = threads, frozenset(threading.enumerate())

    # Messages

    def send(self, rank: int, array: Array, to: int, tag: int) -> Handle:
        """Leave a copy; it never waits."""
        message = Parcel(view(array).copy(), rank)
        with self._lock:
            self._go_on(rank, "send")
            self.box(to, tag).deliver(message)
            self._bells[to].notify_all()
        return Done(array)

    def want(self, rank: int, source: int, tag: int) -> Receipt:
        receipt = Receipt(source, tag)
        with self._lock:
            self._go_on(rank, receipt)
            self.box(rank, tag).want(receipt)
        return receipt

    def receive(self, rank: int, receipt: Receipt) -> Parcel:
        """Wait until it is there, or cannot come any more."""
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
        return _let_others_run(receipt.message is not None or self._failure is not None)

    # Collectives

    def enter(
        self, rank: int, call: CollectiveCall, value: Any, combine: Combine | None = None, like: HostArray | None = None
    ) -> Collective:
        """Take part; the last one to come combines."""
        with self._lock:
            self._go_on(rank, call)
            number = self._turns[rank]
            self._turns[rank] += 1
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
            if entered.complete or rank == call.source:
                self._ring()
        if last and combine is not None:
            result = combine([entered.values[each] for each in range(self.size)])
            with self._lock:
                entered.result, entered.complete = result, True
                self._ring()
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

    def ended(self, entered: Collective) -> bool:
        return _let_others_run(entered.ready or self._failure is not None)

    def leave(self, entered: Collective) -> None:
        """Forget it once all have left."""
        with self._lock:
            entered.taken += 1
            if entered.taken == self.size:
                del self._collectives[entered.number]

    # Endings

    def part(self, rank: int) -> None:
        with self._lock:
            self.gone.add(rank)
            for waiting in list(self._waiting.values()):
                if waiting.lost() and not waiting.ready():
                    self._fail(self._gone_words(waiting.what))
            self._look_for_deadlock()

    def fail(self, why: str) -> None:
        with self._lock:
            self._fail(why)

    def _fail(self, why: str) -> None:
        # What comes after the first failure is a consequence of it.
        self._failure = self._failure or why
        self._ring()

    def _ring(self) -> None:
        for bell in self._bells:
            bell.notify_all()

    def _go_on(self, rank: int, what: object) -> None:
        self.require_open(rank, what)
        self._raise_failure(what)

    def _raise_failure(self, what: object) -> None:
        if self._failure is not None:
            raise CommunicationError(str(what), self._failure, "look at what the named rank did")

    def _gone_words(self, what: object) -> str:
        ranks = ", ".join(str(rank) for rank in sorted(self.gone))
        return f"{what} waits for a rank that has left (gone: {ranks})"

    def _wait(self, rank: int, what: object, ready: Callable[[], bool], lost: Callable[[], bool]) -> None:
        self._go_on(rank, what)
        if ready():
            return
        me = threading.get_ident()
        self._waiting[me] = _Waiting(rank, what, ready, lost)
        try:
            if lost():
                self._fail(self._gone_words(what))
            self._look_for_deadlock()
            if not self._bells[rank].wait_for(lambda: self._failure is not None or ready(), self.timeout_s):
                self._fail(f"nothing came in {self.timeout_s:g} s; {self._standing()}")
        finally:
            del self._waiting[me]
        self._raise_failure(what)

    def _look_for_deadlock(self) -> None:
        """Fail if every rank waits for what no thread can bring any more."""
        if not self._threads or self._failure is not None or len(self.gone) == self.size:
            return
        for rank, thread in enumerate(self._threads):
            if rank not in self.gone and thread.ident not in self._waiting:
                return
        helpers = set(threading.enumerate()) - self._bystanders - set(self._threads)
        if helpers or any(waiting.ready() for waiting in self._waiting.values()):
            return
        self._fail(f"all ranks wait for each other: {self._standing()}")

    def _standing(self) -> str:
        waiting = sorted(self._waiting.values(), key=lambda each: each.rank)
        places = [f"rank {each.rank} in {each.what}" for each in waiting]
        return "; ".join([*places, *(f"rank {rank} has left" for rank in sorted(self.gone))])


def _let_others_run(over: bool) -> bool:
    # Who asks in a loop would otherwise keep the interpreter to itself for milliseconds.
    if not over:
        sleep(0)
    return over


def run_ranks(
    size: int, work: Callable[[Communicator], T], *, timeout_s: float = 30.0, delays: Delays | None = None
) -> list[T]:
    """``work`` on each of ``size`` ranks, each a thread: the results by rank.

    The first exception of a rank ends all and is raised; the others get ``CommunicationError``. So does everybody in a
    deadlock: at once where no other thread was started meanwhile that could end it, else after ``timeout_s`` seconds,
    which no rank may wait in one go.
    """
    results, errors = _run(size, work, timeout_s, delays)
    if errors:
        raise next(iter(errors.values()))
    return [results[rank] for rank in range(size)]


def rank_outcomes(
    size: int, work: Callable[[Communicator], T], *, timeout_s: float = 30.0, delays: Delays | None = None
) -> list[T | BaseException]:
    """As :func:`run_ranks`, but with each rank's exception in the place of its result."""
    results, errors = _run(size, work, timeout_s, delays)
    return [errors[rank] if rank in errors else results[rank] for rank in range(size)]


def _run(
    size: int, work: Callable[[Communicator], T], timeout_s: float, delays: Delays | None
) -> tuple[dict[int, T], dict[int, BaseException]]:
    """Results by rank, and exceptions by rank in the order in which they were raised."""
    meeting = ThreadMeeting(size, timeout_s)
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}
    over = threading.Semaphore(0)

    def play(rank: int) -> None:
        communicator: Communicator = LocalCommunicator(meeting, rank)
        try:
            results[rank] = work(communicator if delays is None else DelayedCommunicator(communicator, delays))
        except BaseException as error:  # noqa: BLE001  # work is anybody's code; what it raises is raised by the caller
            errors[rank] = error
            meeting.fail(f"rank {rank} failed with {type(error).__name__}: {error}")
        else:
            meeting.part(rank)
        over.release()

    threads = [threading.Thread(target=play, args=(rank,), name=f"rank-{rank}", daemon=True) for rank in range(size)]
    meeting.expect(threads)
    try:
        for thread in threads:
            thread.start()
        # Who computes on although another rank has failed is not waited for longer than a message would be.
        while len(results) + len(errors) < size and over.acquire(timeout=timeout_s if errors else None):
            pass
        ended = results.keys() | errors.keys()
        for rank in set(range(size)) - ended:
            errors[rank] = CommunicationError(
                f"the end of rank {rank}", "it went on after another had failed", "call the communicator in its loop"
            )
    finally:
        meeting.fail("the ranks' run is over")
    return results, errors
