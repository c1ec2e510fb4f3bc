"""Entries of one board go through the gate of every comparison, and its findings are shown next to their rank."""

from __future__ import annotations

import pytest
from tests.competition.scored import submission
from tests.competition.site.leaderboards import DAY, write

from levelbench.competition.checks import note, warning
from levelbench.competition.entries import Author, Provenance, SubmittedCurve, SubmittedRun
from levelbench.competition.leaderboard import checked_folder
from levelbench.competition.rivals import BoardFacts, Rivals, board_facts, compared_with_board, doubts_at_rank, trace_of
from levelbench.competition.site.build import build

BOARD = ("levelbench-1.0", "digits", "training")
USUAL: BoardFacts = {
    "recipe": "mlp",
    "dataset": "digits",
    "split_rule": "every fifth",
    "sizes": {"train": 1437, "validation": 360},
    "labels": {"validation": "a" * 64},
    "inputs": {"validation": "i" * 64},
    "checksums": {"digits.csv": "c" * 64},
    "quality_digest": "q" * 64,
    "data_digest": "d" * 64,
    "source_digest": "s" * 64,
    "signatures": {"bleu": "nrefs:1"},
}


def told(*others):
    """The codes and sentences about entries beside three usual ones."""
    entries = [(f"usual{at}", BOARD, USUAL) for at in range(3)]
    entries += [(f"other{at}", BOARD, each) for at, each in enumerate(others)]
    return [(each.code, each.severity, each.file, each.found) for each in compared_with_board(entries)]


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"checksums": {"digits.csv": "e" * 64}}, "B260", "they differ in the content of digits.csv"),
        ({"dataset": "digits2"}, "B260", "they differ in the name of the data: digits against digits2"),
        ({"split_rule": "validation=d.train"}, "B260", "the rule of the split: every fifth against validation=d.train"),
        ({"sizes": {"train": 1797}}, "B260", "they differ in the sizes of the splits"),
        ({"labels": {"validation": "b" * 64}}, "B260", "they differ in the labels of the validation split"),
        ({"inputs": {"validation": "b" * 64}}, "B260", "they differ in the inputs of the validation split"),
        ({"quality_digest": "x" * 64}, "B260", "the sides compute the quality with different code"),
        ({"signatures": {"bleu": "nrefs:2"}}, "B260", "the figures of bleu were computed with different options"),
        ({"data_digest": "x" * 64}, "B261", "the sides load the data with different code"),
        ({"source_digest": "x" * 64, "quality_digest": ""}, "B261", "the task files differ"),
        ({"source_digest": "x" * 64}, "B262", "the file of recipe mlp differs"),
    ],
)
def test_an_entry_unlike_its_board_is_reported_and_the_others_are_not(changes, code, words):
    ((found, severity, file, sentence),) = told({**USUAL, **changes})
    assert (found, severity, file) == (code, "note" if code == "B262" else "warning", "other0")
    assert words in sentence


def test_of_two_entries_that_differ_both_are_reported():
    other = {**USUAL, "inputs": {"validation": "b" * 64}}
    found = list(compared_with_board([("honest", BOARD, USUAL), ("other", BOARD, other)]))
    assert [(each.code, each.file) for each in found] == [("B260", "honest"), ("B260", "other")]


def test_what_an_entry_does_not_say_is_not_compared():
    assert told({}, {"recipe": "cnn", "checksums": USUAL["checksums"]}) == []


@pytest.mark.parametrize("left_out", ["labels", "inputs", "sizes", "quality_digest", "data_digest"])
def test_an_entry_that_leaves_out_what_most_state_is_doubted(left_out):
    ((code, severity, file, found),) = told({name: value for name, value in USUAL.items() if name != left_out})
    assert (code, severity, file) == ("B261", "warning", "other0")
    assert found.startswith("most entries of its board state the")


def test_an_entry_that_states_more_than_most_is_not_doubted():
    fewer = {name: value for name, value in USUAL.items() if name != "labels"}
    board = [(f"usual{at}", BOARD, fewer) for at in range(3)]
    assert list(compared_with_board([*board, ("other", BOARD, USUAL)])) == []


@pytest.mark.parametrize("every", ["time its program does", "time its program prints it"])
def test_programs_of_the_authors_own_may_differ(every):
    def facts(source, settings):
        settings = {"evaluate_every": every, "recipe": source} | settings
        return board_facts(submission(settings=settings, provenance=Provenance(source_digest=source * 64)))

    boards = [
        [(name, BOARD, facts(name, settings)) for name in "abc"] for settings in ({}, {"evaluate_every": "1 epoch"})
    ]
    assert [len(list(compared_with_board(board))) for board in boards] == [0, 3]


def test_entries_of_another_board_are_not_compared():
    other = {**USUAL, "split_rule": "another"}
    assert list(compared_with_board([("a", BOARD, USUAL), ("b", ("dawnbench-1.0", *BOARD[1:]), other)])) == []


@pytest.fixture
def folder(tmp_path):
    """Three entries of one board."""
    for at, name in enumerate(("first", "second", "third")):
        write(tmp_path, name, 10.0 * (at + 1), provenance=Provenance(split_rule="every fifth"))
    return tmp_path


def test_another_split_is_a_warning_of_the_check_and_is_next_to_the_rank(folder, tmp_path):
    write(folder, "cheat", 1.0, provenance=Provenance(split_rule="validation=train"))
    found = [each for each in checked_folder(folder, today=DAY)[1] if each.code == "B260"]
    assert [(each.file, each.severity) for each in found] == [("cifar10/training/cheat.json", "warning")]
    built = build(folder, tmp_path / "site", today=DAY)
    assert [each.file for each in built.near] == ["cifar10/training/cheat.json"]
    page = (tmp_path / "site" / "cifar10_dawnbench-1.0.html").read_text()
    (row,) = [row for row in page.split("<tr ") if ">cheat<" in row and "rank" in row]
    assert "not comparable with most entries of the board" in row
    assert "every fifth against validation=train" in row
    assert page.count("not comparable with most entries") == 1


def a_run(record, **parts):
    curve = SubmittedCurve([1.0, 2.0, 3.0], [0.9, 0.941, 0.95])
    return SubmittedRun(curve, record_digest=record * 64, **parts)


@pytest.mark.parametrize(
    "parts", [{"record_id": "abc"}, {"started": "2018-06-01T10:00:00+00:00", "phases_s": {"x": 3.0}}]
)
@pytest.mark.parametrize(("author", "said"), [("original", "error"), ("somebody else", "warning")])
def test_one_run_in_two_records_is_an_error_of_the_later_entry_of_one_author(folder, parts, author, said):
    for name, record, day in (("original", "a", "2018-06-30"), ("edited", "b", "2018-07-01")):
        who = Author(author if name == "edited" else name)
        runs = [a_run(record, **parts)]
        write(folder, name, runs=runs, submitted=day, origin=None, ruleset="dawnbench-1.0", author=who)
    found = {(each.file, each.severity) for each in checked_folder(folder, today=DAY)[1] if each.code == "B244"}
    assert found == {("cifar10/training/original.json", "warning"), ("cifar10/training/edited.json", said)}


def test_a_price_below_that_of_any_machine_is_next_to_the_rank_that_it_wins():
    (said,) = doubts_at_rank([warning("B166", "a", "price.usd_per_hour", "1e-05 US dollars an hour")])
    assert said == "the price is lower than that of any machine: 1e-05 US dollars an hour"


def price_findings(clean, prices, **changes):
    """What entries are told of the prices of their machines; each has its own author unless ``changes`` name one."""
    rivals = Rivals()
    for file, usd in prices.items():
        stated = {"author.name": file, "price.usd_per_hour": usd, **changes.get(file, {})}
        rivals.add(trace_of(clean.make(changes=stated)), file)
    return [each for each in rivals.near(lambda file: []) if each.code == "B168"]


def priced(clean, prices, **changes):
    """The entries that are told that their board has a far higher price for their machine."""
    return {each.file for each in price_findings(clean, prices, **changes)}


def test_the_cheaper_of_two_prices_of_one_machine_is_told_of_the_other(clean):
    assert priced(clean, {"usual": 0.1, "dear": 0.19, "cheap": 0.0011}) == {"cheap"}
    other = {"hardware.description": "another machine"}
    assert priced(clean, {"usual": 0.1, "cheap": 0.0011}, cheap=other) == set()
    marks = {name: {"provenance.environment": {"machine.id": "b45422"}} for name in ("usual", "cheap")}
    assert priced(clean, {"usual": 0.1, "cheap": 0.0011}, usual=marks["usual"], cheap=other | marks["cheap"]) == {
        "cheap"
    }
    assert priced(clean, {"four nodes": 0.4, "one": 0.1}, **{"four nodes": {"hardware.nodes": 4}}) == set()


def test_one_absurd_price_accuses_nobody_else(clean):
    assert priced(clean, {"usual": 0.1, "another": 0.12, "absurd": 50.0}) == set()


def test_equal_prices_of_many_authors_are_the_middle_one_whatever_two_others_state(clean):
    usual = {f"author {number}": 0.1 for number in range(4)}
    assert priced(clean, {**usual, "cheap": 0.01, "cheaper": 0.011}) == {"cheap", "cheaper"}
    assert priced(clean, {**usual, "dear": 1.0, "dearer": 1.1}) == set()


def test_an_author_of_many_entries_does_not_set_the_middle_price_alone(clean):
    own = {f"cheap {number}": 0.01 + 0.0001 * number for number in range(4)}
    authors = {file: {"author.name": "one author"} for file in own}
    assert priced(clean, {"usual": 0.1, "another": 0.1, **own}, **authors) == set(own)


def test_a_price_is_told_apart_by_mark_or_words_of_the_machine(clean):
    machine = {name: {"provenance.environment": {"machine.id": mark}} for name, mark in (("a", "m1"), ("b", "m2"))}
    (of_words,) = price_findings(clean, {"a": 0.1, "b": 0.01}, **machine)
    assert of_words.found.endswith("0.1 is the middle price of 2 authors for machines described in the same words")
    machine["b"] = machine["a"] | {"hardware.description": "other words"}
    (of_mark,) = price_findings(clean, {"a": 0.1, "b": 0.01}, **machine)
    assert of_mark.found.endswith("0.1 is the middle price of 2 authors for machines with the same mark")


@pytest.mark.parametrize("code", ["B161", "B162", "B163", "B165"])
def test_a_price_that_nobody_can_look_up_is_next_to_the_rank_if_it_is_a_warning(code):
    assert len(doubts_at_rank([warning(code, "a", "price", "it is odd")])) == 1
    assert doubts_at_rank([note(code, "a", "price", "it is not stated")]) == []


@pytest.mark.parametrize("code", ["B124", "B153", "B168", "B207", "B209", "B213", "B234"])
def test_a_warning_that_a_figure_or_its_author_cannot_be_believed_is_next_to_the_rank(code):
    assert len(doubts_at_rank([warning(code, "a", "runs[0].seed", "it is not stated")])) == 1


def test_what_every_record_has_and_an_entry_leaves_out_is_next_to_its_rank():
    left_out = [warning("B178", "a", "runs[0].record_digest", "it is not stated")]
    left_out.append(warning("B191", "a", "runs.curve", "neither samples nor epochs are stated"))
    left_out.append(warning("B175", "a", "provenance.checksums", "there are none"))
    left_out.append(warning("B159", "a", "runs.phases_s", "5 of 5 runs do not state them"))
    said = doubts_at_rank(left_out)
    assert [each.rpartition(": ")[2] for each in said] == [each.found for each in left_out]
    assert doubts_at_rank([note("B191", "a", "settings", "unknown: the cost of a sample")]) == []
