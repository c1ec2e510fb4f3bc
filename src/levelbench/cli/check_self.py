"""``levelbench check --self-test``: whether the checks find planted faults and leave right parts alone.

Each part of a corpus (``levelbench/planted``) is checked as ``levelbench check FILE.py:NAME`` checks it, in its own
process with a time limit. Processes are forked from one that has done the imports, one or two for each core at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.cli.progress_line import ProgressLine
from levelbench.errors import UnknownNameError

if TYPE_CHECKING:
    from levelbench.checks.findings import Report
    from levelbench.checks.self_test import JudgedPart, Planted
    from levelbench.report.tables import Table

__all__ = ["KINDS", "check_self", "corpus_of", "score_table", "self_test"]

TIMEOUT_S = 120.0
"""The time limit of one part. It is a finding, so a part that hangs need not take longer."""
PROCESSOR_S, OPERATOR_S = 40, 20
"""The limit of a part's processor time, so that one that turns for ever ends earlier where the machine is quiet.

Checks of right operators take 5 s at most, including the import of PyTorch.
"""


def _operator(path: Path, name: str, planted: Planted, seed: int) -> Report:
    from levelbench.operators.probes.files import Request, check_isolated

    return check_isolated(Request(str(path), name, "numpy", seed=seed), timeout_s=TIMEOUT_S)[0]


def _optimizer(path: Path, name: str, planted: Planted, seed: int) -> Report:
    from levelbench.cli.findings import installed
    from levelbench.training.probes.optimizer_files import check_isolated

    frameworks = installed(("numpy", "torch"), "cpu")
    return check_isolated(path, name, planted.reference, frameworks=frameworks, seed=seed, timeout_s=TIMEOUT_S).report


def warm_optimizers(name: str) -> None:
    """Check an optimizer in the process that others are forked from: they find its draws and what PyTorch sets up."""
    from levelbench.cli.findings import installed
    from levelbench.training.probes.optimizer_references import named_optimizer
    from levelbench.training.probes.optimizers import check_optimizer

    check_optimizer(named_optimizer(name, {}), name, frameworks=installed(("numpy", "torch"), "cpu"))


def _scheme(path: Path, name: str, planted: Planted, seed: int) -> Report:
    from levelbench.distributed.probes.files import check_scheme_isolated

    return check_scheme_isolated(str(path), name, seed=seed, timeout_s=TIMEOUT_S)


def _communicator(path: Path, name: str, planted: Planted, seed: int) -> Report:
    from levelbench.distributed.probes.files import check_communicator_isolated, load_communicators

    if name not in load_communicators(path):
        # A compressor is checked as part of a scheme.
        return _scheme(path, f"{name}Scheme", planted, seed)
    return check_communicator_isolated(path, name, timeout_s=TIMEOUT_S)


def _network(path: Path, name: str, planted: Planted, seed: int) -> Report:
    from levelbench.networks.probes.likeness import check_isolated

    return check_isolated(f"{path}:{name}", planted.reference, seed=seed, timeout_s=TIMEOUT_S)


@dataclass(frozen=True)
class CheckedKind:
    """How a kind is checked, what its processes import first if it is there, and which probes may find what.

    ``prepare`` is a function that is called with each file of its corpus before processes are forked, and ``warm`` one
    that is called once, with its text. Of parts that spend time waiting, ``at_once`` are checked on each core.
    """

    check: Callable[[Path, str, Planted, int], Report]
    imports: tuple[str, ...]
    probes: Mapping[str, tuple[str, ...]]
    frameworks: tuple[str, ...] = ("numpy", "torch")
    prepare: str = ""
    processor_s: int = PROCESSOR_S
    warm: tuple[tuple[str, str], ...] = ()
    at_once: int = 1


_OPERATOR_PROBES = {
    "value": ("forward", "values", "dtypes", "shapes", "long sums"),
    "gradient": ("gradient", "gradient at ties", "gradient in float32"),
    "shape": ("forward", "shapes", "shape inference", "gradient"),
    "dtype": ("dtypes", "forward", "values", "shape inference", "gradient", "gradient in float32"),
    "attributes": ("attributes", "forward", "shapes", "gradient", "shape inference"),
    "inputs-changed": ("inputs left alone", "strides", "state of backward"),
    "aliasing": ("outputs are new", "inputs left alone", "state of backward"),
    "state": ("state", "state of backward", "determinism", "repeatability", "timed calls", "leaks"),
    "memory": ("written", "bounds", "memory", "leaks"),
    "determinism": ("determinism", "repeatability"),
    "special-values": ("NaN and infinity", "NaN in gradients", "values"),
    "strides": ("strides",),
    "size": ("shapes", "long sums", "sizes"),
    "crash": ("crash", "shapes", "values"),
    "hang": ("crash",),
}
_OPTIMIZER_PROBES = {
    "value": ("first step", "reference", "descent"),
    "shape": ("shapes", "ranks", "dtype and shape"),
    "dtype": ("dtype and shape", "reference: float32"),
    "attributes": ("rate", "rate zero", "high rates", "first step", "reference"),
    "inputs-changed": ("gradients", "order of parameters", "each parameter for itself"),
    "aliasing": ("gradients", "state", "each parameter for itself", "determinism"),
    "state": ("state", "each parameter for itself", "order of parameters", "determinism"),
    "memory": ("memory layout", "large arrays"),
    "determinism": ("determinism",),
    "special-values": ("not finite", "reference: not finite", "zero gradients", "scale of gradients"),
    "strides": ("memory layout",),
    "size": ("large arrays", "reference: large arrays", "shapes", "ranks"),
    "saving": ("state",),
    "lost-update": ("descent", "late steps", "large arrays", "memory layout", "reference"),
    "bias": ("first step", "reference"),
    "crash": ("crash", "shapes"),
    "hang": ("crash",),
}
_UPDATES = (
    *("gradients", "one process", "every worker counts", "right on average", "other ranks", "many steps"),
    "large arrays",
)
_SCHEME_PROBES = {
    "value": (*_UPDATES, "optimizer", "accumulation", "learns", "equal gradients"),
    "dtype": ("ranks agree", "goes through", "one process", "gradients", "large values"),
    "attributes": ("optimizer", "gradients", "one process", "traffic", "well formed"),
    "inputs-changed": ("own memory", "gradients"),
    "aliasing": ("own memory",),
    "state": ("determinism", "pauses", "checkpoints", "accumulation", "equal gradients"),
    "memory": ("own memory",),
    "determinism": ("determinism", "random delays"),
    "special-values": ("not finite", "large values"),
    "size": (*_UPDATES, "goes through", "every sample once", "traffic"),
    "saving": ("checkpoints",),
    "rank-agreement": ("ranks agree", "initial broadcast", "evaluated weights", "other ranks"),
    "lost-update": (*_UPDATES, "optimizer", "learns"),
    "bias": ("gradients", "every worker counts", "one process", "right on average"),
    "crash": ("goes through", "crash", "lost rank", "other ranks", "large arrays"),
    "hang": ("goes through", "crash", "unbuffered sends", "lost rank", "random delays", "other ranks", "large arrays"),
}
_COLLECTIVES = ("all-reduce", "broadcast", "reduce-scatter", "all-gather", "gather", "scatter", "all-to-all")
_MESSAGES = ("send and receive", "order of messages", "tags", "receive from any", "exchange", "handles")
_COLLECTIVE_PROBES = {
    "value": (*_COLLECTIVES, *_MESSAGES, "place", "barrier", "arrays of numpy", "large messages both ways"),
    "shape": (*_COLLECTIVES, *_MESSAGES, "arrays of numpy"),
    "dtype": (*_COLLECTIVES, *_MESSAGES, "arrays of numpy"),
    "attributes": (*_COLLECTIVES, *_MESSAGES, "place", "ranks that are not there"),
    "inputs-changed": ("results are one's own", "layouts", *_COLLECTIVES, *_MESSAGES),
    "aliasing": ("results are one's own", "handles"),
    "state": (*_COLLECTIVES, *_MESSAGES, "results are one's own"),
    "memory": ("results are one's own", "layouts"),
    "determinism": ("all-reduce is the same on all ranks", *_COLLECTIVES),
    "special-values": ("special values", *_COLLECTIVES),
    "strides": ("layouts",),
    "size": ("large messages both ways", *_COLLECTIVES, *_MESSAGES),
    "rank-agreement": ("all-reduce is the same on all ranks", "place", *_COLLECTIVES),
    "lost-update": (*_COLLECTIVES, *_MESSAGES),
    "bias": _COLLECTIVES,
    "crash": (*_COLLECTIVES, *_MESSAGES, "ranks that are not there", "crash", "goes through"),
    "hang": (*_COLLECTIVES, *_MESSAGES, "barrier", "large messages both ways", "crash", "goes through"),
}
# Compressors are checked as part of a scheme.
_COMMUNICATOR_PROBES = {
    aspect: (*probes, *_SCHEME_PROBES.get(aspect, ())) for aspect, probes in _COLLECTIVE_PROBES.items()
}
_LAYERS = (
    *("layers", "input", "outputs", "convolution", "linear", "pooling", "subsampling", "zero channels", "addition"),
    *("multiplication", "concatenation", "subtraction", "activation", "dropout", "normalisation", "padding", "scale"),
    *("shift", "shortcut", "order", "bias", "weights", "initialisation", "same function", "parameters", "width"),
    *("stride", "kernel", "dilation", "groups", "classes", "wiring", "pre-activation"),
)
_NETWORK_PROBES = {
    "value": _LAYERS,
    "shape": _LAYERS,
    "attributes": ("normalisation", "convolution", "pooling", "activation", "dropout", "padding", "linear"),
    "state": ("normalisation", "same function"),
    "gradient": ("gradients",),
    "crash": ("layers", "crash"),
    "hang": ("crash",),
}
_DISTRIBUTED = ("levelbench.distributed.probes.files", "array_api_compat.numpy")
KINDS = {
    "operators": CheckedKind(
        _operator,
        ("levelbench.operators.probes.files",),
        _OPERATOR_PROBES,
        ("numpy",),
        "levelbench.operators.custom.library:keep_code",
        OPERATOR_S,
    ),
    "optimizers": CheckedKind(
        _optimizer,
        # The first step of any imports the last, and PyTorch's its compiler, which takes longer than most checks.
        ("levelbench.training.probes.optimizer_files", "torch._dynamo", "array_api_compat.numpy"),
        _OPTIMIZER_PROBES,
        warm=(("levelbench.cli.check_self:warm_optimizers", "adam"),),
    ),
    "schemes": CheckedKind(_scheme, _DISTRIBUTED, _SCHEME_PROBES, ("numpy",), at_once=2),
    "communicators": CheckedKind(_communicator, _DISTRIBUTED, _COMMUNICATOR_PROBES, ("numpy",), at_once=2),
    "networks": CheckedKind(_network, ("levelbench.networks.probes.likeness",), _NETWORK_PROBES),
}
"""The kinds with a corpus. Aspects that a table does not list are names of probes."""

_CORPORA = Path(__file__).parents[1] / "planted"
_FRAMEWORKS = {"numpy": "levelbench.frameworks.numpy.backend", "torch": "levelbench.frameworks.torch.backend"}


def corpus_of(kind: str) -> list[tuple[Path, str, Planted]]:
    """The planted parts of a kind: the file, the name in it, and what is planted; the files are executed."""
    from levelbench import plugins

    found = []
    for path in sorted(_CORPORA.glob(f"{kind}*.py")):
        cases: dict[str, Planted] = plugins.load_file("planted", path).CASES
        found += [(path, name, planted) for name, planted in cases.items()]
    return found


def self_test(
    kind: str,
    seeds: Sequence[int] = (0,),
    only: Callable[[str, Planted], bool] = lambda name, planted: True,
    hear: Callable[[JudgedPart], None] = lambda _: None,
    workers: int = 0,
    all_findings: bool = False,
) -> list[JudgedPart]:
    """Check the planted parts of a kind that ``only`` accepts, with each of ``seeds``.

    Each is checked until it is clear what it counts as, or for ``all_findings``.
    """
    from levelbench.checks.isolation import forking
    from levelbench.checks.self_test import judge, judge_all
    from levelbench.measure.meters.resources import available_cores

    found = KINDS[kind]
    todo = [
        partial(
            judge,
            *(kind, name, each, partial(found.check, path, name, each, seed), found.probes),
            all_findings=all_findings,
        )
        for path, name, each in corpus_of(kind)
        if only(name, each)
        for seed in seeds
    ]
    # Processes that run side by side get one thread each.
    before = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    os.environ.update(dict.fromkeys(before, "1"))
    try:
        # A process that is forked from a large one begins late, so frameworks that a kind does not use are left out.
        adapters = (module for name, module in _FRAMEWORKS.items() if name in found.frameworks and find_spec(name))
        imports = [*(each for each in found.imports if find_spec(each.partition(".")[0])), *adapters]
        files = sorted({str(path) for path, _, _ in corpus_of(kind)})
        prepare = [*((found.prepare, each) for each in files if found.prepare), *found.warm]
        with forking(imports, found.processor_s, prepare):
            return judge_all(todo, workers or found.at_once * available_cores(), hear)
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def check_self(asked: str, seed: int, as_json: bool) -> int:
    """Check the checks of a kind, or of all; returns 0 if they reach the goal, else 1."""
    from levelbench.checks.self_test import score
    from levelbench.measure.clocks import HOST

    if asked != "all" and asked not in KINDS:
        raise UnknownNameError("kind of --self-test", asked, ("all", *KINDS))
    judged: dict[str, list[JudgedPart]] = {}
    took: dict[str, float] = {}
    with ProgressLine() as line:
        for kind in KINDS if asked == "all" else (asked,):
            total, begun, done = len(corpus_of(kind)), HOST.now_ns(), 0

            def hear(each: JudgedPart, kind: str = kind, total: int = total) -> None:
                nonlocal done
                done += 1
                if line.live:
                    line.say(f"{kind}: {done} of {total}")

            judged[kind] = self_test(kind, (seed,), hear=hear)
            took[kind] = (HOST.now_ns() - begun) / 1e9
    if as_json:
        shared.emit_json(self_test_json(judged, took))
    else:
        shared.print_tables(score_table(judged, took))
        for line_of in _names(judged):
            click.echo(line_of)
    return 0 if all(score(kind, found).reached for kind, found in judged.items()) else 1


def self_test_json(judged: Mapping[str, Sequence[JudgedPart]], took: Mapping[str, float]) -> dict[str, Any]:
    """Every planted part with what was found, by kind."""
    from levelbench.checks.self_test import score

    kinds = {}
    for kind, found in judged.items():
        counted = score(kind, found)
        kinds[kind] = {
            "reached": counted.reached,
            "share": counted.share,
            "counts": dict(counted.counts),
            "seconds": round(took[kind], 1),
            "parts": [each.to_dict() for each in found],
        }
    return {"reached": all(each["reached"] for each in kinds.values()), "kinds": kinds}


def score_table(judged: Mapping[str, Sequence[JudgedPart]], took: Mapping[str, float]) -> Table:
    """A row for each kind, and one for its parts that are held back."""
    from levelbench.checks.self_test import GOAL, MutationScore, score
    from levelbench.report.tables import Absent, Column, Table, Text

    columns = (
        Column("kind", "Kind"),
        Column("parts", "Parts"),
        Column("faults", "Faults"),
        Column("right", "Right reason"),
        Column("other", "Other reason"),
        Column("missed", "Missed"),
        Column("share", "Share"),
        Column("rights", "Right parts"),
        Column("accused", "Accused"),
        Column("seconds", "Seconds"),
    )

    def row(kind: str, parts: str, found: MutationScore, seconds: float | None) -> tuple[Any, ...]:
        counts = [found.counts.get(each, 0) for each in ("right reason", "other reason", "missed")]
        share = Absent("no faults") if found.share is None else Text(f"{100 * found.share:.1f} %")
        end = (Text(str(found.right)), Text(str(found.counts.get("accused", 0))))
        time = Absent("") if seconds is None else Text(f"{seconds:.0f}")
        numbers = (Text(str(each)) for each in (found.faults, *counts))
        return (Text(kind), Text(parts), *numbers, share, *end, time)

    rows = []
    for kind, found in judged.items():
        rows.append(row(kind, "all", score(kind, found), took[kind]))
        if back := [each for each in found if each.planted.held_back]:
            rows.append(row(kind, "held back", score(kind, back), None))
    note = f"goal: at least {100 * GOAL:g} % of the faults found for the right reason, no right part accused"
    skipped = sum(each.outcome == "not tried" for found in judged.values() for each in found)
    notes = (note, f"{skipped} parts were not tried: --json says why") if skipped else (note,)
    return Table("self-test", "The checks on planted parts", columns, tuple(rows), notes)


def _names(judged: Mapping[str, Sequence[JudgedPart]]) -> list[str]:
    """The parts that the checks got wrong, with what was said of them."""
    lines = []
    for kind, found in judged.items():
        for each in found:
            if not each.wrong:
                continue
            said = "; ".join(dict.fromkeys(one.probe for one in each.findings)) or "nothing"
            about = each.planted.fault or "it is right"
            lines.append(f"{kind} {each.name}: {each.outcome}: {about} (found by: {said})")
    return lines
