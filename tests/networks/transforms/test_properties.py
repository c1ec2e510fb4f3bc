"""Small random networks keep their outputs and gradients under every transform."""

import contextlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from levelbench.errors import UsageError
from levelbench.networks import Draw, GraphBuilder, transforms
from levelbench.networks.transforms import check_equivalence, check_transform
from levelbench.networks.transforms.microbatch import Microbatch
from levelbench.operators.frameworks import open_framework

BACKEND = open_framework("numpy")
W, ZERO, ONE = Draw("normal", 0.4), Draw("constant", 0.0), Draw("constant", 1.0)
QUICK = settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

IMAGE = ["conv", "norm", "relu", "pool", "shortcut", "sigmoid", "shape", "concat"]
FLAT = ["gemm", "matmul", "relu", "layer-norm", "gelu", "softmax", "dead", "shortcut"]
chains = st.tuples(
    st.lists(st.sampled_from(IMAGE), max_size=5),
    st.lists(st.sampled_from(FLAT), max_size=4),
    st.integers(1, 3),
)


def build(chain):
    image, flat, channels = chain
    g = GraphBuilder("random")
    x = g.input("x", ("batch", channels, 6, 6))
    for at, name in enumerate(image):
        with g.scope(f"{at}"):
            x, channels = add_image_layer(g, name, x, channels)
    x = g.node("Flatten", g.node("GlobalAveragePool", x))
    for at, name in enumerate(flat):
        with g.scope(f"flat{at}"):
            x = add_flat_layer(g, name, x, channels)
    g.output(x, "y")
    return g.build()


def add_image_layer(g, name, x, channels):
    if name == "conv":
        return g.node("Conv", x, g.parameter("w", (3, channels, 3, 3), W), pads=[1] * 4), 3
    if name == "norm":
        statistics = [g.parameter("scale", (channels,), ONE), g.parameter("shift", (channels,), ZERO)]
        statistics += [g.parameter(each, (channels,), ONE, trainable=False) for each in ("mean", "variance")]
        return g.node("BatchNormalization", x, *statistics), channels
    if name == "pool":
        return g.node("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4), channels
    if name == "shortcut":
        return g.node("Add", x, g.node("Relu", x)), channels
    if name == "shape":
        return g.node("Reshape", g.node("Flatten", x), g.node("Shape", x)), channels
    if name == "concat":
        return g.node("Concat", x, g.node("Neg", x), axis=1), 2 * channels
    return g.node({"relu": "Relu", "sigmoid": "Sigmoid"}[name], x), channels


def add_flat_layer(g, name, x, width):
    if name in ("gemm", "matmul"):
        w, b = g.parameter("w", (width, width), W), g.parameter("b", (width,), ZERO)
        return g.node("Gemm", x, w, b) if name == "gemm" else g.node("Add", g.node("MatMul", x, w), b)
    if name == "layer-norm":
        d = g.node("Sub", x, g.node("ReduceMean", x, g.constant([-1])))
        variance = g.node("ReduceMean", g.node("Mul", d, d), g.constant([-1]))
        root = g.node("Sqrt", g.node("Add", variance, g.constant(1e-2)))
        return g.node("Mul", g.node("Div", d, root), g.parameter("scale", (width,), ONE))
    if name == "gelu":
        erf = g.node("Erf", g.node("Div", x, g.constant(np.float32(np.sqrt(2)))))
        return g.node("Mul", g.node("Mul", x, g.node("Add", erf, g.constant(1.0))), g.constant(0.5))
    if name == "dead":
        g.node("MatMul", x, g.parameter("unused", (width, 2), W))
        return x if x.startswith("flat") else g.node("Tanh", x)
    if name == "shortcut":
        return g.node("Add", x, g.node("Tanh", x))
    return g.node({"relu": "Relu", "softmax": "Softmax"}[name], x)


@pytest.mark.slow
@QUICK
@given(chains)
def test_folding_fusing_and_dead_nodes_keep_the_results(chain):
    network = build(chain)
    for name in ("fold-constants", "fold-batchnorm", "dead-nodes", "fuse"):
        check_transform(transforms.make(name), network, BACKEND, batches=[1, 3])


@QUICK
@given(chains, st.integers(1, 7), st.floats(0, 1))
def test_micro_batches_keep_the_results_and_the_limit(chain, batch, share):
    network = build(chain)
    whole = Microbatch(memory="1GiB", batch=batch).plan(network).memory
    try:
        done, _ = check_transform(
            transforms.make("microbatch", memory=int(share * whole), batch=batch), network, BACKEND
        )
    except UsageError as error:
        least = int(error.found.split(" is ")[1].split(" ")[0])
        assert share * whole < least
        done, _ = check_transform(transforms.make("microbatch", memory=least, batch=batch), network, BACKEND)
        assert done.details.memory <= least
    else:
        assert done.details.memory <= share * whole


@QUICK
@given(chains, st.integers(2, 6))
def test_micro_batches_of_a_network_in_training_mode_keep_its_statistics(chain, batch):
    network = build(chain).with_loss("mse").training()
    limit = int(0.8 * Microbatch(memory="1GiB", batch=batch).plan(network).memory)
    with contextlib.suppress(UsageError):
        check_transform(transforms.make("microbatch", memory=limit, batch=batch), network, BACKEND)


@QUICK
@given(chains)
def test_narrow_floats_stay_close(chain):
    network = build(chain)
    check_transform(transforms.make("precision", dtype="float16"), network, BACKEND, batches=[3])


@QUICK
@given(chains, st.integers(1, 4))
def test_a_batch_that_was_fixed_and_opened_is_open_again(chain, batch):
    network = transforms.apply_all(transforms.parse("fold-constants,dead-nodes"), build(chain))[-1].network
    fixed = transforms.make("batch", size=batch).apply(network).network
    opened = transforms.make("batch").apply(fixed).network
    check_equivalence(network, opened, BACKEND, batches=[1, 2, 5])
