"""Small boards by hand: entries with figures that a reader can check without a calculator."""

from __future__ import annotations

from levelbench.competition.entries import (
    Author,
    Code,
    Hardware,
    Inference,
    Origin,
    Provenance,
    Submission,
    SubmittedCurve,
    SubmittedRun,
    SystemPrice,
    TuningEffort,
)
from levelbench.competition.site import (
    BOARD_SCHEMA,
    BoardPayload,
    EntryPayload,
    FigurePayload,
    FindingCounts,
    OriginFacts,
    PriceFacts,
    RulesetFacts,
)
from levelbench.records.schema import Target

__all__ = ["TARGET", "board", "entry", "figure", "hostile", "submission"]

TARGET = Target("top1", 0.9)


def figure(value, text, rank=1, *, low=None, high=None, shared=False, note=""):
    return FigurePayload(value, low, high, rank, shared, text, note)


def entry(name, **changes):
    """One training entry, ``name`` being its model and its slug; ``changes`` replace its fields."""
    fields = {
        "id": f"task/training/{name}",
        "slug": name,
        "page": f"entries/{name}.html",
        "model": name,
        "author": f"{name} author",
        "organisation": "",
        "framework": "PyTorch",
        "hardware": "1 GPU",
        "date": "2024-05-01",
        "division": "open",
        "mode": "training",
        "code_url": "https://example.org/code",
        "price": PriceFacts(3.6),
        "signed": "unsigned",
        "figures": {"time": figure(10.0, "10 s"), "cost": figure(0.01, "$0.01")},
        "n": 1,
        "reached": 1,
        "reached_text": "1/1",
        "single_run": True,
        "expected_with_restarts_s": None,
        "best_s": None,
        "flags": [],
        "findings": FindingCounts(),
        "origin": None,
        "steps": [[(0.5, 1.0), (0.9, 10.0)]],
    }
    fields |= changes
    runs = fields["steps"] = [[number for pair in run for number in pair] for run in fields["steps"]]
    fields.setdefault("best_quality", max((run[-2] for run in runs if run), default=None))
    return EntryPayload(**fields)


def board(entries, **changes):
    """A board of ``entries`` under a rule that takes the median."""
    rules = RulesetFacts(
        "rules-1.0",
        "rules",
        "1.0",
        "2024-01-01",
        "https://example.org/rules",
        "wall",
        "first",
        "the median of all runs",
        "median",
        5,
        0,
        "significant",
    )
    fields = {
        "schema": BOARD_SCHEMA,
        "title": "A board",
        "generated": "2024-06-01",
        "slug": "task",
        "page": "task.html",
        "data": "data/task.js",
        "ruleset": rules,
        "task": "task",
        "task_title": "A task",
        "target": TARGET,
        "modes": list(dict.fromkeys(each.mode for each in entries)) or ["training"],
        "entries": entries,
        "progress": {},
    }
    return BoardPayload(**{**fields, **changes})


def submission(text="plain", **changes):
    """An entry's file with ``text`` in every place where an author can write; two runs, of which one arrives."""
    runs = [
        SubmittedRun(
            SubmittedCurve([1.0, 2.0, 3.0], [0.5, 0.8, 0.95]),
            seed=1,
            phases_s={text: 2.0, "forward": 1.0},
            excluded_s={text: 1.0},
            test_quality={text: 0.9},
            suspect=[text],
            record_digest=text,
            started=text,
        ),
        SubmittedRun(SubmittedCurve([1.0, 2.0], [0.5, 0.7]), status="failed", seed=2, error=text),
    ]
    measured = Inference(
        "single-stream", 100, 100, 1.0, mean_latency_s=0.01, quantiles_s={text: 0.02}, includes=[text], valid=True
    )
    fields = {
        "schema": 1,
        "ruleset": text,
        "task": text,
        "mode": "training",
        "author": Author(text, text, text, text),
        "submitted": text,
        "model": text,
        "framework": text,
        "hardware": Hardware(text, 1, 2, text, text, 3, 4),
        "target": TARGET,
        "clock": text,
        "code": Code(text, text, True),
        "price": SystemPrice(3.6, text, text, True),
        "runs": runs,
        "inference": [measured],
        "tuning": TuningEffort(3, 1.0, 2.0, text),
        "settings": {text: text},
        "provenance": Provenance(text, {text: text}, {text: text}, text, False, {text: text}, text),
        "origin": Origin(text, text, text, [text], {text: text}),
        "notes": text,
    }
    return Submission(**{**fields, **changes})


def hostile(text, name="hostile"):
    """An entry with ``text`` in every place where an author can write."""
    return entry(
        name,
        id=text,
        model=text,
        author=text,
        organisation=text,
        framework=text,
        hardware=text,
        date=text,
        code_url=text,
        price=PriceFacts(3.6, text, text),
        figures={"time": figure(10.0, text, note=text), "cost": figure(None, text, None, note=text)},
        reached_text=text,
        expected_with_restarts_s=20.0,
        best_s=5.0,
        flags=[text],
        findings=FindingCounts(1, 1),
        origin=OriginFacts(text, text, [text]),
    )
