"""Fuzzing: generated networks on which all frameworks have to agree; ``python -m levelbench.networks.fuzz``."""

from __future__ import annotations

from levelbench.networks.fuzz.generate import Case, generate, generate_seeded
from levelbench.networks.fuzz.items import Draws, SeededDraws
from levelbench.networks.fuzz.run import Tally, agreement_on, fuzz, write_case
from levelbench.networks.fuzz.shrink import shrunk

__all__ = [
    "Case",
    "Draws",
    "SeededDraws",
    "Tally",
    "agreement_on",
    "fuzz",
    "generate",
    "generate_seeded",
    "shrunk",
    "write_case",
]
