"""``levelbench check`` on models and networks of the zoo: right ones, wrong ones, and words that cannot be meant."""

import json

import numpy as np
import onnx
import pytest
from onnx import helper

from levelbench.networks import Draw, GraphBuilder
from levelbench.networks.files import save
from levelbench.operators.frameworks import load_framework


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small network, its parameters stored in the file."""
    g = GraphBuilder("small")
    x = g.input("x", ("batch", "length", 4))
    w, b = g.parameter("weight", (4, 3), Draw("normal", 0.5)), g.parameter("bias", (3,), Draw("normal", 0.5))
    g.output(g.node("Softmax", g.node("Add", g.node("MatMul", x, w), b), name="softmax"), "y")
    network = g.build()
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    save(network, path, network.initialise(0))
    return path


def skip_without(*names):
    for name in names:
        if lacking := load_framework(name).lacks():
            pytest.skip(lacking)


def test_a_model_on_which_frameworks_agree_ends_in_0(call, model):
    skip_without("torch", "onnxruntime")
    code, out, _ = call("check", model, "--framework", "torch,onnxruntime", "--size", "length=5")
    assert code == 0
    assert "small on torch against numpy: 1 of 1 outputs agree, 2 of 2 gradients agree" in out
    assert "small on onnxruntime against numpy: 1 of 1 outputs agree, gradients not compared" in out


def test_outputs_and_gradients_are_listed_by_tensor(call, model):
    _, out, _ = call("check", model, "--framework", "numpy", "--size", "length=5")
    rows = [line.split() for line in out.splitlines()]
    assert ["y", "output", "agrees"] in [row[:3] for row in rows]
    assert ["weight", "gradient", "agrees"] in [row[:3] for row in rows]


def test_findings_are_json_with_all_errors(call, model):
    code, out, _ = call("check", model, "--framework", "numpy", "--size", "length=5", "--json")
    found = json.loads(out)
    assert (code, found["passed"], found["inputs"]) == (0, True, {"x": "float32[2, 5, 4]"})
    (numpy,) = found["reports"]
    assert {each["name"] for each in numpy["tensors"]} == {"y", "weight", "bias"}
    assert set(numpy["tensors"][0]["errors"]) == {"l1", "l2", "linf", "relative", "ulp", "cosine", "where"}


def test_gradients_can_be_left_out(call, model):
    _, out, _ = call("check", model, "--framework", "numpy", "--size", "length=5", "--no-gradients")
    assert "gradient" not in out


def test_a_network_of_the_zoo_is_checked_by_its_name(call):
    code, out, _ = call("check", "bert-tiny", "--framework", "numpy", "--batch", "1", "--no-gradients")
    assert code == 0
    assert "bert-tiny on numpy against numpy: 2 of 2 outputs agree" in out


def test_inputs_come_from_a_file(call, model, tmp_path):
    np.savez(tmp_path / "given.npz", x=np.ones((3, 2, 4), np.float32))
    code, out, _ = call("check", model, "--framework", "numpy", "--inputs", tmp_path / "given.npz", "--json")
    assert (code, json.loads(out)["inputs"]) == (0, {"x": "float32[3, 2, 4]"})


def test_a_wrong_framework_is_a_finding_that_names_the_operator_and_exit_code_1(call, model, monkeypatch):
    from levelbench.frameworks.numpy.backend import NumpyBackend
    from levelbench.operators import frameworks

    class Off(NumpyBackend):
        def operator(self, node):
            found = super().operator(node)
            if node.op_type == "Softmax":
                forward = found.forward
                found.forward = lambda *inputs: tuple(each + np.float32(0.01) for each in forward(*inputs))
            return found

    opened = [NumpyBackend(), Off()]
    monkeypatch.setattr(frameworks, "open_framework", lambda name, device: opened[name == "torch"])
    skip_without("torch")
    code, out, _ = call("check", model, "--framework", "torch", "--size", "length=5", "--no-gradients")
    assert code == 1
    assert "node 2, Softmax 'y', is the first to diverge: it is wrong on the reference's own inputs" in out


def test_an_operator_that_no_framework_has_is_unsupported_with_exit_code_3(call, tmp_path):
    node = helper.make_node("Nonesuch", ["x"], ["y"], domain="example")
    value = [helper.make_tensor_value_info(name, 1, [2]) for name in "xy"]
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("example", 1)]
    graph = helper.make_graph([node], "odd", value[:1], value[1:])
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), tmp_path / "odd.onnx")
    code, _, err = call("check", tmp_path / "odd.onnx", "--framework", "numpy")
    assert code == 3
    assert "Nonesuch" in err


REFUSED = {
    "a name that is neither a file nor of the zoo": (["bert-tyny"], "no network has that name; close: bert-tiny"),
    "a file that is not there": (["absent.onnx"], "absent.onnx"),
    "a size that is no number": (["MODEL", "--size", "length=long"], "write --size length=16"),
    "an option of operators": (["MODEL", "--dtype", "float32"], "MODEL is a network"),
    "a mode that a framework has not": (["MODEL", "--size", "length=5", "--mode", "numpy=fast"], "mode of numpy"),
    "a mode of a framework that is not asked for": (["MODEL", "--mode", "torch=eager"], "framework of --mode"),
    "a shape of no input": (["MODEL", "--shape", "z=2x2"], "input of --shape"),
    "inputs that are not there": (["MODEL", "--inputs", "absent.npz"], "there is no such file"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_meant_is_refused(call, model, why):
    words, said = REFUSED[why]
    words = [str(model) if word == "MODEL" else word for word in words]
    code, _, err = call("check", *words, "--framework", "numpy")
    assert code in (2, 3)
    assert said.replace("MODEL", str(model)) in err


def test_an_option_of_networks_is_refused_for_operators(call, tmp_path):
    (tmp_path / "operator.py").write_text("")
    code, _, err = call("check", tmp_path / "operator.py", "--batch", "4")
    assert code == 2
    assert "--batch" in err


def test_inputs_that_hold_objects_are_not_unpickled(call, model, tmp_path):
    np.savez(tmp_path / "bad.npz", x=np.array([{}], object), allow_pickle=True)
    code, _, err = call("check", model, "--framework", "numpy", "--inputs", tmp_path / "bad.npz")
    assert code == 3
    assert "NumPy cannot read it" in err


def test_a_size_that_no_input_has_is_refused_with_those_that_there_are(call, model):
    code, _, err = call("check", model, "--framework", "numpy", "--size", "width=5")
    assert code == 2
    assert "length" in err


def test_an_open_size_gets_a_usual_number_which_is_said(call, model):
    code, out, err = call("check", model, "--framework", "numpy")
    assert code == 0
    assert "1 of 1 outputs agree" in out
    assert "--size length=16" in err


def test_what_numpy_lacks_is_compared_with_onnxruntime(call, tmp_path):
    skip_without("onnxruntime")
    node = helper.make_node("Inverse", ["x"], ["y"], domain="com.microsoft")
    declared = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (2, 3, 3)) for name in "xy"]
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "inverse", declared[:1], declared[1:])
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), tmp_path / "inverse.onnx")
    code, out, err = call("check", tmp_path / "inverse.onnx", "--framework", "onnxruntime")
    assert code == 0
    assert "against onnxruntime: 1 of 1 outputs agree" in out
    assert "because numpy cannot run it" in err


def test_a_division_by_zero_of_drawn_whole_numbers_accuses_nobody(call, tmp_path):
    skip_without("torch")
    g = GraphBuilder("quotient")
    x, y = g.input("x", ("batch", 4), "int64", high=9), g.input("y", ("batch", 4), "int64", high=1)
    g.output(g.node("Div", x, y), "z")
    save(g.build(), tmp_path / "quotient.onnx")
    code, _, err = call("check", tmp_path / "quotient.onnx", "--framework", "torch")
    assert code == 2
    assert "divides a whole number by zero" in err
    assert "--inputs" in err
