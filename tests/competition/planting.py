"""Ways to plant a fault in a clean entry, and to tell that its rule alone finds it."""

from __future__ import annotations

GONE = object()
"""Stands for a value that is taken away."""
DIGEST = "ab" * 32


def times(*values):
    """A change of a column's values, by place."""

    def change(column):
        return [new if new is not None else old for old, new in zip(column, [*values, *[None] * 9], strict=False)]

    return change


def scaled(by):
    return lambda column: [by * value for value in column]


def faster(by):
    """A change of a whole run: all its times scaled."""

    def change(run):
        curve = {**run["curve"], "time_s": [by * time for time in run["curve"]["time_s"]]}
        phases = {name: by * seconds for name, seconds in run["phases_s"].items()}
        return {**run, "curve": curve, "phases_s": phases, "time_to_target_s": by * run["time_to_target_s"]}

    return change


def stopped(points):
    """A change of a whole run: it does not arrive, and ends after so many evaluations."""

    def change(run):
        curve = {name: column[:points] for name, column in run["curve"].items()}
        curve["quality"] = [0.9 * quality for quality in curve["quality"]]
        phases = {"forward": curve["time_s"][-1]}
        return {**run, "curve": curve, "phases_s": phases, "reached": False, "time_to_target_s": None}

    return change


def codes(clean, kind, changes):
    """The codes that a clean entry with these changes has."""
    planted = {name: clean.remove if value is GONE else value for name, value in changes.items()}
    return clean.codes(clean.make(kind, planted))
