"""Which runs of a store were made only to have a trained network to infer with.

Such a run is a run like any other, and no trial of anybody's tuning: what lies beside the network that is
kept names it, and whoever counts or submits runs leaves it out unless it is asked for.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

__all__ = ["MODELS", "runs_for_inference"]

MODELS = "models"
"""The folder in a store that holds trained networks."""
_LARGEST_BYTES = 1 << 20


class _Sidecar(msgspec.Struct):
    run: str
    for_inference: bool = True
    earlier: list[str] = []


def runs_for_inference(store: Path) -> frozenset[str]:
    """The ids of the runs that trained the networks that ``store`` keeps, or kept before they were trained anew.

    A run of ``levelbench run --keep-model`` is none of them.
    What is damaged is passed over: its run then counts like any other.
    """
    found: set[str] = set()
    for path in sorted((store / MODELS).glob("*.json")):
        with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
            if path.stat().st_size <= _LARGEST_BYTES:
                facts = msgspec.json.decode(path.read_bytes(), type=_Sidecar)
                found |= {*facts.earlier, *([facts.run] if facts.for_inference else [])}
    return frozenset(found)
