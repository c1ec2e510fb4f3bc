"""The linter's remarks on each entry, on its page, in the table and in the payload."""

import pickle
from datetime import date

import pytest

from levelbench.competition.claims import remarks_on_entry
from levelbench.competition.entries import Author, Hardware, Origin, Submission, SubmittedCurve, SubmittedRun, encode
from levelbench.competition.rulesets import ruleset, task_rules
from levelbench.competition.site.build import build
from levelbench.report.remarks import Remarks

TODAY = date(2024, 1, 2)
TARGET = task_rules(ruleset("dawnbench-1.0"), "cifar10").target


@pytest.fixture
def folder(tmp_path):
    """A leaderboard of one entry, whose curve ends with its crossing."""
    submission = Submission(
        schema=1, ruleset="dawnbench-1.0", task="cifar10", mode="training", author=Author("An author"),
        submitted="2018-07-01", model="net", framework="torch", hardware=Hardware("a machine"), target=TARGET,
        clock="dawnbench", crossing="first", origin=Origin("dawnbench", "net.json"),
        runs=[SubmittedRun(SubmittedCurve([1.0, 2.0], [0.9, 0.941]))],
    )  # fmt: skip
    place = tmp_path / "board" / "cifar10" / "training"
    place.mkdir(parents=True)
    (place / "net.json").write_bytes(encode(submission))
    return tmp_path / "board"


def pages(site):
    (entry,) = (site / "entries").glob("*.html")
    (board,) = site.glob("cifar10*.html")
    (data,) = (site / "data").glob("*_*.js")
    return entry.read_text(), board.read_text(), data.read_text()


def nothing_found(submission, where, rulesets=None):
    """A linter of another package that finds nothing."""
    return Remarks(submission.model, None, [], [], 0)


def test_an_entry_shows_what_the_linter_says_of_it(folder, tmp_path):
    build(folder, tmp_path / "site", today=TODAY, lint=remarks_on_entry)
    entry, board, data = pages(tmp_path / "site")
    assert "The linter on its claim" in entry
    assert "LB110" in entry
    assert "not stated; levelbench lint" in entry
    assert "lint: LB110" in board
    assert '"lint":[["LB110' in data


def test_an_entry_of_which_nobody_asked_the_linter_says_nothing_about_it(folder, tmp_path):
    build(folder, tmp_path / "site", today=TODAY)
    entry, board, _ = pages(tmp_path / "site")
    assert "linter" not in entry
    assert "lint:" not in board


def test_an_entry_on_which_it_finds_nothing_says_so(folder, tmp_path):
    build(folder, tmp_path / "site", today=TODAY, lint=nothing_found)
    assert "lint: nothing found" in pages(tmp_path / "site")[1]


def test_what_an_author_wrote_stays_text_in_the_linters_words(folder, tmp_path):
    (path,) = folder.rglob("net.json")
    path.write_text(path.read_text().replace('"net"', '"<img src=x>"'))
    build(folder, tmp_path / "site", today=TODAY, lint=remarks_on_entry)
    entry, *_ = pages(tmp_path / "site")
    assert "LB110" in entry
    assert "&lt;img src=x&gt;&#x27; ends with" in entry
    assert "<img" not in entry


def test_other_processes_have_the_linter_too():
    assert pickle.loads(pickle.dumps(remarks_on_entry)) is remarks_on_entry
