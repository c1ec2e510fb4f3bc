"""Tensors that lie in a file beside the model: read without leaving the model's folder, written without a half file.

The one idea: what a model says of its data is a claim about a file that may be anything, so the file is looked at first
(inside the folder, a plain file, long enough), and only as many bytes are read as the tensor's shape asks for.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path, PureWindowsPath
from typing import Any, BinaryIO

import onnx
from onnx import TensorProto

from levelbench.errors import DefinitionError
from levelbench.networks.inspect import byte_size, tensors_of
from levelbench.networks.order import refuse

__all__ = ["data_name", "fetch", "is_data_of", "memory_bytes", "move_out"]

_ALIGNED = 4096
_WORTH_MOVING = 1024
_KEYS = {"location", "offset", "length", "checksum", "basepath"}


def fetch(model: onnx.ModelProto, folder: Path, asked: str) -> None:
    """Read all external data into the model.

    Raises ``DefinitionError`` for a location outside of ``folder`` (symbolic links followed), a file that is missing,
    no plain file or too short, a length that does not fit the tensor, and more data than the machine has memory.
    """
    tensors = [each for each in tensors_of(model, asked) if each.data_location == TensorProto.EXTERNAL]
    memory = memory_bytes()
    total = sum(byte_size(each, asked) for each in tensors)
    if total > memory:
        raise refuse(asked, f"its tensors take {total:,} bytes, this machine has {memory:,}", "use a larger machine")
    root = folder.resolve()
    for each in tensors:
        content = _read(each, root, asked)
        each.ClearField("external_data")
        each.ClearField("data_location")
        each.raw_data = content


def memory_bytes() -> int:
    """The machine's memory; where the system does not say, more than there is."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 2**63


def move_out(tensors: Sequence[TensorProto], location: str, file: BinaryIO) -> list[TensorProto]:
    """The tensors as references to ``location``, their bytes written to the open file; small ones stay as they are."""
    moved, position = [], 0
    for each in tensors:
        if each.data_type == TensorProto.STRING or byte_size(each, "saving") < _WORTH_MOVING:
            moved.append(each)
            continue
        content = each.raw_data if each.HasField("raw_data") else _raw(each)
        padding = -position % _ALIGNED
        file.write(bytes(padding))
        file.write(content)
        position += padding
        reference = TensorProto(name=each.name, data_type=each.data_type, dims=each.dims, doc_string=each.doc_string)
        reference.data_location = TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", position), ("length", len(content))):
            reference.external_data.add(key=key, value=str(value))
        moved.append(reference)
        position += len(content)
    return moved


def data_name(model_name: str, tensors: Sequence[TensorProto]) -> str:
    """The name of the file for the data of these tensors: the model's, and a digest of what will be in it.

    Data that differ have another name, so an old model keeps its own until the new one has taken its place.
    """
    digest = hashlib.sha256()
    for each in tensors:
        digest.update(f"{each.name}\0{each.data_type}\0{list(each.dims)}\0".encode())
        digest.update(each.raw_data if each.HasField("raw_data") else each.SerializeToString(deterministic=True))
    return f"{model_name}.{digest.hexdigest()[:16]}.data"


def is_data_of(model_name: str, name: str) -> bool:
    """Whether ``name`` is one that :func:`data_name` gives to data of that model."""
    return re.fullmatch(re.escape(model_name) + r"\.[0-9a-f]{16}\.data", name) is not None


def _raw(tensor: TensorProto) -> bytes:
    array = onnx.numpy_helper.to_array(tensor)
    return bytes(onnx.numpy_helper.from_array(array).raw_data)


def _read(tensor: TensorProto, root: Path, asked: str) -> bytes:
    what = f"tensor {tensor.name!r}"
    said = {each.key: each.value for each in tensor.external_data}
    if unknown := sorted(set(said) - _KEYS):
        raise refuse(asked, f"{what} has external data with {unknown[0]!r}", f"ONNX knows {', '.join(sorted(_KEYS))}")
    expected = byte_size(tensor, asked)
    offset = _number(said.get("offset", "0"), what, asked)
    length = _number(said["length"], what, asked) if "length" in said else expected
    if length != expected:
        found = f"{what} of shape {tuple(tensor.dims)} takes {expected} bytes, its external data say {length}"
        raise refuse(asked, found, "export the model anew")
    path = _inside(said.get("location", ""), root, what, asked)
    try:
        # Not to wait for a pipe that nobody writes to; a plain file does not know the flag.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise refuse(asked, f"the data of {what}, {path.name}, is no plain file", "put the data there")
            if offset + length > status.st_size:
                found = f"the data of {what} end at byte {offset + length} of {path.name}, which has {status.st_size}"
                raise refuse(asked, found, "fetch the file again")
            file.seek(offset)
            return _exactly(file, length, what, asked)
    except OSError as error:
        found = f"the data of {what}, {path.name}, cannot be read ({error.strerror})"
        raise refuse(asked, found, "put the file beside the model") from None


def _exactly(file: Any, length: int, what: str, asked: str) -> bytes:
    parts, missing = [], length
    while missing:
        part = file.read(missing)
        if not part:
            raise refuse(asked, f"the file of {what} became shorter while it was read", "try again")
        parts.append(part)
        missing -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _number(text: str, what: str, asked: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise refuse(asked, f"{what} has external data at {text[:30]!r}", "offset and length are numbers of bytes")
    return int(text)


def _inside(location: str, root: Path, what: str, asked: str) -> Path:
    """The file at ``location`` below ``root``, all links followed."""
    windows = PureWindowsPath(location)
    if not location or "\0" in location:
        raise refuse(asked, f"{what} has external data without a place", "name a file beside the model")
    if windows.drive or windows.root or ".." in windows.parts:
        raise _outside(location, what, asked)
    try:
        path = (root / location).resolve()
    except (OSError, RuntimeError):
        raise refuse(asked, f"the place of {what}, {location!r}, leads nowhere", "put the file there") from None
    if not path.is_relative_to(root):
        raise _outside(location, what, asked)
    return path


def _outside(location: str, what: str, asked: str) -> DefinitionError:
    return refuse(asked, f"{what} lies at {location!r}, outside of the model's folder", "put the file beside the model")
