"""The operators of a user's file as problems to measure: the user's own, and ONNX's operator that computes the same.

A separate process loads the file, so that nothing of it runs in the process that judges. It writes the inputs of the
file's examples to a folder, from which every process that measures reads them: what is measured beside gets equal
inputs, and its process never loads the file, which could slow it down.
"""

from __future__ import annotations

import hashlib
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from onnx import defs

from levelbench.checks.arrays import Host
from levelbench.checks.isolation import JsonLine, Say, run_isolated
from levelbench.errors import CheckFailedError, DefinitionError, LevelbenchError, UnknownNameError, UsageError
from levelbench.experiments.own_code import own_modules
from levelbench.measure.forking import ending_leftovers
from levelbench.operators.benchmark.checking import Results, check
from levelbench.operators.contract import as_tuple
from levelbench.operators.custom.compiled import CompiledOperator
from levelbench.operators.custom.definition import CustomOperator, node_of
from levelbench.operators.custom.isolation import write_arrays
from levelbench.operators.custom.library import SUFFIXES, load_file
from levelbench.operators.frameworks import open_framework
from levelbench.operators.node import DEFAULT_OPSET, OPSETS, OperatorNode, operator_node
from levelbench.operators.suites.single import dtype_of, make_inputs
from levelbench.records.benchmarks import Fill, Problem, Tensor

__all__ = ["OwnOperators", "describe", "file_and_name", "own_operators"]

_MOST_EXAMPLES = 6
_WORD = re.compile(rf"(?P<file>.+(?:\.py|{'|'.join(map(re.escape, SUFFIXES))}))(?::(?P<name>\w+))?")

Shapes = Mapping[str, tuple[Sequence[int], str]]
"""The sizes and the dtype of each input."""


@dataclass(frozen=True)
class OwnOperators:
    """The problems of a file's operators, and ``beside`` them the same problems with ONNX's operators.

    ``beside`` is empty if there is none; ``notes`` say why not, and what was left out. ``source`` is the digest of the
    file with all that it imports of the user's own.
    """

    title: str
    problems: tuple[Problem, ...]
    beside: tuple[Problem, ...]
    source: str
    notes: tuple[str, ...]


def file_and_name(word: str) -> tuple[Path, str] | None:
    """``my_operator.py:NAME`` as a path and a name, which may be empty; ``None`` if it names no file of operators."""
    found = _WORD.fullmatch(word)
    return None if found is None else (Path(found["file"]), found["name"] or "")


def own_operators(
    path: Path,
    name: str,
    folder: Path,
    *,
    shapes: Shapes | None = None,
    attributes: Mapping[str, Any] | None = None,
    opset: int | None = None,
    timeout_s: float = 300.0,
) -> OwnOperators:
    """The operator ``name`` of a file, or all of them, on inputs of ``shapes`` or on the file's examples.

    The examples are written to ``folder``. ONNX's operators are those of ``opset``; by default those of the usual one,
    or of the newest if it lacks them. Raises what loading the file raises, ``UsageError`` for words that do not fit it,
    and ``DefinitionError`` if it ends or hangs its process.
    """
    said: list[JsonLine] = []
    request = {
        "path": str(path),
        "name": name,
        "folder": str(folder),
        "shapes": {key: [list(sizes), dtype] for key, (sizes, dtype) in (shapes or {}).items()},
        "attributes": dict(attributes or {}),
        "opset": opset,
    }
    with ending_leftovers() as left:
        ended = run_isolated(f"{__name__}:describe", request, said.append, timeout_s=timeout_s)
    if ended.error is not None:
        raise ended.error
    if left:
        found = f"loading it leaves processes behind ({len(left)}), which slow down what is measured"
        raise CheckFailedError(f"the operator file {path}", found, "end them before the file is loaded")
    if not said:
        raise ended.death(f"the operator file {path}")
    return msgspec.convert(said[-1], OwnOperators)


def describe(request: JsonLine, say: Say) -> None:
    """The part of :func:`own_operators` that runs in the other process."""
    path, name = Path(request["path"]), request["name"]
    classes = load_file(path)
    known = {each.name: each for each in classes}
    if name and name not in known:
        raise UnknownNameError(f"operator of {path}", name, known)
    chosen = [known[name]] if name else classes
    if len(chosen) > 1 and (request["shapes"] or request["attributes"]):
        found = f"it defines {', '.join(known)}"
        raise UsageError(f"--shape and --attr with {path}", found, f"choose one: {path}:{chosen[0].name}")
    problems: list[Problem] = []
    beside: list[Problem] = []
    notes: list[str] = []
    for cls in chosen:
        operator = _made(cls, request["attributes"])
        arrays = [] if request["shapes"] else _examples(operator, notes)
        own = [_problem(operator, _of_shapes(operator, request["shapes"]))] if request["shapes"] else []
        own += [_problem(operator, _of_examples(operator, each)) for each in arrays]
        for at, each in enumerate(arrays, len(problems)):
            write_arrays(Path(request["folder"]), str(at), each)
        samples = arrays or [make_inputs(own[0], 0)]
        try:
            node = _counterpart(operator, request["opset"])
            _need_same(operator, node, samples)
            beside += [_beside(each, node) for each in own]
        except (CheckFailedError, DefinitionError) as error:
            notes.append(f"no framework's own {error.asked}: {error.found}; {error.do}")
        problems += own
    if len(beside) < len(problems):
        beside = []
    titled = [
        msgspec.structs.replace(each, name=title) for each, title in zip(problems, _titles(problems), strict=True)
    ]
    beside = [msgspec.structs.replace(each, name=own.name) for each, own in zip(beside, titled, strict=False)]
    title = chosen[0].name if len(chosen) == 1 else path.stem
    say(msgspec.to_builtins(OwnOperators(title, tuple(titled), tuple(beside), _digest(path, chosen), tuple(notes))))


def _made(cls: type[CustomOperator], attributes: Mapping[str, Any]) -> CustomOperator:
    try:
        return cls(**attributes)
    except (UsageError, UnknownNameError) as error:
        raise UsageError(error.asked, error.found, f"{error.do}; give them with --attr name=value") from error


def _examples(operator: CustomOperator, notes: list[str]) -> list[list[Host | None]]:
    """The file's examples; those without elements take no time and are left out."""
    found = list(islice(operator.examples(np.random.default_rng(0)), _MOST_EXAMPLES))
    arrays: list[list[Host | None]] = [[np.asarray(each) for each in example] for example in found]
    for each in arrays:
        if len(each) != len(operator.inputs):
            what = f"an example has {len(each)} arrays, and its inputs are {', '.join(operator.inputs)}"
            raise DefinitionError(f"the examples of {operator.name}", what, "give one array for each input")
    filled = [each for each in arrays if all(array is not None and array.size for array in each)]
    if not filled:
        do = f"define examples, or give --shape for each input, such as --shape {operator.inputs[0]}=64x1024"
        found_none = "all its examples are empty" if arrays else "it has no examples"
        raise UsageError(f"operator {operator.name}", found_none, do)
    if len(filled) < len(arrays):
        notes.append(f"{operator.name}: {len(arrays) - len(filled)} of {len(arrays)} examples are empty: left out")
    return filled


def _of_examples(operator: CustomOperator, arrays: Sequence[Host | None]) -> list[Tensor]:
    named = zip(operator.inputs, arrays, strict=True)
    return [Tensor(name, each.shape, each.dtype.name, "example") for name, each in named if each is not None]


def _of_shapes(operator: CustomOperator, shapes: Shapes) -> list[Tensor]:
    for name in shapes:
        if name not in operator.inputs:
            raise UnknownNameError(f"input of {operator.name}", name, operator.inputs)
    missing = [name for name in operator.inputs if name not in shapes]
    if missing:
        found = f"input {missing[0]!r} has no shape"
        raise UsageError(f"operator {operator.name} with --shape", found, f"give --shape {missing[0]}=64x1024")
    tensors = []
    for each in operator.inputs:
        sizes, dtype = shapes[each]
        kind = dtype_of(dtype).kind
        fill: Fill = "boolean" if kind == "b" else "index" if kind in "iu" else "normal"
        # As in `levelbench check`: small enough to be valid indices in most cases.
        tensors.append(Tensor(each, tuple(sizes), dtype, fill, scale=8.0 if fill == "index" else 1.0))
    if not all(math.prod(tensor.shape) for tensor in tensors):
        raise UsageError(f"operator {operator.name} with --shape", "an input is empty", "give sizes of at least 1")
    return tensors


def _problem(operator: CustomOperator, tensors: Sequence[Tensor]) -> Problem:
    node = node_of(operator)
    return Problem(
        name=" ".join([operator.name, *(_word(each) for each in tensors)]),
        operator=node.op_type,
        inputs=node.inputs,
        outputs=node.outputs,
        tensors=tuple(tensors),
        opset=node.opset,
        attributes=dict(node.attributes),
        domain=node.domain,
    )


def _word(tensor: Tensor) -> str:
    dtype = f":{tensor.dtype}" * (tensor.dtype != "float32")
    return f"{tensor.name}={'x'.join(map(str, tensor.shape)) or 'scalar'}{dtype}"


def _titles(problems: Sequence[Problem]) -> list[str]:
    """Their names, with a number where several are alike."""
    names = [each.name for each in problems]
    return [f"{name} ({at})" if names.count(name) > 1 else name for at, name in enumerate(names, 1)]


def _counterpart(operator: CustomOperator, given: int | None) -> OperatorNode:
    """ONNX's operator that the user names in ``same_as``, else that of the same name."""
    name = operator.same_as or operator.name
    usual = DEFAULT_OPSET if defs.has(name, DEFAULT_OPSET, "") else min(defs.onnx_opset_version(), OPSETS[-1])
    opset = usual if given is None else given
    if not defs.has(name, opset, ""):
        if operator.same_as:
            names = {each.name for each in defs.get_all_schemas() if not each.domain}
            raise UnknownNameError(f"ONNX operator in same_as of {operator.name}", name, names)
        do = 'name the one that computes the same in the class, same_as = "Gelu"'
        raise DefinitionError(name, f"ONNX has no operator of that name at opset {opset}", do)
    attributes: dict[str, Any] = dict(operator.attributes)
    try:
        return operator_node(name, operator.inputs, operator.outputs, opset=opset, **attributes)
    except LevelbenchError as error:
        found = f"ONNX's takes other inputs or attributes than yours ({error.found})"
        raise DefinitionError(name, found, "name another one in same_as, or take its names") from error


def _need_same(operator: CustomOperator, node: OperatorNode, samples: Sequence[Sequence[Host | None]]) -> None:
    """Raise ``CheckFailedError`` unless both compute the same: else a verdict would compare different work."""
    make = open_framework("numpy").operator
    function: Any = operator.reference if operator.has_reference else operator.forward
    for inputs in samples:
        try:
            found = check(node, Results(inputs, [np.asarray(each) for each in as_tuple(function(*inputs))]), None, make)
            wrong = found.wrong or (found.checked if found.checked.startswith("not checked") else "")
        except Exception as error:  # noqa: BLE001  # foreign code, on inputs of either operator
            wrong = f"comparing them raises {type(error).__name__}: {error}"
        if wrong:
            what = f"ONNX's does not compute the same as yours ({wrong.splitlines()[0][:200]})"
            raise CheckFailedError(node.op_type, what, "rename yours, or name the one that does in same_as")


def _beside(own: Problem, node: OperatorNode) -> Problem:
    return msgspec.structs.replace(
        own, operator=node.op_type, domain="", opset=node.opset, attributes=dict(node.attributes)
    )


def _digest(path: Path, classes: Sequence[type[CustomOperator]]) -> str:
    """SHA-256 over the file, the user's own modules that it imports, and the libraries compiled for it."""
    module = sys.modules.get(classes[0].__module__) if path.suffix == ".py" else None
    libraries = sorted({str(each.library.path) for each in classes if issubclass(each, CompiledOperator)})
    parts = [path.read_bytes(), *(f"{name} {each}".encode() for name, each in own_modules(module).items())]
    parts += [Path(each).read_bytes() for each in libraries]
    return hashlib.sha256(b"\0".join(hashlib.sha256(each).digest() for each in parts)).hexdigest()
