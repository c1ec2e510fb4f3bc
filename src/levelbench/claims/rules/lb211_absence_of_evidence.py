"""LB211: a test that finds nothing is given as proof of no difference, or beside a difference that is claimed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import ComparedPair, guilty, number, pairs, percent
from levelbench.claims.view import Claim, Side

_LEVEL = 0.05
_SAME = re.compile(
    r"\b(?:no (?:\w+ )?(?:difference|overhead|loss|slowdown|cost|penalty)|"
    r"without (?:any )?(?:loss|overhead|slowdown|penalty)|negligible|on par|as (?:fast|good|accurate) as|the same|"
    r"equally|equal to|equivalent|identical|alike|comparable|matches|indistinguishable|cannot be told from|for free|"
    r"same (?:accuracy|quality|performance|speed|loss|time)|lossless|unaffected|unchanged|(?:do|does) not suffer|"
    r"(?:preserv|retain|maintain)(?:s|ed|es)?)\b",
    re.IGNORECASE,
)
_SAYS_ONLY_THAT = re.compile(
    r"\b(?:found|find|saw|see|detected?)\b(?: \w+)? no\b|"
    r"\bno (?:\w+ ){1,4}(?:was|were|is|are) (?:found|seen|detected)\b|"
    r"\b(?:could|can) ?not (?:be )?(?:show|find|found|see|seen|detect)",
    re.IGNORECASE,
)
"""What a test without a finding does show: that nothing was found."""
_OF_SPEED = re.compile(r"overhead|slow|cost|penalty|free|fast", re.IGNORECASE)
_ROOM = 0.9
"""The ratio below which an interval does not show that nothing is lost, however little may matter."""
_BOUND = "give the interval of the ratio, and the size below which a difference does not matter: it has to lie inside"
_MORE = "say that no difference was found, or make more runs: levelbench compare says how many"

_NONE = re.compile(
    r"\b(?:(?:no|without)(?: an?)?(?: any)?(?: statistically)?"
    r"(?: (?:significant|measurable|noticeable|appreciable|real|visible|discernible|detectable|perceptible))?"
    r"(?: (?:accuracy|quality|performance|speed|runtime))? "
    r"(?:loss|overhead|slow-?down|penalty|degradation|drop|additional cost)"
    r"(?! (?:functions?|scal\w+|spikes?|terms?)\b)|"
    r"(?:zero|no)[- ](?:cost|overhead) \w+ing|costs nothing|imperceptible (?:loss|overhead|slow-?down|drop)|"
    r"no (?:significant|measurable|noticeable) cost|equally (?:fast|good|accurate)|indistinguishable|"
    r"negligible (?:\w+ )?(?:loss|overhead|slow-?down|penalty|degradation|drop|costs?|effect|impact|difference)|"
    r"(?:is|are) negligible|leaves? (?:\w+ ){1,3}(?:unchanged|intact)|"
    r"(?:is|are|runs?) for free|comes? for free|(?:virtually|nearly|near|practically|almost)[- ]lossless|"
    r"lossless (?:\S+ ){0,2}(?:in practice|quanti[sz]\w+|pruning|speed-?up)|"
    r"cannot be told from|without (?:losing|hurting|harming|sacrificing|slowing|degrading)|"
    r"(?:is|are|stays?|lies?) (?:well )?within (?:the |measurement )*noise|"
    r"(?:virtually|practically|nearly|almost|essentially)[- ]free|(?:accuracy|quality|loss)[- ]neutral|"
    r"(?<!found )(?<!find )(?<!saw )(?<!see )(?<!shows )"
    r"no (?:significant |measurable |noticeable )?difference (?:between|in|to|from)|"
    r"(?:does not|do not|doesn't|don't) (?:hurt|harm|degrade|sacrifice)|"
    r"no (?:better|worse|faster|slower|(?:more|less) accurate) than)\b",
    re.IGNORECASE,
)
"""What says that there is no difference, and not under which condition another one is claimed."""


_SAME_QUALITY = re.compile(
    r"\b(?:(?:same|identical|comparable|equal|equivalent) (?:\w+ )?|match(?:es|ing)? (?:\S+ ){0,4})"
    r"(?:accuracy|quality|loss|perplexity|bleu|f1|map|performance)\b|\bon par\b|\bas (?:good|accurate) as\b",
    re.IGNORECASE,
)


def _check(claim: Claim) -> Iterator[Diagnostic]:
    none = _NONE.search(claim.title)
    said = _SAME.search(claim.title) or none
    if claim.comparisons and all(each.of == "quality" for each in claim.comparisons):
        # Beside a speed, "the same accuracy" is its condition; alone, it is what is claimed.
        none = none or _SAME_QUALITY.search(claim.title)
    if none and not any(_bounded(pair) for pair in pairs(claim)):
        found = f"the claim says '{none[0]}', and gives neither a test nor an interval in which a difference may lie"
        yield guilty("title", found, _BOUND, claim.where, "warning")
    elif none:
        yield from _wide(claim, none[0])
    for pair in pairs(claim):
        p_value = pair.comparison.p_value
        if p_value is None:
            continue
        if impossible := _of_one_run(pair, p_value):
            yield impossible
        elif p_value >= _LEVEL and pair.comparison.interval is None:
            claims_it = said is not None and not _SAYS_ONLY_THAT.search(claim.title)
            yield from _nothing_found(pair, p_value, said[0] if said and claims_it else "")


def _bounded(pair: ComparedPair) -> bool:
    """Whether a difference of the two sides has a bound, or a test that is judged by itself.

    The interval of one side alone does not bound their difference.
    """
    comparison = pair.comparison
    if comparison.p_value is not None or comparison.interval is not None:
        return True
    return all(side.quality.low is not None or side.interval is not None for side in (pair.new, pair.base))


def _wide(claim: Claim, word: str) -> Iterator[Diagnostic]:
    """No difference is claimed, and the interval of the ratio has room for one that matters."""
    of_speed = _OF_SPEED.search(word) is not None
    for pair in pairs(claim):
        bounds = pair.comparison.interval
        if (
            bounds is None
            or (pair.comparison.of != "quality") is not of_speed
            or not bounds[0] < _ROOM <= 1 <= bounds[1]
        ):
            continue
        found = (
            f"the claim says '{word}' of '{pair.new.name}' and '{pair.base.name}', and the interval of their ratio, "
            f"[{number(bounds[0])}, {number(bounds[1])}], has room for a difference of {percent(1 - bounds[0])}"
        )
        yield guilty(f"{pair.field}.interval", found, _BOUND, pair.where, "warning")


def _of_one_run(pair: ComparedPair, p_value: float) -> Diagnostic | None:
    """One run a side has no spread, so no test of their difference has a p-value."""
    if not all(_single(side) for side in (pair.new, pair.base)):
        return None
    found = f"p = {number(p_value)} of one run of '{pair.new.name}' and one of '{pair.base.name}'"
    do = "say what a replicate was, and make at least three runs of each side"
    return guilty(f"{pair.field}.p_value", f"{found}: one run shows no spread to test against", do, pair.where)


def _single(side: Side) -> bool:
    return side.runs_made == 1 or (side.runs_made is None and (side.reported == "single" or len(side.runs) == 1))


def _nothing_found(pair: ComparedPair, p_value: float, word: str) -> Iterator[Diagnostic]:
    p, sides = f"p = {number(p_value)}", f"'{pair.new.name}' and '{pair.base.name}'"
    ratio = pair.comparison.ratio
    if word:
        found = f"the claim says '{word}' of {sides}, and {p} only says that these runs could not show a difference"
        yield guilty(f"{pair.field}.p_value", found, _BOUND, pair.where, "warning")
    elif ratio is not None and ratio != 1:
        found = f"{number(ratio, 4)} times is claimed of {sides}, and its own test finds no difference ({p})"
        yield guilty(f"{pair.field}.p_value", found, _MORE, pair.where, "warning")


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
