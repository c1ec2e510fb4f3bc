"""Drawing from a seed: always the same bits, only finite numbers, and no more memory than the array takes."""

import subprocess
import sys
import zlib

import numpy as np
import pytest
from numpy.random import PCG64, Generator

from levelbench.errors import DefinitionError, UsageError
from levelbench.networks import Draw, Parameter, values

# Two complete chunks and a part of one.
SHAPE = (3, 700_001)


def at_once(parameter, seed):
    """The same draw as one array of float64."""
    draw = parameter.draw
    generator = Generator(PCG64([seed, zlib.crc32(parameter.name.encode())]))
    if draw.kind == "normal":
        found = generator.standard_normal(parameter.shape) * draw.scale
    else:
        found = generator.uniform(-draw.scale, draw.scale, parameter.shape)
    return np.asarray(found + draw.mean if draw.mean else found).astype(parameter.dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("mean", [0.0, 0.25])
@pytest.mark.parametrize("kind", ["normal", "uniform"])
@pytest.mark.parametrize("shape", [SHAPE, (5,), (), (0, 3)])
def test_a_draw_in_chunks_equals_one_at_once(kind, mean, dtype, shape):
    parameter = Parameter("layer.weight", shape, dtype, Draw(kind, 0.3, mean))
    found, expected = parameter.initialise(7), at_once(parameter, 7)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.slow
def test_a_draw_takes_little_more_memory_than_its_array():
    text = """
import resource
from levelbench.networks import Draw, Parameter
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = Parameter("w", (100_000_000,), "int8", Draw("normal", 1.0, 1.0)).initialise(0)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(done.stdout) * unit < 180e6


@pytest.mark.parametrize("kind", ["normal", "constant"])
def test_a_parameter_too_large_for_memory_is_refused_before_it_is_drawn(monkeypatch, kind):
    monkeypatch.setattr(values, "memory_left_bytes", lambda: 10**7)
    with pytest.raises(UsageError, match="it takes 12,000,000 bytes, but 10,000,000 are left"):
        Parameter("w", (3_000_000,), draw=Draw(kind, 1.0)).initialise(0)


def test_memory_that_the_system_does_not_grant_is_an_error(monkeypatch):
    monkeypatch.setattr(values, "memory_left_bytes", lambda: 2**62)
    monkeypatch.setattr(values, "_MOST_BYTES", 2**62)
    with pytest.raises(UsageError, match="the system does not grant the 2,305,843,009,213,693,952 bytes"):
        Parameter("w", (2**59,), draw=Draw("normal", 1.0)).initialise(0)


@pytest.mark.parametrize(
    ("kind", "scale", "mean", "says"),
    [
        ("uniform", -1.0, 0.0, "negative width"),
        ("normal", -1.0, 0.0, "negative width"),
        ("uniform", 1e308, 0.0, "not finite"),
        ("normal", float("nan"), 0.0, "not finite"),
        ("constant", float("inf"), 0.0, "not finite"),
        ("normal", 1.0, float("-inf"), "not finite"),
        ("cauchy", 1.0, 0.0, "no such kind"),
    ],
)
def test_an_invalid_draw_is_refused(kind, scale, mean, says):
    with pytest.raises(DefinitionError, match="(?i)" + says):
        Draw(kind, scale, mean)


def test_a_constant_may_be_negative():
    assert Parameter("w", (2,), draw=Draw("constant", -1.5)).initialise(0).tolist() == [-1.5, -1.5]


@pytest.mark.parametrize("dtype", ["bool", "O", "U9", "f4,f4", "complex64", "finfo", "nothing"])
def test_non_numeric_dtypes_are_not_drawn(dtype):
    with pytest.raises(DefinitionError, match="dtype"):
        Parameter("w", (2,), dtype, Draw("normal", 1.0)).initialise(0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4", "uint8"])
def test_narrow_numbers_are_drawn(dtype):
    found = Parameter("w", (4,), dtype, Draw("uniform", 0.5, 1.0)).initialise(0)
    assert found.dtype.name == dtype
    assert np.all(found.astype(np.float32) <= 1.5)
