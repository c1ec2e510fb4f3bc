"""Rules about inference measurements: enough of them, consistent with each other, and at the required quality."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

from levelbench.competition.checks import CheckedEntry, EntryFinding, shown, unlike_scale
from levelbench.competition.entries import Inference
from levelbench.competition.figures import (
    ANSWER_USD,
    FLAGS,
    FLOOR_USD,
    LATENCY_S,
    MOST_SCENARIOS,
    QUANTILES,
    RATE_PER_S,
    by_scenario,
    is_within,
)
from levelbench.competition.rulesets import InferenceRules
from levelbench.competition.scoring import ONE_BY_ONE, STREAMS, lacks_estimate, quantile_of, refusal
from levelbench.measure.crossing import sign_of
from levelbench.measure.statistics.early_stopping import allowed_late

_SLACK = 0.05
"""Tolerance for rounding and for the time between queries."""
_ROUNDING = 1e-6
_HALF = 0.5
"""The smallest share of the time that consecutive queries may take: the measurement must not be of what feeds them."""
_TAIL = 10.0
"""The mean may be this many times the ranked quantile; beyond that, a few slow queries took nearly all of the time."""


def inference(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """Every rule about a single measurement, and the limit on the number of ranked scenarios."""
    rules, measured = entry.task.inference if entry.task is not None else None, entry.submission.inference
    for number, each in enumerate(measured):
        at = f"inference[{number}]"
        found = [*_allowed(entry, each, at), *_quality(entry, each, at)]
        if each.mean_latency_s is None and not each.quantiles_s and each.throughput_per_s is None:
            found.append(entry.error("B212", at, "no latency and no throughput"))
        found += _audits(entry, each, at)
        wrong = list(_possible(entry, each, at))
        found += wrong or [*_quantiles(entry, each, at), *_fits(entry, each, at), *_cost(entry, each, at)]
        yield from found
        if rules is None or each.scenario not in ("server", "offline") or any(one.severity == "error" for one in found):
            continue
        # A rate that is not ranked for a reason that no other rule has reported.
        if reason := refusal(each, rules, entry.submission.target):
            do = "measure at a rate that is kept, and state it" if each.scenario == "server" else "state the throughput"
            yield entry.warning("B216", at, f"{reason}; it is not ranked", do)
    if rules is None or len(measured) <= MOST_SCENARIOS:
        return
    left = sum(each.scenario in rules.scenarios for each in measured)
    left -= sum(map(len, by_scenario(measured, rules).values()))
    if left:
        found_words = f"{left} have scenarios, bounds or query sizes beyond the first {MOST_SCENARIOS}"
        do = "submit them as a separate entry"
        yield entry.warning("B216", "inference", f"{found_words}; they are not ranked", do)


def _allowed(entry: CheckedEntry, each: Inference, at: str) -> Iterator[EntryFinding]:
    if entry.task is None:
        return
    rules = entry.task.inference
    if rules is None or each.scenario not in rules.scenarios:
        known = ", ".join(rules.scenarios) if rules else "none"
        found = f"it is {each.scenario}; {entry.submission.ruleset} has {known} for {entry.task.task}"
        yield entry.error("B200", f"{at}.scenario", found)
        return
    if each.scenario == "dawnbench":
        wanted, had, what = entry.task.samples or 0, each.queries, "queries"
        if each.batch not in (None, 1):
            yield entry.error("B211", f"{at}.batch", f"it is {each.batch}")
    else:
        # Offline sends all samples in one query.
        had, what = (each.samples, "samples") if each.scenario == "offline" else (each.queries, "queries")
        wanted = rules.least(each.scenario)
    if had < wanted:
        option = f"--queries {wanted}" if each.scenario != "dawnbench" else "without --samples"
        do = entry.advice(f"measure more: levelbench infer ... {option}", "measure more")
        yield entry.error("B201", f"{at}.{what}", f"{had} {what}; at least {wanted}", do)
    if each.scenario != "dawnbench" and each.duration_s < rules.least_duration_s:
        found = f"{each.duration_s:g} s; at least {rules.least_duration_s:g} s"
        ours = f"measure for longer: levelbench infer ... --duration {rules.least_duration_s:g}s"
        yield entry.error("B201", f"{at}.duration_s", found, entry.advice(ours, "measure for longer"))
    yield from _server(entry, each, rules, at)


def _server(entry: CheckedEntry, each: Inference, rules: InferenceRules, at: str) -> Iterator[EntryFinding]:
    if each.valid is False:
        yield entry.error("B210", f"{at}.valid", "it is false")
    if each.scenario != "server":
        return
    bound = rules.latency_bound_s if rules.latency_bound_s is not None else each.latency_bound_s
    if each.target_per_s is None or bound is None:
        missing = "target_per_s" if each.target_per_s is None else "latency_bound_s"
        yield entry.error(
            "B209", f"{at}.{missing}", "it is not stated", "state the rate and bound of the server scenario"
        )
        return
    at_bound = quantile_of(each, QUANTILES["server"])
    if at_bound is not None and at_bound > bound and each.valid:
        found = f"99 % within {at_bound:g} s, bound {bound:g} s"
        yield entry.error("B209", f"{at}.quantiles_s", found, "measure at a lower rate")
    elif at_bound is None and each.valid and not entry.imported:
        found = f"the quantile 0.99 is not stated, so nothing shows that the bound of {bound:g} s was kept"
        yield entry.warning("B209", f"{at}.quantiles_s", found, "state that quantile")


def _quality(entry: CheckedEntry, each: Inference, at: str) -> Iterator[EntryFinding]:
    rules = entry.task.inference if entry.task else None
    target = entry.submission.target
    if each.quality is None:
        if rules is not None and rules.threshold is not None:
            yield entry.error("B204", f"{at}.quality", "it is not stated", "measure the quality of the same answers")
        return
    if found := unlike_scale(target, each.quality):
        percent = target.high == 1 and 2 < each.quality <= 100
        do = "divide by 100: the scale ends at 1" if percent else "give it on the scale of the target"
        yield entry.error("B204", f"{at}.quality", found, do)
    elif rules is not None and rules.threshold is not None:
        sign = sign_of(target.direction)
        if sign * each.quality < sign * rules.threshold:
            found = f"{each.quality:.10g}; {entry.submission.ruleset} requires {rules.threshold:.10g}"
            yield entry.error("B204", f"{at}.quality", found, "measure a network that reaches that quality")
    had, required = each.quality_samples, entry.task.samples if entry.task else None
    if had is not None and required is not None and had < required:
        found = f"{had} answers; {entry.submission.ruleset} has {required}"
        yield entry.error("B204", f"{at}.quality_samples", found, "measure the quality of all answers")


def _audits(entry: CheckedEntry, each: Inference, at: str) -> Iterator[EntryFinding]:
    """The results of audits; an import has none, since other systems keep them elsewhere."""
    failed = [name for name, passed in each.audits.items() if passed is False]
    for name in failed:
        yield entry.error("B214", f"{at}.audits", f"the audit {shown(name)} failed")
    unclear = [shown(name) for name, passed in each.audits.items() if passed is None]
    if unclear:
        found = f"{', '.join(unclear)} could not decide"
        ours = "measure with more samples: levelbench infer ... --audit"
        yield entry.note("B215", f"{at}.audits", found, entry.advice(ours, "see what its audits say"))
    elif not each.audits and not entry.imported:
        do = entry.advice("measure with levelbench infer ... --audit", "check whether LoadGen's own audits were run")
        yield entry.note("B215", f"{at}.audits", "there is none", do)


def _possible(entry: CheckedEntry, each: Inference, at: str) -> Iterator[EntryFinding]:
    times = {
        "duration_s": each.duration_s,
        "mean_latency_s": each.mean_latency_s,
        "estimate_s": each.estimate_s,
        "latency_bound_s": each.latency_bound_s,
        **{f"quantiles_s.{shown(name)[1:-1]}": value for name, value in each.quantiles_s.items()},
    }
    rates = {"throughput_per_s": each.throughput_per_s, "target_per_s": each.target_per_s}
    for stated, bounds, unit in ((times, LATENCY_S, "seconds"), (rates, RATE_PER_S, "answers a second")):
        for name, value in stated.items():
            if value is not None and not is_within(value, bounds):
                yield entry.error("B205", f"{at}.{name}", f"it is {value:g}", f"give the measured value in {unit}")


def _quantiles(entry: CheckedEntry, each: Inference, at: str) -> Iterator[EntryFinding]:
    points = []
    for name, latency_s in each.quantiles_s.items():
        rank = math.nan
        with suppress(ValueError):
            rank = float(name)
        if not 0 <= rank <= 1:
            found = f"{shown(name)} is not a number from 0 to 1"
            yield entry.error("B202", f"{at}.quantiles_s", found, 'name a quantile as in "0.99"')
            return
        points.append((rank, latency_s))
    points.sort()
    for (low, fast), (high, slow) in pairwise(points):
        if slow < fast or low == high:
            found = f"{low:g}: {fast:g} s, {high:g}: {slow:g} s"
            yield entry.error("B202", f"{at}.quantiles_s", found, "give quantiles of one list of latencies")
            return
    if points and points[-1][1] > each.duration_s * (1 + _SLACK):
        yield entry.error("B207", f"{at}.duration_s", f"a latency of {points[-1][1]:g} s, in {each.duration_s:g} s")
        return
    yield from _mean(entry, each, points, at)
    flag, wanted = lacks_estimate(each), QUANTILES.get(each.scenario)
    if flag and quantile_of(each, wanted) is not None:
        do = entry.advice("make the entry with levelbench board submit", "state the early-stopping estimate")
        yield entry.warning("B213", f"{at}.estimate_s", f"quantile {wanted}: {FLAGS[flag]}", do)
    if each.estimate_s is None:
        return
    # An early-stopping estimate is conservative: it is at or above the quantile of the same latencies.
    wanted = each.estimate_quantile if each.estimate_quantile is not None else wanted
    stated = quantile_of(each, wanted)
    if stated is None:
        found = f"an estimate of the quantile {wanted}, which is not stated" if wanted else "its quantile is not stated"
        yield entry.error("B213", f"{at}.quantiles_s", found, "state that quantile of the same latencies")
    elif each.estimate_s < stated * (1 - _ROUNDING):
        found = f"{each.estimate_s:g} s; the quantile {wanted} of the same latencies is {stated:g} s"
        yield entry.error("B213", f"{at}.estimate_s", found, "give the estimate of the same latencies")
    elif each.scenario in STREAMS and wanted == QUANTILES[each.scenario] and each.queries <= _FEW:
        yield from _order(entry, each, each.estimate_s, points, at)


_FEW = 10_000
"""With more queries the estimate's place is hardly above its quantile, and no other one is stated between them."""


def _order(
    entry: CheckedEntry, each: Inference, estimate_s: float, points: list[tuple[float, float]], at: str
) -> Iterator[EntryFinding]:
    """Of few queries the estimate is one of the largest latencies, so no quantile below its place exceeds it."""
    place = each.queries - (allowed_late(each.queries, QUANTILES[each.scenario]) or 1)
    for rank, value in points:
        # No definition of a quantile, interpolated or not, takes a later latency than the one at ``ceil(rank * n)``.
        if min(math.ceil(rank * each.queries), each.queries - 1) <= place and value > estimate_s * (1 + _ROUNDING):
            found = f"{estimate_s:g} s; of {each.queries} queries the estimate is latency {place + 1} in order, "
            found += f"and the quantile {rank:g} is {value:g} s already"
            yield entry.error("B213", f"{at}.estimate_s", found, "give the estimate of the same latencies")
            return


def _mean(entry: CheckedEntry, each: Inference, points: list[tuple[float, float]], at: str) -> Iterator[EntryFinding]:
    """The mean is at most the maximum and at least what the quantiles alone imply.

    Also, the ranked latency is not far below the average time per query.
    """
    mean = each.mean_latency_s
    if mean is not None and points:
        floor = before = 0.0
        for rank, value in points:
            # A share of 1 - rank of the latencies is at least this large.
            floor += (1 - rank) * (value - before)
            before = value
        # Quantile 0 is the smallest latency, so its share holds for all of them.
        ceiling = points[-1][1] if points[-1][0] == 1 else math.inf
        if mean < floor * (1 - _SLACK) or mean > ceiling * (1 + _SLACK):
            limit = f"at least {floor:g} s" if mean < floor else f"at most {ceiling:g} s"
            yield entry.error("B203", f"{at}.mean_latency_s", f"{mean:g} s; by the quantiles {limit}", "correct it")
    wanted = QUANTILES.get(each.scenario)
    stated = quantile_of(each, wanted)
    if each.scenario not in ONE_BY_ONE or stated is None or not each.queries:
        return
    mean = each.duration_s / each.queries if mean is None else mean
    if mean > _TAIL * stated:
        found = f"the quantile {wanted:g} is {stated:g} s, but a query took {mean:g} s on average"
        yield entry.warning("B203", f"{at}.quantiles_s", found, "check which queries took so long, and why")


def _fits(entry: CheckedEntry, each: Inference, at: str) -> Iterator[EntryFinding]:
    spent = (each.mean_latency_s or 0.0) * each.queries
    if each.scenario in ONE_BY_ONE and spent > each.duration_s * (1 + _SLACK):
        found = f"{each.queries} consecutive queries of {each.mean_latency_s:g} s in {each.duration_s:g} s"
        yield entry.error("B207", f"{at}.duration_s", found)
    elif each.scenario in ONE_BY_ONE and 0 < spent < each.duration_s * _HALF:
        found = f"{each.queries} queries of {each.mean_latency_s:g} s take {spent:g} s of the {each.duration_s:g} s"
        say = entry.warning if spent > each.duration_s * _HALF**4 else entry.error
        yield say("B207", f"{at}.mean_latency_s", found, "find what took the rest of the time, or correct the latency")
    elif each.scenario in ONE_BY_ONE and each.mean_latency_s is None and each.quantiles_s and not entry.imported:
        found = f"it is not stated, so nothing shows that {each.queries} such queries take {each.duration_s:g} s"
        yield entry.warning("B207", f"{at}.mean_latency_s", found, "make the entry with levelbench board submit")
    rate = each.throughput_per_s
    if rate is None or not each.samples:
        return
    done = rate * each.duration_s
    least = each.samples if each.scenario == "offline" else min(each.queries, each.samples)
    if done > each.samples * (1 + 2 * _SLACK) or done < least * _HALF:
        found = f"{rate:g}/s for {each.duration_s:g} s, of {each.samples} samples"
        yield entry.error("B208", f"{at}.throughput_per_s", found)


def _cost(entry: CheckedEntry, each: Inference, at: str) -> Iterator[EntryFinding]:
    price = entry.submission.price
    if each.cost_usd is None:
        return
    if not is_within(each.cost_usd, ANSWER_USD):
        yield entry.error("B206", f"{at}.cost_usd", f"{each.cost_usd:g}", "give US dollars per answer, or leave it out")
    elif price is not None and each.mean_latency_s is not None and each.scenario in ("single-stream", "dawnbench"):
        due = price.usd_per_hour / 3600 * each.mean_latency_s
        if abs(each.cost_usd - due) > _SLACK * due:
            found = f"{each.cost_usd:.4g}; {price.usd_per_hour:g} per hour for {each.mean_latency_s:g} s is {due:.4g}"
            yield entry.warning("B206", f"{at}.cost_usd", found, "leave it out: it is computed")
    elif price is None and each.samples and is_within(each.duration_s, LATENCY_S):
        an_hour = each.cost_usd * 3600 * each.samples / each.duration_s
        if an_hour < FLOOR_USD:
            found = f"{each.cost_usd:.4g}, which is {an_hour:.4g} US dollars an hour"
            yield entry.warning("B166", f"{at}.cost_usd", found)
        elif entry.rules is not None and entry.rules.cost.source_required and not entry.imported:
            found = f"{each.cost_usd:.4g}, stated without a price"
            yield entry.warning("B161", f"{at}.cost_usd", found, "give the price and its source: the cost follows")
