"""Notices models that remember their answers: what a framework's own model returns is computed again by a second one.

Nothing but the user's file says what such a model computes. So the file is read again, and the second model gets the
first one's parameters, runs in the framework's first mode and is called only off the clock, in buffers of its own. The
contents of inputs change between timed calls, off the clock and in the same buffers; at random values and at the end,
the results of a timed call are compared with the second model's, which draws the same random numbers. Results that are
random nevertheless, or depend on the calls before, cannot be compared, which is said instead.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from levelbench.checks.arrays import Correctness, Host, difference, is_float, unit_roundoff
from levelbench.errors import LevelbenchError
from levelbench.measure.clocks import Clock, timed
from levelbench.measure.environment.machine import memory_left_bytes
from levelbench.networks.executor import Array, Backend, Executor
from levelbench.networks.native import load_native
from levelbench.operators.benchmark.watching import Contents, RefusedError, WrongError, remembers

_EXACT, _ROUGH = 0.01, 0.1
"""How far two modes may differ, relative to an output's size: in float32 and float64, and in other or unknown types."""
_LEAST = 1e-3
_SHORT_CALL_NS = 200_000
_SELDOM, _LAST = 10, 3
_HELD_BYTES = 256 << 20
_MEMORY_SHARE = 0.4
_RANDOM = "its results are random, or depend on its earlier calls"
_CHAOTIC = "rounding its inputs changes its results by more than is allowed"


@contextmanager
def seeded(backend: Backend) -> Iterator[None]:
    """Within this context a user's model is made, with the generators of NumPy, Python and the framework seeded."""
    before, plain = np.random.get_state(), random.getstate()  # the one that users' files draw from
    np.random.seed(0)
    random.seed(0)
    try:
        with backend.building(0):
            yield
    finally:
        np.random.set_state(before)
        random.setstate(plain)


def second_models(
    path: str, options: Mapping[str, int | float | str | bool], first: Executor, backend: Backend
) -> Iterator[Executor]:
    """Executors of models from the file, read again for each, with the parameters of ``first``."""
    while True:
        # What was compiled finds the first module by its name.
        modules = dict(sys.modules)
        try:
            with seeded(backend):
                model = load_native(path, options)
        finally:
            sys.modules.update(modules)
        second = backend.native(model, backend.modes[0])
        for theirs, ours in ((second.parameters, first.parameters), (second.buffers, first.buffers)):
            theirs.update({name: backend.array(np.array(backend.host(each))) for name, each in ours.items()})
        yield second


class AnswerWatch:
    """A measured inference, or step if it ``trains``, of a framework's own model whose inputs change between values.

    ``flops`` of an inference are what the framework counts in the second model, with the ``dtype`` of most of them;
    ``None`` if unknown.
    """

    def __init__(
        self,
        first: Executor,
        seconds: Iterator[Executor],
        backend: Backend,
        hosts: Sequence[Host],
        *,
        trains: bool = False,
    ) -> None:
        self._first, self._backend, self._trains = first, backend, trains
        held = 4 * sum(math.prod(each.shape) for each in first.parameters.values())
        left = memory_left_bytes()
        if left is not None and held > _MEMORY_SHARE * left:
            seconds = iter(())
        self._random = random.SystemRandom()
        self._count, self._next, self._due = 0, self._random.randint(1, 3), False
        self._claims: list[int] = []
        self._held: list[list[Array]] = []
        self._error = 0.0
        self._unchecked = ""
        self._tolerance = _ROUGH
        self.flops: float | None = None
        self.dtype = ""
        self._contents = Contents(hosts, backend, fixed=frozenset(_ordered(hosts)))
        self._second: Executor | None = None
        self._state = backend.draws()
        self._rehearse(seconds)

    def work(self) -> Sequence[Array]:
        """The measured call: it returns once its outputs are computed."""
        found = self._call(self._first, self._contents.native)
        self._backend.finish(found)
        return found

    def _call(self, executor: Executor, inputs: Sequence[Array]) -> Sequence[Array]:
        if not self._trains:
            return executor.infer(*inputs)
        loss, gradients = executor.infer_and_backprop(*inputs)
        return [loss, *gradients.values()]

    def before(self, inner: int) -> None:
        """Change the contents of the inputs; between short calls seldom, where that would be felt."""
        self._due = self._count + 1 >= self._next
        short = bool(self._claims) and self._claims[-1] < _SHORT_CALL_NS
        if self._due:
            self._renew(partly=bool(self._random.getrandbits(1)))
        elif not short or not self._random.randrange(_SELDOM):
            self._contents.change(whole=False)

    def after(self, found: Sequence[Array], claimed_ns: int, real_ns: int) -> None:
        """Compare the outputs of a timed call, if it is their turn."""
        self._count += 1
        self._claims.append(claimed_ns)
        if self._due:
            self._next = self._count * 2 + self._random.randint(0, self._count)
            self._check(found)

    def conclude(self, clock: Clock) -> Correctness:
        """After the last value: compare a few more calls, and find out whether results are remembered."""
        for at in range(_LAST):
            self._renew(partly=at % 2 == 0)
            claimed_ns, _, found = timed(self.work, clock, 1)
            self._claims.append(claimed_ns)
            self._check(found)
        short = sorted(self._claims)[len(self._claims) // 2] < _SHORT_CALL_NS

        def call(*inputs: Array) -> Sequence[Array]:
            return self._call(self._first, inputs)

        if short and remembers(call, self._contents, self._backend.finish, clock):
            raise RefusedError("a call with new contents takes far longer than one with the same: it remembers results")
        if self._unchecked:
            return Correctness(checked=f"not checked: {self._unchecked}")
        mode = self._second.mode if self._second is not None else ""
        checked = f"against a second model in mode {mode}, on other contents, within {self._tolerance:g} of its size"
        return Correctness("", checked, {"gradient" if self._trains else "output": self._error})

    def _renew(self, *, partly: bool) -> None:
        """Change all contents, so that the second model has seen nothing like them; ``partly``: the first model has.

        Then a first model that looks at a part of its inputs to find what it remembers finds something else's answer.
        """
        self._contents.change()
        if partly:
            self.work()
            self._contents.change(whole=False)
        self._state = self._backend.draws()

    def _rehearse(self, seconds: Iterator[Executor]) -> None:
        """Find contents that it can be called with, and the second model."""
        before = [b"" if each is None else each.tobytes() for each in self._contents.hosts]
        for still in (False, True):
            self._contents.change()
            if before == [b"" if each is None else each.tobytes() for each in self._contents.hosts]:
                self._unchecked = self._unchecked or "its inputs are zero or ordered, so they are the same in all calls"
            try:
                self._hosted(self.work())
                break
            except Exception as error:  # noqa: BLE001  # whatever it raises, it is not called so again
                text = error.found if isinstance(error, LevelbenchError) else f"{type(error).__name__}: {error}"
                self._unchecked = self._unchecked or f"on other contents of its inputs it fails: {text[:200]}"
                self._contents.calm(still=still)
        try:
            wrong = self._pair(seconds)
        except Exception as error:  # noqa: BLE001  # the boundary to a user's file, which may not allow to be read again
            text = error.found if isinstance(error, LevelbenchError) else f"{type(error).__name__}: {error}"
            self._second, wrong = None, ""
            self._unchecked = self._unchecked or f"a second model of its file fails: {text[:200]}"
        if wrong:
            raise WrongError(wrong)

    def _pair(self, seconds: Iterator[Executor]) -> str:
        """Find the second model; what is wrong with the first, if anything is."""
        self._second = next(seconds, None)
        if self._second is None:
            self._unchecked = self._unchecked or "a second model does not fit into memory"
            return ""
        self._renew(partly=False)
        found = self._hosted(self.work())
        wanted = self._again()
        # Counted in its second call: the first may fill tables that are kept.
        self._contents.change()
        inputs = self._copies()
        counted = self._second.operations(*(inputs[:-1] if self._trains else inputs))
        if counted is not None:
            self.flops, self.dtype = counted
            self._tolerance = _EXACT if self.dtype in ("float32", "float64") else _ROUGH
        apart = _apart(found, wanted)
        if apart <= self._tolerance:
            return ""
        varies = self._varies()
        if not varies:
            # Two that were never called: the one above may remember.
            fresh = []
            for self._second in (next(seconds), next(seconds)):
                fresh.append(self._again())
            if _apart(*fresh) > self._tolerance / 4:
                varies = "two models of its file differ: it draws values that no seed fixes"
        self._second = None
        self._unchecked = self._unchecked or varies
        return "" if varies else _differs(apart, self._tolerance)

    def _check(self, found: Sequence[Array]) -> None:
        """Raise ``WrongError`` unless ``found`` was computed from the current contents."""
        if self._second is None:
            return
        wanted = self._again()
        apart = _apart(self._hosted(found), wanted)
        if apart <= self._tolerance:
            self._error = max(self._error, apart)
        elif varies := self._varies():
            self._second, self._unchecked = None, varies
        else:
            raise WrongError(f"in a timed call whose inputs had new contents: {_differs(apart, self._tolerance)}")

    def _varies(self) -> str:
        """Why the second model's results cannot be compared with, if they cannot."""
        once = self._again(drawn=False)
        if _apart(self._again(drawn=False), once) > self._tolerance / 4:
            return _RANDOM
        once = self._again()
        return _CHAOTIC if _apart(self._again(shaken=True), once) > self._tolerance / 4 else ""

    def _again(self, *, shaken: bool = False, drawn: bool = True) -> list[Host]:
        """The second model's results for the current contents, in new buffers (``shaken``: moved by one rounding).

        They are computed with the random numbers that the first model drew, unless not ``drawn``.
        """
        assert self._second is not None
        copies, state = self._copies(shaken=shaken), self._backend.draws()
        if drawn:
            self._backend.restore_draws(self._state)
        found = self._hosted(self._call(self._second, copies))
        if drawn:
            self._backend.restore_draws(state)
        return found

    def _copies(self, *, shaken: bool = False) -> list[Array]:
        hosts = [np.zeros(0) if each is None else each.copy() for each in self._contents.hosts]
        if shaken:
            hosts = [_shaken(each) if is_float(each.dtype) else each for each in hosts]
        # Held, so that no later one has the address of one that the model may remember.
        self._held.append([self._backend.array(each) for each in hosts])
        if sum(each.nbytes for each in hosts) * len(self._held) > _HELD_BYTES:
            del self._held[: len(self._held) // 2]
        return self._held[-1]

    def _hosted(self, found: Sequence[Array]) -> list[Host]:
        self._backend.finish(found)
        return [np.array(self._backend.host(each)) for each in found]


def _ordered(hosts: Sequence[Host]) -> Iterator[int]:
    """Positions of integers in ascending order, such as row pointers: others may be invalid."""
    for at, each in enumerate(hosts):
        flat = each.reshape(-1)
        if flat.size > 1 and each.dtype.kind in "iu" and bool((flat[1:] >= flat[:-1]).all()) and flat[0] != flat[-1]:
            yield at


def _shaken(host: Host) -> Host:
    moved: Host = (host.astype(np.float64) * (1 + 2 * unit_roundoff(host.dtype))).astype(host.dtype)
    return moved


def _differs(apart: float, tolerance: float) -> str:
    off = f"off by {apart:.2g} of their size, {tolerance:g} allowed" if math.isfinite(apart) else "others altogether"
    return f"results are {off}, compared with a second model of the same file: it remembers results, or computes others"


def _apart(found: Sequence[Host], wanted: Sequence[Host]) -> float:
    """The largest distance of results relative to their size, both Euclidean; infinite for others altogether.

    One that is nothing but rounding (the gradient of a bias before a norm) has a share of the largest size. Integers
    and truth values, which rounding can tip, count only where more than half of them differ.
    """
    if [each.shape for each in found] != [each.shape for each in wanted]:
        return math.inf
    sizes = [_size(each) if is_float(each.dtype) else 0.0 for each in wanted]
    least, most = _LEAST * max(sizes, default=0.0), 0.0
    for size, mine, theirs in zip(sizes, found, wanted, strict=True):
        if not theirs.size:
            continue
        if not is_float(theirs.dtype):
            most = max(most, math.inf if theirs.size > 1 and float(np.mean(mine != theirs)) > 0.5 else 0.0)
            continue
        gap = float(np.linalg.norm(difference(mine, theirs)))
        if gap > 0 or math.isnan(gap):
            scale = max(size, least)
            most = max(most, gap / scale if scale > 0 and not math.isnan(gap) else math.inf)
    return most


def _size(host: Host) -> float:
    return float(np.linalg.norm(np.nan_to_num(host.astype(np.float64), posinf=0.0, neginf=0.0)))
