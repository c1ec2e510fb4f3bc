"""ONNX's node tests through each framework: how many pass, and none of them wrong.

JAX compiles each test's operators, which takes minutes for all of them: every fortieth is tried here, and all by
``levelbench conformance --framework jax``.
"""

import pytest

from levelbench.operators.conformance import collect_cases, run_conformance
from levelbench.operators.frameworks import load_framework

LEAST = {"numpy": (1883, 1), "torch": (1823, 1), "onnxruntime": (1534, 1), "jax": (47, 40)}
"""How many must pass at the least, of every so many."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("framework", LEAST)
def test_onnxs_node_tests_pass_and_none_is_wrong(framework):
    if lacking := load_framework(framework).lacks():
        pytest.skip(lacking)
    least, stride = LEAST[framework]
    cases = collect_cases()[::stride]
    found = run_conformance(framework, cases)
    assert [f"{each.name}: {each.detail}" for each in found.of("wrong")] == []
    assert found.total["passed"] >= least
    assert sum(found.total.values()) == len(cases)
