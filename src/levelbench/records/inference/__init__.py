"""What measuring inference leaves behind: one file a process, and what the files of several processes say together.

Whoever only writes a record pays for no statistics; these are imported when they are asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from levelbench.records.inference.files import (
    InferenceRecord,
    InferenceWriter,
    find_inference_records,
    inference_key,
    other_seeds,
    read_inference,
)
from levelbench.records.inference.schema import (
    FOLDER,
    INFERENCE_SCHEMA,
    MOST_LATENCIES,
    PHASES,
    Accuracy,
    Audit,
    Data,
    Driven,
    InferenceArm,
    InferenceEnd,
    InferenceFacts,
    InferenceHeader,
    InferenceOutcome,
    InferenceSpecification,
    Model,
    PeakTrial,
    ScenarioSettings,
)

if TYPE_CHECKING:
    from levelbench.records.inference.summary import InferenceEntry, InferenceSummary, Price, summarise_inference

__all__ = [
    "FOLDER",
    "INFERENCE_SCHEMA",
    "MOST_LATENCIES",
    "PHASES",
    "Accuracy",
    "Audit",
    "Data",
    "Driven",
    "InferenceArm",
    "InferenceEnd",
    "InferenceEntry",
    "InferenceFacts",
    "InferenceHeader",
    "InferenceOutcome",
    "InferenceRecord",
    "InferenceSpecification",
    "InferenceSummary",
    "InferenceWriter",
    "Model",
    "PeakTrial",
    "Price",
    "ScenarioSettings",
    "find_inference_records",
    "inference_key",
    "other_seeds",
    "read_inference",
    "summarise_inference",
]

_LATER = {
    "InferenceEntry": "summary",
    "InferenceSummary": "summary",
    "Price": "summary",
    "summarise_inference": "summary",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
