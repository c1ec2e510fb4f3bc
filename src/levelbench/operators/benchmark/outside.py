"""Calls an operator of the user's from outside: the clock, the contents and the comparison are in another process.

Code that is measured can change whatever measures it in the same process: clocks, comparisons, the variables of its
callers. So it is called once more in a process of its own, by one that runs none of it. That one writes inputs that
nobody knew before to shared memory, encrypted with a key that it gives with the word to begin, and stops its clock when
the outputs are there. A third process computes the reference, in which the operator itself is never called.

What this shows is compared with the record: an operator that needs three times its recorded time here, with the time to
copy left out, did not compute its results in the recorded calls. Smaller differences are left to what watches in place.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from levelbench.checks.arrays import Host, is_float
from levelbench.checks.isolation import JsonLine, Say, run_isolated
from levelbench.errors import UnsupportedError
from levelbench.measure.clocks import HOST
from levelbench.measure.meters.resources import waited_ns
from levelbench.operators.benchmark.checking import Results, check
from levelbench.operators.benchmark.watching import ChannelsLast, Contents, OnNumpy, Reader
from levelbench.operators.contract import Array, Operator, as_tuple
from levelbench.operators.custom.definition import create
from levelbench.operators.custom.host import independent
from levelbench.operators.custom.isolation import read_arrays, write_arrays
from levelbench.operators.custom.library import load_file
from levelbench.operators.frameworks import open_framework
from levelbench.operators.node import OperatorNode
from levelbench.operators.suites.single import node_of
from levelbench.records.benchmarks import Problem

__all__ = ["OutsideCalls", "answer", "call_from_outside", "refer"]

_ALIGNMENT = 64
_ROUND_S, _MOST_CALLS, _MOST_BYTES = 0.005, 16, 64 << 20
_ROUNDS, _MOST_ROUNDS, _LEAST_S = 10, 100, 3.0
_FASTER, _KEPT = 3.0, 3
_CALL_S, _CONVERTED_S = 30e-6, {"numpy": 0.0, "torch": 100e-6}
_COPIES, _LARGE_COPIES, _LARGE_BYTES = 2, 5, 256 << 10
"""How often arrays are copied: those that do not fit into a cache take longer, and memory for them is fresh."""
_TIMEOUT_S = 300.0
_GROSS, _HUNDREDTH = 0.1, 0.01

Described = tuple[tuple[int, ...], str]
"""The shape and the dtype of an array."""


@dataclass(frozen=True)
class OutsideCalls:
    """The status that the case should have (empty: as it is), and why; pairs of found and expected outputs."""

    status: Literal["", "unchecked", "wrong", "refused"] = ""
    reason: str = ""
    results: Sequence[tuple[Sequence[Host | None], Sequence[Host | None]]] = ()

    @property
    def grossly_wrong(self) -> bool:
        """Whether a tenth of any output is off by a hundredth of its largest expected value."""
        return any(
            a is not None and b is not None and (a.shape != b.shape or _off(a, b) > _GROSS)
            for found, wanted in self.results
            for a, b in zip(found, wanted, strict=False)
        )


def call_from_outside(
    path: Path,
    problem: Problem,
    framework: str,
    inputs: Sequence[Host | None],
    recorded_s: float,
    fixed: frozenset[int] = frozenset(),
    *,
    channels_last: bool = False,
) -> OutsideCalls:
    """Call the operator of a problem that the file at ``path`` defines; compare with its reference and its record.

    ``recorded_s`` are the seconds of a call in its record (infinite: they are not compared); ``inputs`` at positions
    ``fixed`` keep their values. With ``channels_last`` those with four or five axes have that layout.
    """
    with tempfile.TemporaryDirectory(prefix="levelbench-") as made:
        folder = Path(made)
        asked = {"path": str(path), "problem": msgspec.to_builtins(problem), "folder": made, "framework": framework}
        asked["channels_last"] = channels_last
        converted_s = _CONVERTED_S.get(framework, 600e-6)
        with _Caller(folder, inputs, fixed, recorded_s, converted_s, more_copies=int(channels_last)) as caller:
            asked["inputs"] = [_described(each) for each in inputs]
            ended = run_isolated(f"{__name__}:answer", asked, caller.hear, timeout_s=_TIMEOUT_S)
        if ended.error is not None or ended.how or not caller.kept:
            found = ended.error.found if ended.error is not None else f"its process ended: {ended.how or 'early'}"
            return OutsideCalls("unchecked", f"not checked: called from outside, with new contents, it fails: {found}")
        if too_long := caller.too_long():
            return OutsideCalls("refused", too_long)
        try:
            told = _referred(folder, asked, [given for given, _ in caller.kept])
        except UnsupportedError as error:
            reason = f"not checked: there is no reference in a process of its own ({error.found})"
            return OutsideCalls("unchecked", reason)
        results = [(outputs, each) for (_, outputs), each in zip(caller.kept, told, strict=False)]
        for (given, outputs), expected in zip(caller.kept, told, strict=False):
            node = node_of(problem)
            reference = partial(_Told, folder=folder, asked=asked, outputs=expected)
            judged = check(node, Results(given, outputs), None, reference)
            if judged.wrong:
                return OutsideCalls("wrong", f"called from outside, with new contents: {judged.wrong}", results)
            if judged.checked.startswith("not checked"):
                return OutsideCalls("unchecked", judged.checked)
    return OutsideCalls()


class _Told(Operator):
    """A reference in a process of its own, whose first results are known."""

    def __init__(self, node: OperatorNode, folder: Path, asked: JsonLine, outputs: Sequence[Host | None]) -> None:
        self.node, self._folder, self._asked = node, folder, asked
        self._first: Sequence[Host | None] | None = outputs

    def forward(self, *inputs: Array) -> tuple[Array, ...]:
        found, self._first = self._first, None
        return tuple(_referred(self._folder, self._asked, [inputs])[0] if found is None else found)


def _referred(folder: Path, asked: JsonLine, samples: Sequence[Sequence[Host | None]]) -> list[list[Host | None]]:
    """The reference's results for each of ``samples``, from a process of its own; ``UnsupportedError`` if it fails."""
    request = asked | {"samples": [write_arrays(folder, f"given{at}", given) for at, given in enumerate(samples)]}
    wanted: list[JsonLine] = []
    ended = run_isolated(f"{__name__}:refer", request, wanted.append, timeout_s=_TIMEOUT_S)
    if ended.error is not None or ended.how or len(wanted) < len(samples):
        found = ended.error.found if ended.error is not None else f"its process ended: {ended.how or 'early'}"
        raise UnsupportedError("a reference in a process of its own", found, "say what is expected without it")
    return [read_arrays(folder, line["wanted"]) for line in wanted]


class _Shared:
    """Arrays of one description in a file that two processes share, ``count`` of each."""

    def __init__(self, path: Path, described: Sequence[Described | None], count: int) -> None:
        self._described = described
        self._sizes = [0 if each is None else _size(each) for each in described]
        self.bytes = sum(_rounded(each) for each in self._sizes)
        if not path.exists():
            with path.open("wb") as file:
                file.truncate(max(1, count * self.bytes))
        self._memory = np.memmap(path, np.uint8, "r+")

    def raw(self, at: int) -> Iterator[NDArray[Any] | None]:
        """The memory of the arrays number ``at``, rounded up to words of 8 bytes."""
        start = at * self.bytes
        for each, size in zip(self._described, self._sizes, strict=True):
            yield None if each is None else self._memory[start : start + _rounded(size)].view(np.uint64)
            start += _rounded(size)

    def arrays(self, at: int) -> list[Host | None]:
        """The arrays number ``at``."""
        return [_array(raw, each) for raw, each in zip(self.raw(at), self._described, strict=True)]


class _Caller:
    """The side that gives contents and reads the clock; :meth:`hear` gets the lines of the process that computes."""

    def __init__(
        self,
        folder: Path,
        inputs: Sequence[Host | None],
        fixed: frozenset[int],
        recorded_s: float,
        converted_s: float,
        more_copies: int = 0,
    ) -> None:
        self._folder, self._recorded_s, self._converted_s = folder, recorded_s, converted_s
        self._described = [_described(each) for each in inputs]
        self._contents = Contents(inputs, OnNumpy(), fixed=fixed, only_floats=True)
        self._calls, self._began_ns, self._rounds, self._copying_s = 1, 0, 0, inf
        self._least_s, self._copies, self._more_copies = inf, _COPIES, more_copies
        self._process = self._waited_before_ns = self._first_ns = 0
        self.kept: list[tuple[list[Host | None], list[Host | None]]] = []
        self._given: list[list[Host | None]] = []
        os.mkfifo(folder / "go")
        # Open for both, so that this never waits for a process that is gone.
        self._go = os.open(folder / "go", os.O_RDWR)
        write_arrays(folder, "first", inputs)

    def __enter__(self) -> _Caller:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._go)

    def hear(self, line: JsonLine) -> None:
        """A line of the process: what its outputs are, or that it has computed a round of them."""
        waits_ns, now_ns = waited_ns(self._process), HOST.now_ns()
        if "outputs" in line:
            self._process, self._first_ns = int(line["process"]), now_ns
            self._begin([(tuple(shape), dtype) for shape, dtype in line["outputs"]])
        else:
            # Of the first round, some is spent on pages that nobody has touched yet.
            waits_ns -= self._waited_before_ns
            took_s = (now_ns - self._began_ns - waits_ns) * 1e-9 / self._calls
            self._least_s = min(self._least_s, took_s if self._rounds else inf)
            self._keep()
            self._rounds += 1
        rounds = _ROUNDS if self._recorded_s < inf else _KEPT - 1
        enough = self._rounds > rounds and (not self.too_long() or self._tried())
        self._send([] if enough else [secrets.randbits(64) for _ in range(self._calls)])

    def _tried(self) -> bool:
        """Whether it was tried often and long enough: a busy machine is slow for seconds, but not by any factor."""
        often = self._rounds * self._least_s > _MOST_ROUNDS * self._most_s()
        return often and (HOST.now_ns() - self._first_ns) * 1e-9 > _LEAST_S

    def _most_s(self) -> float:
        """How long a call may take with its copies."""
        return _FASTER * self._recorded_s + self._copies * self._copying_s + _CALL_S + self._converted_s

    def too_long(self) -> str:
        """Why the recorded time is not that of the work; empty if it may be."""
        if self._least_s <= self._most_s():
            return ""
        return (
            f"called from outside, with new contents, it takes at least {self._least_s * 1e6:.3g} us with copies, and "
            f"{self._recorded_s * 1e6:.3g} us in its record: it did not compute its results in the timed calls"
        )

    def _begin(self, outputs: Sequence[Described]) -> None:
        a_call = sum(_rounded(_size(each)) for each in (*self._described, *outputs) if each is not None)
        self._copies = (_LARGE_COPIES if a_call > _LARGE_BYTES else _COPIES) * (1 + self._more_copies)
        self._calls = int(max(1, min(_MOST_CALLS, _ROUND_S / self._recorded_s, _MOST_BYTES / max(1, a_call))))
        self._inputs = _Shared(self._folder / "inputs", self._described, self._calls)
        self._outputs = _Shared(self._folder / "outputs", outputs, self._calls)

    def _send(self, keys: Sequence[int]) -> None:
        self._given.clear()
        # Any of the calls may be the one that is checked.
        self._chosen = secrets.randbelow(max(1, len(keys)))
        for at, key in enumerate(keys):
            self._contents.change()
            before_ns = HOST.now_ns()
            for raw, host in zip(self._inputs.raw(at), self._contents.hosts, strict=True):
                if raw is not None and host is not None:
                    raw[-1:] = 0
                    raw.view(np.uint8)[: host.nbytes] = host.reshape(-1).view(np.uint8)
                    np.bitwise_xor(raw, np.uint64(key), out=raw)
            for each in self._outputs.raw(at):
                if each is not None:
                    each[...] = np.uint64(key)
            self._copying_s = min(self._copying_s, (HOST.now_ns() - before_ns) * 1e-9)
            if at == self._chosen:
                self._given.append([None if each is None else each.copy() for each in self._contents.hosts])
        self._began_ns = HOST.now_ns()
        self._waited_before_ns = waited_ns(self._process)
        os.write(self._go, " ".join(map(str, [len(keys), *keys])).encode() + b"\n")

    def _keep(self) -> None:
        """Copy the inputs and outputs of the chosen call, in the last rounds."""
        outputs = [None if each is None else each.copy() for each in self._outputs.arrays(self._chosen)]
        self.kept = [*self.kept, (self._given[0], outputs)][-_KEPT:]


def answer(request: JsonLine, say: Say) -> None:
    """The part that runs in the operator's process."""
    # Told before the file can change who this seems to be.
    process = os.getpid()
    problem = msgspec.convert(request["problem"], Problem)
    folder = Path(request["folder"])
    backend = open_framework(request["framework"])
    load_file(request["path"])
    operator = backend.operator(node_of(problem))
    reader: Reader = ChannelsLast(backend) if request["channels_last"] else backend
    described = [None if each is None else (tuple(each[0]), str(each[1])) for each in request["inputs"]]

    def call(hosts: Sequence[Host | None]) -> tuple[Array, ...]:
        found = operator.forward(*(None if each is None else reader.array(each) for each in hosts))
        backend.finish(found)
        return found

    def read(each: Array) -> Host:
        view = backend.memory(each)
        return backend.host(each) if view is None else view

    first = read_arrays(folder, [_file(f"first-{at}", each) for at, each in enumerate(described)])
    held = call(first)
    outputs = [_described(read(each)) for each in held]
    scratch = [None if each is None else np.empty(_rounded(_size(each)) // 8, np.uint64) for each in described]
    hosts = [None if raw is None else _array(raw, each) for raw, each in zip(scratch, described, strict=True)]
    say({"outputs": outputs, "process": process})
    given = found = None
    with (folder / "go").open() as go:
        for line in go:
            count, *keys = map(int, line.split())
            if not count:
                return
            given = given or _Shared(folder / "inputs", described, count)
            found = found or _Shared(folder / "outputs", outputs, count)
            for at, key in enumerate(keys):
                for raw, place in zip(given.raw(at), scratch, strict=True):
                    if raw is not None:
                        np.bitwise_xor(raw, np.uint64(key), out=place)
                # The last one is held until now, as in a sample: memory is then used again.
                held = call(hosts)
                for place, each in zip(found.arrays(at), held, strict=True):
                    if place is not None:
                        place[...] = read(each)
            say({"done": count})


def refer(request: JsonLine, say: Say) -> None:
    """The part that runs in the reference's process: the operator's own is never called there."""
    load_file(request["path"])
    operator = create(node_of(msgspec.convert(request["problem"], Problem)))
    reference = independent(operator)
    folder = Path(request["folder"])
    for at, described in enumerate(request["samples"]):
        given = [
            each.astype(np.float64) if each is not None and is_float(each.dtype) else each
            for each in read_arrays(folder, described)
        ]
        with np.errstate(all="ignore"):
            found = [None if each is None else np.asarray(each) for each in as_tuple(reference(*given))]
        say({"wanted": write_arrays(folder, f"wanted{at}", found)})


def _off(found: Host, wanted: Host) -> float:
    """The share of values that are off by a hundredth of the largest expected one."""
    with np.errstate(all="ignore"):
        a, b = found.astype(np.float64), wanted.astype(np.float64)
        apart = ~(np.abs(a - b) <= _HUNDREDTH * np.abs(b[np.isfinite(b)]).max(initial=0.0)) & np.isfinite(b)
    return float(apart.mean()) if apart.size else 0.0


def _described(array: Host | None) -> Described | None:
    return None if array is None else (array.shape, array.dtype.name)


def _file(name: str, described: Described | None) -> JsonLine | None:
    return None if described is None else {"file": name, "shape": described[0], "dtype": described[1]}


def _size(described: Described) -> int:
    return int(np.prod(described[0], dtype=np.int64)) * np.dtype(described[1]).itemsize


def _rounded(size: int) -> int:
    return -(-max(1, size) // _ALIGNMENT) * _ALIGNMENT


def _array(raw: NDArray[Any] | None, described: Described | None) -> Host | None:
    """The memory as an array."""
    if raw is None or described is None:
        return None
    return raw.view(np.uint8)[: _size(described)].view(np.dtype(described[1])).reshape(described[0])
