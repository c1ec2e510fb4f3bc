"""Records of commands from benchmarks by pyperf or hyperfine: each of their processes becomes one of ours."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import statistics
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from levelbench import __version__
from levelbench.errors import DataError, StoreError, UsageError
from levelbench.records.commands import (
    FOLDER,
    CommandHeader,
    CommandOutcome,
    CommandRecord,
    CommandSpecification,
    CommandWriter,
)
from levelbench.records.processes import ENDING, ProcessEnd
from levelbench.records.schema import SCHEMA, Measurement, key_of, redact

__all__ = ["TimedProcess", "import_timings", "read_timings"]


@dataclass(frozen=True)
class TimedProcess:
    """A process timed by ``tool``: ``wall_s`` is the time of the whole process, or (pyperf) the mean of its values.

    ``started_s`` is in seconds since 1970; ``told`` says whether the file states it, or only the order is known.
    """

    tool: str
    name: str
    started_s: float
    told: bool
    wall_s: float
    peak_memory_b: float | None = None
    exit_code: int = 0


def read_timings(path: Path) -> dict[str, list[TimedProcess]]:
    """The processes in a file of pyperf (JSON, perhaps gzipped) or hyperfine, by the benchmark's name or the command.

    ``DataError`` for a file that is neither, or has no times, ``UsageError`` for one that measured something else.
    """
    asked = f"importing {path}"
    try:
        text = path.read_bytes()
        data = json.loads(gzip.decompress(text) if text.startswith(b"\x1f\x8b") else text)
        if isinstance(data, dict) and isinstance(data.get("results"), list):
            rows = list(_hyperfine(data["results"], path.stat().st_mtime))
        elif isinstance(data, dict) and isinstance(data.get("benchmarks"), list):
            rows = list(_pyperf(asked, data, path.stat().st_mtime))
        else:
            raise UsageError(asked, "it is not from a supported tool", "give JSON of hyperfine or pyperf")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(asked, f"it is damaged: {error}", "export it again") from error
    except OSError as error:
        raise DataError(asked, error.strerror or "it cannot be read", "give a readable file") from error
    except KeyError as error:
        raise DataError(asked, f"it is damaged: {error} is missing in it", "export it again") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(asked, f"it is damaged: {error}", "export it again") from error
    found: dict[str, list[TimedProcess]] = {}
    for each in rows:
        found.setdefault(each.name, []).append(each)
    if not found:
        raise DataError(asked, "it has no times", "export a benchmark that was measured")
    wrong = [each.wall_s for processes in found.values() for each in processes if not 0 < each.wall_s < math.inf]
    if wrong:
        # Hyperfine subtracts what the shell takes, which can be all of a short time.
        shelled = rows[0].tool == "hyperfine" and not any(wrong)
        do = "measure again without the shell: hyperfine -N" if shelled else "export it again"
        raise DataError(asked, f"a time in it is {wrong[0]:g} s", do)
    return found


def _hyperfine(results: list[Mapping[str, Any]], written_s: float) -> Iterator[TimedProcess]:
    """Hyperfine runs one command after another without timestamps: the last ended before the file was written."""
    measured = [(each, _times_of(each)) for each in results]
    at_s = written_s - sum(sum(times) for _, times in measured)
    for each, times in measured:
        memory, codes = each.get("memory_usage_byte") or [], each.get("exit_codes") or []
        for at, wall_s in enumerate(times):
            yield TimedProcess(
                "hyperfine",
                str(each["command"]),
                at_s,
                False,
                wall_s,
                float(memory[at]) if at < len(memory) else None,
                int(codes[at]) if at < len(codes) and codes[at] is not None else 0,
            )
            at_s += wall_s


def _times_of(result: Mapping[str, Any]) -> list[float]:
    """The times of a command of hyperfine; ``ValueError`` says what is there instead."""
    times = result.get("times")
    if not isinstance(times, list):
        raise ValueError(f"{result['command']!r} has no times, only what sums them up")
    if wrong := [each for each in times if not isinstance(each, int | float)]:
        raise ValueError(f"a time of {result['command']!r} is {wrong[0]!r}")
    values = [float(each) for each in times]
    for name, of in (("mean", statistics.fmean), ("median", statistics.median), ("min", min), ("max", max)):
        stated = result.get(name)
        if values and isinstance(stated, int | float) and not math.isclose(stated, of(values), rel_tol=1e-3):
            command, n = result["command"], len(values)
            raise ValueError(f"the {name} of {command!r} is {stated:g} s, but that of its {n} times {of(values):g} s")
    return values


def _pyperf(asked: str, data: Mapping[str, Any], written_s: float) -> Iterator[TimedProcess]:
    """Without dates, which pyperf can leave out, only the order is known."""
    common, ahead_s = data.get("metadata", {}), 0.0
    for benchmark in data["benchmarks"]:
        own = {**common, **benchmark.get("metadata", {})}
        for run in benchmark["runs"]:
            facts = {**own, **run.get("metadata", {})}
            if (unit := facts.get("unit", "second")) != "second":
                found = f"{facts.get('name', 'a benchmark')} in it is in units of {unit}, and so no time"
                raise UsageError(asked, found, "measure times: pyperf without --track-memory and --tracemalloc")
            # A run without values calibrated the number of loops.
            if run.get("values"):
                wall_s, told = statistics.fmean(map(float, run["values"])), "date" in facts
                begun_s = datetime.fromisoformat(facts["date"]).timestamp() if told else written_s + ahead_s
                ahead_s += wall_s
                yield TimedProcess(
                    "pyperf",
                    str(facts.get("name", "benchmark")),
                    begun_s,
                    told,
                    wall_s,
                    float(facts["mem_max_rss"]) if "mem_max_rss" in facts else None,
                )


def import_timings(processes: list[TimedProcess], store: Path, label: str = "") -> list[CommandRecord]:
    """The records of these processes in ``store``, written if they are not there yet; ``label`` distinguishes arms."""
    tool = processes[0].tool
    specification = CommandSpecification(
        title=tool, command=redact(processes[0].name), shell=False, folder="", label=label, prepare=""
    )
    key = key_of(specification)
    return [_record(each, at, specification, key, store) for at, each in enumerate(processes)]


def _record(each: TimedProcess, at: int, specification: CommandSpecification, key: str, store: Path) -> CommandRecord:
    said = f"{each.tool} {each.name} {at} {each.wall_s!r} {each.started_s if each.told else ''}"
    identity = hashlib.sha256(f"{said} {key}".encode()).hexdigest()[:16]
    for path in (store / FOLDER).glob(f"*/*/{key[:8]}-s{at}-{identity}{ENDING}"):
        with suppress(StoreError):
            return CommandRecord.read(path)
    header = CommandHeader(
        SCHEMA,
        identity,
        key,
        at,
        datetime.fromtimestamp(each.started_s, UTC).isoformat(timespec="milliseconds"),
        specification,
        {"started": "imported", "log": {"tool": each.tool}, **({} if each.told else {"untold": "starts"})},
        __version__,
    )
    doubt = f"imported from {each.tool}: levelbench did not measure it"
    if not each.told:
        doubt += ", and it does not say when each process started"
    what = "the mean of its values" if each.tool == "pyperf" else f"as {each.tool} wrote it"
    with CommandWriter.begin(store, header) as writer:
        writer.add(Measurement("wall", "s", each.wall_s, what))
        for name in ("user", "system"):
            writer.add(Measurement(name, "s", None, None, f"{each.tool} does not keep it for each process"))
        told = each.peak_memory_b is not None
        reason = None if told else f"{each.tool} did not write it"
        writer.add(Measurement("peak_memory", "B", each.peak_memory_b, what if told else None, reason))
        failed = f"it ended with exit code {each.exit_code}" if each.exit_code else ""
        writer.add(CommandOutcome(each.exit_code, failed))
        writer.add(ProcessEnd([doubt]))
    return CommandRecord.read(writer.path)
