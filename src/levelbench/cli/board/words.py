"""From the options of ``levelbench board submit`` to the terms of an entry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from levelbench.errors import UsageError

if TYPE_CHECKING:
    from levelbench.competition.entries import SystemPrice
    from levelbench.competition.making import Terms
    from levelbench.competition.rulesets.registry import Ruleset

__all__ = ["ruleset_of", "terms_of"]


def terms_of(given: dict[str, Any], folder: Path | None = None) -> Terms:
    """What the options say that no record knows; ``UsageError`` for what cannot be meant.

    The ruleset may be one of the leaderboard in ``folder``.
    """
    from levelbench.competition.checks.ceilings import FLOPS
    from levelbench.competition.entries import Author, TuningEffort
    from levelbench.competition.making import Terms
    from levelbench.competition.signatures import fingerprint, public_text, read_key
    from levelbench.measure.clocks import utc_now

    today = utc_now().date().isoformat()
    key = fingerprint(public_text(read_key(given["key"]).public_key())) if given["key"] is not None else None
    if not given["author"].strip():
        raise UsageError("--author", "it is blank", "say who submits")
    flops = given["flops_per_sample"]
    return Terms(
        author=Author(given["author"].strip()[:200], given["email"], given["organisation"], key),
        submitted=today,
        ruleset=ruleset_of(given["ruleset_word"], folder),
        price=_price(given, today),
        division=given["division"],
        code_url=given["code_url"],
        hardware=given["hardware"],
        model=given["model"],
        tuning=TuningEffort(given["tuning_trials"], given["tuning_hours"], given["tuning_usd"], given["tuning_notes"]),
        settings={} if flops is None else {FLOPS: flops},
        notes=given["notes"],
        only_these=given["because"],
    )


def ruleset_of(word: str, folder: Path | None = None) -> Ruleset:
    """The ruleset of an id, one that ships or one of the leaderboard in ``folder``, or in a ``.toml`` file.

    ``UsageError`` if another one of the file's id lies in the leaderboard.
    """
    from levelbench.competition.leaderboard import is_new_ruleset, own_rulesets
    from levelbench.competition.rulesets.registry import read_ruleset, ruleset, ruleset_ids
    from levelbench.errors import UnknownNameError

    if word.endswith(".toml"):
        rules = read_ruleset(Path(word))
        if folder is not None:
            is_new_ruleset(folder, rules)
        return rules
    if folder is None or word in ruleset_ids():
        return ruleset(word)
    known, _ = own_rulesets(folder)
    if word not in known:
        raise UnknownNameError("ruleset", word, known)
    return known[word]


def _price(given: dict[str, Any], today: str) -> SystemPrice | None:
    from levelbench.competition.entries import SystemPrice
    from levelbench.competition.figures import PRICE_USD, PRICE_WORDS, is_within

    usd = given["price_per_hour"]
    if usd is None:
        if given["price_source"] or given["price_date"]:
            raise UsageError("--price-source", "there is no price", "give --price-per-hour, in US dollars")
        return None
    if not is_within(usd, PRICE_USD):
        raise UsageError(f"--price-per-hour {usd:g}", "it is no price", f"give {PRICE_WORDS}")
    if not given["price_source"]:
        raise UsageError(f"--price-per-hour {usd:g}", "it has no source", "give --price-source, where it can be read")
    return SystemPrice(usd, given["price_source"], given["price_date"] or today, not given["not_on_demand"])
