"""What a rule is, and what it finds.

The one idea: a rule holds its own page (the point of the satire in our words, the sound practice, an example of each),
so the documentation cannot say something else than the code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from levelbench.claims.view import Claim

__all__ = ["SEVERITIES", "Finding", "Rule", "Severity"]

Severity = Literal["error", "warning", "not-stated"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "not-stated")
"""From the worst; ``not-stated`` says that something is missing, and never that somebody is guilty."""


@dataclass(frozen=True)
class Finding:
    """One use of one of the ways: ``found`` with its numbers, what to ``do`` to settle it, and where it was seen.

    ``field`` names the field of the claim ("sides[0].quality.split"); ``where`` the file or place.
    """

    code: str
    severity: Severity
    found: str
    do: str
    field: str = ""
    where: str = ""


@dataclass(frozen=True)
class Rule:
    """One rule. ``check`` is a pure function of the claim; ``way`` is Hoefler's number, or 0 where it is not his.

    ``why`` is one sentence; ``point``, ``practice``, ``bad`` and ``good`` are the rule's page; ``source`` says whose it
    is; ``reads`` names the fields of the claim that it looks at; ``blind`` what it cannot see.
    """

    code: str
    name: str
    way: int
    why: str
    point: str
    practice: str
    bad: str
    good: str
    source: str
    reads: tuple[str, ...]
    blind: str
    check: Callable[[Claim], Iterable[Finding]]
