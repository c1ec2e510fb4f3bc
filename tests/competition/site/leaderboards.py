"""A folder of entries to build sites from, and what must hold for every site."""

from __future__ import annotations

import re
from datetime import date

import msgspec

from levelbench.competition.entries import (
    Author,
    Hardware,
    Inference,
    Origin,
    Submission,
    SubmittedCurve,
    SubmittedRun,
    SystemPrice,
    encode,
)
from levelbench.competition.leaderboard import SITE_MARKER
from levelbench.competition.rulesets import ruleset, task_rules
from levelbench.competition.site.build import LOCK, STAGING

__all__ = ["DATA", "DAY", "DIGEST", "assert_whole", "files", "inference", "measure", "thrice", "write"]

DAY = date(2026, 11, 21)
TARGET = task_rules(ruleset("dawnbench-1.0"), "cifar10").target
DATA = "data:application/json;base64,"
DIGEST = r"-(?:[0-9a-f]{10}|[a-z2-7]{26})\."


def write(folder, name, seconds=10.0, **parts):
    """An entry of one run, as an import of DAWNBench leaves it."""
    base = Submission(
        schema=1, ruleset="dawnbench-1.0", task="cifar10", mode="training", author=Author("An author"),
        submitted="2018-07-01", model=name, framework="torch", hardware=Hardware("a machine"), target=TARGET,
        clock="dawnbench", crossing="first", price=SystemPrice(3.06), origin=Origin("dawnbench", f"{name}.json"),
        runs=[SubmittedRun(SubmittedCurve([seconds / 2, seconds, 2 * seconds], [0.9, 0.941, 0.95]))],
    )  # fmt: skip
    submission = msgspec.structs.replace(base, **parts)
    path = folder / submission.task / submission.mode / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(submission))
    return path


def measure(folder, name, *measured, **parts):
    """An entry of inference under our own rules."""
    task = task_rules(ruleset("levelbench-1.0"), "digits")
    changes = {"ruleset": "levelbench-1.0", "task": "digits", "mode": "inference", "target": task.target, "runs": []}
    price = SystemPrice(3.06, "https://example.org/prices", "2026-11-20", True)
    changes |= {"clock": None, "crossing": None, "origin": None, "submitted": "2026-11-21", "price": price}
    return write(folder, name, **{**changes, "inference": list(measured), **parts})


def thrice(measured):
    """The same figures from three processes, which is what a test of differences needs."""
    return [msgspec.structs.replace(measured, duration_s=measured.duration_s + at / 1000) for at in range(3)]


def inference(scenario, **parts):
    """A measurement that keeps all rules: a hundred answers a second for 20 s."""
    fields = {"queries": 2000, "samples": 2000, "duration_s": 20.4, "throughput_per_s": 98.0, "quality": 0.96}
    return Inference(scenario, **{**fields, "valid": True, **parts})


def files(site):
    """Every file of a site, with its content."""
    found = {path.relative_to(site).as_posix(): path.read_bytes() for path in site.rglob("*") if path.is_file()}
    return {name: content for name, content in found.items() if not name.startswith((SITE_MARKER, LOCK, STAGING))}


def assert_whole(site):
    """Every link and script of every page leads to a file that is there."""
    for page in (*site.glob("*.html"), *site.glob("entries/*.html")):
        for link in re.findall(r'(?:href|src)="([^"#]*)"', page.read_text()):
            assert link.startswith(("https://", DATA)) or (page.parent / link).is_file(), f"{page.name}: {link}"
