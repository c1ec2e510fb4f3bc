"""Micro-batching: parts of a network run on pieces of the batch, so that the whole stays inside a memory limit.

The one idea: cut, compute and join, all in ONNX (Slice, the operators, Concat), so every framework executes it.
Slice and not Split, because a piece is then cut when it is needed and not before. Outputs and gradients are those of
the whole batch: a node that mixes its batch is never split (:mod:`levelbench.networks.transforms.carried`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import onnx
from onnx import helper

from levelbench.errors import UsageError
from levelbench.networks.network import Network
from levelbench.networks.transforms.carried import Carried, Independence
from levelbench.networks.transforms.constants import FoldConstants
from levelbench.networks.transforms.graph import Graph
from levelbench.networks.transforms.memory import Profile
from levelbench.networks.transforms.plan import Plan, Segment, make_plan
from levelbench.networks.transforms.shapes import batch_axes
from levelbench.networks.transforms.times import Machine, TimeTable
from levelbench.networks.transforms.transform import Arrays, Transform, Transformed, whole_number

__all__ = ["Microbatch", "parse_bytes", "split_network"]

_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def parse_bytes(text: str | int) -> int:
    """Bytes of ``2GiB``, ``500 MB`` or a number; ``UsageError`` for anything else."""
    if isinstance(text, int):
        return text
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if found is None or found[2].upper() not in _UNITS:
        raise UsageError(f"the memory {text!r}", "that is no number of bytes", "as in 2GiB, 500MB or 1000000")
    return int(float(found[1]) * _UNITS[found[2].upper()])


class Microbatch(Transform):
    """Splits the batch where the network would take more than ``memory`` bytes of an inference.

    The result is for one ``batch`` size; ``sizes`` bind the network's other open sizes. ``workspace`` says how
    convolutions are computed (:mod:`levelbench.networks.transforms.workspace`); ``times`` are measured times of the
    operators (:func:`levelbench.networks.transforms.times.measure_times`), else ``machine`` predicts them.
    """

    name = "microbatch"
    summary = "splits the batch of parts of the network, to stay inside a memory limit"

    def __init__(
        self,
        *,
        memory: str | int,
        batch: str | int,
        sizes: Mapping[str, int] = MappingProxyType({}),
        workspace: str = "reorder",
        times: TimeTable | None = None,
        machine: Machine | None = None,
    ) -> None:
        self._limit, self._batch, self._sizes = parse_bytes(memory), whole_number("batch", batch), dict(sizes)
        self._workspace, self._times, self._machine = workspace, times, machine

    def plan(self, network: Network) -> Plan:
        """The plan alone."""
        return self._planned(network, None)[0]

    def transform(self, network: Network, parameters: Arrays | None) -> Transformed:
        """The network with pieces; the plan is in ``details``."""
        plan, profile, bound = self._planned(network, parameters)
        changed = tuple(plan.text().splitlines()) if plan.splits else ()
        new, values = split_network(profile, plan.segments, bound.parameters)
        return Transformed(new, values, self.name, changed, details=plan)

    def _planned(self, network: Network, parameters: Arrays | None) -> tuple[Plan, Profile, Transformed]:
        axes = batch_axes(network)
        if not axes:
            raise UsageError(
                f"micro-batches of {network.name}", "its batch size is fixed", "open it first: --transform batch"
            )
        # A large constant is computed from small ones here too, so a shape behind it is known.
        bound = FoldConstants(batch=self._batch, sizes=self._sizes).transform(network, parameters)
        profile = Profile(bound.network, axes, self._batch, self._workspace)
        return make_plan(profile, self._limit, machine=self._machine, table=self._times), profile, bound


def split_network(
    profile: Profile, segments: tuple[Segment, ...], parameters: Arrays | None = None
) -> tuple[Network, dict[str, np.ndarray] | None]:
    """The network of ``profile`` with the nodes of each segment repeated for each of its pieces."""
    graph = Graph(profile.network, parameters)
    protos = list(graph.nodes)
    nodes: list[onnx.NodeProto] = []
    for each in segments:
        own = range(each.first, each.stop)
        if len(each.pieces) == 1:
            nodes += [protos[at] for at in own]
            continue
        nodes += [protos[at] for at in own if profile.tracked.nodes[at] == "fixed"]
        nodes += _Splitter(graph, profile, each).nodes(protos)
    graph.nodes = nodes
    return graph.finish()


class _Splitter:
    """Writes out one segment piece by piece."""

    def __init__(self, graph: Graph, profile: Profile, segment: Segment) -> None:
        self._graph, self._profile, self._segment = graph, profile, segment
        self._numbers: dict[tuple[int, ...], str] = {}

    def nodes(self, protos: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """The nodes of all pieces, and those that join what leaves the segment."""
        leaving = self._profile.stretch(self._segment.first, self._segment.stop).leaving
        parts: dict[str, list[str]] = {name: [] for name in leaving}
        found: list[onnx.NodeProto] = []
        start = 0
        for at, size in enumerate(self._segment.pieces):
            piece = _Piece(self, at, start, size)
            for index in range(self._segment.first, self._segment.stop):
                split = self._profile.tracked.nodes[index]
                if isinstance(split, Independence):
                    found += piece.written(protos[index], split)
            for name, names in parts.items():
                names.append(piece.names[name])
            start += size
        for name, names in parts.items():
            carry = self._profile.tracked.values[name]
            assert isinstance(carry, Carried)
            found.append(self._graph.make("Concat", names, name, axis=carry.axis))
        return found

    def number(self, *values: int) -> str:
        """A constant of one axis with these values."""
        if values not in self._numbers:
            self._numbers[values] = self._graph.store(np.array(values, np.int64), f"micro.{'_'.join(map(str, values))}")
        return self._numbers[values]

    def free(self, name: str) -> str:
        """A free name like this one."""
        return self._graph.free(name)

    def constant(self, name: str) -> np.ndarray:
        """The value of a constant input."""
        found = self._graph.constant(name)
        assert found is not None
        return found


class _Piece:
    """One piece of the batch: samples ``start`` to ``start + size``."""

    def __init__(self, splitter: _Splitter, at: int, start: int, size: int) -> None:
        self._splitter, self._at, self._start, self._size = splitter, at, start, size
        self.names: dict[str, str] = {}
        self._cut: dict[tuple[str, Carried], str] = {}

    def written(self, proto: onnx.NodeProto, split: Independence) -> list[onnx.NodeProto]:
        """The node for this piece, after those that cut its inputs."""
        found: list[onnx.NodeProto] = []
        node = onnx.NodeProto()
        node.CopyFrom(proto)
        for at, (name, need) in enumerate(zip(proto.input, split.needs, strict=True)):
            if name and need is not None:
                node.input[at] = self.names.get(name) or self._slice(name, need, found)
        for at, entry, multiple in split.baked:
            value = self._splitter.constant(proto.input[at]).copy()
            value[entry] = self._size * multiple
            node.input[at] = self._splitter.number(*(int(each) for each in value))
        for at, name in enumerate(proto.output):
            if name:
                node.output[at] = self.names[name] = self._splitter.free(f"{name}.piece{self._at}")
        node.name = f"{proto.name or proto.output[0]}.piece{self._at}"
        found.append(node)
        return found

    def _slice(self, name: str, need: Carried, found: list[onnx.NodeProto]) -> str:
        if (name, need) not in self._cut:
            number, output = self._splitter.number, self._splitter.free(f"{name}.piece{self._at}")
            start, stop = self._start * need.multiple, (self._start + self._size) * need.multiple
            inputs = [name, number(start), number(stop), number(need.axis)]
            found.append(helper.make_node("Slice", inputs, [output], name=output))
            self._cut[name, need] = output
        return self._cut[name, need]
