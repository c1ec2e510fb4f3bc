"""Reads pickles of plain data and NumPy arrays, such as CIFAR's, and executes nothing.

The one idea: Python's own reader runs what a pickle tells it to; this one is an interpreter of its own, of those few
operations that data needs. The only calls it knows build a NumPy array or bytes, and it makes them itself; any other
name in a pickle is an error before anything is done. Operations: Python's ``pickletools``, protocols 2 to 4.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from levelbench.training.datasets.formats.unpacking import bad

__all__ = ["read_pickle"]

_MOST_OPERATIONS = 300_000  # CIFAR-100's training set, the largest of all, has 50,000 names and 100,000 labels
_MOST_DIMENSIONS = 8
_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")
_RECONSTRUCT = {"numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"}
_KNOWN = {*_RECONSTRUCT, "numpy ndarray", "numpy dtype", "_codecs encode", "__builtin__ bytes"}
_MARK = object()


class _NotData(Exception):
    """The pickle is damaged, or is more than data; the message says how."""


@final
@dataclass(frozen=True)
class _Name:
    """A function or class that a pickle names; nothing but a word."""

    text: str


@final
@dataclass(eq=False)
class _Built:
    """A dtype or an array that is still being put together."""

    kind: str
    value: Any = ""


def read_pickle(content: bytes, path: Path) -> Any:
    """The dicts, lists, tuples, numbers, bytes, strings and arrays of a pickle; ``path`` is for the message.

    Python 2's byte strings come as bytes. Arrays are read-only views of ``content``'s own copy.

    :raises DataError: when the pickle names anything else, claims more than it holds, or is damaged.
    """
    try:
        return _finished(_Machine(content).run())
    except _NotData as found:
        raise bad(path, "a pickle of plain data", str(found), "Nothing was executed. Fetch the file anew") from None


def _finished(value: Any) -> Any:
    """The array that a description stands for; containers are looked through one level, where CIFAR has its arrays."""
    if isinstance(value, _Built | _Name):
        return _array(value)
    if isinstance(value, dict):
        return {key: _array(each) if isinstance(each, _Built | _Name) else each for key, each in value.items()}
    return value


def _array(value: Any) -> Any:
    if isinstance(value, _Built) and value.kind == "array" and isinstance(value.value, np.ndarray):
        return value.value
    raise _NotData("a value of it is no array and no plain data")


class _Machine:
    """The stack machine that a pickle is a program of."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._encoded_bytes = 0

    def run(self) -> Any:
        for _ in range(_MOST_OPERATIONS):
            code = self._take(1)[0]
            if code == 0x2E:  # STOP
                return self._pop()
            operation = _OPERATIONS.get(code)
            if operation is None:
                raise _NotData(f"it has the operation 0x{code:02x}, which no plain data needs")
            operation(self)
        raise _NotData(f"it has more than {_MOST_OPERATIONS:,} operations")

    def _take(self, size: int) -> bytes:
        if size > len(self._content) - self._at:
            raise _NotData(f"it claims {size:,} bytes where {len(self._content) - self._at:,} are left")
        self._at += size
        return self._content[self._at - size : self._at]

    def _unsigned(self, size: int) -> int:
        return int.from_bytes(self._take(size), "little")

    def _line(self) -> str:
        end = self._content.find(b"\n", self._at, self._at + 200)
        if end < 0:
            raise _NotData("it has a name without an end")
        return self._take(end + 1 - self._at)[:-1].decode("latin-1")

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise _NotData("it takes from an empty stack")
        return self._stack.pop()

    def _since_mark(self) -> list[Any]:
        items: list[Any] = []
        while self._stack and self._stack[-1] is not _MARK:
            items.append(self._stack.pop())
        if not self._stack:
            raise _NotData("it has an end without a beginning")
        self._stack.pop()
        return items[::-1]

    def skip(self, size: int) -> None:
        self._take(size)

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def push_number(self, form: str) -> None:
        (value,) = struct.unpack(form, self._take(struct.calcsize(form)))
        self.push(value)

    def push_long(self) -> None:
        self.push(int.from_bytes(self._take(self._unsigned(1)), "little", signed=True))

    def push_bytes(self, width: int) -> None:
        self.push(self._take(self._unsigned(width)))

    def push_text(self, width: int) -> None:
        try:
            self.push(self._take(self._unsigned(width)).decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError:
            raise _NotData("it has text that is not in UTF-8") from None

    def push_tuple(self, count: int | None) -> None:
        items = self._since_mark() if count is None else [self._pop() for _ in range(count)][::-1]
        self.push(tuple(items))

    def append(self, many: bool) -> None:
        items = self._since_mark() if many else [self._pop()]
        self._top(list).extend(items)

    def set_items(self, many: bool) -> None:
        items = self._since_mark() if many else [self._pop(), self._pop()][::-1]
        # Only these keys: a tuple of tuples of tuples would be hashed for ever.
        if not all(isinstance(key, str | bytes | int) for key in items[::2]):
            raise _NotData("it has a key that is neither text nor a number")
        if len(items) % 2:
            raise _NotData("it has a key without a value")
        self._top(dict).update(zip(items[::2], items[1::2], strict=True))

    def _top(self, kind: type) -> Any:
        if not self._stack or not isinstance(self._stack[-1], kind):
            raise _NotData(f"it adds to something that is no {kind.__name__}")
        return self._stack[-1]

    def put(self, width: int) -> None:
        key = self._unsigned(width) if width else len(self._memo)
        if not self._stack:
            raise _NotData("it remembers the top of an empty stack")
        self._memo[key] = self._stack[-1]

    def get(self, width: int) -> None:
        key = self._unsigned(width)
        if key not in self._memo:
            raise _NotData("it recalls what it never remembered")
        self.push(self._memo[key])

    def name(self, on_stack: bool) -> None:
        if on_stack:
            attribute, module = self._pop(), self._pop()
        else:
            module, attribute = self._line(), self._line()
        words = f"{module} {attribute}" if isinstance(module, str) and isinstance(attribute, str) else "no text"
        if words not in _KNOWN:
            raise _NotData(f"it names {words[:80]!r}, which is no data: it wants to execute something")
        self.push(_Name(words))

    def reduce(self) -> None:
        given, called = self._pop(), self._pop()
        word = called.text if isinstance(called, _Name) else ""
        if not isinstance(given, tuple):
            raise _NotData("it calls something with what is no tuple")
        if word in _RECONSTRUCT:
            self.push(_Built("array"))
        elif word == "numpy dtype":
            self.push(_Built("dtype", _text_of(given[:1])))
        elif word == "_codecs encode" and given[1:] in (("latin1",), ("latin-1",)) and isinstance(given[0], str):
            self.push(self._encoded(given[0]))
        elif word == "__builtin__ bytes" and not given:
            self.push(b"")
        else:
            raise _NotData("it calls something that builds no array")

    def _encoded(self, text: str) -> bytes:
        # A text that is recalled again and again would be copied again and again.
        self._encoded_bytes += len(text)
        if self._encoded_bytes > len(self._content):
            raise _NotData("it makes more bytes than it holds")
        try:
            return text.encode("latin-1")
        except UnicodeEncodeError:
            raise _NotData("it has bytes that are none") from None

    def build(self) -> None:
        state = self._pop()
        built = self._stack[-1] if self._stack else None
        if not isinstance(built, _Built) or not isinstance(state, tuple):
            raise _NotData("it fills something that is no array")
        if built.kind == "dtype":
            order = _text_of(state[1:2])
            built.value = order + built.value if order in {"<", ">"} and len(built.value) == 2 else built.value
        else:
            built.value = _filled(state)


def _text_of(items: tuple[Any, ...]) -> str:
    """A short word of a dtype's description."""
    (item,) = items or ("",)
    if not isinstance(item, str | bytes) or len(item) > 4:
        return ""
    return item.decode("latin-1") if isinstance(item, bytes) else item


def _filled(state: tuple[Any, ...]) -> Any:
    """The array of NumPy's state: version, shape, dtype, whether the order is Fortran's, the bytes."""
    if len(state) != 5 or not isinstance(state[2], _Built) or not isinstance(state[4], bytes):
        raise _NotData("it has an array that is not described as NumPy does")
    _, shape, described, fortran, content = state
    if not _DTYPE.fullmatch(name := described.value if isinstance(described.value, str) else ""):
        raise _NotData(f"it has an array of {name[:20]!r}, which is no plain number")
    sized = isinstance(shape, tuple) and len(shape) <= _MOST_DIMENSIONS
    if not sized or not all(type(each) is int and 0 <= each < 1 << 40 for each in shape):
        raise _NotData("it has an array of no shape")
    dtype = np.dtype(name)
    hidden = math.prod(each or 1 for each in shape)  # by a length of 0; NumPy refuses too many all the same
    if math.prod(shape) * dtype.itemsize != len(content) or hidden >= 1 << 59:
        raise _NotData(f"it has an array of shape {shape} and {dtype} with {len(content):,} bytes of values")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")


_OPERATIONS: dict[int, Callable[[_Machine], None]] = {
    0x80: lambda machine: machine.skip(1),  # PROTO
    0x95: lambda machine: machine.skip(8),  # FRAME
    0x28: lambda machine: machine.push(_MARK),
    0x4E: lambda machine: machine.push(None),
    0x88: lambda machine: machine.push(True),
    0x89: lambda machine: machine.push(False),
    0x4B: lambda machine: machine.push_number("<B"),  # BININT1
    0x4D: lambda machine: machine.push_number("<H"),
    0x4A: lambda machine: machine.push_number("<i"),
    0x47: lambda machine: machine.push_number(">d"),  # BINFLOAT
    0x8A: lambda machine: machine.push_long(),
    0x55: lambda machine: machine.push_bytes(1),  # SHORT_BINSTRING, Python 2's str
    0x54: lambda machine: machine.push_bytes(4),
    0x43: lambda machine: machine.push_bytes(1),  # SHORT_BINBYTES
    0x42: lambda machine: machine.push_bytes(4),
    0x8E: lambda machine: machine.push_bytes(8),
    0x8C: lambda machine: machine.push_text(1),  # SHORT_BINUNICODE
    0x58: lambda machine: machine.push_text(4),
    0x8D: lambda machine: machine.push_text(8),
    0x5D: lambda machine: machine.push([]),
    0x7D: lambda machine: machine.push({}),
    0x29: lambda machine: machine.push(()),
    0x85: lambda machine: machine.push_tuple(1),
    0x86: lambda machine: machine.push_tuple(2),
    0x87: lambda machine: machine.push_tuple(3),
    0x74: lambda machine: machine.push_tuple(None),
    0x61: lambda machine: machine.append(False),
    0x65: lambda machine: machine.append(True),
    0x73: lambda machine: machine.set_items(False),
    0x75: lambda machine: machine.set_items(True),
    0x71: lambda machine: machine.put(1),  # BINPUT
    0x72: lambda machine: machine.put(4),
    0x94: lambda machine: machine.put(0),  # MEMOIZE
    0x68: lambda machine: machine.get(1),
    0x6A: lambda machine: machine.get(4),
    0x63: lambda machine: machine.name(False),  # GLOBAL
    0x93: lambda machine: machine.name(True),
    0x52: lambda machine: machine.reduce(),
    0x62: lambda machine: machine.build(),
}
