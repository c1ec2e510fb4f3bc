"""Notices results that were not computed in the measured calls: remembered, replayed, late, lazy, or on a false clock.

The contents of inputs change between timed calls, off the clock and in the same buffers, in ways that nothing loaded
before can predict. At random values and at the end, the outputs of a timed call are read when the clock has stopped,
read again when no thread is busy any more, and compared with the reference. What the clocks and comparisons consist of
is remembered before foreign code is loaded (:data:`SEAL`). Code in the same process can undo anything that is written
here, so the parent compares clocks, too (``experiments.operators``).
"""

from __future__ import annotations

import builtins
import gc
import math
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from levelbench.checks import arrays
from levelbench.checks.arrays import Host, is_float
from levelbench.errors import LevelbenchError
from levelbench.measure import caches, clocks, sampling, stopping, warmup
from levelbench.measure.clocks import HOST, Clock, timed
from levelbench.measure.environment.software import threads
from levelbench.operators.benchmark import checking
from levelbench.operators.contract import Array, OperatorBackend
from levelbench.operators.custom.library import is_foreign

__all__ = [
    "SEAL",
    "ChannelsLast",
    "Contents",
    "OnNumpy",
    "Reader",
    "RefusedError",
    "Watch",
    "WrongError",
    "remembers",
    "settle",
]


class RefusedError(Exception):
    """The time of these calls is not that of computing their results; the message is the reason."""


class WrongError(Exception):
    """The output of a timed call is wrong; the message says how."""


class Seal:
    """What measuring consists of: functions, classes and settings as they were before foreign code was loaded."""

    __slots__ = ("_instances", "_least", "_looked", "_names", "_parts", "_settings")

    def __init__(self) -> None:
        self._parts: list[tuple[Any, str, Any, Any]] = []
        self._names: list[tuple[ModuleType, type, frozenset[str]]] = []
        self._instances: list[tuple[Any, dict[str, Any]]] = []
        self._settings: dict[str, tuple[Callable[[], object], object]] = {}
        self._least = 0
        self._looked: list[str] | None = None

    def add(self, *owners: Any) -> None:
        """Remember the functions and classes of modules and classes, and everything of other objects.

        Of our own modules also their constants, and that none of their names hides one of Python's own.
        """
        for owner in owners:
            if not isinstance(owner, ModuleType | type):
                self._instances.append((owner, dict(vars(owner))))
                continue
            ours = owner.__name__.startswith("levelbench.")
            if isinstance(owner, ModuleType):
                self._names.append((owner, type(owner), frozenset(vars(owner)) if ours else frozenset(vars(builtins))))
            for name, value in vars(owner).items():
                constant = ours and isinstance(value, int | float | str | tuple | frozenset)
                if constant or callable(value) or isinstance(value, staticmethod | classmethod):
                    self._parts.append((owner, name, value, getattr(value, "__code__", None)))
                if isinstance(value, type) and value.__module__ == getattr(owner, "__name__", ""):
                    self.add(*([value] if value.__module__.startswith("levelbench.") else []))
        self._least = len(self._parts)

    def add_framework(self, backend: OperatorBackend) -> None:
        """Remember the functions of an open framework, and its number of threads; from then on, listen."""
        names = (type(backend).__module__, "torch", "torch.cuda", "torch.nn.functional", "jax", "jax.numpy")
        self.add(*(sys.modules[name] for name in names if name in sys.modules))
        self.watch("the number of threads", lambda: backend.describe().get("threads"))
        known = frozenset(_blas_threads())
        self.watch("the threads of a BLAS", lambda: {k: n for k, n in _blas_threads().items() if k in known})
        if self._looked is None:
            self._looked = []
            sys.addaudithook(self._hear)

    def _hear(self, event: str, _: object) -> None:
        """Remember which of Python's functions foreign code called to look at its callers or to interrupt them."""
        if event in _LOOKS and self._looked is not None and len(self._looked) < _MOST_LOOKS:
            # Looking for the caller is heard, too.
            heard, self._looked = self._looked, None
            file = sys._getframe(1).f_code.co_filename
            # TVM makes frames of its own, with the names of its files in C++.
            self._looked = [*heard, event] if is_foreign(file) and not file.endswith((".cc", ".h")) else heard

    def watch(self, name: str, read: Callable[[], object]) -> None:
        """Remember a setting, instead of one of that name."""
        self._settings[name] = read, read()

    def need_whole(self) -> None:
        """Raise ``RefusedError`` if anything was replaced or changed since."""
        if broken := self.broken():
            raise RefusedError(f"{broken}, and measuring it relies on that")

    def broken(self) -> str:
        """What was replaced or changed since, in words; empty if nothing was."""
        if len(self._parts) < self._least or self._least < _FEWEST:
            return "it emptied the list of what measures"
        if self._looked:
            return f"it looks at its callers or interrupts them with {self._looked[0]}"
        for module, kind, names in self._names:
            if type(module) is not kind:
                return f"it replaced the class of {module.__name__}"
            # What libraries add to the builtins themselves, as pybind11 does, hides nothing.
            if module is not builtins and (hidden := (vars(module).keys() - names) & vars(builtins).keys()):
                return f"it replaced {module.__name__}.{min(hidden)}"
        for owner, name, value, code in self._parts:
            if vars(owner).get(name) is not value or getattr(value, "__code__", None) is not code:
                return f"it replaced {owner.__name__}.{name}"
        for thing, before in self._instances:
            if vars(thing) != before:
                return f"it changed the {type(thing).__name__} that measures"
        for name, (read, was) in self._settings.items():
            if (now := read()) != was:
                return f"it changed {name} from {was} to {now}"
        return ""


def _blas_threads() -> dict[str, int]:
    """The threads of each loaded BLAS, which its own functions may set without the framework's knowledge."""
    return {name: found["threads"] for name, found in threads()["loaded"].items() if "blas" in name}


_LOOKS = frozenset({"gc.get_objects", "gc.get_referrers", "sys._current_frames", "sys._getframe"})
_LOOKS |= {"sys.setprofile", "sys.settrace", "sys.monitoring.register_callback"}
_MOST_LOOKS = 8
_FEWEST = 500
"""Parts that are always remembered: NumPy's alone are more."""
SEAL = Seal()
"""Taken when this module is imported; those who open a framework add its functions before they load other code."""
SEAL.add(random, random.Random, random.SystemRandom)
SEAL.add(time, gc, np, np.random, np.linalg, clocks, sampling, stopping, caches, warmup, checking, arrays)
SEAL.add(clocks.HOST, clocks.SECOND, builtins)
SEAL.watch("the process's priority", lambda: os.getpriority(os.PRIO_PROCESS, 0) if hasattr(os, "getpriority") else 0)
SEAL.watch("Python's profiling hooks", lambda: (sys.getprofile(), sys.gettrace()))
SEAL.watch("the garbage collector's state", lambda: (gc.isenabled(), gc.get_threshold()))
SEAL.watch("the interval of thread switches", sys.getswitchinterval)
SEAL.watch("the process's cores", lambda: sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0)


class Reader(Protocol):
    """How native arrays are made, waited for and read: a backend, or functions on NumPy arrays."""

    def array(self, host: Host) -> Array:
        """A native array."""

    def host(self, array: Array) -> Host:
        """A copy on the host."""

    def memory(self, array: Array) -> Host | None:
        """The memory of a native array, to be read and written; ``None`` if the host cannot."""

    def written(self, array: Array) -> None:
        """Tell the framework that the memory of an array was changed."""

    def finish(self, arrays: Sequence[Array]) -> None:
        """Return once they are computed."""


class OnNumpy:
    """Reads what works on NumPy arrays without a backend."""

    def array(self, host: Host) -> Array:
        """The same array."""
        return host

    def host(self, array: Array) -> Host:
        """A copy."""
        return np.array(array)

    def memory(self, array: Array) -> Host | None:
        """The array itself."""
        return array if isinstance(array, np.ndarray) else None

    def written(self, array: Array) -> None:
        """NumPy keeps nothing."""

    def finish(self, arrays: Sequence[Array]) -> None:
        """There is nothing to wait for."""


class ChannelsLast:
    """Makes a framework's arrays with the channels last in memory, and reads them as the framework does."""

    def __init__(self, backend: OperatorBackend) -> None:
        self._backend = backend
        self.host, self.memory, self.written, self.finish = (
            backend.host,
            backend.memory,
            backend.written,
            backend.finish,
        )

    def array(self, host: Host) -> Array:
        """A native array in this layout."""
        return self._backend.channels_last(self._backend.array(host))


_WINDOW = 2048
"""Elements that change between two values: more would leave another array's values in the caches."""
_FACTORS = 65_537


class Contents:
    """Arrays whose values change in place: ``native`` is what the operator gets, ``hosts`` are equal copies.

    Each change overwrites a window of each array (or all of it) with its first values, taken from another place and
    each scaled on its own: else what was computed once could be moved and scaled alike. Arrays at positions ``fixed``
    are left alone, and ``structural`` ones are also passed as they are. So are integers if ``only_floats``: those of a
    custom operator may have a structure, such as row pointers. ``weights`` change only outside of samples: a framework
    may rearrange weights once, as long as it notices when they change. The copies have the memory order of the native
    arrays, such as channels last.
    """

    def __init__(
        self,
        hosts: Sequence[Host | None],
        reader: Reader,
        *,
        fixed: frozenset[int] = frozenset(),
        structural: frozenset[int] = frozenset(),
        weights: frozenset[int] = frozenset(),
        only_floats: bool = False,
    ) -> None:
        self._reader, self._random = reader, random.SystemRandom()
        self._only_floats, self._mixed = only_floats, True
        self._fixed, self._structural, self._weights = fixed | structural, structural, weights
        self.native: list[Array] = [
            each if each is None or at in structural else reader.array(np.array(each, order="C"))
            for at, each in enumerate(hosts)
        ]
        views = [
            None if each is None or at in structural else _dense(reader.memory(each))
            for at, each in enumerate(self.native)
        ]
        self._views = [None if view is None else view.ravel("K") for view in views]
        self.hosts = [
            None if each is None else np.array(each, order="C") if view is None else view.copy("K")
            for each, view in zip(hosts, views, strict=True)
        ]
        self._base = [None if each is None else each.copy("K") for each in self.hosts]
        empty = np.empty(0)
        self._rows = [empty if each is None else each.ravel("K") for each in self.hosts]
        self._first = [empty if each is None else each.ravel("K") for each in self._base]
        kinds = "" if only_floats else "biu"
        self._whole = [
            at
            for at, each in enumerate(self._rows)
            if each.size and at not in self._fixed and (is_float(each.dtype) or each.dtype.kind in kinds)
        ]
        self._often = [at for at in self._whole if at not in weights]

    @property
    def readable(self) -> bool:
        """Whether the host can read native arrays in place."""
        return any(view is not None for view in self._views)

    def twin(self) -> Contents:
        """Other arrays with the same first values, which change in the same ways."""
        parts = {"fixed": self._fixed, "structural": self._structural, "weights": self._weights}
        other = Contents(self._base, self._reader, **parts, only_floats=self._only_floats)
        if not self._mixed:
            other.calm(still=not self._whole)
        return other

    @property
    def kind(self) -> type | None:
        """The type of the framework's own arrays."""
        given = (each for at, each in enumerate(self.native) if each is not None and at not in self._structural)
        return next(map(type, given), None)

    def change(self, *, whole: bool = True) -> None:
        """Give arrays other values; unless ``whole``, only a few of a large one (caches stay warm), and no weights."""
        for at in self._whole if whole else self._often:
            host, base = self._rows[at], self._first[at]
            n = host.size
            width = n if whole else min(n, _WINDOW)
            start = int(self._random.random() * (n - width + 1))
            part = host[start : start + width]
            source = base[start : start + width]
            if self._mixed and width == n:
                source = np.roll(source, int(self._random.random() * n))
            elif self._mixed:
                other = int(self._random.random() * (n - width + 1))
                source = base[other : other + width]
            if is_float(host.dtype):
                self._scale(source, part)
            else:
                part[:] = source
            self._write(at, start, start + width)

    def _scale(self, source: Host, part: Host) -> None:
        """Write ``source`` times random factors from 0.6 to 1 into ``part``; times one of them if calm."""
        factors = np.asarray(0.6 + 0.4 * self._random.random(), part.dtype)
        if self._mixed:
            draw = np.random.Generator(np.random.PCG64(self._random.getrandbits(128)))
            factors = (0.6 + 0.4 * draw.random(min(_FACTORS, part.size), np.float32)).astype(part.dtype)
        for start in range(0, part.size, _FACTORS):
            some = source[start : start + _FACTORS]
            np.multiply(some, factors[: some.size] if self._mixed else factors, out=part[start : start + _FACTORS])

    def calm(self, *, still: bool = False) -> None:
        """Put the first values back; from now on, values stay where they are and are only scaled (``still``: kept)."""
        self._mixed = False
        if still:
            self._whole, self._often = [], []
        for at, (host, base) in enumerate(zip(self.hosts, self._base, strict=True)):
            if host is not None and base is not None and at not in self._structural:
                host[...] = base
                self._write(at, 0, host.size)

    def _write(self, at: int, start: int, stop: int) -> None:
        view, host = self._views[at], self.hosts[at]
        if host is None:
            return
        if view is None:
            self.native[at] = self._reader.array(host.copy())
        else:
            view[start:stop] = self._rows[at][start:stop]
            self._reader.written(self.native[at])

    def touched(self) -> int | None:
        """The position of an array that the operator wrote to, if it did."""
        for at, (host, view) in enumerate(zip(self._rows, self._views, strict=True)):
            if view is not None and view.tobytes() != host.tobytes():
                return at
        return None


_GLANCES = 64
_QUIET_S = 0.05
_NAP_S = 1e-3
_HELD_BYTES, _HELD, _SURELY = 64 << 20, 16, 2
_ROUNDS = 15
_REMEMBERS, _SLACK_NS, _MOST_PAIRS = 1.5, 1_000, 0.8
_SHORT, _SHORT_ON_DEVICES, _SHORT_NS = 0.1, 0.5, 5_000
_LAST = 4
_SHORT_CALL_NS = 200_000
_SELDOM, _CHECKS, _FIRST, _OFTEN = 10, 0.1, 2, 1.5
_FASTER, _FRESH_NS, _MADE_NS, _MOST_FRESH = 3.0, 20_000, 1_000_000, 100
_MANY, _MANY_NS = 80, 1_000_000
# Kept here, since foreign code may replace them in their modules (which the seal then tells).
_sleep, _process_ns, _thread_ns = time.sleep, time.process_time_ns, time.thread_time_ns


class Watch:
    """A measured call whose inputs change between values and whose outputs are checked at random values.

    ``call`` gets the native arrays of ``contents``. ``judge`` says what is wrong with outputs on the host for given
    inputs, if anything. ``ours`` is whether the user wrote it: then an output must not share memory with an input.
    ``gaps`` is whether some outputs are ``None``. ``seldom`` is for checks that take long: only a few values are
    checked, most of them at the end.

    Which values are checked is drawn when they have been taken, since an operator may look at its callers.

    ``unchanged`` is why an operator of the user's got its inputs only as they were, or scaled: it fails on others. What
    such calls return may be remembered, so their time is no evidence.
    """

    def __init__(
        self,
        call: Callable[..., Sequence[Array | None]],
        contents: Contents,
        reader: Reader,
        judge: Callable[[Sequence[Host | None], Sequence[Host | None]], str],
        *,
        ours: bool,
        gaps: bool = False,
        seldom: bool = False,
    ) -> None:
        self.contents, self._reader, self._judge, self._ours = contents, reader, judge, ours
        self._random = random.SystemRandom()
        self._seldom, self._repeats = seldom, False
        self._began_ns, self._checks_ns = HOST.now_ns(), 0
        self._inner, self._changed, self._changes = 1, False, 0
        self._claims: list[tuple[int, int]] = []
        self._a_call_ns: list[float] = []
        self._fresh_ns: list[int] = []
        self._held: list[tuple[list[Host | None], list[Host | None]]] = []
        self.is_view = False
        self.unchanged = ""
        native, finish = contents.native, reader.finish

        def work() -> Sequence[Array | None]:
            found = call(*native)
            finish(found)
            return found

        def work_with_gaps() -> Sequence[Array | None]:
            found = call(*native)
            finish([each for each in found if each is not None])
            return found

        self._call = call
        self.work = work_with_gaps if gaps else work

    def consists_of(self, contents: Contents, judge: object) -> bool:
        """Whether it still has these parts, and no others."""
        return self.contents is contents and self._judge is judge and not vars(self).keys() & vars(type(self)).keys()

    def before(self, inner: int) -> None:
        """Change the contents of the inputs, before a value of ``inner`` calls.

        Between short calls that would be felt, so it is seldom and does not show in a median; whether such calls
        remember each other's results is found at the end.
        """
        short = inner > 1 or (bool(self._claims) and self._claims[-1][0] < _SHORT_CALL_NS)
        self._repeats |= short
        self._inner = inner
        self._changed = not short or len(self._claims) < _FIRST or not self._random.randrange(_SELDOM)
        if self._changed:
            self.contents.change(whole=not self._random.randrange(4))

    def after(self, found: Sequence[Array | None], claimed_ns: int, real_ns: int) -> None:
        """Look at the outputs of the last call of a value, which took ``claimed_ns`` and, on another clock, longer."""
        self._claims.append((claimed_ns, real_ns))
        self._a_call_ns.append(claimed_ns / self._inner)
        if not self._changed:
            return
        self._changes += 1
        before_ns = HOST.now_ns()
        affordable = self._checks_ns <= _CHECKS * (before_ns - self._began_ns)
        self._hold(found)
        if self._seldom and self._changes > 1:
            return
        if affordable and self._random.random() * self._changes < _OFTEN:
            self.check(found)
            self._checks_ns += HOST.now_ns() - before_ns

    def _hold(self, found: Sequence[Array | None]) -> None:
        """Keep copies of some values until the end, when the reference may no longer know them; each is as likely."""
        size = sum(each.nbytes for each in self.contents.hosts if each is not None)
        most = min(_HELD, max(_SURELY, _HELD_BYTES // max(1, size))) if size <= _HELD_BYTES else 0
        at = len(self._held) if len(self._held) < most else self._random.randrange(self._changes)
        if not self._ours or at >= most:
            return
        kept = [None if each is None else each.copy() for each in self.contents.hosts], self._hosted(found)
        self._held[at : at + 1] = [kept]

    def check(self, found: Sequence[Array | None]) -> None:
        """Raise ``RefusedError`` or ``WrongError`` unless ``found`` was computed from the current contents by now."""
        early = self._glance(found)
        busy_ns = settle()
        late = self._hosted(found)
        for at, (first, output) in enumerate(zip(early, late, strict=True)):
            if first is not None and output is not None and first != _some(output):
                busy = f", and other threads were busy for {busy_ns / 1e6:.3g} ms" if busy_ns else ""
                raise RefusedError(
                    f"output {at} of a timed call still changed after the clock had stopped{busy}: "
                    "part of its work is done on another thread or stream"
                )
        self._kinds(found, late)
        if (changed := self.contents.touched()) is not None:
            raise RefusedError(f"it changes its input {changed} in place")
        SEAL.need_whole()
        if wrong := self._judge(self.contents.hosts, late):
            raise WrongError(f"in a timed call whose inputs had new contents: {wrong}")

    def _glance(self, found: Sequence[Array | None]) -> list[bytes | None]:
        """A few elements of each output, read at once."""
        return [None if each is None or (view := self._reader.memory(each)) is None else _some(view) for each in found]

    def _hosted(self, found: Sequence[Array | None]) -> list[Host | None]:
        return [None if each is None else np.asarray(self._reader.host(each)) for each in found]

    def _kinds(self, found: Sequence[Array | None], late: Sequence[Host | None]) -> None:
        """Refuse arrays of other types than the framework's own, which may be computed when they are looked at."""
        own, readable = self.contents.kind, self.contents.readable
        for at, (each, host) in enumerate(zip(found, late, strict=True)):
            if each is None or host is None or own is None or isinstance(each, int | float | np.generic):
                continue
            if type(each) is not own:
                raise RefusedError(
                    f"output {at} is a {type(each).__name__}, which may be computed when it is looked at"
                )
            if readable and host.dtype.kind in "biuf" and host.size and self._reader.memory(each) is None:
                raise RefusedError(f"output {at} is not in memory: it may not have been computed yet")

    def rehearse(self, calls: int = 4) -> None:
        """``calls`` before any is timed: which outputs are views, and whether calls share their outputs."""
        for still in (False, True) if self._ours else ():
            self.contents.change()
            try:
                self._judge(self.contents.hosts, self._hosted(self.work()))
                break
            except Exception as error:  # noqa: BLE001  # whatever it raises, it is not called so again
                text = error.found if isinstance(error, LevelbenchError) else f"{type(error).__name__}: {error}"
                self.unchanged = self.unchanged or f"on other contents of its inputs it fails: {text[:200]}"
                # Its inputs may have a structure that other values break.
                self.contents.calm(still=still)
        before_ns = HOST.now_ns()
        held = [self.work()]
        calls = _MANY if HOST.now_ns() - before_ns < _MANY_NS else calls
        hosts = [self._hosted(held[0])]
        self._kinds(held[0], hosts[0])
        size = sum(each.nbytes for each in hosts[0] if each is not None)
        self.contents.change()
        self.is_view = not _same(self._hosted(held[0]), hosts[0])
        if self.is_view and self._ours:
            raise RefusedError("an output shares memory with an input")
        for _ in range(0 if self.is_view else min(calls - 1, max(1, _HELD_BYTES // max(1, size)))):
            held.append(self.work())
            hosts.append(self._hosted(held[-1]))
            self.contents.change()
        if any(not _same(self._hosted(each), host) for each, host in zip(held, hosts, strict=True) if not self.is_view):
            raise RefusedError("the output of one call is overwritten by a later one")

    def conclude(self, clock: Clock) -> None:
        """After the last value: a few more calls that are checked, clocks, and whether results are remembered."""
        for at in range((2 if self._ours else 1) if self._seldom else _LAST):
            self.contents.change(whole=at % 2 == 0)
            claimed, real, found = timed(self.work, clock, 1)
            self._claims.append((claimed, real))
            self._fresh_ns.append(claimed)
            self.check(found)
            del found
        self._judge_held()
        short = self._short(self._claims, clock)
        # On a busy machine the scheduler can come between the readings of both clocks, but not each time anew.
        if short > 1 and (short := self._short([timed(self.work, clock, 1)[:2] for _ in range(_ROUNDS)], clock)) > 1:
            raise RefusedError(f"its clock counted less than another one, which counted {short:.3g} times it")
        if self._repeats and remembers(self._call, self.contents, self._reader.finish, clock, self._fresh_ns.append):
            raise RefusedError("a call with new contents takes far longer than one with the same: it remembers results")
        self._need_pace(clock)

    def _short(self, claims: Sequence[tuple[int, int]], clock: Clock) -> float:
        """How many times what ``clock`` counted another clock did, in the median; 1 if no more than is allowed."""
        empty = sorted(real - claimed for claimed, real, _ in (timed(_nothing, clock, 1) for _ in range(_ROUNDS)))
        gaps = sorted((real - empty[_ROUNDS // 2] - claimed, claimed) for claimed, real in claims)
        gap, claimed = gaps[len(gaps) // 2]
        allowed = max((_SHORT if clock is HOST else _SHORT_ON_DEVICES) * claimed, _SHORT_NS)
        return 1 + gap / max(1, claimed) if gap > allowed else 1

    def _judge_held(self) -> None:
        """Raise ``WrongError`` if one of the kept values is wrong; all of them, or as many as there is time for."""
        self._random.shuffle(self._held)
        before_ns = HOST.now_ns()
        for at, (given, kept) in enumerate(self._held):
            if at >= _SURELY and HOST.now_ns() - before_ns > before_ns - self._began_ns:
                break
            if wrong := self._judge(given, kept):
                raise WrongError(f"in a timed call whose inputs had new contents: {wrong}")

    def _need_pace(self, clock: Clock) -> None:
        """Refuse if all calls with new contents took far longer than the timed ones, also when there are more."""
        a_call_ns = sorted(self._a_call_ns)[len(self._a_call_ns) // 2] if self._a_call_ns else math.inf
        limit_ns = _FASTER * a_call_ns + (_FRESH_NS if self.contents.readable else _MADE_NS)
        while min(self._fresh_ns) > limit_ns and len(self._fresh_ns) < _MOST_FRESH:
            self.contents.change(whole=False)
            self._fresh_ns.append(timed(self.work, clock, 1)[0])
        if (least_ns := min(self._fresh_ns)) > limit_ns:
            raise RefusedError(
                f"a timed call took {a_call_ns / 1e3:.3g} us, and each of {len(self._fresh_ns)} with new contents "
                f"at least {least_ns / 1e3:.3g} us: it does not compute its results in timed calls"
            )


def remembers(
    call: Callable[..., Sequence[Array | None]],
    contents: Contents,
    finish: Callable[[Sequence[Array]], object],
    clock: Clock,
    note: Callable[[int], object] = lambda _: None,
) -> bool:
    """Whether calls with new contents take far longer than calls with the last ones, with other contents in between.

    ``note`` gets the time of each call with new contents, in nanoseconds.
    """

    def work(given: Contents = contents) -> None:
        finish([each for each in call(*given.native) if each is not None])

    def slower() -> bool:
        other, count = contents.twin(), 0
        for _ in range(_ROUNDS):
            contents.change(whole=False)
            other.change(whole=False)
            work(other)
            fresh_ns = timed(work, clock, 1)[0]
            note(fresh_ns)
            work()
            count += fresh_ns > _REMEMBERS * timed(work, clock, 1)[0] + _SLACK_NS
        return count > _MOST_PAIRS * _ROUNDS

    return all(slower() for _ in range(3))


def settle() -> int:
    """Wait until other threads are quiet; the processor time in nanoseconds that they took meanwhile."""
    began = before = _process_ns() - _thread_ns()
    for _ in range(round(_QUIET_S / _NAP_S)):
        _sleep(_NAP_S)
        now = _process_ns() - _thread_ns()
        if now - before < _NAP_S * 1e9 / 5:
            break
        before = now
    return before - began


def _nothing() -> None:
    """What an empty call takes on each clock is not held against one."""


def _dense(view: Host | None) -> Host | None:
    """The memory, if it can be written as one row."""
    usable = view is not None and view.flags.writeable and np.shares_memory(view.ravel("K"), view)
    return view if usable else None


def _some(values: Host) -> bytes:
    """The bytes of a few elements, from the end to the beginning."""
    if not values.size:
        return b""
    found: Host = values.flat[:: -max(1, values.size // _GLANCES)]
    return found.tobytes()


def _same(first: Sequence[Host | None], second: Sequence[Host | None]) -> bool:
    pairs = zip(first, second, strict=True)
    return all(a is b or (a is not None and b is not None and a.tobytes() == b.tobytes()) for a, b in pairs)


SEAL.add(sys.modules[__name__])
