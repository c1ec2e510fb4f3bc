"""Validation of whole networks: outputs and gradients on each framework against a reference, and where they diverge."""

from __future__ import annotations

from levelbench.networks.probes.agreement import Agreement, BackendAgreement, DivergencePoint, TensorAgreement
from levelbench.networks.probes.check import compare_network

__all__ = ["Agreement", "BackendAgreement", "DivergencePoint", "TensorAgreement", "compare_network"]
