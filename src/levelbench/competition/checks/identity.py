"""Rules about what an entry is and where it comes from.

They cover its ruleset, task, division, file, dates, author and texts; its price, code, data, software, tuning, origin
and records.

Names are compared by their skeletons, which ignore width, case, spaces and letters of other scripts that look like
Latin ones (after Unicode Technical Standard 39).

Naming the digest of a record does not prove the rest of an entry; so if records are available, each run is rebuilt as
``board submit`` makes it and compared field by field.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time
from functools import lru_cache
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from levelbench.competition.checks import FLOPS, CheckedEntry, EntryFinding, instant_of, is_sha256, nodes_used, shown
from levelbench.competition.entries import (
    Inference,
    Setting,
    Submission,
    SubmittedCurve,
    SubmittedRun,
    day_of,
    is_address,
)
from levelbench.competition.figures import FLOOR_USD, PRICE_USD, PRICE_WORDS, EntryScore, is_within
from levelbench.competition.rulesets import MachineRules
from levelbench.competition.scoring import score
from levelbench.errors import LevelbenchError
from levelbench.report.numbers import plural

UNSEEN = re.compile(
    "[\u034f\u17b4\u17b5\u180b-\u180f\u2065\u2800\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Characters that show (almost) nothing and do not affect other text."""
_WORD = re.compile(r"[^\W\d_]+")
_TITLES = frozenset(("dr", "prof", "professor", "phd", "mr", "mrs", "ms", "bsc", "msc", "mba"))
_ALIKE = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u04bb\u0501\u051b\u051d\u0432\u043a\u043c\u043d\u0442"
    "\u03b1\u03b5\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u0131\u0261\u0585\u057d\u0578"
    "\u04cf\u03f3\u0570\u0251\u1d00\u1d04\u1d07\u1d0b\u1d0d\u1d0f\u1d1b\u1d20\u1d21\u1d22\ua731\u2c81\u2c9f\u2ca5\u01c0"
    "l1|0",
    "aeopcyxijshdqwbkmhtaeikvoptuxigounijhaacekmotvwzsaociiiio",
)
"""In lower case; capital I, small l and one count as one letter, and so do O and zero."""
_LIKE_LATIN = frozenset({"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU"})


_APART = re.compile(r"^(\s*\S+\s+\S.*?)\s+(?:[@|/–—-]|et al\b|& ?co\b|(?:and|&) (?:team|others)\b).*$", re.IGNORECASE)


def joined(name: str) -> str:
    """``name`` in its own order without what parts its words ("Love-lace"); unchanged if it has numbers or no word."""
    letters = re.sub(r"[\W_]+", "", name.casefold())
    return letters if letters.isalpha() else name


def skeleton(name: str) -> str:
    """``name`` without details of how it is written: equal for names that a reader would confuse.

    Accents, punctuation, the order of words ("Lovelace, Ada"), middle initials, titles ("Dr.") and what
    stands after the name in brackets ("(Zurich)") or apart ("- ETH", "et al.") count as such too.
    """
    seen = "".join(
        each for each in unicodedata.normalize("NFKD", name) if unicodedata.category(each) not in ("Cf", "Cc", "Mn")
    )
    seen = re.sub(r"(?<=\S)\s*(?:\([^()]*\)|\[[^\[\]]*\])", "", UNSEEN.sub("", seen))
    seen = _APART.sub(r"\1", seen)
    plain = unicodedata.normalize("NFKC", seen.casefold()).translate(_ALIKE)
    words = [word for word in re.split(r"[\W_]+", plain) if word]
    full = [word for word in words if (len(word) > 1 or f"{word}." not in plain) and word not in _TITLES]
    return "".join(sorted(full if len(full) > 1 else words)) or " ".join(plain.split())


def has_mixed_scripts(name: str) -> bool:
    """Whether a word of ``name`` mixes Latin letters with those of a script that looks like Latin."""
    if name.isascii():
        return False
    for word in _WORD.findall(name):
        scripts = {unicodedata.name(each, "").partition(" ")[0] for each in word}
        if "LATIN" in scripts and scripts & _LIKE_LATIN:
            return True
    return False


_DAY_S = 86_400.0
_BEGIN = 2000
"""No such leaderboard existed before this year: an earlier day would hold the first record for ever."""
_STEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
ONLY_THESE = "Only some runs were submitted"
"""The beginning of an entry's notes that leave out runs of its group."""


def rules_of(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """The ruleset and task are known, and target, mode, division, clock and crossing agree with them."""
    submission, rules = entry.submission, entry.rules
    if rules is None:
        found = f"it is {shown(submission.ruleset)}; known are {', '.join(sorted(entry.known))}"
        yield entry.error("B110", "ruleset", found, "name one of these, or add its file to the folder rulesets")
        return
    kinds = (("training", "runs", "run", "its runs"), ("inference", "inference", "measurement", "one"))
    for mode, field, what, do in kinds:
        n = len(getattr(submission, field))
        if mode == submission.mode and not n:
            yield entry.error("B113", field, f"an entry of {mode} without a {what}", f"submit {do}")
        elif mode != submission.mode and n:
            found = f"an entry of {submission.mode} with {plural(n, what)} of {mode}"
            yield entry.error("B113", field, found)
    divisions = [*rules.division_names, *(("closed", "open") if entry.imported else ())]
    if submission.division not in divisions:
        yield entry.error(
            "B123", "division", f"it is {shown(submission.division)}; {rules.id} has {', '.join(divisions)}"
        )
    yield from _clock(entry)
    task = entry.task
    if task is None:
        found = f"it is {shown(submission.task)}; {rules.id} has {', '.join(each.task for each in rules.tasks)}"
        if entry.imported:
            yield entry.warning("B111", "task", found, "nothing: it is not ranked")
        else:
            yield entry.error("B111", "task", found)
    elif submission.target != task.target:
        stated, wanted = map(msgspec.structs.asdict, (submission.target, task.target))
        wrong = [
            f"{name} {_value(value)} instead of {_value(wanted[name])}"
            for name, value in stated.items()
            if value != wanted[name]
        ]
        do = f"run with the target of {rules.id}, or submit under another ruleset"
        yield entry.error("B112", "target", "; ".join(wrong), do)


def _value(value: object) -> str:
    return shown(value) if isinstance(value, str) else repr(value)


def _clock(entry: CheckedEntry) -> Iterator[EntryFinding]:
    submission, rules = entry.submission, entry.rules
    if rules is None or submission.mode == "inference":
        return
    if submission.clock is None and not entry.imported:
        yield entry.warning("B124", "clock", "it is not stated", f"state the clock of the times: {rules.clock}")
    elif submission.clock not in (None, rules.clock):
        found = f"it is {shown(submission.clock or '')}; that of {rules.id} is {rules.clock}"
        yield entry.error("B124", "clock", found, f"submit the times on the clock {rules.clock}")
    if submission.crossing not in (None, entry.crossing):
        found = f"it is {shown(submission.crossing or '')}; that of {rules.id} is {rules.crossing}"
        yield entry.warning("B125", "crossing", found, f"times are recomputed by {entry.crossing}")


def place(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """The file lies in ``<task>/<mode>/`` and its name needs no escaping in a URL."""
    if not entry.file:
        return
    path, submission = PurePosixPath(entry.file), entry.submission
    names = {submission.task, *((entry.task.task, *entry.task.aliases) if entry.task else ())}
    if len(path.parts) != 3 or path.parts[0] not in names or path.parts[1] != submission.mode:
        where = "/".join(path.parts[:-1]) or "the leaderboard's top folder"
        do = f"move it to {shown(submission.task)[1:-1]}/{submission.mode}/"
        yield entry.error("B114", "", f"it lies in {shown(where)}", do)
    if _STEM.fullmatch(path.stem) is None or len(path.stem) > 100:
        yield entry.warning("B116", "", f"its name is {shown(path.name)}")


def dates(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """Days are ISO days and not in the future, and an entry is not older than its runs and rules."""
    text = entry.submission.submitted
    submitted = day_of(text)
    if submitted is None:
        yield entry.error("B117", "submitted", f"it is {shown(text)}", "write the day as in 2026-01-31")
        return
    if (submitted - entry.today).days > 1:
        # One day of grace: it may already be tomorrow elsewhere.
        yield entry.error("B118", "submitted", f"it is {text}, but today is {entry.today}")
    if submitted.year < _BEGIN:
        yield entry.error("B120", "submitted", f"it is {text}", "write the day of submission")
        return
    for at, run in enumerate(entry.submission.runs):
        if run.started is None:
            continue
        field, instant = f"runs[{at}].started", instant_of(run.started)
        if instant is None:
            do = "write an instant as in 2026-01-31T12:00:00+00:00"
            yield entry.error("B117", field, f"it is {shown(run.started)}", do)
            continue
        started = instant.date()
        if (started - submitted).days > 1:
            found = f"the run started on {started}, but the entry is dated {submitted}"
            yield entry.error("B119", field, found, "correct the day of submission")
        elif run.curve.time_s and (started - submitted).days + run.curve.time_s[-1] / _DAY_S > 2:
            # One day of grace, as above, after the end of the day itself.
            took = f"took {run.curve.time_s[-1] / _DAY_S:.3g} days"
            found = f"the run started on {started} and {took}, but the entry is dated {submitted}"
            yield entry.error("B119", field, found, "correct the times or the day of submission")
    yield from _at_once(entry)
    deadline = day_of(entry.rules.deadline) if entry.rules and entry.rules.deadline else None
    if deadline is not None:
        yield from _late(entry, submitted, deadline)
    unstated = sum(run.started is None for run in entry.submission.runs)
    if unstated and not entry.imported:
        yield entry.warning("B128", "runs.started", f"{unstated} of {len(entry.submission.runs)} runs do not state it")
    since = day_of(entry.rules.date) if entry.rules and not entry.imported else None
    if since is not None and submitted < since:
        found = f"it is {submitted}, but {entry.submission.ruleset} is dated {since}"
        do = "check the day: rules may be applied to older runs, but a day may be invented"
        yield entry.warning("B120", "submitted", found, do)


def _at_once(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """Runs of one machine that began before another ended: either disturbs the other, or the starts are invented."""
    if entry.imported or nodes_used(entry.submission) > 1:
        return
    begun = [
        (instant, at, run.curve.time_s[-1])
        for at, run in enumerate(entry.submission.runs)
        if run.started and run.curve.time_s and (instant := instant_of(run.started))
    ]
    for (first, before, took_s), (second, at, _) in pairwise(sorted(begun)):
        if (apart_s := (second - first).total_seconds()) < took_s:
            found = f"it began {apart_s:.3g} s after runs[{before}], which took {took_s:.3g} s"
            yield entry.warning("B129", f"runs[{at}].started", found)
            return


def _late(entry: CheckedEntry, submitted: date, deadline: date) -> Iterator[EntryFinding]:
    """What came after the ``deadline``: the day of the entry, or the end of a run, of which the instant is known."""
    if submitted > deadline:
        found = f"it is {submitted}; the deadline of {entry.submission.ruleset} was {deadline}"
        yield entry.error("B265", "submitted", found)
        return
    over_s = datetime.combine(deadline, time.max, UTC).timestamp()
    for at, run in enumerate(entry.submission.runs):
        began = instant_of(run.started or "")
        if began is not None and began.timestamp() + (run.curve.time_s[-1] if run.curve.time_s else 0.0) > over_s:
            found = f"the run began at {began.isoformat(' ', 'minutes')}, and ended after the deadline, {deadline}"
            yield entry.error("B265", f"runs[{at}].started", found)
            return


def author(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """The author can be named and reached; names are not blank; left-out runs are reported."""
    submission = entry.submission
    named = {
        "author.name": submission.author.name,
        "model": submission.model,
        "framework": submission.framework,
        "hardware.description": submission.hardware.description,
    }
    for name, text in named.items():
        if not text.strip():
            yield entry.error("B121", name, "it is blank")
        elif has_mixed_scripts(text):
            yield entry.warning("B222", name, f"it is {ascii(text)[:120]}")
    if not submission.author.email and not submission.author.organisation:
        yield entry.note("B122", "author", "neither email nor organisation")
    if submission.notes.startswith(ONLY_THESE):
        yield entry.warning("B126", "notes", shown(submission.notes.partition("\n")[0], 200))


_HIDING = re.compile(
    "[\x00-\x08\x0b\x0c\x0d\x0e-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]"
)
_LINES = re.compile("[\n\t]")
_MARKUP = re.compile(
    r"<\s{0,8}/?\s{0,8}[a-zA-Z!]|javascript\s{0,8}:|data\s{0,8}:\s{0,8}text/html"
    r"|\bon[a-z]{3,40}\s{0,8}=\s{0,8}[\"'(a-z]",
    re.IGNORECASE,
)
_FRAMES = re.compile(r"<(?:module|lambda|genexpr|(?:list|dict|set)comp)>")
"""How Python names functions without a name, as in the place of a run's error."""
_TELLTALE = (b"<", b"=", b"\x7f", b"\\", b"javascript", b"text/html")
"""Any ASCII text that hides, steers or looks like markup contains one of these; a fast search."""
_SEVERAL_LINES = ("notes", "tuning.notes", "error", "suspect", "doubts")
"""Fields, by the end of their name, that may have several lines."""


def texts(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """Every text, and every name that the author chose."""
    if entry.raw is not None and _is_plain(entry.raw):
        return
    yield from _judged_text(entry, entry.submission.notes, "notes")
    rest = msgspec.structs.replace(entry.submission, notes="")
    if _is_plain(msgspec.json.encode(rest)):
        return
    plain = {
        name: msgspec.to_builtins(getattr(rest, name))
        for name in rest.__struct_fields__
        if name not in ("runs", "inference")
    }
    yield from _judged(entry, plain, "")
    for at, run in enumerate(entry.submission.runs):
        for name in run.__struct_fields__:
            value = getattr(run, name)
            if name == "curve":
                yield from _judged(entry, dict.fromkeys(value.others), f"runs[{at}].curve.others")
            elif value and isinstance(value, str | dict | list):
                yield from _judged(entry, value, f"runs[{at}].{name}")
    for at, each in enumerate(entry.submission.inference):
        yield from _judged(entry, msgspec.to_builtins(each), f"inference[{at}]")


def _is_plain(raw: bytes) -> bool:
    """Whether the JSON of an entry needs no closer look: most are visible ASCII without markup."""
    if not raw.isascii():
        return False
    lower = raw.lower()
    return not any(each in lower for each in _TELLTALE)


def _judged(entry: CheckedEntry, value: object, at: str) -> Iterator[EntryFinding]:
    if isinstance(value, str):
        yield from _judged_text(entry, value, at)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _judged_text(entry, name, at or name)
            yield from _judged(entry, each, f"{at}.{shown(name)[1:-1]}" if at else name)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _judged(entry, each, f"{at}[{number}]")


def _judged_text(entry: CheckedEntry, text: str, at: str) -> Iterator[EntryFinding]:
    if text.isascii() and text.isalnum():
        return
    several = at.partition("[")[0].endswith(_SEVERAL_LINES) or at.rpartition(".")[2].partition("[")[0] in _SEVERAL_LINES
    hidden = _HIDING.search(text) or (None if several else _LINES.search(text) or UNSEEN.search(text))
    if hidden:
        yield entry.error("B220", at, f"character U+{ord(hidden[0]):04X} in {shown(text)}")
    markup = _MARKUP.search(_FRAMES.sub("", text))
    if markup:
        yield entry.warning("B221", at, f"{shown(markup[0])} in {shown(text)}")


NOT_IN_RECIPES = frozenset(
    {
        *("budget_s", "budget_samples", "budget_j", "plateau"),
        *("ranks", "scheme", "communicator", "scaling", "lr_scale", "engine", "engine.options"),
    }
)
"""Settings that no recipe has: what ended runs early, and how several processes trained."""
_BESIDE_RECIPES = frozenset(("recipe", "device", "evaluate_every", "budget_epochs", FLOPS))
"""What every entry of training states beside the settings of its recipe."""
_SCHEME = "scheme."
"""The prefix of a scheme's own settings."""


def closed(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """An entry's settings equal those of the task's recipe, if its division says which of them it may change."""
    rules, submission = entry.rules, entry.submission
    may_change = rules.may_change(submission.division) if rules else None
    if may_change is None or entry.known_facts is None or entry.known_facts.recipe is None:
        return
    other = entry.known_facts.version != submission.provenance.version
    differs = entry.warning if other else entry.error
    stated = submission.settings.get("recipe")
    if entry.known_facts.recipe:
        yield from _settings(entry, entry.known_facts.recipe, may_change, differs)
    elif stated is not None:
        yield differs("B169", "settings.recipe", f"{shown(str(stated))} is not one of the task's own recipes")
    elif submission.origin is None:
        yield differs("B169", "settings.recipe", "it is not stated", "state the task's recipe that ran")
    elif not entry.imported:
        # Another system's file cannot name a recipe of ours, so its own rules do not require one.
        yield entry.warning("B169", "settings.recipe", "it is not stated", "check whether the task's own recipe ran")


_FAR = 100.0
"""A setting that may change is seldom this many times the recipe's."""


def _changed(entry: CheckedEntry, name: str, value: Setting | None, wanted: Setting) -> EntryFinding:
    """The finding about a setting that the division may change and that is not the recipe's, or is not stated."""
    said = "not stated" if value is None else shown(str(value))[1:-1]
    found = f"{name} is {said}, the task's recipe has {shown(str(wanted))[1:-1]}"
    found += f" (division {shown(entry.submission.division)[1:-1]})"
    numbers = [each for each in (value, wanted) if isinstance(each, int | float) and not isinstance(each, bool)]
    alike = len(numbers) == 2 or type(value) is type(wanted)
    low, high = (min(numbers), max(numbers)) if len(numbers) == 2 else (1.0, 1.0)
    near = alike and (0 < high <= _FAR * low or 0 in (low, high))
    say = entry.note if near else entry.warning
    return say("B167", f"settings.{name}", found)


def _settings(
    entry: CheckedEntry, wanted: Mapping[str, Setting], may_change: frozenset[str], differs: Callable[..., EntryFinding]
) -> Iterator[EntryFinding]:
    own = entry.submission.settings
    for name, value in wanted.items():
        if name in own and own[name] == value:
            continue
        if name in may_change:
            yield _changed(entry, name, own.get(name), value)
            continue
        field, has = f"settings.{name}", f"the task's recipe has {shown(str(value))}"
        if name in own:
            yield differs("B169", field, f"it is {shown(str(own[name]))}, but {has}")
        else:
            yield entry.warning("B169", field, f"it is not stated, but {has}", "state all settings of the recipe")
    for name, value in own.items():
        extra = name in NOT_IN_RECIPES or name.startswith(_SCHEME)
        if extra and not {name, name.partition(".")[0]} & {*wanted, *may_change} and (name, value) != ("ranks", 1):
            found = f"it is {shown(str(value))}, but the task's recipe has none"
            yield differs("B169", f"settings.{shown(name)[1:-1]}", found)
        elif entry.submission.mode == "training" and not extra and name not in {*wanted, *may_change, *_BESIDE_RECIPES}:
            found = f"it is {shown(str(value))}, and the task's recipe has no such setting"
            yield entry.warning("B169", f"settings.{shown(name)[1:-1]}", found, "check what the author changed")


_YEAR = 366
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_PINNED = re.compile(r"(?<![0-9a-f])[0-9a-f]{7,64}(?![0-9a-f])|/(?:releases/tag|tags?|tree/v?\d|archive)[/.\d]")


def price(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """A price is positive, on demand, and states where and when it was read."""
    stated, rules = entry.submission.price, entry.rules
    if stated is None:
        scores: list[EntryScore] = []
        if rules is not None and any(each.cost_usd is not None for each in entry.submission.inference):
            # It may be ranked by the cost of an answer that its author states, which needs no price.
            scores += score(entry.submission, rules).in_scenarios()
        if all(each.inference_cost.value is None for each in scores):
            yield entry.note("B160", "price", "it is not stated")
        return
    possible = is_within(stated.usd_per_hour, PRICE_USD)
    if not possible:
        found = f"{stated.usd_per_hour:g} US dollars an hour"
        yield entry.error("B164", "price.usd_per_hour", found, f"give {PRICE_WORDS}, of the whole system")
    required = rules is not None and rules.cost.source_required
    say = entry.error if required else entry.note
    if not stated.source:
        yield say("B161", "price.source", "it is not stated")
    elif not is_address(stated.source):
        yield entry.warning("B161", "price.source", f"it is {shown(stated.source)}")
    if possible and stated.usd_per_hour < FLOOR_USD:
        yield entry.warning("B166", "price.usd_per_hour", f"{stated.usd_per_hour:g} US dollars an hour")
    day = day_of(stated.read_on or "")
    if stated.read_on is None:
        if required:
            yield entry.warning("B162", "price.read_on", "it is not stated", "give the day: prices change")
    elif day is None:
        yield entry.error("B162", "price.read_on", f"it is {shown(stated.read_on)}", "write the day as in 2026-01-31")
    elif (day - entry.today).days > 1:
        found = f"it is {stated.read_on}, but today is {entry.today}"
        yield entry.error("B162", "price.read_on", found, "correct the day")
    elif (since := day_of(entry.submission.submitted)) is not None and abs((day - since).days) > _YEAR:
        yield entry.warning("B165", "price.read_on", f"it was read on {stated.read_on}, but the entry is dated {since}")
    if rules is not None and rules.cost.on_demand_only:
        if stated.on_demand is False:
            do = f"give the on-demand price: {rules.id} accepts no other"
            yield entry.error("B163", "price.on_demand", "it is a price for spot or reserved use", do)
        elif stated.on_demand is None and required:
            yield entry.warning("B163", "price.on_demand", "it is not stated", "state that the price is on demand")


def code(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """The code can be found in the version that ran, without unpublished changes."""
    stated = entry.submission.code
    if not stated.url:
        yield entry.warning("B170", "code.url", "it is not stated")
    elif not is_address(stated.url):
        yield entry.error("B172", "code.url", f"it is {shown(stated.url)}")
    elif not stated.commit and _PINNED.search(stated.url) is None:
        yield entry.warning("B171", "code.url", f"{shown(stated.url)}, without a commit")
    if stated.commit and _COMMIT.fullmatch(stated.commit) is None:
        yield entry.warning("B174", "code.commit", f"it is {shown(stated.commit)}")
    if stated.dirty:
        yield entry.warning("B173", "code.dirty", "the working tree had changes")


def data(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """The data is real and identified by its checksums; the software is named."""
    stated = entry.submission.provenance
    if stated.synthetic:
        yield entry.error("B177", "provenance.synthetic", "synthetic data")
    for name, digest in stated.checksums.items():
        if not is_sha256(digest):
            field = f"provenance.checksums.{shown(name)[1:-1]}"
            yield entry.error("B176", field, f"it is {shown(digest)}")
    if entry.imported:
        return
    if not stated.checksums and entry.submission.mode == "training":
        yield entry.warning("B175", "provenance.checksums", "there are none")
    if not stated.software:
        yield entry.note("B180", "provenance.software", "there is none")


def _recorded(submission: Submission) -> Iterator[tuple[str, SubmittedRun | Inference]]:
    """Everything that is made from a record, by field."""
    yield from ((f"runs[{at}]", run) for at, run in enumerate(submission.runs))
    yield from ((f"inference[{at}]", each) for at, each in enumerate(submission.inference))


def records(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """Every run and measurement names its record, and the record is among the available ones, if any."""
    submission = entry.submission
    held = {place for place, _, _ in _held(submission, entry.records or {})}
    for place, stated in _recorded(submission):
        field, digest = f"{place}.record_digest", stated.record_digest
        if digest is None:
            if not entry.imported:
                yield entry.warning("B178", field, "it is not stated")
            if entry.records is not None and submission.origin is None and place not in held:
                found = "it is not stated, and no record has the id of the run"
                yield entry.error("B179", field, found, "provide the record, or make the entry again")
        elif not is_sha256(digest):
            yield entry.error("B176", field, f"it is {shown(digest)}")
        elif entry.records is not None and digest not in entry.records:
            found = f"no record has the digest {digest[:12]}..."
            yield entry.error("B179", field, found, "provide the unchanged record, or make the entry again")


def origin(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """An entry from another system's file uses that system's rules; a foreign origin is reported."""
    stated, submission = entry.submission.origin, entry.submission
    if stated is None:
        return
    found = f"imported from {shown(stated.file)} ({shown(stated.format)[1:-1]}), according to the author"
    if entry.imported:
        yield entry.note("B127", "origin", found, "compare it with that file")
    elif stated.format == "loadgen" and submission.mode == "inference":
        # LoadGen has scenarios but no tasks: its measurements may use any rules, which then all apply.
        yield entry.warning("B127", "origin", found, "compare it with LoadGen's logs")
    else:
        do = f"make the entry from records: {submission.ruleset} does not belong to that system"
        yield entry.error("B127", "origin", found, do)


def tuning(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """The tuning effort is stated, and is not negative."""
    stated = entry.submission.tuning
    unstated = stated.trials is None and stated.hours is None and stated.usd is None
    if unstated and not entry.imported and entry.submission.mode == "training":
        yield entry.warning("B181", "tuning", "it is not stated")
    for name, value in (("hours", stated.hours), ("usd", stated.usd)):
        if value is not None and not (value >= 0 and math.isfinite(value)):
            yield entry.error("B182", f"tuning.{name}", f"{value:g}")


_CLOSE = 1e-9
"""The relative difference that is allowed, since another machine may round the last digit differently."""
_SHOWN = 5
_AUTHORS_OWN = frozenset({"cost_usd", "time_to_target_s", "curve_digest"})
"""What the author may state freely, or what another rule compares with the curve."""


def recorded(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """Each run and measurement agrees with its record, and no record of their group is missing."""
    records = entry.records
    if records is None:
        return
    held = list(_held(entry.submission, records))
    for field, stated, digest in held:
        yield from _compared(entry, stated, Path(records[digest]), field)
    own = [digest for _, _, digest in held]
    yield from _labels(entry, records, own)
    yield from _left_out(entry, records, own)


def _held(submission: Submission, records: Mapping[str, str]) -> Iterator[tuple[str, SubmittedRun | Inference, str]]:
    """What has an available record, with its field and the record's digest: found by the id if no digest is stated."""
    every = list(_recorded(submission))
    by_id = {}
    if any(stated.record_digest is None and stated.record_id for _, stated in every):
        heads = ((digest, _head(path)) for digest, path in records.items())
        by_id = {head.id: digest for digest, head in heads if head is not None}
    for field, stated in every:
        digest = by_id.get(stated.record_id or "") if stated.record_digest is None else stated.record_digest
        if digest is not None and digest in records:
            yield field, stated, digest


def _labels(entry: CheckedEntry, records: Mapping[str, str], own: Sequence[str]) -> Iterator[EntryFinding]:
    """Task, framework, settings, hardware and software are those of one of the records.

    An entry may have further settings and leave out parts of its hardware and software.
    """
    heads = [_head(records[digest]) for digest in own]
    known = [head.labels for head in heads if head is not None and head.labels is not None]
    if not known:
        return
    submission = entry.submission
    task = entry.task.task if entry.task else submission.task
    stated: dict[str, Any] = {"task": task, "framework": submission.framework}
    stated |= {f"settings.{name}": value for name, value in submission.settings.items()}
    optional = {f"hardware.{name}": getattr(submission.hardware, name) for name in _PARTS}
    optional |= {f"provenance.software.{name}": text for name, text in submission.provenance.software.items()}
    stated |= {name: value for name, value in optional.items() if value is not None}
    for name in dict.fromkeys([*known[0], *optional]):
        if name not in stated and name.startswith(("hardware.", "provenance.")):
            continue
        if not any(_is_same(labels.get(name), stated.get(name)) for labels in known):
            found = f"{shown(str(stated.get(name)))} in the entry, {shown(str(known[0].get(name)))} in its record"
            yield entry.error("B183", name, found)


_PARTS = ("accelerators", "accelerator", "processor", "cores", "memory_bytes")
_FACTS = {
    "processor": ("machine.cpu", "machine.cpu.model"),
    "cores": ("machine.cores_allowed", "machine.cores_logical"),
    "memory_bytes": ("machine.memory_bytes",),
}
"""The parts of the hardware, and the names of the same facts in the environment that ``board submit`` writes."""


def hardware(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """The hardware is the machine that the rules fix, and agrees with the environment that the entry itself states."""
    stated = entry.submission.hardware
    machine = entry.rules.machine if entry.rules is not None else None
    if machine is not None:
        yield from _other_machine(entry, machine)
    for part in _FACTS:
        known, value = _known(entry, part), getattr(stated, part)
        if known is not None and value is not None and str(value) != known:
            found = f"{shown(str(value))} as hardware, {shown(known)} in its environment"
            yield entry.error("B185", f"hardware.{part}", found)
        elif known is None and value and part != "memory_bytes" and not entry.imported:
            found = "the environment does not state it, so nothing confirms it"
            yield entry.warning("B185", f"hardware.{part}", found)
    yield from _accelerators(entry)
    if (stated.nodes or 1) > (used := nodes_used(entry.submission)):
        found = f"{stated.nodes} nodes as hardware, {plural(used, 'rank')} in its settings"
        yield entry.warning("B185", "hardware.nodes", found, "state the nodes that took part")


def _accelerators(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """Accelerators are stated if the runs were made on one, and only if the environment has them."""
    stated, submission = entry.submission.hardware, entry.submission
    names = submission.provenance.environment.get("accelerators.names")
    device = str(submission.settings.get("device", "cpu")).partition(":")[0]
    if stated.accelerators and names == "":
        found = f"{plural(stated.accelerators, 'accelerator')} as hardware, none in its environment"
        yield entry.error("B185", "hardware.accelerators", found)
    elif not stated.accelerators and names and device not in ("cpu", ""):
        found = f"none as hardware, but its runs were made on {shown(device)} of {shown(names)}"
        yield entry.error("B185", "hardware.accelerators", found)
    elif not stated.accelerators and device == "cuda" and not entry.imported:
        found = "none as hardware, but its runs were made on 'cuda'"
        yield entry.warning("B185", "hardware.accelerators", found, "state which accelerators took part")


def _known(entry: CheckedEntry, part: str) -> str | None:
    """What the environment says of a part of the hardware."""
    facts = entry.submission.provenance.environment
    return next((facts[name] for name in _FACTS[part] if name in facts), None)


def _other_machine(entry: CheckedEntry, machine: MachineRules) -> Iterator[EntryFinding]:
    """What of the stated hardware is not the ``machine`` that the rules fix, which is a single one unless they say."""
    stated, fixes = entry.submission.hardware, f"{entry.submission.ruleset} fixes"
    for part, wanted in {"nodes": 1, **machine.parts}.items():
        has = getattr(stated, part)
        if has is None and part == "nodes":
            has = 1
        if has != wanted and (has or wanted):
            had = "it is not stated" if has is None else f"it is {shown(str(has))}"
            yield entry.error("B264", f"hardware.{part}", f"{had}; {fixes} {shown(str(wanted))}")
    if machine.accelerators == 0 and stated.accelerator and not stated.accelerators:
        found = f"it is {shown(stated.accelerator)}; {fixes} 0 accelerators"
        yield entry.error("B264", "hardware.accelerator", found)


def _compared(entry: CheckedEntry, stated: SubmittedRun | Inference, path: Path, at: str) -> Iterator[EntryFinding]:
    from levelbench.competition.making import run_of, submitted
    from levelbench.records.inference import InferenceRecord
    from levelbench.records.reader import read_record

    clock = entry.rules.clock if entry.rules is not None else entry.submission.clock or "wall"
    target = entry.task.target if entry.task is not None else entry.submission.target
    made: SubmittedRun | Inference
    try:
        if isinstance(stated, SubmittedRun):
            made = run_of(read_record(path), target, clock, entry.crossing)
        else:
            made = submitted([InferenceRecord.read(path)])
    except LevelbenchError as problem:
        yield entry.error("B179", f"{at}.record_digest", problem.found, "provide the unchanged record")
        return
    for name in stated.__struct_fields__:
        was, is_now = getattr(made, name), getattr(stated, name)
        if isinstance(was, SubmittedCurve) and isinstance(is_now, SubmittedCurve) and is_now.steps is None:
            # Entries of before levelbench 0.2 do not state their steps.
            was = msgspec.structs.replace(was, steps=None)
        # An entry may leave out optional fields, but what it states must agree with the record.
        if name in _AUTHORS_OWN or (is_now is None and was is not None) or _is_same(was, is_now):
            continue
        field, was, is_now = _apart(f"{at}.{name}", was, is_now)
        yield entry.error("B183", field, f"{shown(str(is_now))} in the entry, {shown(str(was))} in its record")


def _apart(field: str, was: object, is_now: object) -> tuple[str, object, object]:
    """The first figure within two values that differs, with its path: of a curve its point, and not all of it."""
    if isinstance(was, Struct) and isinstance(is_now, Struct):
        was, is_now = (
            {name: getattr(each, name) for name in each.__struct_fields__ if getattr(each, name) is not None}
            for each in (was, is_now)
        )
    parts: list[tuple[str, object, object]] = []
    if isinstance(was, Mapping) and isinstance(is_now, Mapping):
        names = dict.fromkeys((*is_now, *was))
        parts = [(f"{field}.{name}", was.get(name, "nothing"), is_now.get(name, "nothing")) for name in names]
    elif isinstance(was, list) and isinstance(is_now, list):
        if len(was) != len(is_now):
            return field, f"{len(was)} values", f"{len(is_now)} values"
        parts = [(f"{field}[{at}]", *pair) for at, pair in enumerate(zip(was, is_now, strict=True))]
    first = next((each for each in parts if not _is_same(each[1], each[2])), None)
    return (field, was, is_now) if first is None else _apart(*first)


def _is_same(was: object, is_now: object) -> bool:
    if isinstance(was, Struct) and isinstance(is_now, Struct):
        names = was.__struct_fields__
        return all(_is_same(getattr(was, name), getattr(is_now, name)) for name in names)
    if isinstance(was, Mapping) and isinstance(is_now, Mapping):
        return was.keys() == is_now.keys() and all(_is_same(was[name], is_now[name]) for name in was)
    if isinstance(was, list) and isinstance(is_now, list):
        return len(was) == len(is_now) and all(map(_is_same, was, is_now))
    if isinstance(was, float) and isinstance(is_now, int | float):
        return abs(was - is_now) <= _CLOSE * max(abs(was), 1e-3)
    return bool(was == is_now)


class _Head(NamedTuple):
    """What identifies a run: its id and seed, its group of replicates, the day of its start, and its labels."""

    id: str
    seed: int
    group: tuple[str, ...]
    day: str
    labels: dict[str, Any] | None = None


def _left_out(entry: CheckedEntry, records: Mapping[str, str], own: Sequence[str]) -> Iterator[EntryFinding]:
    """Records with the entry's specification, source and machine that the entry lacks.

    All runs count, so a run that was there on the day of the entry must be in it, unless the entry says why not.
    """
    submission = entry.submission
    heads = {digest: _head(records[digest]) for digest in own}
    groups = {head.group for head in heads.values() if head is not None}
    if not groups:
        return
    have = {(head.id, head.seed) for head in heads.values() if head is not None}
    # An entry that states a day before its own runs (elsewhere it may be yesterday) was made on the day of the last.
    day = max(submission.submitted, *(head.day for head in heads.values() if head is not None))
    missing: list[str] = []
    later = True
    for digest, path in records.items():
        head = _head(path) if digest not in heads else None
        # Copies of one record in two folders are one run.
        if head is not None and head.group in groups and (head.id, head.seed) not in have:
            missing.append(f"{head.id} (seed {head.seed})")
            later = later and head.day > day
    if missing:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        found = f"{len(missing)} with the same specification, source and machine: {', '.join(missing[:_SHOWN])}{more}"
        field = "runs" if submission.runs else "inference"
        if submission.notes.startswith(ONLY_THESE):
            yield entry.warning("B184", field, found)
        elif later:
            yield entry.note("B184", field, f"made after the day of the entry: {found}")
        else:
            do = "make the entry again: levelbench board submit --replace takes all runs"
            yield entry.error("B184", field, found, do)


@lru_cache(maxsize=100_000)
def _head(path: str) -> _Head | None:
    """The identity of a record; ``None`` for a file that cannot be read as one."""
    from levelbench.competition.making import provenance_of
    from levelbench.measure.environment import machine_of, system_of
    from levelbench.records.inference import InferenceRecord
    from levelbench.records.reader import read_record
    from levelbench.records.schema import Header

    try:
        header: Any = InferenceRecord.read(path).header if path.endswith(".jsonlines") else read_record(path).header
    except LevelbenchError:
        return None
    machine = machine_of(header.environment)
    if not isinstance(header, Header):
        return _Head(header.id, header.seed, (header.key, "", machine), header.started[:10])
    specification = header.specification
    labels: dict[str, Any] = {"task": specification.task, "framework": specification.framework}
    labels |= {f"settings.{name}": value for name, value in specification.settings.items()}
    system = system_of(header.environment, specification.device)
    labels |= {f"hardware.{name}": getattr(system, name) for name in _PARTS}
    software = provenance_of(header.environment, version=header.version).software
    labels |= {f"provenance.software.{name}": text for name, text in software.items()}
    return _Head(header.id, header.seed, (header.key, header.source.whole, machine), header.started[:10], labels)
