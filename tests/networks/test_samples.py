"""Random inputs that a network can run on, and the parameters of models that do not declare them."""

import zlib

import numpy as np
import pytest
from numpy.random import PCG64, Generator
from onnx import parser

from levelbench.errors import UsageError
from levelbench.networks import Network


def network_of(text):
    return Network(parser.parse_model('<ir_version: 10, opset_import: ["" : 21]>\n' + text))


MIXED = """
g (float[batch, length] x, int64[batch, length] ids, bool[2] mask, float16[n, 3] half) => (float[batch, length] y) {
    y = Relu(x)
}
"""


def test_inputs_have_the_declared_dtypes_and_shapes():
    made = network_of(MIXED).replace(fills={"ids": 50}).make_inputs(4, sizes={"length": 20})
    assert {name: (each.dtype.name, each.shape) for name, each in made.items()} == {
        "x": ("float32", (4, 20)),
        "ids": ("int64", (4, 20)),
        "mask": ("bool", (2,)),
        "half": ("float16", (4, 3)),
    }
    assert made["ids"].min() >= 0
    assert 2 < made["ids"].max() < 50


def test_inputs_depend_on_the_seed_and_the_name():
    network = network_of(MIXED)
    sizes = {"length": 3}
    first, again, other = (network.make_inputs(2, seed, sizes) for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["x"], other["x"])


@pytest.mark.parametrize(
    ("text", "batch", "says"),
    [
        (MIXED, 1, "--size length=16"),
        (MIXED, 0, "no sample"),
        ("g (float x) => (float y) { y = Relu(x) }", 1, None),
        ("g (string[n] x) => (string[n] y) { y = Identity(x) }", 1, "str"),
    ],
)
def test_open_sizes_must_be_given(text, batch, says):
    if says is None:
        assert network_of(text).make_inputs(batch)["x"].shape == ()
        return
    with pytest.raises(UsageError, match=says):
        network_of(text).make_inputs(batch)


def test_float_initialisers_of_a_foreign_model_are_parameters_except_running_statistics():
    network = network_of("""
    g (float[n, 2, 3, 3] x) => (float[n, k] y)
    <float[2] s = {1, 1}, float[2] b = {0, 0}, float[2] m = {0, 0}, float[2] v = {1, 1}, int64[2] shape = {-1, 18},
     float half = {0.5}>
    {
        h = BatchNormalization(x, s, b, m, v)
        z = Mul(h, half)
        y = Reshape(z, shape)
    }
    """)
    assert {each.name: each.trainable for each in network.parameters} == {"s": True, "b": True, "m": False, "v": False}
    assert network.parameter_count() == 4
    assert [each.name for each in network.inputs] == ["x"]


def test_inputs_drawn_in_chunks_equal_those_drawn_at_once():
    network = network_of("""
    g (float[n, 3] a, float16[n, 3] b, int64[n, 3] c, uint8[n, 3] d, bool[n, 3] e, complex64[n, 3] f, int64[n, 3] h)
    => (float[n, 3] y) { y = Relu(a) }""").replace(fills={"c": 50257, "h": 2**40})
    made, shape = network.make_inputs(700_001, 5), (700_001, 3)

    def generator(name):
        return Generator(PCG64([5, zlib.crc32(name.encode())]))

    both = generator("f")
    expected = {
        "a": generator("a").standard_normal(shape).astype(np.float32),
        "b": generator("b").standard_normal(shape).astype(np.float16),
        "c": generator("c").integers(0, 50257, shape),
        "d": generator("d").integers(0, 2, shape).astype(np.uint8),
        "e": generator("e").random(shape) < 0.5,
        "f": (both.standard_normal(shape) + 1j * both.standard_normal(shape)).astype(np.complex64),
        "h": generator("h").integers(0, 2**40, shape),
    }
    for name, array in expected.items():
        assert (made[name].dtype, made[name].shape) == (array.dtype, array.shape)
        assert made[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize(
    ("sizes", "fills", "says"),
    [
        ({"length": -5}, {}, "its size is -5"),
        ({"length": 2**50}, {}, "its size is 1125899906842624"),
        ({"length": 2**39}, {}, "it takes 3,298,534,883,329 bytes"),
        ({"length": 3}, {"ids": 0}, "impossible bound 0"),
        ({"length": 3}, {"ids": -5}, "impossible bound -5"),
        ({"length": 3}, {"ids": 10**30}, "impossible bound 1000"),
    ],
)
def test_impossible_inputs_are_refused(sizes, fills, says):
    network = network_of("g (int32[length] x, int16[length] ids, bool[n] z) => (int32[length] y) { y = Identity(x) }")
    with pytest.raises(UsageError, match=says):
        network.replace(fills=fills).make_inputs(1, sizes=sizes)
