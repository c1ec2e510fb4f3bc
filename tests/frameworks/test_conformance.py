"""ONNX's node tests through each framework: how many pass, and none of them wrong.

They are tried in this process, where they are there already; ``levelbench conformance`` tries them in one of
its own, which tests/operators/conformance shows. JAX compiles each test's operators, which takes minutes for all of
them: every fortieth is tried here, and all by ``levelbench conformance --framework jax``.
"""

import pytest

from levelbench.operators.conformance import collect_cases, tally, try_case
from levelbench.operators.frameworks import load_framework, open_framework

pytestmark = pytest.mark.usefixtures("warm_node_cases")

LEAST = {"numpy": (1883, 1), "torch": (1823, 1), "onnxruntime": (1534, 1), "jax": (47, 40), "tensorflow": (1751, 1)}
"""The minimum number of passing tests, and the number of tests."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")  # as in the process of its own: frameworks warn of what the tests do on purpose
@pytest.mark.parametrize("framework", LEAST)
def test_onnxs_node_tests_pass_and_none_is_wrong(framework):
    if lacking := load_framework(framework).lacks():
        pytest.skip(lacking)
    least, stride = LEAST[framework]
    cases = collect_cases()[::stride]
    backend = open_framework(framework)
    found = tally(framework, [try_case(case, backend) for case in cases])
    assert [f"{each.name}: {each.detail}" for each in found.of("wrong")] == []
    assert found.total["passed"] >= least
    assert sum(found.total.values()) == len(cases)
