"""MLPerf's training logs as claims: one for the logs of a benchmark on a system, as MLPerf would publish it.

The one idea: a log is raw, so what the claim states is computed from its events; one log alone is one run, and says
nothing of how many there were.
"""

from __future__ import annotations

from pathlib import Path

from levelbench.claims.reading.submissions import submission_claim
from levelbench.claims.view import Claim
from levelbench.competition.exchange.mlperf import read_log, read_results
from levelbench.competition.exchange.mlperf.entries import submission_of
from levelbench.errors import LevelbenchError, RecordError

__all__ = ["read_mlperf"]

_ARCHIVES = (".tar", ".tar.gz", ".tgz")


def read_mlperf(path: str | Path, problems: list[LevelbenchError] | None = None) -> list[Claim]:
    """The claims in one log, in a folder of results with all folders in it, or in a tar archive of one.

    ``problems`` takes what cannot be read; without it the first is an error.
    """
    path = Path(path)
    if path.is_file() and not path.name.endswith(_ARCHIVES):
        entry = submission_of([read_log(path)], file=path.name)
        return [submission_claim(entry, str(path), read_from="mlperf")]
    entries, unread = read_results(path)
    do = "correct or remove the file"
    faults: list[LevelbenchError] = [RecordError(f"reading {path}", text, do) for text in unread]
    if problems is not None:
        problems += faults
    elif faults:
        raise faults[0]
    found = []
    for entry in entries:
        place = path / entry.origin.file if entry.origin and path.is_dir() else path
        found.append(submission_claim(entry, str(place), read_from="mlperf"))
    return found
