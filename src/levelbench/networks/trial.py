"""Refuses a model file that would take all memory or never end, before any verb computes with it.

A few bytes can ask for terabytes (Tile, ConstantOfShape) or for 2**62 iterations (Loop). Sizes that ONNX infers are
compared with the machine's memory. Where they depend on values, or the model loops, one inference is tried in a process
of its own, under a limit of memory and of processor time, which a busy machine does not use up.
"""

from __future__ import annotations

import math
import resource
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from levelbench.checks.isolation import JsonLine, Say, run_isolated
from levelbench.errors import DefinitionError, LevelbenchError, UsageError
from levelbench.measure.environment.machine import memory_left_bytes
from levelbench.networks.files import load, memory_bytes
from levelbench.networks.inspect import all_nodes, is_standard, subgraphs
from levelbench.networks.network import Network
from levelbench.networks.shapes import ABSURD, infer_shapes
from levelbench.networks.values import Value, dtype_of, make_inputs
from levelbench.operators.frameworks import installed_frameworks
from levelbench.operators.program import constants_of

TRIAL_S = 3.0
"""Seconds of processor time that the trial may take by default."""
_LONGEST_S = 60.0
_MOST_TRIPS = 2**24
"""Iterations of a loop that nothing inside can end, above which it is refused without a trial."""
_OUT_OF_MEMORY = ("alloc", "would require more than")
_REPEATING = frozenset({"Loop", "Scan", "SequenceMap", "SplitToSequence", "StringConcat"})
"""Operators that may take any time, or memory, with values whose shapes are known."""
_LONG_LIST = 2**26
"""Elements of an input from which NonZero may list gigabytes of places."""
_GROWING = frozenset({"ConstantOfShape", "Expand", "OneHot", "Pad", "Range", "Resize", "Tile", "Upsample"})


def refuse_bombs(
    network: Network,
    path: str | Path,
    batch: int,
    sizes: Mapping[str, int],
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    limit_s: float | None = None,
) -> None:
    """Raise ``DefinitionError`` if an inference of the model at ``path`` exceeds the memory or ``limit_s``.

    ``network`` is what the file holds; ``shapes`` are those of inputs that differ from what it declares.
    """
    values: Mapping[str, Value] = {}
    try:
        values = infer_shapes(_reshaped(network, shapes or {}), {**network.sizes, **sizes, "batch": batch})
    except LevelbenchError as error:
        # Other contradictions of shapes need not matter for what the verb does.
        if ABSURD in error.found:
            raise
    memory = memory_bytes()
    for value in values.values():
        size = math.prod(value.sizes or ()) * (dtype_of(value.dtype).itemsize if _is_plain(value) else 1)
        if size > memory:
            found = f"its value {value.name!r} of shape {value.sizes} takes {size:,} bytes, but this machine has"
            raise DefinitionError(f"model {Path(path).name!r}", f"{found} {memory:,}", "use smaller sizes or batches")
    _refuse_endless(network, Path(path).name)
    if not _is_open_ended(network, values):
        return
    limit = TRIAL_S if limit_s is None else limit_s
    request = {"path": str(path), "batch": batch, "sizes": dict(sizes), "shapes": dict(shapes or {}), "limit_s": limit}
    said: list[JsonLine] = []
    left = memory_left_bytes() or memory
    ended = run_isolated(
        f"{__name__}:attempt", request, said.append, timeout_s=_LONGEST_S + limit, memory_bytes=int(0.8 * left)
    )
    asked = f"one inference of model {Path(path).name!r}"
    if any("memory" in each for each in said):
        raise DefinitionError(asked, f"it takes more than the {left:,} bytes that are free", "use smaller sizes")
    if ended.code is None or ended.code in (-signal.SIGXCPU, -signal.SIGKILL):
        found = f"it takes more than {limit:g} s of processor time"
        raise DefinitionError(asked, found, f"if it is meant to, give it more: --timeout {10 * limit:g}")


def _refuse_endless(network: Network, name: str) -> None:
    """Refuse a loop whose condition stays true for more than ``_MOST_TRIPS`` iterations, or forever."""
    constants = constants_of(network.model.graph)
    for node in network.model.graph.node:
        if not is_standard(node, "Loop"):
            continue
        body = next(subgraphs(node))
        kept, inner = body.output[0].name, constants_of(body)
        copies = {each.output[0]: each.input[0] for each in body.node if is_standard(each, "Identity")}
        while kept in copies:
            kept = copies[kept]
        always = kept == body.input[1].name or (kept in inner and bool(inner[kept].all()))
        trips = node.input[0] if node.input else ""
        count = int(constants[trips].item()) if trips in constants else None if trips else math.inf
        if always and count is not None and count > _MOST_TRIPS:
            found = f"its loop {node.output[0]!r} makes {f'{count:,}' if trips else 'endless'} iterations"
            raise DefinitionError(f"model {name!r}", found, f"give it a condition, or at most {_MOST_TRIPS:,}")


def _is_plain(value: Value) -> bool:
    return value.dtype not in ("", "str", "object")


def _is_open_ended(network: Network, values: Mapping[str, Value]) -> bool:
    """Whether the model loops, or makes a large value from a small one without a shape that is known beforehand."""
    nodes = network.model.graph.node
    inner = [each for function in network.model.functions for each in function.node]
    if any(each.op_type in _REPEATING for each in all_nodes([*nodes, *inner])):
        return True
    listed = [each.input[0] for each in nodes if each.op_type == "NonZero"]
    if any(math.prod(_sizes(values, name) or ()) >= _LONG_LIST for name in listed):
        return True
    unknown = [each for each in nodes if any(name and _sizes(values, name) is None for name in each.output)]
    return any(each.op_type in _GROWING for each in all_nodes([*unknown, *inner]))


def _sizes(values: Mapping[str, Value], name: str) -> tuple[int, ...] | None:
    return values[name].sizes if name in values else None


def _reshaped(network: Network, shapes: Mapping[str, tuple[int, ...]]) -> Network:
    """The network with inputs of these shapes."""
    if not shapes:
        return network
    model = network.copied()
    for info in model.graph.input:
        if info.name in shapes:
            dimensions = info.type.tensor_type.shape
            del dimensions.dim[:]
            for size in shapes[info.name]:
                dimensions.dim.add(dim_value=size)
    return network.replace(model=model)


def attempt(request: Mapping[str, Any], say: Say) -> None:
    """Run the model once, in the process made for it; says ``memory`` if that is not enough."""
    network = load(request["path"])
    values = [replace(each, shape=tuple(request["shapes"].get(each.name, each.shape))) for each in network.inputs]
    try:
        inputs = make_inputs(values, request["batch"], 0, {**network.sizes, **request["sizes"]}, network.fills)
        parameters = network.initialise(0)
    except UsageError:
        # The verb says which inputs it needs.
        return
    from levelbench.networks.probes.running import Runner
    from levelbench.operators.frameworks import open_framework

    for name in installed_frameworks(("onnxruntime", "numpy")):
        runner = Runner(name, open_framework(name, "cpu"))
        used = math.ceil(time.process_time() + request["limit_s"])
        resource.setrlimit(resource.RLIMIT_CPU, (used, used + 5))
        try:
            runner.outputs(network.for_inference, parameters, inputs)
        except Exception as error:  # noqa: BLE001  # the boundary to frameworks; the verb reports what they refuse
            if isinstance(error, MemoryError) or any(each in str(error) for each in _OUT_OF_MEMORY):
                say({"memory": str(error)[:200]})
                return
            continue
        return
