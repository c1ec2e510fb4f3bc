"""BLEU of greedy translations, as sacrebleu computes it (Post 2018, arXiv:1804.08771), with its signature.

The one idea: a score without its signature means nothing, so the options are fixed here, and ``Bleu.signature`` says
what they were, with the version that computed it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import MissingError
from levelbench.networks.executor import Array, Executor
from levelbench.training.datasets.texts.tokens import BEGIN, END
from levelbench.training.quality.base import Quality

if TYPE_CHECKING:
    from levelbench.training.input.held import Held

__all__ = ["Bleu", "greedy"]

_ROWS = 250
# Prefixes grow by so many tokens at a time: a framework that compiles by shape compiles few shapes.
_STEP = 8


def greedy(
    infer: Callable[[Array], tuple[Array, ...]],
    array: Callable[[NDArray[Any]], Array],
    host: Callable[[Array], NDArray[Any]],
    rows: int,
    longest: int,
) -> NDArray[np.int64]:
    """(rows, longest): the most likely next token, again and again, until each row has its ``END``; 0 behind it.

    ``infer`` takes the tokens so far, (rows, some length) of int64 with ``BEGIN`` in front, and answers with logits
    (rows, that length, tokens) in which position i depends on tokens up to i alone.
    """
    prefix = np.zeros((rows, longest + 1), np.int64)
    prefix[:, 0] = BEGIN
    done = np.zeros(rows, bool)
    for at in range(longest):
        width = min(longest, (at // _STEP + 1) * _STEP)
        (logits, *_) = infer(array(np.ascontiguousarray(prefix[:, :width])))
        chosen = np.asarray(host(logits[:, at].argmax(-1)))
        prefix[:, at + 1] = np.where(done, 0, chosen)
        done |= chosen == END
        if done.all():
            break
    return prefix[:, 1:]


@dataclass(frozen=True)
class Bleu(Quality):
    """Corpus BLEU from 0 to 100: mixed case, tokenised as 13a, exponential smoothing, one reference.

    The split's inputs are those of the encoder and then the decoder's ``target_ids``; its ``reference`` has the texts
    and ``decode(ids)``.
    """

    metric: ClassVar[str] = "bleu"
    direction: ClassVar[Literal["higher", "lower"]] = "higher"
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 100.0

    def measure(self, executor: Executor, held: Held) -> float:
        """Translate all of ``held`` greedily and compare with the references."""
        return float(_scorer().corpus_score(self.translations(executor, held), [list(self._texts(held))]).score)

    def translations(self, executor: Executor, held: Held) -> list[str]:
        """The network's translation of each example, at most as long as the split's targets."""
        reference: Any = held.split.reference
        found: list[str] = []
        for columns in held.batches(_ROWS):
            *encoded, targets = columns[: -held.split.targets]
            rows, longest = targets.shape

            def infer(prefix: Array, encoded: list[Array] = encoded) -> tuple[Array, ...]:
                return executor.infer(*encoded, prefix)

            ids = greedy(infer, held.backend.array, held.backend.host, rows, longest)
            found += [reference.decode(row) for row in ids.tolist()]
        return found

    @property
    def signature(self) -> str:
        """What sacrebleu says of the options and of its version: to be kept beside every score."""
        scorer = _scorer()
        # The number of references is part of it, and known only when some were seen.
        scorer.corpus_score(["a"], [["a"]])
        return str(scorer.get_signature())

    @staticmethod
    def _texts(held: Held) -> Any:
        return held.split.reference


def _scorer() -> Any:
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise MissingError("BLEU", f"sacrebleu is not installed ({error})", 'pip install "levelbench[text]"') from None
    return BLEU(tokenize="13a", smooth_method="exp", lowercase=False, effective_order=False)
