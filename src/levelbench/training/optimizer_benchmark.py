"""What an optimizer costs: an update of given tensors, and a whole step of training a network. Measured in a process.

Before each value, off the clock, gradients are written anew (or another batch is taken), so no call gets what the last
one got. The first updates that are timed are compared with the same rule on NumPy, one tensor after another; whether
the rule itself is right is what ``levelbench check`` finds out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast, final

import numpy as np

from levelbench.checks.arrays import Correctness, Host
from levelbench.errors import DefinitionError, MissingError, UsageError
from levelbench.measure.clocks import HOST, Clock, timed
from levelbench.measure.sampling import sample
from levelbench.measure.stopping import Budget, Precision
from levelbench.networks import Network, zoo
from levelbench.networks.executor import Array, Backend, host_copies
from levelbench.operators.benchmark.measuring import TrialSettings, failure
from levelbench.operators.benchmark.watching import SEAL, RefusedError, WrongError, settle
from levelbench.operators.contract import Operator, OperatorBackend
from levelbench.operators.frameworks import open_framework
from levelbench.operators.node import OperatorNode
from levelbench.records.benchmarks import OPTIMIZERS, Case, Problem, Tensor
from levelbench.training.optimizers.base import Optimizer, UpdateRule
from levelbench.training.optimizers.wrappers import Native
from levelbench.training.probes.optimizer_files import load_optimizers
from levelbench.training.probes.optimizer_references import USUAL_RATE, computes_in_bfloat16, named_optimizer

__all__ = ["loaded", "measure_optimizer", "network_of", "step_problem", "update_problem", "warm_up"]

_COMPARED = 5
_TOLERANCE, _ROUGH = 1e-4, 1e-2
"""Of how far parameters may be apart after the first updates, to how far they have come: in float32, by element or not.

Whole-layer rules iterate and factor matrices, which amplifies rounding.
"""
_FEW, _OVERRUN = 6, 3.0
_BATCHES = 8
_LAST = 3
_WARM = {"torch": "torch.optim.AdamW", "jax": "optax.adamw"}
_need_whole = SEAL.need_whole
Settings = Mapping[str, Any]
Shapes = Mapping[str, tuple[int, ...]]


@cache
def loaded(file: str) -> dict[str, Optimizer]:
    """The optimizers of a file by name, loaded once in a process."""
    return load_optimizers(Path(file))[0]


def network_of(name: str) -> Network:
    """The network to train: ``mlp`` (that of the digits task) or one of the zoo, with a loss if it has none."""
    network = zoo.mlp(64, 128, 10) if name == "mlp" else zoo.build(name)
    return (network if network.loss else network.with_loss()).training()


def update_problem(title: str, shapes: Shapes, optimizer: Settings) -> Problem:
    """An update of tensors of these shapes, in float32; ``optimizer`` has ``name`` and ``settings``."""
    count = sum(math.prod(shape) for shape in shapes.values())
    plural = "s" * (len(shapes) != 1)
    return Problem(
        name=f"update of {title}: {len(shapes)} tensor{plural}, {count:,} numbers",
        operator="update",
        inputs=tuple(shapes),
        outputs=tuple(shapes),
        tensors=tuple(Tensor(name, shape, "float32") for name, shape in shapes.items()),
        opset=0,
        attributes=dict(optimizer),
        domain=OPTIMIZERS,
    )


def step_problem(network: str, batch: int, optimizer: Settings) -> Problem:
    """A whole step of training a network: forward, backward, update."""
    attributes = {**optimizer, "network": network, "batch": batch}
    return Problem(f"step of {network}, batch {batch}", "step", (), (), (), 0, attributes, OPTIMIZERS)


class _Work(Protocol):
    parameters: Any

    def renew(self) -> None:
        """Other contents for the next calls."""

    def call(self) -> object:
        """What is measured: it ends when the parameters are computed."""

    def fault(self) -> str:
        """What is wrong with the parameters after the last call; empty if nothing is."""


@final
class _Update:
    """Updates alone. The gradients change in size and sign, so that parameters stay where they are."""

    def __init__(self, backend: Backend, optimizer: Optimizer, shapes: Shapes, *, plain: bool = False) -> None:
        random = np.random.default_rng(0)
        hosts = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        self.start = {name: np.asarray(0.1 * each, np.float32) for name, each in hosts.items()}
        self._slopes = {
            name: 0.01 * random.standard_normal(each.shape).astype(np.float32) for name, each in hosts.items()
        }
        self._backend, self._random, self._steps = backend, random, 0
        self.parameters: dict[str, Array] = {name: backend.array(each.copy()) for name, each in self.start.items()}
        begin = cast(UpdateRule, optimizer).one_by_one if plain else optimizer.start
        self.stepper = begin(backend, self.parameters)
        self.renew()

    def renew(self) -> None:
        factor = np.float32((0.6 + 0.4 * self._random.random()) * (-1.0 if self._steps % 2 else 1.0))
        self._gradients = {name: self._backend.array(np.asarray(each * factor)) for name, each in self._slopes.items()}

    def call(self) -> object:
        self._steps += 1
        self.stepper.step(self._gradients, self._steps, 1.0)
        self._backend.finish(list(self.parameters.values()))
        return None

    def continue_from(self, other: _Update) -> None:
        """Take over parameters, state, step and gradients, so that the next update of both is the same."""
        for name, each in other.hosts().items():
            self.parameters[name] = self._backend.array(each)
        self.stepper.restore(other.stepper.state())
        self._steps = other._steps
        found = host_copies(other._backend, other._gradients)
        self._gradients = {name: self._backend.array(each) for name, each in found.items()}

    def hosts(self) -> dict[str, Host]:
        """Copies of the parameters."""
        return host_copies(self._backend, self.parameters)

    def fault(self) -> str:
        found = self.hosts()
        if bad := [name for name, each in found.items() if not np.isfinite(each).all()]:
            return f"after {self._steps} updates {bad[0]!r} is not finite"
        if all(np.array_equal(found[name], each) for name, each in self.start.items()):
            return f"{self._steps} updates changed no parameter"
        return ""

    def bytes(self) -> float:
        """Compulsory traffic of an update: gradients are read, parameters and state read and written."""
        tensors = sum(each.nbytes for each in self.start.values())
        return float(3 * tensors + 2 * sum(each.nbytes for each in self.stepper.state().values()))


def warm_up(backend: OperatorBackend) -> None:
    """Let a framework import what its own optimizers need, which in PyTorch replaces functions of its own."""
    name = next((each for each in _WARM if type(backend).__module__.startswith(f"levelbench.frameworks.{each}.")), "")
    if name and isinstance(backend, Backend):
        with suppress(MissingError):
            _Update(backend, Native(_WARM[name], USUAL_RATE), {"w": (2,)}).call()


@final
class _Step:
    """Whole steps of training a network, on batches that take turns."""

    def __init__(self, backend: Backend, optimizer: Optimizer, network: Network, batch: int) -> None:
        self._executor = backend.executor(network, network.initialise(0))
        self.parameters = self._executor.parameters
        made = [network.make_inputs(batch, seed).values() for seed in range(_BATCHES)]
        self._batches = [[backend.array(each) for each in inputs] for inputs in made]
        self._stepper = optimizer.start(backend, self.parameters)
        self._backend, self._steps, self._turn = backend, 0, 0
        self._loss: Array = None

    def renew(self) -> None:
        self._turn += 1

    def call(self) -> object:
        self._loss, gradients = self._executor.infer_and_backprop(*self._batches[self._turn % _BATCHES])
        self._steps += 1
        self._stepper.step(gradients, self._steps, 1.0)
        self._backend.finish([self._loss, *self.parameters.values()])
        return None

    def fault(self) -> str:
        loss = float(self._backend.host(self._loss))
        return "" if math.isfinite(loss) else f"after {self._steps} steps the loss is {loss}: try a smaller lr"


_STILL = 64


@final
class _Checks:
    """Off the clock: new contents before each value, and after some of them whether parameters still change."""

    def __init__(self, work: _Work, backend: Backend) -> None:
        self._work, self._backend, self._count, self._next = work, backend, 0, 1

    def before(self, inner: int) -> None:
        self._work.renew()

    def after(self, found: Any, claimed_ns: int, real_ns: int) -> None:
        self._count += 1
        if self._count < self._next:
            return
        self._next *= 8
        early = self._seen()
        settle()
        if self._seen() != early:
            raise RefusedError("parameters still changed after the clock had stopped: part of the work is done later")
        self.need_movement()

    def need_movement(self) -> None:
        """Refuse an optimizer that no longer updates, as it may after more steps than its check takes.

        :raises RefusedError: when no parameter changes in further updates off the clock.
        """
        if self._work.fault():
            # Reported at the end, in other words.
            return
        before = self._seen()
        # Several, as an optimizer may add up gradients in between.
        for _ in range(_STILL):
            self._work.renew()
            self._work.call()
            if self._seen() != before:
                return
        raise RefusedError(f"{_STILL} updates after the timed ones changed no parameter")

    def _seen(self) -> list[bytes]:
        return [np.asarray(self._backend.host(each)).tobytes() for each in self._work.parameters.values()]


def measure_optimizer(
    backend: OperatorBackend,
    problem: Problem,
    index: int,
    seed: int,
    limits: TrialSettings,
    reference: Callable[[OperatorNode], Operator],
    *,
    file: str = "",
) -> tuple[Case, list[float]]:
    """The case of a problem of :func:`update_problem` or :func:`step_problem`, and its raw times in seconds per call.

    ``file`` defines the optimizer, if it is the user's own. ``seed`` and ``reference`` are those of operators.
    """
    moved: float | None = None
    try:
        if not isinstance(backend, Backend):
            raise UsageError("an optimizer", "this framework does not train", "choose numpy, torch or jax")
        clock = HOST if limits.on_host else backend.clock()
        name, settings = problem.attributes["name"], problem.attributes["settings"]
        optimizer = loaded(file)[name] if file else named_optimizer(name, settings)
        work: _Work
        checked = Correctness(checked="a step as a whole: its parts are checked alone")
        if problem.operator == "step":
            work = _Step(backend, optimizer, network_of(problem.attributes["network"]), problem.attributes["batch"])
        else:
            shapes = {each.name: each.shape for each in problem.tensors}
            checked = _compared(backend, optimizer, shapes, clock)
            work = _Update(backend, optimizer, shapes)
        first_ns = timed(work.call, clock, 1)[0]
        # The second gets what the first returned, for which a compiler may work again.
        work.renew()
        work.call()
        moved = work.bytes() if isinstance(work, _Update) else None
        until = Precision(limits.precision) | Budget(limits.budget_s, _FEW, _OVERRUN)
        checks = _Checks(work, backend)
        taken = sample(work.call, until, clock=clock, between=checks)
        checks.need_movement()
        _need_whole()
        if isinstance(work, _Update) and checked.errors:
            _conclude(work, optimizer, shapes, clock)
        if fault := work.fault():
            raise DefinitionError(problem.name, fault, "give other settings, as in Adam[lr=0.001]")
    except RefusedError as error:
        return Case(index, "refused", str(error)), []
    except WrongError as error:
        return Case(index, "wrong", str(error)), []
    except Exception as error:  # noqa: BLE001  # the boundary to a user's optimizer and to a framework
        return Case(index, *failure(error)), []
    case = Case(
        index,
        "measured",
        flops=None if moved is None else 0.0,
        bytes=moved,
        errors=checked.errors,
        checked=checked.checked,
        inner=taken.inner,
        stopped_by=taken.stopped_by,
        warmup_reason=taken.warmup_reason,
        first_s=first_ns * 1e-9,
    )
    return case, taken.values.tolist()


def _compared(backend: Backend, optimizer: Optimizer, shapes: Shapes, clock: Clock) -> Correctness:
    """The first timed updates compared with the same rule on NumPy; ``WrongError`` if they are not the same."""
    if not isinstance(optimizer, UpdateRule):
        whose = "of the framework" if isinstance(optimizer, Native) else "made of others"
        return Correctness(checked=f"not compared with NumPy: it is {whose}")
    if computes_in_bfloat16(optimizer):
        return Correctness(checked="not compared with NumPy: it rounds to bfloat16")
    plain = open_framework("numpy")
    assert isinstance(plain, Backend)
    ours, theirs = _Update(plain, optimizer, shapes, plain=True), _Update(backend, optimizer, shapes)
    for _ in range(_COMPARED):
        for each in (ours, theirs):
            each.renew()
        ours.call()
        timed(theirs.call, clock, 1)
    worst = _apart(theirs.hosts(), ours.hosts(), ours.start, optimizer, f"after {_COMPARED} updates", _COMPARED)
    allowed = _TOLERANCE if optimizer.elementwise else _ROUGH
    said = f"{_COMPARED} timed updates, compared with the same rule on NumPy: within {allowed:g} of the way"
    return Correctness("", said, {"relative": worst})


def _conclude(work: _Update, optimizer: Optimizer, shapes: Shapes, clock: Clock) -> None:
    """Raise ``WrongError`` unless the last updates, timed after all others, are those of NumPy from the same state."""
    plain = open_framework("numpy")
    assert isinstance(plain, Backend)
    assert isinstance(optimizer, UpdateRule)
    for _ in range(_LAST):
        work.renew()
        ours = _Update(plain, optimizer, shapes, plain=True)
        ours.continue_from(work)
        before = ours.hosts()
        ours.call()
        timed(work.call, clock, 1)
        _apart(work.hosts(), ours.hosts(), before, optimizer, "in one of the last timed updates", 1)


def _apart(
    found: Mapping[str, Host],
    wanted: Mapping[str, Host],
    start: Mapping[str, Host],
    rule: UpdateRule,
    when: str,
    n: int,
) -> float:
    """How far parameters are apart, of the way that they came in ``n`` updates; ``WrongError`` if that is too far."""
    allowed, worst = _TOLERANCE if rule.elementwise else _ROUGH, 0.0
    for name, each in found.items():
        way, apart = _norm(wanted[name] - start[name]), _norm(each - wanted[name])
        rounding = n * float(np.finfo(np.float32).eps) * _norm(each)
        if not apart <= allowed * way + rounding:
            raise WrongError(f"{when} {name!r} is {apart / way if way else math.inf:.2g} of its way from NumPy's")
        worst = max(worst, apart / way if way else 0.0)
    return worst


def _norm(values: Host | Sequence[float]) -> float:
    return float(np.linalg.norm(np.asarray(values, np.float64).ravel()))
