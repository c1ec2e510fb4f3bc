"""What ONNX Runtime's executor cannot do is refused, and what it alone cannot do is done all the same."""

import numpy as np
import pytest
from onnx import parser
from tests.frameworks.onnxruntime.networks import MODES, build, close, data, wanted

from levelbench.errors import UnknownNameError, UnsupportedError, UsageError
from levelbench.frameworks.onnxruntime import framework
from levelbench.networks import Network

pytest.importorskip("onnxruntime")


def test_training_is_refused(backend):
    network = build().with_loss()
    executor = backend.executor(network)
    given = [backend.array(each) for each in network.make_inputs(2).values()]
    for call in (lambda: executor.forward(*given), executor.backward, lambda: executor.infer_and_backprop(*given)):
        with pytest.raises(UnsupportedError, match="supports inference only"):
            call()
    assert framework.trains is False


def test_an_operator_that_it_has_not_is_refused_and_nothing_is_printed(backend, capfd):
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21, "elsewhere" : 1]>
        g (float[N] x) => (float[N] y) { y = elsewhere.Frobnicate(x) }""")
    with pytest.raises(UnsupportedError, match="Frobnicate"):
        backend.executor(Network(model))
    assert capfd.readouterr() == ("", "")


LEFT_OUT = {
    "Split": "{ y, z = Split<num_outputs = 2>(x) }",
    "TopK": "{ y, z = TopK(x, one) }",
    "DynamicQuantizeLinear": "{ q, z, z = DynamicQuantizeLinear(x)  y = Cast<to = 1>(q) }",
    "first of Split": "{ z, y = Split<num_outputs = 2>(x) }",
    "optional outputs of Unique": "{ y, z, z, z = Unique(x) }",
    "in a branch": """{ c = Equal(one, one)  d = Squeeze(c)
        y = If (d) <then_branch = yes () => (float[M] a) { a, z = Split<num_outputs = 2>(x) },
                    else_branch = no () => (float[M] b) { b, z = Split<num_outputs = 2>(x) }> }""",
    "in a function": """{ y = local.half(x) }
        <domain: "local", opset_import: ["" : 21]> half (v) => (a) { a, z = Split<num_outputs = 2>(v) }""",
    "a name that is taken": "{ u, z = Split<num_outputs = 2>(x)  y = Neg(u) }",
}


def without_name(model, old="z"):
    """The outputs called ``old`` left out, in subgraphs and functions too."""
    waiting = [*model.graph.node, *(node for each in model.functions for node in each.node)]
    while waiting:
        node = waiting.pop()
        names = ["" if name == old else "levelbench.unread.0" if name == "u" else name for name in node.output]
        node.output[:] = names
        node.input[:] = ["levelbench.unread.0" if name == "u" else name for name in node.input]
        waiting += [inner for each in node.attribute for inner in each.g.node]
    return model


@MODES
@pytest.mark.parametrize("what", LEFT_OUT)
def test_an_output_that_nothing_reads_may_have_no_name(backend, mode, what):
    text = f"""<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[4] x) => (float[M] y) <int64[1] one = {{1}}> {LEFT_OUT[what]}"""
    network = Network(without_name(parser.parse_model(text)))
    before = network.model.SerializeToString(deterministic=True)
    (found,) = backend.executor(network, mode=mode).infer(backend.array(data(network)))
    close(backend.host(found), wanted(network))
    assert network.model.SerializeToString(deterministic=True) == before


def test_a_parameter_of_another_shape_or_type_is_refused(backend):
    parameters = backend.executor(build()).parameters
    with pytest.raises(UsageError, match=r"its shape is \[300, 3\], not \[3\]"):
        parameters["w1"] = np.zeros(3, np.float32)
    with pytest.raises(UsageError, match="its element type is 1, not 11"):
        parameters["w1"] = np.zeros((300, 3))
    with pytest.raises(UnknownNameError, match="close: w1"):
        parameters["w2"] = np.zeros(3, np.float32)
    with pytest.raises(UsageError, match="the network needs it"):
        del parameters["w1"]


def test_an_unknown_mode_lists_those_there_are(backend):
    with pytest.raises(UnknownNameError, match="optimised, unoptimised"):
        backend.executor(build(), mode="eager")


@MODES
@pytest.mark.parametrize("count", [0, 2])
def test_a_call_with_too_few_or_too_many_inputs_is_told_which_there_are(backend, mode, count):
    network = build()
    with pytest.raises(UsageError, match=rf"there are 1 \(x\), and {count} were given"):
        backend.executor(network, mode=mode).infer(*[backend.array(data(network))] * count)
