"""MLPerf Training: its logs read and written, checked, and made into submissions.

A log is raw, so everything that is said of a run (time, convergence, seeds, compliance) is computed from
its events here, by rules that are data, and no text of a log is ever executed.
"""

from __future__ import annotations

from levelbench.competition.exchange.mlperf.compliance import LogFinding, check_log, check_seeds
from levelbench.competition.exchange.mlperf.entries import losses_of
from levelbench.competition.exchange.mlperf.logs import LogEvaluation, TrainingLog, read_log
from levelbench.competition.exchange.mlperf.results import read_results, write_log, write_submission

__all__ = [
    "LogEvaluation",
    "LogFinding",
    "TrainingLog",
    "check_log",
    "check_seeds",
    "losses_of",
    "read_log",
    "read_results",
    "write_log",
    "write_submission",
]
