"""Each operator that ONNX Runtime runs has its times, and what it fused says of what."""

import numpy as np
import pytest
from onnx import parser
from tests.frameworks.onnxruntime.networks import build, data

from levelbench.networks import Network

pytest.importorskip("onnxruntime")


def test_without_optimisation_each_node_has_its_own_time(backend):
    network = build()
    times = backend.executor(network, mode="unoptimised").operator_times(backend.array(data(network)), repeats=3)
    found = {each.index: each for each in times}
    assert len(found) == len(times)
    timed = {"Conv", "BatchNormalization", "Relu", "GlobalAveragePool", "Reshape", "Gemm", "Dropout"}
    for index, node in enumerate(network.nodes):
        if node.op_type in timed:
            assert (found[index].title, found[index].output) == (node.op_type, node.outputs[0])
    assert all(len(each.times_s) == 3 and 0 <= min(each.times_s) < 1 for each in times)


def test_what_was_fused_says_of_what(backend):
    network = build()
    times = backend.executor(network).operator_times(backend.array(data(network)))
    titles = {each.title: each.index for each in times}
    assert any(each.endswith("= Conv + BatchNormalization + Relu") for each in titles)
    assert titles["FusedGemm = Gemm + Relu"] == -1
    gemm = next(each for each in times if each.title == "Gemm")
    assert network.nodes[gemm.index].outputs == ("logits",)
    assert all((each.index == -1) == (network.nodes[each.index].op_type != each.title) for each in times)


def test_the_times_of_a_branch_are_those_of_the_node_that_has_it(backend):
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]> g (float[N] x, bool c) => (float[N] y)
        { z = Neg(x) y = If (c) <then_branch = t () => (float[N] a) { a = Exp(z) },
        else_branch = e () => (float[N] b) { b = Abs(z) }> }""")
    executor = backend.executor(Network(model), mode="unoptimised")
    given = backend.array(np.ones(5, np.float32)), backend.array(np.array(True))
    assert [(each.index, each.title) for each in executor.operator_times(*given)] == [(0, "Neg"), (1, "If")]


def test_timing_leaves_no_file_and_prints_nothing(backend, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    network = build()
    backend.executor(network).operator_times(backend.array(data(network)))
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr() == ("", "")
