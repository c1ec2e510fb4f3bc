"""A disagreement is found, shrunk to the faulty operator, and written as files for ``levelbench check``."""

import numpy as np
import pytest
from click.testing import CliRunner

from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.networks.files import load
from levelbench.networks.fuzz.__main__ import command
from levelbench.networks.fuzz.generate import fuzz
from levelbench.operators.contract import Operator


class WrongSoftmax(NumpyBackend):
    """NumPy with a Softmax that is off by a thousandth."""

    def operator(self, node):
        inner = super().operator(node)
        return Off(inner) if node.op_type == "Softmax" else inner


class Off(Operator):
    def __init__(self, inner):
        self.node, self._inner = inner.node, inner

    def forward(self, *inputs):
        return tuple(each * np.asarray(1.001, each.dtype) for each in self._inner.forward(*inputs))

    def vjp(self, *inputs):
        return self.forward(*inputs), self._inner.vjp(*inputs)[1]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    return fuzz(40, 0, {"wrong": WrongSoftmax()}, NumpyBackend(), folder=folder)


def test_a_wrong_operator_is_found_in_generated_networks(found):
    assert found.failed
    assert found.agree + len(found.failed) == 40


def test_each_failing_network_is_shrunk_to_the_faulty_operator(found):
    for path in found.files:
        network = load(path)
        assert "Softmax" in [node.op_type for node in network.nodes]
        assert len(network.nodes) <= 3


def test_the_agreement_names_the_operator(found):
    assert {each.backends[0].divergences[0].operator for _, each in found.failed} == {"Softmax"}


def test_the_written_files_are_a_model_its_inputs_and_a_text_with_the_check_command(found):
    path = found.files[0]
    network = load(path)
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as inputs:
        assert set(inputs.files) == {each.name for each in network.inputs}
    text = path.with_suffix(".txt").read_text()
    assert "is the first to diverge" in text
    assert f"levelbench check {path.name} --inputs {path.stem}.npz" in text


def test_equal_frameworks_agree_on_all_networks():
    assert fuzz(10, 3, {"same": NumpyBackend()}, NumpyBackend()).agree == 10


def test_the_command_counts_and_exits_with_0_if_all_agree(tmp_path):
    done = CliRunner().invoke(command, ["--count", "5", "--framework", "numpy", "--save", str(tmp_path / "none")])
    assert done.exit_code == 0
    assert "5 of 5 networks agree on numpy and numpy" in done.output
    assert not (tmp_path / "none").exists()


def test_an_unknown_framework_is_refused_with_a_three_part_error():
    done = CliRunner().invoke(command, ["--count", "1", "--framework", "nonesuch"])
    assert done.exit_code == 2
    assert "nonesuch" in done.output
