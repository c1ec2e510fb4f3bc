"""Shares of operators by our clock and by another witness are within ten points on a convolutional network."""

from collections import Counter

import numpy as np
import pytest

from levelbench.errors import UnsupportedError
from levelbench.networks.zoo import cnn
from levelbench.operators.frameworks import open_framework

POINTS = 0.10
ATTEMPTS = 6
REPEATS = 15


def shares(seconds):
    whole = sum(seconds.values())
    return {name: value / whole for name, value in seconds.items()}


def furthest(backend, profile, mode):
    """The largest difference of a type's shares, in the best of a few attempts: others may use the machine."""
    network = cnn((3, 32, 32), 32, 64, 10)
    executor = backend.executor(network, mode=mode, trains=False)
    inputs = [backend.array(each) for each in network.make_inputs(16).values()]
    found = []
    for _ in range(ATTEMPTS):
        ours: Counter = Counter()
        for each in executor.operator_times(*inputs, repeats=REPEATS):
            ours[each.title] += float(np.median(each.times_s))
        _, seconds = profile(executor, inputs, REPEATS)
        mine, theirs = shares(ours), shares(seconds)
        assert set(theirs) == {"Conv", "Relu", "MaxPool", "Flatten", "Gemm"}
        found.append(max(abs(mine.get(name, 0.0) - theirs[name]) for name in theirs))
        if found[-1] < POINTS:
            break
    return min(found)


def test_pytorchs_profiler_tells_the_same_story_as_our_clock():
    pytest.importorskip("torch")
    from levelbench.frameworks.torch.profiling import profile

    assert furthest(open_framework("torch"), profile, "eager") < POINTS


def test_onnx_runtimes_profiler_tells_the_same_story_as_our_clock_around_single_operators():
    pytest.importorskip("onnxruntime")
    from levelbench.frameworks.onnxruntime.profiling import profile

    backend = open_framework("onnxruntime")
    assert furthest(backend, lambda *given: profile(backend, *given), "unoptimised") < POINTS


def test_a_compiled_network_has_no_operators_to_profile():
    pytest.importorskip("torch")
    from levelbench.frameworks.torch.profiling import profile

    executor = open_framework("torch").executor(cnn((1, 8, 8), 2, 4, 2), mode="compiled", trains=False)
    with pytest.raises(UnsupportedError, match="not those of the network"):
        profile(executor, [], 1)


def test_an_optimised_session_has_other_operators_than_the_network():
    pytest.importorskip("onnxruntime")
    from levelbench.frameworks.onnxruntime.profiling import profile

    backend = open_framework("onnxruntime")
    executor = backend.executor(cnn((1, 8, 8), 2, 4, 2), mode="optimised", trains=False)
    with pytest.raises(UnsupportedError, match="not those of the network"):
        profile(backend, executor, [], 1)
