"""A LoadGen run as one measurement of inference.

The one idea: LoadGen's rates are counts by times, so a run's length follows from them exactly where it is not logged:
SingleStream ``(n - 1) / rate`` to the last issue, Server ``(n - 1) / rate`` to the last answer, Offline ``n / rate``.
"""

from __future__ import annotations

from typing import Literal

from levelbench.errors import RecordError
from levelbench.records.exchange.loadgen.detail import Detail
from levelbench.records.exchange.loadgen.summary import Summary
from levelbench.records.submissions.schema import Inference

__all__ = ["inference_of"]

Scenario = Literal["single-stream", "multi-stream", "server", "offline"]
_SCENARIOS: dict[str, Scenario] = {
    "SingleStream": "single-stream",
    "MultiStream": "multi-stream",
    "Server": "server",
    "Interactive": "server",
    "Offline": "offline",
}
_AGREE = 0.01
"""The summary rounds rates; a difference beyond this share is none of rounding."""


def inference_of(summary: Summary, detail: Detail | None, asked: str) -> tuple[Inference, list[str]]:
    """The measurement that a summary and, if it is there, the detail log of one run tell, and what is doubtful.

    Raises ``RecordError`` (about ``asked``) for a run whose scenario is none of ours, that was no performance run, or
    of which neither log says how many queries it had.
    """
    scenario = _SCENARIOS.get(summary.scenario)
    do = "give the logs of a performance run"
    if scenario is None:
        raise RecordError(asked, f"there is no scenario {summary.scenario!r}", "use " + ", ".join(_SCENARIOS))
    if summary.mode not in ("PerformanceOnly", "SubmissionRun", "FindPeakPerformance"):
        raise RecordError(asked, f"it is a run of mode {summary.mode!r}", do)
    logged = detail.figures if detail is not None else {}
    per_query = int(summary.parameters.get("samples_per_query", 1)) or 1
    queries = int(logged.get("result_query_count", summary.queries or 0))
    if scenario == "offline":
        queries, per_query = 1, int(summary.parameters.get("samples_per_query", 0))
    if queries < 1 or per_query < 1:
        raise RecordError(asked, "neither log says how many queries it had", do)
    quantile = summary.headline_quantile
    rate = _rate(summary, scenario)
    duration_s, doubt = _duration(summary, detail, scenario, queries, per_query, rate)
    mean_ns = summary.figures.get("Mean latency (ns)")
    bound_ns = summary.parameters.get("target_latency (ns)", 0.0)
    found = Inference(
        scenario=scenario,
        queries=queries,
        samples=queries * per_query,
        duration_s=duration_s,
        mean_latency_s=None if mean_ns is None else mean_ns / 1e9,
        quantiles_s=summary.quantiles_s,
        estimate_s=None if quantile is None else summary.estimates_s.get(f"{quantile:.10g}"),
        estimate_quantile=quantile,
        throughput_per_s=rate,
        target_per_s=summary.parameters.get("target_qps") if scenario == "server" else None,
        latency_bound_s=bound_ns / 1e9 if scenario == "server" and bound_ns > 0 else None,
        valid=summary.valid,
        batch=per_query,
        includes=["queueing"] if scenario == "server" else [],
    )
    return found, [*([doubt] if doubt else []), *_doubts(summary, detail)]


def _rate(summary: Summary, scenario: Scenario) -> float | None:
    """Samples a second as LoadGen counts them, ``None`` where it prints none (MultiStream)."""
    names = {
        "single-stream": ("QPS w/ loadgen overhead",),
        "multi-stream": (),
        "server": ("Completed samples per second", "Scheduled samples per second"),
        "offline": ("Samples per second",),
    }[scenario]
    return next((summary.figures[name] for name in names if summary.figures.get(name, 0.0) > 0), None)


def _duration(
    summary: Summary, detail: Detail | None, scenario: Scenario, queries: int, per_query: int, rate: float | None
) -> tuple[float, str | None]:
    """Seconds of the run, and what is doubtful about them."""
    if scenario == "offline" and rate is not None:
        return queries * per_query / rate, None
    if rate is not None and queries > 1:
        return (queries - 1) / rate, None
    if detail is not None and detail.duration_s is not None:
        return detail.duration_s, None
    mean_s = summary.figures.get("Mean latency (ns)", 0.0) / 1e9
    return queries * mean_s, "the length of the run is not logged: it is queries times mean latency, a lower bound"


def _doubts(summary: Summary, detail: Detail | None) -> list[str]:
    found = (
        [] if summary.valid else ["LoadGen calls the run INVALID" if summary.valid is False else "no verdict is said"]
    )
    found += [
        f"not satisfied: {name.removesuffix(' satisfied')}" for name, holds in summary.checks.items() if not holds
    ]
    if summary.scenario == "Interactive":
        found.append("the Interactive scenario is read as server: its bounds on tokens are not")
    if detail is None:
        return [*found, "there is no detail log: the summary's figures cannot be held against it"]
    mean_ns, logged = summary.figures.get("Mean latency (ns)"), detail.figures.get("result_mean_latency_ns")
    if mean_ns is not None and logged is not None and abs(mean_ns - logged) > _AGREE * max(abs(logged), 1.0):
        found.append(f"the summary says a mean latency of {mean_ns:g} ns, the detail log {logged:g} ns")
    if detail.valid != summary.valid:
        found.append("summary and detail log do not agree whether the run is valid")
    return found + [f"LoadGen logged an error: {text}" for text in detail.errors]
