"""Records of runs: their schema, writing and reading them, the store that holds them, and how runs are selected.

A run is one JSONL file, to which events are appended. Everything else here is computed from such files.
"""

from levelbench.records.caveats import Caveat
from levelbench.records.comparable import Comparability, comparable
from levelbench.records.reader import Follower, Record, Status, read_record
from levelbench.records.schema import (
    SCHEMA,
    DatasetFacts,
    Distribution,
    End,
    Evaluation,
    Event,
    Header,
    Measurement,
    RankSamples,
    Samples,
    Source,
    Specification,
    Target,
    key_of,
)
from levelbench.records.selection import Selector, format_item, parse_item, parse_selector
from levelbench.records.store import Store, read_folder
from levelbench.records.summary import RunGroup, RunSummary, group_runs, summarise
from levelbench.records.writer import RecordWriter, new_id

__all__ = ["SCHEMA", "Caveat", "Comparability", "DatasetFacts", "Distribution", "End", "Evaluation", "Event"]
__all__ += ["Follower", "Header", "Measurement", "RankSamples", "Record", "RecordWriter", "RunGroup", "RunSummary"]
__all__ += ["Samples", "Selector", "Source", "Specification", "Status", "Store", "Target", "comparable"]
__all__ += ["format_item", "group_runs", "key_of", "new_id", "parse_item", "parse_selector", "read_folder"]
__all__ += ["read_record", "summarise"]
