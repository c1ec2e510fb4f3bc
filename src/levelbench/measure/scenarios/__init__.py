"""Inference scenarios as MLPerf's LoadGen defines them: single-stream, multi-stream, server, offline, and DAWNBench's.

The driver decides what is asked when and reads the clock, and knows nothing of what is asked; with
LoadGen's seeds it issues LoadGen's queries, so the two can be held against each other on one system.
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
from levelbench.measure.scenarios.driving import run_scenario
from levelbench.measure.scenarios.peak import Peak, RateTrial, find_peak
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
