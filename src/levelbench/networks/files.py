"""Loads and saves networks as ONNX files, without trusting what is read and without leaving half-written files.

A path always holds either the complete old or the complete new model. What a model says about tensors in separate files
is not trusted: such a file is checked first (inside the folder, a regular file, long enough), and only as many bytes
are read as the tensor's shape requires.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import secrets
import stat
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import RawIOBase
from pathlib import Path, PureWindowsPath
from typing import Any, BinaryIO

import onnx
from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]
from numpy.typing import NDArray
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype
from onnx.serialization import registry

from levelbench.errors import DefinitionError, LevelbenchError, MissingError, StoreError, UsageError
from levelbench.networks.inspect import byte_size, inspect, tensors_of, without_values
from levelbench.networks.modernise import SMALL_TENSOR, apart, modernised, supported
from levelbench.networks.network import METADATA_KEY, Network
from levelbench.networks.values import dtype_of, is_number, value_of

_ALIGNED = 4096
_WORTH_MOVING = 1024
_KEYS = {"location", "offset", "length", "checksum", "basepath"}


def fetch(model: onnx.ModelProto, folder: Path, asked: str) -> None:
    """Read all external data into the model.

    Raises ``DefinitionError`` for a location outside of ``folder`` (following symbolic links), a file that is missing,
    not a regular file or too short, a length that does not match the tensor, and more data than the machine's memory.
    """
    tensors = [each for each in tensors_of(model, asked) if each.data_location == TensorProto.EXTERNAL]
    memory = memory_bytes()
    total = sum(byte_size(each, asked) for each in tensors)
    if total > memory:
        found = f"its tensors take {total:,} bytes, but this machine has {memory:,}"
        raise DefinitionError(asked, found, "use a larger machine")
    root = folder.resolve()
    for each in tensors:
        content = _read(each, root, asked)
        each.ClearField("external_data")
        each.ClearField("data_location")
        each.raw_data = content


def memory_bytes() -> int:
    """The machine's memory; if the system does not report it, a number larger than any."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 2**63


def move_out(tensors: Sequence[TensorProto], location: str, file: BinaryIO) -> list[TensorProto]:
    """Write the tensors' bytes to the open file and return references to ``location``; small ones are unchanged."""
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
    """The name of the file for the data of these tensors: the model's name and a digest of its contents.

    Different data get another name, so an old model keeps its data until the new one has replaced it.
    """
    digest = hashlib.sha256()
    for each in tensors:
        digest.update(f"{each.name}\0{each.data_type}\0{list(each.dims)}\0".encode())
        digest.update(each.raw_data if each.HasField("raw_data") else each.SerializeToString(deterministic=True))
    return f"{model_name}.{digest.hexdigest()[:16]}.data"


def _raw(tensor: TensorProto) -> bytes:
    array = onnx.numpy_helper.to_array(tensor)
    return bytes(onnx.numpy_helper.from_array(array).raw_data)


def _read(tensor: TensorProto, root: Path, asked: str) -> bytes:
    what = f"tensor {tensor.name!r}"
    entries = {each.key: each.value for each in tensor.external_data}
    if unknown := sorted(set(entries) - _KEYS):
        found = f"{what} has external data with unknown key {unknown[0]!r}"
        raise DefinitionError(asked, found, f"use only {', '.join(sorted(_KEYS))}")
    expected = byte_size(tensor, asked)
    offset = _number(entries.get("offset", "0"), what, asked)
    length = _number(entries["length"], what, asked) if "length" in entries else expected
    if length != expected:
        found = f"{what} of shape {tuple(tensor.dims)} takes {expected} bytes, but its external data say {length}"
        raise DefinitionError(asked, found, "export the model again")
    path = _inside(entries.get("location", ""), root, what, asked)
    try:
        # Do not wait for a pipe without a writer; the flag has no effect on a regular file.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                found = f"the data of {what}, {path.name}, is not a regular file"
                raise DefinitionError(asked, found, "put the data there")
            if offset + length > status.st_size:
                found = f"the data of {what} end at byte {offset + length} of {path.name}, which has {status.st_size}"
                raise DefinitionError(asked, found, "fetch the file again")
            file.seek(offset)
            return _exactly(file, length, what, asked)
    except OSError as error:
        found = f"the data of {what}, {path.name}, cannot be read ({error.strerror})"
        raise DefinitionError(asked, found, "put the file next to the model") from None


def _exactly(file: RawIOBase, length: int, what: str, asked: str) -> bytes:
    parts, missing = [], length
    while missing:
        part = file.read(missing)
        if not part:
            raise DefinitionError(asked, f"the file of {what} was truncated while it was read", "try again")
        parts.append(part)
        missing -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _number(text: str, what: str, asked: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        found = f"{what} has external data at {text[:30]!r}"
        raise DefinitionError(asked, found, "give offset and length as numbers of bytes")
    return int(text)


def _inside(location: str, root: Path, what: str, asked: str) -> Path:
    """The file at ``location`` below ``root``, all links followed."""
    windows = PureWindowsPath(location)
    if not location or "\0" in location:
        raise DefinitionError(asked, f"{what} has external data without a location", "name a file next to the model")
    outside = bool(windows.drive or windows.root or ".." in windows.parts)
    try:
        path = root if outside else (root / location).resolve()
    except (OSError, RuntimeError):
        found = f"the location of {what}, {location!r}, does not exist"
        raise DefinitionError(asked, found, "put the file there") from None
    if outside or not path.is_relative_to(root):
        found = f"{what} is at {location!r}, outside of the model's folder"
        raise DefinitionError(asked, found, "put the file next to the model")
    return path


_MOST_BYTES = 2**31 - 1
# Leave room for everything other than the tensors.
_MOST_IN_ONE_FILE = 2**31 - 2**24
_DEEPEST_TEXT = 200
# Strings are tokens too, because brackets inside them do not count.
_BRACKETS = re.compile(rb"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|[{}()\[\]<>]")
_FORMATS = {
    **dict.fromkeys((".onnx", ".pb"), "protobuf"),
    **dict.fromkeys((".json", ".onnxjson"), "json"),
    **dict.fromkeys((".textproto", ".txtpb", ".prototxt", ".pbtxt"), "textproto"),
    **dict.fromkeys((".onnxtxt", ".onnxtext"), "onnxtxt"),
}


def load(path: str | Path) -> Network:
    """The network in a file, with its external data, and its nodes in an order that can be executed.

    The suffix determines the format: ``.onnx``, ``.json``, ``.textproto`` or ``.onnxtxt``. A model of an opset that is
    older than all that adapters implement is brought to one that they do (:mod:`levelbench.networks.modernise`).
    Unknown operators are not an error here; a framework reports them when it is asked to run them. Raises
    ``MissingError`` if the file does not exist, and ``DefinitionError`` if it is malformed, cyclic, absurd, or refers
    to files outside of its folder.
    """
    path = Path(path)
    asked = f"model {path.name!r}"
    content = _content(path, asked)
    model = _parsed(content, _format(path), asked)
    del content
    try:
        if not model.HasField("graph"):
            raise DefinitionError(asked, "it has no graph", "give an ONNX model")
        fetch(model, path.parent, asked)
        supported(model, asked)
        early = apart(model)
        inspect(model, asked)
        _name_open_sizes(model.graph)
        model = modernised(model, asked, early)
        _drop_stale_shapes(model, asked)
        network = Network.from_proto(model)
        # Evaluate lazily computed properties now, so that errors are raised here.
        _ = network.inputs, network.outputs, network.nodes, network.opsets
        _check_parameters(network, asked)
    except LevelbenchError:
        raise
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        # Protobuf and ONNX's helpers raise whatever goes wrong first for data that they cannot read.
        found = f"ONNX cannot read it ({type(error).__name__}: {_one_line(error)})"
        raise DefinitionError(asked, found, "export the model again") from error
    return network


def save(
    network: Network,
    path: str | Path,
    parameters: Mapping[str, NDArray[Any]] | None = None,
    *,
    external: bool | None = None,
) -> None:
    """Write a network so that :func:`load` returns it; ``parameters`` are values to store in it.

    Without them, drawn parameters stay drawn: the file stores their distributions, not values. ``external`` puts large
    initialisers into a separate file, ``NAME.DIGEST.data`` (``None``: only if the model would exceed protobuf's 2 GiB).
    Raises ``StoreError`` if the folder cannot be written, and ``UsageError`` for an unknown suffix.
    """
    path = Path(path)
    kind = _format(path)
    if kind == "onnxtxt":
        raise UsageError(f"save {path.name!r}", "ONNX's text format loses metadata", "save as .onnx or .textproto")
    stored = network if parameters is None else network.stored(parameters)
    model, initializers = _proto(stored), list(stored.model.graph.initializer)
    apart = sum(_held(each) for each in initializers) > _MOST_IN_ONE_FILE if external is None else external
    location = ""
    if apart:
        location = data_name(path.name, initializers)
        references: list[onnx.TensorProto] = []
        _write_whole(path.with_name(location), lambda file: references.extend(move_out(initializers, location, file)))
        initializers = references
    model.graph.initializer.extend(initializers)
    try:
        content = registry.get(kind).serialize_proto(model)
    except (EncodeError, ValueError) as error:
        raise StoreError(
            f"save {path}", f"protobuf cannot hold it ({_one_line(error)})", "use external=True"
        ) from error
    _write_whole(path, lambda file: file.write(content))
    _forget_older(path, location)


_INVALID = ("has inconsistent type", "has incorrect size")
"""What ONNX says of nodes that are invalid with inputs of any shape, though some frameworks run them."""


def _drop_stale_shapes(model: onnx.ModelProto, asked: str) -> None:
    """Correct declared shapes of outputs and inner values that contradict what ONNX infers from the inputs.

    Exporters and editors leave them behind when an input is given another shape, or an open batch. Raises
    ``DefinitionError`` for a node with inputs of mixed types or an attribute of the wrong length.
    """
    light = without_values(model, lambda each: abs(math.prod(each.dims)) <= SMALL_TENSOR)
    declared = [*model.graph.value_info, *model.graph.output]
    del light.graph.value_info[:]
    for info in light.graph.output:
        info.type.tensor_type.ClearField("shape")
    try:
        graph = _inferred(light, asked)
    except onnx.shape_inference.InferenceError:
        # It is reported with its reason by what needs the shapes.
        return
    inferred = {each.name: each.type.tensor_type.shape.dim for each in (*graph.value_info, *graph.output)}
    own = {size.dim_param for each in model.graph.input for size in each.type.tensor_type.shape.dim}
    for info in declared:
        found = inferred.get(info.name)
        shape = info.type.tensor_type.shape
        if not found or not info.type.tensor_type.HasField("shape"):
            continue
        if len(found) != len(shape.dim):
            info.type.tensor_type.ClearField("shape")
            continue
        for mine, actual in zip(shape.dim, found, strict=True):
            other = actual.HasField("dim_value") and actual.dim_value != mine.dim_value
            if mine.HasField("dim_value") and (other or actual.dim_param in own - {""}):
                mine.CopyFrom(actual)


def _inferred(model: onnx.ModelProto, asked: str) -> onnx.GraphProto:
    try:
        return onnx.shape_inference.infer_shapes(model, strict_mode=True, check_type=True).graph
    except onnx.shape_inference.InferenceError as error:
        reasons = [line.strip() for line in str(error).splitlines()]
        if found := next((line for line in reasons if any(each in line for each in _INVALID)), ""):
            said = re.sub(r"\[\w+\] |Inference error\(s\): ", "", found)
            raise DefinitionError(asked, said, "correct the node") from None
    # Frameworks may take more types than ONNX says.
    return onnx.shape_inference.infer_shapes(model, strict_mode=True).graph


def _name_open_sizes(graph: onnx.GraphProto) -> None:
    """Give open sizes of inputs without a name one, such as ``input_2``, so that they can be bound."""
    sizes = [each for value in graph.input for each in value.type.tensor_type.shape.dim]
    taken = {each.dim_param for each in sizes}
    for value in graph.input:
        for axis, size in enumerate(value.type.tensor_type.shape.dim):
            if size.dim_param or (size.HasField("dim_value") and size.dim_value >= 0):
                continue
            name = f"{re.sub(r'[^0-9A-Za-z_]', '_', value.name)}_{axis}"
            while name in taken:
                name += "_"
            taken.add(name)
            size.dim_param = name


def _check_parameters(network: Network, asked: str) -> None:
    """Compare the parameters in the file's metadata with the graph, so that false metadata cannot draw a terabyte."""
    graph = network.model.graph
    declared: dict[str, tuple[Any, str]] = {}
    for each in (value_of(info) for info in graph.input):
        declared[each.name] = each.shape, each.dtype
    for tensor in graph.initializer:
        declared[tensor.name] = tuple(tensor.dims), tensor_dtype_to_np_dtype(tensor.data_type).name
    bytes_drawn = 0
    for role in network.parameters:
        what = f"parameter {role.name!r}"
        for noted, actual in zip((role.shape, role.dtype), declared[role.name], strict=True):
            if noted != actual:
                found = f"{what} is {actual} in the graph and {noted} in the metadata"
                raise DefinitionError(asked, found, f"remove the property {METADATA_KEY!r}")
        # The dtype is one that ONNX names, so it can be looked up now.
        if not is_number(dtype_of(role.dtype)):
            raise DefinitionError(asked, f"{what} holds {role.dtype}, not numbers", "make it a constant of the graph")
        bytes_drawn += role.size * dtype_of(role.dtype).itemsize
    if bytes_drawn > memory_bytes():
        found = f"its parameters take {bytes_drawn:,} bytes, but this machine has {memory_bytes():,}"
        raise DefinitionError(asked, found, "use a larger machine")


def _proto(network: Network) -> onnx.ModelProto:
    """The network's model with its metadata but without initialisers, which may be too large to copy."""
    bare = onnx.ModelProto()
    for field, value in network.model.ListFields():
        if field.name != "graph":
            _put(bare, field, value)
    # Mark the graph as present even if it has no fields.
    bare.graph.SetInParent()
    for field, value in network.model.graph.ListFields():
        if field.name != "initializer":
            _put(bare.graph, field, value)
    return network.replace(model=bare).to_proto()


def _put(message: Any, field: Any, value: Any) -> None:
    if field.is_repeated:
        getattr(message, field.name).extend(value)
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(value)
    else:
        setattr(message, field.name, value)


def _held(tensor: onnx.TensorProto) -> int:
    return len(tensor.raw_data) if tensor.HasField("raw_data") else tensor.ByteSize()


def _format(path: Path) -> str:
    found = _FORMATS.get(path.suffix.lower())
    if found is None:
        raise UsageError(f"model {path.name!r}", f"unknown suffix {path.suffix!r}", "use .onnx")
    return found


def _content(path: Path, asked: str) -> bytes:
    try:
        if not path.is_file():
            raise MissingError(asked, f"there is no file {path}", "give the path of an ONNX model")
        size = path.stat().st_size
        if not size:
            raise DefinitionError(asked, "the file is empty", "fetch or export it again")
        if size > _MOST_BYTES:
            found = f"it has {size:,} bytes, but protobuf allows at most 2 GiB"
            raise DefinitionError(asked, found, "save it with external data")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise DefinitionError(asked, f"it cannot be read ({_one_line(error)})", "make it readable") from error


def _parsed(content: bytes, kind: str, asked: str) -> onnx.ModelProto:
    if kind != "protobuf":
        _refuse_depth(content, asked)
    try:
        with warnings.catch_warnings():
            # The user chose the text format, so ONNX's warning that it is experimental is not needed.
            warnings.simplefilter("ignore")
            return registry.get(kind).deserialize_proto(content, onnx.ModelProto())
    except DecodeError as error:
        found = f"it is not an ONNX model, or truncated ({_one_line(error)})"
        raise DefinitionError(asked, found, "fetch or export it again") from None
    except Exception as error:
        # The parsers of text formats are foreign code, each with its own errors.
        found = f"it is not an ONNX model in format {kind} ({_one_line(error)})"
        raise DefinitionError(asked, found, "fetch or export it again") from error


def _refuse_depth(content: bytes, asked: str) -> None:
    """Limit the nesting: parsers of text recurse, and ONNX's own, in C++, would crash the process."""
    depth = 0
    for token in _BRACKETS.finditer(content):
        byte = token[0][:1]
        depth += 1 if byte in b"{([<" else -1 if depth and byte in b"})]>" else 0
        if depth > _DEEPEST_TEXT:
            raise DefinitionError(asked, f"it is nested more than {_DEEPEST_TEXT} levels deep", "simplify the model")


def _write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a draft, sync it to disk, and rename it, so that ``path`` is always the old or the new file."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        found = error.strerror or str(error)
        raise StoreError(f"write {path}", found, "choose a writable folder with free space") from error
    finally:
        # The draft is renamed if all went well. Any failure, even an interrupt, leaves nothing behind.
        with suppress(OSError):
            draft.unlink()


def _sync_folder(folder: Path) -> None:
    """Sync the new name to disk too; some systems cannot open a folder and do not need to."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _forget_older(path: Path, location: str) -> None:
    """Remove the data of previous models at this path."""
    name = re.compile(re.escape(path.name) + r"\.[0-9a-f]{16}\.data")
    for each in path.parent.iterdir():
        if each.name != location and name.fullmatch(each.name):
            with suppress(OSError):
                each.unlink()


def _one_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")
