"""A paragraph with its answers, as the quality of a reader needs it: words by their places, and text between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

__all__ = ["Passage"]


@final
@dataclass(frozen=True)
class Passage:
    """What a prediction is judged by: the paragraph, where its tokens start and end in it, and the answers."""

    context: str
    spans: Sequence[tuple[int, int]]
    answers: tuple[str, ...]

    def text(self, first: int, last: int) -> str:
        """The paragraph from token ``first`` to token ``last``, both inside; empty where there is no such token."""
        if first >= len(self.spans):
            return ""
        return self.context[self.spans[first][0] : self.spans[min(last, len(self.spans) - 1)][1]]
