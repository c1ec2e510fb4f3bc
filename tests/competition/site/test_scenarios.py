"""Each inference scenario has a separate ranking with its own figure, direction and condition."""

import csv
import io
import json
import re

import msgspec
import pytest
from tests.competition.site.leaderboards import DAY, DIGEST, assert_whole, inference, measure, thrice

from levelbench.competition.entries import Author
from levelbench.competition.site.build import TOO_MANY, build


def batches(*rates):
    """A measurement of each of ``rates``, in samples a second."""
    return [inference("offline", queries=1, throughput_per_s=rate, duration_s=2000 / rate) for rate in rates]


STREAM = {"mean_latency_s": 0.0101, "quantiles_s": {"0.9": 0.011, "0.99": 0.013}}
SERVER = {"latency_bound_s": 0.015, "target_per_s": 100.0}
MEASURED = {
    "single": thrice(inference("single-stream", **STREAM, estimate_s=0.011)),
    "multi": thrice(inference("multi-stream", **STREAM, estimate_s=0.013, samples=16_000, throughput_per_s=784.0)),
    "server": thrice(inference("server", **SERVER)),
    "offline": batches(98.0, 99.0, 100.0),
    "alone": thrice(inference("dawnbench", **STREAM)),
}
BOARDS = ["", "_dawnbench", "_multi-stream-8", "_offline", "_server-15ms"]


def better(name):
    """The measurements of an entry that takes two thirds of the time."""
    for each in MEASURED[name]:
        faster = {"duration_s": each.duration_s / 1.5, "throughput_per_s": each.throughput_per_s * 1.5}
        if each.mean_latency_s is not None:
            faster |= {"mean_latency_s": each.mean_latency_s / 1.5}
            faster |= {"quantiles_s": {name: value / 1.5 for name, value in each.quantiles_s.items()}}
        if each.estimate_s is not None:
            faster["estimate_s"] = each.estimate_s / 1.5
        if each.target_per_s is not None:
            faster["target_per_s"] = each.target_per_s * 1.5
        yield msgspec.structs.replace(each, **faster)


@pytest.fixture
def folder(tmp_path):
    """Two entries of each scenario, of which Bob's is the better."""
    for name, measured in MEASURED.items():
        measure(tmp_path / "leaderboard", f"{name}-a", *measured)
        measure(tmp_path / "leaderboard", f"{name}-b", *better(name), author=Author("Bob"))
    return tmp_path / "leaderboard"


def ranking(site):
    """Board by board the entries of inference with their ranks, best first, and the figure that ranks them."""
    boards = json.loads((site / "leaderboard.json").read_text())["boards"]
    found = {}
    for board in boards:
        for entry in board["entries"]:
            (column,) = set(entry["figures"]) - {"inference_cost"}
            figure = entry["figures"][column]
            found.setdefault(board["page"], []).append(
                (entry["model"], figure["rank"], column, figure["text"].partition(" [")[0])
            )
    return found


def test_each_scenario_is_ranked_by_itself_the_best_first(folder, site):
    built = build(folder, site, today=DAY)
    assert (built.not_shown, built.boards) == ([], [f"digits_levelbench-1.0{name}.html" for name in BOARDS])
    main, alone, multi, offline, server = ranking(site).values()
    assert main == [("single-b", 1, "latency", "7.33 ms"), ("single-a", 2, "latency", "11 ms")]
    assert alone == [("alone-b", 1, "latency", "6.73 ms"), ("alone-a", 2, "latency", "10.1 ms")]
    assert multi == [("multi-b", 1, "latency", "8.67 ms"), ("multi-a", 2, "latency", "13 ms")]
    assert server == [("server-b", 1, "throughput", "150/s"), ("server-a", 2, "throughput", "100/s")]
    assert offline == [("offline-b", 1, "throughput", "148.5/s"), ("offline-a", 2, "throughput", "99/s")]


def test_what_the_test_cannot_tell_apart_says_so_and_keeps_the_order_of_values(folder, site):
    measure(folder, "offline-c", *batches(99.0, 100.0, 101.0), author=Author("Cora"))
    assert build(folder, site, today=DAY).not_shown == []
    (board,) = [
        each
        for each in json.loads((site / "leaderboard.json").read_text())["boards"]
        if each["page"].endswith("_offline.html")
    ]
    figures = [(each["model"], each["figures"]["throughput"]) for each in board["entries"]]
    assert [(model, each["rank"], each["best"], each["worst"]) for model, each in figures] == [
        ("offline-b", 1, 1, 1), ("offline-c", 2, 2, 3), ("offline-a", 3, 2, 3),
    ]  # fmt: skip
    assert figures[1][1]["p_above"] < 0.05 < figures[2][1]["p_above"]


def test_one_measurement_has_no_rank_and_the_reason_is_in_its_row(folder, site):
    measure(folder, "offline-lucky", *batches(190.0), author=Author("Cora"))
    built = build(folder, site, today=DAY)
    assert built.not_shown == []
    assert ranking(site)["digits_levelbench-1.0_offline.html"][-1][:2] == ("offline-lucky", None)
    why = "no rank: a test needs 3 runs, it has 1"
    page = (site / "digits_levelbench-1.0_offline.html").read_text()
    assert why in page
    rows = list(csv.DictReader(io.StringIO((site / "leaderboard.csv").read_text())))
    (lucky,) = [row for row in rows if row["model"] == "offline-lucky"]
    assert (lucky["throughput_rank"], why in lucky["said"]) == ("", True)
    assert why in (site / "leaderboard.md").read_text()
    (offline,) = [
        each for each in built.rankings if each.board.endswith("_offline.html") and "throughput" in each.title
    ]
    assert offline.rows[-1].said[0] == why


def test_servers_are_ranked_with_those_of_their_own_latency_bound(folder, site):
    measured = thrice(inference("server", latency_bound_s=0.1, target_per_s=100.0))
    measure(folder, "slow", *measured, author=Author("Cora"))
    build(folder, site, today=DAY)
    found = ranking(site)
    assert found["digits_levelbench-1.0_server-100ms.html"] == [("slow", 1, "throughput", "100/s")]
    assert len(found["digits_levelbench-1.0_server-15ms.html"]) == 2
    text = (site / "digits_levelbench-1.0_server-100ms.html").read_text()
    assert "<h1>Digits, server within 100 ms</h1>" in text
    assert "Throughput (server within 100 ms, queries a second)" in text


def test_queries_of_another_size_are_ranked_apart(folder, site):
    measure(
        folder, "wide", inference("multi-stream", **STREAM, estimate_s=0.013, samples=32_000, throughput_per_s=1568.0)
    )
    build(folder, site, today=DAY)
    assert [each[0] for each in ranking(site)["digits_levelbench-1.0_multi-stream-16.html"]] == ["wide"]


def test_the_boards_of_a_task_lead_to_each_other_and_each_entry_to_its_own(folder, site):
    build(folder, site, today=DAY)
    assert_whole(site)
    page = (site / "digits_levelbench-1.0_offline.html").read_text()
    nav = re.search(r'<nav aria-label="Other rankings of this task">.*?</nav>', page)[0]
    others = ["Digits", "Digits, dawnbench", "Digits, multi-stream, 8 samples a query", "Digits, server within 15 ms"]
    assert re.findall(r"<a [^>]*>([^<]*)</a>", nav) == others
    (entry,) = (site / "entries").glob("*offline-a*.html")
    assert 'href="../digits_levelbench-1.0_offline.html"' in entry.read_text()
    index = (site / "index.html").read_text()
    assert "samples a second; answers with top-1 accuracy at least 95.04 %" in index
    assert re.search(r"<dt>Throughput</dt><dd class=\"value\">150/s</dd>", index)


def test_programs_get_the_scenario_with_its_condition(folder, site):
    build(folder, site, today=DAY)
    rows = list(csv.DictReader(io.StringIO((site / "leaderboard.csv").read_text())))
    names = ("scenario", "latency_bound_s", "samples_per_query")
    assert {row["model"][:-2]: tuple(row[name] for name in names) for row in rows} == {
        "single": ("", "", ""),
        "alone": ("dawnbench", "", ""),
        "multi": ("multi-stream", "", "8"),
        "offline": ("offline", "", ""),
        "server": ("server", "0.015", ""),
    }
    assert [row["throughput_value"] for row in rows if row["model"] == "server-b"] == ["150.0"]
    boards = json.loads((site / "leaderboard.json").read_text())["boards"]
    assert boards[-1]["scenario"] == {"name": "server", "bound_s": 0.015, "samples": None}


def test_the_record_of_a_throughput_is_the_highest(folder, site):
    measure(folder, "offline-b", *better("offline"), author=Author("Bob"), submitted="2026-11-22")
    measure(folder, "offline-c", *batches(119.0, 120.0, 121.0), author=Author("Cora"), submitted="2026-11-23")
    build(folder, site, today=DAY.replace(day=24))
    page = (site / "digits_levelbench-1.0_offline.html").read_text()
    points = re.findall(r'aria-label="(\S+): (\S+/s), offline', page)
    assert points == [("2026-11-21", "99/s"), ("2026-11-22", "148.5/s")]


def test_an_entry_of_one_scenario_changes_its_own_board_and_no_other(folder, site):
    build(folder, site, today=DAY)
    measure(folder, "offline-a", *MEASURED["offline"], notes="Again.", price=None)
    built = build(folder, site, today=DAY)
    assert sorted(re.sub(DIGEST, ".", name) for name in built.written) == [
        "data/digits_levelbench-1.0_offline.js", "data/search.js", "digits_levelbench-1.0_offline.html",
        "entries/digits-inference-offline-a.html", "index.html", "leaderboard.csv", "leaderboard.json",
        "leaderboard.md",
    ]  # fmt: skip
    for path in folder.rglob("server-*.json"):
        path.unlink()
    build(folder, site, today=DAY)
    assert not (site / "digits_levelbench-1.0_server-15ms.html").exists()
    assert_whole(site)


def test_a_task_has_so_many_boards_of_scenarios_and_what_is_beyond_is_listed_with_its_reason(
    tmp_path, site, monkeypatch
):
    monkeypatch.setattr("levelbench.competition.site.build.MOST_APART", 2)
    folder = tmp_path / "leaderboard"
    for at, bound_s in enumerate((0.01, 0.02, 0.03, 0.03)):
        measured = inference("server", latency_bound_s=bound_s, target_per_s=100.0 - at)
        measure(folder, f"server-{at}", measured, author=Author(f"Author {at}"))
    built = build(folder, site, today=DAY)
    # The board of most entries, then the first.
    assert built.boards == ["digits_levelbench-1.0_server-10ms.html", "digits_levelbench-1.0_server-30ms.html"]
    assert [(each.file, each.reasons) for each in built.not_shown] == [("digits/inference/server-1.json", [TOO_MANY])]
    assert len(list((site / "entries").iterdir())) == built.entries == 3
    assert_whole(site)
    assert build(folder, site, today=DAY).written == []
    (folder / "digits/inference/server-0.json").unlink()
    again = build(folder, site, today=DAY)
    assert (again.not_shown, again.boards[0]) == ([], "digits_levelbench-1.0_server-20ms.html")
    assert_whole(site)
