"""The time of each operator, from ONNX Runtime's profiler, in terms of the network's own nodes.

The one idea: the optimised graph is saved beside the profile, and a node in it that answers with a value of the network
stands for all nodes that lead to that value and that none before it stands for.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import onnx
import onnxruntime
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from levelbench.frameworks.onnxruntime.graphs import node_name
from levelbench.frameworks.onnxruntime.sessions import Preparation, Session
from levelbench.networks.executor import OperatorTime
from levelbench.networks.inspect import outer_reads
from levelbench.networks.network import Network

__all__ = ["operator_times"]

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
