"""Generated networks agree on every framework; Hypothesis shrinks one on which they disagree."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from levelbench.networks.fuzz.generate import agreement_on, generate, write_case
from levelbench.networks.fuzz.sketch import Draws
from levelbench.operators.frameworks import load_framework

IN_CI = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


class Drawn(Draws):
    """Hypothesis as the generator's source of choices."""

    def __init__(self, data):
        self._data = data

    def integer(self, low, high):
        return self._data.draw(st.integers(low, high))


def opened(name):
    framework = load_framework(name)
    if lacking := framework.lacks():
        pytest.skip(lacking)
    return framework.open()


def agree(data, frameworks):
    case = generate(Drawn(data))
    backends = {name: opened(name) for name in frameworks}
    found = agreement_on(case, backends, opened("numpy"))
    if found.failed:
        folder = Path(tempfile.gettempdir()) / "levelbench-fuzz"
        pytest.fail(f"{write_case(case, found, folder, 'hypothesis')}: {found.failed}")


@settings(IN_CI, max_examples=80)
@given(st.data())
def test_torch_and_onnxruntime_agree_with_numpy(data):
    agree(data, ["torch", "onnxruntime"])


# Each network is compiled, which takes most of a second.
@pytest.mark.slow
@settings(IN_CI, max_examples=20)
@given(st.data())
def test_jax_torch_and_onnxruntime_agree_with_numpy(data):
    agree(data, ["jax", "torch", "onnxruntime"])
