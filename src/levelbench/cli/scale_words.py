"""What is said to ``levelbench scale``, read before anything is measured."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from levelbench.cli.team_options import listed_schemes
from levelbench.errors import UsageError

if TYPE_CHECKING:
    from levelbench.experiments.prediction import Wanted
    from levelbench.experiments.request import Arm

__all__ = ["numbers_of", "same_threads", "wanted_of"]


def numbers_of(text: str) -> list[int]:
    """Numbers of ranks, the smallest first."""
    numbers = []
    for word in text.split(","):
        if not word.strip().isdecimal() or int(word) < 1:
            raise UsageError(f"--ranks {text}", f"{word.strip()!r} is no number of ranks", "write --ranks 1,2,4")
        numbers.append(int(word))
    return sorted(set(numbers))


@contextmanager
def same_threads(given: dict[str, Any]) -> Iterator[None]:
    """Give each rank of every point as many threads, so that more ranks are more cores; what the user set stays."""
    from levelbench.distributed.launching.environment import THREADS
    from levelbench.measure.meters.utilisation import available_cores

    numbers = numbers_of(given["ranks"])
    if numbers[0] == 1 and "nodes=" in (given["engine"] or ""):
        raise UsageError(
            f"--ranks {given['ranks']} on several machines",
            "the command is started on each of them, and each would train the one process of the first point",
            "leave 1 out",
        )
    chosen = os.environ.get(THREADS[0], str(max(1, available_cores() // numbers[-1])))
    unset = [name for name in THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(unset, chosen))
    try:
        yield
    finally:
        for name in unset:
            os.environ.pop(name, None)


def wanted_of(given: dict[str, Any], arm: Arm) -> Wanted | None:
    """What is to be predicted, read before anything is measured."""
    if given["simulate"] is None:
        if given["network"] is not None:
            raise UsageError("--network", "it is that of predictions, and none are asked for", "add --simulate 8,64")
        return None
    if given["network"] is None:
        do = "say which: --network alpha=2us,beta=25GB/s"
        raise UsageError(f"--simulate {given['simulate']}", "the network that it would run on is not said", do)
    from levelbench.distributed.simulation.networks import parse
    from levelbench.experiments.prediction import Wanted, check_simulable
    from levelbench.records.selection import parse_item

    if 1 not in numbers_of(given["ranks"]):
        found = "it is calibrated on runs of one process, and that point is not asked for"
        raise UsageError(f"--simulate {given['simulate']}", found, f"add it: --ranks 1,{given['ranks']}")
    schemes = [parse_item(each or "all-reduce") for each in listed_schemes(given["scheme"])]
    wanted = Wanted(schemes, numbers_of(given["simulate"]), parse(given["network"]), given["scaling"] or "strong")
    check_simulable(arm, wanted)
    return wanted
