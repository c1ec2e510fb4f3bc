"""ONNX's node tests through each framework: how many pass, and none of them wrong."""

import pytest

from levelbench.operators.conformance import collect_cases, run_conformance
from levelbench.operators.frameworks import load_framework

LEAST = {"numpy": 1880, "torch": 1700, "onnxruntime": 1534, "jax": 1400}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("framework", LEAST)
def test_onnxs_node_tests_pass_and_none_is_wrong(framework):
    if lacking := load_framework(framework).lacks():
        pytest.skip(lacking)
    found = run_conformance(framework, collect_cases())
    assert [f"{each.name}: {each.detail}" for each in found.of("wrong")] == []
    assert found.total["passed"] >= LEAST[framework]
    assert sum(found.total.values()) == 1884
