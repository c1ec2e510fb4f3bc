"""Our drivers against MLPerf's LoadGen, on the same systems, with the same seeds and so the same queries.

    python benchmarks/loadgen.py [--seconds 10] [--only overhead|latency|rules]

Three tables. *rules*: LoadGen's own raw latencies (from its trace) judged by ours, against what its summary says; every
figure must be equal. *latency*: percentiles of both drivers on a numpy computation and on known sleeps, in turns
A B B A. *overhead*: what a driver adds to a query, on a system that does nothing. The figures want a quiet machine.
Needs ``mlcommons-loadgen``.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlperf_loadgen
import numpy as np

from levelbench.measure.scenarios import MultiStream, Offline, Scenario, Seeds, Server, SingleStream
from levelbench.measure.scenarios.contract import Workers
from levelbench.measure.scenarios.driving import run_scenario
from levelbench.measure.scenarios.result import Raw, ScenarioResult, judge
from levelbench.measure.statistics.early_stopping import BoundTest, StreamEstimate

SEEDS = Seeds(1_780_908_523_862_526_354, 14_771_362_308_971_278_857, 18_209_322_760_996_052_031)
"""Those of a round of MLPerf Inference."""

TURN = ("LoadGen", "ours", "ours", "LoadGen")

_NAMES = {"single-stream": "SingleStream", "multi-stream": "MultiStream", "server": "Server", "offline": "Offline"}


@dataclass(frozen=True, eq=False)
class Theirs:
    """One run of LoadGen: its raw times from the trace, its figures from the detailed log, by LoadGen's keys."""

    raw: Raw
    figures: dict[str, Any]


class Compute:
    """A system that multiplies matrices: its time is steady, and outside Python."""

    def __init__(self, size: int = 96) -> None:
        self._matrix = np.random.default_rng(0).random((size, size))

    def answer(self, indices: Sequence[int]) -> None:
        """One product a sample."""
        for _ in indices:
            self._matrix @ self._matrix


class Sleep:
    """A system whose latencies are known: sample i sleeps for ``seconds[i % len(seconds)]``."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self._seconds = seconds

    def answer(self, indices: Sequence[int]) -> None:
        """Sleep through each."""
        for index in indices:
            time.sleep(self._seconds[index % len(self._seconds)])


class Nothing:
    """A system that does nothing at all."""

    answer = staticmethod(lambda indices: None)


def run_theirs(scenario: Scenario, sut: Any, samples: int, seeds: Seeds, folder: Path, trace: bool = True) -> Theirs:
    """Run ``scenario`` by LoadGen, its log files in ``folder``."""
    settings = _settings(scenario, seeds)
    output = mlperf_loadgen.LogSettings()
    output.enable_trace = trace
    output.log_output.outdir = str(folder)
    output.log_output.copy_summary_to_stdout = False
    library = mlperf_loadgen.ConstructQSL(samples, samples, lambda indices: None, lambda indices: None)
    if isinstance(scenario, Server):
        with Workers(_Reports(sut), scenario.workers) as workers:
            _start(workers.issue, library, settings, output)
    else:
        answers = _Reports(sut)
        _start(lambda query: answers.answer(query.indices), library, settings, output)
    mlperf_loadgen.DestroyQSL(library)
    return Theirs(_raw(folder) if trace else _NO_RAW, _figures(folder))


def _complete(query: Sequence[Any]) -> None:
    mlperf_loadgen.QuerySamplesComplete([mlperf_loadgen.QuerySampleResponse(sample.id, 0, 0) for sample in query])


class _Reports:
    """Answers LoadGen's query samples by ``sut`` and reports them complete."""

    def __init__(self, sut: Any) -> None:
        self._answer = sut.answer

    def answer(self, indices: Sequence[Any]) -> None:
        self._answer([sample.index for sample in indices])
        _complete(indices)


class _Passed:
    """What a worker thread is given in place of our query; LoadGen has been told of the answer already."""

    def __init__(self, indices: Sequence[Any], failures: list[BaseException]) -> None:
        self.indices = indices
        self._failures = failures

    def complete(self, count: int) -> None: ...

    def fail(self, error: BaseException) -> None:
        """Remember it, and let LoadGen come to its end: it would wait for ever."""
        self._failures.append(error)
        _complete(self.indices)


def _start(issue: Callable[[Any], None], library: int, settings: Any, output: Any) -> None:
    failures: list[BaseException] = []
    system = mlperf_loadgen.ConstructSUT(lambda query: issue(_Passed(query, failures)), lambda: None)
    mlperf_loadgen.StartTestWithLogSettings(system, library, settings, output)
    mlperf_loadgen.DestroySUT(system)
    if failures:
        raise failures[0]


def _settings(scenario: Scenario, seeds: Seeds) -> Any:
    settings = mlperf_loadgen.TestSettings()
    settings.scenario = getattr(mlperf_loadgen.TestScenario, _NAMES[scenario.name])
    settings.mode = mlperf_loadgen.TestMode.PerformanceOnly
    settings.min_duration_ms = round(scenario.min_duration_s * 1e3)
    settings.min_query_count = scenario.min_queries
    settings.max_query_count = scenario.max_queries or 0
    settings.qsl_rng_seed, settings.sample_index_rng_seed = seeds.sample_set, seeds.samples
    settings.schedule_rng_seed = seeds.schedule
    if isinstance(scenario, SingleStream):
        settings.single_stream_target_latency_percentile = scenario.quantile
        # LoadGen makes its queries beforehand: as many as a system this fast would need.
        settings.single_stream_expected_latency_ns = 1000
    elif isinstance(scenario, MultiStream):
        settings.multi_stream_target_latency_percentile = scenario.quantile
        settings.multi_stream_samples_per_query = scenario.samples_per_query
        settings.multi_stream_expected_latency_ns = 1000 * scenario.samples_per_query
    elif isinstance(scenario, Server):
        settings.server_target_qps = scenario.qps
        settings.server_target_latency_ns = round(scenario.bound_s * 1e9)
        settings.server_target_latency_percentile = scenario.quantile
    elif isinstance(scenario, Offline):
        settings.min_query_count = scenario.min_samples or 1
        settings.offline_expected_qps = scenario.expected_per_s or 1.0
    return settings


def _raw(folder: Path) -> Raw:
    """LoadGen's trace: for each sample its query, its schedule, its issue and its answer."""
    keys = ("sample_seq", "query_seq", "sample_idx", "issue_start_ns", "complete_ns")
    rows = []
    for line in (folder / "mlperf_log_trace.json").read_text().splitlines():
        if '"name":"Sample"' in line and '"ph":"b"' in line:
            event = json.loads(line.rstrip(","))
            rows.append([*(event["args"][key] for key in keys), round(event["ts"] * 1000)])
    _, query, index, issued, answered, scheduled = np.asarray(sorted(rows), dtype=np.int64).T
    scheduled = scheduled - scheduled[0]
    answered = answered + scheduled
    first = np.unique(query, return_index=True)[1]
    done = np.maximum.reduceat(answered, first)
    shape = (len(first), -1)
    issued = (issued + scheduled)[first]
    return Raw(scheduled[first], issued, done, index.reshape(shape), "LoadGen", answered_ns=answered)


def _figures(folder: Path) -> dict[str, Any]:
    figures = {}
    for line in (folder / "mlperf_log_detail.txt").read_text().splitlines():
        if line.startswith(":::MLLOG"):
            entry = json.loads(line.removeprefix(":::MLLOG"))
            figures[entry["key"]] = entry["value"]
    return figures


_NO_RAW = Raw(*(np.zeros(1, dtype=np.int64) for _ in range(3)), np.zeros((1, 1), dtype=np.int64), "")


def theirs_and_ours(theirs: Theirs, scenario: Scenario) -> list[tuple[str, Any, Any]]:
    """Each figure of LoadGen's log, and what ours makes of LoadGen's raw times: (name, theirs, ours)."""
    log, ours = theirs.figures, judge(scenario, theirs.raw)
    mean = "query_latency_ns" if isinstance(scenario, MultiStream) else "latency_ns"
    latency = "per_" * isinstance(scenario, MultiStream) + mean
    rows: list[tuple[str, Any, Any]] = [
        (f"{share:g} quantile, ns", log[f"result_{share * 100:.2f}_percentile_{latency}"], round(found.value * 1e9))
        for share, found in ours.quantiles.items()
    ]
    rows.append(("mean, ns", log[f"result_mean_{mean}"], int(ours.latencies_ns.sum()) // len(ours.latencies_ns)))
    rows.append(("valid", log["result_validity"] == "VALID", ours.valid))
    text = log["early_stopping_result"]
    if isinstance(ours.early, BoundTest):
        rows.append(("late", log["result_overlatency_query_count"], ours.early.late))
        rows.append(("more queries needed", _number(text, r"at least (\d+) more"), ours.early.more))
        rows.append(("scheduled a second", log["result_scheduled_samples_per_sec"], ours.rates["scheduled"]))
        rows.append(("completed a second", log["result_completed_samples_per_sec"], ours.rates["completed"]))
    elif isinstance(ours.early, StreamEstimate):
        rows.append(("discarded", _number(text, r"discard (\d+) "), ours.early.discarded))
        rows.append(("estimate, ns", _number(text, r"estimate: (\d+)"), round(ours.early.value or 0)))
    else:
        rows.append(("samples a second", log["result_samples_per_second"], ours.throughput_per_s))
    return rows


def _number(text: str, pattern: str) -> int:
    return int(found[1]) if (found := re.search(pattern, text)) else 0


def rules(seconds: float) -> None:
    """LoadGen's raw times under our definitions, against its own figures."""
    print("rules: figures of LoadGen's runs, its own and ours of the same raw times")
    for scenario in (
        SingleStream(min_duration_s=seconds),
        MultiStream(min_duration_s=seconds),
        Server(qps=500, bound_s=0.001, min_duration_s=seconds),
        Offline(expected_per_s=20_000, min_duration_s=seconds, min_samples=24_576),
    ):
        with tempfile.TemporaryDirectory() as folder:
            theirs = run_theirs(scenario, Compute(), 1024, SEEDS, Path(folder))
        rows = theirs_and_ours(theirs, scenario)
        # LoadGen prints rates with six digits; all else is whole numbers.
        equal = sum(abs(a - b) <= 1e-5 * abs(a) if isinstance(b, float) else a == b for _, a, b in rows)
        print(f"  {scenario.name:14} {len(theirs.raw.done_ns):7} queries: {equal} of {len(rows)} figures equal")
        for name, a, b in rows:
            print(f"    {name:22} {a!s:>14} {b!s:>14}")


def latency(seconds: float) -> None:
    """Percentiles of both drivers on one system, in turns A B B A."""
    print("latency: both drivers on one system, the same queries, in microseconds (p50 p90 p99)")
    known = Sleep((0.001, 0.001, 0.002, 0.003, 0.005))
    server = Server(qps=100, bound_s=0.05, min_duration_s=seconds, workers=4)
    cases: list[tuple[str, Scenario, Any]] = [
        ("compute", SingleStream(min_duration_s=seconds), Compute(256)),
        ("known sleeps", SingleStream(min_duration_s=seconds), known),
        ("known sleeps", MultiStream(min_duration_s=seconds, min_queries=100, quantile=0.9), known),
        ("known sleeps", server, known),
    ]
    for name, scenario, sut in cases:
        for who in TURN:
            result = _one(who, scenario, sut)
            shown = " ".join(f"{result.quantiles[share].value * 1e6:9.1f}" for share in (0.5, 0.9, 0.99))
            late = result.lateness_s(0.99) * 1e6
            print(f"  {name:13} {scenario.name:14} {who:8} {result.queries:7} queries {shown}  late p99 {late:.1f}")


def _one(who: str, scenario: Scenario, sut: Any) -> ScenarioResult:
    if who == "ours":
        return run_scenario(scenario, sut, samples=1000, seed=SEEDS)
    with tempfile.TemporaryDirectory() as folder:
        return judge(scenario, run_theirs(scenario, sut, 1000, SEEDS, Path(folder)).raw)


def overhead(seconds: float) -> None:
    """What a driver costs on a system that does nothing: microseconds a query, and the latency that it shows."""
    print("overhead: a system that does nothing, microseconds a query")
    queries = 1000 + int(20_000 * seconds)
    stream = SingleStream(min_duration_s=0.0, min_queries=queries, max_queries=queries)
    for who in TURN:
        if who == "ours":
            result = run_scenario(stream, Nothing(), samples=1024, seed=SEEDS)
            rate, shown = result.rates["with driver"], result.quantiles[0.5].value
        else:
            with tempfile.TemporaryDirectory() as folder:
                log = run_theirs(stream, Nothing(), 1024, SEEDS, Path(folder), trace=False).figures
            rate, shown = log["result_qps_with_loadgen_overhead"], log["result_50.00_percentile_latency_ns"] * 1e-9
        print(f"  single-stream  {who:8} {1e6 / rate:7.2f}, of which in a latency {shown * 1e6:6.2f} (median)")
    server = Server(qps=1000, bound_s=0.01, min_duration_s=seconds)
    for who in TURN:
        result = _one(who, server, Nothing())
        shown, late = result.quantiles[0.5].value, result.lateness_s(0.5)
        print(f"  server         {who:8} issued {late * 1e6:7.2f} late, answered after {shown * 1e6:7.2f} (medians)")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--only", choices=["rules", "latency", "overhead"])
    asked = parser.parse_args()
    for table in (rules, latency, overhead):
        if asked.only in {None, table.__name__}:
            table(asked.seconds)


if __name__ == "__main__":
    main()
