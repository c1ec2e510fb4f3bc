"""A private test set: the organiser's signed score counts, and nobody else's; labels are never published."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files

import pytest

from levelbench.competition.entries import encode
from levelbench.competition.leaderboard import checked_folder, own_rulesets
from levelbench.competition.private import SCORE, score_predictions
from levelbench.competition.signatures import new_key
from levelbench.competition.site.build import build
from levelbench.errors import UsageError

pytest.importorskip("cryptography")
SALT = "# 3fQ9vX2mL8sTzR7wKp1d\n"
LABELS = SALT + "".join(f"{at % 10}\n" for at in range(200))


class Board:
    """A leaderboard of one entry whose rules have a private test set, and the organiser's key and labels."""

    def __init__(self, clean, place, labels=LABELS):
        self.clean, self.root, self.key = clean, place / "board", place / "organiser.pem"
        self.labels, self.predictions = place / "labels.txt", place / "predictions.txt"
        self.labels.write_text(labels)
        self.predictions.write_text("".join(f"{0 if at < 20 else at % 10}\n" for at in range(200)))
        self.public = new_key(self.key)
        text = (files("levelbench.competition.rulesets") / "data/levelbench-1.0.toml").read_text()
        text = text.replace('"levelbench-1.0"', '"own-1.0"').replace('name = "levelbench"', 'name = "own"')
        private = f'[tasks.private]\nlabels = "{hashlib.sha256(labels.encode()).hexdigest()}"\nkey = "{self.public}"\n'
        (self.root / "rulesets").mkdir(parents=True)
        (self.root / "rulesets" / "own.toml").write_text(
            text.replace("[tasks.inference]", f"{private}[tasks.inference]", 1)
        )
        self.entry = self.root / "digits" / "training" / "one.json"
        self.entry.parent.mkdir(parents=True)
        self.put()

    def put(self, **changes):
        self.entry.write_bytes(encode(self.clean.make(changes={"ruleset": "own-1.0", **changes})))

    @property
    def rules(self):
        return own_rulesets(self.root)[0]["own-1.0"].tasks[0].private

    def score(self, **other):
        given = {name: getattr(self, name) for name in ("labels", "predictions", "key")} | other
        return score_predictions(self.entry, self.rules, today=self.clean.today, **given)

    def found(self):
        findings = checked_folder(self.root, today=self.clean.today)[1]
        return [
            (each.code, each.severity, each.found) for each in findings if each.code in ("B267", "B268", "B269", "B251")
        ]

    def shown(self):
        built = build(self.root, self.root.parent / "site", today=self.clean.today)
        return [line for row in built.rankings[0].rows for line in row.said if "private" in line]


@pytest.fixture
def board(clean, tmp_path):
    return Board(clean, tmp_path)


def test_a_score_counts_the_right_answers_and_is_shown_in_the_row(board):
    score, path = board.score()
    assert (score.right, score.n) == (182, 200)
    assert path.name == "one.json.score"
    assert board.found() == []
    assert board.shown() == ["private test set: 91.0 % [86.2, 94.2] of 200 right, 2026-12-01"]


def test_more_right_answers_than_the_runs_had_are_a_doubt(board):
    board.predictions.write_text(LABELS.removeprefix(SALT))
    board.score()
    ((code, severity, said),) = board.found()
    assert (code, severity, said[:12]) == ("B269", "warning", "100.0% right")


def test_the_file_of_the_labels_is_no_prediction(board):
    with pytest.raises(UsageError, match="is the file of the labels"):
        board.score(predictions=board.labels)


def test_an_entry_without_a_score_says_so(board):
    assert board.found() == [("B267", "note", "there is no score")]
    assert board.shown() == ["not scored on the private test set"]


def test_a_score_holds_no_label_and_no_prediction(board):
    _, path = board.score()
    held = json.loads(path.read_text())
    assert set(held) == {"entry", "labels", "predictions", "right", "n", "scored", "signature"}


def test_a_score_of_an_entry_that_was_changed_since_does_not_count(board):
    board.score()
    board.put(model="another")
    assert board.found() == [("B268", "warning", "the entry was changed since")]
    assert board.shown() == ["not scored on the private test set"]


@pytest.mark.parametrize("change", [{"right": 200}, {"n": 182}, {"signature": "AAAA"}, {"scored": "2020-01-01"}])
def test_a_forged_score_keeps_the_entry_off_the_board(board, change):
    _, path = board.score()
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert board.found() == [("B268", "error", "the organiser's key did not sign it")]


def test_a_score_with_a_key_of_ones_own_is_refused(board, tmp_path):
    new_key(tmp_path / "mine.pem")
    with pytest.raises(UsageError, match="not the key that the rules name"):
        board.score(key=tmp_path / "mine.pem")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"right": 1}'])
def test_a_broken_score_is_an_error(board, text):
    board.entry.with_name(board.entry.name + SCORE).write_text(text)
    assert [each[:2] for each in board.found()] == [("B268", "error")]


def test_other_labels_than_those_of_the_rules_are_refused(board, tmp_path):
    (tmp_path / "others.txt").write_text(LABELS.replace("9\n", "8\n"))
    with pytest.raises(UsageError, match="the rules have"):
        board.score(labels=tmp_path / "others.txt")


@pytest.mark.parametrize("salt", ["", "# ---------------------\n", "# the labels of our private test set\n"])
def test_labels_without_random_characters_are_refused(clean, tmp_path, salt):
    with pytest.raises(UsageError, match="could be guessed from their digest"):
        Board(clean, tmp_path, salt + LABELS.removeprefix(SALT)).score()


def test_predictions_cannot_be_found_by_trying_all_that_are_possible(board):
    score, _ = board.score()
    assert score.predictions != hashlib.sha256(board.predictions.read_bytes()).hexdigest()


def test_an_entry_is_scored_once_unless_its_score_is_removed(board, tmp_path):
    others = tmp_path / "others.txt"
    others.write_text(board.predictions.read_text().replace("1\n", "2\n"))
    first, path = board.score()
    assert board.score()[0] == first
    with pytest.raises(UsageError, match="other predictions were scored on 2026-12-01"):
        board.score(predictions=others)
    path.unlink()
    assert board.score(predictions=others)[0].right < first.right


def test_a_forged_score_does_not_keep_the_organiser_from_scoring(board):
    first, path = board.score()
    path.write_text(json.dumps({**json.loads(path.read_text()), "predictions": "0" * 64}))
    assert board.score()[0] == first


def test_labels_in_the_leaderboard_are_refused(board):
    inside = board.root / "labels.txt"
    inside.write_text(LABELS)
    with pytest.raises(UsageError, match="is in the leaderboard, which is published"):
        board.score(labels=inside)


def test_another_number_of_predictions_is_refused(board):
    board.predictions.write_text("1\n2\n")
    with pytest.raises(UsageError, match="2 predictions for 200 labels"):
        board.score()


def test_a_score_without_an_entry_is_reported(board):
    board.score()
    board.entry.rename(board.entry.with_name("two.json"))
    found = checked_folder(board.root, today=board.clean.today)[1]
    assert [each.file for each in found if each.code == "B236"] == ["digits/training/one.json.score"]
