"""Files that ask for terabytes or never end are refused before a verb computes with them; honest loops are not."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from levelbench.checks.isolation import Ended
from levelbench.errors import DefinitionError
from levelbench.networks import trial
from levelbench.networks.files import load
from levelbench.networks.inspect import MOST_NODES

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
pytestmark = pytest.mark.sampled(3)

X = helper.make_tensor_value_info("x", FLOAT, ["batch", 3])


def saved(path, nodes, output, constants):
    """A file of these nodes, which read ``x`` and constants by name."""
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "bomb", [X], [helper.make_tensor_value_info(output, FLOAT, None)], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def body(nodes, output, condition="c"):
    """The body of a loop that carries ``s``; ``condition`` is what it goes on for."""
    declare = helper.make_tensor_value_info
    inputs = [declare("i", INT64, []), declare("c", BOOL, []), declare("s", FLOAT, None)]
    outputs = [declare("going", BOOL, []), declare(output, FLOAT, None)]
    return helper.make_graph([*nodes, helper.make_node("Identity", [condition], ["going"])], "body", inputs, outputs)


def looping(path, trips, nodes=None, condition="c"):
    nodes = nodes or [helper.make_node("Add", ["s", "s"], ["t"])]
    loop = helper.make_node("Loop", ["n", "yes", "x"], ["y"], body=body(nodes, "t", condition))
    return saved(path, [loop], "y", {"n": np.int64(trips), "yes": True})


def refuse(path, **options):
    trial.refuse_bombs(load(path), path, 1, {}, **options)


def test_a_chain_of_very_many_nodes_is_refused(tmp_path):
    chain = [helper.make_node("Neg", [f"v{at}" if at else "x"], [f"v{at + 1}"]) for at in range(MOST_NODES + 1)]
    path = saved(tmp_path / "chain.onnx", chain, f"v{len(chain)}", {})
    with pytest.raises(DefinitionError, match="nodes"):
        load(path)


def test_a_loop_that_nothing_ends_is_refused_without_a_trial(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "run_isolated", lambda *_, **__: pytest.fail("it was tried"))
    with pytest.raises(DefinitionError, match="4,611,686,018,427,387,904 iterations"):
        refuse(looping(tmp_path / "loop.onnx", 2**62))


@pytest.mark.slow
def test_nested_loops_that_take_too_long_are_refused(tmp_path):
    inner = helper.make_graph(
        [helper.make_node("Add", ["u", "u"], ["w"]), helper.make_node("Identity", ["d"], ["on"])],
        "inner",
        [
            helper.make_tensor_value_info("j", INT64, []),
            helper.make_tensor_value_info("d", BOOL, []),
            helper.make_tensor_value_info("u", FLOAT, None),
        ],
        [helper.make_tensor_value_info("on", BOOL, []), helper.make_tensor_value_info("w", FLOAT, None)],
    )
    path = looping(tmp_path / "nested.onnx", 2**23, [helper.make_node("Loop", ["n", "yes", "s"], ["t"], body=inner)])
    with pytest.raises(DefinitionError, match="--timeout"):
        refuse(path, limit_s=1.0)


def test_a_loop_that_ends_is_accepted(tmp_path):
    refuse(looping(tmp_path / "honest.onnx", 5))


def test_a_long_loop_that_a_condition_ends_is_accepted(tmp_path):
    nodes = [
        helper.make_node("Add", ["s", "s"], ["t"]),
        helper.make_node("Constant", [], ["three"], value=numpy_helper.from_array(np.int64(3))),
        helper.make_node("Less", ["i", "three"], ["early"]),
    ]
    refuse(looping(tmp_path / "while.onnx", 2**62, nodes, "early"))


def test_a_value_larger_than_the_memory_is_refused(tmp_path):
    tile = helper.make_node("Tile", ["x", "times"], ["y"])
    path = saved(tmp_path / "tile.onnx", [tile], "y", {"times": [2**18, 2**18]})
    with pytest.raises(DefinitionError, match="takes 824,633,720,832 bytes"):
        refuse(path)


def test_a_size_that_depends_on_values_is_tried(tmp_path):
    nodes = [
        helper.make_node("Mul", ["x", "zero"], ["nothing"]),
        helper.make_node("ReduceSum", ["nothing"], ["sum"], keepdims=0),
        helper.make_node("Add", ["sum", "many"], ["count"]),
        helper.make_node("Cast", ["count"], ["whole"], to=INT64),
        helper.make_node("Reshape", ["whole", "one"], ["flat"]),
        helper.make_node("Concat", ["flat", "flat"], ["times"], axis=0),
        helper.make_node("Tile", ["x", "times"], ["y"]),
    ]
    constants = {"zero": np.float32(0), "many": np.float32(600_000), "one": [1]}
    path = saved(tmp_path / "dynamic.onnx", nodes, "y", constants)
    with pytest.raises(DefinitionError, match=r"more than the .* bytes that are free"):
        refuse(path)


@pytest.mark.slow
def test_a_sequence_of_many_tensors_is_tried(tmp_path):
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Expand", ["sum", "many"], ["long"]),
        helper.make_node("SplitToSequence", ["long", "one"], ["parts"]),
        helper.make_node("SequenceLength", ["parts"], ["length"]),
        helper.make_node("Cast", ["length"], ["y"], to=TensorProto.FLOAT),
    ]
    path = saved(tmp_path / "parts.onnx", nodes, "y", {"many": [30_000_000], "one": np.int64(1)})
    with pytest.raises(DefinitionError, match=r"it takes more than"):
        refuse(path)


@pytest.mark.slow
def test_strings_that_double_are_tried(tmp_path):
    doubling = [helper.make_node("StringConcat", [f"s{at}", f"s{at}"], [f"s{at + 1}"]) for at in range(45)]
    equal = [helper.make_node("Equal", ["s45", "s45"], ["same"]), helper.make_node("Cast", ["same"], ["t"], to=FLOAT)]
    path = tmp_path / "strings.onnx"
    saved(path, [*doubling, *equal, helper.make_node("Add", ["x", "t"], ["y"])], "y", {"s0": np.array(["ab"], object)})
    model = onnx.load(path)
    model.opset_import[0].version = 20
    onnx.save(model, path)
    with pytest.raises(DefinitionError, match="it takes more than"):
        refuse(path)


def test_a_list_of_very_many_places_is_tried(tmp_path, monkeypatch):
    tried = []
    monkeypatch.setattr(trial, "run_isolated", lambda *arguments, **_: tried.append(arguments) or Ended("", "", 0))
    nodes = [helper.make_node("Expand", ["x", "many"], ["long"]), helper.make_node("NonZero", ["long"], ["places"])]
    nodes.append(helper.make_node("Cast", ["places"], ["y"], to=FLOAT))
    refuse(saved(tmp_path / "short.onnx", nodes, "y", {"many": [10, 3]}))
    assert not tried
    refuse(saved(tmp_path / "long.onnx", nodes, "y", {"many": [50_000_000, 3]}))
    assert tried
