"""Micro-batching: runs parts of a network on pieces of the batch, to stay within a memory limit.

Cutting, computing and joining are all ONNX (Slice, the operators, Concat), so every framework can execute it. Slice is
used instead of Split, so that a piece is cut only when it is needed. A node that mixes its batch is never split. What
is alive at a cut does not depend on how the parts before it were split. So the limit applies to each part separately,
and dynamic programming over the cuts finds the fastest plan of the model exactly. An integer program (Oyama et al.
2018, as in the Deep500 paper's experiment) is needed only if operators share one workspace budget; here they run one by
one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from types import MappingProxyType

import numpy as np
import onnx

from levelbench.errors import UsageError
from levelbench.networks.network import Network
from levelbench.networks.transforms.batch_rules import Carried, Independence
from levelbench.networks.transforms.folding import FoldConstants
from levelbench.networks.transforms.graph import EditableGraph, batch_axes
from levelbench.networks.transforms.memory import Profile, SpeedModel, TimeTable, piece_peaks, sizes_of
from levelbench.networks.transforms.transform import Arrays, Transform, Transformed, whole_number

_MOST_CUTS = 80
_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
RESERVE = 0.02
"""The share of a limit that is reserved for other things than tensors: the executor, loaded code, whole pages."""
NODE_BYTES = 15_000
"""What a node takes while the network is prepared: its message, its line and its compiled code.

Measured on LeNet-5 in 512 pieces: 296 MiB for 20,481 nodes, a hundred times the tensors.
"""
_FEW_NODES = 1000
"""So many nodes more are not counted: what they take is below what an executor takes anyway."""
# Added to the time of each part, so that the plan with fewer parts is preferred if plans are equally fast.
_TIE_S = 1e-9


def format_bytes(count: float) -> str:
    """``1.50 GiB``."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count:.0f} B"


@dataclass(frozen=True)
class Segment:
    """Nodes ``first`` to ``stop`` (exclusive), which run on ``pieces`` of the batch one after another.

    ``memory`` is the predicted peak in bytes meanwhile, ``time_s`` the predicted time.
    """

    first: int
    stop: int
    operators: tuple[str, ...]
    pieces: tuple[int, ...]
    memory: int
    time_s: float


@dataclass(frozen=True)
class SplitPlan:
    """A plan and its predicted cost, compared with the unsplit network. Bytes and seconds."""

    network: str
    batch: int
    limit: int
    segments: tuple[Segment, ...]
    memory: int
    whole_memory: int
    base_memory: int
    time_s: float
    whole_time_s: float

    @property
    def splits(self) -> bool:
        """Whether anything is split."""
        return any(len(each.pieces) > 1 for each in self.segments)

    def text(self) -> str:
        """The plan as a table."""
        rows = [("nodes", "operators", "micro-batches", "memory")]
        for each in self.segments:
            rows.append(
                (
                    f"{each.first}-{each.stop - 1}",
                    _listed(each.operators),
                    _pieces(each.pieces),
                    format_bytes(each.memory),
                )
            )
        widths = [max(len(row[at]) for row in rows) for at in range(4)]
        lines = ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        more = 100 * (self.time_s / self.whole_time_s - 1) if self.whole_time_s else 0.0
        lines.append(
            f"batch {self.batch}: {format_bytes(self.memory)} of at most {format_bytes(self.limit)} "
            f"({format_bytes(self.base_memory)} are parameters and inputs); unsplit {format_bytes(self.whole_memory)}; "
            f"predicted time {more:+.1f} %"
        )
        return "\n".join(lines)


def _listed(operators: Sequence[str], most: int = 4) -> str:
    if len(operators) <= most:
        return " ".join(operators)
    return f"{' '.join(operators[: most - 1])} ... {operators[-1]} ({len(operators)})"


def _pieces(sizes: Sequence[int]) -> str:
    counts = [(size, sizes.count(size)) for size in dict.fromkeys(sizes)]
    return " + ".join(f"{count} x {size}" if count > 1 else str(size) for size, count in counts)


class _Costs:
    """Peaks and times of ranges of nodes, by number of pieces."""

    def __init__(self, profile: Profile, machine: SpeedModel, table: TimeTable | None) -> None:
        self.profile, self._machine = profile, machine
        batch, nodes = profile.batch, len(profile.nodes)
        self.counts = [count for count in dict.fromkeys((*_COUNTS, batch)) if count <= batch]
        self.sizes = [sizes_of(batch, count) for count in self.counts]
        largest = [each[0] for each in self.sizes]
        self._largest = largest
        self._workspaces = np.array([[profile.workspace(at, size) for size in largest] for at in range(nodes)], float)
        times = np.zeros((nodes + 1, len(self.counts)))
        different = sorted({size for found in self.sizes for size in found})
        for at in range(nodes):
            known = {size: self._operator_s(at, size, table) for size in different}
            times[at + 1] = [sum(known[size] for size in found) for found in self.sizes]
        # What does not depend on the batch runs once, for any number of pieces.
        for at, kind in enumerate(profile.tracked.nodes):
            if kind == "fixed":
                times[at + 1] = times[at + 1, 0]
        self._times = np.cumsum(times, axis=0)

    def _operator_s(self, at: int, samples: int, table: TimeTable | None) -> float:
        node = self.profile.nodes[at]
        measured = None if table is None else table.seconds(next((each for each in node.outputs if each), ""), samples)
        if measured is not None:
            return measured
        return self._machine.operator_s(node, *self.profile.signatures(at, samples))

    def of(self, first: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Peaks in bytes and times in seconds, by number of pieces; infinite if it cannot be split."""
        times = self._times[stop] - self._times[first]
        peaks = np.full(len(self.counts), np.inf)
        peaks[0] = self.profile.whole_peak(first, stop)
        if len(self.counts) > 1 and self.profile.can_split(first, stop):
            stretch = self.profile.stretch(first, stop)
            peaks[1:] = piece_peaks(self.profile, stretch, first, stop, self._largest, self._workspaces)[1:]
            entering, leaving = stretch.entering, stretch.leaving
            moved = sum(self.profile.bytes(name) for name in (*entering, *leaving))
            calls = [count * len(entering) + len(leaving) for count in self.counts[1:]]
            added = [call + (count - 1) * (stop - first) for call, count in zip(calls, self.counts[1:], strict=True)]
            peaks[1:] += NODE_BYTES * np.maximum(np.array(added, float) - _FEW_NODES, 0)
            times[1:] += [self._machine.copy_s(moved, each) for each in calls]
        return peaks, times + _TIE_S


def make_plan(
    profile: Profile,
    limit: int,
    *,
    reserve: float = RESERVE,
    spare: int = 0,
    machine: SpeedModel | None = None,
    table: TimeTable | None = None,
) -> SplitPlan:
    """The fastest plan whose predicted peak is at most ``limit`` bytes minus ``spare`` and the share ``reserve``.

    ``UsageError`` if there is none; it says the smallest limit that can be met.
    """
    costs = _Costs(profile, machine or SpeedModel(), table)
    nodes, usable = len(profile.nodes), int(max(0, limit - spare) * (1 - reserve))
    # If the network fits unsplit, no search is needed.
    cuts = [0, nodes] if profile.whole_peak(0, nodes) <= usable else _cuts(profile)
    all_costs = {(start, end): costs.of(cuts[start], cuts[end]) for end in range(1, len(cuts)) for start in range(end)}
    best, choice = _search(len(cuts), all_costs, usable)
    if not np.isfinite(best):
        smallest = _limit_for(_smallest(len(cuts), all_costs), reserve) + spare
        raise UsageError(
            f"{profile.network.name} at batch {profile.batch} in {format_bytes(limit)}",
            f"no split of the batch needs so little; the smallest possible limit is {smallest} bytes "
            f"({format_bytes(smallest)})",
            "raise the limit, or use a smaller batch",
        )
    segments = []
    end = len(cuts) - 1
    while end:
        start, count = choice[end]
        peaks, times = all_costs[start, end]
        names = tuple(each.title for each in profile.nodes[cuts[start] : cuts[end]])
        segments.append(
            Segment(cuts[start], cuts[end], names, costs.sizes[count], int(peaks[count]), float(times[count]))
        )
        end = start
    segments.reverse()
    merged = _merged(segments)
    whole_peaks, whole_times = costs.of(0, nodes)
    return SplitPlan(
        profile.network.name,
        profile.batch,
        limit,
        merged,
        max(each.memory for each in merged),
        int(whole_peaks[0]),
        profile.base,
        sum(each.time_s for each in merged),
        float(whole_times[0]),
    )


def _limit_for(peak: int, reserve: float) -> int:
    """The smallest limit that allows this peak after subtracting the reserve."""
    limit = int(peak / (1 - reserve))
    while int(limit * (1 - reserve)) < peak:
        limit += 1
    return limit


def _merged(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Merge neighbouring segments that are not split."""
    found: list[Segment] = []
    for each in segments:
        if found and len(found[-1].pieces) == len(each.pieces) == 1:
            old = found.pop()
            memory, time_s = max(old.memory, each.memory), old.time_s + each.time_s
            each = Segment(old.first, each.stop, old.operators + each.operators, each.pieces, memory, time_s)
        found.append(each)
    return tuple(found)


def _cuts(profile: Profile) -> list[int]:
    """Where the network may be cut: everywhere, or, if it is long, where the least memory is alive."""
    nodes = len(profile.nodes)
    if nodes <= _MOST_CUTS:
        return list(range(nodes + 1))
    alive = [profile.across(at, at)[0] for at in range(nodes + 1)]
    dips = [at for at in range(1, nodes) if alive[at] <= min(alive[at - 1], alive[at + 1])]
    if len(dips) > _MOST_CUTS:
        dips = [dips[round(at)] for at in np.linspace(0, len(dips) - 1, _MOST_CUTS)]
    return sorted({0, nodes, *dips})


AllCosts = dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]


def _search(cuts: int, costs: AllCosts, limit: float) -> tuple[float, dict[int, tuple[int, int]]]:
    """The least total time, and the last part of the fastest plan up to each cut."""
    least = [0.0] + [np.inf] * (cuts - 1)
    choice: dict[int, tuple[int, int]] = {}
    for end in range(1, cuts):
        for start in range(end):
            peaks, times = costs[start, end]
            total = np.where(peaks <= limit, least[start] + times, np.inf)
            at = int(np.argmin(total))
            if total[at] < least[end]:
                least[end] = float(total[at])
                choice[end] = start, at
    return least[-1], choice


def _smallest(cuts: int, costs: AllCosts) -> int:
    """The smallest limit for which there is a plan: the minimum over plans of their largest peak."""
    least = [0.0] + [np.inf] * (cuts - 1)
    for end in range(1, cuts):
        least[end] = min(max(least[start], float(costs[start, end][0].min())) for start in range(end))
    return int(np.ceil(least[-1]))


_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def parse_bytes(text: str | int) -> int:
    """Bytes of ``2GiB``, ``500 MB`` or a number; ``UsageError`` for anything else."""
    if isinstance(text, int):
        return text
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if found is None or found[2].upper() not in _UNITS:
        raise UsageError(f"the memory {text!r}", "it is not a number of bytes", "write 2GiB, 500MB or 1000000")
    return int(float(found[1]) * _UNITS[found[2].upper()])


class Microbatch(Transform):
    """Splits the batch where an inference would take more than ``memory`` bytes.

    The result is for one ``batch`` size; ``sizes`` bind the network's other open sizes. ``workspace`` says how
    convolutions are computed (:mod:`levelbench.networks.transforms.memory`). ``spare`` bytes of the limit are left for
    what an inference was seen to take beyond its plan. ``times`` are measured times of the operators
    (:func:`levelbench.networks.transforms.memory.measure_times`), else ``machine`` predicts them.
    """

    name = "microbatch"
    summary = "splits the batch of parts of the network, to stay within a memory limit"

    def __init__(
        self,
        *,
        memory: str | int,
        batch: str | int,
        sizes: Mapping[str, int] = MappingProxyType({}),
        workspace: str = "reorder",
        spare: int = 0,
        times: TimeTable | None = None,
        machine: SpeedModel | None = None,
    ) -> None:
        self._limit, self._batch, self._sizes = parse_bytes(memory), whole_number("batch", batch), dict(sizes)
        self._workspace, self._spare, self._times, self._machine = workspace, spare, times, machine

    def plan(self, network: Network) -> SplitPlan:
        """Only the plan."""
        return self._planned(network, None)[0]

    def apply(self, network: Network, parameters: Arrays | None = None) -> Transformed:
        """The network with pieces; the plan is in ``details``."""
        plan, profile, bound = self._planned(network, parameters)
        changed = tuple(plan.text().splitlines()) if plan.splits else ()
        new, values = split_network(profile, plan.segments, bound.parameters)
        return Transformed(new, values, self.name, changed, details=plan)

    def _planned(self, network: Network, parameters: Arrays | None) -> tuple[SplitPlan, Profile, Transformed]:
        axes = batch_axes(network)
        if not axes:
            raise UsageError(
                f"micro-batches of {network.name}", "its batch size is fixed", "open it first: --transform batch"
            )
        # Large constants that are computed from small ones must be known here too, for the shapes that depend on them.
        bound = FoldConstants(batch=self._batch, sizes=self._sizes).apply(network, parameters)
        profile = Profile(bound.network, axes, self._batch, self._workspace)
        plan = make_plan(profile, self._limit, spare=self._spare, machine=self._machine, table=self._times)
        return plan, profile, bound


def split_network(
    profile: Profile, segments: tuple[Segment, ...], parameters: Arrays | None = None
) -> tuple[Network, dict[str, np.ndarray] | None]:
    """The network of ``profile`` with the nodes of each segment repeated for each of its pieces."""
    graph = EditableGraph(profile.network, parameters)
    protos = list(graph.nodes)
    tracked, numbers = profile.tracked, _Numbers(graph)
    graph.nodes = []
    for each in segments:
        own = range(each.first, each.stop)
        if len(each.pieces) == 1:
            graph.nodes += [protos[at] for at in own]
            continue
        graph.nodes += [protos[at] for at in own if tracked.nodes[at] == "fixed"]
        starts = accumulate(each.pieces, initial=0)
        pieces = [_Piece(graph, numbers, *place) for place in zip(count(), starts, each.pieces, strict=False)]
        for piece in pieces:
            for at in own:
                split = tracked.nodes[at]
                if isinstance(split, Independence):
                    piece.write(protos[at], split)
        for name in profile.stretch(each.first, each.stop).leaving:
            carry = tracked.values[name]
            assert isinstance(carry, Carried)
            names = [piece.names[name] for piece in pieces]
            graph.nodes.append(graph.make("Concat", names, name, axis=carry.axis))
    return graph.finish()


class _Numbers(dict[tuple[int, ...], str]):
    """Names of one-dimensional constants, which are stored on first use."""

    def __init__(self, graph: EditableGraph) -> None:
        self._graph = graph

    def __missing__(self, values: tuple[int, ...]) -> str:
        self[values] = self._graph.store(np.array(values, np.int64), f"micro.{'_'.join(map(str, values))}")
        return self[values]


class _Piece:
    """One piece of the batch: samples ``start`` to ``start + size``."""

    def __init__(self, graph: EditableGraph, numbers: _Numbers, at: int, start: int, size: int) -> None:
        self._graph, self._numbers, self._at, self._start, self._size = graph, numbers, at, start, size
        self.names: dict[str, str] = {}
        self._cut: dict[tuple[str, Carried], str] = {}

    def write(self, proto: onnx.NodeProto, split: Independence) -> None:
        """Add the node for this piece to the graph, after nodes that cut its inputs."""
        node = onnx.NodeProto()
        node.CopyFrom(proto)
        for at, (name, need) in enumerate(zip(proto.input, split.needs, strict=True)):
            if name and need is not None:
                node.input[at] = self.names.get(name) or self._slice(name, need)
        for at, entry, multiple in split.baked:
            value = self._graph.constant(proto.input[at])
            assert value is not None
            value = value.copy()
            value[entry] = self._size * multiple
            node.input[at] = self._numbers[tuple(value.tolist())]
        for at, name in enumerate(proto.output):
            if name:
                node.output[at] = self.names[name] = self._graph.free(f"{name}.piece{self._at}")
        node.name = f"{proto.name or proto.output[0]}.piece{self._at}"
        self._graph.nodes.append(node)

    def _slice(self, name: str, need: Carried) -> str:
        if (name, need) not in self._cut:
            output = self._cut[name, need] = self._graph.free(f"{name}.piece{self._at}")
            start, stop = self._start * need.multiple, (self._start + self._size) * need.multiple
            inputs = [name, *(self._numbers[(each,)] for each in (start, stop, need.axis))]
            self._graph.nodes.append(self._graph.make("Slice", inputs, output))
        return self._cut[name, need]
