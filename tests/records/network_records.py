"""Makes records of network benchmarks in one call; every part can be replaced."""

from msgspec.structs import replace

from levelbench.records import SCHEMA, Measurement, Samples, key_of
from levelbench.records.network_summary import summarise_networks
from levelbench.records.networks import (
    NetworkArm,
    NetworkCase,
    NetworkFacts,
    NetworkHeader,
    NetworkOutcome,
    NetworkRecord,
    NetworkSpecification,
    NetworkWriter,
    ProfileShares,
)
from levelbench.records.processes import ProcessEnd


def limit(value):
    return {"value": value, "interval": None, "n": 1, "statistic": "single value"}


CEILINGS = {"flop_s": {"float32": limit(1e9)}, "bandwidth_b_s": {"triad": limit(1e9)}}


def noisy(value, process):
    return value * (1 + 0.004 * ((process * 7) % 5 - 2))


def specification(framework="torch", batch=1, mode="", transforms=(), **parts):
    case = NetworkCase("lenet", batch=batch)
    return replace(NetworkSpecification("lenet", case, NetworkArm(framework, mode, "cpu", tuple(transforms))), **parts)


def header(spec, seed=0, identity="abcd", environment=None, version="0.1.0", started=None, ceilings=CEILINGS):
    # Frameworks take turns, and each is as often the first.
    started = started or f"2026-01-02T03:04:{seed:02d}.{(spec.arm.framework != 'torch') ^ seed % 2}00+00:00"
    key = key_of(spec)
    known = {} if environment is None else environment
    return NetworkHeader(SCHEMA, identity, key, seed, started, spec, known, version, ceilings)


def write(
    store,
    spec,
    seed=0,
    latencies=(1.0, 1.0, 1.0),
    *,
    facts=None,
    phases=(),
    memory=None,
    operators=(),
    profile=None,
    outcome=None,
    end=True,
    suspect=(),
    **more,
):
    """One process: raw latencies in seconds, phases as (name, seconds), peak memory in bytes."""
    with NetworkWriter.begin(store, header(spec, seed, f"id{seed}", **more)) as writer:
        writer.add(facts or NetworkFacts({"threads": 1}, "eager", "float32", 10, 40, 2, 1e6, 5e5, 1e3))
        for name, seconds in phases:
            writer.add(Measurement(f"phase/{name}", "s", seconds, "host clock"))
        if memory is not None:
            writer.add(memory)
        if latencies is not None:
            writer.add(Samples("latency", "s", list(latencies)))
        for each in operators:
            writer.add(each)
        if profile:
            writer.add(ProfileShares("a profiler", profile))
        writer.add(outcome or NetworkOutcome("measured", "", {"output": 1e-7}, "against numpy"))
        if end:
            writer.add(ProcessEnd(list(suspect)))
    return NetworkRecord.read(writer.path)


def arm(store, framework, times_s, batch=1, **more):
    """One record a process, each with six equal latencies."""
    spec = specification(framework, batch)
    return [write(store, spec, seed, [each] * 6, **more) for seed, each in enumerate(times_s)]


def entry(records, **more):
    """The one entry of one case on one arm."""
    return summarise_networks([[records]], **more).rows[0][1][0]
