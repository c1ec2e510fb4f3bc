"""``levelbench board build``: what it prints and how it ends."""

import json
import re

import msgspec
import pytest

from levelbench import __version__
from levelbench.competition.entries import (
    Author,
    Hardware,
    Origin,
    Provenance,
    Submission,
    SubmittedCurve,
    SubmittedRun,
    encode,
)
from levelbench.competition.rulesets import ruleset, task_rules

TARGET = task_rules(ruleset("dawnbench-1.0"), "cifar10").target


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELBENCH_CACHE", str(tmp_path / "cache"))
    submission = Submission(
        schema=1, ruleset="dawnbench-1.0", task="cifar10", mode="training", author=Author("An author"),
        submitted="2018-07-01", model="net", framework="torch", hardware=Hardware("a machine"), target=TARGET,
        clock="dawnbench", crossing="first", origin=Origin("dawnbench", "net.json"),
        runs=[SubmittedRun(SubmittedCurve([1.0, 2.0], [0.9, 0.941]))],
    )  # fmt: skip
    place = tmp_path / "board" / "cifar10" / "training"
    place.mkdir(parents=True)
    (place / "net.json").write_bytes(encode(submission))
    (place / "slow.json").write_bytes(
        encode(msgspec.structs.replace(submission, runs=[SubmittedRun(SubmittedCurve([9.0], [0.95]))]))
    )
    return tmp_path / "board"


def test_a_build_says_where_the_site_is_and_ends_in_0(folder, tmp_path, call):
    code, out, _ = call("board", "build", folder, "-o", tmp_path / "site")
    assert code == 0
    first, second, *_ = out.splitlines()
    assert first == f"site: {tmp_path / 'site' / 'index.html'}"
    assert second.startswith("2 entries on 1 board; 2 files read, ")
    assert (tmp_path / "site" / "index.html").is_file()


def test_an_entry_that_is_not_shown_ends_in_1_with_its_reason(folder, tmp_path, call):
    (folder / "cifar10/training/broken.json").write_text("[]")
    code, out, _ = call("board", "build", folder, "-o", tmp_path / "site")
    assert code == 1
    assert "not shown: cifar10/training/broken.json\n  B105" in out


def test_what_a_check_refuses_for_its_recipe_is_not_shown(folder, tmp_path, call):
    target = task_rules(ruleset("levelbench-1.0"), "digits").target
    runs = [
        SubmittedRun(SubmittedCurve([1.0, 2.0 + seed, 4.0 + seed], [0.5, 0.98, 0.98]), seed=seed) for seed in range(5)
    ]
    entry = Submission(
        schema=1, ruleset="levelbench-1.0", task="digits", mode="training", author=Author("An author"), model="mlp",
        submitted="2026-07-01", framework="numpy", hardware=Hardware("a machine"), target=target, clock="wall",
        crossing="confirmed", runs=runs, division="closed", settings={"recipe": "mlp", "hidden": 100_000},
        provenance=Provenance(version=__version__),
    )  # fmt: skip
    path = folder / "digits/training/wide.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(encode(entry))
    assert "error B169" in call("board", "check", path)[1]
    built = json.loads(call("board", "build", folder, "-o", tmp_path / "site", "--json")[1])
    (wide,) = built["not_shown"]
    assert wide["file"] == "digits/training/wide.json"
    assert any(reason.startswith("B169 settings.hidden") for reason in wide["reasons"])


def test_strict_ends_in_1_for_warnings_too(folder, tmp_path, call):
    (folder / "cifar10/training/odd name.json").write_bytes((folder / "cifar10/training/net.json").read_bytes())
    (folder / "cifar10/training/net.json").unlink()
    assert call("board", "build", folder, "-o", tmp_path / "site")[0] == 0
    code, out, _ = call("board", "build", folder, "-o", tmp_path / "site", "--strict")
    assert code == 1
    assert "warning" in out


def test_json_has_all_that_was_done(folder, tmp_path, call):
    code, out, _ = call("board", "build", folder, "-o", tmp_path / "site", "--json", "--jobs", "1")
    found = json.loads(out)
    assert code == 0
    assert (found["entries"], found["read"], found["not_shown"]) == (2, 2, [])
    assert found["boards"] == ["cifar10_dawnbench-1.0.html"]
    assert "index.html" in found["written"]


def test_a_folder_that_is_not_there_is_a_usage_error(tmp_path, call):
    code, _, err = call("board", "build", tmp_path / "nowhere", "-o", tmp_path / "site")
    assert code == 2
    assert "there is no such folder" in err


def test_a_folder_that_holds_something_else_is_left_alone(folder, tmp_path, call):
    code, _, err = call("board", "build", folder, "-o", folder)
    assert code == 2
    assert "files that are not from a levelbench site: cifar10" in err


def test_what_an_author_writes_begins_no_line_of_the_output(folder, tmp_path, call):
    name = "a\n::add-mask::x.json"
    (folder / "cifar10/training" / name).write_text('{"schema": 1, "a\\n::error::x": 1}')
    _, out, _ = call("board", "build", folder, "-o", tmp_path / "site")
    assert "add-mask" in out
    assert not [line for line in out.splitlines() if line.lstrip().startswith("::")]


def test_a_folder_without_an_entry_is_a_warning(tmp_path, call, monkeypatch):
    monkeypatch.setenv("LEVELBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "empty").mkdir()
    assert call("board", "build", tmp_path / "empty", "-o", tmp_path / "site")[0] == 0
    code, out, _ = call("board", "build", tmp_path / "empty", "-o", tmp_path / "site", "--strict")
    assert code == 1
    assert "0 entries on 0 boards" in out


def test_a_second_build_at_the_same_time_ends_in_3_and_says_to_wait(folder, tmp_path, call):
    import fcntl

    site = tmp_path / "site"
    assert call("board", "build", folder, "-o", site)[0] == 0
    with (site / ".levelbench-site.lock").open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        code, _, err = call("board", "build", folder, "-o", site)
    assert code == 3
    assert "another build is writing it" in err
    assert "wait until it has finished" in err


def test_a_broken_ruleset_that_no_entry_needs_stops_no_build_and_is_named(folder, tmp_path, call):
    (folder / "rulesets").mkdir()
    (folder / "rulesets" / "broken.toml").write_text("id = ")
    code, out, _ = call("board", "build", folder, "-o", tmp_path / "site")
    assert code == 1
    assert "2 entries on 1 board" in out
    assert "rulesets/broken.toml" in out


def test_an_unknown_ruleset_in_board_toml_names_that_file(folder, tmp_path, call):
    (folder / "board.toml").write_text('rulesets = ["club-1.0"]')
    code, _, err = call("board", "build", folder, "-o", tmp_path / "site")
    assert code == 2
    assert "board.toml 'club-1.0'" in err
    assert "correct that file's rulesets" in err


def test_the_cores_of_an_entry_are_called_cores(folder, tmp_path, call):
    path = folder / "cifar10/training/net.json"
    entry = json.loads(path.read_text())
    entry["hardware"] |= {"processor": "AMD EPYC", "cores": 2}
    path.write_text(json.dumps(entry))
    call("board", "build", folder, "-o", tmp_path / "site")
    pages = "".join(each.read_text() for each in (tmp_path / "site").rglob("*.html"))
    assert "AMD EPYC, 2 cores" in pages


def test_the_rankings_are_printed_and_say_by_which_rule(folder, tmp_path, call):
    _, out, _ = call("board", "build", folder, "-o", tmp_path / "site", "--top", "1")
    assert "CIFAR-10: time" in out
    assert "the first 1 of 2 entries" in out
    assert "in the order of their values, as the rules dawnbench-1.0 say" in " ".join(out.split())
    assert "CIFAR-10: time" not in call("board", "build", folder, "-o", tmp_path / "site", "--top", "0")[1]


def test_a_ranking_by_cost_where_no_entry_has_a_price_is_not_printed(folder, tmp_path, call):
    assert "CIFAR-10: cost" not in call("board", "build", folder, "-o", tmp_path / "site")[1]


def test_the_rankings_are_part_of_the_json(folder, tmp_path, call):
    _, out, _ = call("board", "build", folder, "-o", tmp_path / "site", "--json")
    (time, _) = json.loads(out)["rankings"]
    assert (time["column"], time["entries"]) == ("time", 2)
    assert [(row["rank"], row["figure"]) for row in time["rows"]] == [(1, "0:00:02"), (2, "0:00:09")]
    assert "| 1 | net, An author | 0:00:02 |" in (tmp_path / "site" / "leaderboard.md").read_text()


def test_what_is_said_of_a_board_is_wrapped_to_the_terminal(folder, tmp_path, call, width):
    ranked = call("board", "build", folder, "-o", tmp_path / "site")[1].partition("CIFAR-10")[2]
    checked = call("board", "check", folder)[1]
    lines = re.sub(r"\x1b\[[0-9;]*m", "", ranked + checked).splitlines()
    assert "as the rules dawnbench-1.0 say" in " ".join(lines)
    assert [line for line in lines if len(line) > width and " " in line.strip()] == []
