"""Scores on a private test set: the organiser counts right answers, with labels that nobody else has.

The inputs are public, and an author sends the predictions of the entry's model for them. What is published is how many
are right, signed by the organiser and bound to the bytes of the entry, and the digests of labels and predictions. Since
a digest lets anybody try labels until it agrees, the file of the labels begins with a line of random characters.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import date
from pathlib import Path

import msgspec
from msgspec import Struct

from levelbench.competition.checks import EntryFinding, error, note, warning
from levelbench.competition.entries import UnreadableError, read_bytes, write_whole
from levelbench.competition.rulesets import PrivateRules
from levelbench.competition.signatures import available, public_text, read_key, signature_of
from levelbench.errors import UsageError
from levelbench.measure.statistics import wilson

SCORE = ".score"
"""The ending of a score's file, after the name of the entry's."""
UNSCORED = "not scored on the private test set"
_COMMENT, _LEAST_SALT, _LEAST_DIFFERENT = "#", 16, 8
_ANSWER_BYTES, _SCORE_BYTES = 1 << 28, 1 << 14


class PrivateScore(Struct, frozen=True, forbid_unknown_fields=True):
    """``right`` of ``n`` predictions agree with the labels; the SHA-256 of the three files, and the day of scoring.

    That of the predictions covers the labels' file before them: of few answers, which may all be right, anybody could
    try all that are possible until a plain digest agrees.
    """

    entry: str
    labels: str
    predictions: str
    right: int
    n: int
    scored: str
    signature: str = ""

    @property
    def signed_bytes(self) -> bytes:
        """What the organiser signs: all but the signature."""
        return msgspec.json.encode(msgspec.structs.replace(self, signature=""), order="deterministic")

    def words(self) -> str:
        """The share of right answers with Wilson's 95 % interval."""
        share, within = 100.0 * self.right / self.n, wilson(self.right, self.n)
        interval = f"[{100.0 * within.low:.1f}, {100.0 * within.high:.1f}]"
        return f"private test set: {share:.1f} % {interval} of {self.n:,} right, {self.scored}"


def score_predictions(
    entry: Path, rules: PrivateRules, labels: Path, predictions: Path, key: Path, today: date
) -> tuple[PrivateScore, Path]:
    """Count the right answers in ``predictions``, and write the signed score next to the file ``entry``.

    Both files have one answer per line; lines that begin with # do not count. Raises ``UsageError`` if the labels are
    not those of the rules, have no line of random characters or lie in the leaderboard, if the numbers of answers
    differ, if the key is not the organiser's, or if the entry has a score of other predictions.
    """
    asked, raw = f"scoring {entry}", read_bytes(entry)
    if labels.resolve().is_relative_to(entry.resolve().parents[2]):
        raise UsageError(asked, f"{labels} is in the leaderboard, which is published", "keep the labels elsewhere")
    held, given = read_bytes(labels, limit=_ANSWER_BYTES), read_bytes(predictions, limit=_ANSWER_BYTES)
    digest = hashlib.sha256(held).hexdigest()
    (comments, right), (_, answers) = _lines(held), _lines(given)
    words = [word for each in comments for word in each.lstrip(_COMMENT).split()]
    if not any(len(word) >= _LEAST_SALT and len(set(word)) >= _LEAST_DIFFERENT for word in words):
        found = "the labels could be guessed from their digest, which is published"
        do = f"begin their file with # and {_LEAST_SALT} random characters or more, without spaces, and use its SHA-256"
        raise UsageError(asked, found, do)
    if digest != rules.labels:
        found = f"the SHA-256 of {labels} is {digest}; the rules have {rules.labels}"
        raise UsageError(asked, found, "give the file of the rules, or put its digest into them")
    if len(right) != len(answers) or not right:
        found = f"{len(answers)} predictions for {len(right)} labels"
        raise UsageError(asked, found, "give one answer per line, in the order of the inputs")
    if given == held:
        raise UsageError(asked, f"{predictions} is the file of the labels", "give the predictions of the author")
    private = read_key(key)
    if public_text(private.public_key()) != rules.key:
        raise UsageError(asked, f"{key} is not the key that the rules name", "sign with the organiser's key")
    place, of_predictions = entry.with_name(entry.name + SCORE), hashlib.sha256(held + given).hexdigest()
    before = _earlier(place, hashlib.sha256(raw).hexdigest(), rules)
    if before is not None and before.predictions != of_predictions:
        found = f"other predictions were scored on {before.scored}, and each score tells something about the labels"
        raise UsageError(asked, found, f"leave it, or remove {place} first")
    found_right = sum(a == b for a, b in zip(right, answers, strict=True))
    score = PrivateScore(
        entry=hashlib.sha256(raw).hexdigest(),
        labels=digest,
        predictions=of_predictions,
        right=found_right,
        n=len(right),
        scored=today.isoformat(),
    )
    signature = base64.b64encode(private.sign(score.signed_bytes)).decode("ascii")
    score = msgspec.structs.replace(score, signature=signature)
    return score, write_whole(place, msgspec.json.encode(score) + b"\n")


def _earlier(place: Path, entry: str, rules: PrivateRules) -> PrivateScore | None:
    """The organiser's score at ``place`` of the same bytes of the ``entry``; ``None`` if there is no such score."""
    try:
        score = msgspec.json.decode(read_bytes(place, limit=_SCORE_BYTES), type=PrivateScore)
    except (UnreadableError, msgspec.DecodeError):
        return None
    ours = signature_of(score.signed_bytes, score.signature.encode("utf-8", "replace"), [rules.key]) is not None
    return score if ours and (score.entry, score.labels) == (entry, rules.labels) else None


def _lines(raw: bytes) -> tuple[list[str], list[str]]:
    """The comments and the answers of a file."""
    lines = [line.strip() for line in raw.decode("utf-8", "replace").removeprefix("\ufeff").splitlines()]
    filled = [line for line in lines if line]
    return [each for each in filled if each.startswith(_COMMENT)], [
        each for each in filled if not each.startswith(_COMMENT)
    ]


def private_score(
    path: Path, file: str, raw: bytes, rules: PrivateRules, best: float | None = None
) -> tuple[str, list[EntryFinding]]:
    """What the organiser's score says of the entry at ``path``, whose bytes are ``raw``, and findings about it.

    ``best`` is the highest share of right answers that a run of the entry states, if its quality is one.
    """
    name, place = f"{file}{SCORE}", path.with_name(path.name + SCORE)
    try:
        score = msgspec.json.decode(read_bytes(place, limit=_SCORE_BYTES), type=PrivateScore)
    except UnreadableError as problem:
        if place.is_symlink() or place.exists():
            return UNSCORED, [error("B268", name, "", problem.found, problem.do)]
        return UNSCORED, [note("B267", file, "", "there is no score")]
    except msgspec.DecodeError as problem:
        return UNSCORED, [error("B268", name, "", f"it is not a score ({str(problem)[:200]})")]
    if not available():
        return UNSCORED, [warning("B231", name, "", "cryptography is not installed")]
    signature = score.signature.encode("utf-8", "replace")
    possible = 0 <= score.right <= score.n and score.n > 0
    if not possible or signature_of(score.signed_bytes, signature, [rules.key]) is None:
        return UNSCORED, [error("B268", name, "signature", "the organiser's key did not sign it")]
    if score.labels != rules.labels:
        return UNSCORED, [error("B268", name, "labels", "it was scored with other labels than those of the rules")]
    if score.entry != hashlib.sha256(raw).hexdigest():
        return UNSCORED, [warning("B268", name, "entry", "the entry was changed since")]
    return score.words(), [] if best is None else _too_good(name, score, best)


def _too_good(name: str, score: PrivateScore, best: float) -> list[EntryFinding]:
    """Whether more answers are right than luck allows a model of the ``best`` quality: the labels may have leaked."""
    if wilson(score.right, score.n).low <= best:
        return []
    found = f"{score.right / score.n:.1%} right, and the best quality of its runs is {best:.1%}"
    return [warning("B269", name, "right", found)]
