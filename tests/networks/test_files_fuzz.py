"""Any file is either loaded or refused with an error."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto
from tests.networks.models import RICH, SUFFIXES, chain, graph_of, referring, small, write

from levelbench.errors import LevelbenchError
from levelbench.networks import Network
from levelbench.networks.files import load


def load_or_refuse(path):
    try:
        network = load(path)
    except LevelbenchError:
        return
    assert isinstance(network, Network)


SEEDS = [
    small().to_proto().SerializeToString(),
    small().stored({"counter": np.ones(3, np.float32)}).to_proto().SerializeToString(),
    graph_of(RICH).SerializeToString(),
    chain().SerializeToString(),
    referring(location="data", offset=4, length=16).SerializeToString(),
]
EDITS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 12), st.binary(max_size=12)), min_size=1, max_size=6)
SETTINGS = settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.mark.slow
@SETTINGS
@given(seed=st.sampled_from(SEEDS), edits=EDITS)
def test_a_model_with_bytes_changed_is_loaded_or_refused(folder, seed, edits):
    content = bytearray(seed)
    for at, removed, inserted in edits:
        place = at % (len(content) + 1)
        content[place : place + removed] = inserted
    load_or_refuse(write(folder / "model.onnx", bytes(content)))


@SETTINGS
@given(content=st.binary(max_size=300), suffix=st.sampled_from([*SUFFIXES, ".onnxtxt"]))
def test_bytes_that_are_no_model_are_refused(tmp_path, content, suffix):
    load_or_refuse(write(tmp_path / f"model{suffix}", content))


@pytest.mark.slow
@SETTINGS
@given(
    dims=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 9), max_size=6),
    element=st.integers(-1, 40),
    raw=st.binary(max_size=40) | st.none(),
    floats=st.lists(st.floats(width=32), max_size=4),
    integers=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=6),
)
def test_a_tensor_that_claims_anything_is_loaded_or_refused(tmp_path, dims, element, raw, floats, integers):
    model = chain()
    tensor = TensorProto(name="w", data_type=element, dims=dims, float_data=floats, int32_data=integers)
    if raw is not None:
        tensor.raw_data = raw
    model.graph.initializer[0].CopyFrom(tensor)
    load_or_refuse(write(tmp_path / "model.onnx", model))
