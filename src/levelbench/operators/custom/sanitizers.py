"""Runs a C++ operator built with the compiler's sanitizers, which see what results need not show.

AddressSanitizer sees reads and writes outside of arrays, UndefinedBehaviorSanitizer signed overflow and the like,
ThreadSanitizer two threads that use the same memory. Python itself is not built with them, so their runtime is loaded
before it (``LD_PRELOAD``), in a process of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import resource
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from levelbench.checks import isolation
from levelbench.checks.isolation import JsonLine, Say
from levelbench.errors import UnsupportedError
from levelbench.operators.custom import host
from levelbench.operators.custom.compile import INCLUDE, compile_source, compiler
from levelbench.operators.custom.compiled import CompiledOperator, Library, address_of
from levelbench.operators.custom.definition import differentiable, spec_of
from levelbench.operators.custom.isolation import read_arrays, write_arrays
from levelbench.operators.custom.library import classes_of

_EXIT: Final = 86
_TIMEOUT_S: Final = 120.0
_REPEATS, _THREADS = 2, 2
_MEET_S: Final = 30.0


@dataclass(frozen=True)
class Sanitizer:
    """A kind of build: its flags, the runtime to load first, and the variables that set it."""

    name: str
    flags: tuple[str, ...]
    runtime: str
    variables: dict[str, str]
    threads: int = 1


_COMMON: Final = ("-O1", "-g1", "-fno-omit-frame-pointer")
SANITIZERS: Final = (
    Sanitizer(
        "AddressSanitizer and UndefinedBehaviorSanitizer",
        # A null pointer to no bytes is harmless, and what an empty std::vector gives.
        (*_COMMON, "-fsanitize=address,undefined", "-fno-sanitize=nonnull-attribute,pointer-overflow"),
        "libasan.so",
        {
            "ASAN_OPTIONS": f"detect_leaks=0:exitcode={_EXIT}:allocator_may_return_null=1",
            "UBSAN_OPTIONS": f"halt_on_error=1:exitcode={_EXIT}",
            "PYTHONMALLOC": "malloc",
        },
    ),
    Sanitizer(
        "ThreadSanitizer",
        (*_COMMON, "-fsanitize=thread", "-pthread", "-include", str(INCLUDE / "levelbench_at_once.h")),
        "libtsan.so",
        {
            "TSAN_OPTIONS": f"halt_on_error=1:exitcode={_EXIT}:report_signal_unsafe=0",
            # Other libraries are not built with it, so their threads would look like races.
            **{f"{each}_NUM_THREADS": "1" for each in ("OMP", "OPENBLAS", "MKL")},
        },
        _THREADS,
    ),
)


def runtime_of(sanitizer: Sanitizer) -> Path:
    """The library to load first; ``UnsupportedError`` where the compiler has none."""
    words = compiler()
    done = subprocess.run(
        [*words, f"-print-file-name={sanitizer.runtime}"], capture_output=True, text=True, check=False
    )
    found = Path(done.stdout.strip())
    if done.returncode != 0 or not found.is_absolute() or not found.is_file():
        what = f"{words[0]} has no {sanitizer.runtime}"
        raise UnsupportedError(f"a build with {sanitizer.name}", what, "use a g++ with its sanitizers")
    return found


def run_sanitized(
    operator: CompiledOperator, samples: Sequence[Sequence[NDArray[Any]]], sanitizer: Sanitizer
) -> str | None:
    """What the sanitizer reports of forwards and backwards on ``samples``, with the line; ``None`` if nothing.

    Raises ``UnsupportedError`` where the compiler lacks it or its runtime cannot be loaded, and what compiling raises.
    """
    runtime = runtime_of(sanitizer)
    library = compile_source(operator.source, flags=sanitizer.flags)
    with tempfile.TemporaryDirectory(prefix="levelbench-") as made:
        folders = [Path(made) / str(at) for at in range(len(samples))]
        described = []
        for folder, sample in zip(folders, samples, strict=True):
            folder.mkdir()
            described.append(write_arrays(folder, "input", sample))
        request = {
            "library": str(library),
            "source": str(operator.source),
            "index": operator.index,
            "attributes": dict(operator.attributes),
            "folders": [str(each) for each in folders],
            "samples": described,
            "threads": sanitizer.threads,
        }
        said: list[JsonLine] = []
        variables = {**sanitizer.variables, "LD_PRELOAD": str(runtime)}
        with _unlimited():
            ended = isolation.run_isolated(
                f"{__name__}:exercise", request, said.append, timeout_s=_TIMEOUT_S, variables=variables
            )
    if ended.error is not None:
        raise ended.error
    if report := _report(ended.printed, operator.source):
        return report
    if ended.how:
        # Without a report it is the sanitizer that could not run here, unless the operator had begun.
        if said:
            return f"its process ended: {ended.how}"
        raise UnsupportedError(f"a run under {sanitizer.name}", f"it ended: {ended.how}", "run levelbench elsewhere")
    return None


@contextlib.contextmanager
def _unlimited() -> Iterator[None]:
    """Lift this process's own cap on memory: a sanitizer reserves terabytes of addresses before Python begins."""
    now, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (now, most))


_SUMMARY = re.compile(r"SUMMARY: \w+: (?P<what>.*)|(?P<place>\S+:\d+:\d+): runtime error: (?P<error>.*)")


def _report(printed: str, source: Path) -> str | None:
    """The first report in one line, with the first line of the operator's own file that it names."""
    found = _SUMMARY.search(printed)
    if found is None:
        return None
    where = re.search(rf"{re.escape(source.name)}:\d+", printed[max(0, found.start() - 20_000) :])
    what = found["error"] or found["what"].split(" ")[0].replace("-", " ")
    kind = re.search(r"ERROR: AddressSanitizer: (\S+).*?\n(\w+) of size (\d+)", printed, re.DOTALL)
    if kind and not found["error"]:
        what = f"{kind[1].replace('-', ' ')}, a {kind[2].lower()} of {kind[3]} bytes"
    if "data race" in printed and not found["error"]:
        what = "data race: two calls at the same time use the same memory"
    return f"{what}, at {where[0]}" if where else what


def exercise(request: JsonLine, say: Say) -> None:
    """The part of :func:`run_sanitized` that runs in the other process."""
    library = Library(Path(request["library"]), Path(request["source"]))
    operator = classes_of(library)[request["index"]](**request["attributes"])
    samples = [
        [each for each in read_arrays(Path(folder), described) if each is not None]
        for folder, described in zip(request["folders"], request["samples"], strict=True)
    ]
    if request["threads"] > 1:
        for name in ("forward", "backward"):
            setattr(library, name, _AtOnce(library, name))
    say({"stage": "run"})

    def work() -> None:
        for _ in range(_REPEATS):
            for sample in samples:
                _call(operator, sample)

    workers = [threading.Thread(target=work) for _ in range(request["threads"])]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    say({"stage": "end"})


class _AtOnce:
    """A function of a library that waits until two threads call it, and makes both calls at the same time."""

    def __init__(self, library: Library, name: str) -> None:
        own = ctypes.CDLL(str(library.path)).levelbench_at_once
        own.restype, own.argtypes = ctypes.c_int32, [ctypes.c_void_p] * 4
        self._at_once, self._function = own, address_of(getattr(library, name))
        self._calls: list[tuple[int, int]] = []
        self._status = 0
        self._barrier = threading.Barrier(_THREADS, self._run, _MEET_S)

    def __call__(self, handle: int, address: int) -> int:
        self._calls.append((handle, address))
        self._barrier.wait()
        return self._status

    def _run(self) -> None:
        (handle, first), (_, second) = self._calls
        self._calls.clear()
        self._status = self._at_once(self._function, handle, first, second)


def _call(operator: CompiledOperator, inputs: Sequence[NDArray[Any]]) -> None:
    """A forward and, if there is one, a backward; other probes report what they refuse."""
    try:
        outputs = host.forward(operator, inputs)
        if operator.has_backward:
            slopes = [np.ones_like(each) if differentiable(spec_of(each)) else None for each in outputs]
            host.backward(operator, slopes, inputs, outputs)
    except Exception:  # noqa: BLE001  # only what the sanitizer sees is of interest here
        return
