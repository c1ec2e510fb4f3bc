"""From the entries of one task under one ruleset to its board: ranks, record over the years, card, words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Literal

import msgspec

from levelbench.competition.figures import (
    COLUMNS,
    MORE_IS_BETTER,
    BoardFigure,
    Bounded,
    Column,
    Placing,
    RankedScenario,
    order,
    own_scenario,
    progress,
    rank,
)
from levelbench.competition.rulesets.registry import InferenceRules, Ruleset, TaskRules
from levelbench.competition.scoring import aggregation_words
from levelbench.competition.site.parts import target_text
from levelbench.competition.site.payload import (
    BOARD_SCHEMA,
    DIVISIONS,
    BoardPayload,
    EntryPayload,
    FigurePayload,
    Leader,
    RulesetFacts,
    TaskCard,
    brief,
    slug_of,
    with_rank,
)
from levelbench.records.schema import Target


def inference_note(payload: BoardPayload) -> str:
    """How the two columns of inference are made; empty where the rules have no inference."""
    rules = payload.inference
    scenario = payload.scenario or own_scenario(rules)
    if scenario is None:
        return ""
    kept = kept_text(rules, payload.target)
    whose = f", whose answers keep {kept}" if kept else ""
    return (
        f"{_figure(scenario)}{whose}. Of several processes it is the median; one process has no interval. A million "
        "answers cost the price of the time that they take, or what the author states where there is no price. "
        "Each scenario has a ranking of its own."
    )


def _figure(scenario: RankedScenario) -> str:
    """What the column has, as the beginning of a sentence."""
    if scenario.name == "offline":
        return "Throughput is the samples a second of offline, which asks for all of them at once"
    if scenario.name == "server":
        return f"Throughput is the queries a second, at random times, of which 99 % are answered {_bound(scenario)}"
    if scenario.name == "dawnbench":
        return "Latency is the mean of dawnbench"
    return f"Latency is the {scenario.measure} of {scenario.title}, as LoadGen's early stopping estimates it"


def _bound(scenario: RankedScenario) -> str:
    return "in time" if scenario.bound_s is None else scenario.title.removeprefix(f"{scenario.name} ")


def inference_facts(rules: InferenceRules | None, target: Target) -> list[tuple[str, str]]:
    """Each rule with its name."""
    if rules is None:
        return []
    found = [("Scenarios of inference", f"{', '.join(rules.scenarios)}; each is ranked by itself")]
    if rules.threshold is not None:
        found.append(("Answers of inference keep", kept_text(rules, target)))
    found.append(("Least queries of inference", _queries(rules)))
    if rules.least_duration_s:
        found.append(("Least time of inference", f"{brief(rules.least_duration_s)} s"))
    if rules.latency_bound_s is not None:
        found.append(("Latency bound of server", f"{brief(rules.latency_bound_s)} s"))
    elif "server" in rules.scenarios:
        found.append(("Latency bound of server", "chosen by the author; each bound is ranked by itself"))
    return found


def kept_text(rules: InferenceRules | None, target: Target) -> str:
    """The quality that answers of inference keep; empty where the rules ask for none."""
    if rules is None or rules.threshold is None:
        return ""
    return target_text(msgspec.structs.replace(target, threshold=rules.threshold)).partition(" on the ")[0]


def _queries(rules: InferenceRules) -> str:
    """The count of most scenarios, then those that have one of their own; empty where there is no such rule."""
    own = [f"{scenario}: {rules.least(scenario):,}" for scenario in rules.scenarios if scenario in rules.queries]
    others = len(own) < len(rules.scenarios) and rules.least_queries
    plain = [f"{rules.least_queries:,}" + (" of every other scenario" if own else "")] if others else []
    return "; ".join(own + plain)


def board_slug(task: str, ruleset: str, scenario: RankedScenario | None = None) -> str:
    """The name of a board's files: ``cifar10_dawnbench-1.0``; with a digest where that would need escapes.

    No other board has it: what lies between the parts is in none of them, nor in a name with a digest.
    """
    parts = (task, ruleset) if scenario is None else (task, ruleset, scenario.slug)
    plain = "_".join(parts)
    # A part that is too long, or has an underscore of its own, is none of these.
    safe = plain.count("_") == len(parts) - 1 and re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,59}(_[a-z0-9.-]{1,59})+", plain)
    return plain if safe and ".." not in plain else slug_of(repr(parts))


_TITLES = {
    "charlm": "Character language model",
    "cifar10": "CIFAR-10",
    "digits": "Digits",
    "fashion-mnist": "Fashion-MNIST",
    "imagenet": "ImageNet",
    "maskrcnn": "Mask R-CNN",
    "resnet": "ResNet",
    "spam": "Spam",
    "squad": "SQuAD",
    "ssd": "SSD",
    "translation-en-es": "Translation, English to Spanish",
}


def task_title(task: str) -> str:
    """What people call the task; one that is not known by its own name."""
    return _TITLES.get(task, task)


def ruleset_facts(rules: Ruleset) -> RulesetFacts:
    """What a page says of the rules."""
    return RulesetFacts(
        id=rules.id,
        name=rules.name,
        version=rules.version,
        date=rules.date,
        source=rules.source,
        clock=rules.clock,
        crossing=rules.crossing,
        aggregation=aggregation_words(rules.aggregation),
        aggregation_rule=rules.aggregation.rule,
        runs=rules.aggregation.runs,
        drop=rules.aggregation.drop,
        rounding=rules.cost.rounding,
        best_of=rules.aggregation.best_of,
        windows=rules.aggregation.windows,
    )


def empty_board(title: str, rules: Ruleset, task: TaskRules, scenario: RankedScenario | None = None) -> BoardPayload:
    """The board without entries: what an entry's own page gets. ``scenario``: the one that it is apart for."""
    slug = board_slug(task.task, rules.id, scenario)
    compared = scenario or own_scenario(task.inference)
    name = task_title(task.task)
    return BoardPayload(
        schema=BOARD_SCHEMA,
        title=title,
        generated="",
        slug=slug,
        page=f"{slug}.html",
        data="",
        ruleset=ruleset_facts(rules),
        task=task.task,
        task_title=name if scenario is None else f"{name}, {scenario.title}",
        target=task.target,
        modes=[],
        entries=[],
        progress={},
        inference=task.inference,
        compared=compared.words if compared is not None else "",
        scenario=scenario,
        about=_about(task, scenario),
    )


def _about(task: TaskRules, scenario: RankedScenario | None) -> str:
    """What a board that is apart compares, and what its answers keep; the target says it of every other board."""
    if scenario is None:
        return ""
    kept = kept_text(task.inference, task.target)
    measured = scenario.measure if scenario.column == "throughput" else f"latency, {scenario.measure}"
    return f"{measured}; answers keep {kept}" if kept else measured


def filled(board: BoardPayload, entries: Sequence[EntryPayload]) -> BoardPayload:
    """The board with ``entries`` ranked in every column, in the order of the first, then of those that follow.

    The closed division comes before the open one, each with ranks of its own.
    """
    figures: list[dict[str, FigurePayload]] = [{} for _ in entries]
    ordered: dict[int, None] = {}
    records: dict[str, list[tuple[str, float, int]]] = {column: [] for column in COLUMNS}
    for column in COLUMNS:
        for having in _divided(entries, column):
            given = [entries[at].figures[column] for at in having]
            for index, place in _placed(given, column, [entries[at].id for at in having]):
                figures[having[index]][column] = with_rank(given[index], place)
                ordered.setdefault(having[index])
            records[column] += _records(given, column, [entries[at].date for at in having], having)
    ranked = [msgspec.structs.replace(entries[at], figures=figures[at]) for at in ordered]
    now = {at: place for place, at in enumerate(ordered)}
    modes: list[Literal["training", "inference"]] = ["training", "inference"]
    present = {entry.mode for entry in ranked}
    return msgspec.structs.replace(
        board,
        modes=[mode for mode in modes if mode in present],
        entries=ranked,
        progress={
            column: sorted((day, value, now[at]) for day, value, at in found) for column, found in records.items()
        },
    )


def _placed(figures: Sequence[FigurePayload], column: Column, names: Sequence[str]) -> Iterator[tuple[int, Placing]]:
    """The places of a column's figures in a division, by index and in order."""
    given: Sequence[Bounded] = list(map(_turned, figures)) if column in MORE_IS_BETTER else figures
    ranks = rank(given)
    for index in order(given, ranks, names):
        yield index, ranks[index]


def _divided(entries: Sequence[EntryPayload], column: Column) -> list[list[int]]:
    """The numbers of the entries that have a figure in the column, those of each division apart."""
    divided: dict[str, list[int]] = {division: [] for division in DIVISIONS}
    for at, entry in enumerate(entries):
        if column in entry.figures:
            divided[entry.division].append(at)
    return [each for each in divided.values() if each]


def _records(
    figures: Sequence[FigurePayload], column: Column, days: Sequence[str], numbers: Sequence[int]
) -> Iterator[tuple[str, float, int]]:
    """The records of a division, oldest first, each with the number of its entry."""
    sign = goodness(column)
    values = [(day, figure.value and sign * figure.value) for day, figure in zip(days, figures, strict=True)]
    for day, value, at in progress(values):
        yield day, sign * value, numbers[at]


def card(board: BoardPayload) -> TaskCard:
    """The board as the index shows it, with the first of each column in each division."""
    leaders, divisions = [], board.divisions()
    for column, division in product(COLUMNS, divisions):
        having = ((entry, entry.figures.get(column)) for entry in board.entries if entry.division == division)
        first = [entry for entry, figure in having if figure is not None and figure.rank == 1]
        if first:
            best = min(first, key=lambda entry: (goodness(column) * (_value(entry, column) or 0.0), entry.id))
            said = division if len(divisions) > 1 else ""
            rests = standing(best, column, board.ruleset.aggregation_rule, len(first) - 1)
            leaders.append(Leader(column, best.model, best.author, best.figures[column].text, best.page, said, rests))
    return TaskCard(
        slug=board.slug,
        page=board.page,
        task=board.task,
        title=board.task_title,
        target=board.target,
        ruleset=board.ruleset,
        modes=board.modes,
        entries=len(board.entries),
        newest=max((entry.date for entry in board.entries), default=""),
        leaders=leaders,
        about=board.about,
    )


def goodness(column: Column) -> float:
    """What a column's values are multiplied by so that less is better in all of them."""
    return -1.0 if column in MORE_IS_BETTER else 1.0


def _turned(figure: Bounded) -> BoardFigure:
    """A figure of which more is better as one of which less is."""
    value, low, high = (None if each is None else -each for each in (figure.value, figure.high, figure.low))
    return BoardFigure(value, low, high)


def _value(entry: EntryPayload, column: Column) -> float | None:
    figure = entry.figures.get(column)
    return None if figure is None else figure.value


def counted(entry: EntryPayload, aggregation: str) -> str:
    """On how many runs, or measurements of inference, the entry's figures rest under the rule ``aggregation``."""
    if entry.n == 1:
        return "single run"
    if entry.mode == "inference":
        return f"{entry.reached}/{entry.n} measurements"
    return f"first of {entry.n} runs" if aggregation == "first-run" else f"reached {entry.reached}/{entry.n}"


def standing(entry: EntryPayload, column: Column, aggregation: str, more: int) -> str:
    """``single run``, or ``reached 5/5, [9.1, 10.2]``; then with how many others it shares the first rank."""
    _, bracket, interval = entry.figures[column].text.partition(" [")
    within = [f"[{interval}"] if bracket else ["no interval"] * (entry.n > 1)
    shared = [f"shared with {more} more"] * (more > 0)
    return ", ".join([counted(entry, aggregation), *within, *shared])
