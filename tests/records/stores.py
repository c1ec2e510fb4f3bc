"""What tests of stores look at."""

from __future__ import annotations


def seeds(runs):
    return [run.header.seed if hasattr(run, "header") else run.seed for run in runs]
