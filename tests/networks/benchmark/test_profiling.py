"""Our clock and another witness account for the same operators of a convolutional network."""

from collections import Counter

import numpy as np
import pytest

from levelbench.errors import UnsupportedError
from levelbench.networks.zoo import cnn
from levelbench.operators.frameworks import open_framework

REPEATS = 5
KINDS = {"Conv", "Relu", "MaxPool", "Flatten", "Gemm"}


def shares(seconds):
    whole = sum(seconds.values())
    return {name: value / whole for name, value in seconds.items()}


def told(backend, profile, mode):
    """The shares by our clock and by the witness; how near they are is for ``benchmarks/shares.py`` to say."""
    network = cnn((3, 32, 32), 32, 64, 10)
    executor = backend.executor(network, mode=mode, trains=False)
    inputs = [backend.array(each) for each in network.make_inputs(16).values()]
    ours: Counter = Counter()
    for each in executor.operator_times(*inputs, repeats=REPEATS):
        ours[each.title] += float(np.median(each.times_s))
    _, seconds = profile(executor, inputs, REPEATS)
    return shares(ours), shares(seconds)


def test_pytorchs_profiler_accounts_for_the_same_operators_as_our_clock():
    pytest.importorskip("torch")
    from levelbench.frameworks.torch.profiling import profile

    ours, theirs = told(open_framework("torch"), profile, "eager")
    assert set(ours) == set(theirs) == KINDS
    assert min(theirs.values()) >= 0


def test_onnx_runtimes_profiler_accounts_for_the_same_operators_as_our_clock_around_single_ones():
    pytest.importorskip("onnxruntime")
    from levelbench.frameworks.onnxruntime.profile import profile

    backend = open_framework("onnxruntime")
    ours, theirs = told(backend, lambda *given: profile(backend, *given), "unoptimised")
    assert set(theirs) == KINDS
    # Its profiler counts whole microseconds, and a Flatten takes less.
    assert KINDS - {"Flatten"} <= set(ours)


def test_a_compiled_network_has_no_operators_to_profile():
    pytest.importorskip("torch")
    from levelbench.frameworks.torch.profiling import profile

    executor = open_framework("torch").executor(cnn((1, 8, 8), 2, 4, 2), mode="compiled", trains=False)
    with pytest.raises(UnsupportedError, match="not those of the network"):
        profile(executor, [], 1)


def test_an_optimised_session_has_other_operators_than_the_network():
    pytest.importorskip("onnxruntime")
    from levelbench.frameworks.onnxruntime.profile import profile

    backend = open_framework("onnxruntime")
    executor = backend.executor(cnn((1, 8, 8), 2, 4, 2), mode="optimised", trains=False)
    with pytest.raises(UnsupportedError, match="not those of the network"):
        profile(backend, executor, [], 1)
