"""Reads pickles of plain data and NumPy arrays, such as CIFAR's, and executes nothing.

Python's own unpickler does the reading, with two safeguards. The only names that a pickle may look up are those that
build an array or bytes, and they resolve to our own objects. And a first pass over the operations refuses everything
that plain data does not need, including input that costs the unpickler far more than its size suggests.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, final

import numpy as np

from levelbench.training.datasets.reading import bad

_MOST_OPERATIONS = 300_000  # CIFAR-100's training set, the largest, has 50,000 names and 100,000 labels
_MOST_DIMENSIONS = 8
_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")
_TUPLES = frozenset({"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"})
_PUTS, _GETS = frozenset({"BINPUT", "LONG_BINPUT", "MEMOIZE"}), frozenset({"BINGET", "LONG_BINGET"})
_OTHERS = (
    "PROTO FRAME MARK STOP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINSTRING SHORT_BINSTRING "
    "BINBYTES SHORT_BINBYTES BINBYTES8 BINUNICODE SHORT_BINUNICODE BINUNICODE8 EMPTY_LIST EMPTY_DICT EMPTY_TUPLE "
    "APPEND APPENDS SETITEM SETITEMS GLOBAL STACK_GLOBAL REDUCE BUILD"
)
_OPERATIONS = _TUPLES | _PUTS | _GETS | frozenset(_OTHERS.split())
# What the unpickler raises for a pickle that is damaged, or that builds or calls something else.
_DAMAGED = (
    *(pickle.UnpicklingError, ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RecursionError),
    *(TypeError, ValueError),
)


class _NotData(Exception):
    """The pickle is damaged or is not just data; the message says how."""


def read_pickle(content: bytes, path: Path) -> object:
    """The dicts, lists, tuples, numbers, bytes, strings and arrays of a pickle; ``path`` is for the message.

    Python 2's byte strings become bytes. Arrays are read-only views of a copy of ``content``.

    :raises DataError: when the pickle names anything else, claims more than it holds, or is damaged.
    """
    try:
        _check_operations(content)
        return _unwrap(_Reader(content).load())
    except _NotData as error:
        found = str(error)
    except _DAMAGED as error:
        found = f"it is damaged ({error})"
    raise bad(path, "a pickle of plain data", found, "Nothing was executed. Fetch the file again") from None


def _check_operations(content: bytes) -> None:
    """Refuse operations that plain data does not need, too many of them, and recalls that would not end.

    The unpickler allocates its memo up to the highest index, and hashes a tuple used as a key from its leaves. So
    indices must be consecutive, and a tuple cannot be recalled, because nested tuples could take exponential time.
    """
    kept: dict[int, str] = {}
    before = ""
    for number, (operation, argument, _) in enumerate(pickletools.genops(content)):
        name = operation.name
        if number >= _MOST_OPERATIONS:
            raise _NotData(f"it has more than {_MOST_OPERATIONS:,} operations")
        if name not in _OPERATIONS:
            raise _NotData(f"it has the operation {name}, which plain data does not need")
        if name in _PUTS:
            place: int = len(kept) if argument is None else argument
            if place > _MOST_OPERATIONS:
                raise _NotData(f"it stores something at index {place:,} of the memo")
            kept[place] = before
        elif name in _GETS and kept.get(argument or 0, "") in _TUPLES:
            raise _NotData("it recalls a tuple")
        before = name


class _Reader(pickle.Unpickler):
    """Python's unpickler, restricted to the names of an array's parts."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        self._left = len(content)

    def find_class(self, module: str, name: str, /) -> Any:
        """Our own object for the name."""
        match module, name:
            case "numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct":
                return _Named(lambda *_: _Array())
            case "numpy", "dtype":
                return _Named(_Dtype)
            case "_codecs", "encode":
                return _Named(self._encode)
            case "__builtin__", "bytes":
                return _Named(bytes)
            case "numpy", "ndarray":
                return _Named(_refuse_call)
        raise _NotData(f"it names {f'{module} {name}'[:80]!r}, which is not data: it would execute something")

    def _encode(self, text: str, encoding: str) -> bytes:
        # A text that is recalled repeatedly would be copied each time.
        self._left -= len(text)
        if self._left < 0:
            raise _NotData("it builds more bytes than it holds")
        if encoding not in ("latin1", "latin-1"):
            _refuse_call()
        return text.encode("latin-1")


def _refuse_call(*_: object) -> NoReturn:
    raise _NotData("it calls something that does not build an array")


@final
class _Named:
    """An object that a pickle may name: it can be called, but its state cannot be set."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, *given: Any) -> Any:
        if self._make is bytes and given:
            _refuse_call()
        return self._make(*given)

    def __setstate__(self, state: object) -> None:
        raise _NotData("it sets the state of something that is not an array")


@final
class _Dtype:
    """NumPy's dtype as a pickle describes it: a type with its size, then the byte order."""

    __slots__ = ("text",)

    def __init__(self, described: object = "", *_: object) -> None:
        self.text = _word(described)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = _word(state[1]) if isinstance(state, tuple) and len(state) > 1 else ""
        if order in {"<", ">"} and len(self.text) == 2:
            self.text = order + self.text


@final
class _Array:
    """NumPy's array as a pickle describes it: version, shape, dtype, whether Fortran-ordered, the bytes."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: np.ndarray[Any, Any] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        match state:
            case (_, shape, _Dtype() as described, fortran, bytes() as content):
                pass
            case _:
                raise _NotData("it has an array that is not described as NumPy does")
        if not _DTYPE.fullmatch(described.text):
            raise _NotData(f"it has an array of {described.text[:20]!r}, which is not a plain number")
        sized = isinstance(shape, tuple) and len(shape) <= _MOST_DIMENSIONS
        if not sized or not all(type(each) is int and 0 <= each < 1 << 40 for each in shape):
            raise _NotData("it has an array of an impossible shape")
        dtype = np.dtype(described.text)
        hidden = math.prod(each or 1 for each in shape)  # NumPy limits the size even if a length is 0
        if math.prod(shape) * dtype.itemsize != len(content) or hidden >= 1 << 59:
            raise _NotData(f"it has an array of shape {shape} and {dtype} with {len(content):,} bytes of values")
        self.value = np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")


def _word(described: object) -> str:
    """A short string of a dtype's description, else an empty one."""
    if not isinstance(described, str | bytes) or len(described) > 4:
        return ""
    return described.decode("latin-1") if isinstance(described, bytes) else described


def _unwrap(value: object) -> object:
    """The array that a description stands for, also in containers one level deep, where CIFAR has its arrays."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return _plain(value)


def _plain(value: object) -> object:
    if isinstance(value, _Array) and value.value is not None:
        return value.value
    if isinstance(value, _Array | _Dtype | _Named):
        raise _NotData("one of its values is neither an array nor plain data")
    return value
