"""How much memory and time a network takes, node by node, with or without splitting its batch into pieces.

Values live from the node that makes them to the last node that reads them. If a range of nodes runs in pieces, only the
values that enter and leave it exist as a whole. The workspace of operators is an upper bound, so that plans stay within
their limit. Times are measured, or come from a model of what makes pieces slower: a call has a fixed cost, weights are
read once per piece, and cutting and joining move bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UnknownNameError, UnsupportedError
from levelbench.networks.cost import VIEWS, signature_of
from levelbench.networks.executor import Backend
from levelbench.networks.inspect import outer_reads
from levelbench.networks.network import Network
from levelbench.networks.transforms.batch_rules import FIXED, Carried, Carry, Independence, Tracked, track
from levelbench.networks.transforms.folding import FoldConstants
from levelbench.networks.transforms.graph import EditableGraph, known_values
from levelbench.networks.transforms.transform import Arrays
from levelbench.networks.values import Value
from levelbench.operators.cost import Signature, cost_of
from levelbench.operators.node import OperatorNode

WORKSPACES = ("reorder", "im2col", "none")
_PLACE_BYTES = 8
_CONVOLUTIONS = ("Conv", "ConvTranspose")
# Normalising over channels squares, pads, sums and divides, each of which makes a tensor as large as the input.
_TEMPORARIES = {"LRN": 4, "LayerNormalization": 2, "Softmax": 1, "LogSoftmax": 1, "Gelu": 2, "Attention": 2}


def workspace_bytes(
    node: OperatorNode, inputs: Sequence[Signature | None], outputs: Sequence[Signature | None], kind: str
) -> int:
    """Bytes besides inputs and outputs while the node runs; ``UnknownNameError`` for an unknown kind."""
    if kind not in WORKSPACES:
        raise UnknownNameError("workspace", kind, WORKSPACES)
    first, made = inputs[0] if inputs else None, outputs[0] if outputs else None
    if kind == "none" or node.domain or first is None or made is None:
        return 0
    if node.op_type in _CONVOLUTIONS:
        weight = inputs[1]
        if weight is None:
            return 0
        if kind == "reorder":
            return first.bytes + made.bytes + weight.bytes
        window = math.prod(weight.shape[1:]) * int(node.get("group", 1))
        # ConvTranspose stores its products before it adds them up; Conv stores its windows before it multiplies.
        places = first if node.op_type == "ConvTranspose" else made
        return places.shape[0] * math.prod(places.shape[2:]) * window * first.itemsize + first.bytes
    if node.op_type == "MaxPool":
        return made.size * _PLACE_BYTES if kind == "reorder" else made.bytes * math.prod(node["kernel_shape"])
    return first.bytes * _TEMPORARIES.get(node.op_type, 0)


@dataclass(frozen=True)
class SpeedModel:
    """A machine described by three numbers; the defaults are about one core of a server of 2023."""

    call_s: float = 10e-6
    flops_per_s: float = 5e10
    bytes_per_s: float = 1e10

    def operator_s(
        self, node: OperatorNode, inputs: Sequence[Signature | None], outputs: Sequence[Signature | None]
    ) -> float:
        """The time of one call: its fixed cost plus the longer of computing and moving."""
        cost = cost_of(node, inputs, outputs)
        return self.call_s + max((cost.flops or 0.0) / self.flops_per_s, (cost.bytes or 0.0) / self.bytes_per_s)

    def copy_s(self, moved: float, calls: int) -> float:
        """The time of cutting or joining, which reads and writes ``moved`` bytes."""
        return calls * self.call_s + 2 * moved / self.bytes_per_s


class TimeTable:
    """Measured seconds, by the name of a node's first output and the number of samples."""

    def __init__(self, seconds: Mapping[str, Mapping[int, float]]) -> None:
        self._points = {
            name: (np.array(sorted(each), float), np.array([each[size] for size in sorted(each)]))
            for name, each in seconds.items()
            if each
        }

    def seconds(self, output: str, samples: int) -> float | None:
        """Seconds, interpolated linearly, or proportional beyond the largest size; ``None`` if not measured."""
        points = self._points.get(output)
        if points is None:
            return None
        sizes, times = points
        if samples > sizes[-1]:
            return float(times[-1] * samples / sizes[-1])
        return float(np.interp(samples, sizes, times))


def measure_times(
    backend: Backend,
    network: Network,
    sizes: Sequence[int],
    parameters: Arrays | None = None,
    *,
    repeats: int = 5,
    mode: str | None = None,
    open_sizes: Mapping[str, int] | None = None,
) -> TimeTable:
    """The median time of each operator at each number of samples, one inference at a time.

    ``UnsupportedError`` if the backend cannot distinguish operators in that mode.
    """
    found: dict[str, dict[int, float]] = {}
    for size in sorted(set(sizes)):
        bound = FoldConstants(batch=size, sizes=open_sizes or {}).apply(network, parameters)
        executor = backend.executor(bound.network, bound.parameters, mode=mode, trains=False)
        given = [backend.array(each) for each in bound.network.make_inputs(size).values()]
        executor.operator_times(*given, repeats=1)
        for each in executor.operator_times(*given, repeats=repeats):
            found.setdefault(each.output, {})[size] = float(np.median(each.times_s))
    return TimeTable(found)


def sizes_of(batch: int, pieces: int) -> tuple[int, ...]:
    """The sizes of that many pieces of the batch, which differ by at most one, larger ones first."""
    size, more = divmod(batch, pieces)
    return (size + 1,) * more + (size,) * (pieces - more)


@dataclass(frozen=True)
class _Life:
    """A value that a node makes: its bytes for the whole batch, its node, and the last node that reads it."""

    name: str
    bytes: int
    made: int
    last: int


@dataclass(frozen=True)
class NodeRange:
    """A range of consecutive nodes. ``entering``: values to be cut; ``leaving``: values to be joined.

    ``beyond`` and ``ending`` are bytes of earlier whole values that outlive the range or end in it; ``inside`` are
    bytes per sample that a piece holds while each node runs, without what leaves.
    """

    entering: tuple[str, ...]
    leaving: tuple[str, ...]
    beyond: int
    ending: int
    inside: NDArray[Any]


class Profile:
    """The memory of a network whose sizes are all bound, at one batch size."""

    def __init__(self, network: Network, axes: Mapping[str, int], batch: int, workspace: str) -> None:
        """``axes``: the batch axes of inputs. ``UnsupportedError`` if a shape is unknown."""
        self.network, self.batch = network, batch
        self.nodes: tuple[OperatorNode, ...] = network.nodes
        self.reads = [tuple(dict.fromkeys(outer_reads(each))) for each in network.model.graph.node]
        self._known = known_values(network)
        shapes = {name: each.sizes for name, each in self._known.items()}
        graph = EditableGraph(network)
        inputs: dict[str, Carry] = {name: Carried(axis) for name, axis in axes.items()}
        self.tracked: Tracked = track(self.nodes, self.reads, inputs, shapes, graph.constant, batch)
        self._workspace = workspace
        self._kept = graph.kept()
        self._bytes: dict[str, int] = {}
        self.base = self._base(graph)
        self._lives, self._roots = self._follow()
        self.live = self._live()
        self._index()
        self._peaks = [live + self.workspace(at, batch) for at, live in enumerate(self.live)]

    def _signature(self, name: str, samples: int | None = None) -> Signature | None:
        if not name:
            return None
        value = self._known.get(name)
        shape = None if value is None else value.sizes
        if value is None or shape is None:
            raise UnsupportedError(
                f"the memory of {self.network.name}", f"the shape of {name!r} is unknown", "bind all of its sizes"
            )
        carry = self.tracked.values.get(name, FIXED)
        if samples is not None and isinstance(carry, Carried):
            shape = (*shape[: carry.axis], samples * carry.multiple, *shape[carry.axis + 1 :])
        return signature_of(Value(name, value.dtype, shape))

    def bytes(self, name: str) -> int:
        """The bytes of a value for the whole batch."""
        if name not in self._bytes:
            found = self._signature(name)
            self._bytes[name] = 0 if found is None else found.bytes
        return self._bytes[name]

    def signatures(self, at: int, samples: int) -> tuple[list[Signature | None], list[Signature | None]]:
        """The inputs and outputs of the node at ``at`` for ``samples`` of the batch."""
        node, split = self.nodes[at], self.tracked.nodes[at]
        part = samples if isinstance(split, Independence) else None
        return (
            [self._signature(name, part) for name in node.inputs],
            [self._signature(name, part) for name in node.outputs],
        )

    def workspace(self, at: int, samples: int) -> int:
        """The workspace of the node at ``at`` for that many samples, in bytes."""
        return workspace_bytes(self.nodes[at], *self.signatures(at, samples), self._workspace)

    def _base(self, graph: EditableGraph) -> int:
        read = {name for names in self.reads for name in names}
        arrays = (set(graph.roles) | set(graph.initialisers)) & read
        fixed = [
            name
            for node, kind in zip(self.nodes, self.tracked.nodes, strict=True)
            if kind == FIXED
            for name in node.outputs
        ]
        return sum(self.bytes(name) for name in [*sorted(arrays), *graph.inputs, *fixed] if name)

    def _follow(self) -> tuple[dict[str, _Life], dict[str, str]]:
        """The life of each value that a node makes, and the value whose memory it shares."""
        last: dict[str, int] = {}
        for at, names in enumerate(self.reads):
            last.update(dict.fromkeys(names, at))
        last.update(dict.fromkeys(self._kept, len(self.nodes)))
        lives: dict[str, _Life] = {}
        roots: dict[str, str] = {}
        for at, (node, kind) in enumerate(zip(self.nodes, self.tracked.nodes, strict=True)):
            if kind == FIXED:
                continue
            for name in (each for each in node.outputs if each):
                end = last.get(name, at)
                lives[name] = _Life(name, self.bytes(name), at, end)
                shares = not node.domain and node.op_type in VIEWS
                roots[name] = roots.get(node.inputs[0], node.inputs[0]) if shares else name
        return lives, roots

    def _live(self) -> list[int]:
        """The bytes of whole values while each node runs, without base and workspace."""
        ends: dict[str, int] = {}
        for name, life in self._lives.items():
            root = self._roots[name]
            ends[root] = max(ends.get(root, 0), life.last)
        # A value that shares memory with an input of the network takes no memory of its own.
        roots = [(life, ends[name]) for name, life in self._lives.items() if self._roots[name] == name]
        change = [0] * (len(self.nodes) + 2)
        for life, end in roots:
            change[life.made] += life.bytes
            change[min(end, len(self.nodes)) + 1] -= life.bytes
        self._ends = ends
        return [int(each) for each in np.cumsum(change)[: len(self.nodes)]]

    def whole_peak(self, first: int, stop: int) -> int:
        """The peak memory while nodes ``first`` to ``stop`` (exclusive) run on the whole batch."""
        return self.base + max(self._peaks[first:stop], default=0)

    def can_split(self, first: int, stop: int) -> bool:
        """Whether all these nodes treat samples independently, and at least one depends on samples."""
        kinds = self.tracked.nodes[first:stop]
        return all(each != "mixed" for each in kinds) and any(isinstance(each, Independence) for each in kinds)

    def stretch(self, first: int, stop: int) -> NodeRange:
        """What enters these nodes, leaves them, passes by, and exists in between."""
        entering: dict[str, None] = {}
        ends: dict[str, int] = {}
        makes: list[tuple[int, _Life]] = []
        for at in range(first, stop):
            entering.update((name, None) for name, made in self._cut[at] if not first <= made < stop)
            ends.update((root, at) for root in self._used[at])
            makes += [(at, life) for life in self._made[at]]
        leaving = [life.name for _, life in makes if life.last >= stop]
        gone = {self._roots[name] for name in leaving}
        change = [0] * (stop - first + 1)
        for name in entering:
            change[0] += self.bytes(name)
            change[ends.get(self._roots.get(name, name), stop - 1) - first + 1] -= self.bytes(name)
        for at, life in makes:
            if self._roots[life.name] == life.name and life.name not in gone:
                change[at - first] += life.bytes
                change[ends[life.name] - first + 1] -= life.bytes
        beyond, ending = self.across(first, stop)
        inside: NDArray[Any] = np.cumsum(change)[: stop - first] / self.batch
        return NodeRange(tuple(entering), tuple(leaving), beyond, ending, inside)

    def across(self, first: int, stop: int) -> tuple[int, int]:
        """The bytes of whole values that outlive these nodes, and of earlier ones that end among them."""
        beyond = ending = 0
        for made, end, size in self._spans:
            if made < first <= end:
                beyond, ending = (beyond + size, ending) if end >= stop else (beyond, ending + size)
        return beyond, ending

    def _index(self) -> None:
        """Precompute what :meth:`stretch` needs per node: values to cut and their makers, used roots, made values."""
        roots, lives = self._roots, self._lives
        self._cut: list[tuple[tuple[str, int], ...]] = []
        self._used: list[tuple[str, ...]] = []
        self._made: list[tuple[_Life, ...]] = []
        for node, read, kind in zip(self.nodes, self.reads, self.tracked.nodes, strict=True):
            needs = kind.needs if isinstance(kind, Independence) else ()
            cut = [name for name, need in zip(node.inputs, needs, strict=False) if name and need is not None]
            self._cut.append(tuple((name, lives[name].made if name in lives else -1) for name in cut))
            made = [name for name in node.outputs if name in lives]
            self._used.append((*(roots.get(name, name) for name in read), *(roots[name] for name in made)))
            self._made.append(tuple(lives[name] for name in made))
        self._spans = [(lives[name].made, end, lives[name].bytes) for name, end in self._ends.items() if name in lives]


def piece_peaks(
    profile: Profile, stretch: NodeRange, first: int, stop: int, sizes: Sequence[int], workspaces: NDArray[Any]
) -> NDArray[Any]:
    """The peak memory while these nodes run in pieces, for each size of the largest piece in ``sizes``.

    ``workspaces`` are bytes by node and size. Two moments matter: the last piece, when all pieces of leaving values
    exist, and the joining of these pieces, when the largest value exists twice.
    """
    leaving = [profile.bytes(name) for name in stretch.leaving]
    inside = (stretch.inside[:, None] * np.asarray(sizes, float)[None, :] + workspaces[first:stop]).max(axis=0)
    fixed = profile.base + stretch.beyond + sum(leaving)
    peaks: NDArray[Any] = np.maximum(fixed + stretch.ending + inside, fixed + max(leaving, default=0))
    return peaks
