"""Conformance: ONNX's own node tests through a framework's operators, judged passed, wrong or unsupported."""

from levelbench.operators.conformance.cases import Case, collect_cases
from levelbench.operators.conformance.judge import judge, tolerances
from levelbench.operators.conformance.run import run_conformance
from levelbench.operators.conformance.tally import Result, Tally, tally
from levelbench.operators.conformance.trial import try_case

__all__ = ["Case", "Result", "Tally", "collect_cases", "judge", "run_conformance", "tally", "tolerances", "try_case"]
