"""An entry's page: its figures and how they were made, every run, the price, the environment, what is doubtful.

All of it is there without a script.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from levelbench.competition.figures import COLUMNS, FLAGS
from levelbench.competition.site import BoardPayload, EntryPayload, brief, time_text
from levelbench.competition.site.drawings import curve_drawing, phases_drawing
from levelbench.competition.site.parts import (
    TITLES,
    badges,
    facts,
    fill,
    inside,
    many,
    outside,
    page,
    quality_text,
    render,
    root_of,
    section,
    table,
    target_text,
)
from levelbench.records.schema import Target
from levelbench.report.markup import Html
from levelbench.report.numbers import ABSENT, BYTES, ENERGY, TIME, Unit, choose_unit, plural
from levelbench.report.remarks import Remark, Remarks, missing_line

if TYPE_CHECKING:
    from levelbench.competition.checks import EntryFinding
    from levelbench.competition.entries import Inference, Submission, SubmittedRun


_MOST = 200


def curve_section(submission: Submission) -> Html:
    """The curves of all runs, over one another."""
    runs = [
        (f"run {at}{f', seed {run.seed}' * (run.seed is not None)}, {run.status}", run.curve.time_s, run.curve.quality)
        for at, run in enumerate(submission.runs[:_MOST], 1)
    ]
    drawing = curve_drawing(runs, submission.target)
    caption = fill("<figcaption>{target}. One line a run.</figcaption>", target=target_text(submission.target))
    if not drawing:
        return drawing
    return section("Curve", fill("<figure>{caption}{drawing}</figure>", caption=caption, drawing=drawing))


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
        digest = run.record_digest or run.curve_digest
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
                fill('<code title="{whole}">{head}</code>', whole=digest, head=digest[:12]) if digest else "",
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
    note = fill('<p class="note">The first {most} of {of} runs.</p>', most=str(_MOST), of=str(of))
    # A sentence that many runs share would make each row of a phone's table as high as itself.
    runs = table("Every run of this entry", [heads[at] for at in kept], shown, _MOST)
    items = many(fill("<li>{doubt}</li>", doubt=doubt) for doubt in list(doubts)[:_MOST])
    numbered = fill('<p class="note">Doubtful, by number:</p><ol class="note">{items}</ol>', items=items)
    return section("Runs", runs, note if of > _MOST else Html(""), numbered if doubts else Html(""))


def in_unit(value: float | None, units: tuple[Unit, ...]) -> str:
    """``value`` in the unit that suits it; empty without one."""
    if value is None:
        return ""
    unit = choose_unit([value], units)
    return f"{brief(value / unit.size)} {unit.symbol}"


def inference_section(measured: Sequence[Inference], target: Target) -> Html:
    """Each scenario as a list of facts."""
    blocks = []
    for each in measured[:_MOST]:
        quantiles = ", ".join(f"{name}: {time_text(value)}" for name, value in sorted(each.quantiles_s.items())[:20])
        found = facts(
            [
                ("Mean latency", in_unit(each.mean_latency_s, TIME)),
                ("Quantiles", quantiles),
                (f"Early-stopping estimate of {each.estimate_quantile or ABSENT}", in_unit(each.estimate_s, TIME)),
                ("Throughput", None if each.throughput_per_s is None else f"{brief(each.throughput_per_s)} a second"),
                ("Load", None if each.target_per_s is None else f"{brief(each.target_per_s)} queries a second"),
                ("Latency bound", in_unit(each.latency_bound_s, TIME)),
                ("Quality", None if each.quality is None else quality_text(each.quality, target)),
                ("Queries", f"{each.queries:,} of {each.samples:,} samples in {time_text(each.duration_s)}"),
                ("Batch", None if each.batch is None else str(each.batch)),
                ("On the clock besides the network", ", ".join(each.includes) or "not stated"),
                ("Valid", {None: None, True: "yes", False: "no"}[each.valid]),
                ("Cost of an answer, as stated", None if each.cost_usd is None else f"${brief(each.cost_usd)}"),
            ]
        )
        blocks.append(fill("<h3>{scenario}</h3>{found}", scenario=each.scenario, found=found))
    return section("Inference", *blocks)


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


Side = tuple[BoardPayload, EntryPayload]
"""A board without entries, and the entry as it is there."""

_MOST_LINES = 200
_SAID = {
    "single-run": ("single-run",),
    "threshold": ("not-reached", "quality-too-low"),
    "flapping": ("falls-back",),
    "censored": ("stops-at-target",),
    "price": ("price-missing",),
    "quality": ("quality-missing",),
}
"""Kinds of an import's doubts (``kind: sentence``), and the flags that say no more than they."""
_SEVERITIES = {"error": "bad", "warning": "open", "note": "plain"}


def entry_page(
    payload: BoardPayload,
    entry: EntryPayload,
    submission: Submission,
    findings: Sequence[EntryFinding],
    *,
    source: str | bytes = "",
    linted: Remarks | None = None,
    further: Sequence[Side] = (),
    off: Sequence[str] = (),
) -> str:
    """The page of ``entry``, as the text of an HTML document.

    ``source`` is the submission's file, which the page then carries, or where the site keeps a copy of it, relative to
    its root; empty: nowhere.
    ``linted`` is what the linter says of it. ``further`` are the other boards that it is on, without entries, each with
    the entry as it is there; ``off`` the titles of those that it would be on if they were built.
    """
    root = root_of(entry.page)
    # Line by line: its line ends are kept, its other control characters shown.
    lines = submission.notes.splitlines()[:_MOST_LINES]
    notes = many(fill("<p>{line}</p>", line=line) for line in lines if line.strip())
    found = ((_SEVERITIES.get(one.severity, "plain"), one.field, one) for one in findings[:_MOST_LINES])
    listed = _listed(found)
    main = render(
        "entry-page",
        model=entry.model,
        by=", ".join(dict.fromkeys(each for each in (entry.author, entry.organisation) if each)),
        date=entry.date,
        task=inside(root, payload.page, payload.task_title),
        division=entry.division,
        badges=badges(entry, always=True),
        tiles=_tiles(entry),
        further=_further(further, off, root),
        doubts=_doubts([(payload, entry), *further]),
        curve=curve_section(submission),
        runs=runs_section(entry, submission, payload.target),
        inference=inference_section(submission.inference, payload.target),
        phases=phases_section(submission.runs),
        facts=_facts(submission, _file(source, root, entry.slug)),
        findings=section("Findings", listed or Html('<p class="note">None: the check found nothing wrong.</p>')),
        lint=_lint(linted) if linted is not None else Html(""),
        notes=section("Notes", notes) if submission.notes else Html(""),
    )
    back = many(
        [
            inside(root, payload.page, payload.task_title),
            fill('<span aria-current="page">{name}</span>', name=entry.model),
        ]
    )
    title = f"{entry.model}, {entry.author}: {payload.task_title}"
    return page(title, "entry", entry.page, main, site=payload.title, back=back)


def _tiles(entry: EntryPayload) -> Html:
    """Each figure with how it was made, then how many runs arrived."""
    tiles = []
    for column in COLUMNS:
        figure = entry.figures.get(column)
        if figure is None:
            continue
        value, bracket, interval = figure.text.partition(" [")
        tiles.append((TITLES[column], value or ABSENT, f"[{interval}" if bracket else "", figure.note))
    if entry.mode == "training":
        share, bracket, interval = entry.reached_text.partition(" [")
        tiles.append(("Runs that reached it", share or ABSENT, f"[{interval}" if bracket else "", ""))
        if entry.expected_with_restarts_s is not None:
            note = "with a new start after each run that does not arrive"
            tiles.append(("Expected with restarts", time_text(entry.expected_with_restarts_s), "", note))
        if entry.best_s is not None and entry.n > 1:
            tiles.append(("Best run", time_text(entry.best_s), "", "never a result by itself"))
    return many(
        render("tiles",
            title=title, value=value, note=note,
            interval=fill('<small class="interval-text">{text}</small>', text=interval) if interval else "",
        )
        for title, value, interval, note in tiles
    )  # fmt: skip


def _further(further: Sequence[Side], off: Sequence[str], root: str) -> Html:
    """Its figures in each other scenario, under the link to that one's board."""
    ranked = many(
        fill(
            '<section><h2>{link}</h2><ul class="columns" role="list">{tiles}</ul></section>\n',
            link=inside(root, board.page, board.task_title),
            tiles=_tiles(entry),
        )
        for board, entry in further
    )
    note = fill('<p class="note">The task has no board, for too many others, of {titles}.</p>', titles="; ".join(off))
    return many([ranked, note if off else Html("")])


def _doubts(sides: Sequence[Side]) -> Html:
    """What an import found odd, and what scoring has to say; of what is not so on every board, on which."""
    entry = sides[0][1]
    doubts = entry.origin.doubts if entry.origin else []
    # What an import has said of this very entry says more than the sentence for all of its kind.
    said = {FLAGS[flag] for doubt in doubts for flag in _SAID.get(doubt.partition(":")[0], ())}
    if FLAGS["cost-stated"] in entry.flags:
        said.add(FLAGS["price-missing"])
    everywhere = [flag for flag in entry.flags if all(flag in each.flags for _, each in sides)]
    lines = [flag for flag in everywhere if flag not in said]
    for board, each in sides:
        lines += [f"{board.task_title}: {flag}" for flag in each.flags if flag not in (*everywhere, *said)]
    lines += doubts
    items = many(fill("<li>{line}</li>", line=line) for line in lines[:_MOST_LINES])
    return section("To keep in mind", fill("<ul>{items}</ul>", items=items)) if items else Html("")


def _file(source: str | bytes, root: str, name: str) -> Html | None:
    """The link to the submission's file: in the page itself, as an address that is its content, or a file beside it."""
    if isinstance(source, str):
        return inside(root, source, "JSON") if source else None
    # No letter of base 64 ends an attribute.
    content = Html(b64encode(source).decode("ascii"))
    return fill(
        '<a download="{name}.json" href="data:application/json;base64,{content}">JSON</a>', name=name, content=content
    )


def _facts(submission: Submission, file: Html | None) -> Html:
    """Hardware, price, code, software, data, tuning, settings and where the entry is from."""
    hardware, price, origin, tuning = submission.hardware, submission.price, submission.origin, submission.tuning
    made = submission.provenance
    accelerators = "" if hardware.accelerators is None else f"{hardware.accelerators:,}"
    cores = "" if hardware.cores is None else plural(hardware.cores, "core")
    commit = submission.code.commit
    dirty = " (with uncommitted changes)" if submission.code.dirty else ""
    paid = "not stated"
    if price is not None:
        kind = {True: ", on demand", False: ", not on demand", None: ""}[price.on_demand]
        day = f", read on {price.read_on}" if price.read_on else ""
        paid = f"${brief(price.usd_per_hour)} an hour{kind}{day}"
    tried = [
        None if tuning.trials is None else f"{tuning.trials:,} trials",
        None if tuning.hours is None else f"{brief(tuning.hours)} hours",
        None if tuning.usd is None else f"${brief(tuning.usd)}",
    ]
    parts = [
        facts(
            [
                ("Hardware", hardware.description),
                ("Nodes", None if hardware.nodes is None else f"{hardware.nodes:,}"),
                ("Accelerators", " × ".join(filter(None, [accelerators, hardware.accelerator]))),
                ("Processor", ", ".join(filter(None, [hardware.processor, cores]))),
                ("Memory", in_unit(hardware.memory_bytes, BYTES)),
                ("Framework", submission.framework),
                ("Price", paid),
                ("Price from", outside(price.source) if price and price.source else None),
                ("Code", outside(submission.code.url) if submission.code.url else "not stated"),
                ("Commit", fill("<code>{commit}</code>{dirty}", commit=commit, dirty=dirty) if commit else None),
                ("Tried before", ", ".join(filter(None, tried)) or "not stated"),
                ("On tuning", tuning.notes),
                ("Clock", submission.clock),
                ("Read from", f"{origin.format}: {origin.file}" if origin else None),
                ("This entry's file", file),
            ]
        ),
        _folded("Settings", submission.settings),
        _folded("Software", made.software),
        _folded("Environment", made.environment),
        _folded(f"Data: {made.dataset or 'checksums'}", made.checksums),
        _folded(f"As {origin.format} has it", origin.fields) if origin else Html(""),
    ]
    return section("What it ran on", *parts)


def _folded(title: str, values: Mapping[str, object]) -> Html:
    """Names and values, folded away; nothing where there is none."""
    pairs = list(values.items())
    if not pairs:
        return Html("")
    listed = facts(
        (name, "not stated" if value is None else str(value) or ABSENT) for name, value in pairs[:_MOST_LINES]
    )
    return fill("<details><summary>{title}</summary>{listed}</details>", title=title, listed=listed)


def _listed(findings: Iterable[tuple[str, str, EntryFinding | Remark]]) -> Html:
    """What is wrong, each with its class, its place and what to do; nothing where nothing is."""
    items = many(
        fill(
            '<li><span class="badge {kind}">{badge}</span> <code>{field}</code> {found}. <em>{do}.</em></li>',
            kind=kind,
            badge=f"{one.severity} {one.code}",
            field=field,
            found=one.found.rstrip("."),
            do=one.do.rstrip("."),
        )
        for kind, field, one in findings
    )
    return fill('<ul class="findings">{items}</ul>', items=items) if items else Html("")


def _lint(linted: Remarks) -> Html:
    """What the linter says of the claim that the entry makes: an error of its is a reader's to judge, not a fault."""
    listed = _listed(("open", one.name, one) for one in linted.lines[:_MOST_LINES])
    none = Html("") if listed else Html("<p>No error and no warning.</p>")
    missing = missing_line([linted])
    note = fill('<p class="note">{missing}</p>', missing=missing) if missing else Html("")
    return section("The linter on its claim", listed, none, note)
