"""Tells names apart as people do: what looks alike is alike, whatever characters it is written in.

The one idea: two names are compared by their skeletons, in which width, case, spaces and letters of other scripts that
look like Latin ones are gone (after Unicode Technical Standard 39, with the few letters that names are forged with).
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["UNSEEN", "has_mixed_scripts", "skeleton"]

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
