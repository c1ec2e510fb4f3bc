"""Problems: their nodes and inputs, and problems from command line words.

ONNX's schema defines what is valid (the inputs, their dtypes, the kinds of attributes), so nothing is declared twice,
and errors can name what is missing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx import defs

from levelbench.errors import UnknownNameError, UsageError
from levelbench.operators.contract import DType
from levelbench.operators.node import DEFAULT_OPSET, AttributeValue, OperatorNode, operator_node
from levelbench.records.benchmarks import Fill, Problem, Tensor

FLOATS = ("float32", "float64", "bfloat16", "float16")
"""The dtypes that a suite can be measured in."""


Listed = Any
"""Values as an array, or the name of a dtype, or ``None``."""
Given = tuple[tuple[int, ...], Listed]
"""What the user gave for an input: its shape, and its dtype or values."""


def dtype_of(name: str) -> DType:
    """The NumPy dtype of that name, including ``ml_dtypes``' bfloat16."""
    if name == "bfloat16":
        return np.dtype(ml_dtypes.bfloat16)
    try:
        return np.dtype(name)
    except TypeError:
        raise UnknownNameError("dtype", name, (*FLOATS, "int64", "int32", "int8", "uint8", "bool")) from None


def node_of(problem: Problem) -> OperatorNode:
    """The node of a problem."""
    return OperatorNode(
        problem.operator, problem.inputs, problem.outputs, problem.attributes, problem.domain, problem.opset
    )


def make_inputs(problem: Problem, seed: int) -> list[NDArray[Any] | None]:
    """One host array per input of the node, ``None`` for an omitted one; equal for equal seeds."""
    known = {tensor.name: tensor for tensor in problem.tensors}
    children = np.random.SeedSequence(seed).spawn(len(problem.inputs))
    return [
        _make(known[name], np.random.default_rng(child)) if name else None
        for name, child in zip(problem.inputs, children, strict=True)
    ]


def _make(tensor: Tensor, random: np.random.Generator) -> NDArray[Any]:
    dtype = dtype_of(tensor.dtype)
    # Drawn in float32 if that is precise enough: it takes half the time and memory.
    wide: Any = np.float64 if dtype == np.float64 else np.float32
    match tensor.fill:
        case "given":
            values: NDArray[Any] = np.asarray(tensor.values).reshape(tensor.shape)
        case "index":
            values = random.integers(0, max(1, int(tensor.scale)), tensor.shape)
        case "boolean":
            values = random.integers(0, 2, tensor.shape)
        case "positive":
            values = random.random(tensor.shape, wide) + wide(0.5)
        case "unit":
            values = random.random(tensor.shape, wide) * wide(1.8) - wide(0.9)
        case "sparse":
            values = random.standard_normal(tensor.shape, wide)
            values *= random.random(tensor.shape, np.float32) < tensor.density
            values *= wide(tensor.scale)
        case _:
            values = random.standard_normal(tensor.shape, wide)
            values *= wide(tensor.scale)
    return values.astype(dtype, copy=False)


# Problems from command line words: an operator's name, the shapes or values of its inputs, and attributes.


_INTEGERS = ("int64", "int32", "uint8", "int8", "bool")
_POSITIVE = frozenset({"Acosh", "Log", "Pow", "Reciprocal", "Sqrt"})
_UNIT = frozenset({"Acos", "Asin", "Atanh"})
# Inputs that are indices along an axis of the first input.
_CHOOSING = frozenset({"indices", "target"})
# Inputs that are lists even if they have one element.
_LISTS = frozenset(
    {
        "axes",
        "ends",
        "k",
        "output_shape",
        "pads",
        "repeats",
        "roi",
        "scales",
        "shape",
        "sizes",
        "split",
        "starts",
        "steps",
    }
)
_OPTIONAL = defs.OpSchema.FormalParameterOption.Optional
_VARIADIC = defs.OpSchema.FormalParameterOption.Variadic
_ATTRIBUTE = defs.OpSchema.AttrType


def parse_problem(
    operator: str,
    shapes: Sequence[str] = (),
    values: Sequence[str] = (),
    attributes: Sequence[str] = (),
    *,
    opset: int = DEFAULT_OPSET,
    dtype: str = "float32",
) -> Problem:
    """The problem that the words describe.

    ``shapes`` are words such as ``X=8x64x56x56`` (followed by ``:int32`` for another dtype), ``values`` such as
    ``axes=0,1`` and ``attributes`` such as ``pads=1,1,1,1``. A variadic input (Concat's) is given several times.
    Raises ``UnknownNameError`` for names that ONNX does not know, and ``UsageError`` for words that cannot be parsed or
    are missing; both list the choices.
    """
    known = operator_attributes(operator, opset, attributes)
    schema = defs.get_schema(operator, opset, "")
    given = _gathered(operator, schema, shapes, values)
    types = _types(schema, given, dtype)
    names: list[str] = []
    tensors: list[Tensor] = []
    for at, parameter in enumerate(schema.inputs):
        found = given.get(parameter.name, [])
        if not found and parameter.option != _OPTIONAL:
            raise _missing(operator, schema, parameter.name)
        made = [f"{parameter.name}_{each}" for each in range(len(found))] if len(found) > 1 else [parameter.name]
        names += made if found else [""]
        for name, (shape, listed) in zip(made, found, strict=False):
            tensors.append(_tensor(name, shape, listed, types.get(parameter.type_str, dtype), schema, at))
    while names and not names[-1]:
        names.pop()
    node = operator_node(operator, names, _outputs(schema, known, given), opset=opset, **known)
    return Problem(
        name=_title(node, tensors),
        operator=operator,
        inputs=node.inputs,
        outputs=node.outputs,
        tensors=tuple(_scaled(tensor, tensors, node) for tensor in tensors),
        opset=opset,
        attributes=known,
    )


def operator_attributes(operator: str, opset: int, words: Sequence[str]) -> dict[str, AttributeValue]:
    """Parse attributes such as ``pads=1,1,1,1`` by the schema's kinds."""
    try:
        schema = defs.get_schema(operator, opset, "")
    except defs.SchemaError:
        names = {each.name for each in defs.get_all_schemas() if not each.domain}
        raise UnknownNameError(f"operator of opset {opset}", operator, names) from None
    found = {}
    for word in words:
        name, text = _split(word, "--attr")
        if name not in schema.attributes:
            raise UnknownNameError(f"attribute of {operator}", name, list(schema.attributes))
        found[name] = _attribute(f"--attr {word}", text, schema.attributes[name].type)
    return found


def _attribute(asked: str, text: str, kind: defs.OpSchema.AttrType) -> AttributeValue:
    readers: dict[Any, Any] = {_ATTRIBUTE.INT: int, _ATTRIBUTE.FLOAT: float, _ATTRIBUTE.STRING: str}
    lists: dict[Any, Any] = {_ATTRIBUTE.INTS: int, _ATTRIBUTE.FLOATS: float, _ATTRIBUTE.STRINGS: str}
    try:
        if kind in readers:
            return readers[kind](text)
        if kind in lists:
            return [lists[kind](each) for each in text.split(",")]
    except ValueError:
        name = kind.name.lower()
        raise UsageError(asked, f"{text!r} is not of type {name}", "give numbers separated by commas") from None
    found = f"attributes of kind {kind.name} cannot be given on the command line"
    raise UsageError(asked, found, "use a network's file instead")


def _gathered(
    operator: str, schema: defs.OpSchema, shapes: Sequence[str], values: Sequence[str]
) -> Mapping[str, list[Given]]:
    """By input: shapes with dtype names or values, in the given order."""
    names = [each.name for each in schema.inputs]
    variadic = {each.name for each in schema.inputs if each.option == _VARIADIC}
    found: dict[str, list[Any]] = {}
    for option, words in (("--shape", shapes), ("--input", values)):
        for word in words:
            name, text = _split(word, option)
            if name not in names:
                raise UnknownNameError(f"input of {operator}", name, names)
            if name in found and name not in variadic:
                raise UsageError(f"{option} {word}", f"{name} is already given", "give each input once")
            read = _shape(word, text) if option == "--shape" else _values(word, text)
            found.setdefault(name, []).append(read)
    return found


def _types(schema: defs.OpSchema, given: Mapping[str, list[Given]], dtype: str) -> dict[str, str]:
    """The dtypes of the schema's type variables, as determined by the inputs given by shape."""
    found: dict[str, str] = {}
    for at, parameter in enumerate(schema.inputs):
        for _, listed in given.get(parameter.name, [])[:1]:
            allowed = _allowed(schema, at)
            if not isinstance(listed, np.ndarray) and (listed or dtype) in allowed:
                found.setdefault(parameter.type_str, listed or dtype)
    return found


def _outputs(
    schema: defs.OpSchema, attributes: Mapping[str, AttributeValue], given: Mapping[str, list[Given]]
) -> list[str]:
    """All outputs that the schema requires; for a Split, as many as it makes."""
    if schema.name == "Split":
        sizes = [listed.size for _, listed in given.get("split", []) if isinstance(listed, np.ndarray)]
        count = int(attributes.get("num_outputs", sizes[0] if sizes else 2))
        return [f"output_{each}" for each in range(count)]
    return [each.name for each in schema.outputs[: max(1, schema.min_output)]]


def _split(word: str, option: str) -> tuple[str, str]:
    name, equals, text = word.partition("=")
    if not (name and equals):
        raise UsageError(f"{option} {word}", "it has no '='", f"write {option} NAME=VALUE")
    return name.strip(), text.strip()


def _shape(word: str, text: str) -> Given:
    sizes, _, dtype = text.partition(":")
    if not re.fullmatch(r"(\d+(x\d+)*)?", sizes):
        raise UsageError(f"--shape {word}", f"{sizes!r} is not a shape", "write sizes separated by x: X=8x64x56x56")
    return tuple(int(each) for each in sizes.split("x") if each), dtype or None


def _values(word: str, text: str) -> Given:
    scalar = "," not in text
    try:
        read = np.asarray([float(each) for each in text.split(",") if each.strip()])
    except ValueError:
        do = "write numbers separated by commas"
        raise UsageError(f"--input {word}", f"{text!r} are not numbers", do) from None
    return () if scalar else read.shape, read


def _tensor(name: str, shape: tuple[int, ...], listed: Listed, dtype: str, schema: defs.OpSchema, at: int) -> Tensor:
    allowed = _allowed(schema, at)
    if isinstance(listed, np.ndarray):
        chosen = dtype if dtype in allowed else next((each for each in _INTEGERS if each in allowed), dtype)
        # ONNX requires a list of axes, sizes or repeats even for one element.
        if not shape and name.lower() in _LISTS:
            shape = (1,)
        if dtype_of(chosen).kind in "iub" and any(each != int(each) for each in listed.tolist()):
            raise UsageError(
                f"--input {name} of {schema.name}", f"it takes {chosen}, not fractions", "give whole numbers"
            )
        numbers = [int(each) if dtype_of(chosen).kind in "iub" else each for each in listed.tolist()]
        return Tensor(name, shape, chosen, "given", values=tuple(numbers))
    chosen = listed or (dtype if dtype in allowed else next((each for each in _INTEGERS if each in allowed), dtype))
    if chosen not in allowed:
        raise UsageError(
            f"--dtype {chosen} for input {name} of {schema.name}",
            f"it takes {', '.join(sorted(allowed))}",
            "choose one of these",
        )
    kind = dtype_of(chosen).kind
    fill: Fill = "boolean" if kind == "b" else "index" if kind in "iu" else "normal"
    if fill == "normal" and (schema.name in _POSITIVE or name in ("var", "input_var")):
        fill = "positive"
    if fill == "normal" and schema.name in _UNIT:
        fill = "unit"
    return Tensor(name, shape, chosen, fill, scale=10.0 if fill == "index" else 1.0)


def _allowed(schema: defs.OpSchema, at: int) -> set[str]:
    """The NumPy names of the dtypes that the input may have."""
    names = {"float": "float32", "double": "float64"}
    found = {re.sub(r"^tensor\((.*)\)$", r"\1", each) for each in schema.inputs[at].types}
    return {names.get(each, each) for each in found}


def _scaled(tensor: Tensor, tensors: Sequence[Tensor], node: OperatorNode) -> Tensor:
    """Scale weights by their fan-in, and indices to the size of the axis that they index."""
    from msgspec.structs import replace

    if tensor.fill == "normal" and tensor.name in ("W", "R", "B") and len(tensor.shape) > 1:
        fan_in = math.prod(tensor.shape[1:]) if node.op_type == "Conv" else tensor.shape[-1]
        return replace(tensor, scale=1 / math.sqrt(max(1, fan_in)))
    if tensor.fill == "index" and tensor.name in _CHOOSING and tensors[0].shape:
        first = tensors[0].shape
        axis = 1 if tensor.name == "target" else int(node.get("axis", 0) or 0)
        choices = min(first) if node.op_type.endswith("ND") else first[axis % len(first)]
        return replace(tensor, scale=float(choices))
    return tensor


def _title(node: OperatorNode, tensors: Sequence[Tensor]) -> str:
    shapes = [f"{each.name}={'x'.join(map(str, each.shape)) or 'scalar'}" for each in tensors if each.values is None]
    settings = [
        f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in node.attributes.items()
    ]
    given = [f"{each.name}={','.join(map(str, each.values))}" for each in tensors if each.values is not None]
    return " ".join([node.op_type, *shapes, *given, *settings])


def _missing(operator: str, schema: defs.OpSchema, name: str) -> UsageError:
    listed = [f"{each.name}{' (optional)' * (each.option == _OPTIONAL)}" for each in schema.inputs]
    return UsageError(
        f"levelbench operator {operator}",
        f"the shape of input {name!r} is missing; its inputs are {', '.join(listed)}",
        f"give --shape {name}=..., as in {name}=8x64, or its values with --input {name}=...",
    )
