"""Rules about what an entry is: its rules, task and division, its file, its dates and author, and the text in it.

Names are compared by their skeletons, in which width, case, spaces and letters of other scripts that look like Latin
ones are gone (after Unicode Technical Standard 39).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath

import msgspec

from levelbench.competition.checks import CheckedEntry, EntryFinding, instant_of, shown
from levelbench.competition.entries import Setting, day_of
from levelbench.report.numbers import plural

UNSEEN = re.compile(
    "[\u034f\u17b4\u17b5\u180b-\u180f\u2065\u2800\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Characters that show nothing, or as good as nothing, and steer no text."""
_WORD = re.compile(r"[^\W\d_]+")
_ALIKE = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u04bb\u0501\u051b\u051d\u0432\u043a\u043c\u043d\u0442"
    "\u03b1\u03b5\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u0131\u0261\u0585\u057d\u0578"
    "\u04cf\u03f3\u0570\u0251\u1d00\u1d04\u1d07\u1d0b\u1d0d\u1d0f\u1d1b\u1d20\u1d21\u1d22\ua731\u2c81\u2c9f\u2ca5\u01c0"
    "l1|0",
    "aeopcyxijshdqwbkmhtaeikvoptuxigounijhaacekmotvwzsaociiiio",
)
"""In small letters; a capital I, a small l and a one are one letter, and so are an O and a nought."""
_LIKE_LATIN = frozenset({"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU"})


def skeleton(name: str) -> str:
    """What is left of ``name`` without how it is written: equal for names that one takes for each other."""
    seen = "".join(
        each for each in unicodedata.normalize("NFKC", name) if unicodedata.category(each) not in ("Cf", "Cc", "Mn")
    )
    seen = UNSEEN.sub("", seen)
    return " ".join(unicodedata.normalize("NFKC", seen.casefold()).translate(_ALIKE).split())


def has_mixed_scripts(name: str) -> bool:
    """Whether a word of ``name`` has Latin letters beside those of a script that looks like Latin."""
    if name.isascii():
        return False
    for word in _WORD.findall(name):
        scripts = {unicodedata.name(each, "").partition(" ")[0] for each in word}
        if "LATIN" in scripts and scripts & _LIKE_LATIN:
            return True
    return False


_DAY_S = 86_400.0
_BEGIN = 2000
"""No leaderboard of this kind is of a year before it: such a day would hold the first record for ever."""
_STEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
ONLY_THESE = "Only some runs were submitted"
"""How the notes of an entry begin that leaves runs of its group out."""


def rules_of(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """The ruleset and task are known, and target, mode, division, clock and crossing are theirs."""
    submission, rules = entry.submission, entry.rules
    if rules is None:
        found = f"it is {shown(submission.ruleset)}; there are {', '.join(sorted(entry.known))}"
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
    divisions = [each.name for each in rules.divisions]
    if divisions and submission.division not in divisions and not entry.imported:
        yield entry.error("B123", "division", f"it is {submission.division!r}; {rules.id} has {', '.join(divisions)}")
    yield from _clock(entry)
    task = entry.task
    if task is None:
        found = f"it is {shown(submission.task)}; {rules.id} has {', '.join(each.task for each in rules.tasks)}"
        yield entry.error("B111", "task", found)
    elif submission.target != task.target:
        stated, wanted = map(msgspec.structs.asdict, (submission.target, task.target))
        wrong = [
            f"{name} {_value(value)} in place of {_value(wanted[name])}"
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
        yield entry.warning("B125", "crossing", found, f"times are computed again, by {entry.crossing}")


def place(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """The file lies in ``<task>/<mode>/`` and has a name that is an address."""
    if not entry.file:
        return
    path, submission = PurePosixPath(entry.file), entry.submission
    names = {submission.task, *((entry.task.task, *entry.task.aliases) if entry.task else ())}
    if len(path.parts) != 3 or path.parts[0] not in names or path.parts[1] != submission.mode:
        where = "/".join(path.parts[:-1]) or "the leaderboard's own folder"
        do = f"move it to {shown(submission.task)[1:-1]}/{submission.mode}/"
        yield entry.error("B114", "", f"it lies in {shown(where)}", do)
    if _STEM.fullmatch(path.stem) is None or len(path.stem) > 100:
        yield entry.warning("B116", "", f"its name is {shown(path.name)}")


def dates(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """Days are ISO days, none is in the future, and an entry is no older than its runs and rules."""
    text = entry.submission.submitted
    submitted = day_of(text)
    if submitted is None:
        yield entry.error("B117", "submitted", f"it is {shown(text)}", "write the day as in 2026-01-31")
        return
    if (submitted - entry.today).days > 1:
        # A day's grace: somewhere it is tomorrow already.
        yield entry.error("B118", "submitted", f"it is {text} and today is {entry.today}")
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
            found = f"the run started on {started} and the entry is of {submitted}"
            yield entry.error("B119", field, found, "correct the day of submission")
        elif run.curve.time_s and (started - submitted).days + run.curve.time_s[-1] / _DAY_S > 2:
            # As above a day's grace, after the end of the day itself.
            took = f"took {run.curve.time_s[-1] / _DAY_S:.3g} days"
            found = f"the run started on {started}, {took}, and the entry is of {submitted}"
            yield entry.error("B119", field, found, "correct the times or the day of submission")
    unsaid = sum(run.started is None for run in entry.submission.runs)
    if unsaid and not entry.imported:
        yield entry.warning("B128", "runs.started", f"{unsaid} of {len(entry.submission.runs)} runs do not state it")
    since = day_of(entry.rules.date) if entry.rules and not entry.imported else None
    if since is not None and submitted < since:
        found = f"it is {submitted} and {entry.submission.ruleset} is of {since}"
        do = "see whether the day is true: rules may be applied to older runs, and a day may be made up"
        yield entry.warning("B120", "submitted", found, do)


def author(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """Who submits can be named and reached; names are not blank; runs that were left out are told."""
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
_SUSPECT = (b"<", b"=", b"\x7f", b"\\", b"javascript", b"text/html")
"""One of these is in all that hides, steers or looks like markup and is ASCII; quick to look for."""
_SEVERAL_LINES = ("notes", "tuning.notes", "error", "suspect", "doubts")
"""Fields, by the end of their name, in which a line may end."""


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
    """Whether the JSON of an entry needs no closer look: most have nothing but visible ASCII, and no markup."""
    if not raw.isascii():
        return False
    lower = raw.lower()
    return not any(each in lower for each in _SUSPECT)


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
    markup = _MARKUP.search(text)
    if markup:
        yield entry.warning("B221", at, f"{shown(markup[0])} in {shown(text)}")


BESIDE = frozenset(
    {
        *("budget_s", "budget_samples", "budget_j", "plateau"),
        *("ranks", "scheme", "communicator", "scaling", "lr_scale", "engine", "engine.options"),
    }
)
"""Settings of an entry that no recipe has: what ended its runs early, and how several processes trained."""
_SCHEME = "scheme."
"""How the names of a scheme's own settings begin."""


def closed(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """No setting of a closed entry differs from the task's own recipe, but those that its division may change."""
    rules, submission = entry.rules, entry.submission
    division = next((each for each in rules.divisions if each.name == submission.division), None) if rules else None
    if division is None or not division.may_change or entry.aside is None or entry.aside.recipe is None:
        return
    other = entry.aside.version != submission.provenance.version
    differs = entry.warning if other else entry.error
    stated = submission.settings.get("recipe")
    if entry.aside.recipe:
        yield from _settings(entry, entry.aside.recipe, frozenset(division.may_change), differs)
    elif stated is not None:
        yield differs("B169", "settings.recipe", f"{shown(str(stated))} is not one of the task's own recipes")
    elif submission.origin is None:
        yield differs("B169", "settings.recipe", "it is not stated", "state the task's recipe that ran")
    elif not entry.imported:
        # Another system's file names no recipe of ours; under its own rules none is asked for.
        yield entry.warning("B169", "settings.recipe", "it is not stated", "see whether the task's own recipe ran")


def _settings(
    entry: CheckedEntry, wanted: Mapping[str, Setting], may_change: frozenset[str], differs: Callable[..., EntryFinding]
) -> Iterator[EntryFinding]:
    own = entry.submission.settings
    for name, value in wanted.items():
        if name in may_change or (name in own and own[name] == value):
            continue
        field, has = f"settings.{name}", f"the task's recipe has {shown(str(value))}"
        if name in own:
            yield differs("B169", field, f"it is {shown(str(own[name]))}, and {has}")
        else:
            yield entry.warning("B169", field, f"it is not stated, and {has}", "state all settings of the recipe")
    for name, value in own.items():
        beside = name in BESIDE or name.startswith(_SCHEME)
        if beside and not {name, name.partition(".")[0]} & {*wanted, *may_change} and (name, value) != ("ranks", 1):
            found = f"it is {shown(str(value))}, and the task's recipe has none"
            yield differs("B169", f"settings.{shown(name)[1:-1]}", found)
