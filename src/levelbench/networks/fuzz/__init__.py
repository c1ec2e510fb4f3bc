"""Fuzzing: generated networks on which all frameworks have to agree; ``python -m levelbench.networks.fuzz``."""

from __future__ import annotations

from levelbench.networks.fuzz.generate import Specimen, generate, generate_seeded, shrunk
from levelbench.networks.fuzz.run import FuzzCounts, agreement_on, fuzz, write_case
from levelbench.networks.fuzz.sketch import Draws, SeededDraws

__all__ = [
    "Draws",
    "FuzzCounts",
    "SeededDraws",
    "Specimen",
    "agreement_on",
    "fuzz",
    "generate",
    "generate_seeded",
    "shrunk",
    "write_case",
]
