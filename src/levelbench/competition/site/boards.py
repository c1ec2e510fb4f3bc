"""Makes the board of one task under one ruleset: ranks, records, card, texts, and its data for programs.

A page opened from disk may not fetch files, but may load scripts. So the data of its script is JSON inside one call, in
which no character can end a script or a line; it is stored in columns, with repeated texts as numbers.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, islice, product
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Any, Literal
from xml.sax.saxutils import escape, quoteattr

import msgspec
from msgspec import Struct

from levelbench.competition.figures import (
    COLUMNS,
    MORE_IS_BETTER,
    MOST_PAIRED,
    BoardFigure,
    Column,
    RankedScenario,
    order,
    own_scenario,
    progress,
    rank,
)
from levelbench.competition.rulesets import InferenceRules, Ruleset, TaskRules
from levelbench.competition.scoring import aggregation_words
from levelbench.competition.site import (
    BOARD_SCHEMA,
    BoardPayload,
    EntryPayload,
    FigurePayload,
    Leader,
    RulesetFacts,
    brief,
    slug_of,
)
from levelbench.competition.site.parts import origin_words, target_text
from levelbench.measure.verdict import LEAST_RUNS
from levelbench.records.schema import Target
from levelbench.report.numbers import ABSENT
from levelbench.report.tables import Column as TableColumn
from levelbench.report.tables import Table, clean, markdown_text, to_markdown


def inference_note(payload: BoardPayload) -> str:
    """How the two columns of inference are made; empty if the rules have no inference."""
    rules = payload.inference
    scenario = payload.scenario or own_scenario(rules)
    if scenario is None:
        return ""
    kept = kept_text(rules, payload.target)
    quality = f", with answers of {kept}" if kept else ""
    return (
        f"{_figure(scenario)}{quality}. For several processes it is the median; one process has no interval. A million "
        "answers cost the price of the time that they take, or what the author states if there is no price. "
        "Each scenario is ranked separately."
    )


def _figure(scenario: RankedScenario) -> str:
    """What the column shows, as the beginning of a sentence."""
    if scenario.name == "offline":
        return "Throughput is the samples a second of offline, which sends all of them at once"
    if scenario.name == "server":
        bound = "in time" if scenario.bound_s is None else scenario.title.removeprefix(f"{scenario.name} ")
        return f"Throughput is the queries a second, at random times, of which 99 % are answered {bound}"
    if scenario.name == "dawnbench":
        return "Latency is the mean of dawnbench"
    return f"Latency is the {scenario.measure} of {scenario.title}, as LoadGen's early stopping estimates it"


def inference_facts(rules: InferenceRules | None, target: Target) -> list[tuple[str, str]]:
    """Each rule with its name."""
    if rules is None:
        return []
    found = [("Scenarios of inference", f"{', '.join(rules.scenarios)}; each is ranked separately")]
    if rules.threshold is not None:
        found.append(("Quality of inference", kept_text(rules, target)))
    # The counts of scenarios with their own, then that of the others.
    own = [f"{scenario}: {rules.least(scenario):,}" for scenario in rules.scenarios if scenario in rules.queries]
    if len(own) < len(rules.scenarios) and rules.least_queries:
        own.append(f"{rules.least_queries:,}" + (" of every other scenario" if own else ""))
    found.append(("Least queries of inference", "; ".join(own)))
    if rules.least_duration_s:
        found.append(("Least time of inference", f"{brief(rules.least_duration_s)} s"))
    if rules.latency_bound_s is not None:
        found.append(("Latency bound of server", f"{brief(rules.latency_bound_s)} s"))
    elif "server" in rules.scenarios:
        found.append(("Latency bound of server", "chosen by the author; each bound is ranked separately"))
    return found


def kept_text(rules: InferenceRules | None, target: Target) -> str:
    """The quality that inference answers must keep; empty if the rules require none."""
    if rules is None or rules.threshold is None:
        return ""
    return target_text(msgspec.structs.replace(target, threshold=rules.threshold)).partition(" on the ")[0]


def board_slug(task: str, ruleset: str, scenario: RankedScenario | None = None) -> str:
    """The name of a board's files: ``cifar10_dawnbench-1.0``; with a digest if it would need escaping.

    It is unique: the separator occurs neither in the parts nor in a name with a digest.
    """
    parts = (task, ruleset) if scenario is None else (task, ruleset, scenario.slug)
    plain = "_".join(parts)
    # The pattern rejects parts that are too long or contain an underscore.
    safe = plain.count("_") == len(parts) - 1 and re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,59}(_[a-z0-9.-]{1,59})+", plain)
    return plain if safe and ".." not in plain else slug_of(repr(parts))


def ranking_words(rules: RulesetFacts) -> str:
    """How the entries of a board are ranked, as sentences."""
    if not rules.by_test:
        return (
            f"Entries are in the order of their values, as the rules {rules.id} say. Below a rank are the ranks that "
            f"tests leave open, if an entry has {LEAST_RUNS} runs; differences between fewer runs are not tested."
        )
    return (
        "Entries are ranked by value. Each pair is compared by the test of a verdict on their runs, with Holm's "
        "correction over all pairs: at most one table in twenty calls equal entries distinguishable. Below a rank are "
        "the ranks that the tests leave open; ≈ marks an entry that is not distinguishable from the one above it. "
        f"Fewer than {LEAST_RUNS} runs cannot be tested and have no rank."
        f" In a table of more than {MOST_PAIRED} such entries only neighbours are tested."
    )


TITLES = {
    # The display names of tasks; others keep their own.
    "autoencoder": "Autoencoder",
    "bert": "BERT",
    "acrobot": "Acrobot",
    "cartpole": "CartPole",
    "charlm": "Character language model",
    "cifar10": "CIFAR-10",
    "code-lm": "Code language model",
    "detection": "Detection",
    "digits": "Digits",
    "dlrm": "DLRM",
    "dlrm_dcnv2": "DLRM DCNv2",
    "fashion-mnist": "Fashion-MNIST",
    "gpt3": "GPT-3",
    "imagenet": "ImageNet",
    "maskrcnn": "Mask R-CNN",
    "movielens": "MovieLens",
    "resnet": "ResNet",
    "retinanet": "RetinaNet",
    "rnnt": "RNN-T",
    "segmentation": "Segmentation",
    "spam": "Spam",
    "speech": "Spoken numbers",
    "squad": "SQuAD",
    "ssd": "SSD",
    "stable_diffusion": "Stable Diffusion",
    "tabular": "Tabular regression",
    "translation-en-es": "Translation, English to Spanish",
    "unet3d": "U-Net 3D",
    "voices": "Voice sets",
}


def empty_board(title: str, rules: Ruleset, task: TaskRules, scenario: RankedScenario | None = None) -> BoardPayload:
    """The board without entries, for the page of an entry. ``scenario``: set for a separate board."""
    facts = {**msgspec.structs.asdict(rules.aggregation), **msgspec.structs.asdict(rules)}
    facts |= {"aggregation": aggregation_words(rules.aggregation), "aggregation_rule": rules.aggregation.rule}
    facts["by_test"] = rules.aggregation.by_test
    facts["divisions"] = rules.division_names
    facts |= {"rounding": rules.cost.rounding, "frozen": "", "machine": rules.machine.words() if rules.machine else ""}
    slug = board_slug(task.task, rules.id, scenario)
    compared = scenario or own_scenario(task.inference)
    name, about = TITLES.get(task.task, task.task), ""
    if scenario is not None:
        # The required quality, which on other boards is the target.
        kept = kept_text(task.inference, task.target)
        about = scenario.measure if scenario.column == "throughput" else f"latency, {scenario.measure}"
        about += f"; answers with {kept}" if kept else ""
    return BoardPayload(
        schema=BOARD_SCHEMA,
        title=title,
        generated="",
        slug=slug,
        page=f"{slug}.html",
        data="",
        ruleset=RulesetFacts(**{name: facts[name] for name in RulesetFacts.__struct_fields__}),
        task=task.task,
        task_title=name if scenario is None else f"{name}, {scenario.title}",
        target=task.target,
        modes=[],
        entries=[],
        progress={},
        inference=task.inference,
        compared=compared.words if compared is not None else "",
        scenario=scenario,
        about=about,
        unit=task.unit,
    )


def filled(board: BoardPayload, entries: Sequence[EntryPayload]) -> BoardPayload:
    """The board with ``entries`` ranked in every column, ordered by the first column, then by the following ones.

    Divisions come in the order of the rules, each ranked separately.
    """
    board = msgspec.structs.replace(board, entries=list(entries))
    figures: list[dict[str, FigurePayload]] = [{} for _ in entries]
    ordered: dict[int, None] = {}
    records: dict[str, list[tuple[str, float, int]]] = {column: [] for column in COLUMNS}
    for column in board.columns():
        of_column = [at for at, entry in enumerate(entries) if column in entry.figures]
        sign = goodness(column)
        for division in board.divisions():
            having = [at for at in of_column if entries[at].division == division]
            given = [entries[at].figures[column] for at in having]
            compared = [_less_is_better(each, sign) for each in given]
            ranks = rank(compared, by_test=board.ruleset.by_test)
            for index in order(compared, ranks, [entries[at].id for at in having]):
                placed = {name: getattr(ranks[index], name) for name in ranks[index].__struct_fields__}
                figures[having[index]][column] = msgspec.structs.replace(given[index], **placed, sample=())
                ordered.setdefault(having[index])
            # A value without a rank holds no record either.
            held = [None if place.rank is None else each.value for each, place in zip(compared, ranks, strict=True)]
            dated = [(entries[at].date, value) for at, value in zip(having, held, strict=True)]
            records[column] += [(day, sign * value, having[at]) for day, value, at in progress(dated)]
    differs = differences(entries)
    # Published boards are shown as they were.
    same = Counter(_traits_of(entry) for entry in entries if board.ruleset.by_test)
    ranked = [
        msgspec.structs.replace(
            entries[at],
            figures=figures[at],
            differs=differs[at],
            doubts=[*entries[at].doubts, *([TWIN] if same[_traits_of(entries[at])] > 1 else [])],
        )
        for at in ordered
    ]
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


TWIN = "another entry of this author states the same model, settings, hardware and code: the better one may be luck"


def _traits_of(entry: EntryPayload) -> tuple[object, ...]:
    return entry.author, entry.model, entry.mode, entry.division, *sorted(entry.differs.items())


def differences(entries: Sequence[EntryPayload]) -> list[dict[str, str]]:
    """For each entry the traits that not all entries of its author, model and mode share; none if it is the only one.

    Whoever submits one model many times, with other settings or on other machines, shows what each row stands for.
    """
    alike: dict[tuple[str, str, str], list[EntryPayload]] = {}
    for entry in entries:
        alike.setdefault((entry.author, entry.model, entry.mode), []).append(entry)
    shared = {key: set.intersection(*(set(entry.differs.items()) for entry in group)) for key, group in alike.items()}
    names = {key: {name for entry in group for name in entry.differs} for key, group in alike.items()}
    found = []
    for entry in entries:
        key = entry.author, entry.model, entry.mode
        own = {**entry.differs, **dict.fromkeys(sorted(names[key] - entry.differs.keys()), "not stated")}
        lone = len(alike[key]) == 1
        found.append({} if lone else {name: text for name, text in own.items() if (name, text) not in shared[key]})
    return found


_MOST_TRAITS, _MOST_SAID = 6, 140


def said_of(entry: EntryPayload, figure: FigurePayload | None) -> list[str]:
    """What stands below an entry's name: why it has no rank, its doubts, and how it differs from its siblings."""
    differs = "; ".join(f"{name} {text}" for name, text in islice(entry.differs.items(), _MOST_TRAITS))
    more = len(entry.differs) - _MOST_TRAITS
    differs += f"; and {more} more" if more > 0 else ""
    reason = figure.reason if figure is not None else ""
    read = entry.origin.doubts if entry.origin is not None else []
    first = [read[0][:_MOST_SAID] + (f" (and {len(read) - 1} more)" if len(read) > 1 else "")] if read else []
    # Joules of one method are not those of another.
    energy = entry.figures.get("energy")
    counted_as = f"energy {energy.note.rpartition('; ')[2]}" if energy is not None and energy.value is not None else ""
    return [
        *filter(None, [reason, counted_as, entry.private]),
        *entry.doubts,
        *first,
        *([f"differs in {differs}"] if differs else []),
    ]


class RankingRow(Struct):
    """One place of a ranking; ``ranks`` and ``against`` are what the tests say, ``said`` what a reader should know.

    ``id`` is the entry's file below the leaderboard, without ``.json``.
    """

    rank: int | None
    ranks: str
    against: str
    model: str
    author: str
    figure: str
    signed: str
    machine: str
    said: list[str]
    id: str


class BoardRanking(Struct):
    """The ranking of one column of a board in one division, best first; ``how`` says how it was made."""

    board: str
    title: str
    column: Column
    division: str
    how: str
    entries: int
    rows: list[RankingRow]


def rankings(board: BoardPayload, top: int) -> list[BoardRanking]:
    """The first ``top`` rows of each ranking of a board."""
    found = []
    for column, division in product(board.columns(), board.divisions()):
        having = [each for each in board.entries if each.division == division and column in each.figures]
        figures = {each.id: each.figures[column] for each in having}
        having.sort(key=lambda each: _by_rank(figures[each.id], column))
        rows = [
            RankingRow(
                *(figure.rank, figure.ranks, figure.against, each.model, each.author, figure.text),
                *(each.signed, each.machine, [*filter(None, [each.rerun]), *said_of(each, figure)], each.id),
            )
            for each, figure in ((each, figures[each.id]) for each in having[:top])
        ]
        if rows:
            of = f", {division} division" if len(board.divisions()) > 1 else ""
            title = f"{board.task_title}: {column.replace('_', ' ')}{of}"
            how = ranking_words(board.ruleset)
            found.append(BoardRanking(board.page, title, column, division, how, len(having), rows))
    return found


def _by_rank(figure: FigurePayload, column: Column) -> tuple[float, float]:
    worth = math.inf if figure.value is None else goodness(column) * figure.value
    return math.inf if figure.rank is None else figure.rank, worth


def ranking_table(ranking: BoardRanking, *, short: bool = False) -> Table:
    """A ranking as a table; what is said of an entry stands in its row. ``short``: for a terminal, without ``how``."""
    more = len(ranking.rows) < ranking.entries
    most = _SHORT if short else None
    return Table.of(
        f"{ranking.board.removesuffix('.html')}-{ranking.column}-{ranking.division}",
        ranking.title,
        ranking.rows,
        (TableColumn("rank", "rank"), lambda row: ABSENT if row.rank is None else str(row.rank)),
        (TableColumn("ranks", "could be"), lambda row: row.ranks),
        (TableColumn("entry", "entry"), lambda row: f"{row.model}, {row.author}"),
        (TableColumn("figure", "figure"), lambda row: row.figure),
        (TableColumn("against", "differs from above"), lambda row: _short_test(row.against)),
        (TableColumn("signed", "signature"), lambda row: row.signed if row.machine or row.signed != "unsigned" else ""),
        (TableColumn("machine", "machine"), lambda row: row.machine),
        (TableColumn("said", "note"), lambda row: "; ".join(_cut(each, most) for each in row.said)),
        notes=[
            *([] if short else [ranking.how]),
            *([f"the first {len(ranking.rows)} of {ranking.entries} entries"] if more else []),
        ],
    ).without_empty()


_SHORT = 60


def _cut(text: str, most: int | None) -> str:
    return text if most is None or len(text) <= most else f"{text[: most - 2].rstrip()} …"


def _short_test(against: str) -> str:
    """``yes, p < 0.001`` or ``no, p = 0.3``; empty without a test."""
    distinct, _, p_value = against.partition(", ")
    return f"{'no' if distinct.startswith('not ') else 'yes'}, {p_value}" if against else ""


MOST_LISTED = 100
"""The most rows of a ranking in ``leaderboard.md``."""


def leaderboard_markdown(title: str, boards: Iterable[BoardPayload]) -> bytes:
    """The rankings of all boards as Markdown."""
    tables = (to_markdown(ranking_table(each)) for board in boards for each in rankings(board, MOST_LISTED))
    return "\n".join([f"# {markdown_text(title)}\n", *tables]).encode("utf-8", "replace")


def _less_is_better(each: FigurePayload, sign: float) -> BoardFigure:
    if sign > 0:
        return BoardFigure(each.value, sample=each.sample)
    # The time of an answer is the reciprocal of their rate.
    sample = tuple(None if value is None else 1.0 / value for value in each.sample)
    return BoardFigure(None if each.value is None else -each.value, sample=sample)


def leaders_of(board: BoardPayload, columns: Sequence[Column] = ()) -> list[Leader]:
    """The first entry of each column (by default of all) in each division."""
    leaders, divisions = [], board.divisions()
    for column, division in product(columns or board.columns(), divisions):
        having = ((entry, entry.figures.get(column)) for entry in board.entries if entry.division == division)
        first = [entry for entry, figure in having if figure is not None and figure.rank == 1]
        if first:
            best = min(first, key=lambda entry: (goodness(column) * (entry.figures[column].value or 0.0), entry.id))
            said = division if len(divisions) > 1 else ""
            rests = standing(best, column, board.ruleset.aggregation_rule, len(first) - 1)
            leaders.append(Leader(column, best.model, best.author, best.figures[column].text, best.page, said, rests))
    return leaders


def goodness(column: Column) -> float:
    """The factor that makes less better in a column's values."""
    return -1.0 if column in MORE_IS_BETTER else 1.0


def counted(entry: EntryPayload, aggregation: str) -> str:
    """The number of runs, or inference measurements, behind the entry's figures under the rule ``aggregation``."""
    if entry.n == 1:
        return "single run"
    if entry.mode == "inference":
        return f"{entry.reached}/{entry.n} measurements"
    words = {"first-run": f"first of {entry.n} runs", "mean-test": f"mean of {entry.n} runs"}
    return words.get(aggregation, f"reached {entry.reached}/{entry.n}")


def standing(entry: EntryPayload, column: Column, aggregation: str, more: int) -> str:
    """``single run``, or ``reached 5/5, [9.1, 10.2]``; how many have the same value, or cannot be told from it.

    And whether its row has doubts, so that the head of a page does not hide them.
    """
    figure = entry.figures[column]
    _, bracket, interval = figure.text.partition(" [")
    within = [f"[{interval}"] if bracket else ["no interval"] * (entry.n > 1)
    shared = [f"shared with {more} more"] * (more > 0)
    if figure.worst is not None and figure.worst > 1:
        shared = [f"not distinguishable from {figure.worst - 1} more"]
    return ", ".join([counted(entry, aggregation), *within, *shared, *["with doubts"] * bool(entry.doubts)])


FEW_BYTES = 1 << 18
"""Up to this many bytes of steps are part of the board's own script."""

_CODED = (
    "model", "author", "organisation", "framework", "hardware", "date", "division", "mode", "signed", "reached_text",
    "lint", "machine", "rerun",
)  # fmt: skip
_PLAIN = ("slug", "id", "code_url", "n", "reached", "single_run")
_FIELDS = (*_PLAIN, *_CODED, "origin", "price", "findings", "best_quality", "figures")
_OF_ENTRY = attrgetter(*_FIELDS)
_FIGURE = ("value", "low", "high", "rank", "shared", "text", "ranks", "against")
_OF_FIGURE = attrgetter(*_FIGURE)
_REPEATED = ("ranks", "against")
"""Fields of a figure that are short texts, and nearly all alike."""
_UNSAFE = {b"<": b"\\u003c", b">": b"\\u003e", b"&": b"\\u0026"}
_UNSAFE |= {"\u2028".encode(): b"\\u2028", "\u2029".encode(): b"\\u2029"}


def joined_steps(payload: BoardPayload, known: Mapping[str, bytes] = MappingProxyType({})) -> bytes:
    """The steps of all entries in order as JSON; ``known`` has the JSON of some of them by id."""
    return b"[%s]" % b",".join(
        known[each.id] if each.id in known else msgspec.json.encode(each.steps) for each in payload.entries
    )


def steps_script(steps: bytes) -> bytes:
    """The script that delivers the steps on demand: only numbers, so nothing in it needs escaping.

    It contains JSON text, which a browser reads 25 % faster than array literals.
    """
    return b"window.levelbench.steps(JSON.parse('" + steps + b"'));\n"


def script(payload: BoardPayload, steps: bytes = b"") -> bytes:
    """The board as a script (UTF-8) that is safe in its own file and between ``<script>`` tags.

    ``steps`` are those of all entries (``joined_steps``), unless they are in a separate file (``payload.steps``).
    Figures that are not finite become ``null``. The five characters that could end a script or a line occur in JSON
    only inside strings, where their escapes mean the same.
    """
    facts: dict[str, Any] = {
        name: getattr(payload, name) for name in payload.__struct_fields__ if name not in ("data", "entries")
    }
    known = [entry.best_quality for entry in payload.entries if entry.best_quality is not None]
    # The end of the page's slider: the best quality that any entry reached.
    facts["reach"] = (min if payload.target.direction == "lower" else max)(known, default=None)
    if payload.ruleset.aggregation_rule == "mean-test":
        # The script has no test of the mean, so there is no other target to ask about.
        facts["reach"] = None
    facts["divisions"] = payload.divisions()
    facts["columns"] = _columns(payload.entries)
    if not payload.steps:
        facts["runs"] = msgspec.Raw(steps or joined_steps(payload))
    return b"window.levelbench.board(" + safe_json(facts) + b");\n"


def safe_json(value: object) -> bytes:
    """``value`` as JSON in which nothing can end a script or a line; figures that are not finite are ``null``."""
    text = msgspec.json.encode(value)
    for character, escaped in _UNSAFE.items():
        text = text.replace(character, escaped)
    return text


def _columns(entries: Sequence[EntryPayload]) -> dict[str, object]:
    """The entries' fields as the page uses them (``assets/data.js`` turns them back into entries)."""
    # One pass over all entries: the fields of an entry are close together in memory.
    fields = dict(zip(_FIELDS, zip(*map(_OF_ENTRY, entries), strict=True), strict=True)) if entries else {}
    found: dict[str, Any] = {name: fields.get(name, ()) for name in _PLAIN}
    for name in _CODED:
        found[name] = _coded(fields.get(name, ()))
    found["origin"] = _coded(origin_words(each) if each else "" for each in fields.get("origin", ()))
    # Joined by line ends, which no finding contains.
    found["doubts"] = _coded("\n".join(said_of(entry, None)) for entry in entries)
    found["usd_per_hour"] = [price and price.usd_per_hour for price in fields.get("price", ())]
    found["errors"] = [findings.errors for findings in fields.get("findings", ())]
    found["warnings"] = [findings.warnings for findings in fields.get("findings", ())]
    found["curve"] = [best is not None for best in fields.get("best_quality", ())]
    figures = {}
    for column in COLUMNS:
        having = {at: each[column] for at, each in enumerate(fields.get("figures", ())) if column in each}
        if not having:
            continue
        # Which entries have a figure, and the figure's fields; a note only without a value or a rank.
        kept: dict[str, Any] = dict(zip(_FIGURE, zip(*map(_OF_FIGURE, having.values()), strict=True), strict=True))
        kept |= {name: _coded(kept[name]) for name in _REPEATED}
        where = {"at": list(having)} if len(having) < len(entries) else {}
        note = _coded(figure.reason for figure in having.values())
        figures[column] = {**kept, **where, "note": note}
    return {**found, "figures": figures}


def _coded(texts: Iterable[str]) -> tuple[list[str], list[int]]:
    """The distinct texts, and the index of each one's."""
    all_of_them = list(texts)
    distinct = list(dict.fromkeys(all_of_them))
    places = {text: place for place, text in enumerate(distinct)}
    return distinct, list(map(places.__getitem__, all_of_them))


_SCENARIO = ("scenario", "latency_bound_s", "samples_per_query")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_BOUNDS = ("value", "low", "high", "rank", "best", "worst", "p_above")
_TEXTS = ("id", "page", "model", "author", "organisation", "framework", "hardware", "date", "division", "mode")
_COUNTS = ("n", "reached", "expected_with_restarts_s", "best_s")


def leaderboard_json(title: str, version: str, boards: Iterable[BoardPayload]) -> bytes:
    """All boards for programs: seconds and US dollars, an interval's open end as ``null``.

    ``scenario`` is set for a separate board, ``null`` on the task's main board. The scripts ``data`` and ``steps`` of a
    board have the steps of its runs.
    """
    found = [
        {
            "task": board.task,
            "ruleset": board.ruleset.id,
            "scenario": board.scenario,
            "target": board.target,
            **{name: getattr(board, name) for name in ("page", "data", "steps", "generated")},
            "entries": [msgspec.structs.replace(entry, steps=[]) if entry.steps else entry for entry in board.entries],
        }
        for board in boards
    ]
    whole = {"schema": BOARD_SCHEMA, "title": title, "version": version, "boards": found}
    return msgspec.json.encode(whole) + b"\n"


def leaderboard_csv(boards: Iterable[BoardPayload]) -> bytes:
    """All entries as one table (RFC 4180): value, bounds, rank and test of each figure have columns.

    An entry on several boards has a row for each. ``scenario`` and its condition belong to a separate board and are
    empty on the task's main board. Text that a spreadsheet would run as a formula gets an apostrophe in front. A figure
    that is not finite is empty.
    """
    out = io.StringIO(newline="")
    table = csv.writer(out)
    figures = [f"{column}_{name}" for column in COLUMNS for name in _BOUNDS]
    table.writerow(
        [
            "task",
            "ruleset",
            *_SCENARIO,
            *_TEXTS,
            "code_url",
            "usd_per_hour",
            "signed",
            "machine",
            *figures,
            *_COUNTS,
            "said",
        ]
    )
    for board in boards:
        apart, same = board.scenario, [_cell(board.task), _cell(board.ruleset.id)]
        same += ["", "", ""] if apart is None else [_cell(apart.name), _number(apart.bound_s), _number(apart.samples)]
        for entry in board.entries:
            texts = (getattr(entry, name) for name in _TEXTS)
            shown = [entry.figures.get(column) for column in COLUMNS]
            bounds = (getattr(figure, name, None) for figure in shown for name in _BOUNDS)
            counts = (getattr(entry, name) for name in _COUNTS)
            price = _number(entry.price.usd_per_hour if entry.price else None)
            about = [*map(_cell, (*texts, entry.code_url or "")), price, entry.signed, entry.machine]
            reasons = dict.fromkeys(figure.reason for figure in shown if figure is not None and figure.reason)
            said = _cell("; ".join([*reasons, *filter(None, [entry.rerun]), *said_of(entry, None)]))
            table.writerow([*same, *about, *map(_number, bounds), *map(_number, counts), said])
    return out.getvalue().encode("utf-8", "replace")


def _number(value: float | None) -> str:
    """A number as a cell, empty if it is missing or not finite."""
    return repr(value) if value is not None and math.isfinite(value) else ""


def _cell(text: str) -> str:
    """A text as a cell that no spreadsheet runs as a formula."""
    shown = text if text.isprintable() else clean(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


_MOST = 50


def feed(title: str, url: str, generated: str, boards: Sequence[BoardPayload]) -> bytes:
    """The feed of the site at ``url``: its fifty newest entries, each with its figures on all of its boards."""
    dated = ((entry.date, entry.id, entry, board) for board in boards for entry in board.entries)
    # An entry on several boards occurs once, from the first of them on.
    same = groupby(sorted(dated, key=itemgetter(0, 1), reverse=True), itemgetter(0, 1))
    items = "".join(_item(url, [each[2:] for each in sides]) for _, sides in islice(same, _MOST))
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">'
        f"<title>{_text(title)}</title><id>{_text(url)}/</id><updated>{generated}T00:00:00Z</updated>"
        f'<link rel="self" href={quoteattr(f"{url}/feed.xml")}/><link href={quoteattr(f"{url}/index.html")}/>'
        f"{items}</feed>\n"
    ).encode("utf-8", "replace")


def _item(url: str, sides: Sequence[tuple[EntryPayload, BoardPayload]]) -> str:
    entry, board = sides[0]
    figures = "; ".join(
        [_figure_words(entry, board), *(f"{on.task_title}: {_figure_words(each, on)}" for each, on in sides[1:])]
    )
    address = f"{url}/{entry.page}"
    return (
        f"<entry><title>{_text(f'{board.task_title}: {entry.model}, {entry.author}')}</title>"
        f"<id>{_text(address)}</id><link href={quoteattr(address)}/><updated>{_text(entry.date)}T00:00:00Z</updated>"
        f"<author><name>{_text(entry.author)}</name></author>"
        f"<summary>{_text(f'{figures} on {entry.hardware}')}</summary></entry>\n"
    )


def _figure_words(entry: EntryPayload, board: BoardPayload) -> str:
    """The figures on one board, with the number of runs or measurements behind them."""
    figures = ", ".join(f"{column.replace('_', ' ')} {figure.text}" for column, figure in entry.figures.items())
    return f"{figures} ({counted(entry, board.ruleset.aggregation_rule)})"


def _text(text: str) -> str:
    """``text`` escaped for XML, without the control characters that XML forbids."""
    return escape(clean(text))
