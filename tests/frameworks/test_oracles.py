"""Every operator that a framework registers is checked against an independent oracle.

An oracle is one of ONNX's node tests, ONNX's reference implementation, or a test of ours, which is named here.
"""

from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference.ops import _op_list, aionnxml

from levelbench.operators.conformance import collect_cases
from levelbench.operators.frameworks import load_framework, open_framework
from levelbench.operators.node import operator_node

pytestmark = pytest.mark.usefixtures("warm_node_cases")

OURS = {"GlobalLpPool": "tests/frameworks/test_oracles.py", "Multinomial": "tests/frameworks/test_oracles.py"}
"""Operators without a node test or reference in ONNX, and the test file that checks them."""


@cache
def of_onnx():
    """The operators covered by ONNX's node tests or reference, as ``Conv`` or ``domain::Name``."""
    tested = {
        f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        for case in collect_cases()
        for node in case.model.graph.node
    }
    known = {schema.name for schema in onnx.defs.get_all_schemas()}
    reference = {name for name in known if hasattr(_op_list, name)}
    return tested | reference | {f"ai.onnx.ml::{name}" for name in known if hasattr(aionnxml._op_list, name)}


def registered(framework):
    if framework == "numpy":
        from levelbench.frameworks.numpy.operators import OPERATORS

        return set(OPERATORS)
    return set(import_module(f"levelbench.frameworks.{framework}.operators").names())


def opened(framework):
    if lacking := load_framework(framework).lacks():
        pytest.skip(lacking)
    return open_framework(framework)


def without_oracle(names):
    return sorted(set(names) - of_onnx() - OURS.keys())


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax", "tensorflow"])
def test_every_operator_of_a_framework_has_an_oracle(framework):
    opened(framework)
    assert without_oracle(registered(framework)) == [], "add a test of each, and name it in OURS"


def test_an_operator_without_an_oracle_is_found():
    assert without_oracle(["Add", "Invented"]) == ["Invented"]


@pytest.mark.parametrize(("operator", "path"), OURS.items())
def test_what_is_said_to_check_an_operator_does(operator, path):
    assert f'"{operator}"' in (Path(__file__).parents[2] / path).read_text()


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax", "tensorflow"])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_a_global_p_norm_is_that_of_its_formula(framework, p):
    backend = opened(framework)
    x = np.random.default_rng(5).standard_normal((2, 3, 4, 5)).astype(np.float32)
    (found,) = backend.operator(operator_node("GlobalLpPool", p=p)).forward(backend.array(x))
    expected = (np.abs(x.astype(np.float64)) ** p).sum((2, 3), keepdims=True) ** (1 / p)
    np.testing.assert_allclose(backend.host(found), expected, rtol=1e-5)


@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow"])
def test_classes_are_drawn_as_often_as_their_probabilities_say(framework):
    backend = opened(framework)
    backend.seed(7)
    probabilities, count = np.array([[0.1, 0.2, 0.7], [0.5, 0.0, 0.5]]), 20_000
    node = operator_node("Multinomial", sample_size=count, dtype=onnx.TensorProto.INT64)
    with np.errstate(divide="ignore"):
        logits = np.log(probabilities).astype(np.float32)
    drawn = backend.host(backend.operator(node).forward(backend.array(logits))[0])
    assert drawn.shape == (2, count)
    assert drawn.dtype == np.int64
    often = np.stack([np.bincount(row, minlength=3) for row in drawn]) / count
    # Five standard deviations.
    assert np.all(np.abs(often - probabilities) <= 5 * np.sqrt(probabilities * (1 - probabilities) / count))
