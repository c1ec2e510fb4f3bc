"""What the page's script gets: figures as text, names that are safe, and data that cannot end a script."""

import csv
import io
import json
import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.competition.entries import (
    Author,
    Code,
    Hardware,
    Inference,
    Submission,
    SubmittedCurve,
    SubmittedRun,
    SystemPrice,
)
from levelbench.competition.figures import BoardFigure
from levelbench.competition.rulesets import ruleset, task_rules
from levelbench.competition.scoring import climbs_of, score
from levelbench.competition.site import MOST_STEPS, entry_payload, figure_text, safe_url, slug_of, steps_json
from levelbench.competition.site.boards import (
    board_slug,
    empty_board,
    feed,
    filled,
    joined_steps,
    leaderboard_csv,
    leaderboard_json,
    leaders_of,
    script,
    steps_script,
)

RULES = ruleset("dawnbench-1.0")
TASK = task_rules(RULES, "cifar10")


def an_entry(name="net", seconds=10.0, *, day="2018-01-01", price=None, **parts):
    times, qualities = [seconds / 2, seconds, 2 * seconds], [0.9, 0.94, 0.95]
    base = Submission(
        schema=1, ruleset=RULES.id, task="CIFAR10", mode="training", author=Author("A. Author"), submitted=day,
        model=name, framework="torch", hardware=Hardware("a machine"), target=TASK.target,
        runs=[SubmittedRun(SubmittedCurve(times, qualities))], price=SystemPrice(price) if price else None,
    )  # fmt: skip
    submission = msgspec.structs.replace(base, **parts)
    found, climbs = score(submission, RULES), climbs_of(submission, TASK.target, RULES.crossing)
    payload = entry_payload(f"cifar10/training/{name}", submission, found, RULES, signed="unsigned", climbs=climbs)
    return msgspec.structs.replace(payload, steps=json.loads(steps_json(climbs, TASK.target)))


def an_inference(name="net", latency_s=0.028688, price=0.9):
    measured = Inference("dawnbench", 100, 100, 3.0, mean_latency_s=latency_s, quality=0.95)
    return an_entry(name, mode="inference", runs=[], inference=[measured], price=price)


def a_board(*entries):
    return filled(empty_board("A title", RULES, TASK), entries)


def data_of(board):
    text = script(board).decode()
    prefix, suffix = "window.levelbench.board(", ");\n"
    assert text.startswith(prefix)
    assert text.endswith(suffix)
    return json.loads(text[len(prefix) : -len(suffix)])


def test_a_board_ranks_each_column_and_orders_by_the_first():
    board = a_board(an_entry("slow", 20.0, price=1.0), an_entry("fast", 10.0, price=9.0), an_inference("answers"))
    assert [entry.model for entry in board.entries] == ["fast", "slow", "answers"]
    ranks = [{column: figure.rank for column, figure in entry.figures.items()} for entry in board.entries]
    assert ranks == [{"time": 1, "cost": 2}, {"time": 2, "cost": 1}, {"latency": 1, "inference_cost": 1}]
    assert board.modes == ["training", "inference"]


def test_each_division_is_ranked_by_itself_and_has_records_of_its_own():
    board = a_board(
        an_entry("quick", 5.0, division="open"),
        an_entry("late", 30.0, division="closed", day="2019-01-01"),
        an_entry("plain", 20.0, division="closed"),
    )
    ranks = [(entry.model, entry.figures["time"].rank, entry.figures["time"].shared) for entry in board.entries]
    assert ranks == [("plain", 1, False), ("late", 2, False), ("quick", 1, False)]
    assert [board.entries[at].model for _, _, at in board.progress["time"]] == ["quick", "plain"]
    leaders = [(leader.model, leader.division) for leader in leaders_of(board)]
    assert leaders == [("plain", "closed"), ("quick", "open")]


def test_progress_points_at_the_entries_of_the_board():
    board = a_board(an_entry("old", 20.0, day="2018-01-01"), an_entry("new", 10.0, day="2019-01-01"))
    models = [(day, board.entries[index].model) for day, _, index in board.progress["time"]]
    assert models == [("2018-01-01", "old"), ("2019-01-01", "new")]


def test_a_card_names_the_first_of_each_column():
    found = leaders_of(a_board(an_entry("fast", 10.0), an_entry("cheap", 20.0, price=1.0)))
    assert [(leader.column, leader.model) for leader in found] == [("time", "fast"), ("cost", "cheap")]


def test_an_entry_without_a_price_is_unranked_with_the_reason():
    figure = a_board(an_entry("free")).entries[0].figures["cost"]
    assert (figure.rank, figure.value, figure.text, figure.note) == (None, None, "–", "no price is stated")


@pytest.mark.parametrize(
    ("column", "figure", "rounding", "text"),
    [
        ("time", BoardFigure(9.43), "ceil-seconds", "0:00:10"),
        ("time", BoardFigure(4075.0000000000005), "ceil-seconds", "1:07:55"),
        ("time", BoardFigure(370087.79), "ceil-seconds", "102:48:08"),
        ("cost", BoardFigure(54.7936), "ceil-seconds", "$54.79"),
        ("cost", BoardFigure(1234.5), "ceil-seconds", "$1,234.50"),
        ("time", BoardFigure(0.9123, 0.8513, 0.9812), "significant", "0.91 s [0.85, 0.98]"),
        ("time", BoardFigure(9.43), "significant", "9.43 s"),
        ("cost", BoardFigure(0.105, 0.1, 0.11), "significant", "$0.105 [0.100, 0.110]"),
        ("latency", BoardFigure(0.028688), "ceil-seconds", "28.7 ms"),
        ("inference_cost", BoardFigure(7.172), "ceil-seconds", "$7.17"),
        ("time", BoardFigure(None), "significant", "–"),
    ],
)
def test_a_figure_is_printed_as_its_rules_round_it(column, figure, rounding, text):
    assert figure_text(column, figure, rounding) == text


@pytest.mark.parametrize(
    "url",
    ["javascript:alert(1)", "data:text/html,x", "//host/x", "http://", "https://u:p@host/", "ftp://host/",
     "https://a b/", "https://host/\n", "", None, "https://[broken"],
)  # fmt: skip
def test_only_plain_links_become_links(url):
    assert safe_url(url) is None
    assert an_entry(code=Code(url)).code_url is None


def test_a_plain_link_stays():
    assert safe_url("https://example.org/a?b=c#d") == "https://example.org/a?b=c#d"


@given(st.text(max_size=60))
@settings(max_examples=30, deadline=None)
def test_a_slug_is_safe_and_that_of_one_id(text):
    slug = slug_of(text)
    assert set(slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert 26 <= len(slug) <= 107
    assert slug != slug_of(text + "x")


def test_ids_that_read_alike_have_different_slugs():
    assert slug_of("cifar10/training/a b") != slug_of("cifar10/training/a-b") != slug_of("CIFAR10/training/a-b")


@pytest.mark.parametrize(("task", "slug"), [("cifar10", "cifar10_dawnbench-1.0"), ("../x", None), ("A b", None)])
def test_a_board_has_a_readable_name_where_that_is_safe(task, slug):
    found = board_slug(task, "dawnbench-1.0")
    assert found == slug if slug else re.fullmatch(r"[a-z0-9-]+-[a-z2-7]{26}", found)


def test_two_boards_whose_names_run_into_each_other_have_pages_of_their_own():
    pairs = [("digits", "x-club-1.0"), ("digits-x", "club-1.0"), ("Digits", "X club"), ("Digits X", "club")]
    assert len({board_slug(*pair) for pair in pairs}) == 4


def test_a_slug_has_128_bits_of_a_digest():
    assert re.fullmatch(r"a-b-[a-z2-7]{26}", slug_of("a/b"))
    assert len(set("".join(slug_of(str(number))[-26:] for number in range(40)))) == 32


@given(st.text(max_size=40))
@settings(max_examples=30, deadline=None)
def test_no_text_of_an_entry_can_end_the_script_and_all_of_it_arrives(text):
    hostile = f"</script><!--{text}\u2028\u2029&"
    board = a_board(an_entry(hostile))
    raw = script(board)
    assert not set("<>&\u2028\u2029") & set(raw.decode())
    assert raw.count(b"\n") == 1
    assert data_of(board)["columns"]["model"] == [[hostile], [0]]


def test_the_names_of_the_payload_are_those_that_the_script_reads():
    data = data_of(a_board(an_entry(price=3.0)))
    assert set(data) == {
        "schema", "title", "generated", "slug", "page", "steps", "ruleset", "task", "task_title", "target", "modes",
        "progress", "reach", "columns", "runs", "inference", "compared", "scenario", "about",
        "unit", "divisions",
    }  # fmt: skip
    assert set(data["columns"]) == {
        "slug", "id", "code_url", "n", "reached", "single_run", "model", "author", "organisation", "framework",
        "hardware", "date", "division", "mode", "signed", "reached_text", "origin", "usd_per_hour", "errors",
        "warnings", "curve", "figures", "lint", "doubts", "machine", "rerun",
    }  # fmt: skip
    assert set(data["columns"]["figures"]["time"]) == {
        "value", "low", "high", "rank", "shared", "text", "note", "ranks", "against",
    }  # fmt: skip


def test_a_column_says_which_entries_have_a_figure_in_it():
    data = data_of(a_board(an_entry("first"), an_inference("answers")))
    assert data["columns"]["figures"]["time"]["at"] == [0]
    assert data["columns"]["figures"]["latency"]["at"] == [1]
    assert data["columns"]["curve"] == [True, False]


def test_steps_are_in_the_board_or_in_a_script_of_their_own():
    entry = an_entry()
    board = a_board(entry)
    assert data_of(board)["runs"] == [[[0.9, 5.0, 0.94, 10.0, 0.95, 20.0]]]
    assert data_of(board)["reach"] == 0.95
    bare = a_board(msgspec.structs.replace(entry, steps=[]))
    steps = joined_steps(bare, {entry.id: msgspec.json.encode(entry.steps)})
    assert steps == joined_steps(board)
    assert "runs" not in data_of(msgspec.structs.replace(board, steps="data/board-steps.js"))
    assert steps_script(steps) == b"window.levelbench.steps(JSON.parse('[[[0.9,5.0,0.94,10.0,0.95,20.0]]]'));\n"


def test_steps_are_rounded_but_never_to_the_other_side_of_the_target():
    qualities = [0.9123456789, 0.9399999999, 0.9400000001, 0.95]
    entry = an_entry(runs=[SubmittedRun(SubmittedCurve([1.23456789, 2.0, 3.0, 4.0], qualities))])
    assert entry.steps == [[0.912346, 1.234568, 0.9399999999, 2.0, 0.9400000001, 3.0, 0.95, 4.0]]


def test_long_curves_are_thinned_and_keep_the_time_at_the_target():
    times = [float(at) for at in range(1, 201)]
    qualities = [0.9 + at * 0.0002501 for at in range(200)]
    entry = an_entry(runs=[SubmittedRun(SubmittedCurve(times, qualities))])
    (steps,) = entry.steps
    assert len(steps) <= 2 * MOST_STEPS
    pairs = zip(steps[::2], steps[1::2], strict=True)
    assert next(time for quality, time in pairs if quality >= 0.94) == entry.figures["time"].value


def test_figures_that_are_not_finite_are_null_for_the_script():
    entry = an_entry()
    entry.figures["time"].high = float("inf")
    assert data_of(a_board(entry))["columns"]["figures"]["time"]["high"] == [None]


def test_programs_get_the_same_figures_as_json_and_csv():
    board = a_board(an_entry("fast", price=9.0), an_inference())
    read = json.loads(leaderboard_json("A title", "0.1", [board]))
    assert [each["figures"]["time"]["value"] for each in read["boards"][0]["entries"][:1]] == [10.0]
    header, first, second = leaderboard_csv([board]).decode().split("\r\n")[:3]
    row = dict(zip(header.split(","), first.split(","), strict=True))
    assert (row["model"], row["time_value"], row["time_rank"], row["cost_value"]) == ("fast", "10.0", "1", "0.025")
    assert dict(zip(header.split(","), second.split(","), strict=True))["time_value"] == ""


@given(
    st.text(st.characters(categories=["L", "N", "P", "S"], include_characters=' ,"|'), min_size=1),
    st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
)
@settings(deadline=None)
def test_a_reader_of_csv_gets_every_text_and_number_as_it_was(text, seconds):
    entries = [an_entry("plain"), an_entry("other")]
    entries[1].model, entries[1].best_s = text, seconds
    board = msgspec.structs.replace(a_board(), entries=entries)
    rows = list(csv.DictReader(io.StringIO(leaderboard_csv([board]).decode(), newline="")))
    assert [row["model"].removeprefix("'") for row in rows] == ["plain", text.removeprefix("'")]
    assert rows[1]["best_s"] == "" if seconds is None else float(rows[1]["best_s"]) == seconds


def test_a_figure_that_is_not_finite_is_an_empty_cell():
    entry = an_entry()
    entry.figures["time"].high = float("inf")
    header, row = leaderboard_csv([a_board(entry)]).decode().splitlines()
    assert dict(zip(header.split(","), row.split(","), strict=True))["time_high"] == ""


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x"])
def test_no_text_of_an_entry_is_a_formula_of_a_spreadsheet(text):
    assert f",'{text}," in leaderboard_csv([a_board(an_entry(text))]).decode()


def test_the_feed_is_xml_whatever_an_entry_says():
    from xml.etree import ElementTree

    raw = feed("A <title>", "https://example.org", "2026-01-01", [a_board(an_entry("a&b\x00\x1b<x>\ud800"))])
    root = ElementTree.fromstring(raw)
    assert "a&b" in root[-1][0].text
