"""A fixed machine, a deadline, and rounds that are frozen: what is dated later, ran elsewhere or was changed."""

from __future__ import annotations

import tomllib
from datetime import date
from importlib.resources import files

import msgspec
import pytest

from levelbench.competition.entries import encode, parse_submission
from levelbench.competition.leaderboard import FROZEN, checked_folder, freeze, frozen_rounds, own_rulesets
from levelbench.competition.rulesets import MachineRules, ruleset
from levelbench.competition.site.build import build
from levelbench.errors import UsageError

OURS = ruleset("levelbench-1.0")


def own(**changes):
    return msgspec.structs.replace(OURS, id="own-1.0", name="own", version="1.0", **changes)


def codes_of(clean, rules, changes):
    return clean.codes(clean.make(changes={"ruleset": "own-1.0", **changes}), known={"own-1.0": rules})


@pytest.mark.parametrize(("day", "refused"), [("2026-11-30", False), ("2026-12-01", True)])
def test_an_entry_is_refused_from_the_day_after_the_deadline(clean, day, refused):
    assert ("B265" in codes_of(clean, own(deadline="2026-11-30"), {"submitted": day})) == refused


@pytest.mark.parametrize(
    ("started", "refused"),
    [
        ("2026-11-30T23:58:00+00:00", False),
        ("2026-12-01T00:00:01+00:00", True),
        ("2026-12-01T08:00:00+09:00", False),
        ("2026-11-30T20:00:00-05:00", True),
    ],
)
def test_a_run_after_the_deadline_is_refused_whatever_day_the_entry_has(clean, started, refused):
    changes = {"submitted": "2026-11-30", "runs[3].started": started}
    assert ("B265" in codes_of(clean, own(deadline="2026-11-30"), changes)) == refused


@pytest.mark.parametrize(
    ("machine", "hardware", "refused"),
    [
        ({"processor": "EPYC", "cores": 2}, {"processor": "EPYC", "cores": 2}, False),
        ({"processor": "EPYC"}, {"processor": "EPYC", "cores": 64}, False),
        ({"cores": 2}, {"cores": 4}, True),
        ({"accelerator": "H100"}, {}, True),
        ({"accelerators": 0}, {}, False),
        ({"accelerators": 0}, {"accelerators": 1}, True),
        ({"accelerators": 0}, {"accelerator": "H100"}, True),
        ({"cores": 2}, {"cores": 2, "nodes": 1}, False),
        ({"cores": 2}, {"cores": 2, "nodes": 16}, True),
        ({"cores": 2, "nodes": 2}, {"cores": 2, "nodes": 2}, False),
        ({"cores": 2, "nodes": 2}, {"cores": 2}, True),
    ],
)
def test_an_entry_of_another_machine_than_the_rules_fix_is_refused(clean, machine, hardware, refused):
    changes = {f"hardware.{name}": value for name, value in hardware.items()}
    assert ("B264" in codes_of(clean, own(machine=MachineRules(**machine)), changes)) == refused


@pytest.mark.parametrize(
    ("environment", "doubted"), [({"machine.cpu": "EPYC", "machine.cores_allowed": "2"}, False), ({}, True)]
)
def test_a_fixed_machine_that_the_environment_does_not_confirm_is_doubted(clean, environment, doubted):
    changes = {"hardware.processor": "EPYC", "provenance.environment": environment}
    assert ("B185" in codes_of(clean, own(machine=MachineRules(processor="EPYC")), changes)) == doubted


@pytest.fixture
def folder(clean, tmp_path):
    """A leaderboard with rules of its own and two of their entries."""
    text = (files("levelbench.competition.rulesets") / "data/levelbench-1.0.toml").read_text()
    text = text.replace('"levelbench-1.0"', '"own-1.0"').replace('name = "levelbench"', 'name = "own"')
    place = tmp_path / "board"
    (place / "rulesets").mkdir(parents=True)
    (place / "rulesets" / "own.toml").write_text('deadline = "2026-12-01"\n' + text)
    (place / "digits" / "training").mkdir(parents=True)
    for name in ("one", "two"):
        put(clean, place, name)
    return place


def put(clean, place, name, **changes):
    at = sum(map(ord, name)) % 97
    own_runs = {
        f"runs[{run}].{field}": f"{at * 10 + run:064x}" for run in range(5) for field in ("record_digest", "record_id")
    }
    slower = {f"runs[{run}].curve.quality[0]": 0.5 + at / 1000 + run / 100 for run in range(5)}
    entry = clean.make(changes={"ruleset": "own-1.0", "model": name, **own_runs, **slower, **changes})
    (place / "digits" / "training" / f"{name}.json").write_bytes(encode(entry))


def frozen(place, day="2026-12-02"):
    return freeze(place, own_rulesets(place)[0]["own-1.0"], date.fromisoformat(day))


def found(clean, place):
    return {(each.file, each.found) for each in checked_folder(place, today=clean.today)[1] if each.code == "B266"}


def test_a_frozen_round_that_nobody_touched_is_unharmed(clean, folder):
    assert list(frozen(folder).entries) == ["digits/training/one.json", "digits/training/two.json"]
    assert found(clean, folder) == set()


def test_an_entry_that_was_changed_after_the_freeze_is_refused_and_not_shown(clean, folder):
    frozen(folder)
    put(clean, folder, "one", notes="better")
    assert found(clean, folder) == {
        ("digits/training/one.json", "it was changed after the freeze of own-1.0 on 2026-12-02")
    }
    built = build(folder, folder.parent / "site", today=clean.today)
    assert (built.entries, [each.file for each in built.not_shown]) == (1, ["digits/training/one.json"])


def test_an_entry_that_joins_a_frozen_round_is_refused(clean, folder):
    frozen(folder)
    put(clean, folder, "three")
    assert found(clean, folder) == {("digits/training/three.json", "own-1.0 was frozen on 2026-12-02 without it")}


def test_a_site_under_frozen_rules_shows_no_entry_of_other_rules(clean, folder):
    put(clean, folder, "ours", ruleset="levelbench-1.0")
    before = build(folder, folder.parent / "site", ruleset="own-1.0", today=clean.today)
    frozen(folder)
    after = build(folder, folder.parent / "site", ruleset="own-1.0", today=clean.today)
    assert (before.entries, after.entries) == (3, 2)
    (missing,) = after.not_shown
    assert missing.file == "digits/training/ours.json"
    assert "own-1.0 was frozen on 2026-12-02 without it" in missing.reasons[0]


def test_a_frozen_entry_that_moves_to_other_rules_was_changed(clean, folder):
    frozen(folder)
    put(clean, folder, "one", ruleset="levelbench-1.0")
    assert {file for file, _ in found(clean, folder)} == {"digits/training/one.json"}


def test_an_entry_that_was_removed_is_missed(clean, folder):
    frozen(folder)
    (folder / "digits" / "training" / "two.json").unlink()
    assert found(clean, folder) == {("digits/training/two.json", "it was removed from the frozen round own-1.0")}


def test_the_rules_of_a_frozen_round_may_not_change(clean, folder):
    frozen(folder)
    path = folder / "rulesets" / "own.toml"
    path.write_text(path.read_text().replace("runs = 5", "runs = 4"))
    assert found(clean, folder) == {(FROZEN, "the file of its ruleset was changed or removed")}


@pytest.mark.parametrize("text", ["[own", "[own-1]\non = 3\nentries = {}", "x = 1"])
def test_a_broken_list_of_frozen_rounds_is_an_error(clean, folder, text):
    (folder / FROZEN).write_text(text)
    assert {each.file for each in checked_folder(folder, today=clean.today)[1] if each.code == "B252"} == {FROZEN}


def test_a_round_is_not_frozen_before_its_deadline_is_over(folder):
    with pytest.raises(UsageError, match="its deadline is 2026-12-01, and today is 2026-12-01"):
        frozen(folder, "2026-12-01")


def test_a_round_with_an_entry_that_has_an_error_is_not_frozen(clean, folder):
    put(clean, folder, "two", submitted="2026-12-30")
    with pytest.raises(UsageError, match=r"1 entry has errors: digits/training/two\.json"):
        frozen(folder)


def test_a_round_with_a_run_that_two_entries_have_is_not_frozen(clean, folder):
    first = parse_submission((folder / "digits" / "training" / "one.json").read_bytes()).runs[0]
    put(clean, folder, "three", submitted="2026-12-01", **{"runs[0].record_digest": first.record_digest})
    with pytest.raises(UsageError, match=r"1 entry has errors: digits/training/three\.json"):
        frozen(folder)


def test_a_round_is_not_frozen_beside_a_file_that_cannot_be_read(folder):
    (folder / "digits" / "training" / "broken.json").write_text("{")
    with pytest.raises(UsageError, match=r"broken\.json"):
        frozen(folder)


def test_a_folder_in_place_of_a_frozen_entry_is_no_entry(clean, folder):
    frozen(folder)
    entry = folder / "digits" / "training" / "two.json"
    entry.unlink()
    entry.mkdir()
    assert any(file == "digits/training/two.json" and "removed" in what for file, what in found(clean, folder))


def test_a_round_is_frozen_once_and_others_after_it(clean, folder):
    frozen(folder)
    with pytest.raises(UsageError, match="frozen since 2026-12-02"):
        frozen(folder)
    put(clean, folder, "ours", ruleset="levelbench-1.0")
    freeze(folder, OURS, clean.today)
    assert sorted(frozen_rounds(folder)[0]) == ["levelbench-1.0", "own-1.0"]
    assert found(clean, folder) == set()


def test_a_name_with_quotes_is_kept_in_the_list(clean, folder):
    put(clean, folder, 'a"b\\c')
    frozen(folder)
    (listed,) = tomllib.loads((folder / FROZEN).read_text()).values()
    assert 'digits/training/a"b\\c.json' in listed["entries"]
    assert found(clean, folder) == set()


def test_the_page_of_a_board_names_machine_deadline_and_freeze(clean, folder):
    frozen(folder)
    build(folder, folder.parent / "site", today=clean.today)
    page = (folder.parent / "site" / "digits_own-1.0.html").read_text()
    assert "<dt>Deadline</dt><dd>2026-12-01</dd>" in page
    assert "<dt>Frozen on</dt><dd>2026-12-02</dd>" in page
    assert "<dt>Machine</dt>" not in page
