"""Rules about where an entry comes from: price, code, data, software, records, tuning."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from levelbench.records.submissions.addresses import is_address
from levelbench.records.submissions.possible import PRICE_USD, PRICE_WORDS, is_within
from levelbench.records.submissions.rules.entry import Entry, day_of, is_sha256, shown
from levelbench.records.submissions.rules.findings import Finding
from levelbench.records.submissions.scoring import score

__all__ = ["code", "data", "origin", "price", "records", "tuning"]

_FLOOR_USD = 0.001
"""What the smallest machine for rent costs several times over."""
_YEAR = 366
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_PINNED = re.compile(r"(?<![0-9a-f])[0-9a-f]{7,64}(?![0-9a-f])|/(?:releases/tag|tags?|tree/v?\d|archive)[/.\d]")


def price(entry: Entry) -> Iterator[Finding]:
    """A price is positive, on demand, and says where and when it was read."""
    stated, rules = entry.submission.price, entry.rules
    if stated is None:
        if not _states_costs(entry):
            ours = "give --price-per-hour and --price-source, or leave it: cost is not ranked then"
            do = entry.advice(ours, "nothing: cost is not ranked then")
            yield entry.note("B160", "price", "it is not stated", do)
        return
    possible = is_within(stated.usd_per_hour, PRICE_USD)
    if not possible:
        found = f"{stated.usd_per_hour:g} US dollars an hour"
        yield entry.error("B164", "price.usd_per_hour", found, f"give {PRICE_WORDS}, of the whole system")
    required = rules is not None and rules.cost.source_required
    say = entry.error if required else entry.note
    if not stated.source:
        yield say("B161", "price.source", "it is not stated", "give the address of the price list")
    elif not is_address(stated.source):
        found = f"it is {shown(stated.source)}"
        yield entry.warning("B161", "price.source", found, "give the address of the price list")
    if possible and stated.usd_per_hour < _FLOOR_USD:
        found = f"{stated.usd_per_hour:g} US dollars an hour"
        yield entry.warning("B166", "price.usd_per_hour", found, "see whether it is of the whole system, for an hour")
    yield from _price_day(entry, stated.read_on, required)
    if rules is not None and rules.cost.on_demand_only:
        if stated.on_demand is False:
            do = f"give the on-demand price: {rules.id} takes no other"
            yield entry.error("B163", "price.on_demand", "it is a price for spot or reserved use", do)
        elif stated.on_demand is None and required:
            yield entry.warning("B163", "price.on_demand", "it is not stated", "say that the price is on demand")


def _states_costs(entry: Entry) -> bool:
    """Whether it is ranked by the cost of an answer that its author states, which needs no price."""
    submission, rules = entry.submission, entry.rules
    if rules is None or all(each.cost_usd is None for each in submission.inference):
        return False
    return any(each.inference_cost.value is not None for each in score(submission, rules).in_scenarios())


def _price_day(entry: Entry, text: str | None, required: bool) -> Iterator[Finding]:
    if text is None:
        if required:
            yield entry.warning("B162", "price.read_on", "it is not stated", "give the day: prices change")
        return
    day = day_of(text)
    if day is None:
        yield entry.error("B162", "price.read_on", f"it is {shown(text)}", "write the day as in 2026-01-31")
    elif (day - entry.today).days > 1:
        yield entry.error("B162", "price.read_on", f"it is {text} and today is {entry.today}", "write the day")
    else:
        submitted = day_of(entry.submission.submitted)
        if submitted is not None and abs((day - submitted).days) > _YEAR:
            found = f"it was read on {text} and the entry is of {submitted}"
            yield entry.warning("B165", "price.read_on", found, "give the price of the time of the runs")


def code(entry: Entry) -> Iterator[Finding]:
    """The code can be found, in the version that ran, without changes that nobody has."""
    stated = entry.submission.code
    if not stated.url:
        do = entry.advice("give --code-url with the commit in it", "see whether its author says where the code is")
        yield entry.warning("B170", "code.url", "it is not stated", do)
    elif not is_address(stated.url):
        yield entry.error("B172", "code.url", f"it is {shown(stated.url)}", "give an address with http or https")
    elif not stated.commit and _PINNED.search(stated.url) is None:
        found = f"{shown(stated.url)} and no commit"
        yield entry.warning("B171", "code.url", found, "link to a commit or a tag: a branch moves")
    if stated.commit and _COMMIT.fullmatch(stated.commit) is None:
        found = f"it is {shown(stated.commit)}"
        yield entry.warning("B174", "code.commit", found, "give the commit's hexadecimal digest")
    if stated.dirty:
        do = "commit the changes and run again"
        yield entry.warning("B173", "code.dirty", "the working tree had changes", do)


def data(entry: Entry) -> Iterator[Finding]:
    """The data is real and can be told by its checksums; the software is named."""
    stated = entry.submission.provenance
    if stated.synthetic:
        yield entry.error("B177", "provenance.synthetic", "synthetic data", "run on the task's own data")
    for name, digest in stated.checksums.items():
        if not is_sha256(digest):
            field = f"provenance.checksums.{shown(name)[1:-1]}"
            yield entry.error("B176", field, f"it is {shown(digest)}", "give 64 hexadecimal digits")
    if entry.imported:
        return
    if not stated.checksums and entry.submission.mode == "training":
        do = entry.advice("make the entry from records", "compare it with the file that it was read from")
        yield entry.warning("B175", "provenance.checksums", "there are none", do)
    if not stated.software:
        do = entry.advice("make the entry from records", "see what its author says")
        yield entry.note("B180", "provenance.software", "there is none", do)


def records(entry: Entry) -> Iterator[Finding]:
    """Every run and measurement names its record; where records are at hand, they are those."""
    submission = entry.submission
    stated = [(f"runs[{at}].record_digest", run.record_digest) for at, run in enumerate(submission.runs)]
    stated += [(f"inference[{at}].record_digest", each.record_digest) for at, each in enumerate(submission.inference)]
    for field, digest in stated:
        if digest is None:
            if not entry.imported:
                do = entry.advice("make the entry with levelbench board submit", "compare it with its own logs")
                yield entry.warning("B178", field, "it is not stated", do)
        elif not is_sha256(digest):
            yield entry.error("B176", field, f"it is {shown(digest)}", "give 64 hexadecimal digits")
        elif entry.records is not None and digest not in entry.records:
            found = f"no record has the digest {digest[:12]}..."
            yield entry.error("B179", field, found, "bring the record, unchanged, or make the entry again")


def origin(entry: Entry) -> Iterator[Finding]:
    """An entry of another system's file stands under that system's rules; whoever sends it says that it is one."""
    stated, submission = entry.submission.origin, entry.submission
    if stated is None:
        return
    found = f"imported from {shown(stated.file)} ({shown(stated.format)[1:-1]}), as the author says"
    if entry.imported:
        yield entry.note("B127", "origin", found, "compare it with that file")
    elif stated.format == "loadgen" and submission.mode == "inference":
        # LoadGen has scenarios and no tasks: its measurements stand under anybody's rules, which all hold for them.
        yield entry.warning("B127", "origin", found, "compare it with LoadGen's logs")
    else:
        do = f"make the entry from records: {submission.ruleset} is not that system's"
        yield entry.error("B127", "origin", found, do)


def tuning(entry: Entry) -> Iterator[Finding]:
    """How much was tried is said, and is no negative amount."""
    stated = entry.submission.tuning
    unsaid = stated.trials is None and stated.hours is None and stated.usd is None
    if unsaid and not entry.imported and entry.submission.mode == "training":
        do = entry.advice("give --tuning-trials, 0 if there were none", "see what its author says")
        yield entry.warning("B181", "tuning", "it is not stated", do)
    for name, value in (("hours", stated.hours), ("usd", stated.usd)):
        if value is not None and not (value >= 0 and math.isfinite(value)):
            yield entry.error("B182", f"tuning.{name}", f"{value:g}", "give what was spent")
