"""Places operators, networks and training steps under the roofs of this machine, measured beside them.

In every round a process measures the roofs, then the work, several times in a row: the roofs have emptied the caches,
and a run or a service finds them as its own last step left them, so the first half does not count. A share is the least
time that the best roofs of the process allow over the median time of the work. What has operations or bytes to count
gets one; a view, which moves nothing, does not. The replicate is the process.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, TypeVar

import msgspec
import numpy as np

from levelbench.errors import LevelbenchError, UnsupportedError, UsageError
from levelbench.experiments.processes import ProcessNote, listen, raise_reported, serve
from levelbench.experiments.profiling import ProfileJob, batches_of, trainer_of
from levelbench.measure.ceilings import GemmMaker
from levelbench.measure.clocks import HOST
from levelbench.measure.meters.resources import available_cores
from levelbench.measure.roofs import RoofRates, Roofs, best_of_rounds, steady
from levelbench.networks.benchmark.cases import dtype_of_network, known_of, make_case
from levelbench.networks.benchmark.measuring import PreparedCase, costs_of
from levelbench.networks.cost import backward_costs, is_view, network_cost, signature_of
from levelbench.networks.executor import Array, Backend, Executor, OperatorTime
from levelbench.networks.network import Network
from levelbench.networks.shapes import infer_shapes
from levelbench.networks.values import dtype_of
from levelbench.operators.benchmark.measuring import backend_gemm
from levelbench.operators.contract import Framework, OperatorBackend
from levelbench.operators.cost import Cost
from levelbench.operators.frameworks import load_framework, open_framework
from levelbench.operators.node import OperatorNode
from levelbench.records.networks import NetworkSpecification
from levelbench.records.rooflines import Direction, Kind, RooflineProfile, RooflineRow

__all__ = ["RooflineJob", "main", "measure_roofline", "roofline_profiles"]

_CHILD = "levelbench.experiments.roofline"
_FEWEST = 5
_STRETCH_S, _MOST_STEPS = 0.04, 200
"""How long the work is repeated in a round, and how often at most."""
_MOVERS = frozenset({"Expand", "Slice", "Split", "Transpose"})
"""Operators that a framework may answer with a view; whether it does is tried."""

K = TypeVar("K")


class RooflineJob(msgspec.Struct, frozen=True):
    """What to place: the step of a recipe, or a network; one of both."""

    step: ProfileJob | None = None
    network: NetworkSpecification | None = None
    budget_s: float = 3.0


class RooflineNote(ProcessNote, frozen=True, kw_only=True):
    """A line to the parent: also the profile."""

    profile: RooflineProfile | None = None


def main(arguments: list[str]) -> int:
    """Read a job from standard input and carry it out; the first argument is the file descriptor for notes."""
    return serve(arguments, RooflineJob, lambda job, tell: tell(RooflineNote(profile=measure_roofline(job))))


def roofline_profiles(
    job: RooflineJob, processes: int, on_turn: Callable[[int, int], None] = lambda at, of: None
) -> list[RooflineProfile]:
    """The profiles of ``processes`` processes, one after the other. Raises what a process reports."""
    found = []
    for at in range(1, processes + 1):
        on_turn(at, processes)
        notes, code, output = listen(_CHILD, job, RooflineNote)
        raise_reported(notes, code, output, "a roofline", "", 0)
        found.append(next(note.profile for note in notes if note.profile is not None))
    return found


@dataclass(frozen=True)
class _Whole:
    """A stretch of work that is timed as it is: a pass, a step or a network."""

    kind: Kind
    name: str
    direction: Direction
    flops: float | None
    bytes: float | None


_Turn = tuple[tuple[float, ...], Mapping[tuple[str, int], float]]
"""Seconds of each whole, and of each operator by direction and place, in one round."""


@dataclass(frozen=True)
class _Part:
    """An operator with its cost in one direction; ``why_not`` says why it has no share."""

    title: str
    direction: Literal["forward", "backward"]
    cost: Cost
    why_not: str = ""


@dataclass(frozen=True)
class _Subject:
    """The work: its wholes, its operators, and one round of it."""

    wholes: tuple[_Whole, ...]
    parts: Mapping[tuple[str, int], _Part]
    dtype: str
    turn: Callable[[], _Turn]
    no_operators: str


def _in_a_row(once: Callable[[], Mapping[K, float]]) -> dict[K, float]:
    """The median seconds of each part when caches are those of the work; ``once`` does it once and says its own."""
    made: list[Mapping[K, float]] = []
    began_ns = HOST.now_ns()
    while not made or (len(made) < _MOST_STEPS and (HOST.now_ns() - began_ns) * 1e-9 < _STRETCH_S):
        made.append(once())
    counted = made[len(made) // 2 :]
    return {key: median(each[key] for each in counted) for key in made[0]}


def _threads() -> int:
    """As many threads as the work may use, so that no roof is that of more cores: ``OMP_NUM_THREADS``, or all cores."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(int(asked), available_cores()) if asked.isdigit() and int(asked) else available_cores()


def measure_roofline(job: RooflineJob) -> RooflineProfile:
    """Measure in this process; raises the errors of the framework, and ``UnsupportedError`` for an accelerator."""
    if job.step is not None:
        name, device = job.step.specification.framework, job.step.specification.device
    elif job.network is not None:
        name, device = job.network.arm.framework, job.network.arm.device
    else:
        raise UsageError("a roofline", "the job names neither a step nor a network", "name one")
    if device != "cpu":
        found = "roofs by level of the memory are measured on the CPU only"
        raise UnsupportedError(f"a roofline on {device}", found, "use levelbench operator, which measures its ceilings")
    subject = _of_step(job.step) if job.step is not None else _of_network(job.network)
    subject.turn()
    turns: list[_Turn] = []
    framework = load_framework(name)
    own = [*framework.gemms(), *_own_product(framework, device)]
    with Roofs(own, cores=_threads()) as kernels:
        kernels.measure()
        began_ns, measured = HOST.now_ns(), [kernels.measure()]
        while len(turns) < _FEWEST or (HOST.now_ns() - began_ns) * 1e-9 < job.budget_s:
            turns.append(subject.turn())
            measured.append(kernels.measure())
    roofs = best_of_rounds(measured)
    return RooflineProfile(
        rounds=len(turns),
        flop_s=dict(roofs.flop_s),
        bytes_s=dict(roofs.bytes_s),
        spread=steady(measured),
        levels=[
            (each.name, each.capacity_bytes if math.isfinite(each.capacity_bytes) else None) for each in roofs.levels
        ],
        rows=[*_whole_rows(subject, turns, roofs), *_operator_rows(subject, turns, roofs)],
        no_operators=subject.no_operators,
    )


def _own_product(framework: Framework, device: str) -> list[tuple[str, GemmMaker]]:
    """The framework's product in float32, which may be faster than NumPy's; none if it has no MatMul."""
    if framework.name == "numpy":
        return []
    try:
        return [("float32", backend_gemm(framework.open(device), "float32"))]
    except UnsupportedError:
        return []


def _whole_rows(subject: _Subject, turns: Sequence[_Turn], roofs: RoofRates) -> Iterator[RooflineRow]:
    for at, each in enumerate(subject.wholes):
        # The operators of a whole run one after the other, so its bound is the sum of theirs.
        parts = [part for part in subject.parts.values() if each.direction in ("both", part.direction)]
        row = RooflineRow(
            each.kind,
            each.name,
            each.direction,
            1,
            each.flops,
            each.bytes,
            subject.dtype,
            median(wholes[at] for wholes, _ in turns),
        )
        yield _with_share(row, parts, roofs)


def _operator_rows(subject: _Subject, turns: Sequence[_Turn], roofs: RoofRates) -> list[RooflineRow]:
    """One row for each type of operator and direction, the slowest first."""
    groups: dict[tuple[str, Literal["forward", "backward"]], list[tuple[str, int]]] = {}
    for key, part in subject.parts.items():
        if key in turns[0][1]:
            groups.setdefault((part.title, part.direction), []).append(key)
    rows = []
    for (title, direction), keys in groups.items():
        parts = [subject.parts[key] for key in keys]
        row = RooflineRow(
            "operator",
            title,
            direction,
            len(keys),
            _sum([each.cost.flops for each in parts]),
            _sum([each.cost.bytes for each in parts]),
            subject.dtype,
            median(sum(operators[key] for key in keys) for _, operators in turns),
        )
        rows.append(_with_share(row, parts, roofs))
    return sorted(rows, key=lambda row: -row.time_s)


def _with_share(row: RooflineRow, parts: Sequence[_Part], roofs: RoofRates) -> RooflineRow:
    """The row with the least time of its operators over its time, and the roof that causes most of it."""
    causes: dict[tuple[str, str], float] = {}
    for part in parts:
        found = None if part.why_not else roofs.least(*part.cost, row.dtype)
        if found is not None:
            place = found.bound, found.roof
            causes[place] = causes.get(place, 0.0) + found.seconds
    if not causes or row.time_s <= 0:
        reasons = {part.why_not for part in parts if part.why_not}
        return msgspec.structs.replace(row, reason=min(reasons, default="neither its operations nor bytes are known"))
    bound, roof = max(causes, key=lambda place: causes[place])
    return msgspec.structs.replace(row, share=sum(causes.values()) / row.time_s, bound=bound, roof=roof)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _of_step(job: ProfileJob) -> _Subject:
    """The training step of a recipe: forward, backward and update, and the operators of both passes."""
    trainer = trainer_of(job)
    executor, backend, batches = trainer.executor, trainer.backend, batches_of(trainer)
    batch = next(batches)
    parts, dtype = _step_parts(executor, backend, len(batch[0]))
    no_operators = ""
    try:
        executor.step_times(*batch)
    except UnsupportedError as error:
        no_operators = f"{error.asked}: {error.found}"
    state = {"step": 0}

    def batch_of() -> tuple[Array, ...]:
        nonlocal batches
        given = next(batches, None)
        if given is None:
            batches = batches_of(trainer)
            given = next(batches)
        return given

    def step() -> dict[int, float]:
        given = batch_of()
        times = [HOST.now_ns()]
        backend.finish([executor.forward(*given)])
        times.append(HOST.now_ns())
        gradients = executor.backward()
        backend.finish(list(gradients.values()))
        times.append(HOST.now_ns())
        state["step"] += 1
        trainer.stepper.step(gradients, state["step"], 1.0)
        backend.finish(list(executor.parameters.values()))
        times.append(HOST.now_ns())
        forward, backward, update = (np.diff(times) * 1e-9).tolist()
        return dict(enumerate((forward, backward, forward + backward + update)))

    def operators() -> dict[tuple[str, int], float]:
        timed = executor.step_times(*batch_of())
        return {**_seconds("forward", timed[0]), **_seconds("backward", timed[1])}

    def turn() -> _Turn:
        return tuple(_in_a_row(step).values()), {} if no_operators else _in_a_row(operators)

    def total(direction: str, what: str) -> float | None:
        known = [getattr(part.cost, what) for part in parts.values() if direction in ("both", part.direction)]
        return sum(value or 0.0 for value in known) if any(known) else None

    directions: tuple[tuple[Kind, str, Direction], ...] = (
        ("pass", "forward pass", "forward"),
        ("pass", "backward pass", "backward"),
        ("training step", "training step", "both"),
    )
    wholes = tuple(
        _Whole(kind, name, direction, total(direction, "flops"), total(direction, "bytes"))
        for kind, name, direction in directions
    )
    return _Subject(wholes, parts, dtype, turn, no_operators)


def _seconds(direction: str, times: Sequence[OperatorTime]) -> dict[tuple[str, int], float]:
    return {(direction, each.index): float(np.median(each.times_s)) for each in times if each.index >= 0}


def _step_parts(executor: Executor, backend: Backend, batch: int) -> tuple[dict[tuple[str, int], _Part], str]:
    """The operators of a training step with their costs; none for a native network, whose costs are unknown."""
    network = executor.network
    if network is None:
        return {}, "float32"
    precision = getattr(executor, "precision", "float32")
    dtype = precision if precision != "float32" else dtype_of_network(network)
    try:
        forward = [each.cost for each in network_cost(network, batch).nodes]
        backward = backward_costs(network, batch)
    except LevelbenchError:
        return {}, dtype
    parts: dict[tuple[str, int], _Part] = {}
    views = views_of(network, backend, batch)
    for at, node in enumerate(network.nodes):
        parts["forward", at] = _Part(node.title, "forward", forward[at], views.get(at, ""))
        parts["backward", at] = _Part(node.title, "backward", backward[at], views.get(at, ""))
    return parts, dtype


def _of_network(specification: NetworkSpecification | None) -> _Subject:
    """An inference of a network and its operators."""
    assert specification is not None
    backend = open_framework(specification.arm.framework, specification.arm.device)
    if not isinstance(backend, Backend):
        asked = f"a network on {specification.arm.framework}"
        raise UnsupportedError(asked, "it runs single operators only", "use another framework")
    mode = backend.chosen_mode(specification.arm.mode or None)
    made = make_case(specification)
    known = known_of(made, specification, backend.describe(), mode)
    trial = PreparedCase(backend, made, specification, mode)
    no_operators, network = "", made.network
    times: list[OperatorTime] = []
    try:
        times = trial.executor.operator_times(*trial.inputs)
    except UnsupportedError as error:
        no_operators = f"{error.asked}: {error.found}"
    views = {} if network is None else views_of(network, backend, specification.case.batch, specification.case.sizes)
    costs = costs_of(times, network, known)
    if times:
        parts = {
            ("forward", at): _Part(each.title, "forward", cost, views.get(each.index, ""))
            for at, (each, cost) in enumerate(zip(times, costs, strict=True))
        }
    else:
        parts = {("forward", at): _Part("", "forward", cost) for at, cost in known.nodes.items()}

    def inference() -> dict[int, float]:
        before = HOST.now_ns()
        trial.work()
        return {0: (HOST.now_ns() - before) * 1e-9}

    def operators() -> dict[tuple[str, int], float]:
        found = trial.executor.operator_times(*trial.inputs)
        return {("forward", at): each.times_s[0] for at, each in enumerate(found)}

    def turn() -> _Turn:
        return tuple(_in_a_row(inference).values()), {} if no_operators else _in_a_row(operators)

    whole = _Whole("network", specification.case.title, "forward", known.facts.flops, known.facts.bytes)
    return _Subject((whole,), parts, known.facts.dtype, turn, no_operators)


def views_of(
    network: Network, backend: OperatorBackend, batch: int, sizes: Mapping[str, int] | None = None
) -> dict[int, str]:
    """Why a node moves nothing, by its index: it is a view, or this framework makes one of it."""
    values = infer_shapes(network, {**(sizes or {}), "batch": batch})
    found = {}
    for at, node in enumerate(network.nodes):
        if is_view(node):
            found[at] = "a view: it moves nothing"
        elif not node.domain and node.op_type in _MOVERS:
            shape = signature_of(values.get(node.inputs[0]))
            dtype = values[node.inputs[0]].dtype if node.inputs[0] in values else ""
            if shape is not None and len(node.inputs) == 1 and _is_view_here(backend, node, shape.shape, dtype):
                found[at] = "a view in this framework: it moves nothing"
    return found


def _is_view_here(backend: OperatorBackend, node: OperatorNode, shape: tuple[int, ...], dtype: str) -> bool:
    """Whether the framework's result shares the memory of its input; ``False`` if that cannot be seen."""
    given = backend.array(np.zeros(shape, dtype_of(dtype)))
    try:
        result = backend.operator(node).forward(given)[0]
        return bool(np.shares_memory(np.from_dlpack(given), np.from_dlpack(result)))
    except (LevelbenchError, TypeError, BufferError, RuntimeError, ValueError, AttributeError):
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
