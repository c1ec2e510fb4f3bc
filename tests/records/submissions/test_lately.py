"""What is remembered of the last submissions: it is found again, and keeps none of them in memory."""

from __future__ import annotations

import gc
import weakref

import msgspec
from tests.records.submissions.scored import OURS, a_run, submission

from levelbench.records.submissions import scoring, steps
from levelbench.records.submissions.lately import Lately


def test_what_was_made_is_found_for_the_very_same_submission_alone():
    lately, entry = Lately(), submission([a_run(1.0)])
    lately.put(entry, "a", 1)
    assert lately.get(entry) == ("a", 1)
    assert lately.get(msgspec.structs.replace(entry)) is None


def test_the_eldest_makes_room():
    lately, entries = Lately(), [submission([a_run(float(each))]) for each in range(1, 10)]
    for each in entries:
        lately.put(each, "a", each.runs)
    assert lately.get(entries[0]) is None
    assert lately.get(entries[-1]) == ("a", entries[-1].runs)


def test_a_submission_that_was_scored_is_not_kept_alive_and_leaves_nothing():
    entry = submission([a_run(1.0), a_run(2.0)])
    scoring.score(entry, OURS)
    assert scoring._known.get(entry) is not None
    alive, key = weakref.ref(entry), id(entry)
    del entry
    gc.collect()
    assert alive() is None
    assert key not in steps._known._held
    assert key not in scoring._known._held
