"""An entry is compared with the records that it was made from."""

from __future__ import annotations

import hashlib
from datetime import date

import msgspec
import pytest
from tests.competition.made import ENVIRONMENT, records

from levelbench.competition.checks.identity import ONLY_THESE
from levelbench.competition.entries import Hardware, TuningEffort, curve_digest, file_digest
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
        first, curve=curve, phases_s={}, seed=5, curve_digest=curve_digest(curve), time_to_target_s=None
    )
    changed = msgspec.structs.replace(entry, runs=[forged, *entry.runs[1:]])
    found = judged(changed, paths)
    # Of a curve the first point that differs.
    assert [field for code, field in found if code == "B183"][0::2] == ["runs[0].curve.time_s[0]", "runs[0].seed"]
    assert found[1][1].startswith("runs[0].phases_s.")
    assert found[-1] == ("B186", "runs.seed")


def test_labels_are_compared_with_the_records(put, terms):
    paths = [put(seed) for seed in range(5)]
    entry = make(records(*paths), msgspec.structs.replace(terms, tuning=TuningEffort(0)))
    more = msgspec.structs.replace(entry, settings={**entry.settings, "flops_per_sample": 1.0})
    assert judged(more, paths) == []
    other = msgspec.structs.replace(entry, framework="another", settings={**entry.settings, "lr": 0.7})
    assert judged(other, paths) == [("B183", "framework"), ("B183", "settings.lr")]


def test_hardware_and_software_are_compared_with_the_records(put, terms):
    paths = [put(seed) for seed in range(5)]
    entry = make(records(*paths), msgspec.structs.replace(terms, tuning=TuningEffort(0)))
    hardware = msgspec.structs.replace(entry.hardware, accelerators=8, cores=640)
    provenance = msgspec.structs.replace(entry.provenance, software={**entry.provenance.software, "numpy": "9.9"})
    changed = msgspec.structs.replace(entry, hardware=hardware, provenance=provenance)
    wrong = {("B183", "hardware.accelerators"), ("B183", "hardware.cores"), ("B183", "provenance.software.numpy")}
    assert wrong <= set(judged(changed, paths))
    unstated = msgspec.structs.replace(entry, hardware=Hardware("a machine"))
    assert judged(unstated, paths) == []


def test_hardware_that_is_not_that_of_the_entrys_own_environment_is_found(put, terms):
    entry = make(records(*(put(seed) for seed in range(5))), msgspec.structs.replace(terms, tuning=TuningEffort(0)))
    facts = {"machine.cpu": "A", "machine.cores_allowed": "2", "machine.memory_bytes": "1000", "accelerators.names": ""}
    entry = msgspec.structs.replace(entry, provenance=msgspec.structs.replace(entry.provenance, environment=facts))

    def found(**parts):
        stated = msgspec.structs.replace(entry, hardware=Hardware("a machine", **parts))
        return [each.field for each in check(stated, today=date(2026, 12, 1)) if each.code == "B185"]

    assert found(processor="A", cores=2, memory_bytes=1000, accelerators=0) == []
    wrong = found(processor="B", cores=4, memory_bytes=2000, accelerators=1)
    assert wrong == [f"hardware.{name}" for name in ("accelerators", "cores", "memory_bytes", "processor")]
    facts.clear()
    assert found(processor="B", cores=4, memory_bytes=2000) == ["hardware.cores", "hardware.processor"]


@pytest.mark.parametrize(
    ("device", "names", "accelerators", "severity"),
    [
        *(("cpu", "H100", 0, None), ("cuda:0", "H100", 1, None), ("mps", "", 0, None), ("cpu", "", None, None)),
        *(("cuda", "H100", 0, "error"), ("cuda:1", "H100", None, "error"), ("cuda", "", 0, "warning")),
    ],
)
def test_runs_on_an_accelerator_state_that_they_had_one(clean, device, names, accelerators, severity):
    facts = {"machine.cpu": "A", "machine.cores_allowed": "2", "accelerators.names": names}
    hardware = {"description": "a machine", "cores": 2}
    if accelerators is not None:
        hardware["accelerators"] = accelerators
    changes = {"settings.device": device, "provenance.environment": facts, "hardware": hardware}
    found = [each.severity for each in clean.find(clean.make("training", changes)) if each.code == "B185"]
    assert found == ([severity] if severity else [])


@pytest.mark.parametrize(("notes", "severity"), [("", "error"), (f"{ONLY_THESE}, since the power failed.", "warning")])
def test_a_record_that_is_left_out_is_an_error_unless_the_entry_has_a_reason(put, terms, notes, severity):
    paths = [put(seed) for seed in range(6)]
    entry = make(records(*paths[:5]), msgspec.structs.replace(terms, tuning=TuningEffort(0), submitted="2026-11-30"))
    entry = msgspec.structs.replace(entry, notes=notes)
    held = {file_digest(path): str(path) for path in paths}
    found = check(entry, records=held, today=date(2026, 12, 1))
    assert [each.severity for each in found if each.code == "B184"] == [severity]


@pytest.mark.parametrize(("began", "severity"), [("01", "error"), ("02", "note")])
def test_a_record_that_is_left_out_is_excused_if_later_than_the_entry_and_its_runs(put, terms, began, severity):
    paths = [put(seed, started="2026-03-01T10:00:00+00:00") for seed in range(5)]
    paths.append(put(5, started=f"2026-03-{began}T10:00:00+00:00"))
    entry = make(records(*paths[:5]), msgspec.structs.replace(terms, tuning=TuningEffort(0), submitted="2026-02-28"))
    held = {file_digest(path): str(path) for path in paths}
    found = check(entry, records=held, today=date(2026, 12, 1))
    assert [each.severity for each in found if each.code == "B184"] == [severity]


def test_without_digests_the_records_are_found_by_the_ids_of_the_runs(put, terms):
    paths = [put(seed) for seed in range(6)]
    entry = make(records(*paths), msgspec.structs.replace(terms, tuning=TuningEffort(0)))
    runs = [msgspec.structs.replace(run, record_digest=None) for run in entry.runs]
    held = {file_digest(path): str(path) for path in paths}

    def errors(runs):
        found = check(msgspec.structs.replace(entry, runs=runs), records=held, today=date(2026, 12, 1))
        return [each.code for each in found if each.severity == "error"]

    assert errors(runs) == []
    assert errors(runs[:5]) == ["B184"]
    assert errors([*runs[:5], msgspec.structs.replace(runs[5], energy_j=1e3, energy_method="rapl")]) == ["B183"] * 2


def test_a_run_that_no_digest_and_no_id_finds_is_an_error_beside_records(put, terms):
    paths = [put(seed) for seed in range(5)]
    entry = make(records(*paths), msgspec.structs.replace(terms, tuning=TuningEffort(0)))
    for record_id in (None, str(entry.runs[4].record_id).upper()):
        last = msgspec.structs.replace(entry.runs[4], record_digest=None, record_id=record_id)
        changed = msgspec.structs.replace(entry, runs=[*entry.runs[:4], last])
        assert ("B179", "runs[4].record_digest") in judged(changed, paths)


def test_records_of_the_group_that_an_entry_leaves_out_are_reported(put, terms):
    paths = [put(seed) for seed in range(6)]
    elsewhere = {**ENVIRONMENT, "machine": {"id": "m2"}}
    others = [put(7, recipe="cnn"), put(8, environment=elsewhere)]
    entry = make(records(*paths[:5]), msgspec.structs.replace(terms, tuning=TuningEffort(0)))
    assert judged(entry, [*paths, *others]) == [("B184", "runs")]
    assert judged(entry, [*paths[:5], *others]) == []
