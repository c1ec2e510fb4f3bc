"""What an entry measured, for its page: curves, every run, scenarios of inference, where the time went."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from levelbench.records.schema import Target
from levelbench.report.markup import Html
from levelbench.report.numbers import ABSENT, BYTES, ENERGY, Unit, choose_unit
from levelbench.report.site.brief import brief, time_text
from levelbench.report.site.drawings import curve_drawing, phases_drawing
from levelbench.report.site.parts import escaped, facts, fill, many, quality_text, section, table, target_text
from levelbench.report.site.payload import EntryPayload

if TYPE_CHECKING:
    from levelbench.records.submissions.schema import Inference, Submission, SubmittedRun

__all__ = ["curve_section", "in_unit", "inference_section", "phases_section", "runs_section"]

_MOST = 200


def curve_section(submission: Submission) -> Html:
    """The curves of all runs, over one another."""
    runs = [
        (f"{_name(run, at)}, {run.status}", run.curve.time_s, run.curve.quality)
        for at, run in enumerate(submission.runs[:_MOST])
    ]
    drawing = curve_drawing(runs, submission.target)
    caption = fill("<figcaption>{target}. One line a run.</figcaption>", target=target_text(submission.target))
    return (
        section("Curve", fill("<figure>{caption}{drawing}</figure>", caption=caption, drawing=drawing))
        if drawing
        else drawing
    )


def _name(run: SubmittedRun, at: int) -> str:
    return f"run {at + 1}" if run.seed is None else f"run {at + 1}, seed {run.seed}"


def runs_section(entry: EntryPayload, submission: Submission, target: Target) -> Html:
    """Every run, whether or not it arrived; columns that no run states are left out.

    Of an entry that was not scored nobody says whether its runs arrived.
    """
    lower = target.direction == "lower"
    rows: list[tuple[str, ...]] = []
    doubts: dict[str, int] = {}
    for at, run in enumerate(submission.runs[:_MOST]):
        time_s = entry.times_s[at] if at < len(entry.times_s) else None
        qualities = run.curve.quality
        if not math.isfinite(sum(qualities)):
            qualities = [value for value in qualities if math.isfinite(value)]
        best = (min(qualities) if lower else max(qualities)) if qualities else None
        rows.append(
            (
                str(at + 1),
                "" if run.seed is None else str(run.seed),
                ("" if not entry.times_s else "no") if time_s is None else "yes",
                "" if time_s is None else time_text(time_s),
                "" if best is None else quality_text(best, target),
                str(len(run.curve.time_s)),
                in_unit(run.peak_memory_bytes, BYTES),
                in_unit(run.energy_j, ENERGY),
                ", ".join(f"{name} {brief(value, 4)}" for name, value in list(run.test_quality.items())[:8]),
                run.status if run.error is None else f"{run.status}: {run.error}",
                ", ".join(str(doubts.setdefault(doubt, len(doubts) + 1)) for doubt in run.suspect[:_MOST]),
                _short(run.record_digest or run.curve_digest),
            )
        )
    heads = [
        ("Run", "n"), ("Seed", "n"), ("Reached", "t"), ("Time", "n"), ("Best", "n"), ("Evaluations", "n"),
        ("Peak memory", "n"), ("Energy", "n"), ("On the test split", "w"), ("Status", "w"), ("Doubtful", "t"),
        ("Digest", "t"),
    ]  # fmt: skip
    kept = [at for at in range(len(heads)) if at == 0 or any(row[at] for row in rows)]
    shown = [[row[at] for at in kept] for row in rows]
    of = len(submission.runs)
    note = (
        Html("")
        if of <= _MOST
        else fill('<p class="note">The first {most} of {of} runs.</p>', most=str(_MOST), of=str(of))
    )
    # A sentence that many runs share would make each row of a phone's table as high as itself.
    runs = table("Every run of this entry", [heads[at] for at in kept], shown, _MOST)
    return section("Runs", runs, note, _numbered(list(doubts)[:_MOST]))


def _numbered(doubts: Sequence[str]) -> Html:
    if not doubts:
        return Html("")
    items = many(fill("<li>{doubt}</li>", doubt=doubt) for doubt in doubts)
    return fill('<p class="note">Doubtful, by number:</p><ol class="note">{items}</ol>', items=items)


def in_unit(value: float | None, units: tuple[Unit, ...]) -> str:
    """``value`` in the unit that suits it; empty without one."""
    if value is None:
        return ""
    unit = choose_unit([value], units)
    return f"{brief(value / unit.size)} {unit.symbol}"


def _short(digest: str | None) -> Html | str:
    """The head of a digest, the whole of it as its title."""
    return Html(f'<code title="{escaped(digest)}">{escaped(digest[:12])}</code>') if digest else ""


def inference_section(measured: Sequence[Inference], target: Target) -> Html:
    """Each scenario as a list of facts."""
    blocks = []
    for each in measured[:_MOST]:
        quantiles = ", ".join(f"{name}: {time_text(value)}" for name, value in sorted(each.quantiles_s.items())[:20])
        found = facts(
            [
                ("Mean latency", _seconds(each.mean_latency_s)),
                ("Quantiles", quantiles),
                (f"Early-stopping estimate of {each.estimate_quantile or ABSENT}", _seconds(each.estimate_s)),
                ("Throughput", None if each.throughput_per_s is None else f"{brief(each.throughput_per_s)} a second"),
                ("Load", None if each.target_per_s is None else f"{brief(each.target_per_s)} queries a second"),
                ("Latency bound", _seconds(each.latency_bound_s)),
                ("Quality", None if each.quality is None else quality_text(each.quality, target)),
                ("Queries", f"{each.queries:,} of {each.samples:,} samples in {time_text(each.duration_s)}"),
                ("Batch", None if each.batch is None else str(each.batch)),
                ("On the clock beside the network", ", ".join(each.includes) or "not stated"),
                ("Valid", {None: None, True: "yes", False: "no"}[each.valid]),
                ("Cost of an answer, as stated", None if each.cost_usd is None else f"${brief(each.cost_usd)}"),
            ]
        )
        blocks.append(fill("<h3>{scenario}</h3>{found}", scenario=each.scenario, found=found))
    return section("Inference", *blocks)


def _seconds(value: float | None) -> str | None:
    return None if value is None else time_text(value)


def phases_section(runs: Sequence[SubmittedRun]) -> Html:
    """Mean seconds of each phase over the runs that state them, then what the clock left out."""
    stated = [run.phases_s for run in runs if run.phases_s]
    names = dict.fromkeys(name for phases in stated for name in list(phases)[:_MOST])
    means = {name: sum(phases.get(name, 0.0) for phases in stated) / len(stated) for name in list(names)[:_MOST]}
    excluded = [run.excluded_s for run in runs if run.excluded_s]
    left = dict.fromkeys(name for each in excluded for name in list(each)[:_MOST])
    out = ", ".join(
        f"{name} {time_text(sum(each.get(name, 0.0) for each in excluded) / len(excluded))}"
        for name in list(left)[:_MOST]
    )
    note = fill('<p class="note">Left out by the clock: {out}.</p>', out=out) if out else Html("")
    return section("Where the time went", phases_drawing(means), note)
