"""Trained networks that the store keeps: ``<store>/models/<key>-s<seed>.onnx``, and beside it where each came from.

The one idea: a trained network is made once, by a run like any other whose record stays in the store, and is found
again by that run's key and seed. What is beside it holds the file's own digest, so one that was changed does not count.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from levelbench.errors import StoreError
from levelbench.networks.benchmark.cases import digest_of
from levelbench.records.schema import Specification

__all__ = ["FOLDER", "KeptModel", "TrainedModel", "find_model", "keep_facts", "model_path"]

FOLDER = "models"


class TrainedModel(msgspec.Struct, frozen=True):
    """Where a trained network came from: its run with all that decided about it, and what it reached.

    ``quality`` holds the run's final figures by split; ``source`` is the digest of the task's text.
    """

    digest: str
    key: str
    seed: int
    run: str
    run_digest: str
    source: str
    specification: Specification
    quality: dict[str, float]


@dataclass(frozen=True)
class KeptModel:
    """A trained network in the store."""

    path: Path
    facts: TrainedModel


def model_path(store: Path, key: str, seed: int) -> Path:
    """Where the trained network of a run is kept."""
    return store / FOLDER / f"{key[:16]}-s{seed}.onnx"


def find_model(store: Path, key: str, seed: int, source: str = "") -> KeptModel | None:
    """The network that the run of this key and seed trained; ``None`` where there is none that still counts.

    With ``source``, it must have been trained from that text of the task.
    """
    path = model_path(store, key, seed)
    try:
        facts = msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=TrainedModel)
        agrees = facts.key == key and facts.seed == seed and facts.digest == digest_of(path)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return KeptModel(path, facts) if agrees and source in ("", facts.source) else None


def keep_facts(path: Path, facts: TrainedModel) -> None:
    """Write what belongs beside the model at ``path``: whole, or not at all."""
    place = path.with_suffix(".json")
    draft = place.with_name(f".{place.name}.{secrets.token_hex(4)}.new")
    try:
        with draft.open("xb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(facts)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(place)
    except OSError as error:
        raise StoreError(f"keeping the trained network {path}", str(error), "make room in the store") from error
    finally:
        with suppress(OSError):
            draft.unlink()
