"""Trained networks in the store: ``<store>/models/<key>-s<seed>.onnx``, each with a ``.json`` about its origin.

A trained network is made once, by an ordinary run whose record stays in the store, and is found again by that run's key
and seed. The file next to it has the model's digest and everything that determined the run. So a network that was
changed, or that the same run would no longer produce, does not count.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from levelbench import __version__
from levelbench.errors import StoreError
from levelbench.networks.benchmark.cases import digest_of
from levelbench.networks.network import Network
from levelbench.records.inference import MODELS
from levelbench.records.schema import Specification

__all__ = ["Basis", "KeptModel", "TrainedModel", "basis_of", "find_model", "keep_facts", "kept_facts", "model_path"]
__all__ += ["stale"]


class Basis(msgspec.Struct, frozen=True):
    """What determines a trained network besides its specification, its seed and the task's text.

    ``levelbench`` and ``libraries`` are versions, ``network`` is the SHA-256 of the network before it was trained
    (whichever module builds it), ``data`` those of the data by file.
    """

    levelbench: str = ""
    libraries: dict[str, str] = {}
    network: str = ""
    data: dict[str, str] = {}


class TrainedModel(msgspec.Struct, frozen=True):
    """The origin of a trained network: its run, everything that determined it, and the quality that it reached.

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
    basis: Basis = Basis()
    for_inference: bool = True
    """Whether the run was made only for this network, and not by ``levelbench run``."""
    earlier: list[str] = []
    """Earlier runs that were made only for this network, if it was trained again."""
    weights_of: str = ""
    """Whose weights these are, if several ranks trained; empty for one process, and in older files."""


@dataclass(frozen=True)
class KeptModel:
    """A trained network in the store."""

    path: Path
    facts: TrainedModel


def model_path(store: Path, key: str, seed: int) -> Path:
    """Where the trained network of a run is kept."""
    return store / MODELS / f"{key[:16]}-s{seed}.onnx"


def basis_of(
    specification: Specification, libraries: Mapping[str, object], network: Network, data: Mapping[str, str]
) -> Basis:
    """What determines a run of ``specification`` now; ``libraries`` are those of an environment.

    ``network`` is the recipe's network before training, ``data`` the checksums of the task's data.
    """
    names = dict.fromkeys(("numpy", specification.framework))
    versions = {name: str(libraries[name]) for name in names if name in libraries}
    model = network.for_inference.to_proto().SerializeToString(deterministic=True)
    return Basis(__version__, versions, hashlib.sha256(model).hexdigest(), dict(data))


def kept_facts(store: Path, key: str, seed: int) -> TrainedModel | None:
    """The facts about the network of that key and seed, whether or not it still counts."""
    try:
        raw = model_path(store, key, seed).with_suffix(".json").read_bytes()
        return msgspec.json.decode(raw, type=TrainedModel)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def find_model(store: Path, key: str, seed: int, source: str = "", basis: Basis | None = None) -> KeptModel | None:
    """The network that the run of this key and seed trained; ``None`` if there is none that still counts.

    With ``source`` or ``basis``, it must have been trained from that text of the task, or from that basis.
    """
    path, facts = model_path(store, key, seed), kept_facts(store, key, seed)
    try:
        whole = facts is not None and (facts.key, facts.seed, facts.digest) == (key, seed, digest_of(path))
    except OSError:
        return None
    return KeptModel(path, facts) if facts is not None and whole and not stale(facts, source, basis) else None


def stale(facts: TrainedModel, source: str = "", basis: Basis | None = None) -> str:
    """Why the same run would no longer produce a kept network; empty if it would."""
    if source not in ("", facts.source):
        return "the task's text has changed since"
    then = facts.basis
    if basis is None or basis == then:
        return ""
    if then.levelbench != basis.levelbench:
        return f"it was trained by {_version(then.levelbench)}, and this is levelbench {basis.levelbench}"
    for name, version in basis.libraries.items():
        if then.libraries.get(name) != version:
            return f"it was trained with {name} {then.libraries.get(name)}, and this is {version}"
    if then.network != basis.network:
        return "the network that its recipe builds has changed since"
    return "it was trained on other data"


def _version(levelbench: str) -> str:
    return f"levelbench {levelbench}" if levelbench else "an earlier levelbench"


def keep_facts(path: Path, facts: TrainedModel) -> None:
    """Write the facts about the model at ``path`` next to it, atomically."""
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
