"""The report's closing sections: the machines and what differs between them, how to read the page, what was run.

The one idea: what could explain a difference other than the recipe comes first, what all arms share is said once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from levelbench.report.figures.figure import Group
from levelbench.report.markup import Html, table_markup, tag
from levelbench.report.numbers import number
from levelbench.report.runs.summaries import listing, target_text

if TYPE_CHECKING:
    from levelbench.measure.verdict import Verdict

__all__ = ["environment_section", "guide_section", "settings_text", "versions_section"]

_MOST_FACTS = 300
_MOST_CHARACTERS = 300

_CROSSING = {
    "confirmed": "the target counts as reached at the second of two evaluations in a row that meet it",
    "first": "the target counts as reached at the first evaluation that meets it (DAWNBench's rule)",
    "sustained": "the target counts as reached at the evaluation from which on every later one meets it",
    "final": "only the last evaluation counts",
    "interpolated": "the target counts as reached on the straight line between the evaluations around it",
}


def environment_section(groups: Sequence[Group]) -> Html:
    """What differs between the arms, if anything, then what they share."""
    arms = [(group.label, _distinct(run.environment for run in group.runs)) for group, _ in groups if group.runs]
    parts = [tag("h2", "Environment")]
    for at, arm in enumerate(arms):
        if at:
            parts += _differences(arms[0], arm, f"Differs: {arms[0][0]} and {arm[0]}")
        parts += _differences((f"first run of {arm[0]}", arm[1][:1]), (f"others of {arm[0]}", arm[1][1:]),
                              f"Differs between the runs of {arm[0]}")  # fmt: skip
    if len(arms) > 1 and len(parts) == 1:
        parts.append(tag("p", "No difference between the groups that would matter for timing."))
    flat = [dict(_flattened(environment)) for _, environments in arms for environment in environments]
    shared = [
        (path, shown) for path, shown in (flat[0].items() if flat else ()) if all(x.get(path) == shown for x in flat)
    ]
    if shared:
        title = "Common to all groups" if len(arms) > 1 else "Common to all runs"
        parts += [tag("h3", title), table_markup(listing("environment", title, ("what", "value"), shared), _MOST_FACTS)]
    return tag("section", *parts)


_Arm = tuple[str, Sequence[Mapping[str, Any]]]


def _distinct(environments: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Each environment once, in order."""
    return list({json.dumps(each, sort_keys=True, default=str): each for each in environments}.values())


def _differences(one: _Arm, other: _Arm, title: str) -> list[Html]:
    """A table of what differs between any run of one arm and any of the other, by how much it matters; else nothing.

    Every run is held against the first one of ``one``; where the runs of ``one`` differ has a table of its own.
    """
    from levelbench.measure.environment import difference

    found = dict.fromkeys(
        (each.path, _shown(each.a), _shown(each.b), each.matters)
        for environment in other[1]
        for each in difference(dict(one[1][0]), dict(environment))
    )
    if not found:
        return []
    rows = list(found)
    table = listing("differences", title, ("what", one[0], other[0], "why it matters"), rows)
    return [tag("h3", title), table_markup(table, _MOST_FACTS)]


def _flattened(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of nested dictionaries as ``(path, text)``, without those that say nothing."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{path}{key}.")
        elif value not in (None, [], ""):
            yield f"{path}{key}", _shown(value)


def _shown(value: object) -> str:
    """A leaf as text: words as they are, the rest as JSON; very long ones cut."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


def guide_section(groups: Sequence[Group], verdicts: Sequence[tuple[str, str, Verdict]]) -> Html:
    """How to read the page: the clocks, crossing rules, targets, intervals and margins that it uses."""
    from levelbench.measure.policies import policy

    specifications = [group.specification for group, _ in groups]
    items = ["The replicate is the run: every interval is over runs, never over the steps inside one."]
    items += [
        f"Clock {name}: {policy(name).source}. Time that it leaves out is shown beside the score."
        for name in dict.fromkeys(each.clock for each in specifications)
    ]
    items += [
        f"Crossing rule {name}: {_CROSSING.get(name, 'see the documentation')}."
        for name in dict.fromkeys(each.crossing for each in specifications)
    ]
    items += dict.fromkeys(f"Target of {each.task}: {target_text(each.target)}." for each in specifications)
    items += [
        "Typical values: the geometric mean, which is what verdicts compare, with a t interval on the logarithms from "
        "six runs on and the lowest and highest of fewer; "
        "where runs missed the target, the Kaplan-Meier median.",
        "A run that missed the target or failed counts as one that never reached it: in “reached”, in the typical time "
        "and in the verdict. One that was given up at its budget might have arrived later; one that failed, diverged "
        "or came to the end of its schedule never would have. Interrupted runs and those still running do not count.",
    ]
    items += dict.fromkeys(
        f"FASTER and SLOWER: the {number(each.level * 100)} % interval of the ratio excludes 1. SAME: the whole "
        f"interval lies within ±{number(each.margin * 100)} % of 1. UNCLEAR: neither; it says how many more "
        "runs would settle it."
        for _, _, each in verdicts
    )
    return tag("section", tag("h2", "How to read this"), tag("ul", *(tag("li", item) for item in items)))


def versions_section(groups: Sequence[Group]) -> Html:
    """What was run: recipe, framework, device and settings of each group, its source's digest, levelbench's version."""
    rows = []
    for group, everything in groups:
        each, records = group.specification, group.own(everything)
        sources = sorted({f"{record.header.source.name} {record.header.source.digest[:12]}" for record in records})
        versions = sorted({record.header.version for record in records})
        place = f"{each.framework} on {each.device}"
        rows.append(
            (
                group.label,
                each.recipe,
                place,
                settings_text(each.settings),
                group.key[:12],
                *map(", ".join, (sources, versions)),
            )
        )
    headers = ("runs of", "recipe", "framework", "settings", "key", "task source (SHA-256)", "levelbench")
    table = listing("versions", "Settings and versions", headers, rows)
    return tag("section", tag("h2", "Settings and versions"), table_markup(table))


def settings_text(settings: Mapping[str, object]) -> str:
    """``hidden=128, lr=0.1``: sorted by name."""
    return ", ".join(f"{name}={value}" for name, value in sorted(settings.items())) or "none"
