"""Which combinations of factors to run: full and fractional factorial designs, one at a time, lesion.

A fractional factorial runs 2^(k - p) of the 2^k combinations: ``p`` factors are on where the product of others is, in
the sense of signs (on is +, off is -). What it saves, it pays in aliases: effects that no run of it can tell apart. The
*resolution* is the length of the shortest product that is constant. At IV no main effect is aliased with another or
with an interaction of two factors; at V no two interactions of two factors are aliased either. The generators are those
of Box, Hunter & Hunter, Statistics for Experimenters (2nd edition 2005, chapter 6), of 16 runs where these are enough
for resolution IV, else of 32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from levelbench.errors import UsageError

__all__ = ["Fraction", "designs", "fraction", "lesion", "one_at_a_time"]

_LETTERS = "ABCDEFGHJKL"
"""The names of factors in the book, which leaves out I: it stands for the identity."""
_GENERATORS = {
    5: ("E=ABCD",),
    6: ("E=ABC", "F=BCD"),
    7: ("E=ABC", "F=BCD", "G=ACD"),
    8: ("E=BCD", "F=ACD", "G=ABC", "H=ABD"),
    9: ("F=BCDE", "G=ACDE", "H=ABDE", "J=ABCE"),
    10: ("F=ABCD", "G=ABCE", "H=ABDE", "J=ACDE", "K=BCDE"),
    11: ("F=ABC", "G=BCD", "H=CDE", "J=ACD", "K=ADE", "L=BDE"),
}
_ROMAN = {3: "III", 4: "IV", 5: "V", 6: "VI"}

Word = frozenset[str]
"""A product of factors: as squares are +1, a factor is in it or not."""


def designs(factors: Sequence[str]) -> list[Word]:
    """The full factorial design: every subset of the factors, none first, all last."""
    return [frozenset(chosen) for size in range(len(factors) + 1) for chosen in combinations(factors, size)]


def one_at_a_time(factors: Sequence[str]) -> list[Word]:
    """None, each alone, all: the fewest arms that show whether the factors compose."""
    every = frozenset(factors)
    return list(dict.fromkeys([frozenset[str](), *(frozenset([each]) for each in factors), every]))


def lesion(factors: Sequence[str]) -> list[Word]:
    """All, and all but one: what each factor still gains where the others are on."""
    every = frozenset(factors)
    return [every, *(every - {each} for each in factors)]


@dataclass(frozen=True)
class Fraction:
    """A regular fraction of the full factorial design of ``factors``.

    ``arms`` are the factors that are on in each, ``words`` the products that are constantly + (the defining relation,
    without the identity), ``generators`` those that define it, in words.
    """

    factors: tuple[str, ...]
    arms: tuple[Word, ...]
    words: frozenset[Word]
    generators: tuple[str, ...]

    @property
    def resolution(self) -> int:
        """The length of the shortest word of the defining relation."""
        return min(map(len, self.words))

    @property
    def name(self) -> str:
        """Its usual name: ``2^(7-3) of resolution IV``."""
        k = len(self.factors)
        left = round(math.log2(len(self.arms)))
        return f"2^({k}-{k - left}) of resolution {_ROMAN.get(self.resolution, self.resolution)}"

    def sign(self, subset: Sequence[str], arm: Word) -> int:
        """The sign of the product of ``subset`` in ``arm``: +1 or -1."""
        return -1 if sum(each not in arm for each in subset) % 2 else 1

    def aliases(self, subset: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """The effects of one and two factors that this fraction cannot tell from that of ``subset``."""
        own = frozenset(subset)
        found = {own ^ word for word in self.words}
        return tuple(sorted(self._ordered(each) for each in found if 0 < len(each) <= 2))

    def effects(self) -> list[tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]]:
        """Every effect of one or two factors, with its aliases; of effects that are aliased, the first alone."""
        found, seen = [], set[tuple[str, ...]]()
        for size in (1, 2):
            for subset in combinations(self.factors, size):
                if subset not in seen:
                    aliased = self.aliases(subset)
                    seen.update(aliased)
                    found.append((subset, aliased))
        return found

    def _ordered(self, word: Word) -> tuple[str, ...]:
        return tuple(each for each in self.factors if each in word)


def fraction(factors: Sequence[str]) -> Fraction:
    """The fraction for 5 to 11 factors: of 16 arms up to 8 factors, else of 32; ``UsageError`` for other numbers."""
    if len(factors) not in _GENERATORS:
        few = len(factors) < min(_GENERATORS)
        found = f"there are {len(factors)}, and fractions are known for {min(_GENERATORS)} to {max(_GENERATORS)}"
        do = "use --design full" if few else "use --design one, or fewer factors"
        raise UsageError("a fractional factorial design", found, do)
    named = dict(zip(_LETTERS, factors, strict=False))
    rules = {named[each[0]]: frozenset(named[letter] for letter in each[2:]) for each in _GENERATORS[len(factors)]}
    basic = [each for each in factors if each not in rules]
    arms = []
    for chosen in designs(basic):
        made = {name for name, product in rules.items() if not len(product - chosen) % 2}
        arms.append(chosen | made)
    given = [product | {name} for name, product in rules.items()]
    words = set[Word]()
    for size in range(1, len(given) + 1):
        for several in combinations(given, size):
            word = Word()
            for each in several:
                word ^= each
            words.add(word)
    said = tuple(f"{name} = {' x '.join(each for each in factors if each in rules[name])}" for name in rules)
    return Fraction(tuple(factors), tuple(arms), frozenset(words), said)
