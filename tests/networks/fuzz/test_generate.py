"""Generated networks are valid, of the right size, well conditioned, and equal for equal seeds."""

from collections import Counter

import numpy as np
import onnx
import pytest

from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.networks.fuzz.generate import generate_seeded
from levelbench.networks.probes.running import Runner, part_of

SEEDS = range(150)


@pytest.fixture(scope="module")
def cases():
    return [generate_seeded(seed) for seed in SEEDS]


@pytest.fixture(scope="module")
def values(cases):
    """All values of all cases, by name."""
    runner = Runner("numpy", NumpyBackend())
    found = []
    for case in cases:
        names = [name for node in case.network.nodes for name in node.outputs]
        found.append(runner.outputs(part_of(case.network, names), case.parameters, case.inputs))
    return found


def test_a_network_is_valid_onnx(cases):
    for case in cases:
        onnx.checker.check_model(case.network.model, full_check=True)


def test_a_network_has_2_to_about_12_operators(cases):
    # Guards are added together with the operator that they guard.
    assert all(2 <= len(case.network.nodes) <= 16 for case in cases)
    assert len({len(case.network.nodes) for case in cases}) >= 10


def test_one_seed_gives_one_network():
    one, two = generate_seeded(7), generate_seeded(7)
    assert one.network.model.SerializeToString() == two.network.model.SerializeToString()
    assert all(np.array_equal(one.inputs[name], two.inputs[name]) for name in one.inputs)


def test_values_stay_finite_and_of_moderate_size(values):
    for each in values:
        for value in each.values():
            assert np.isfinite(value.astype(np.float64)).all()
            assert np.abs(value.astype(np.float64)).max(initial=0) <= 2500


def test_divisors_are_not_near_zero(cases, values):
    for case, found in zip(cases, values, strict=True):
        for node in case.network.nodes:
            if node.op_type in ("Div", "Reciprocal", "Log", "Sqrt"):
                name = node.inputs[-1]
                known = {**found, **case.inputs, **case.parameters}
                assert known[name].min() >= 0.3


def test_some_output_depends_on_a_parameter(cases):
    from levelbench.networks.probes.running import needed_nodes

    for case in cases:
        _, read = needed_nodes(case.network.model.graph, [each.name for each in case.network.outputs])
        assert any(each.name in read for each in case.network.parameters)


def test_many_kinds_of_operators_are_tried(cases):
    kinds = Counter(node.op_type for case in cases for node in case.network.nodes)
    assert len(kinds) >= 60
    for name in ("Conv", "MatMul", "Softmax", "Where", "Gather", "Split", "LayerNormalization", "ReduceMean", "Pad"):
        assert kinds[name]


def test_some_networks_have_several_outputs_some_read_a_value_twice_and_some_have_dead_ends(cases):
    several = twice = dead = 0
    for case in cases:
        outputs = {each.name for each in case.network.outputs}
        read = Counter(name for node in case.network.nodes for name in node.inputs)
        several += len(outputs) > 1
        twice += any(count > 1 for name, count in read.items() if name not in case.parameters)
        dead += any(not set(node.outputs) & (outputs | set(read)) for node in case.network.nodes)
    assert several >= 20
    assert twice >= 20
    assert dead >= 5
