"""``levelbench board museum``: one command makes a site of everything that is in the folders it is given."""

import json
from importlib import resources

import pytest
from tests.cli.test_board_import import entry
from tests.competition.exchange.mlperf.conftest import good_events, written
from tests.competition.exchange.test_algoperf import log
from tests.competition.site.leaderboards import write

from levelbench.competition.exchange import systems_in


@pytest.fixture
def downloads(tmp_path):
    """A clone of DAWNBench's entries, logs of MLPerf and AlgoPerf, and a leaderboard, as somebody keeps them."""
    place = tmp_path / "downloads"
    entry(place / "dawn-bench-entries", "a_resnet9_1v100_pytorch", costPerHour=3.06)
    logs = place / "round" / "someone" / "results" / "box" / "resnet"
    logs.mkdir(parents=True)
    for seed in range(5):
        events = good_events(benchmark="resnet", seed=seed, values=(0.5 + seed / 100, 0.76))
        (logs / f"result_{seed}.txt").write_text(written(events))
    write(place / "board", "own", 30.0)
    for trial in range(15):
        folder = place / "nadamw" / f"study_{trial // 5}" / "ogbg_jax" / f"trial_{trial % 5 + 1}"
        log(folder, [(10.0 + trial, 0.2), (20.0 + trial, 0.29)], "mean_average_precision", None)
    return place


def test_every_system_below_a_folder_is_found(downloads):
    assert sorted((kind, path.relative_to(downloads).as_posix()) for kind, path in systems_in(downloads)) == [
        ("algoperf", "."), ("dawnbench", "dawn-bench-entries"), ("levelbench", "board"), ("mlperf", "."),
    ]  # fmt: skip


def test_one_command_makes_a_site_of_all_of_them(call, downloads, tmp_path):
    code, out, err = call("board", "museum", downloads, "-o", tmp_path / "site")
    assert (code, err) == (0, "")
    assert "1 entry of dawnbench\n" in out
    assert "4 entries on 3 boards" in out
    page = (tmp_path / "site" / "index.html").read_text()
    assert "<title>A museum of time to accuracy</title>" in page
    assert page.count('<tr><th scope="row"') == 3


@pytest.mark.parametrize(("text", "why", "code"), [("0:01:12", "", 0), ("0:01:13", "", 1), ("0:01:13", "a slip", 0)])
def test_a_published_score_that_differs_without_a_reason_ends_in_1(call, downloads, tmp_path, text, why, code):
    printed = tmp_path / "printed.csv"
    printed.write_text(f"entry,column,published,why\na_resnet9_1v100_pytorch,time,{text},{why}\n")
    ended, out, _ = call("board", "museum", downloads, "-o", tmp_path / "site", "--published", printed)
    assert ended == code
    assert f"{int(text == '0:01:12')} of 1 published score reproduced" in out


def test_the_leaderboard_is_kept_where_asked(call, downloads, tmp_path):
    call("board", "museum", downloads, "-o", tmp_path / "site", "--board", tmp_path / "kept", "--title", "Ours")
    assert (tmp_path / "kept" / "board.toml").read_text() == 'title = "Ours"\n'
    assert len(list((tmp_path / "kept").glob("*/training/*.json"))) == 4


def own_rules(board, precision="1.0"):
    text = resources.files("levelbench.competition.rulesets").joinpath("data/dawnbench-1.0.toml").read_text()
    own = text.replace('"dawnbench-1.0"', '"club-1.0"').replace('name = "dawnbench"', 'name = "club"')
    (board / "rulesets").mkdir()
    (board / "rulesets" / "club.toml").write_text(own + f"# {precision}\n")


def test_a_leaderboard_brings_its_own_rulesets(call, downloads, tmp_path):
    own_rules(downloads / "board")
    write(downloads / "board", "clubs", 31.0, ruleset="club-1.0", origin=None)
    code, out, err = call("board", "museum", downloads, "-o", tmp_path / "site")
    assert (code, err) == (0, "")
    assert "5 entries on 4 boards" in out


def test_entries_under_another_ruleset_of_the_same_id_are_named_and_not_shown(call, tmp_path):
    for name in ("one", "two"):
        write(tmp_path / name, f"of-{name}", 31.0, ruleset="club-1.0", origin=None)
        own_rules(tmp_path / name)
    path = tmp_path / "two" / "rulesets" / "club.toml"
    path.write_text(path.read_text().replace("0.94", "0.93"))
    code, out, err = call("board", "museum", tmp_path / "one", tmp_path / "two", "-o", tmp_path / "site")
    assert code == 1
    assert "1 entry on 1 board" in out
    assert "another ruleset with that id" in err


def test_a_folder_of_one_mode_and_a_single_entry_are_read_alone(downloads):
    train = downloads / "dawn-bench-entries" / "CIFAR10" / "train"
    (one,) = train.glob("*.json")
    assert systems_in(train) == [("dawnbench", train)]
    assert systems_in(one) == [("dawnbench", one)]


def test_an_entry_in_two_clones_is_counted_once(call, downloads, tmp_path):
    clone = downloads / "dawn-bench-entries"
    _, out, _ = call("board", "museum", clone, clone, "-o", tmp_path / "site")
    assert "1 entry of dawnbench\n" in out


def test_warnings_are_listed_by_a_check_of_a_leaderboard_that_is_kept(call, downloads, tmp_path):
    _, out, _ = call("board", "museum", downloads, "-o", tmp_path / "site")
    assert "keep the leaderboard with --board, and levelbench board check lists them" in out
    _, out, _ = call("board", "museum", downloads, "-o", tmp_path / "site", "--board", tmp_path / "kept")
    assert f"levelbench board check {tmp_path / 'kept'} lists them" in out


def test_a_folder_with_nothing_to_read_is_a_usage_error(call, tmp_path):
    (tmp_path / "empty").mkdir()
    code, _, err = call("board", "museum", tmp_path / "empty", "-o", tmp_path / "site")
    assert code == 2
    assert "no entries or logs" in err


def test_what_cannot_be_read_is_named_and_stops_nothing(call, downloads, tmp_path):
    (downloads / "dawn-bench-entries" / "CIFAR10" / "train" / "b.json").write_text("[]")
    code, out, _ = call("board", "museum", downloads, "-o", tmp_path / "site", "--json")
    answer = json.loads(out)
    assert code == 1
    assert answer["read"] == {"algoperf": 1, "dawnbench": 1, "mlperf": 1, "levelbench": 1}
    assert "b.json" in answer["problems"][0]
