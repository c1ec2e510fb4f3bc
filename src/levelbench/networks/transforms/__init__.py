"""Transforms of networks: each answers with another network, says what it did, and is checked rather than trusted."""

from levelbench.networks.transforms.equivalence import check_equivalence, check_transform
from levelbench.networks.transforms.registry import apply_all, make, names, parse, settings, summary
from levelbench.networks.transforms.report import Report
from levelbench.networks.transforms.shaken import shaken_parameters
from levelbench.networks.transforms.transform import Tolerance, Transform, Transformed

__all__ = [
    "Report",
    "Tolerance",
    "Transform",
    "Transformed",
    "apply_all",
    "check_equivalence",
    "check_transform",
    "make",
    "names",
    "parse",
    "settings",
    "shaken_parameters",
    "summary",
]
