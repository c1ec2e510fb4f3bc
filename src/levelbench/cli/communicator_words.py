"""What ``levelbench communicator`` prints: a table of times, the fitted lines, and both as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from levelbench.distributed.sweep import DTYPES, OPERATIONS, Fit, How, SweepPoint, fit, fit_points, rounds_of
from levelbench.errors import UsageError
from levelbench.measure.statistics import Interval, estimate_median
from levelbench.report.distributed import MessageCurve
from levelbench.report.numbers import BYTES, TIME, Unit, choose_unit, estimate_text, number
from levelbench.report.tables import Column, Table, Text

__all__ = ["Swept", "curves", "fits_table", "sweep_json", "times_table"]

_RATE = (Unit("B/s"), Unit("kB/s", 1e3, 1e3), Unit("MB/s", 1e6, 1e6), Unit("GB/s", 1e9, 1e9))
_COUNTS = (Unit(""), Unit("thousand", 1e3, 1e3), Unit("million", 1e6, 1e6))
_A_BYTE = (Unit("fs/B", 1e-15), Unit("ps/B", 1e-12, 1e-12), Unit("ns/B", 1e-9, 1e-9), Unit("µs/B", 1e-6, 1e-6))
_MOST_MISSED = 0.5
_POOR = "A line that misses a point by more than half says little about any one size: its intervals are for the line."


@dataclass(frozen=True)
class Swept:
    """All points of one communicator on ``ranks`` ranks started by ``engine``."""

    communicator: str
    engine: str
    ranks: int
    points: tuple[SweepPoint, ...]
    how: How = field(default_factory=How)

    def operations(self) -> dict[str, list[SweepPoint]]:
        """The points by operation."""
        found: dict[str, list[SweepPoint]] = {}
        for point in self.points:
            found.setdefault(point.operation, []).append(point)
        return found

    def fit(self, points: Sequence[SweepPoint], level: float) -> Fit | None:
        """The line through these points; ``None`` if there are too few."""
        try:
            return fit(fit_points([(each.nbytes, each.estimate(level)) for each in points]), level)
        except UsageError:
            return None

    def bandwidths(self, point: SweepPoint, level: float) -> tuple[float, float] | None:
        """The algorithm bandwidth n / t and the bus bandwidth, in B/s, at the median; ``None`` without a size."""
        if not point.nbytes:
            return None
        plain = point.nbytes / point.estimate(level).value
        return plain, plain * OPERATIONS[point.operation].bus(self.ranks)


def times_table(swept: Sequence[Swept], level: float) -> Table:
    """A row for each communicator, operation and size. Each time has its own unit, because times span decades."""
    rated = any(point.operation == "window" for each in swept for point in each.points)
    beside = any(point.overlap for each in swept for point in each.points)
    columns = (
        Column("communicator", "Communicator"),
        Column("operation", "Operation"),
        Column("size", "Size"),
        Column("time", "Time"),
        Column("algorithm_bandwidth", "Algorithm bandwidth"),
        Column("bus_bandwidth", "Bus bandwidth"),
        *([Column("message_rate", "Messages/s")] if rated else []),
        *([Column("overlap", "Overlap")] if beside else []),
    )
    rows = []
    for each in swept:
        for point in each.points:
            rates = each.bandwidths(point, level)
            shown = ["", ""] if rates is None else [_in(rate, _RATE) for rate in rates]
            size = _in(point.nbytes, BYTES) if point.nbytes else ""
            words = [each.communicator, point.operation, size, _time(point, level), *shown]
            if rated:
                windowed = point.operation == "window"
                words.append(_in(1 / point.estimate(level).value, _COUNTS) if windowed else "")
            if beside:
                words.append(_overlap(point, level))
            rows.append(tuple(Text(word) for word in words))
    ranks = ", ".join(sorted({f"{each.ranks} ranks" if each.ranks > 1 else "1 rank" for each in swept}))
    notes = (
        f"Median of the slowest rank's times after a barrier, with its {level:.0%} interval.",
        "Algorithm bandwidth is size / time; bus bandwidth is the busiest link's (as in NCCL's tests).",
        *(["window: 64 messages on their way at once, and the time of one (as OSU's osu_bw)."] if rated else []),
        *(["Overlap: the share of the time in which a rank can compute (as in OSU's benchmarks)."] if beside else []),
    )
    how = swept[0].how
    kinds = f", {how.dtype}{', out of place' if how.copy else ''}" if how.dtype != DTYPES[0] or how.copy else ""
    return Table("communicator", f"Times on {ranks}{kinds}", columns, tuple(rows), notes)


def fits_table(swept: Sequence[Swept], level: float) -> Table | None:
    """A row for each line t = α + n β; ``None`` if there is none."""
    columns = tuple(
        Column(key, title)
        for key, title in (
            ("communicator", "Communicator"),
            ("operation", "Operation"),
            ("alpha", "α"),
            ("beta", "β"),
            ("bandwidth", "1/β"),
            ("half_size", "n½"),
            ("message_alpha", "α of a message"),
            ("message_bandwidth", "1/β of a message"),
            ("worst", "Worst point"),
        )
    )
    rows, poor = [], False
    for each in swept:
        for name, points in each.operations().items():
            found = each.fit(points, level)
            if found is not None:
                poor = poor or found.relative > _MOST_MISSED
                words = [each.communicator, name, *_fit_words(found, name, each.ranks)]
                rows.append(tuple(Text(word) for word in words))
    if not rows:
        return None
    notes = (
        f"t = α + n β by weighted least squares on the medians, {level:.0%} intervals; n½ = α / β.",
        "Per message: one of those that a ring (or pairs) would send one after another, with its additions;"
        " a library may take another algorithm, above all for small sizes.",
        "Worst point: the largest distance between a median and its line.",
        *([_POOR] if poor else []),
    )
    return Table("fit", "Latency and bandwidth", columns, tuple(rows), notes)


def curves(swept: Sequence[Swept], level: float) -> list[MessageCurve]:
    """The curves of the operations that have sizes."""
    found = []
    for each in swept:
        for name, points in each.operations().items():
            line = each.fit(points, level)
            found.append(
                MessageCurve(
                    f"{name}, {each.communicator}",
                    tuple((point.nbytes, point.estimate(level)) for point in points),
                    OPERATIONS[name].bus(each.ranks),
                    None if line is None else (line.alpha_s, line.beta_s_b),
                )
            )
    return found


def sweep_json(swept: Sequence[Swept], level: float) -> list[dict[str, object]]:
    """All values, the medians and the lines."""
    return [
        {
            "communicator": each.communicator,
            "engine": each.engine,
            "ranks": each.ranks,
            **asdict(each.how),
            "operations": {
                name: {
                    "op": OPERATIONS[name].op,
                    "points": [_point_json(each, point, level) for point in points],
                    "fit": _fit_json(each.fit(points, level), name, each.ranks),
                }
                for name, points in each.operations().items()
            },
        }
        for each in swept
    ]


def _point_json(swept: Swept, point: SweepPoint, level: float) -> dict[str, object]:
    rates = swept.bandwidths(point, level) or (None, None)
    return {
        **asdict(point),
        "median_s": asdict(point.estimate(level)),
        "algorithm_bandwidth_b_s": rates[0],
        "bus_bandwidth_b_s": rates[1],
    }


def _fit_json(found: Fit | None, name: str, ranks: int) -> dict[str, object] | None:
    if found is None:
        return None
    rounds = rounds_of(name, ranks)
    alpha, beta = rounds.per_message(found) if rounds else (None, None)
    return {**asdict(found), "message": {"alpha_s": alpha, "beta_s_b": beta} if rounds else None}


def _fit_words(found: Fit, name: str, ranks: int) -> list[str]:
    rounds = rounds_of(name, ranks)
    words = [
        _with(found.alpha_s, found.alpha_interval),
        _with(found.beta_s_b, found.beta_interval, _A_BYTE),
        _in(found.bandwidth_b_s, _RATE),
        _in(found.half_size_b, BYTES),
    ]
    if rounds is None:
        return [*words, "", "", f"{found.relative:.0%}"]
    alpha, beta = rounds.per_message(found)
    return [*words, _with(alpha, None), _in(1 / beta if beta else math.inf, _RATE), f"{found.relative:.0%}"]


def _time(point: SweepPoint, level: float) -> str:
    estimate = point.estimate(level)
    return _with(estimate.value, estimate.interval)


def _overlap(point: SweepPoint, level: float) -> str:
    if not point.overlap:
        return ""
    found = estimate_median(list(point.overlap), level)
    interval = found.interval
    return f"{found.value:.0%}" + (f" [{interval.low:.0%}, {interval.high:.0%}]" if interval else "")


def _with(value: float, interval: Interval | None, units: tuple[Unit, ...] = TIME) -> str:
    if interval is None:
        return estimate_text(value, None, None, units)
    if value == 0:
        return f"0, at most {_in(interval.high, units)}"
    return estimate_text(value, interval.low, interval.high, units, observed=interval.is_range)


def _in(value: float, units: tuple[Unit, ...]) -> str:
    if value == math.inf:
        return "∞"
    unit = choose_unit([value], units)
    return f"{number(value / unit.size)} {unit.symbol}"
