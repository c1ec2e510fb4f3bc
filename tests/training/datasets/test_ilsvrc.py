from __future__ import annotations

import hashlib
import io
import tarfile

import numpy as np
import pytest

from levelbench.errors import DataError, MissingError, UsageError
from levelbench.operators.frameworks import open_framework
from levelbench.training.datasets.images import ImageColumn, Imagenet, View, index_folder
from levelbench.training.input import make_loader
from levelbench.training.samplers import Shuffled

Image = pytest.importorskip("PIL.Image")
CLASSES = ("n01440764", "n01443537", "n01484850")


def picture(seed):
    stored = io.BytesIO()
    rng = np.random.default_rng(seed)
    Image.fromarray(rng.integers(0, 256, (20 + seed % 5, 30, 3), dtype=np.uint8)).save(stored, "JPEG")
    return stored.getvalue()


TRAIN = {
    f"{name}/{name}_{at}": (label, picture(10 * label + at)) for label, name in enumerate(CLASSES) for at in range(4)
}
VAL = {
    f"{name}/ILSVRC2012_val_{at}": (label, picture(50 + 10 * label + at))
    for label, name in enumerate(CLASSES)
    for at in range(2)
}


def small(**settings):
    return Imagenet(**{"size": 8, "classes": 3, "held_out": 1, "threads": 1, **settings})


@pytest.fixture
def folders(tmp_path):
    for part, images in (("train", TRAIN), ("val", VAL)):
        for name, (_, content) in images.items():
            path = tmp_path / "folders" / part / f"{name}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return tmp_path / "folders"


@pytest.fixture
def shards(tmp_path):
    (tmp_path / "shards").mkdir()
    for part, images in (("train", TRAIN), ("val", VAL)):
        with tarfile.open(tmp_path / "shards" / f"{part}-000.tar", "w") as tar:
            for name, (label, content) in images.items():
                for suffix, held in (("jpg", content), ("cls", str(label).encode())):
                    info = tarfile.TarInfo(f"{name}.{suffix}")
                    info.size = len(held)
                    tar.addfile(info, io.BytesIO(held))
    return tmp_path / "shards"


def test_class_folders_are_read_and_one_image_of_each_class_is_held_out(folders):
    data = small().load(folders)
    assert data.sizes() == {"train": 9, "validation": 3, "test": 6}
    assert data.validation.labels.tolist() == [0, 1, 2]
    assert data.train.inputs.shape == (9, 3, 8, 8)
    assert data.test.labels.tolist() == [0, 0, 1, 1, 2, 2]


def test_the_images_held_out_come_first_by_the_digest_of_their_names(folders):
    data = small().load(folders)
    first = min((f"{CLASSES[1]}_{at}" for at in range(4)), key=lambda name: hashlib.sha256(name.encode()).digest())
    index = index_folder(folders / "train")
    every = ImageColumn(index, View(8, 9, upright=False))
    expected = every.take(np.array([index.names.index(f"{CLASSES[1]}/{first}.JPEG")]), None)
    np.testing.assert_array_equal(data.validation.inputs.take(np.array([1]), None), expected)


def test_shards_give_the_same_rows_in_the_same_splits(folders, shards):
    apart, together = small().load(shards), small().load(folders)
    for split in ("train", "validation", "test"):
        one, other = getattr(apart, split), getattr(together, split)
        np.testing.assert_array_equal(one.labels, other.labels)
        rows = np.arange(len(one))
        np.testing.assert_array_equal(one.inputs.take(rows, None), other.inputs.take(rows, None))
        seeds = rows.astype(np.uint64)
        np.testing.assert_array_equal(one.inputs.take(rows, seeds), other.inputs.take(rows, seeds))


def test_dawnbench_s_split_holds_nothing_out(folders):
    data = small(validation="test").load(folders)
    assert data.sizes() == {"train": 12, "validation": 6, "test": 6}
    assert data.validation is data.test
    with pytest.raises(UsageError):
        small(validation="none")


def test_nothing_is_downloaded_and_the_error_says_what_to_do(tmp_path):
    assert "data list imagenet" in small().lacks(tmp_path)
    for folder, found in ((tmp_path, "its files are not there"), (None, "it may not be redistributed")):
        with pytest.raises(MissingError, match=found) as caught:
            small().fetch(folder)
        assert "train/ and val/" in str(caught.value)


def test_another_number_of_classes_is_refused(folders, shards):
    with pytest.raises(DataError, match="its class 3 has no image; there are 4 classes"):
        small(classes=4).load(folders)
    with pytest.raises(DataError, match="it has a class 2, and there are 2, starting at 0"):
        small(classes=2).load(shards)


def test_validation_images_that_are_not_in_class_folders_are_refused(folders):
    (folders / "val" / CLASSES[2]).rename(folders / "val" / "n99999999")
    with pytest.raises(DataError, match="its classes differ from those of the training images"):
        small().load(folders)


def test_a_damaged_image_is_named_when_its_row_is_taken(folders):
    path = folders / "train" / CLASSES[0] / f"{CLASSES[0]}_2.JPEG"
    path.write_bytes(path.read_bytes()[:50])
    data = small(validation="test").load(folders)
    with pytest.raises(DataError, match=f"{CLASSES[0]}_2.JPEG: it is damaged"):
        data.train.inputs.take(np.arange(12), None)


def test_batches_are_the_same_with_any_number_of_workers_and_from_the_middle_of_an_epoch(folders):
    data = small().load(folders)

    def batches(workers, first=0):
        loader = make_loader(open_framework("numpy"), data, data.train, Shuffled(2), seed=3, workers=workers)
        try:
            return [tuple(map(np.array, batch)) for batch in loader.batches(1, first)]
        finally:
            loader.close()

    whole = batches(0)
    assert whole[0][0].dtype == np.float32
    for other, start in ((batches(2), 0), (batches(1, 2), 2)):
        assert len(other) == len(whole) - start
        for one, two in zip(whole[start:], other, strict=True):
            np.testing.assert_array_equal(one[0], two[0])
            np.testing.assert_array_equal(one[1], two[1])


def test_training_sees_random_parts_and_evaluation_always_the_same(folders):
    column = small().load(folders).train.inputs
    rows = np.array([0, 0])
    pieces = column.take(rows, np.array([1, 2], np.uint64))
    assert not np.array_equal(pieces[0], pieces[1])
    middle = column.take(rows, None)
    np.testing.assert_array_equal(middle[0], middle[1])


def test_a_class_far_too_high_takes_no_memory(shards):
    with tarfile.open(shards / "train-001.tar", "w") as tar:
        for name, content in (("a.jpg", picture(0)), ("a.cls", b"999999999")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    with pytest.raises(DataError, match="it has a class 999999999, and there are 3"):
        small().load(shards)
