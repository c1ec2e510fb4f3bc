"""An entry is compared with the records that it was made from."""

from __future__ import annotations

import hashlib
from datetime import date

import msgspec
from tests.competition.made import ENVIRONMENT, records

from levelbench.competition.entries import TuningEffort, curve_digest
from levelbench.competition.leaderboard import check
from levelbench.competition.making import make


def judged(entry, paths):
    digests = {hashlib.sha256(path.read_bytes()).hexdigest(): str(path) for path in paths}
    found = check(entry, today=date(2026, 12, 1), records=digests)
    return [(each.code, each.field) for each in found if each.code.startswith(("B17", "B18"))]


def test_an_entry_is_compared_with_its_records(put, terms):
    paths = [put(seed) for seed in range(5)]
    entry = make(records(*paths), msgspec.structs.replace(terms, tuning=TuningEffort(0)))
    assert judged(entry, paths) == []
    first = entry.runs[0]
    curve = msgspec.structs.replace(first.curve, time_s=[each / 20 for each in first.curve.time_s])
    forged = msgspec.structs.replace(
        first, curve=curve, phases_s={}, seed=9, curve_digest=curve_digest(curve), time_to_target_s=None
    )
    changed = msgspec.structs.replace(entry, runs=[forged, *entry.runs[1:]])
    assert judged(changed, paths) == [("B183", f"runs[0].{name}") for name in ("curve", "phases_s", "seed")]


def test_labels_are_compared_with_the_records(put, terms):
    paths = [put(seed) for seed in range(5)]
    entry = make(records(*paths), msgspec.structs.replace(terms, tuning=TuningEffort(0)))
    more = msgspec.structs.replace(entry, settings={**entry.settings, "flops_per_sample": 1.0})
    assert judged(more, paths) == []
    other = msgspec.structs.replace(entry, framework="another", settings={**entry.settings, "lr": 0.7})
    assert judged(other, paths) == [("B183", "framework"), ("B183", "settings.lr")]


def test_records_of_the_group_that_an_entry_leaves_out_are_reported(put, terms):
    paths = [put(seed) for seed in range(6)]
    elsewhere = {**ENVIRONMENT, "machine": {"id": "m2"}}
    others = [put(7, recipe="cnn"), put(8, environment=elsewhere)]
    entry = make(records(*paths[:5]), msgspec.structs.replace(terms, tuning=TuningEffort(0)))
    assert judged(entry, [*paths, *others]) == [("B184", "runs")]
    assert judged(entry, [*paths[:5], *others]) == []
