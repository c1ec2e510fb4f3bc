"""LB211: a test that finds nothing is given as proof of no difference, or beside a difference that is claimed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import ComparedPair, far_worse, guilty, level_of, number, pairs, percent
from levelbench.claims.view import Claim, Side

_LEVEL = 0.05
_SAME = re.compile(
    r"\b(?:no (?:\w+ )?(?:difference|overhead|loss|slowdown|cost|penalty)|"
    r"without (?:any )?(?:loss|overhead|slowdown|penalty)|negligible|on par|as (?:fast|good|accurate) as|the same|"
    r"equally|equal to|equivalent|identical|alike|comparable|matches|indistinguishable|cannot be told from|for free|"
    r"same (?:accuracy|quality|performance|speed|loss|time|convergence|results?)|"
    r"lossless|unaffected|unchanged|(?:do|does) not suffer|"
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
_OF_SPEED = re.compile(r"overhead|slow|cost|penalty|free|fast|quick|speed|throughput|latency|time", re.IGNORECASE)
_OF_QUALITY = re.compile(r"loss|accura|qualit|degrad|perplex|bleu|\bf1\b", re.IGNORECASE)
_ROOM = 0.9
"""The ratio below which an interval does not show that nothing is lost, however little may matter."""
_BOUND = "give the interval of the ratio, and the size below which a difference does not matter: it has to lie inside"
_MORE = "say that no difference was found, or make more runs: levelbench compare says how many"

_NONE = re.compile(
    r"(?<!non-)\b(?:(?:no|without)(?: an?)?(?: any)?(?: statistically)?"
    r"(?: (?:significant|measurable|noticeable|appreciable|real|visible|discernible|detectable|perceptible))?"
    r"(?: (?:accuracy|quality|performance|speed|runtime))? "
    r"(?:loss|overhead|slow-?down|penalty|degradation|drop|additional cost)"
    r"(?! (?:functions?|scal\w+|spikes?|terms?)\b)|"
    r"zero[- ](?:(?:accuracy|quality|performance)[- ]loss|overhead|slow-?down|penalty|degradation|cost(?! prox))|"
    r"no[- ](?:cost|overhead) \w+ing|at no (?:(?:extra|additional) cost|cost (?:in|of|to)\b)|costs nothing|"
    r"no (?:\w+ )?(?:effect|impact|influence) on|"
    r"no (?:performance |speed |accuracy |measurable )?regressions?(?! tests?)|"
    r"(?:basically|effectively)[- ]free|imperceptible (?:loss|overhead|slow-?down|drop)|"
    r"no (?:significant|measurable|noticeable) cost|equally (?:fast|good|accurate)|indistinguishable|"
    r"negligible (?:\w+ )?(?:loss|overhead|slow-?down|penalty|degradation|drop|costs?|effect|impact|difference)|"
    r"(?:is|are) negligible|leaves? (?:\w+ ){1,3}(?:unchanged|intact)|"
    r"(?:is|are|runs?) for free|comes? for free|(?:virtually|nearly|near|practically|almost)[- ]lossless|"
    r"lossless (?:\S+ ){0,2}(?:in practice|quanti[sz]\w+|pruning|speed-?up)|"
    r"cannot be told from|without (?:losing|hurting|harming|sacrificing|slowing|degrading|compromising)|"
    r"without (?:affecting|changing|reducing) (?:\w+ )?(?:accuracy|quality|performance|speed|throughput)|"
    r"(?:is|are|stays?|lies?) (?:well )?within (?:the |measurement )*noise|"
    r"(?:virtually|practically|nearly|almost|essentially)[- ]free|(?:accuracy|quality|loss)[- ]neutral|"
    r"(?<!found )(?<!find )(?<!saw )(?<!see )(?<!shows )(?<!observed )(?<!measured )(?<!detected )"
    r"no (?:significant |measurable |noticeable )?difference (?:between|in|to|from)|"
    r"(?:does not|do not|doesn't|don't) (?:hurt|harm|degrade|sacrifice)|"
    r"no (?:better|worse|faster|slower|(?:more|less) accurate) than)\b",
    re.IGNORECASE,
)
"""What says that there is no difference, and not under which condition another one is claimed."""


_SAME_QUALITY = re.compile(
    r"\b(?:(?:same|identical|comparable|equal|equivalent) (?:\w+ )?|match(?:es|ing)? (?:\S+ ){0,4})"
    r"(?:accuracy|quality|loss|perplexity|bleu|f1|map|performance)\b|\bon par\b|\bas (?:good|accurate) as\b|"
    r"\b(?:preserv|maintain|retain|keep|equal)(?:s|es|ed|ing)? (?:\S+ ){0,3}(?:accuracy|quality|performance)\b|"
    r"\b(?:accuracy|quality|performance)(?: \S+){0,3} (?:preserved|maintained|retained|intact|unchanged|unaffected)\b|"
    r"\b(?:accuracy|quality) (?:is )?(?:the same|comparable|equal|equivalent|identical|within (?:\w+ )?noise)\b|"
    r"\b(?:full|iso-?|indistinguishable) ?(?:accuracy|quality)\b|\bparity with\b|\blossless\b|"
    r"\b(?:accuracy|quality) (?:does|do)(?: not|n't) change\b",
    re.IGNORECASE,
)
_SAME_SPEED = re.compile(
    r"(?<!not )(?<!never )(?<!non-)\b(?:on (?:a )?par|parity with|(?:just )?as (?:fast|quick|cheap)\b|"
    r"(?:same|equal|equivalent|identical|comparable|similar) (?:\w+ )?(?:speed|performance|throughput|latency|runtime)|"
    r"equivalent to|keeps up with|unaffected|unchanged|(?:performance|speed|cost)[- ]neutral|"
    r"match(?:es|ed|ing)? (?:\S+ ){0,4}(?:speed|performance|throughput|latency|runtime)|"
    r"(?:full|keep|retain|maintain|preserv)(?:s|es|ed|ing)? (?:\w+ ){0,2}(?:speed|performance|throughput|latency)|"
    r"(?:does|do)(?: not|n't) (?:\S+ )?(?:slow|cost|change|affect|impact)|"
    r"(?:minimal|insignificant|marginal|negligible)(?: \w+)? (?:overhead|costs?|slow-?down|impact|effect)|"
    r"(?:overhead|cost|slow-?down|impact|effect)(?: \S+){0,4} (?:is|are) "
    r"(?:minimal|insignificant|marginal|negligible))\b",
    re.IGNORECASE,
)
"""What says that the speed is the same; without a bound it is loose talk, beside a wide interval it is wrong."""

_GAIN = re.compile(
    r"\b(?:(?<!no )(?:faster|quicker|cheaper)|speed-?ups?|speeds? (?:\S+ )?up|outperform\w*|beats?|accelerat\w+|"
    r"improv\w+|reduc\w+|saves?|wins?|\d+(?:\.\d+)? ?% (?:less|fewer|more|higher|lower)|drops? from|"
    r"\d+(?:\.\d+)?[- ]?fold)\b",
    re.IGNORECASE,
)
_HEDGED = re.compile(
    r"\b(?:not|nor|no|nothing|cannot|unclear|inconclusive|undecided|noise|perhaps|may|might|possibly|unknown|whether|"
    r"too few|tell|slower|slowdown|overhead)\b|n't\b",
    re.IGNORECASE,
)
"""Words of a claim that does not say that one side is faster, or not surely."""


def _check(claim: Claim) -> Iterator[Diagnostic]:
    none = _NONE.search(claim.title)
    said = _SAME.search(claim.title) or none
    if claim.comparisons and all(each.of == "quality" for each in claim.comparisons):
        # Beside a speed, "the same accuracy" is its condition; alone, it is what is claimed.
        none = none or _SAME_QUALITY.search(claim.title)
    same_speed = _SAME_SPEED.search(claim.title)
    said = said or none or same_speed
    if none and not any(_bounded(pair) for pair in pairs(claim)):
        found = f"the claim says '{none[0]}', and gives neither a test nor an interval in which a difference may lie"
        yield guilty("title", found, _BOUND, claim.where, "warning")
    elif none or same_speed:
        yield from _wide(claim, [each[0] for each in (none, same_speed) if each])
    elif not said:
        yield from _undecided(claim)
    for pair in pairs(claim):
        if none and not _is_of_speed(none[0], claim.title) and pair.comparison.interval is None:
            yield from _wide_qualities(pair, none[0])
        p_value = pair.comparison.p_value
        if p_value is None:
            continue
        if impossible := _of_one_run(pair, p_value):
            yield impossible
        elif p_value >= _LEVEL and pair.comparison.interval is None and not _shows_qualities(pair):
            claims_it = said is not None and not _SAYS_ONLY_THAT.search(claim.title)
            yield from _nothing_found(pair, p_value, said[0] if said and claims_it else "")


def _bounded(pair: ComparedPair) -> bool:
    """Whether a difference of the two sides has a bound, or a test that is judged by itself.

    The interval of one side alone does not bound their difference.
    """
    comparison = pair.comparison
    return comparison.p_value is not None or comparison.interval is not None or _both_have_intervals(pair)


def _both_have_intervals(pair: ComparedPair) -> bool:
    return all(side.quality.low is not None or side.interval is not None for side in (pair.new, pair.base))


def _shows_qualities(pair: ComparedPair) -> bool:
    """Whether qualities are compared whose intervals bound their difference."""
    return pair.comparison.of == "quality" and all(each.quality.low is not None for each in (pair.new, pair.base))


def _wide(claim: Claim, words: list[str]) -> Iterator[Diagnostic]:
    """No difference is claimed, and the interval of the ratio has room for one that matters."""
    for pair in pairs(claim):
        bounds, of_speed = pair.comparison.interval, pair.comparison.of != "quality"
        fitting = [word for word in words if _is_of_speed(word, claim.title) is of_speed]
        if bounds is None or not fitting or not bounds[0] < _ROOM <= 1 <= bounds[1]:
            continue
        found = (
            f"the claim says '{fitting[0]}' of '{pair.new.name}' and '{pair.base.name}', "
            f"and the interval of their ratio, [{number(bounds[0])}, {number(bounds[1])}], "
            f"has room for a difference of {percent(1 - bounds[0])}"
        )
        yield guilty(f"{pair.field}.interval", found, _BOUND, pair.where, "warning")


def _wide_qualities(pair: ComparedPair, word: str) -> Iterator[Diagnostic]:
    """No loss is claimed, and the intervals of both qualities have room for one that no seed makes."""
    ours, theirs = level_of(pair.new.quality), level_of(pair.base.quality)
    if ours is None or theirs is None or not (ours.has_interval and theirs.has_interval):
        return
    if not far_worse(theirs._replace(value=theirs.high), ours._replace(value=ours.low)):
        return
    found = f"the claim says '{word}', and the intervals of '{pair.new.name}', {ours.text}, and of '{pair.base.name}', "
    found += f"{theirs.text}, have room for a loss that matters"
    yield guilty(f"{pair.new_field}.quality.low", found, _BOUND, pair.where, "warning")


def _is_of_speed(word: str, title: str) -> bool:
    """Whether a word of equality is about speed: by itself, or because the claim says nothing of quality."""
    return bool(_OF_SPEED.search(word)) or not (_OF_QUALITY.search(word) or _OF_QUALITY.search(title))


def _undecided(claim: Claim) -> Iterator[Diagnostic]:
    """One side is called faster, and no interval of a ratio excludes the opposite."""
    gain = _GAIN.search(claim.title)
    rows = [pair for pair in pairs(claim) if pair.comparison.of != "quality" and pair.comparison.interval is not None]
    intervals = [pair.comparison.interval or (0.0, 0.0) for pair in rows]
    if not gain or _HEDGED.search(claim.title) or any(not low < 1 < high for low, high in intervals):
        return
    for pair, (low, high) in zip(rows, intervals, strict=True):
        if pair.comparison.p_value is None or pair.comparison.p_value >= _LEVEL:
            found = f"the claim says '{gain[0]}', and the interval of the ratio of '{pair.new.name}' and "
            found += f"'{pair.base.name}', [{number(low)}, {number(high)}], has 1 inside: either may be the faster"
            yield guilty(f"{pair.field}.interval", found, _MORE, pair.where, "warning")


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
