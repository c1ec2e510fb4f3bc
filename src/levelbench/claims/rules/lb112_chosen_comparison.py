"""LB112: the comparison shows only speed or only quality, omits a better entry, or compares unlike things."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from levelbench.claims.hardware import accelerators_in
from levelbench.claims.rule import Diagnostic, Severity, read_rule
from levelbench.claims.rules._common import (
    ComparedPair,
    beyond,
    direction_of,
    far_worse,
    guilty,
    is_training,
    level_of,
    not_stated,
    number,
    pairs,
    seconds,
    sides,
)
from levelbench.claims.rules._machines import ACCELERATOR, precision_of
from levelbench.claims.view import Claim, Side, StandardView

_BOTH = "give time and quality of both sides, each with its interval"
_BEST = "compare with the best known entry, or say why it does not count"
_ALIKE = "compare on one metric, split, target and clock"
_SPEED = {"target", "run", "epoch", "step", "kernel", "throughput", "cost", "latency", "operations"}
_NEVER_ALONE = {"run", "epoch", "step", "throughput", "latency", "operations", "cost"}
"""Figures that need a quality next to them: a time to a target includes it, and a kernel has none."""

_LOSSY = re.compile(
    r"quanti[sz]|\b(one|two|three|four|\d+)[- ]?bits?\b|\b[iu]?(int|fp|bf|float|bfloat)[- ]?(4|8|16)\b|"
    r"half[- ]precision|mixed[- ]precision|prun|spars|distil|compress|approximat|low[- ]rank|adapter|\blora\b|"
    r"early[- ]exit|skip|drop|stale|async|local (sgd|step|update)|(large|big)(r|st)? (mini)?-?batch|"
    r"small(er)? (model|network)|student",
    re.IGNORECASE,
)
"""Words for ways to be faster that can cost quality."""
_SAYS_QUALITY = re.compile(r"accura|qualit|top-?[15]\b|points?\b|loss|error|perplex|bleu|f1\b|\bmap\b", re.IGNORECASE)
_ANSWERS = re.compile(r"\binfer|\bserv(?:es|ing)\b|\bprompts?\b|\bgenerat|\bdecod|\blatency\b", re.IGNORECASE)
"""Words for a trained network at work, whose answers are those of any batch."""
_FIRST = re.compile(
    r"(?<!our )(?<!my )(?<!its )(?<!their )\b(?:fastest|quickest)\b(?! (?:runs?|of (?:our|the|\w+ runs))\b)|"
    r"\b(?:new|sets (?:a|the)) (?:\w+ )?record\b|\bworld[- ]record\b|\brecord[- ]breaking\b|"
    r"\b(?:state[- ]of[- ]the[- ]art|sota) (?:in |for )?(?:the )?(?:\w+ )?(?:speed|time)s?\b|"
    r"\bfaster than (?:any|all|every)(?:\b|one\b|body\b)",
    re.IGNORECASE,
)
"""Words that compare with every known entry."""
_OF_ANOTHER = re.compile(
    r"(?:\bnot?|\bnever|\bhardly|n['’]t)\b(?! only)(?: \w+){0,2}[- ]$|"
    r"\b(?:after|behind|below|to|than|as|with|without|of|among|near|from|against|times|half|second|third)[- ]"
    r"(?:an? |the |our )?$|\b(?:how|what|why) (?:the )?$",
    re.IGNORECASE,
)
"""What stands before such words where the first is another, or nobody says that this one is."""
_PHASES = ("initialisation", "compilation", "data", "evaluation", "checkpoints", "communication")
_EARLY, _LATE = {"first", "interpolated"}, {"confirmed", "sustained", "final"}


def _check(claim: Claim) -> Iterator[Diagnostic]:
    for pair in pairs(claim):
        if _unlike(pair):
            yield from _incomparable(pair)
        else:
            yield from _one_only(pair, claim)
        yield from _dominated(pair, claim)
    yield from _not_first(claim)


def _unlike(pair: ComparedPair) -> list[tuple[str, str, str]]:
    """(field, value of the new side, value of the base), if both state it and differ."""
    new, base = pair.new.quality, pair.base.quality
    rows = [
        ("quality.metric", new.metric or "", base.metric or ""),
        ("quality.split", new.split or "", base.split or ""),
        ("data.name", pair.new.data.name or "", pair.base.data.name or ""),
    ]
    if pair.comparison.of != "quality":
        rows.append(("clock.policy", pair.new.clock.policy or "", pair.base.clock.policy or ""))
    found = [row for row in rows if row[1] and row[2] and _plain(row[1]) != _plain(row[2])]
    if pair.comparison.of in {"target", "cost"}:
        if _easier(pair.new, pair.base):
            found.append(("quality.target", number(new.target or 0.0, 5), number(base.target or 0.0, 5)))
        if pair.new.clock.crossing in _EARLY and pair.base.clock.crossing in _LATE:
            found.append(("clock.crossing", str(pair.new.clock.crossing), str(pair.base.clock.crossing)))
        if not any(row[0] == "clock.policy" for row in found):
            found += [(f"clock.{name}", "left out", "included") for name in _PHASES if _left_out(name, pair)]
    return found


def _left_out(name: str, pair: ComparedPair) -> bool:
    """Whether the new side's clock leaves out what the baseline's includes; the reverse favours the baseline."""
    return getattr(pair.new.clock, name) is False and getattr(pair.base.clock, name) is True


def _plain(text: str) -> str:
    return "".join(each for each in text.lower() if each.isalnum())


def _easier(new: Side, base: Side) -> bool:
    """Whether the new side has the easier target; a harder one only makes its case stronger."""
    sign = direction_of(new.quality)
    if new.quality.target is None or base.quality.target is None or new.quality.target == base.quality.target:
        return False
    return sign is None or sign * new.quality.target < sign * base.quality.target


def _incomparable(pair: ComparedPair) -> Iterator[Diagnostic]:
    for name, new, base in _unlike(pair):
        found = f"'{pair.new.name}' has {name.replace('.', ' ')} '{new}', but '{pair.base.name}' has '{base}'"
        # Two clocks may differ by a second or an hour; two targets or metrics are different races.
        severity: Severity = "warning" if name.startswith("clock.") else "error"
        yield guilty(f"{pair.new_field}.{name}", found, _ALIKE, pair.where, severity)


def _one_only(pair: ComparedPair, claim: Claim) -> Iterator[Diagnostic]:
    of = pair.comparison.of
    others = [each for each in claim.comparisons if each is not pair.comparison and each.base == pair.base.name]
    if of in _NEVER_ALONE:
        elsewhere = any(each.of in {"quality", "target"} for each in others)
        yield from _speed_only(pair, elsewhere, _may_differ(pair, claim), _SAYS_QUALITY.search(claim.title) is not None)
    elif of == "target" and pair.new.quality.target is None and pair.base.quality.target is None:
        what = f"the target of '{pair.new.name}' and of '{pair.base.name}'"
        yield not_stated(f"{pair.new_field}.quality.target", what, _ALIKE, pair.where)
    elif of == "quality" and not any(each.of in _SPEED for each in others):
        yield from _quality_only(pair, claim.title)
    elif of is None and pair.new.quality.value is None and pair.new.time_s is not None and _may_differ(pair, claim):
        what = f"the quality of '{pair.new.name}' and of '{pair.base.name}'"
        yield not_stated(f"{pair.new_field}.quality.value", what, _BOTH, pair.where)


def _may_differ(pair: ComparedPair, claim: Claim) -> bool:
    """Whether what is compared can have another quality: not if a machine, a compiler or exact code made it faster."""
    new, base = pair.new, pair.base
    if pair.comparison.of is None and is_training(new):
        return not (new.time_of == "target" and new.quality.target is not None)
    ours, theirs = precision_of(new), precision_of(base)
    if (pair.comparison.of == "cost" and is_training(new)) or (ours and theirs and ours != theirs):
        return True
    sizes = ["input_size", "flops_per_sample"]
    if not _ANSWERS.search(claim.title):
        sizes.append("global_batch")
    stated = ((getattr(new.workload, name), getattr(base.workload, name)) for name in sizes)
    if any(one and other and one != other for one, other in stated):
        return True
    return _LOSSY.search(" ".join((claim.title, new.name, base.name))) is not None


def _speed_only(pair: ComparedPair, elsewhere: bool, may_differ: bool, said: bool) -> Iterator[Diagnostic]:
    """``elsewhere``: another comparison with the same baseline is about quality; ``said``: so is the title."""
    comparison, new, base = pair.comparison, pair.new.quality, pair.base.quality
    level, known, field = level_of(new), level_of(base), f"{pair.field}.quality_compared"
    # LB101 reports more ranks or a larger batch that lose quality.
    open_ = not comparison.quality_compared and not _grown(pair)
    worse = level is not None and known is not None and (beyond(known, level) or (far_worse(known, level) and not said))
    if open_ and level is not None and known is not None and worse:
        found = f"the {comparison.of} is compared, but not the quality: '{pair.new.name}' has {level.text},"
        found += f" '{pair.base.name}' {known.text}"
        yield guilty(field, found, _BOTH, pair.where, _said(comparison.quality_compared))
    elif comparison.quality_compared is False and (level is None or known is None) and not elsewhere:
        found = f"'{pair.new.name}' and '{pair.base.name}' are compared in {comparison.of}, but not in quality"
        yield guilty(field, found, _BOTH, pair.where)
    elif comparison.quality_compared is None and (level is None or known is None) and not elsewhere and may_differ:
        what = f"the quality of '{pair.new.name}' next to that of '{pair.base.name}', whose {comparison.of} is compared"
        yield not_stated(field, what, _BOTH, pair.where)


def _said(compared: bool | None) -> Severity:
    """A stated omission is a finding; a missing statement is only "not stated"."""
    return "error" if compared is False else "warning"


def _grown(pair: ComparedPair) -> bool:
    new, base = pair.new.workload, pair.base.workload
    more = new.ranks is not None and base.ranks is not None and new.ranks > base.ranks
    return more or (new.global_batch or 0) > (base.global_batch or new.global_batch or 0)


def _quality_only(pair: ComparedPair, title: str) -> Iterator[Diagnostic]:
    new, base, compared = pair.new, pair.base, pair.comparison.performance_compared
    if compared:
        return
    field = f"{pair.field}.performance_compared"
    if new.cost_usd is not None and base.cost_usd is not None:
        paid = (new.cost_usd, base.cost_usd, f"{number(new.cost_usd)} USD", f"{number(base.cost_usd)} USD")
    elif new.time_s is not None and base.time_s is not None and new.time_of == base.time_of:
        paid = (new.time_s, base.time_s, seconds(new.time_s), seconds(base.time_s))
    else:
        paid = None
    if paid is not None:
        said = (re.escape(each.removesuffix(" USD")) for each in paid[2:])
        in_title = all(re.search(rf"(?<![\d.,]){each}(?![\d]|[.,]\d)", title) for each in said)
        if paid[0] > 1.1 * paid[1] and not in_title:
            found = "the quality is compared, but not what it takes:"
            found += f" '{new.name}' {paid[2]}, '{base.name}' {paid[3]}"
            yield guilty(field, found, _BOTH, pair.where, _said(compared))
    elif compared is False:
        found = f"'{pair.new.name}' and '{pair.base.name}' are compared in quality, but not in what it takes"
        yield guilty(field, found, _BOTH, pair.where)
    else:
        what = f"the time or cost of '{pair.new.name}' next to that of '{pair.base.name}', whose quality is compared"
        yield not_stated(field, what, _BOTH, pair.where)


def _dominated(pair: ComparedPair, claim: Claim) -> Iterator[Diagnostic]:
    """A known entry is as good, faster and no more expensive, but was not the one compared with."""
    named = {each.base for each in claim.comparisons}
    better = [one for one in claim.standards if one.name not in named and _beats(one, pair.new, pair.comparison.of)]
    if not better:
        return
    best = min(better, key=lambda one: one.time_s or 0.0)
    costs = best.cost_usd is not None and pair.new.cost_usd is not None
    found = f"'{pair.new.name}' ({seconds(pair.new.time_s or 0.0)}) is compared with '{pair.base.name}', not with"
    found += f" '{best.name}'{'' if best.year is None else f' ({best.year})'}:"
    found += f" {seconds(best.time_s or 0.0)}, quality {number(best.quality or 0.0, 4)}"
    found += f", {number(best.cost_usd or 0.0)} USD against {number(pair.new.cost_usd or 0.0)}" if costs else ""
    yield guilty(f"{pair.new_field}.time_s", found, _BEST, pair.where, "error" if costs else "warning")


def _not_first(claim: Claim) -> Iterator[Diagnostic]:
    """The title calls the only side the fastest, beside a known entry that is faster and that it does not name."""
    title = claim.title
    called = [each[0] for each in _FIRST.finditer(title) if not _OF_ANOTHER.search(title[: each.start()])]
    if not called or claim.comparisons or len(claim.sides) != 1:
        return
    for field, side in sides(claim):
        # The fastest is so at any price; whoever gives the other's time or name hides nothing.
        better = [
            one
            for one in claim.standards
            if one.name not in title
            and seconds(one.time_s or 0.0) not in title
            and _beats(_unasked(one, side), side, None)
        ]
        if ACCELERATOR.search(title.lower()):
            # "The fastest on one GPU" says nothing of an entry on 64.
            own = accelerators_in(side.hardware.description or "", side.hardware.accelerators)
            better = [one for one in better if own is None or accelerators_in(one.name) in (own, None)]
        if not better:
            continue
        best = min(better, key=lambda one: (one.quality is None, one.time_s or 0.0))
        found = f"'{called[0]}' is said of '{side.name}' ({seconds(side.time_s or 0.0)}), but '{best.name}' takes"
        found += f" {seconds(best.time_s or 0.0)}"
        if best.quality is None:
            what = f"the quality of '{best.name}': {found}"
            yield not_stated(f"standards[{claim.standards.index(best)}].quality", what, _BEST, side.where)
        else:
            yield guilty(f"{field}.time_s", f"{found}, quality {number(best.quality, 4)}", _BEST, side.where, "warning")


def _unasked(one: StandardView, side: Side) -> StandardView:
    """The entry at any cost, and, where its quality is not stated, as good as the side's target."""
    return replace(one, cost_usd=None, quality=side.quality.target if one.quality is None else one.quality)


def _beats(one: StandardView, side: Side, of: str | None) -> bool:
    sign, target = direction_of(side.quality), side.quality.target
    if of not in {"target", None} or side.time_of != "target" or sign is None or target is None:
        return False
    if one.time_s is None or side.time_s is None or one.quality is None or sign * one.quality < sign * target:
        return False
    if one.year is not None and side.year is not None and one.year > side.year:
        return False
    if one.cost_usd is not None and side.cost_usd is not None and one.cost_usd > side.cost_usd:
        return False
    return one.time_s < 0.98 * side.time_s


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
