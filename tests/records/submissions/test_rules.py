"""Every rule over one entry: a fault that only it finds, and something close to it that nobody minds."""

from __future__ import annotations

import pytest

from levelbench.records.submissions.rules import CODES

GONE = object()
DIGEST = "ab" * 32


def times(*values):
    """A change of a column's values, by place."""

    def change(column):
        return [new if new is not None else old for old, new in zip(column, [*values, *[None] * 9], strict=False)]

    return change


def scaled(by):
    return lambda column: [by * value for value in column]


def faster(by):
    """A change of a whole run: all its times scaled."""

    def change(run):
        curve = {**run["curve"], "time_s": [by * time for time in run["curve"]["time_s"]]}
        phases = {name: by * seconds for name, seconds in run["phases_s"].items()}
        return {**run, "curve": curve, "phases_s": phases, "time_to_target_s": by * run["time_to_target_s"]}

    return change


def stopped(points):
    """A change of a whole run: it does not arrive, and ends after so many evaluations."""

    def change(run):
        curve = {name: column[:points] for name, column in run["curve"].items()}
        curve["quality"] = [0.9 * quality for quality in curve["quality"]]
        phases = {"forward": curve["time_s"][-1]}
        return {**run, "curve": curve, "phases_s": phases, "reached": False, "time_to_target_s": None}

    return change


EMPTY = {"curve": {"time_s": [], "quality": []}, "seed": 4, "record_digest": DIGEST, "started": "2026-11-29T03:00Z"}
HERE = "digits/training/ada_mlp.json"
# code, kind, what is planted, what is close to it but innocent
CASES = {
    "ruleset": ("B110", "training", {"ruleset": "levelbench-9.9"}, {"notes": "levelbench-9.9"}),
    "task": ("B111", "training", {"task": "digit"}, {"model": "digit"}),
    "threshold": ("B112", "training", {"target.threshold": 0.959}, {"target.threshold": 0.96}),
    "split": ("B112", "training", {"target.split": "test"}, {"runs[0].test_quality": {"test": 0.95}}),
    "no runs": ("B113", "training", {"runs": []}, {"inference": []}),
    "division": ("B123", "dawnbench", {"division": "closed"}, {"division": "open"}),
    "clock": ("B124", "training", {"clock": "dawnbench"}, {"clock": "wall"}),
    "no clock": ("B124", "training", {"clock": GONE}, {"clock": "wall"}),
    "crossing": ("B125", "training", {"crossing": "first"}, {"crossing": GONE}),
    "date": ("B117", "training", {"submitted": "2026-11-31"}, {"submitted": "2026-11-30"}),
    "unpadded date": ("B117", "training", {"submitted": "2026-11-3"}, {"submitted": "2026-11-30"}),
    "start": ("B117", "training", {"runs[0].started": "yesterday"}, {"runs[0].started": "2026-11-29T04:00+01:00"}),
    "day of a start": ("B117", "training", {"runs[0].started": "2026-11-29"}, {"runs[0].started": "2026-11-29T03:00Z"}),
    "no start": ("B128", "training", {"runs[0].started": GONE}, {"runs[0].started": "2026-11-29T03:00Z"}),
    "future": ("B118", "training", {"submitted": "2026-12-03"}, {"submitted": "2026-12-02"}),
    "older than a run": (
        "B119",
        "training",
        {"runs[2].started": "2026-12-02T00:00:00Z"},
        {"runs[2].started": "2026-12-01T00:00:00Z"},
    ),
    "older than rules": (
        "B120",
        "training",
        {"submitted": "2026-11-20", **{f"runs[{at}].started": "2026-11-20T03:00Z" for at in range(5)}},
        {"submitted": "2026-11-21", **{f"runs[{at}].started": "2026-11-20T03:00Z" for at in range(5)}},
    ),
    "blank": ("B121", "training", {"author.name": "  "}, {"author.name": "A"}),
    "blank model": ("B121", "training", {"model": "\u00a0"}, {"model": "m"}),
    "no address": ("B122", "training", {"author": {"name": "Ada"}}, {"author": {"name": "Ada", "email": "a@b"}}),
    "only these": (
        "B126",
        "training",
        {"notes": "Only some runs were submitted: no time"},
        {"notes": "All runs were submitted, not only some"},
    ),
    "columns": ("B130", "training", {"runs[0].curve.epoch": [1.0]}, {"runs[0].curve.epoch": GONE}),
    "time stands": ("B131", "training", {"runs[0].curve.time_s": times(None, 1.0)}, {"notes": "1.0"}),
    "time goes back": (
        "B131",
        "training",
        {"runs[0].curve.time_s": times(None, None, 1.5)},
        {"runs[0].curve.time_s": times(None, None, 2.5)},
    ),
    "time below 0": ("B131", "training", {"runs[0].curve.time_s": times(-0.5)}, {"runs[0].curve.time_s": times(0.0)}),
    "epochs": ("B132", "training", {"runs[0].curve.epoch": times(None, 0.5)}, {"runs[0].curve.epoch": times(0.5)}),
    "samples": (
        "B132",
        "training",
        {"runs[0].curve.samples": times(None, 1000)},
        {"runs[0].curve.samples": times(None, 2158)},
    ),
    "percent": ("B133", "training", {"runs[0].curve.quality": times(81.0)}, {"runs[0].curve.quality": times(0.0)}),
    "above 1": (
        "B133",
        "training",
        {"runs[0].curve.quality": times(*[None] * 5, 1.0001)},
        {"runs[0].curve.quality": times(*[None] * 5, 1.0)},
    ),
    "below 0": ("B133", "training", {"runs[0].curve.quality": times(-0.01)}, {"runs[0].curve.quality": times(0.01)}),
    "empty": (
        "B134",
        "training",
        {"runs[4]": EMPTY},
        {"runs[4]": {**EMPTY, "status": "failed"}},
    ),
    "digest": ("B135", "training", {"runs[0].curve_digest": DIGEST}, {"runs[0].curve.others": {"top5": [1.0] * 6}}),
    "fell back": (
        "B138",
        "dawnbench",
        {"runs[0].curve.quality": times(*[None] * 4, 0.93)},
        {"runs[0].curve.quality": times(*[None] * 4, 0.94)},
    ),
    "epoch sizes": (
        "B139",
        "training",
        {"runs[0].curve.samples": times(*[None] * 4, 6474, 6474)},
        {"runs[0].curve.samples": times(*[None] * 4, 5400, 6474)},
    ),
    "none reached": (
        "B140",
        "dawnbench",
        {"runs[0].curve.quality": scaled(0.98), "runs[0].reached": False, "runs[0].time_to_target_s": GONE},
        {"runs[0].curve.quality": times(*[None] * 4, 0.94, 0.94)},
    ),
    "olympic": (
        "B140",
        "olympic",
        {
            f"runs[{at}].{name}": value
            for at in (0, 1)
            for name, value in (("curve.quality", scaled(0.9)), ("reached", False), ("time_to_target_s", GONE))
        },
        {"runs[0].curve.quality": scaled(0.9), "runs[0].reached": False, "runs[0].time_to_target_s": GONE},
    ),
    "half reached": (
        "B140",
        "training",
        {
            f"runs[{at}].{name}": value
            for at in (0, 1, 2)
            for name, value in (("curve.quality", scaled(0.9)), ("reached", False), ("time_to_target_s", GONE))
        },
        {
            f"runs[{at}].{name}": value
            for at in (0, 1)
            for name, value in (("curve.quality", scaled(0.9)), ("reached", False), ("time_to_target_s", GONE))
        },
    ),
    "reached": (
        "B141",
        "training",
        {"runs[0].curve.quality": scaled(0.99)},
        {"runs[0].curve.quality": scaled(0.99), "runs[0].reached": False, "runs[0].time_to_target_s": GONE},
    ),
    "stated time": (
        "B142",
        "training",
        {"runs[0].time_to_target_s": 4.0},
        {"runs[0].time_to_target_s": 5.0005},
    ),
    "failed": (
        "B143",
        "training",
        {"runs[0].status": "failed"},
        {"runs[0].status": "failed", "runs[0].reached": False, "runs[0].time_to_target_s": GONE},
    ),
    "few runs": ("B150", "training", {"runs[4]": GONE}, {"notes": "four runs"}),
    "many runs": (
        "B151",
        "dawnbench",
        {
            "runs": lambda runs: [
                runs[0],
                {
                    **runs[0],
                    "seed": 9,
                    "record_id": "b",
                    "record_digest": DIGEST,
                    "curve": {**runs[0]["curve"], "time_s": [9.0, 11.0, 12.0, 12.5, 17.0, 18.0]},
                    "time_to_target_s": 12.5,
                },
            ]
        },
        {"notes": "two runs"},
    ),
    "seeds": ("B152", "training", {"runs[1].seed": 0}, {"runs[1].seed": 99}),
    "no seed": ("B153", "training", {"runs[1].seed": GONE}, {"runs[1].seed": 0, "runs[0].seed": 1}),
    "same record": (
        "B154",
        "training",
        {"runs[1].record_id": "aaaa0000"},
        {"runs[1].record_id": "aaaa0009"},
    ),
    "doubtful": ("B155", "training", {"runs[1].suspect": ["load"]}, {"runs[1].suspect": []}),
    "phases": (
        "B156",
        "training",
        {"runs[0].phases_s": {"forward": 5.9}},
        {"runs[0].phases_s": {"forward": 5.96}},
    ),
    "negative phase": (
        "B156",
        "training",
        {"runs[0].phases_s": {"forward": 7.0, "data": -1.0}},
        {"runs[0].phases_s": {"forward": 6.0, "data": 0.0}},
    ),
    "left out": (
        "B157",
        "training",
        {"runs[0].phases_s": {"forward": 6.0, "data": 2.0}, "runs[0].excluded_s": {"data": 2.0}},
        {"runs[0].phases_s": {"forward": 6.0}, "runs[0].excluded_s": {"data": 0.0}},
    ),
    "gave up": (
        "B144",
        "training",
        {"runs[1]": stopped(3)},
        {"runs[1]": stopped(6)},
    ),
    "no time": (
        "B147",
        "training",
        {"runs[0]": faster(1e-8), "settings": {}},
        {"runs[0]": faster(1e-6), "settings": {}},
    ),
    "memory": ("B148", "training", {"runs[0].peak_memory_bytes": 0.0}, {"runs[0].peak_memory_bytes": 1e9}),
    "quality beside": (
        "B133",
        "training",
        {"runs[0].test_quality": {"test": 96.0}},
        {"runs[0].test_quality": {"test": 0.96, "test.loss": 96.0}},
    ),
    "no phases": ("B159", "training", {"runs[0].phases_s": {}}, {"runs[0].excluded_s": {}}),
    "left out alone": (
        "B156",
        "dawnbench",
        {"runs[0].excluded_s": {"evaluate": -1e300}},
        {"runs[0].excluded_s": {"evaluate": 1.0}},
    ),
    "power station": ("B158", "training", {"runs[0].energy_j": 1e300}, {"runs[0].energy_j": 1e6}),
    "energy": ("B158", "training", {"runs[0].energy_j": -1.0}, {"runs[0].energy_j": GONE}),
    "energy method": ("B158", "training", {"runs[0].energy_method": GONE}, {"runs[0].energy_method": "nvml"}),
    "no price": ("B160", "training", {"price": GONE}, {"price.usd_per_hour": 0.001}),
    "no source": ("B161", "training", {"price.source": GONE}, {"price.source": "http://example.org"}),
    "source": ("B161", "training", {"price.source": "a friend"}, {"price.source": "https://example.org/?a=b"}),
    "no price day": ("B162", "training", {"price.read_on": GONE}, {"price.read_on": "2026-01-01"}),
    "price long ago": ("B165", "training", {"price.read_on": "2025-11-01"}, {"price.read_on": "2025-12-01"}),
    "price below any": ("B166", "training", {"price.usd_per_hour": 0.0009}, {"price.usd_per_hour": 0.001}),
    "price day": ("B162", "training", {"price.read_on": "1 May"}, {"price.read_on": "2026-12-01"}),
    "price of the future": ("B162", "training", {"price.read_on": "2027-01-01"}, {"price.read_on": "2026-12-02"}),
    "spot": ("B163", "training", {"price.on_demand": False}, {"price.on_demand": True}),
    "on demand?": ("B163", "training", {"price.on_demand": GONE}, {"price.on_demand": True}),
    "no code": ("B170", "training", {"code.url": GONE}, {"code.dirty": GONE}),
    "branch": (
        "B171",
        "training",
        {"code": {"url": "https://example.org/ada/digits"}},
        {"code": {"url": "https://example.org/ada/digits", "commit": "0a1b2c3d4e"}},
    ),
    "script link": ("B172", "training", {"code.url": "ftp://example.org/0a1b2c3d"}, {"code.url": "http://b.org/x"}),
    "dirty": ("B173", "training", {"code.dirty": True}, {"code.dirty": False}),
    "commit": ("B174", "training", {"code.commit": "main"}, {"code.commit": "deadbee"}),
    "no checksums": ("B175", "training", {"provenance.checksums": GONE}, {"provenance.dataset": GONE}),
    "checksum": (
        "B176",
        "training",
        {"provenance.checksums": {"x": "00"}},
        {"provenance.checksums": {"x": "00" * 32}},
    ),
    "synthetic": ("B177", "training", {"provenance.synthetic": True}, {"provenance.synthetic": GONE}),
    "no record": ("B178", "training", {"runs[0].record_digest": GONE}, {"runs[0].record_id": GONE}),
    "record digest": ("B176", "training", {"runs[0].record_digest": "0"}, {"runs[0].record_digest": DIGEST}),
    "software": ("B180", "training", {"provenance.software": GONE}, {"provenance.software": {"a": "1"}}),
    "no tuning": ("B181", "training", {"tuning": {}}, {"tuning": {"trials": 0}}),
    "tuning": ("B182", "training", {"tuning.hours": -1.0}, {"tuning.hours": 0.0}),
    "ceiling": (
        "B190",
        "training",
        {"settings.flops_per_sample": 1e8},
        {"settings.flops_per_sample": 4e7},
    ),
    "bidi": ("B220", "training", {"model": "mlp\u202egnp"}, {"model": "mlp\u00e9\u6f22"}),
    "escape": ("B220", "training", {"author.organisation": "a\x1b[2J"}, {"author.organisation": "a [2J"}),
    "line in a name": ("B220", "training", {"model": "a\nb"}, {"notes": "a\nb"}),
    "text of a run": ("B220", "training", {"runs[1].error": "a\x00b"}, {"runs[1].error": "a\nb"}),
    "name of a setting": ("B220", "training", {"settings": {"l\u200br": 1}}, {"settings": {"l-r": 1}}),
    "name of nothing": ("B220", "training", {"author.name": "Ada\u2800"}, {"author.name": "Ad\u00e0"}),
    "joiner": ("B220", "training", {"author.name": "A\u034fda"}, {"notes": "a \u2764\ufe0f"}),
    "forged": ("B222", "training", {"author.name": "\u0410da Lovelace"}, {"author.name": "\u0410\u0434\u0430 L"}),
    "origin": (
        "B127",
        "training",
        {"origin": {"format": "dawnbench", "file": "a.json"}},
        {"notes": "dawnbench"},
    ),
    "markup": ("B221", "training", {"notes": "<script>alert(1)</script>"}, {"notes": "loss < 1 and > 0"}),
    "handler": ("B221", "training", {"model": 'x" onerror="alert(1)'}, {"model": 'one = "two"'}),
}


def with_removals(clean, changes):
    return {name: clean.remove if value is GONE else value for name, value in changes.items()}


@pytest.mark.parametrize("kind", ["training", "dawnbench", "olympic", "inference"])
def test_a_clean_entry_has_no_finding(clean, kind):
    submission = clean.make(kind)
    assert clean.find(submission, f"{submission.task}/{submission.mode}/ada_mlp.json") == []


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_found_by_its_rule_alone(clean, name):
    code, kind, guilty, _ = CASES[name]
    assert clean.codes(clean.make(kind, with_removals(clean, guilty))) == {code}


@pytest.mark.parametrize("name", CASES)
def test_what_is_close_to_a_fault_is_no_finding(clean, name):
    _, kind, _, innocent = CASES[name]
    assert clean.codes(clean.make(kind, with_removals(clean, innocent))) == set()


def test_every_code_of_a_finding_is_explained(clean):
    assert {code for code, *_ in CASES.values()} <= CODES.keys()


def test_a_finding_names_file_field_and_what_to_do(clean):
    (found,) = clean.find(clean.make("training", {"runs[0].curve.quality": times(81.0)}), HERE)
    assert (found.file, found.field, found.severity) == (HERE, "runs[0].curve.quality[0]", "error")
    assert found.found == "81, on a scale from 0 to 1"
    assert found.do == "divide by 100: the scale ends at 1"
