"""Checks of a communicator, run by every rank of it at the same time: does each operation do what its contract says.

The one idea: what ranks send are small whole numbers made of the rank, the place and a number that no two calls share,
so every sum is exact in any order, and whatever is wrong (a rank left out, two swapped, the result of the last call)
shows as another number. All ranks make the same calls whatever they find, so one mistake does not hide the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from levelbench.distributed.communicator import Communicator
from levelbench.distributed.validation import communicator_collectives as collectives
from levelbench.distributed.validation import communicator_messages as messages
from levelbench.distributed.validation.communicator_probe import Probe
from levelbench.errors import UnsupportedError
from levelbench.operators.frameworks import open_framework
from levelbench.operators.validation.findings import Finding, failed, not_tried

__all__ = ["check_communicator"]

_CHECKS = {
    "place": collectives.place,
    "all-reduce": collectives.all_reduce,
    "all-reduce is the same on all ranks": collectives.same_bits,
    "broadcast": collectives.broadcast,
    "reduce-scatter": collectives.reduce_scatter,
    "all-gather": collectives.all_gather,
    "gather": collectives.gather,
    "scatter": collectives.scatter,
    "all-to-all": collectives.all_to_all,
    "send and receive": messages.messages,
    "order of messages": messages.order,
    "tags": messages.tags,
    "receive from any": messages.from_any,
    "exchange": messages.exchange,
    "handles": messages.handles,
    "large messages both ways": messages.large,
    "barrier": collectives.barrier,
    "results are one's own": collectives.ownership,
    "layouts": collectives.layouts,
    "ranks that are not there": messages.strangers,
}


def check_communicator(communicator: Communicator, frameworks: Sequence[str] = ("numpy",)) -> list[Finding]:
    """What this rank found, one finding or more a check; collective, with the same arguments on all ranks.

    A rank that meets an error calls ``abort``, and the checks that are left are ``not tried``. ``frameworks`` are those
    whose arrays are sent and must come back as what they were; ``MissingError`` for one that is not here.
    """
    findings: list[Finding] = []
    backends = {name: open_framework(name) for name in frameworks}
    lost = ""
    todo = [(name, check, None) for name, check in _CHECKS.items()]
    native = [(f"arrays of {name}", messages.native, backend) for name, backend in backends.items()]
    for salt, (name, check, backend) in enumerate([*todo, *native]):
        if lost:
            findings.append(not_tried(name, lost))
            continue
        probe = Probe(communicator, salt, backend)
        try:
            check(probe)
        except UnsupportedError as error:
            findings.append(not_tried(name, str(error)))
            continue
        except Exception as error:  # noqa: BLE001  # the communicator under check is anybody's code
            findings.append(failed(name, f"rank {probe.rank}: {type(error).__name__}: {error}", probe.case))
            lost = f"rank {probe.rank} ended at the check {name!r}"
            communicator.abort()
            continue
        findings += probe.findings(name)
    return findings
