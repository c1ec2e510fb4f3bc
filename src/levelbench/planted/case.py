"""What a planted class claims to be, and what is wrong with it, if anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from levelbench.checks.self_test import Planted

ASPECTS = frozenset(
    "value gradient shape dtype attributes inputs-changed aliasing state memory determinism special-values strides"
    " size saving rank-agreement lost-update bias crash hang".split()
)
"""What a report may name."""


def cases(
    seed: int, right: Iterable[Callable[..., Any]], wrong: Mapping[Callable[..., Any], str]
) -> dict[str, Planted]:
    """Parts by name. ``wrong`` gives the aspects of each fault, which the docstring describes; a third is held back."""
    found = {each.__name__: Planted(None, (), _claim(each)) for each in right}
    for each, words in wrong.items():
        aspects = tuple(words.split())
        if not each.__doc__ or not aspects or not set(aspects) <= ASPECTS or each.__name__ in found:
            raise ValueError(f"{each.__name__}: give it a docstring, known aspects, and one place in the table")
        found[each.__name__] = Planted(" ".join(each.__doc__.split()), aspects, _claim(each))
    held = set(Random(seed).sample(sorted(found), round(len(found) / 3)))
    return {name: replace(part, held_back=name in held) for name, part in found.items()}


def _claim(each: Callable[..., Any]) -> str:
    return getattr(each, "claims", None) or ""
