"""LB301: a BLEU score without its signature is a number in an unknown unit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import ComparedPair, guilty, not_stated, number, pairs, sides
from levelbench.claims.view import Claim, QualityView

_DO = "score detokenised output with sacrebleu and give its signature"
_BLEU = re.compile(r"(?<![a-z])(sacre)?bleu(?!rt)")
_DECIDES = {"tok": "tokeniser", "case": "case", "nrefs": "references", "test": "test set", "lang": "languages"}
_NAMES = {"#": "nrefs", "numrefs": "nrefs", "refs": "nrefs", "c": "case", "tokenize": "tok", "t": "test", "l": "lang"}


def _check(claim: Claim) -> Iterator[Diagnostic]:
    for field, side in sides(claim):
        quality = side.quality
        if _is_bleu(quality) and (quality.value is not None or quality.target is not None):
            yield from _one(f"{field}.quality.signature", side.name, quality, side.where)
    for pair in pairs(claim):
        if _is_bleu(pair.new.quality) and _is_bleu(pair.base.quality):
            yield from _two(pair)


def _is_bleu(quality: QualityView) -> bool:
    return quality.metric is not None and _BLEU.search(quality.metric.lower()) is not None


def _parts(signature: str) -> dict[str, str]:
    """The fields of sacrebleu's signature, of either form: ``tok:13a|...`` since version 2, ``tok.13a+...`` before."""
    between, of = ("|", ":") if ":" in signature else ("+", ".")
    found = {}
    for word in signature.strip().split(between):
        name, has, value = word.strip().partition(of)
        if has and value:
            found[_NAMES.get(name.lower(), name.lower())] = value.strip().lower()
    return found


def _one(field: str, name: str, quality: QualityView, where: str) -> Iterator[Diagnostic]:
    if quality.signature is None:
        what = f"how the {quality.metric} of '{name}' was computed (tokeniser, case, references)"
        yield not_stated(field, what, _DO, where)
        return
    parts = _parts(quality.signature)
    if not quality.signature.strip():
        found = f"the {quality.metric} of '{name}' is given without a signature"
    elif "tok" not in parts:
        found = f"'{quality.signature}' does not say how the {quality.metric} of '{name}' was tokenised"
    elif parts["tok"] == "none":
        found = f"the {quality.metric} of '{name}' is of previously tokenised text (tok: none), and it is unknown how"
    else:
        return
    yield guilty(field, found, _DO, where, "warning")


def _two(pair: ComparedPair) -> Iterator[Diagnostic]:
    new, base = pair.new.quality, pair.base.quality
    one, other = _parts(new.signature or ""), _parts(base.signature or "")
    unlike = [name for name in _DECIDES if name in one and name in other and one[name] != other[name]]
    if unlike:
        named = "; ".join(f"{_DECIDES[name]} {one[name]} and {other[name]}" for name in unlike)
        found = f"the scores of '{pair.new.name}' and '{pair.base.name}' were computed differently ({named})"
        do = "score both outputs with one signature"
        yield guilty(f"{pair.new_field}.quality.signature", found, do, pair.where)
    elif _is_of_quality(pair) and new.value and base.value and not (new.signature and base.signature):
        without = [f"'{side.name}'" for side in (pair.new, pair.base) if not side.quality.signature]
        found = f"scores of {number(new.value, 4)} and {number(base.value, 4)} are compared, and nothing says how"
        found += (
            f" {' and '.join(without)} {'was' if len(without) == 1 else 'were'} scored: tokenisers alone differ by more"
        )
        do = "score both outputs with one signature"
        yield guilty(f"{pair.new_field}.quality.signature", found, do, pair.where, "warning")
    if new.value and base.value and (new.value <= 1.0) != (base.value <= 1.0):
        found = f"'{pair.new.name}' has a score of {number(new.value, 4)} and '{pair.base.name}' of"
        found += f" {number(base.value, 4)}: one seems to be a fraction and the other a percentage"
        do = "give both from 0 to 100, as sacrebleu does"
        yield guilty(f"{pair.new_field}.quality.value", found, do, pair.where, "warning")


def _is_of_quality(pair: ComparedPair) -> bool:
    """Whether the scores are what is compared: said to be, or nothing else is there."""
    of = pair.comparison.of
    return of == "quality" or (of is None and pair.new.time_s is None and pair.base.time_s is None)


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
