"""From words that select runs to the entries they make: one a group of runs, one a measurement of inference.

The one idea: whatever cannot become a whole entry is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from levelbench.errors import UsageError
from levelbench.records.store import Store
from levelbench.records.submissions.groups import choose, records_named, refuse_incomplete, tried
from levelbench.records.submissions.making import file_of, make
from levelbench.records.submissions.schema import Submission, Tuning
from levelbench.records.submissions.terms import Terms, machine_of

if TYPE_CHECKING:
    from levelbench.records.inference import InferenceRecord

__all__ = ["INFERENCE_ENDING", "entries_of"]

INFERENCE_ENDING = ".jsonlines"


def entries_of(
    words: Sequence[str], store: Store, terms: Terms, *, count_trials: bool = True
) -> list[tuple[str, Submission]]:
    """Every entry with the file that it belongs into, relative to the leaderboard.

    Raises ``UsageError`` for a selection that is not a whole group (unless ``terms.only_these`` says why), for runs
    that cannot be an entry under the ruleset, and for words that select nothing.
    """
    files = [Path(word) for word in words if word.endswith(INFERENCE_ENDING)]
    selected = records_named(store, [word for word in words if not word.endswith(INFERENCE_ENDING)])
    groups = choose(selected, store)
    if selected and not groups:
        raise UsageError("an entry of a leaderboard", "no run came to an end", "finish the runs first")
    for chosen in groups:
        refuse_incomplete(chosen, terms.only_these)
    made = []
    for chosen in groups:
        own = terms
        if count_trials:
            own = msgspec.structs.replace(terms, tuning=_with_count(terms.tuning, tried(store, chosen.records)))
        submission = make(chosen.records, own)
        made.append((file_of(submission, [chosen.key]), submission))
    if files:
        made += _of_inference(files, store, terms)
    return made


def _with_count(stated: Tuning, counted: Tuning) -> Tuning:
    """What is stated, with the store's count where nothing is."""
    notes = "; ".join(text for text in (stated.notes, counted.notes) if text)
    hours = stated.hours if stated.hours is not None else counted.hours
    return Tuning(counted.trials, hours, stated.usd, notes)


def _of_inference(files: Sequence[Path], store: Store, terms: Terms) -> list[tuple[str, Submission]]:
    """One entry for each specification and machine among the records of inference in ``files``."""
    from levelbench.records.inference import read_inference
    from levelbench.records.submissions.making_inference import make_inference

    groups: dict[tuple[str, str], list[InferenceRecord]] = {}
    for path in files:
        record = read_inference(path)
        groups.setdefault((record.header.key, machine_of(record.header.environment)), []).append(record)
    if terms.only_these is None:
        for (key, machine), records in groups.items():
            _refuse_some(key, machine, records, store)
    made = []
    for (key, _), records in groups.items():
        submission = make_inference(records, terms, store.path)
        made.append((file_of(submission, [submission.inference[0].scenario, key]), submission))
    return made


def _refuse_some(key: str, machine: str, records: Sequence[InferenceRecord], store: Store) -> None:
    """``UsageError`` if the store has further processes of the measurement: the best of several is none."""
    from levelbench.records.inference import find_inference_records

    chosen = {record.header.id for record in records}
    every = find_inference_records(store.path, key)
    same = [each for each in every if machine_of(each.header.environment) == machine and each.status == "done"]
    missing = [str(each.path) for each in same if each.header.id not in chosen]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        n = len(missing)
        are = "1 process of the same measurement is" if n == 1 else f"{n} processes of the same measurement are"
        found = f"{are} left out: {missing[0]}{more}"
        do = "give their files too, or say --only-these --because TEXT"
        raise UsageError(f"an entry of {len(records)} records of inference", found, do)
