"""``levelbench board submit``: whole groups of runs become entries; nothing that is incomplete is written."""

from __future__ import annotations

import json
import re
from importlib.resources import files

import msgspec
import pytest
from tests.records.inference_records import OFFLINE, SERVER, SINGLE, specification, write

from levelbench.cli.board_submit import _published, _without_secrets
from levelbench.competition.entries import Submission

WHO = ("--author", "Ada", "--email", "ada@example.org", "--code-url", "https://example.org/a/tree/0a1b2c3d")
PRICE = ("--price-per-hour", "3.06", "--price-source", "https://example.org/prices")


@pytest.fixture
def submit(call, store, tmp_path):
    def run(*words, price=PRICE):
        return call("board", "submit", *WHO, *words, *price, "--store", store, "-o", tmp_path / "board")

    run.entries = lambda: {path: json.loads(path.read_text()) for path in (tmp_path / "board").rglob("*.json")}
    return run


def test_every_group_becomes_an_entry_of_all_its_runs(submit):
    code, out, err = submit("digits")
    assert (code, err) == (0, "")
    entries = submit.entries()
    assert sorted(entry["framework"] for entry in entries.values()) == ["numpy", "torch"]
    for path, entry in entries.items():
        assert path.parent.parts[-2:] == ("digits", "training")
        assert [run["seed"] for run in entry["runs"]] == [0, 1, 2, 3, 4]
        assert entry["price"]["usd_per_hour"] == 3.06
        assert entry["price"]["on_demand"] is True
        assert f"wrote {path}: digits, mlp on {entry['framework']}" in out
    assert "reached 5/5; tuning: 1 trial (counted in the store; --tuning-trials states the number)" in out
    assert "2 entries checked: 0 errors" in out


def test_the_same_again_changes_nothing(submit):
    submit("digits[framework=numpy]")
    before = {path: path.stat().st_mtime_ns for path in submit.entries()}
    code, out, _ = submit("digits[framework=numpy]")
    assert code == 0
    assert "already there: " in out
    assert {path: path.stat().st_mtime_ns for path in submit.entries()} == before


def test_the_same_runs_under_other_rules_are_a_second_file(submit, tmp_path):
    text = (files("levelbench.competition.rulesets") / "data/levelbench-1.0.toml").read_text()
    own = text.replace('"levelbench-1.0"', '"own-1.0"').replace('name = "levelbench"', 'name = "own"')
    (tmp_path / "own.toml").write_text(own)
    submit("digits[framework=numpy]")
    (first,) = submit.entries()
    for _ in range(2):
        assert submit("digits[framework=numpy]", "--ruleset", tmp_path / "own.toml")[0] == 0
        assert set(submit.entries()) == {first, first.with_name(f"{first.stem}-own-1.0.json")}


def test_another_entry_of_the_same_runs_is_written_over_only_when_asked(submit):
    submit("digits[framework=numpy]")
    cheaper = ("--price-per-hour", "1.5", "--price-source", "https://example.org/prices")
    code, _, err = submit("digits[framework=numpy]", price=cheaper)
    assert code == 2
    assert "it already exists with other content" in err
    assert "give --replace to overwrite it" in err
    assert submit("digits[framework=numpy]", "--replace", price=cheaper)[0] == 0
    assert [entry["price"]["usd_per_hour"] for entry in submit.entries().values()] == [1.5]


def test_a_choice_of_seeds_is_refused_without_a_reason(submit):
    code, _, err = submit("digits[framework=numpy,seed=0]")
    assert code == 2
    assert "4 runs of the same group are left out: aaaa0001 (seed 1, done)" in err
    assert submit.entries() == {}


def test_a_choice_of_seeds_with_a_reason_says_so_in_the_entry_and_is_short_of_runs(submit):
    code, out, _ = submit("digits[framework=numpy,seed=0]", "--only-these", "--because", "a trial")
    assert code == 1
    assert "error B150 runs: 1 run; levelbench-1.0 requires 5" in out
    assert "warning B126 notes: 'Only some runs were submitted: a trial'" in out


def test_a_run_that_missed_and_one_that_failed_are_in_it(submit, write):
    write(5, "aaaa0005", [0.5, 0.6])
    write(6, "aaaa0006", [0.5], status="failed")
    code, out, _ = submit("digits[framework=numpy]")
    assert code == 0
    assert "reached 5/7" in out


def test_what_an_entry_publishes_is_shown(submit):
    _, out, _ = submit("digits[framework=numpy]")
    (line,) = [each for each in out.splitlines() if each.startswith("  publishes: ")]
    assert "Ada <ada@example.org>" in line
    assert "5 runs with their curves" in line
    assert "taken out" not in out


def test_secrets_of_older_records_are_taken_out_and_what_the_author_states_is_not(submit):
    submit("digits[framework=numpy]")
    (plain,) = submit.entries().values()
    facts = {**plain["provenance"].get("environment", {}), "threads.settings.XLA_FLAGS": "--xla_dump_to=ada"}
    plain["provenance"]["environment"] = facts | {"malloc.MALLOC_ARENA_MAX": "1"}
    plain["runs"][1]["suspect"] = ["it read https://ada:S3CRET@example.org/x"]
    plain["settings"]["engine.options"] = "nodes=2,rendezvous=ada-laptop:29500"
    plain["notes"] = "see https://example.org/ada"
    ((_, safe),), hidden = _without_secrets([("x.json", msgspec.convert(plain, Submission))])
    assert hidden == {
        "x.json": ["provenance.environment.threads.settings.XLA_FLAGS", "runs.1.suspect.0", "settings.engine.options"]
    }
    assert safe.runs[1].suspect == ["it read https://..."]
    assert safe.settings["engine.options"] == "nodes=2,rendezvous=..."
    assert re.fullmatch("--xla_dump_to=#[0-9a-f]{4}", safe.provenance.environment["threads.settings.XLA_FLAGS"])
    assert safe.provenance.environment["malloc.MALLOC_ARENA_MAX"] == "1"
    assert (safe.author.email, safe.notes) == ("ada@example.org", "see https://example.org/ada")
    shown = _published(safe, hidden["x.json"])
    assert any(each.startswith("  publishes: XLA_FLAGS=--xla_dump_to=#") for each in shown)
    assert shown[-1].startswith("  taken out: provenance.environment.threads")


def test_json_names_what_was_written(submit):
    code, out, _ = submit("digits[framework=torch]", "--json")
    told = json.loads(out)
    assert code == 0
    (entry,) = told["entries"]
    assert (entry["runs"], entry["new"]) == (5, True)
    assert all(each["severity"] != "error" for each in told["findings"])


def test_a_signed_entry_names_its_key(call, submit, tmp_path):
    pytest.importorskip("cryptography")
    call("board", "keys", "new", "Ada", "-o", tmp_path / "ada.pem")
    submit("digits[framework=numpy]", "--sign", tmp_path / "ada.pem")
    ((path, entry),) = submit.entries().items()
    assert entry["author"]["key"].startswith("SHA256:")
    assert path.with_name(f"{path.name}.sig").is_file()
    submit("digits[framework=numpy]", "--replace")
    assert not path.with_name(f"{path.name}.sig").exists()


def test_an_entry_that_says_the_same_keeps_its_signature(call, submit, tmp_path):
    pytest.importorskip("cryptography")
    call("board", "keys", "new", "Ada", "-o", tmp_path / "ada.pem")
    submit("digits[framework=numpy]")
    (path,) = submit.entries()
    call("board", "keys", "sign", path, "--key", tmp_path / "ada.pem")
    code, out, _ = submit("digits[framework=numpy]", "--replace")
    assert (code, "already there: " in out) == (0, True)
    assert path.with_name(f"{path.name}.sig").is_file()


@pytest.mark.parametrize(
    ("words", "price", "found"),
    [
        (("absent",), PRICE, "run 'absent'"),
        (("digits",), ("--price-per-hour", "3"), "it has no source"),
        (("digits",), ("--price-source", "x"), "there is no price"),
        (("digits",), ("--price-per-hour", "-1", "--price-source", "x"), "impossible price"),
        (("digits",), ("--price-per-hour", "1e-300", "--price-source", "x"), "give 0.000001 to 10,000,000 US dollars"),
        (("digits", "--only-these", "--because", " "), PRICE, "it is blank"),
        (("digits", "--only-these"), PRICE, "it is given alone"),
        (("digits", "--because", "x"), PRICE, "it is given alone"),
        (("digits", "--ruleset", "levelbench-2.0"), PRICE, "ruleset 'levelbench-2.0'"),
        (("digits", "--ruleset", "dawnbench-1.0"), PRICE, "it has cifar10, imagenet, squad"),
        (("digits", "--author", " "), PRICE, "it is blank"),
    ],
)
def test_what_is_incomplete_is_refused_and_nothing_is_written(submit, words, price, found):
    code, _, err = submit(*words, price=price)
    assert code == 2
    assert found in err
    assert submit.entries() == {}


def test_an_entry_with_an_error_is_not_written_unless_forced(submit):
    some = ("digits[framework=numpy,seed=0]", "--only-these", "--because", "a trial")
    code, out, _ = submit(*some)
    assert (code, submit.entries()) == (1, {})
    assert "not written: digits/training/" in out
    assert "give --force to write the entries anyway" in out
    code, out, _ = submit(*some, "--force")
    assert (code, len(submit.entries())) == (1, 1)


@pytest.fixture
def club():
    """The text of a ruleset of a leaderboard's own."""
    from importlib import resources

    rules = resources.files("levelbench.competition.rulesets").joinpath("data/levelbench-1.0.toml").read_text()
    return rules.replace('"levelbench-1.0"', '"club-1.0"').replace('name = "levelbench"', 'name = "club"')


def test_a_ruleset_of_a_file_comes_to_a_new_board_with_its_first_entry(submit, tmp_path, club):
    (tmp_path / "mine.toml").write_text(club)
    own = tmp_path / "board" / "rulesets" / "club-1.0.toml"
    some = ("digits[framework=numpy]", "--ruleset", tmp_path / "mine.toml")
    code, out, err = submit("digits[framework=numpy,seed=0]", "--only-these", "--because", "a trial", *some[1:])
    assert (code, err, own.exists()) == (1, "", False)
    code, out, err = submit(*some)
    assert (code, err) == (0, "")
    assert f"wrote {own}: the ruleset of the entries" in out
    assert own.read_text() == club
    assert [entry["ruleset"] for entry in submit.entries().values()] == ["club-1.0"]
    code, out, _ = submit(*some)
    assert (code, str(own) in out) == (0, False)


def test_the_only_division_of_a_ruleset_needs_no_name(submit, tmp_path, club):
    club = re.sub(r"\[\[divisions\]\].*?(?=\n\[\[tasks)", "", club, flags=re.DOTALL)
    at = club.index("[[tasks]]")
    (tmp_path / "mine.toml").write_text(f'{club[:at]}[[divisions]]\nname = "small models"\n\n{club[at:]}')
    assert submit("digits[framework=numpy]", "--ruleset", tmp_path / "mine.toml")[0] == 0
    assert [entry["division"] for entry in submit.entries().values()] == ["small models"]


def test_a_ruleset_of_a_file_is_refused_where_the_board_has_another_of_its_id(submit, tmp_path, club):
    own = tmp_path / "board" / "rulesets" / "club.toml"
    own.parent.mkdir(parents=True)
    own.write_text(club)
    (tmp_path / "mine.toml").write_text(club.replace("runs = 5", "runs = 3"))
    code, _, err = submit("digits[framework=numpy]", "--ruleset", tmp_path / "mine.toml")
    assert code == 2
    assert "has another ruleset with that id" in err
    assert (submit.entries(), list(own.parent.iterdir()), own.read_text()) == ({}, [own], club)


def test_a_ruleset_of_the_leaderboard_itself_is_found(submit, tmp_path, club):
    own = tmp_path / "board" / "rulesets" / "club.toml"
    own.parent.mkdir(parents=True)
    own.write_text(club)
    code, _, err = submit("digits[framework=numpy]", "--ruleset", "club-1.0")
    assert (code, err) == (0, "")
    assert [entry["ruleset"] for entry in submit.entries().values()] == ["club-1.0"]
    assert "ruleset 'club-2.0'" in submit("digits", "--ruleset", "club-2.0")[2]


@pytest.mark.parametrize(("scenario", "quality"), [(OFFLINE, 0.96), (SINGLE, 0.96), (OFFLINE, 0.9)])
def test_an_entry_that_no_ranking_will_have_is_reported(call, tmp_path, scenario, quality):
    record = write(tmp_path / "store", specification(scenario=scenario), slow=100, n=800, quality=quality)
    words = (*WHO, *PRICE, "--hardware", "2 cores", "--force", "--store", tmp_path / "store", "-o", tmp_path / "board")
    _, out, _ = call("board", "submit", record.path, *words)
    assert ("  not ranked: a quality of 0.9, where the rules require 0.9504" in out) == (quality == 0.9)
    assert ("not ranked" in out) == (quality == 0.9)


def test_records_of_several_scenarios_become_an_entry_of_each(call, tmp_path):
    records = [
        write(tmp_path / "store", specification(scenario=scenario), slow=100, n=800, quality=0.96)
        for scenario in (SINGLE, SERVER, OFFLINE)
    ]
    words = (*WHO, *PRICE, "--hardware", "2 cores", "--force", "--store", tmp_path / "store", "-o", tmp_path / "board")
    _, out, _ = call("board", "submit", *(each.path for each in records), *words)
    entries = [json.loads(path.read_text()) for path in (tmp_path / "board").rglob("*.json")]
    found = sorted(each["scenario"] for entry in entries for each in entry["inference"])
    assert (len(entries), found) == (3, ["offline", "server", "single-stream"])
    assert out.count("wrote ") == 3
