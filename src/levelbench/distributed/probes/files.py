"""Checks the schemes and communicators of a file, each in its own process, so that a crash or a hang is a finding.

A communicator of a file is a class that is created with nothing but the communicator that it wraps, such as a subclass
of :class:`~levelbench.distributed.communicators.wrapping.WrappingCommunicator`. Its ranks are threads.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np

from levelbench import plugins
from levelbench.checks.findings import Finding, Report, failed, findings_of, passed
from levelbench.checks.isolation import JsonLine, Say, report_isolated
from levelbench.distributed.communicator import Communicator
from levelbench.distributed.communicators.threads import rank_outcomes
from levelbench.distributed.communicators.wrapping import Delays
from levelbench.distributed.finding import load_schemes, named_scheme
from levelbench.distributed.probes.communicators import CALLS, LARGE, check_communicator
from levelbench.distributed.probes.runs import OTHERS
from levelbench.distributed.probes.schemes import check_scheme
from levelbench.distributed.scheme import Scheme
from levelbench.errors import DefinitionError
from levelbench.records.selection import parse_item

_SMALL, _FEW = 1 << 10, 12
"""The elements of arrays and the calls in a row on numbers of ranks where neither large nor many are tried."""
STEPS = 100
"""The steps of each comparison of a scheme with one process."""


def schemes_of(what: str) -> dict[str, Scheme]:
    """The schemes of ``FILE.py``, or the one that ``FILE.py:NAME`` or a name with settings says; by their titles."""
    if what.endswith(".py"):
        return load_schemes(Path(what))
    name, settings = parse_item(what)
    return {what: named_scheme(name, settings)}


def check_scheme_isolated(
    what: str,
    name: str,
    *,
    ranks: Sequence[int] = (2, 3, 4),
    framework: str = "numpy",
    seed: int = 0,
    seconds: float = 10.0,
    tell: Callable[[str], None] = lambda _: None,
    timeout_s: float = 300.0,
) -> Report:
    """Check the scheme ``name`` of :func:`schemes_of` in its own process, which is killed after ``timeout_s`` seconds.

    The other arguments are those of :func:`~levelbench.distributed.probes.schemes.check_scheme`.
    """
    request = {
        "what": what,
        "name": name,
        "ranks": list(ranks),
        "framework": framework,
        "seed": seed,
        "seconds": seconds,
        "steps": STEPS,
    }
    job = f"{__name__}:check_scheme_request"
    return report_isolated(job, request, name, framework, tell=tell, timeout_s=timeout_s)[0]


def check_scheme_request(request: JsonLine, say: Say) -> None:
    """The part of :func:`check_scheme_isolated` that runs in the other process."""
    report = check_scheme(
        schemes_of(request["what"])[request["name"]],
        ranks=request["ranks"],
        framework=request["framework"],
        seed=request["seed"],
        steps=request["steps"],
        seconds=request["seconds"],
        name=request["name"],
        tell=lambda probe: say({"started": probe}),
        hear=lambda finding: say({"finding": asdict(finding)}),
    )
    say({"done": [asdict(each) for each in report.findings]})


def load_communicators(path: Path) -> dict[str, Callable[[Communicator], Communicator]]:
    """The communicators of a file by name: its own subclasses of ``Communicator``. The file is executed.

    Raises ``UsageError`` if it does not exist, ``DefinitionError`` if it raises or defines none.
    """
    module = plugins.load_file("communicator", path)
    found: dict[str, Callable[[Communicator], Communicator]] = {
        name: each
        for name, each in vars(module).items()
        if inspect.isclass(each) and issubclass(each, Communicator) and each.__module__ == module.__name__
    }
    if not found:
        do = "write a subclass of WrappingCommunicator"
        raise DefinitionError(f"communicator file {path}", "it defines no communicator", do)
    return found


def check_communicator_isolated(
    path: Path,
    name: str,
    *,
    ranks: Sequence[int] = (2, 3, 4),
    seconds: float = 10.0,
    tell: Callable[[str], None] = lambda _: None,
    timeout_s: float = 300.0,
) -> Report:
    """Check the communicator ``name`` of a file in its own process, on each number of ranks until it fails.

    These are ``ranks``, and then all others from 2 to 9. Large arrays are tried on the middle one of ``ranks``,
    and many calls on the last.
    The process is killed after ``timeout_s`` seconds. A rank that waits for ``seconds`` in one call counts as hung.
    """
    request = {"path": str(path), "name": name, "ranks": list(ranks), "seconds": seconds}
    job = f"{__name__}:check_communicator_request"
    return report_isolated(job, request, name, tell=tell, timeout_s=timeout_s)[0]


def check_communicator_request(request: JsonLine, say: Say) -> None:
    """The part of :func:`check_communicator_isolated` that runs in the other process."""
    made = load_communicators(Path(request["path"]))[request["name"]]
    findings: dict[str, Finding] = {}
    asked = request["ranks"]
    for ranks in dict.fromkeys([*asked, *OTHERS]):
        title = f"{ranks} ranks"
        say({"started": title})
        large = LARGE if ranks == asked[len(asked) // 2] else _SMALL
        check = partial(check_communicator, large=large, calls=CALLS if ranks == asked[-1] else _FEW)
        for each in findings_of(title, partial(_on_ranks, made, ranks, request["seconds"], check), case=title):
            if each.probe not in findings or each.status == "failed":
                findings[each.probe] = each
        if any(each.status == "failed" for each in findings.values()):
            break
    else:
        for each in findings_of(_LOST, partial(_lost_ranks, made, asked[-1], request["seconds"])):
            findings[each.probe] = each
    say({"done": [asdict(each) for each in findings.values()]})


_LOST, _DIES = "lost rank", 4
"""The probe, and at which of its operations the rank is lost."""
_ALONE: Mapping[str, Callable[[Communicator], object]] = MappingProxyType(
    {
        "all_reduce": lambda talk: talk.all_reduce(np.ones(3)),
        "broadcast": lambda talk: talk.broadcast(np.ones(3), talk.size - 1),
        "all_gather": lambda talk: talk.all_gather(np.ones(3)),
        "reduce_scatter": lambda talk: talk.reduce_scatter(np.ones(9)),
        "all_to_all": lambda talk: talk.all_to_all([np.ones(3) for _ in range(talk.size)]),
        "barrier": lambda talk: talk.barrier(),
    }
)
"""Calls that no rank can make without the others."""


def _lost_ranks(made: Callable[[Communicator], Communicator], ranks: int, seconds: float) -> Iterator[Finding]:
    """If a rank dies, each of these calls raises on the others: none goes on without it."""
    for name, call in _ALONE.items():

        def work(inner: Communicator, call: Callable[[Communicator], object] = call) -> None:
            talk = made(inner)
            for _ in range(3 * _DIES):
                call(talk)

        outcomes = rank_outcomes(ranks, work, timeout_s=seconds, delays=Delays(fail_at={ranks - 1: _DIES}))
        for rank, outcome in enumerate(outcomes[:-1]):
            if not isinstance(outcome, BaseException) and isinstance(outcomes[-1], BaseException):
                found = f"{name}: rank {rank} goes on although rank {ranks - 1} is lost"
                yield failed(found, "let the CommunicationError end the rank", probe=_LOST)
                return
    yield passed(f"{len(_ALONE)} operations raise an error", probe=_LOST)


def _on_ranks(
    made: Callable[[Communicator], Communicator],
    ranks: int,
    seconds: float,
    check: Callable[[Communicator], list[Finding]],
) -> Iterator[Finding]:
    """One finding for each probe: the first failure of any rank."""
    outcomes = rank_outcomes(ranks, lambda inner: check(made(inner)), timeout_s=seconds)
    found: dict[str, Finding] = {}
    for rank, outcome in enumerate(outcomes):
        if isinstance(outcome, BaseException):
            yield failed(f"rank {rank} ended: {type(outcome).__name__}: {outcome}", probe="goes through")
            continue
        for each in outcome:
            if each.probe not in found or (each.status == "failed") > (found[each.probe].status == "failed"):
                found[each.probe] = each
    for each in found.values():
        case = f"{ranks} ranks{', ' * bool(each.case)}{each.case}"
        yield replace(each, case=case if each.status == "failed" else each.case)
