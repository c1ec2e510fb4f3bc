"""Character and word error rates of what a network transcribes, by jiwer.

A transcript is made of the network's logits alone: the likeliest symbol of each frame, of which equal ones in a row are
one, without blanks. That is the same for all recipes of a task.
"""

from __future__ import annotations

import importlib.metadata
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DataError, DefinitionError, MissingError
from levelbench.networks.executor import Executor
from levelbench.training.quality import Quality

if TYPE_CHECKING:
    from levelbench.training.input import Held

_ROWS = 250
_INSTALL = 'pip install "levelbench[speech]"'


@dataclass(frozen=True)
class _ErrorRate(Quality):
    """Substitutions, deletions and insertions over all examples, divided by the length of all references.

    The network's first output are logits (n, frames, symbols), of which symbol 0 is CTC's blank; labels are (n, most),
    symbols from 1 with zeros after the last. Symbol k is character k - 1 of ``alphabet``. Above 1 if more is said than
    there is. A frame whose logits are not all finite says nothing. Spaces at the ends do not count.
    """

    alphabet: str = "0123456789"
    direction: ClassVar[Literal["higher", "lower"]] = "lower"
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = float("inf")

    def __post_init__(self) -> None:
        if not self.alphabet or len(set(self.alphabet)) != len(self.alphabet):
            found = f"its alphabet is {self.alphabet!r}"
            raise DefinitionError(f"the quality {self.metric}", found, "give one character for each symbol, each once")

    @property
    def signature(self) -> str:
        """The version of jiwer, and how a transcript is made."""
        _jiwer()
        return f"jiwer {importlib.metadata.version('jiwer')}, likeliest symbol of each frame, alphabet {self.alphabet}"

    def lacks(self) -> str | None:
        return None if find_spec("jiwer") else f"jiwer is not installed: {_INSTALL}"

    def measure(self, executor: Executor, held: Held) -> float:
        """Over the whole split at once.

        :raises DataError: when no example has a label.
        """
        said: list[str] = []
        wanted: list[str] = []
        for *inputs, labels in held.batches(_ROWS):
            logits = np.asarray(held.backend.host(executor.infer(*inputs)[0]))
            said += [self._text(row) for row in spoken(logits)]
            wanted += [self._text(row[row > 0].tolist()) for row in np.asarray(held.backend.host(labels))]
        if not any(wanted):
            raise DataError(f"measuring {self.metric}", "no example has a label", "give a split with some")
        return self.rate(wanted, said)

    def _text(self, symbols: Sequence[int]) -> str:
        return "".join(self.alphabet[each - 1] for each in symbols)

    @abstractmethod
    def rate(self, wanted: list[str], said: list[str]) -> float:
        """Of the texts that were ``said`` where others were ``wanted``."""


@final
@dataclass(frozen=True)
class CharacterErrorRate(_ErrorRate):
    """The errors in characters."""

    metric: ClassVar[str] = "cer"

    def rate(self, wanted: list[str], said: list[str]) -> float:
        return float(_jiwer().process_characters(wanted, said).cer)


@final
@dataclass(frozen=True)
class WordErrorRate(_ErrorRate):
    """The errors in words, which are separated by spaces."""

    metric: ClassVar[str] = "wer"

    def rate(self, wanted: list[str], said: list[str]) -> float:
        return float(_jiwer().process_words(wanted, said).wer)


def spoken(logits: NDArray[Any]) -> list[list[int]]:
    """The symbols of each row of ``logits`` (n, frames, symbols): equal ones in a row once, without blanks (0)."""
    best = np.where(np.isfinite(logits).all(axis=2), logits.argmax(axis=2), 0)
    new = np.diff(best, axis=1, prepend=0) != 0
    return [row[starts & (row > 0)].tolist() for row, starts in zip(best, new, strict=True)]


def _jiwer() -> Any:
    try:
        import jiwer
    except ImportError as error:
        raise MissingError("an error rate", f"jiwer is not installed ({error})", _INSTALL) from None
    return jiwer
