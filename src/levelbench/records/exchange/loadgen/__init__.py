"""LoadGen's logs of MLPerf Inference: summary, detail and answers, read and made into submissions.

The one idea: the summary is text for people and rounds, the detail log has the same figures as events; both are read,
what they do not agree about is a doubt, and no figure is computed that they do not imply.
"""

from __future__ import annotations

from levelbench.records.exchange.loadgen.answers import Answer, read_answers
from levelbench.records.exchange.loadgen.board import Ranking, rankings
from levelbench.records.exchange.loadgen.detail import Detail, read_detail
from levelbench.records.exchange.loadgen.inference import inference_of
from levelbench.records.exchange.loadgen.results import read_results
from levelbench.records.exchange.loadgen.summary import Summary, read_summary

__all__ = [
    "Answer",
    "Detail",
    "Ranking",
    "Summary",
    "inference_of",
    "rankings",
    "read_answers",
    "read_detail",
    "read_results",
    "read_summary",
]
