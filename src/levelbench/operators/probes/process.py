"""What a call leaves changed in its process: generators, the folder, the environment, modes and threads of libraries.

All of it is read before and after a call, and written back where that is possible. A call that imports a library for
the first time may change what that library sets up, so it is judged by a second call.
"""

from __future__ import annotations

import ctypes
import gc
import locale
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from levelbench.checks.findings import Finding, failed, noted, passed
from levelbench.measure.environment.software import threads
from levelbench.operators.probes.inputs import describe, large_inputs
from levelbench.operators.probes.judging import Setting
from levelbench.operators.probes.memory import unit_gradients
from levelbench.operators.probes.subject import HostOperator, Inputs, attempt, quiet

State = dict[str, object]
Part = tuple[Callable[[], object], Callable[[Any], object]]
"""How a part of the state is read, and written back."""

_GENERATORS = frozenset(f"{each}'s random generator" for each in ("Python", "NumPy", "PyTorch", "the C library"))
_MODE = "the processor's rounding or subnormal numbers"


def process_state(setting: Setting, inputs: Inputs, random: np.random.Generator) -> Iterator[Finding]:
    """Calls leave the process as it was: other code relies on it. A random operator may draw from a generator."""
    subject = setting.subject
    if not subject.ours:
        return
    _read_c_generator()
    if not all(_mode()):
        yield noted("subnormal numbers are flushed to zero in this process, before any call")
    # Another way for large inputs may change something of its own, such as the number of threads.
    for given in (inputs, *(each for _, each in large_inputs(inputs, subject.fixed, random))):
        made = attempt(subject.native, given)
        if not made.worked:
            continue
        for name, call in _calls(subject, made.value).items():
            if changed := changed_by(call, draws=not subject.deterministic):
                what = f"a {name} changes {' and '.join(changed)}"
                yield failed(what, "leave the process as the call found it", case=describe(given))
                return
    yield passed("generators, folder, environment, modes and threads")


def _calls(subject: HostOperator, native: Sequence[Any]) -> dict[str, Callable[[], object]]:
    """The calls of the forward and, if there is one, of the backward."""
    pull = subject.pull
    if pull is None:
        return {"forward": lambda: subject.call(*native)}

    def backward() -> object:
        given = unit_gradients(subject.hosted(subject.outputs(native)))
        return pull([None if each is None else subject.to_native(each) for each in given], native)

    return {"forward": lambda: subject.call(*native), "backward": backward}


def changed_by(call: Callable[[], object], *, draws: bool) -> list[str]:
    """The parts of the state that a call changes; with ``draws``, a generator only if it is set instead of drawn from.

    What raises changes nothing here: other probes report it.
    """
    unused = "torch" not in sys.modules
    with quiet(), np.errstate(divide="warn", over="warn", invalid="warn", under="ignore"):
        # So that a generator that an earlier call has set is not found in that very state.
        _draw()
        states, modules = [_read()], [len(sys.modules)]
        for _ in range(2):
            with _Writing() as writing:
                attempt(call)
            if unused and (torch := sys.modules.get("torch")) is not None and hasattr(torch, "set_default_dtype"):
                # The call that has imported it may have set it, too: a second one then shows.
                _as_imported(torch)
                unused = False
            states.append(_read())
            modules.append(len(sys.modules))
            if not draws:
                _write(states[0], states[-1])
        before, first, second = states
        found = [] if modules[1] > modules[0] else _differing(before, first)
        # A call that is the first to import a library may load another one in turn, or change the environment.
        base = {**first, **before} if not draws else before
        found += [each for each in _differing(base, second) if each not in found]
        if draws:
            found = [each for each in found if each not in _GENERATORS or first[each] == second[each]]
            _write(before, second)
    # The first call may write a cache; what the second one leaves, each will.
    return [*found, *(f"the file {each}, which it leaves" for each in writing.left()[:1])]


class _Writing:
    """The files that Python opens for writing in a block."""

    now: ClassVar[_Writing | None] = None
    heard: ClassVar[bool] = False

    def __init__(self) -> None:
        self._paths: list[str] = []

    def __enter__(self) -> _Writing:
        if not _Writing.heard:
            _Writing.heard = True
            sys.addaudithook(_Writing._hear)  # which cannot be removed
        _Writing.now = self
        return self

    def __exit__(self, *_: object) -> None:
        _Writing.now = None

    @staticmethod
    def _hear(event: str, arguments: tuple[Any, ...]) -> None:
        here = _Writing.now
        if here is None or event != "open":
            return
        path, _, flags = arguments
        if isinstance(path, str) and isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            here._paths.append(os.path.abspath(path))  # noqa: PTH100  # Path.absolute() keeps ".."

    def left(self) -> list[str]:
        """Those that are there afterwards."""
        return [each for each in self._paths if Path(each).is_file()]


def _differing(before: State, after: State) -> list[str]:
    return [name for name, value in before.items() if name in after and not _same(value, after[name])]


def _same(before: object, after: object) -> bool:
    """Whether two values are equal; of the threads of libraries, those count that were loaded before."""
    if isinstance(before, _Threads) and isinstance(after, _Threads):
        return all(after.get(name, count) == count for name, count in before.items())
    return before == after


class _Threads(dict[str, int]):
    """The threads of each library."""


def _draw() -> None:
    np.random.random()  # the generator that operators may change
    random = sys.modules.get("random")
    if random is not None:
        random.random()
    if (torch := sys.modules.get("torch")) is not None:
        torch.rand(1)
    if any(bytes(_C_GENERATOR)):
        ctypes.CDLL(None).rand()


def _read() -> State:
    return {name: read() for name, (read, _) in _parts().items()}


def _write(wanted: State, found: State) -> None:
    parts = _parts()
    for name in _differing(wanted, found):
        # Not everything can be written back from everywhere, such as the handlers of signals from a thread.
        with suppress(ValueError, OSError, TypeError, RuntimeError):
            parts[name][1](wanted[name])


def _parts() -> Mapping[str, Part]:
    """The parts of the state of this process, of which some exist only once a library is imported."""
    parts: dict[str, Part] = {
        _MODE: (_mode, _set_mode),
        "NumPy's random generator": (_numpy_generator, _set_numpy_generator),
        "NumPy's handling of floating-point errors": (np.geterr, lambda kept: np.seterr(**kept)),
        "NumPy's print options": (np.get_printoptions, lambda kept: np.set_printoptions(**kept)),
        "the current folder": (_folder, os.chdir),
        "the environment variables": (_environment, _set_environment),
        "the C library's random generator": (lambda: bytes(_C_GENERATOR), _set_c_generator),
        "the folders of imports": (lambda: list(sys.path), _set_path),
        "the level of logging": (lambda: logging.root.manager.disable, logging.disable),
        "the locale": (lambda: locale.setlocale(locale.LC_ALL), lambda kept: locale.setlocale(locale.LC_ALL, kept)),
        "handlers of signals": (_handlers, _set_handlers),
        "the blocked signals": (lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()), _set_blocked),
        "the signals that are caught or ignored": (_caught, _only_read),
        "the mask of new files": (lambda: _status("Umask"), lambda kept: os.umask(int(kept[0].split()[1], 8))),
        "the filters of warnings": (lambda: list(warnings.filters), _set_filters),
        "the recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit),
        "garbage collection": (lambda: (gc.isenabled(), gc.get_threshold()), _set_collection),
        "standard output or error": (lambda: (sys.stdout, sys.stderr), _set_streams),
        "the number of threads": (_library_threads, _only_read),
    }
    if hasattr(os, "sched_getaffinity"):
        parts["the cores of the process"] = lambda: os.sched_getaffinity(0), lambda kept: os.sched_setaffinity(0, kept)
    if (random := sys.modules.get("random")) is not None:
        parts["Python's random generator"] = random.getstate, random.setstate
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "get_rng_state"):
        parts |= _torch_parts(torch)
    if (jax := sys.modules.get("jax")) is not None and hasattr(jax, "config"):
        parts["JAX's configuration"] = lambda: dict(jax.config.values), _only_read
    return parts


def _as_imported(torch: Any) -> None:
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")


def _torch_parts(torch: Any) -> dict[str, Part]:
    def set_generator(kept: bytes) -> None:
        torch.set_rng_state(torch.frombuffer(bytearray(kept), dtype=torch.uint8))

    return {
        "PyTorch's random generator": (lambda: torch.get_rng_state().numpy().tobytes(), set_generator),
        "PyTorch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
        "PyTorch's default device": (torch.get_default_device, torch.set_default_device),
        "PyTorch's autograd mode": (torch.is_grad_enabled, torch.set_grad_enabled),
        "PyTorch's number of threads": (torch.get_num_threads, torch.set_num_threads),
        "PyTorch's deterministic mode": (
            torch.are_deterministic_algorithms_enabled,
            torch.use_deterministic_algorithms,
        ),
        "PyTorch's precision of matrix products": (
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
        ),
    }


def _only_read(_: object) -> None:
    """What cannot be written back."""


def _mode() -> tuple[bool, ...]:
    """Whether subnormal numbers are kept, and whether sums round to the nearest instead of to zero, up, or down."""
    tiny, one = np.full(16, 1e-40, np.float32), np.ones(16, np.float32)
    less, more = np.full(16, 2.0**-25, np.float32), np.full(16, 1.5 * 2.0**-24, np.float32)
    nearest = ((one + more > one).all(), (one + less == one).all(), (-one - less == -one).all())
    return bool((tiny * one != 0).all()), *(bool(each) for each in nearest)


def _set_mode(kept: tuple[bool, ...]) -> None:
    """Round to the nearest again."""
    if all(kept[1:]):
        ctypes.CDLL(None).fesetround(0)


def _numpy_generator() -> tuple[object, ...]:
    name, keys, *rest = np.random.get_state()  # the generator that operators may change
    return (name, np.asarray(keys).tobytes(), *rest)


def _set_numpy_generator(kept: tuple[Any, ...]) -> None:
    np.random.set_state((kept[0], np.frombuffer(kept[1], np.uint32), *kept[2:]))


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return "none"


_C_GENERATOR = (ctypes.c_char * 128)()
"""The numbers of C's rand() and random(), in memory that can be read."""


def _read_c_generator() -> None:
    """Move the C library's generator to where it can be read, once; it then starts as in a new process."""
    if not any(bytes(_C_GENERATOR)) and hasattr(libc := ctypes.CDLL(None), "initstate"):
        libc.initstate(1, _C_GENERATOR, len(_C_GENERATOR))


def _set_c_generator(kept: bytes) -> None:
    ctypes.memmove(_C_GENERATOR, kept, len(_C_GENERATOR))


def _environment() -> dict[str, str]:
    """The variables of C's ``environ``, which setenv() changes without Python's knowledge."""
    variables = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    found: dict[str, str] = {}
    for at in count() if variables else ():
        if (each := variables[at]) is None:
            break
        name, _, value = os.fsdecode(each).partition("=")
        found[name] = value
    return found


def _set_path(kept: list[str]) -> None:
    sys.path[:] = kept


def _set_environment(kept: Mapping[str, str]) -> None:
    for name in set(_environment()) - set(kept):
        os.environ.pop(name, None)
        os.unsetenv(name)
    os.environ.update(kept)


def _handlers() -> dict[signal.Signals | int, object]:
    return {each: signal.getsignal(each) for each in signal.valid_signals()}


def _set_handlers(kept: Mapping[signal.Signals, Any]) -> None:
    for each, handler in kept.items():
        if handler is not None and signal.getsignal(each) != handler:
            signal.signal(each, handler)


def _set_blocked(kept: set[signal.Signals]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, kept)


def _status(*names: str) -> list[str]:
    """Lines of what Linux tells about this thread; none elsewhere."""
    status = Path("/proc/thread-self/status")
    lines = status.read_text().splitlines() if status.is_file() else []
    return [each for each in lines if each.startswith(names)]


def _caught() -> list[int]:
    """The masks of the signals up to 31; the C library itself takes later ones when the first thread starts."""
    return [int(each.split()[1], 16) & 0x7FFFFFFF for each in _status("SigIgn", "SigCgt")]


def _set_filters(kept: Any) -> None:
    warnings.filters[:] = kept  # type: ignore[index]


def _set_collection(kept: tuple[bool, tuple[int, int, int]]) -> None:
    gc.set_threshold(*kept[1])
    (gc.enable if kept[0] else gc.disable)()


def _set_streams(kept: tuple[Any, Any]) -> None:
    sys.stdout, sys.stderr = kept


def _library_threads() -> _Threads:
    return _Threads({name: found["threads"] for name, found in threads()["loaded"].items()})
