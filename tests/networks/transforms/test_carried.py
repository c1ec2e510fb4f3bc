"""Each operator is split only if the rules allow it, and gives the same as the whole batch."""

import numpy as np
import pytest

from levelbench.networks import Draw, GraphBuilder
from levelbench.networks.transforms.folding import FoldConstants
from levelbench.networks.transforms.graph import batch_axes
from levelbench.networks.transforms.memory import Profile
from levelbench.networks.transforms.microbatch import Segment, split_network

BATCH = 5
PIECES = (2, 2, 1)
W, NEAR_ONE = Draw("normal", 0.5), Draw("uniform", 0.1, 1.0)


def i64(g, *values):
    return g.constant(np.array(values, np.int64))


# name: (input shapes, what to build from them). These can be split:
SPLIT = {
    "Relu": ([("batch", 3)], lambda g, x: g.node("Relu", x)),
    "Add of two": ([("batch", 3), ("batch", 3)], lambda g, x, y: g.node("Add", x, y)),
    "Add of a row": ([("batch", 2, 3)], lambda g, x: g.node("Add", x, g.parameter("b", (3,), W))),
    "Add of a constant with a row a sample": (
        [("batch", 3)],
        lambda g, x: g.node("Add", x, g.constant(np.arange(15, dtype=np.float32).reshape(5, 3))),
    ),
    "Where": ([("batch", 3)], lambda g, x: g.node("Where", g.node("Greater", x, g.constant(0.0)), x, g.constant(2.0))),
    "Conv": ([("batch", 3, 6, 6)], lambda g, x: g.node("Conv", x, g.parameter("w", (4, 3, 3, 3), W))),
    "MaxPool": ([("batch", 2, 6, 6)], lambda g, x: g.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])),
    "BatchNormalization": (
        [("batch", 2, 3)],
        lambda g, x: g.node("BatchNormalization", x, *(g.parameter(n, (2,), NEAR_ONE) for n in "abcd")),
    ),
    "Gemm": ([("batch", 3)], lambda g, x: g.node("Gemm", x, g.parameter("w", (3, 4), W), g.parameter("b", (4,), W))),
    "Gemm with a bias a sample": (
        [("batch", 3), ("batch", 4)],
        lambda g, x, y: g.node("Gemm", x, g.parameter("w", (3, 4), W), y),
    ),
    "MatMul with a weight": ([("batch", 2, 3)], lambda g, x: g.node("MatMul", x, g.parameter("w", (3, 4), W))),
    "MatMul of two": ([("batch", 2, 3), ("batch", 3, 2)], lambda g, x, y: g.node("MatMul", x, y)),
    "MatMul with the batch in columns": ([(3, "batch")], lambda g, x: g.node("MatMul", g.parameter("w", (2, 3), W), x)),
    "Softmax of rows": ([("batch", 3)], lambda g, x: g.node("Softmax", x, axis=-1)),
    "LayerNormalization": (
        [("batch", 2, 3)],
        lambda g, x: g.node("LayerNormalization", x, g.parameter("s", (3,), W), axis=-1),
    ),
    "Flatten": ([("batch", 2, 3)], lambda g, x: g.node("Flatten", x, axis=1)),
    "Flatten into rows": ([("batch", 2, 3)], lambda g, x: g.node("Flatten", x, axis=2)),
    "Reshape with 0": ([("batch", 2, 3)], lambda g, x: g.node("Reshape", x, i64(g, 0, 6))),
    "Reshape with -1": ([("batch", 2, 3)], lambda g, x: g.node("Reshape", x, i64(g, -1, 6))),
    "Reshape with the batch written in": ([("batch", 2, 3)], lambda g, x: g.node("Reshape", x, i64(g, 5, -1))),
    "Reshape to rows and back": (
        [("batch", 2, 3)],
        lambda g, x: g.node("Reshape", g.node("Relu", g.node("Reshape", x, i64(g, 10, 3))), i64(g, 5, 2, 3)),
    ),
    "Transpose to time first": (
        [("batch", 2, 3)],
        lambda g, x: g.node("Softmax", g.node("Transpose", x, perm=[1, 0, 2]), axis=0),
    ),
    "Squeeze": ([("batch", 1, 3)], lambda g, x: g.node("Squeeze", x, i64(g, 1))),
    "Unsqueeze before the batch": ([("batch", 3)], lambda g, x: g.node("Unsqueeze", x, i64(g, 0))),
    "Concat of features": ([("batch", 2), ("batch", 3)], lambda g, x, y: g.node("Concat", x, y, axis=1)),
    "Slice of features": ([("batch", 4)], lambda g, x: g.node("Slice", x, i64(g, 1), i64(g, 3), i64(g, 1))),
    "Gather of features": ([("batch", 4)], lambda g, x: g.node("Gather", x, i64(g, 2, 0), axis=1)),
    "ReduceMean of features": ([("batch", 2, 3)], lambda g, x: g.node("ReduceMean", x, i64(g, 1), keepdims=0)),
    "ReduceMean before the batch": ([(2, "batch", 3)], lambda g, x: g.node("ReduceMean", x, i64(g, 0), keepdims=0)),
    "Pad of features": ([("batch", 3)], lambda g, x: g.node("Pad", x, i64(g, 0, 1, 0, 2))),
    "Expand of features": ([("batch", 1)], lambda g, x: g.node("Expand", x, i64(g, 5, 3))),
    "CumSum of features": ([("batch", 3)], lambda g, x: g.node("CumSum", x, i64(g, 1))),
    "Einsum": ([("batch", 2, 3), ("batch", 2, 3)], lambda g, x, y: g.node("Einsum", x, y, equation="bij,bkj->bik")),
    "TopK": ([("batch", 4)], lambda g, x: g.node("TopK", x, i64(g, 2), outputs=2)[0]),
    "LSTM with the batch second": (
        [(4, "batch", 3)],
        lambda g, x: g.node(
            "LSTM", x, g.parameter("w", (1, 8, 3), W), g.parameter("r", (1, 8, 2), W), outputs=3, hidden_size=2
        )[0],
    ),
    "LSTM with a state a sample": (
        [(4, "batch", 3)],
        lambda g, x: g.node(
            "LSTM", x, g.parameter("w", (1, 8, 3), W), g.parameter("r", (1, 8, 2), W), None, None,
            g.constant(np.full((1, 5, 2), 0.5, np.float32)), hidden_size=2,
        ),
    ),
}  # fmt: skip

WHOLE = {
    "Softmax over the batch": ([("batch", 3)], lambda g, x: g.node("Softmax", x, axis=0)),
    "ReduceMean over the batch": ([("batch", 3)], lambda g, x: g.node("ReduceMean", x, i64(g, 0))),
    "ReduceSum over everything": ([("batch", 3)], lambda g, x: g.node("ReduceSum", x)),
    "BatchNormalization in training": (
        [("batch", 2, 3)],
        lambda g, x: g.node(
            "BatchNormalization", x, *(g.parameter(n, (2,), NEAR_ONE) for n in "abcd"),
            outputs=3, training_mode=1,
        )[0],
    ),
    "MatMul over the batch": ([("batch", 3)], lambda g, x: g.node("MatMul", g.parameter("w", (2, 5), W), x)),
    "MatMul with its own transpose": ([("batch", 3)], lambda g, x: g.node("MatMul", x, g.node("Transpose", x))),
    "Concat along the batch": ([("batch", 3), ("batch", 3)], lambda g, x, y: g.node("Concat", x, y, axis=0)),
    "Slice of the batch": ([("batch", 3)], lambda g, x: g.node("Slice", x, i64(g, 1), i64(g, 3), i64(g, 0))),
    "Gather of samples": ([("batch", 3)], lambda g, x: g.node("Gather", x, i64(g, 2, 0), axis=0)),
    "CumSum along the batch": ([("batch", 3)], lambda g, x: g.node("CumSum", x, i64(g, 0))),
    "Reshape across samples": ([("batch", 2, 3)], lambda g, x: g.node("Reshape", x, i64(g, 2, 15))),
    "Reshape of time first": ([(2, "batch", 3)], lambda g, x: g.node("Reshape", x, i64(g, 10, 3))),
    "DynamicQuantizeLinear": ([("batch", 3)], lambda g, x: g.node("DynamicQuantizeLinear", x, outputs=3)[0]),
    "MaxPool with places": (
        [("batch", 2, 6, 6)],
        lambda g, x: g.node("MaxPool", x, outputs=2, kernel_shape=[2, 2], strides=[2, 2])[1],
    ),
    "Pad of the batch": ([("batch", 3)], lambda g, x: g.node("Pad", x, i64(g, 1, 0, 0, 0))),
    "an operator without a rule": ([("batch", 3, 3)], lambda g, x: g.node("Det", x)),
    "Add across axes": ([("batch", 5)], lambda g, x: g.node("Add", x, g.node("Transpose", x))),
}  # fmt: skip


def profile_of(shapes, build):
    g = GraphBuilder("one")
    g.output(build(g, *(g.input(f"x{at}", shape) for at, shape in enumerate(shapes))), "y")
    network = g.build()
    bound = FoldConstants(batch=BATCH).apply(network).network
    return Profile(bound, batch_axes(network), BATCH, "none")


def run(backend, network, inputs):
    return backend.executor(network, None, trains=False).infer(*inputs.values())


@pytest.mark.parametrize("name", SPLIT)
def test_an_operator_that_keeps_samples_separate_gives_the_same_in_pieces(name, backend):
    profile = profile_of(*SPLIT[name])
    nodes = len(profile.nodes)
    assert profile.can_split(0, nodes), profile.tracked
    split, _ = split_network(profile, (Segment(0, nodes, (), PIECES, 0, 0.0),))
    inputs = profile.network.make_inputs(BATCH)
    assert len(split.nodes) > nodes
    (whole,), (pieces,) = run(backend, profile.network, inputs), run(backend, split, inputs)
    assert whole.shape == pieces.shape
    np.testing.assert_allclose(pieces, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", WHOLE)
def test_an_operator_that_mixes_its_batch_is_never_split(name):
    profile = profile_of(*WHOLE[name])
    assert not profile.can_split(0, len(profile.nodes))
    assert "mixed" in profile.tracked.nodes


def test_readers_of_a_batch_statistic_are_never_split():
    profile = profile_of([("batch", 3)], lambda g, x: g.node("Sub", x, g.node("ReduceMean", x, i64(g, 0))))
    assert set(profile.tracked.nodes) == {"mixed"}


def test_nodes_after_a_normalisation_in_training_mode_can_still_be_split():
    shapes, build = WHOLE["BatchNormalization in training"]
    profile = profile_of(shapes, lambda g, x: g.node("Relu", build(g, x)))
    assert [profile.can_split(at, at + 1) for at in range(2)] == [False, True]


def test_nodes_that_do_not_depend_on_the_batch_run_once():
    profile = profile_of([("batch", 3)], lambda g, x: g.node("MatMul", x, g.node("Exp", g.parameter("w", (3, 4), W))))
    split, _ = split_network(profile, (Segment(0, 2, (), PIECES, 0, 0.0),))
    assert [each.op_type for each in split.nodes].count("Exp") == 1
    assert [each.op_type for each in split.nodes].count("MatMul") == len(PIECES)
