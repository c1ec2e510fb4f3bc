"""The rule about the closed division: a recipe is the task's own but for what the rules let it change.

The one idea: which recipe that is stands in the task, which is not at hand here; whoever checks may know it
(``Limits.recipe``). Where nobody does, nothing is concluded.
"""

from __future__ import annotations

from collections.abc import Iterator

from levelbench.records.submissions.rules.entry import Entry, shown
from levelbench.records.submissions.rules.findings import Finding

__all__ = ["closed"]


def closed(entry: Entry) -> Iterator[Finding]:
    """No setting of a closed entry differs from the task's own recipe, but those that its division may change."""
    rules, submission = entry.rules, entry.submission
    division = next((each for each in rules.divisions if each.name == submission.division), None) if rules else None
    if division is None or not division.may_change or entry.aside is None or entry.aside.recipe is None:
        return
    own, wanted, do = submission.settings, entry.aside.recipe, "submit to the open division, or as the task has it"
    if not wanted:
        found = f"{shown(str(own.get('recipe')))} is no recipe of the task's own"
        yield entry.error("B169", "settings.recipe", found, do)
    for name, value in wanted.items():
        if name in division.may_change or (name in own and own[name] == value):
            continue
        field, has = f"settings.{name}", f"the task's recipe has {shown(str(value))}"
        if name in own:
            yield entry.error("B169", field, f"it is {shown(str(own[name]))}, and {has}", do)
        else:
            yield entry.warning("B169", field, f"it is not stated, and {has}", "state all settings of the recipe")
