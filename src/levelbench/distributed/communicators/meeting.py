"""Where the threads that play ranks meet: mailboxes, collectives, who waits for what, and how it ends when one fails.

The one idea: whoever begins to wait says in words what for and how to tell that it is there. So a deadlock is noticed
in the moment in which the last thread that could end it begins to wait, and its report says where each rank stands.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import CommunicationError, UsageError

__all__ = ["Collective", "Meeting", "Receipt", "described"]

Message = NDArray[Any]


@final
@dataclass(eq=False)
class Receipt:
    """A message that a rank wants, once it is there."""

    source: int
    tag: int
    message: Message | None = None


@final
@dataclass(eq=False)
class Collective:
    """One collective call, in which all ranks take part."""

    words: str
    by: int
    number: int
    values: dict[int, Any] = field(default_factory=dict)
    result: Any = None
    complete: bool = False
    taken: int = 0


@dataclass(frozen=True)
class _Waiting:
    rank: int
    words: str
    ready: Callable[[], bool]
    lost: Callable[[], bool]


@final
class _Mail:
    """What has come for one rank, and what it waits for; messages of one source and tag stay in order."""

    def __init__(self) -> None:
        self.came: dict[int, deque[tuple[int, Message]]] = {}
        self.wanted: dict[tuple[int, int], deque[Receipt]] = {}

    def deliver(self, source: int, tag: int, message: Message) -> None:
        wanted = self.wanted.get((source, tag))
        if wanted:
            wanted.popleft().message = message
        else:
            self.came.setdefault(tag, deque()).append((source, message))

    def want(self, receipt: Receipt) -> None:
        for each in self.came.get(receipt.tag, ()):
            if each[0] == receipt.source:
                receipt.message = each[1]
                self._drop(receipt.tag, each)
                return
        self.wanted.setdefault((receipt.source, receipt.tag), deque()).append(receipt)

    def _drop(self, tag: int, taken: tuple[int, Message]) -> None:
        # By identity: comparing messages would compare arrays.
        self.came[tag] = deque(each for each in self.came[tag] if each is not taken)


@final
class Meeting:
    """What the ranks of one team share. All methods may be called by any thread."""

    def __init__(self, size: int, timeout_s: float) -> None:
        self.size, self.timeout_s = size, timeout_s
        self._lock = threading.Lock()
        # One for each rank, so that a message wakes nobody but its receiver.
        self._bells = [threading.Condition(self._lock) for _ in range(size)]
        self._mail = [_Mail() for _ in range(size)]
        self._collectives: dict[int, Collective] = {}
        self._turns = [0] * size
        self._waiting: dict[int, _Waiting] = {}
        self._gone: set[int] = set()
        self._failure: str | None = None
        self._threads: list[threading.Thread] = []
        self._bystanders: frozenset[threading.Thread] = frozenset()

    def expect(self, threads: list[threading.Thread]) -> None:
        """Say which thread plays which rank, before any of them starts: needed to notice a deadlock at once."""
        self._threads, self._bystanders = threads, frozenset(threading.enumerate())

    # Messages

    def send(self, source: int, to: int, tag: int, message: Message) -> None:
        """Leave a message, which the receiver may keep."""
        with self._lock:
            self._go_on(source, f"send(to={to}, tag={tag})")
            self._mail[to].deliver(source, tag, message)
            self._bells[to].notify_all()

    def want(self, rank: int, source: int, tag: int) -> Receipt:
        """Ask for the next message of ``source`` with ``tag`` that nobody has asked for."""
        receipt = Receipt(source, tag)
        with self._lock:
            self._go_on(rank, f"receive(source={source}, tag={tag})")
            self._mail[rank].want(receipt)
        return receipt

    def receive(self, rank: int, receipt: Receipt, words: str) -> Message:
        """Wait for the message."""
        with self._lock:
            self._wait(rank, words, lambda: receipt.message is not None, lambda: receipt.source in self._gone)
        assert receipt.message is not None
        return receipt.message

    def receive_any(self, rank: int, tag: int) -> tuple[int, Message]:
        """Wait for the message of ``tag`` that came first; from whom it is, and the message."""
        mail, others = self._mail[rank], set(range(self.size)) - {rank}
        with self._lock:
            self._wait(rank, f"receive_any(tag={tag})", lambda: bool(mail.came.get(tag)), lambda: others <= self._gone)
            return mail.came[tag].popleft()

    # Collectives

    def enter(
        self,
        rank: int,
        words: str,
        value: Any,
        combine: Callable[[list[Any]], Any] | None = None,
        *,
        awaited: bool = False,
    ) -> Collective:
        """Take part in this rank's next collective. ``words`` must be the same on all ranks.

        ``combine`` makes the result of the values of all ranks, by rank; the last one to come calls it. ``awaited``:
        others may wait for this rank alone.
        """
        with self._lock:
            self._go_on(rank, words)
            entered = self._next(rank, words)
            entered.values[rank] = value
            last = len(entered.values) == self.size
            entered.complete = last and combine is None
            if entered.complete or awaited:
                self._ring()
        if last and combine is not None:
            result = combine([entered.values[each] for each in range(self.size)])
            with self._lock:
                entered.result, entered.complete = result, True
                self._ring()
        return entered

    def _next(self, rank: int, words: str) -> Collective:
        """The collective that is this rank's turn; an error if another rank has called something else there."""
        number = self._turns[rank]
        self._turns[rank] += 1
        entered = self._collectives.setdefault(number, Collective(words, rank, number))
        if entered.words != words:
            self._fail(
                f"rank {entered.by} called {entered.words} where rank {rank} called {words}"
                f" (collective number {number + 1})"
            )
            self._raise_failure(words)
        return entered

    def finish(self, rank: int, entered: Collective, needs: int | None = None) -> None:
        """Wait until all ranks have come, or only rank ``needs``."""
        with self._lock:
            self._wait(
                rank,
                entered.words,
                lambda: self.came(entered, needs),
                lambda: bool(self._gone - entered.values.keys()) if needs is None else needs in self._gone,
            )

    @staticmethod
    def came(entered: Collective, needs: int | None = None) -> bool:
        """Whether :meth:`finish` would return at once."""
        return entered.complete if needs is None else needs in entered.values

    def leave(self, entered: Collective) -> None:
        """Say that this rank has taken what it needs of a collective."""
        with self._lock:
            entered.taken += 1
            if entered.taken == self.size:
                del self._collectives[entered.number]

    # Endings

    @property
    def failed(self) -> bool:
        """Whether a rank has failed: nothing can be sent or received any more."""
        return self._failure is not None

    def part(self, rank: int) -> None:
        """Take part no more; who waits for this rank gets an error."""
        with self._lock:
            self._gone.add(rank)
            for waiting in list(self._waiting.values()):
                if waiting.lost() and not waiting.ready():
                    self._fail(self._gone_words(waiting.words))
            self._look_for_deadlock()

    def fail(self, why: str) -> None:
        """End everything: every rank that waits or calls gets an error that says why."""
        with self._lock:
            self._fail(why)

    def _fail(self, why: str) -> None:
        # What comes after the first failure is a consequence of it.
        self._failure = self._failure or why
        self._ring()

    def _ring(self) -> None:
        for bell in self._bells:
            bell.notify_all()

    def _go_on(self, rank: int, words: str) -> None:
        if rank in self._gone:
            raise UsageError(words, f"rank {rank} has closed its communicator", "close it after the last call")
        self._raise_failure(words)

    def _raise_failure(self, words: str) -> None:
        if self._failure is not None:
            raise CommunicationError(words, self._failure, "see what the rank did that this names")

    def _gone_words(self, words: str) -> str:
        ranks = ", ".join(str(rank) for rank in sorted(self._gone))
        return f"{words} waits for a rank that has left (gone: {ranks})"

    def _wait(self, rank: int, words: str, ready: Callable[[], bool], lost: Callable[[], bool]) -> None:
        self._go_on(rank, words)
        if ready():
            return
        me = threading.get_ident()
        self._waiting[me] = _Waiting(rank, words, ready, lost)
        try:
            if lost():
                self._fail(self._gone_words(words))
            self._look_for_deadlock()
            if not self._bells[rank].wait_for(lambda: self.failed or ready(), self.timeout_s):
                self._fail(f"nothing came in {self.timeout_s:g} s; {self._standing()}")
        finally:
            del self._waiting[me]
        self._raise_failure(words)

    def _look_for_deadlock(self) -> None:
        """Fail if every rank waits for what no thread can bring any more."""
        if not self._threads or self._failure is not None or len(self._gone) == self.size:
            return
        for rank, thread in enumerate(self._threads):
            if rank not in self._gone and thread.ident not in self._waiting:
                return
        helpers = set(threading.enumerate()) - self._bystanders - set(self._threads)
        if helpers or any(waiting.ready() for waiting in self._waiting.values()):
            return
        self._fail(f"all ranks wait for each other: {self._standing()}")

    def _standing(self) -> str:
        places = [f"rank {each.rank} in {each.words}" for each in sorted(self._waiting.values(), key=_by_rank)]
        places += [f"rank {rank} has left" for rank in sorted(self._gone)]
        return "; ".join(places)


def _by_rank(waiting: _Waiting) -> int:
    return waiting.rank


def described(array: NDArray[Any]) -> str:
    """Dtype and shape, in words: ``float32 (3, 2)``."""
    return f"{np.dtype(array.dtype).name} {tuple(array.shape)}"
