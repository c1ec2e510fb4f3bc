"""Reads SQuAD 1.1's JSON: questions whose answers are spans of a paragraph (Rajpurkar et al. 2016, arXiv:1606.05250).

The one idea: an answer is only an answer when the paragraph says it at the place that the file names. Everything else
is an error with the question's id in it, for a shifted answer trains a network on the wrong words in silence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from levelbench.errors import DataError
from levelbench.training.datasets.formats.text import read_text

__all__ = ["Answer", "Question", "read_squad"]

VERSION = "1.1"


@final
@dataclass(frozen=True)
class Answer:
    """A span of a paragraph: its text, and the character of the paragraph at which it starts."""

    text: str
    start: int


@final
@dataclass(frozen=True)
class Question:
    """A question with the paragraph that answers it, its article's title, and at least one answer."""

    id: str
    article: str
    context: str
    question: str
    answers: tuple[Answer, ...]


def read_squad(path: Path) -> list[Question]:
    """All questions of a file, in its order.

    :raises MissingError: when there is no such file.
    :raises DataError: when it is not UTF-8 or JSON, is of another version, lacks a part, names an answer that its
        paragraph does not hold at that place, or names an id twice.
    """
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:  # no JSON, or a number of thousands of digits
        raise _bad(path, f"it is not JSON ({error})") from None
    file = _Reader(path)
    root = file.mapping(content, "the file")
    version = root.get("version")
    if version != VERSION:
        raise _bad(path, f"its version is {version!r}, and this reads {VERSION!r}")
    found: list[Question] = []
    for article in file.items(root, "data", "the file"):
        title = file.text(article, "title", "an article")
        for paragraph in file.items(article, "paragraphs", f"article {title!r}"):
            context = file.text(paragraph, "context", f"a paragraph of {title!r}")
            asked = file.items(paragraph, "qas", f"a paragraph of {title!r}")
            found += [file.question(each, title, context) for each in asked]
    if not found:
        raise _bad(path, "it holds no question")
    seen: set[str] = set()
    for each in found:
        if each.id in seen:
            raise _bad(path, f"two questions have the id {each.id!r}")
        seen.add(each.id)
    return found


@final
@dataclass(frozen=True)
class _Reader:
    """Takes parts out of JSON; says where when a part is not what it should be."""

    path: Path

    def question(self, item: Mapping[str, Any], article: str, context: str) -> Question:
        """One question, its answers held against the paragraph."""
        name = self.text(item, "id", f"a question of {article!r}")
        where = f"question {name!r}"
        answers = []
        for each in self.items(item, "answers", where):
            text, start = self.text(each, "text", f"an answer of {where}"), each.get("answer_start")
            if not isinstance(start, int) or isinstance(start, bool) or not 0 <= start < len(context):
                raise _bad(self.path, f"an answer of {where} starts at {start!r}, outside its paragraph")
            if context[start : start + len(text)] != text:
                said = context[start : start + len(text)]
                raise _bad(self.path, f"an answer of {where} is {text!r}, and its paragraph says {said!r} there")
            answers.append(Answer(text, start))
        if not answers:
            raise _bad(self.path, f"{where} has no answer")
        return Question(name, article, context, self.text(item, "question", where), tuple(answers))

    def mapping(self, item: object, where: str) -> Mapping[str, Any]:
        """``item`` if it is a JSON object."""
        if not isinstance(item, dict):
            raise _bad(self.path, f"{where} is a {type(item).__name__} and no object")
        return item

    def items(self, item: Mapping[str, Any], key: str, where: str) -> list[Mapping[str, Any]]:
        """The objects of the list ``item[key]``."""
        found = item.get(key)
        if not isinstance(found, list):
            raise _bad(self.path, f"{where} has no list {key!r}")
        return [self.mapping(each, f"an item of {key!r} in {where}") for each in found]

    def text(self, item: Mapping[str, Any], key: str, where: str) -> str:
        """The string ``item[key]``, which is not empty and may be written as UTF-8."""
        found = item.get(key)
        if not isinstance(found, str) or not found:
            raise _bad(self.path, f"{where} has no text {key!r}")
        try:
            found.encode()
        except UnicodeEncodeError as error:
            half = found[error.start]
            raise _bad(self.path, f"{key!r} in {where} has half of a character, {half!r}") from None
        return found


def _bad(path: Path, found: str) -> DataError:
    return DataError(f"reading {path} as SQuAD {VERSION}", found, "Fetch the file again")
