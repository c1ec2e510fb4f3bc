"""One replicate: one case on one arm, in this process, into one record."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from levelbench import __version__
from levelbench.measure.clocks import utc_now
from levelbench.measure.environment import capture, capture_after, doubts
from levelbench.networks.benchmark.measuring import measure_network
from levelbench.networks.benchmark.reference import Facts, Reference, load
from levelbench.records.networks import (
    NETWORK_SCHEMA,
    NetworkEnd,
    NetworkHeader,
    NetworkOutcome,
    NetworkSpecification,
    NetworkWriter,
    network_key,
)

__all__ = ["make_record"]

OnStage = Callable[[Path, str, NetworkOutcome | None], None]


def make_record(
    specification: NetworkSpecification,
    seed: int,
    identity: str,
    store: Path,
    ceilings: dict[str, Any],
    reference: Path | str,
    on_stage: OnStage,
    crashed: str = "",
    planned: tuple[float | None, int] = (None, 0),
) -> Path:
    """Measure the case, write the record and answer with its path.

    ``seed`` is the number of the replicate; parameters and inputs are the same in all. ``reference`` is the file that
    the case is checked against, or text that says why there is none. ``on_stage`` gets the record's path with each
    stage as it begins, and the outcome with an empty one. ``crashed`` says how a process before this one was brought
    down: it is recorded, and not tried again. ``planned`` are the effect and number of the header.
    """
    environment = capture()
    header = NetworkHeader(
        schema=NETWORK_SCHEMA,
        id=identity,
        key=network_key(specification),
        seed=seed,
        started=utc_now().isoformat(timespec="milliseconds"),
        specification=specification,
        environment=environment,
        ceilings=ceilings,
        version=__version__,
        planned_effect=planned[0],
        planned_runs=planned[1],
    )
    wanted = load(reference) if isinstance(reference, Path) else Reference(Facts(reason=reference), {})
    gc.collect()
    gc.freeze()
    with NetworkWriter.begin(store, header) as writer:

        def begin(stage: str) -> None:
            on_stage(writer.path, stage, None)

        begin("")
        if crashed:
            outcome = NetworkOutcome("failed", crashed)
        else:
            outcome = measure_network(specification, wanted, writer.add, begin)
        writer.add(outcome)
        on_stage(writer.path, "", outcome)
        after = capture_after()
        writer.add(NetworkEnd(list(doubts(environment, after)), after))
        return writer.path
