"""The data for a user's own model: arrays, images, folders or synthetic inputs, all checked."""

import numpy as np
import pytest

from levelbench.errors import DataError, UsageError
from levelbench.experiments.inference.subject import check_examples, digest_of_data, file_examples, synthetic_examples
from levelbench.networks import zoo
from levelbench.records.inference import Data
from levelbench.training.datasets.idx import write_idx

NETWORK = zoo.mlp(4, 3, 2)
ROWS = np.random.default_rng(0).normal(size=(90, 4)).astype(np.float32)
LABELS = np.arange(90) % 2


@pytest.fixture
def examples(tmp_path):
    path = tmp_path / "examples.npz"
    np.savez(path, input=ROWS, labels=LABELS)
    return path


def npz(path, **arrays):
    np.savez(path, **arrays)
    return Data("file", path.name, str(path))


def test_a_single_array_is_accepted_under_any_name(tmp_path):
    found = file_examples(NETWORK, npz(tmp_path / "a.npz", x=ROWS))
    np.testing.assert_array_equal(found.sources[0], ROWS)
    assert found.labels is None


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"a": ROWS, "b": ROWS}, "no array 'input'"),
        ({"input": ROWS[:, :3]}, r"shape \(3,\)"),
        ({"input": ROWS.astype(complex)}, "complex128"),
        ({"input": ROWS, "labels": LABELS[:5]}, "5, 90 rows"),
        ({"input": ROWS, "labels": LABELS.astype(float)}, "one whole number"),
        ({"input": ROWS[:0]}, "no example"),
        ({"input": ROWS, "label": LABELS}, "its array 'label' is not an input"),
    ],
)
def test_arrays_that_do_not_fit_the_network_are_refused(tmp_path, arrays, says):
    with pytest.raises((UsageError, DataError), match=says):
        file_examples(NETWORK, npz(tmp_path / "a.npz", **arrays))


HOLED = np.where(np.arange(4) == 2, np.nan, ROWS).astype(np.float32)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"input": HOLED}, "90 of 360 values are not finite"),
        ({"input": np.full_like(ROWS, np.inf)}, "360 of 360"),
        ({"input": ROWS, "labels": LABELS + 1}, "from 1 to 2, and the network has 2 classes"),
        ({"input": ROWS, "labels": LABELS - 1}, "from -1 to 0"),
    ],
)
def test_values_that_are_not_finite_and_impossible_labels_are_refused(tmp_path, arrays, says):
    with pytest.raises(UsageError, match=says):
        check_examples(NETWORK, file_examples(NETWORK, npz(tmp_path / "a.npz", **arrays)))
    check_examples(NETWORK, file_examples(NETWORK, npz(tmp_path / "b.npz", input=ROWS, labels=LABELS)))


def test_objects_in_a_file_are_never_read(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        file_examples(NETWORK, npz(tmp_path / "a.npz", input=np.array([{}, {}], object)))


def test_a_truncated_file_is_refused(tmp_path, examples):
    examples.write_bytes(examples.read_bytes()[:200])
    with pytest.raises(DataError, match="cannot be read"):
        file_examples(NETWORK, Data("file", "x", str(examples)))


def test_data_that_changed_since_the_plan_are_refused(examples):
    data = Data("file", "x", str(examples), digest_of_data(examples))
    np.savez(examples, input=ROWS + 1)
    with pytest.raises(DataError, match="they changed"):
        file_examples(NETWORK, data)


def test_bytes_of_an_idx_file_are_divided_by_255_in_the_networks_shape(tmp_path):
    pixels = np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28)
    write_idx(tmp_path / "images", pixels)
    write_idx(tmp_path / "labels", np.array([3, 4], np.uint8))
    data = Data("file", "images", str(tmp_path / "images"), labels=str(tmp_path / "labels"))
    found = file_examples(zoo.cnn((1, 28, 28), 2, 4, 10), data)
    rows = found.sources[0].take(np.array([1]), None)
    assert rows.shape == (1, 1, 28, 28)
    np.testing.assert_allclose(rows[0, 0], pixels[1] / 255, rtol=1e-6)
    assert found.labels.tolist() == [3, 4]
    assert "255" in found.prepared


def test_a_folder_of_images_is_decoded_to_the_networks_shape(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for label, colour in enumerate(((255, 0, 0), (0, 255, 0))):
        (tmp_path / "images" / f"class{label}").mkdir(parents=True)
        image.new("RGB", (40, 36), colour).save(tmp_path / "images" / f"class{label}" / "one.png")
    network = zoo.cnn((3, 32, 32), 2, 4, 10)
    found = file_examples(network, Data("file", "images", str(tmp_path / "images")))
    rows = found.sources[0].take(np.array([0, 1]), None)
    assert rows.shape == (2, 3, 32, 32)
    assert rows[:, :, 5, 5].tolist() == [[1, 0, 0], [0, 1, 0]]
    assert found.labels.tolist() == [0, 1]


def test_synthetic_inputs_are_the_same_each_time():
    one, other = (synthetic_examples(NETWORK, {}, 1) for _ in range(2))
    np.testing.assert_array_equal(one.sources[0], other.sources[0])
    assert one.synthetic
