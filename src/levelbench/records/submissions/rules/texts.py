"""Rules about text: nothing that hides or steers other text, nothing that is meant for a browser.

The one idea: every field is shown to people, so what they see must be what is there. The site escapes all of it; text
that looks like a script is told to the reviewer all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from levelbench.records.submissions.names import UNSEEN
from levelbench.records.submissions.rules.entry import Entry, shown
from levelbench.records.submissions.rules.findings import Finding

__all__ = ["texts"]

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


def texts(entry: Entry) -> Iterator[Finding]:
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


def _judged(entry: Entry, value: Any, at: str) -> Iterator[Finding]:
    if isinstance(value, str):
        yield from _judged_text(entry, value, at)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _judged_text(entry, name, at or name)
            yield from _judged(entry, each, f"{at}.{shown(name)[1:-1]}" if at else name)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _judged(entry, each, f"{at}[{number}]")


def _judged_text(entry: Entry, text: str, at: str) -> Iterator[Finding]:
    if text.isascii() and text.isalnum():
        return
    several = at.partition("[")[0].endswith(_SEVERAL_LINES) or at.rpartition(".")[2].partition("[")[0] in _SEVERAL_LINES
    hidden = _HIDING.search(text) or (None if several else _LINES.search(text) or UNSEEN.search(text))
    if hidden:
        found = f"character U+{ord(hidden[0]):04X} in {shown(text)}"
        yield entry.error("B220", at, found, "write visible characters only")
    markup = _MARKUP.search(text)
    if markup:
        yield entry.warning(
            "B221", at, f"{shown(markup[0])} in {shown(text)}", "write plain text: it is shown as it is"
        )
