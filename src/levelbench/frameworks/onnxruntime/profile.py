"""The time of each operator: from ONNX Runtime's profiler, and from our own clock around single sessions."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec
import onnx
import onnxruntime
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from levelbench.errors import UnsupportedError
from levelbench.frameworks.onnxruntime.executor import node_name
from levelbench.frameworks.onnxruntime.sessions import Preparation, Session
from levelbench.measure.clocks import HOST
from levelbench.networks.codegen import Lowered
from levelbench.networks.executor import Executor, OperatorTime
from levelbench.networks.inspect import outer_reads
from levelbench.networks.network import Network
from levelbench.operators.contract import OperatorBackend

__all__ = ["operator_times", "profile"]


_KERNEL = "_kernel_time"
_BLOCKED = "_nchwc"


class _Event(msgspec.Struct):
    """An entry of the profile; ``dur`` is in microseconds."""

    name: str
    cat: str = ""
    dur: int = 0
    args: dict[str, Any] = {}


class _Meaning(NamedTuple):
    """What a node of the optimised graph stands for."""

    place: int
    title: str
    output: str


def operator_times(
    network: Network, make: Callable[[Preparation], Session], run: Callable[[Session], object], repeats: int
) -> list[OperatorTime]:
    """The times of ``repeats`` runs in a session that ``make`` makes; one run before them is not counted."""
    with tempfile.TemporaryDirectory(prefix="levelbench-") as folder:
        graph_file = Path(folder, "optimised.onnx")

        def prepare(options: onnxruntime.SessionOptions) -> None:
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(folder, "profile"))
            options.optimized_model_filepath = str(graph_file)
            options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "arrays")

        session = make(prepare)
        for _ in range(repeats + 1):
            run(session)
        profile = session.session.end_profiling()
        runs = list(_runs(msgspec.json.decode(Path(profile).read_bytes(), type=list[_Event])))[-repeats:]
        meanings = _meanings(network, _graph(graph_file))
    times: dict[tuple[str, str], list[float]] = {}
    for events in runs:
        for event in events:
            times.setdefault((_node_of(event), event.args.get("op_name", "")), []).append(event.dur * 1e-6)
    found = []
    for (name, op_type), each in times.items():
        meaning = meanings.get(name)
        # A node inside a subgraph is part of the time of the node that has it.
        if meaning is not None and len(each) == len(runs):
            found.append(OperatorTime(meaning.place, meaning.title or op_type, meaning.output, tuple(each)))
    return found


def _runs(events: Sequence[_Event]) -> Iterator[list[_Event]]:
    """The kernels of each run, in order."""
    kernels: list[_Event] = []
    for event in events:
        if event.cat == "Node" and event.name.endswith(_KERNEL):
            kernels.append(event)
        elif event.name == "model_run":
            yield kernels
            kernels = []


def _node_of(event: _Event) -> str:
    return event.name.removesuffix(_KERNEL)


def _graph(path: Path) -> onnx.GraphProto:
    try:
        return onnx.load_model(str(path), load_external_data=False).graph
    except (OSError, DecodeError):
        # A graph of its own compiled kernels is not saved: the names that nodes were given remain.
        return onnx.GraphProto()


def _meanings(network: Network, optimised: onnx.GraphProto) -> dict[str, _Meaning]:
    """What the optimised graph's nodes stand for, by name."""
    nodes = network.model.graph.node
    maker = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    inputs = {each.name for each in network.inputs}
    varies = _varying(nodes, inputs)
    found: dict[str, _Meaning] = {}
    if not optimised.node:
        for at, node in enumerate(nodes):
            found[node_name(at)] = _Meaning(at, node.op_type, _first(node.output))
        return found
    covered: set[int] = set()
    for each in optimised.node:
        names = [name for name in each.output if name in maker]
        if not names and each.name.endswith(_BLOCKED):
            # A node on blocked channels has another output, and its name says in place of which.
            names = [name for name in (each.name.removesuffix(_BLOCKED),) if name in maker]
        mine = _leading_to(names, nodes, maker, covered, varies)
        covered |= mine
        found[each.name] = _meaning(each, sorted(mine), nodes, names)
    return found


def _meaning(
    each: onnx.NodeProto, mine: Sequence[int], nodes: Sequence[onnx.NodeProto], names: Sequence[str]
) -> _Meaning:
    output = names[0] if names else _first(each.output)
    for at in mine:
        same = nodes[at].op_type == each.op_type and list(nodes[at].output) == list(each.output)
        # What else led to it was left out, as Dropout is, or is computed by an equal node.
        if (same and each.name == node_name(at)) or (len(mine) == 1 and nodes[at].op_type == each.op_type):
            return _Meaning(at, each.op_type, output)
    parts = " + ".join(nodes[at].op_type for at in mine)
    return _Meaning(-1, f"{each.op_type} = {parts}" if mine else each.op_type, output)


def _leading_to(
    names: Sequence[str],
    nodes: Sequence[onnx.NodeProto],
    maker: dict[str, int],
    covered: set[int],
    varies: set[int],
) -> set[int]:
    """The nodes that compute ``names`` from what is covered already; those on constants alone have been folded."""
    found: set[int] = set()
    waiting = list(names)
    while waiting:
        at = maker.get(waiting.pop(), -1)
        if at >= 0 and at not in covered and at not in found and at in varies:
            found.add(at)
            waiting.extend(outer_reads(nodes[at]))
    return found


def _varying(nodes: Sequence[onnx.NodeProto], inputs: set[str]) -> set[int]:
    """The nodes that depend on an input."""
    values = set(inputs)
    found = set()
    for at, node in enumerate(nodes):
        if values.intersection(outer_reads(node)):
            found.add(at)
            values.update(node.output)
    return found


def _first(names: Sequence[str]) -> str:
    return next((name for name in names if name), "")


# A witness beside ONNX Runtime's profiler, from which the times of its operators come: our own clock.
# Each node is run as a session of its own, finished before the next, with a clock around it. Neither its graph nor its
# profiler is in that, so where both give the same shares, both are right. A single session costs some ten microseconds
# a call, which small operators show.


def profile(
    backend: OperatorBackend, executor: Executor, inputs: Sequence[Any], repeats: int
) -> tuple[str, dict[str, float]]:
    """The method, and the seconds of each type of operator in an inference: the median of ``repeats``.

    Raises ``UnsupportedError`` for an optimised session, whose fused operators are not those of the network.
    """
    network = executor.network
    if network is None or executor.mode != "unoptimised":
        raise UnsupportedError(
            f"sessions of single operators beside mode {executor.mode!r}",
            "its fused operators are not those of the network",
            "use mode unoptimised",
        )
    lowered = Lowered(network, backend)
    titles = {step.index: step.node.title for step in lowered.steps}
    live = {**executor.parameters, **executor.buffers}
    arrays = [live[name] for name in lowered.arrays]
    turns: list[dict[str, float]] = []
    for _ in range(repeats + 1):
        turns.append(defaultdict(float))
        for index, nanoseconds in lowered.run_timed(list(inputs), arrays, backend.clock(HOST), backend.finish):
            turns[-1][titles[index]] += nanoseconds * 1e-9
    # The first turn makes the sessions.
    found = {name: median(turn[name] for turn in turns[1:]) for name in turns[0]}
    return "sessions of single operators", found
