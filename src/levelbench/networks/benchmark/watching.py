"""Notices models that remember their answers: what a framework's own model returns is computed again by a second one.

Nothing but the user's file says what such a model computes. So the file is read again, and the second model gets the
first one's parameters, runs in the framework's first mode and is called only off the clock, in buffers of its own. The
contents of inputs change between timed calls, off the clock and in the same buffers; at random values and at the end,
the outputs of a timed call are compared with the second model's. A model whose outputs are random, or depend on the
calls before, cannot be compared, which is said instead.
"""

from __future__ import annotations

import copy
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from levelbench.checks.arrays import Correctness, Host, difference, is_float, unit_roundoff
from levelbench.errors import LevelbenchError
from levelbench.measure.clocks import Clock, timed
from levelbench.measure.environment.machine import memory_left_bytes
from levelbench.networks.executor import Array, Backend, Executor
from levelbench.networks.native import NativeModel, load_native
from levelbench.operators.benchmark.watching import Contents, RefusedError, WrongError, remembers

_EXACT, _ROUGH = 0.01, 0.1
"""How far two modes may differ, relative to an output's size: in float32 and float64, and in other or unknown types."""
_SHORT_CALL_NS = 200_000
_SELDOM, _LAST = 10, 3
_HELD_BYTES = 256 << 20
_MEMORY_SHARE = 0.4
_RANDOM = "its outputs are random, or depend on its earlier calls"
_CHAOTIC = "rounding its inputs changes its outputs by more than is allowed"


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
    path: str, options: Mapping[str, int | float | str | bool], model: NativeModel, first: Executor, backend: Backend
) -> Iterator[Executor]:
    """Executors with the parameters of ``first``: of a model from the file, read again, and of a copy of ``model``.

    The copy is for files that cannot be read twice, or whose models keep random values outside of their parameters.
    """

    def read() -> NativeModel:
        # What was compiled finds the first module by its name.
        modules = dict(sys.modules)
        try:
            with seeded(backend):
                return load_native(path, options)
        finally:
            sys.modules.update(modules)

    makers: tuple[Callable[[], NativeModel], ...] = (read, lambda: replace(model, model=copy.deepcopy(model.model)))
    for make in makers:
        try:
            second = backend.native(make(), backend.modes[0])
            for theirs, ours in ((second.parameters, first.parameters), (second.buffers, first.buffers)):
                theirs.update({name: backend.array(np.array(backend.host(each))) for name, each in ours.items()})
        except Exception:  # noqa: BLE001  # the boundary to a user's file
            continue
        yield second


class AnswerWatch:
    """A measured inference of a framework's own model, whose inputs change between values.

    ``flops`` is what the framework counts in the second model, with the ``dtype`` of most of it; ``None`` if unknown.
    """

    def __init__(self, first: Executor, seconds: Iterator[Executor], backend: Backend, hosts: Sequence[Host]) -> None:
        self._first, self._backend = first, backend
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
        self._rehearse(seconds)

    def work(self) -> Sequence[Array]:
        """The measured call: it returns once its outputs are computed."""
        found = self._first.infer(*self._contents.native)
        self._backend.finish(found)
        return found

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
        if short and remembers(self._first.infer, self._contents, self._backend.finish, clock):
            raise RefusedError("a call with new contents takes far longer than one with the same: it remembers results")
        if self._unchecked:
            return Correctness(checked=f"not checked: {self._unchecked}")
        mode = self._second.mode if self._second is not None else ""
        checked = f"against a second model in mode {mode}, on other contents, within {self._tolerance:g} of its size"
        return Correctness("", checked, {"output": self._error})

    def _renew(self, *, partly: bool) -> None:
        """Change all contents, so that the second model has seen nothing like them; ``partly``: the first model has.

        Then a first model that looks at a part of its inputs to find what it remembers finds something else's answer.
        """
        self._contents.change()
        if partly:
            self.work()
            self._contents.change(whole=False)

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
        wrong = ""
        for second in seconds:
            try:
                self._second = second
                found = self._hosted(self.work())
                wanted = self._again()
                # Counted in its second call: the first may fill tables that are kept.
                self._contents.change()
                counted = second.operations(*self._copies())
                other = self._again()
            except Exception as error:  # noqa: BLE001  # as above
                wrong = wrong or f"it cannot be called in mode {second.mode}: {type(error).__name__}: {error}"[:200]
                continue
            if counted is not None:
                self.flops, self.dtype = counted
                self._tolerance = _EXACT if self.dtype in ("float32", "float64") else _ROUGH
            apart = _apart(found, wanted)
            # A copy may have copied what the first model remembers: then it has one answer for all inputs.
            if apart <= self._tolerance and not (wrong and _apart(other, wanted) <= self._tolerance):
                return
            wrong = wrong or self._varies(other) or _differs(apart, self._tolerance)
        self._second = None
        if wrong.startswith("output"):
            raise WrongError(wrong)
        self._unchecked = self._unchecked or wrong or "no second model could be made from its file"

    def _check(self, found: Sequence[Array]) -> None:
        """Raise ``WrongError`` unless ``found`` was computed from the current contents."""
        if self._second is None:
            return
        wanted = self._again()
        apart = _apart(self._hosted(found), wanted)
        if apart <= self._tolerance:
            self._error = max(self._error, apart)
        elif varies := self._varies(wanted):
            self._second, self._unchecked = None, varies
        else:
            raise WrongError(f"in a timed call whose inputs had new contents: {_differs(apart, self._tolerance)}")

    def _varies(self, wanted: Sequence[Host]) -> str:
        """Why the second model's outputs cannot be compared with, if they cannot."""
        if _apart(self._again(), wanted) > self._tolerance / 4:
            return _RANDOM
        return _CHAOTIC if _apart(self._again(shaken=True), wanted) > self._tolerance / 4 else ""

    def _again(self, *, shaken: bool = False) -> list[Host]:
        """The second model's outputs for the current contents, in new buffers (``shaken``: moved by one rounding)."""
        assert self._second is not None
        return self._hosted(self._second.infer(*self._copies(shaken=shaken)))

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
    return f"outputs are {off}, compared with a second model of the same file: it remembers results, or computes others"


def _apart(found: Sequence[Host], wanted: Sequence[Host]) -> float:
    """The largest distance of outputs relative to their size, both Euclidean; infinite for others altogether.

    Integers and truth values, which rounding can tip, count only where more than half of them differ.
    """
    if [each.shape for each in found] != [each.shape for each in wanted]:
        return math.inf
    most = 0.0
    for mine, theirs in zip(found, wanted, strict=True):
        if not theirs.size:
            continue
        if not is_float(theirs.dtype):
            most = max(most, math.inf if theirs.size > 1 and float(np.mean(mine != theirs)) > 0.5 else 0.0)
            continue
        gap = float(np.linalg.norm(difference(mine, theirs)))
        size = float(np.linalg.norm(np.nan_to_num(theirs.astype(np.float64), posinf=0.0, neginf=0.0)))
        most = max(most, gap / size if size > 0 else math.inf if gap > 0 else 0.0)
    return most if not math.isnan(most) else math.inf
