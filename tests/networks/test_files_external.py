"""External tensors are read only from inside the model's folder, and written if one file is too small."""

import numpy as np
import pytest
from onnx import helper
from tests.networks.models import graph_of, referring, small, write

from levelbench.errors import DefinitionError
from levelbench.networks import files
from levelbench.networks.files import load, save


def test_a_model_too_large_for_protobuf_is_saved_with_external_data_automatically(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MOST_IN_ONE_FILE", 4000)
    save(small(), tmp_path / "model.onnx", small().initialise())
    (data,) = tmp_path.glob("*.data")
    assert data.name.startswith("model.onnx.")
    assert np.array_equal(load(tmp_path / "model.onnx").initialise()["table"], small().initialise()["table"])


def test_only_data_of_the_previous_model_are_removed(tmp_path):
    for other in ("model.onnx.data", "other.onnx.0123456789abcdef.data"):
        (tmp_path / other).write_bytes(b"precious")
    save(small(), tmp_path / "model.onnx", small().initialise(1), external=True)
    save(small(), tmp_path / "model.onnx", small().initialise(2), external=True)
    assert len(list(tmp_path.glob("*.data"))) == 3
    assert np.array_equal(load(tmp_path / "model.onnx").initialise()["table"], small().initialise(2)["table"])
    save(small(), tmp_path / "model.onnx")
    assert len(list(tmp_path.glob("*.data"))) == 2


@pytest.mark.parametrize(
    ("entries", "first"),
    [
        ({"location": "data"}, 0),
        ({"location": "data", "offset": 16}, 4),
        ({"location": "data", "offset": 4, "length": 16}, 1),
        ({"location": "sub/data", "checksum": "unused"}, 0),
        ({"location": "./sub/data"}, 0),
        ({"location": "near"}, 0),
    ],
)
def test_external_data_are_read_from_inside_the_folder(folder, entries, first):
    network = load(write(folder / "model.onnx", referring(**entries)))
    assert np.array_equal(network.initialise()["w"], np.arange(first, first + 4, dtype=np.float32))
    assert not network.model.graph.initializer[0].external_data


OUTSIDE = "outside of the model's folder"


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ({"location": "../secret"}, OUTSIDE),
        ({"location": "sub/../../secret"}, OUTSIDE),
        ({"location": "sub/../data"}, OUTSIDE),
        ({"location": "/etc/passwd"}, OUTSIDE),
        ({"location": "C:\\data"}, OUTSIDE),
        ({"location": "..\\secret"}, OUTSIDE),
        ({"location": "\\\\server\\share\\data"}, OUTSIDE),
        ({"location": "link"}, OUTSIDE),
        ({"location": "away/secret"}, OUTSIDE),
        ({"location": "loop"}, "cannot be read|does not exist"),
        ({"location": ""}, "without a location"),
        ({}, "without a location"),
        ({"location": "nothing"}, "cannot be read"),
        ({"location": "sub"}, "is not a regular file|cannot be read"),
        ({"location": "pipe"}, "is not a regular file"),
        ({"location": "data", "offset": 17}, "end at byte 33 of data, which has 32"),
        ({"location": "data", "offset": 2**60}, "of data, which has 32"),
        ({"location": "data", "offset": -4}, "as numbers of bytes"),
        ({"location": "data", "offset": "0x10"}, "as numbers of bytes"),
        ({"location": "data", "offset": "9" * 5000}, "as numbers of bytes"),
        ({"location": "data", "length": 2**50}, "takes 16 bytes, but its external data say"),
        ({"location": "data", "length": 8}, "takes 16 bytes, but its external data say 8"),
        ({"location": "data", "length": "١٦"}, "as numbers of bytes"),
        ({"location": "data", "whence": 2}, "unknown key 'whence'"),
    ],
)  # fmt: skip
def test_external_data_outside_the_folder_or_too_short_are_refused(folder, entries, says):
    with pytest.raises(DefinitionError, match=says):
        load(write(folder / "model.onnx", referring(**entries)))


def test_a_shape_is_checked_before_its_data_are_read(folder):
    model = referring(location="data")
    model.graph.initializer[0].dims[:] = [2**38]
    with pytest.raises(DefinitionError, match="its tensors take 1,099,511,627,776 bytes, but this machine has"):
        load(write(folder / "model.onnx", model))


def test_a_file_that_is_read_several_times_counts_each_time(folder, monkeypatch):
    model = referring(location="data")
    for at in range(9):
        model.graph.initializer.add().CopyFrom(model.graph.initializer[0])
        model.graph.initializer[-1].name = f"w{at}"
    monkeypatch.setattr(files, "memory_bytes", lambda: 159)
    with pytest.raises(DefinitionError, match="its tensors take 160 bytes"):
        load(write(folder / "model.onnx", model))


def test_external_data_of_attributes_are_read_too(folder):
    model = graph_of("g (float[N] x) => (float[N] y) { a = Identity(x) y = Relu(a) }")
    tensor = referring(location="data").graph.initializer[0]
    model.graph.node[0].CopyFrom(helper.make_node("Constant", [], ["a"], value=tensor))
    node = load(write(folder / "model.onnx", model)).nodes[0]
    assert np.array_equal(node["value"], np.arange(4, dtype=np.float32))
