"""Arrays of each framework, and all compressors and exchanges with their settings."""

from types import SimpleNamespace

import numpy as np
import pytest

from levelbench.distributed.compression.compressors import (
    CastCompressor,
    QSGDCompressor,
    RandomKCompressor,
    SignCompressor,
    ThresholdCompressor,
    TopKCompressor,
)
from levelbench.distributed.compression.exchange import Doubled, Gathered, GatheredAnyLength, InPieces, Reduced
from levelbench.operators.frameworks import load_framework

EXCHANGES = {
    "top-k": Gathered(TopKCompressor(0.1)),
    "top-k doubling": Doubled(TopKCompressor(0.1)),
    "random-k": Reduced(RandomKCompressor(0.25)),
    "threshold": GatheredAnyLength(ThresholdCompressor(1.5, True), 0.05),
    "absolute threshold": GatheredAnyLength(ThresholdCompressor(1.0, False), 0.05),
    "qsgd": Gathered(QSGDCompressor(127, 16)),
    "qsgd of 3 bits": Gathered(QSGDCompressor(3, 5, "max")),
    "qsgd in pieces": InPieces(QSGDCompressor(7, 16)),
    "sign": Gathered(SignCompressor(16)),
    "sign of two means": Gathered(SignCompressor(7, "means")),
    "sign in pieces": InPieces(SignCompressor(16)),
    "fp16": InPieces(CastCompressor("float16")),
    "bf16": InPieces(CastCompressor("bfloat16")),
    "fp16 summed": Reduced(CastCompressor("float16", summed=True)),
}


def opened(name):
    """Converts NumPy arrays to those of a framework, and back."""
    if name != "numpy":
        pytest.importorskip(name, reason=f"{name} is not installed")
    backend = load_framework(name).open()
    return SimpleNamespace(name=name, array=lambda host: backend.array(np.array(host)), host=backend.host)


@pytest.fixture(params=["numpy", "torch"])
def framework(request):
    return opened(request.param)


@pytest.fixture
def jax_arrays():
    """JAX compiles each function for each shape, so it has a few tests of its own."""
    return opened("jax")


@pytest.fixture(params=list(EXCHANGES))
def exchange(request):
    return EXCHANGES[request.param]


@pytest.fixture(scope="session")
def exchanges():
    return EXCHANGES
