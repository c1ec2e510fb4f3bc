"""What an entry says that no record knows, and what it takes from the environment of its records.

The one idea: machine, software and code are read from the records and never typed; only what they cannot know (who
submits, what the machine costs, how much was tried before) is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from levelbench.errors import UsageError
from levelbench.measure.environment.settings import harmless
from levelbench.records.rulesets.schema import Ruleset
from levelbench.records.schema import DatasetFacts, Source
from levelbench.records.submissions.schema import (
    Author,
    Code,
    Hardware,
    Price,
    Provenance,
    Setting,
    Submission,
    Tuning,
)

__all__ = ["SETTINGS", "Terms", "code_of", "hardware_of", "machine_of", "provenance_of", "without_settings"]

_MACHINE = ("machine", "accelerators", "threads", "malloc", "signatures")
"""Parts of an environment that say what ran and how it was scored; the others say what moved at the time."""
_LONGEST = 400
SETTINGS = ("threads.settings.", "malloc.")
"""How the facts begin that are values of environment variables."""


class Terms(Struct, frozen=True):
    """What is given for an entry. ``submitted`` is an ISO day; ``only_these`` says why runs of a group are left out."""

    author: Author
    submitted: str
    ruleset: Ruleset
    price: Price | None = None
    division: Literal["closed", "open"] = "open"
    code_url: str | None = None
    hardware: str | None = None
    model: str | None = None
    tuning: Tuning = field(default_factory=Tuning)
    settings: Mapping[str, Setting] = field(default_factory=dict)
    notes: str = ""
    only_these: str | None = None


def machine_of(environment: Mapping[str, Any]) -> str:
    """What tells machines apart: the machine's id with the names of its accelerators."""
    accelerators = (environment.get("accelerators") or {}).get("names") or []
    return " ".join([str((environment.get("machine") or {}).get("id", "")), *map(str, accelerators)])


def hardware_of(environment: Mapping[str, Any], device: str, description: str | None) -> Hardware:
    """The system, as ``description`` or in words of its parts; ``UsageError`` if neither says what it was."""
    machine = environment.get("machine") or {}
    names = [str(name) for name in (environment.get("accelerators") or {}).get("names") or []]
    used = names if device.partition(":")[0] not in ("cpu", "") else []
    cpu = machine.get("cpu")
    processor = str(cpu.get("model") or "") if isinstance(cpu, dict) else str(cpu or "")
    cores = machine.get("cores_allowed") or machine.get("cores_logical")
    words = " and ".join(dict.fromkeys(f"{used.count(name)} x {name}" for name in used))
    words = words or (f"{cores} core{'s' if cores != 1 else ''} of {processor}" if cores and processor else processor)
    if not (description or words):
        raise UsageError("the hardware of an entry", "the records do not say what it was", 'give --hardware "..."')
    return Hardware(
        description=(description or words)[:200],
        accelerators=len(used),
        accelerator=used[0] if used else None,
        processor=processor or None,
        cores=cores,
        memory_bytes=machine.get("memory_bytes"),
    )


def code_of(environments: Sequence[Mapping[str, Any]], url: str | None) -> tuple[Code, list[str]]:
    """Link, commit and dirtiness of the code that ran, and what to note where the runs differ in it."""
    git = [each.get("git") or {} for each in environments]
    commits = list(dict.fromkeys(str(each["commit"]) for each in git if each.get("commit")))
    dirty = [bool(each["dirty"]) for each in git if each.get("dirty") is not None]
    notes = [] if len(commits) < 2 else [f"The runs were made at {len(commits)} commits: {', '.join(commits)}."]
    return Code(url, commits[-1] if commits else None, any(dirty) if dirty else None), notes


def provenance_of(
    environment: Mapping[str, Any],
    *,
    version: str,
    data: DatasetFacts | None = None,
    source: Source | None = None,
) -> Provenance:
    """Software and machine as flat text, and what the data and the task's source were."""
    libraries = dict(_flat(environment.get("libraries") or {}))
    return Provenance(
        version=version,
        software={name.removesuffix(".version"): text for name, text in sorted(libraries.items())},
        environment=dict(_flat({name: environment.get(name) for name in _MACHINE})),
        dataset=data.name if data else None,
        synthetic=data.synthetic if data else None,
        checksums=dict(data.checksums) if data else {},
        source_digest=source.digest or None if source else None,
        split_rule=data.split_rule or None if data else None,
        split_sizes=dict(data.sizes) if data else {},
        labels=dict(data.digests) if data else {},
        quality_digest=source.quality or None if source else None,
        data_digest=source.data or None if source else None,
    )


def without_settings(entry: Submission) -> Submission:
    """The entry with what is harmless in values of environment variables: older records have them as they were set."""
    environment = {
        name: harmless(text) if name.startswith(SETTINGS) else text
        for name, text in entry.provenance.environment.items()
    }
    provenance = msgspec.structs.replace(entry.provenance, environment=environment)
    return msgspec.structs.replace(entry, provenance=provenance)


def _flat(value: Any, name: str = "") -> Iterable[tuple[str, str]]:
    """Every value below ``value`` with its dotted name; lists of plain values as one text, nothing as nothing."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(each, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and any(isinstance(each, Mapping | list) for each in value):
        for number, each in enumerate(value):
            yield from _flat(each, f"{name}.{number}")
    elif isinstance(value, list):
        yield name, " ".join(map(str, value))[:_LONGEST]
    elif value is not None:
        yield name, (str(value).lower() if isinstance(value, bool) else str(value))[:_LONGEST]
