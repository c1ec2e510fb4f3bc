"""The tables of ``levelbench board import``: rankings as the other system has them, scores, and what was read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from levelbench.records.submissions.schema import Submission
    from levelbench.report.tables import Table

__all__ = ["import_tables", "profile_scores", "ranked", "shortened"]

_WIDEST = 24
"""The most characters of a name: a ranking then fits 80 columns."""


def ranked(kind: str, submissions: Sequence[Submission], top: int) -> list[dict[str, Any]]:
    """The first ``top`` of each ranking: its task, its column, its title, its rows, and what is left out of it."""
    if kind == "loadgen":
        return _by_scenario(submissions, top)
    return [] if kind == "mlperf" else _by_column(submissions, top)


def _by_column(submissions: Sequence[Submission], top: int) -> list[dict[str, Any]]:
    """DAWNBench's own figures; AlgoPerf's times to the target in the same layout."""
    from levelbench.records.exchange.dawnbench.board import COLUMNS, PRINTED_ANSWERS, leaderboard

    found = []
    for task in sorted({each.task for each in submissions}):
        own = [each for each in submissions if each.task == task]
        for column, title in COLUMNS.items():
            rows = [
                {"rank": row.rank, "value": row.value, "text": row.text, **_names(row.entry)}
                for row in leaderboard(own, column, top)
            ]
            of = f" of {PRINTED_ANSWERS:,} answers" if column == "inference-cost" else ""
            if rows:
                head = title.rpartition(" ")[2]
                found.append({"task": task, "column": title, "head": head, "title": f"{title}{of}", "rows": rows})
    return found


def _by_scenario(submissions: Sequence[Submission], top: int) -> list[dict[str, Any]]:
    from levelbench.records.exchange.loadgen.board import METRICS, rankings
    from levelbench.report.numbers import TIME, choose_unit

    found = []
    for ranking in rankings(submissions, top):
        metric, values = METRICS[ranking.scenario], [row.value for row in ranking.rows]
        unit = choose_unit(values, TIME) if metric.unit == "s" and values else None
        rows = [
            {
                "rank": row.rank,
                "value": row.value,
                "text": f"{row.value:.4g} /s" if unit is None else f"{row.value / unit.size:.4g} {unit.symbol}",
                **_names(row.entry),
            }
            for row in ranking.rows
        ]
        left_out = [{"reason": each.reason, **_names(each.entry)} for each in ranking.left_out]
        title = f"{ranking.scenario}, {metric.name}"
        head = "latency" if metric.unit == "s" else "rate"
        found.append(
            {
                "task": ranking.task,
                "column": ranking.scenario,
                "head": head,
                "title": title,
                "rows": rows,
                "left_out": left_out,
            }
        )
    return found


def _names(entry: Submission) -> dict[str, str]:
    return {
        "model": entry.model,
        "author": entry.author.name,
        "hardware": entry.hardware.description,
        "framework": entry.framework,
        "submitted": entry.submitted,
        "file": entry.origin.file if entry.origin else "",
    }


def profile_scores(kind: str, submissions: Sequence[Submission]) -> list[dict[str, Any]]:
    """The scores of AlgoPerf's algorithms over the workloads that all of them took part in, the best first."""
    if kind != "algoperf":
        return []
    from levelbench.records.exchange.algoperf import common_times
    from levelbench.records.rulesets.profiles import scores

    times = common_times(submissions)
    if not times:
        return []
    exact, grid = scores(times), scores(times, how="grid")
    return [
        {"submission": each, "score": score, "published": grid[each], "workloads": len(times[each])}
        for each, score in exact.items()
    ]


def import_tables(kind: str, submissions: Sequence[Submission], top: int) -> list[Table]:
    """All tables of an import, in print's order."""
    tables = [_ranking_table(each) for each in ranked(kind, submissions, top)]
    tables += _score_table(profile_scores(kind, submissions))
    return tables if kind == "dawnbench" else [*tables, _listing(kind, submissions)]


def shortened(text: str) -> str:
    """``text`` of at most so many characters that a ranking fits 80 columns, cut at a word where there is one."""
    if len(text) <= _WIDEST:
        return text
    head = text[: _WIDEST - 2]
    at_word = head.rpartition(" ")[0]
    return f"{(at_word if len(at_word) > _WIDEST // 2 else head).rstrip(' ,;/*+-([')} …"


def _ranking_table(ranking: dict[str, Any]) -> Table:
    from levelbench.report.tables import Cell, Column, ColumnKind, Number, Table, Text

    names = ("model", "hardware", "submitted")
    columns = (
        Column("rank", "rank", ColumnKind.NUMBER),
        Column("figure", ranking["head"]),
        *(Column(each, each) for each in names),
    )
    cells: tuple[tuple[Cell, ...], ...] = tuple(
        (Number(row["rank"]), Text(row["text"]), *(Text(shortened(row[each])) for each in names))
        for row in ranking["rows"]
    )
    key = f"{ranking['task']}-{ranking['column'].replace(' ', '-')}"
    notes = tuple(
        f"left out: {each['file'] or each['model']}: {each['reason']}" for each in ranking.get("left_out", ())
    )
    return Table(key, f"{ranking['task']}: {ranking['title']}", columns, cells, notes)


def _listing(kind: str, submissions: Sequence[Submission]) -> Table:
    from levelbench.report.tables import Absent, Cell, Column, ColumnKind, Number, Table, Text

    def score(entry: Submission) -> Cell:
        value = _olympic(entry)
        return Absent("not enough runs reached the target") if value is None else Number(value)

    count = "measurements" if kind == "loadgen" else "runs"
    columns = [*(Column(name, name) for name in ("task", "model", "hardware")), Column(count, count, ColumnKind.NUMBER)]
    rows: list[tuple[Cell, ...]] = []
    for each in submissions:
        said = (each.task, each.model, each.hardware.description)
        counted = len(each.inference if kind == "loadgen" else each.runs)
        rows.append((*(Text(shortened(text)) for text in said), Number(counted)))
        rows[-1] += (score(each),) if kind == "mlperf" else ()
    if kind == "mlperf":
        columns.append(Column("olympic_s", "Olympic mean", ColumnKind.TIME_S, digits=4))
    return Table("entries", "entries", tuple(columns), tuple(rows))


def _olympic(entry: Submission) -> float | None:
    """MLPerf's score in seconds: the fastest and the slowest run left out, four each of unet3d."""
    from levelbench.records.rulesets.olympic import olympic_score

    times = [run.time_to_target_s if run.reached else None for run in entry.runs]
    return olympic_score(times, drop=4 if entry.task == "unet3d" else 1).score_s


def _score_table(rows: list[dict[str, Any]]) -> list[Table]:
    from levelbench.report.tables import Column, ColumnKind, Number, Table, Text

    if not rows:
        return []
    columns = (
        Column("submission", "submission"),
        Column("score", "score", ColumnKind.NUMBER, digits=4),
        Column("published", "on 100 points", ColumnKind.NUMBER, digits=4),
    )
    cells = tuple((Text(row["submission"]), Number(row["score"]), Number(row["published"])) for row in rows)
    title = f"performance profile over {rows[0]['workloads']} workloads that all took part in"
    return [Table("profile", title, columns, cells)]
