"""The rule about the closed division: a recipe is the task's own but for what the rules let it change.

The one idea: which recipe that is stands in the task, which is not at hand here; whoever checks may know it
(``Limits.recipe``). Where nobody does, nothing is concluded; of an entry of another version of levelbench, whose tasks
may have been others, a difference is for its reviewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from levelbench.records.submissions.rules.entry import Entry, shown
from levelbench.records.submissions.rules.findings import Finding

__all__ = ["BESIDE", "closed"]

BESIDE = frozenset(
    {
        *("budget_s", "budget_samples", "budget_j", "plateau"),
        *("ranks", "scheme", "communicator", "scaling", "lr_scale", "engine", "engine.options"),
    }
)
"""Settings of an entry that are none of a recipe's: what ended its runs early, and how several processes trained."""
_SCHEME = "scheme."
"""How the names of a scheme's own settings begin."""


def closed(entry: Entry) -> Iterator[Finding]:
    """No setting of a closed entry differs from the task's own recipe, but those that its division may change."""
    rules, submission = entry.rules, entry.submission
    division = next((each for each in rules.divisions if each.name == submission.division), None) if rules else None
    if division is None or not division.may_change or entry.aside is None or entry.aside.recipe is None:
        return
    other = entry.aside.version != submission.provenance.version
    differs = entry.warning if other else entry.error
    if not entry.aside.recipe:
        yield from _no_recipe(entry, differs)
        return
    yield from _settings(entry, frozenset(division.may_change), differs)


_DO = "submit to the open division, or as the task has it"
_Tell = Callable[[str, str, str, str], Finding]


def _no_recipe(entry: Entry, differs: _Tell) -> Iterator[Finding]:
    """Another system's file names no recipe of ours; under its own rules none is asked for."""
    stated, origin = entry.submission.settings.get("recipe"), entry.submission.origin
    if stated is not None:
        yield differs("B169", "settings.recipe", f"{shown(str(stated))} is no recipe of the task's own", _DO)
    elif origin is None:
        yield differs("B169", "settings.recipe", "it is not stated", "state the task's recipe that ran")
    elif not entry.imported:
        yield entry.warning("B169", "settings.recipe", "it is not stated", "see whether the task's own recipe ran")


def _settings(entry: Entry, may_change: frozenset[str], differs: _Tell) -> Iterator[Finding]:
    assert entry.aside is not None
    assert entry.aside.recipe is not None
    own, wanted = entry.submission.settings, entry.aside.recipe
    for name, value in wanted.items():
        if name in may_change or (name in own and own[name] == value):
            continue
        field, has = f"settings.{name}", f"the task's recipe has {shown(str(value))}"
        if name in own:
            yield differs("B169", field, f"it is {shown(str(own[name]))}, and {has}", _DO)
        else:
            yield entry.warning("B169", field, f"it is not stated, and {has}", "state all settings of the recipe")
    for name, value in own.items():
        beside = name in BESIDE or name.startswith(_SCHEME)
        if beside and not {name, name.partition(".")[0]} & {*wanted, *may_change} and (name, value) != ("ranks", 1):
            found = f"it is {shown(str(value))}, and the task's recipe has none"
            yield differs("B169", f"settings.{shown(name)[1:-1]}", found, _DO)
