"""Inference scenarios as MLPerf's LoadGen defines them: single-stream, multi-stream, server, offline, and DAWNBench's.

The driver decides which query is issued when and reads the clock, and knows nothing about the queries' content. With
LoadGen's seeds it issues LoadGen's queries, so the two can be compared on the same system.
"""

from __future__ import annotations

from levelbench.measure.scenarios.audits import (
    AuditVerdict,
    KeepSome,
    KeptAnswer,
    audit_caching,
    audit_kept_answers,
    audit_same_result,
)
from levelbench.measure.scenarios.contract import (
    RULES_DURATION_S,
    Answering,
    DawnBench,
    MultiStream,
    Offline,
    Query,
    Scenario,
    Server,
    SingleStream,
    SystemUnderTest,
    VirtualClock,
    VirtualServers,
)
from levelbench.measure.scenarios.draws import SampleOrder, Seeds, arrivals_ns
from levelbench.measure.scenarios.driving import Peak, RateTrial, find_peak, run_scenario
from levelbench.measure.scenarios.result import QUANTILES, ScenarioResult

__all__ = [
    "QUANTILES",
    "RULES_DURATION_S",
    "Answering",
    "AuditVerdict",
    "DawnBench",
    "KeepSome",
    "KeptAnswer",
    "MultiStream",
    "Offline",
    "Peak",
    "Query",
    "RateTrial",
    "SampleOrder",
    "Scenario",
    "ScenarioResult",
    "Seeds",
    "Server",
    "SingleStream",
    "SystemUnderTest",
    "VirtualClock",
    "VirtualServers",
    "arrivals_ns",
    "audit_caching",
    "audit_kept_answers",
    "audit_same_result",
    "find_peak",
    "run_scenario",
]
