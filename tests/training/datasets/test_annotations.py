"""COCO's and Pascal VOC's annotations: the same boxes as their own tools read, and damaged files."""

import json

import numpy as np
import pytest

from levelbench.errors import DataError, MissingError
from levelbench.training.datasets.annotations import VOC_CLASSES, read_coco, read_voc

CONTENT = {
    "info": {"year": 2017},
    "images": [
        {"id": 9, "file_name": "000000000009.jpg", "width": 640, "height": 480},
        {"id": 3, "file_name": "000000000003.jpg", "width": 100, "height": 200},
    ],
    "annotations": [
        {"id": 1, "image_id": 9, "category_id": 90, "bbox": [10.5, 20.0, 30.0, 40.25], "area": 900.0, "iscrowd": 0},
        {"id": 2, "image_id": 9, "category_id": 1, "bbox": [0, 0, 640, 480], "area": 3.0, "iscrowd": 1},
        {"id": 3, "image_id": 9, "category_id": 1, "bbox": [5, 5, 0, 7], "area": 0, "iscrowd": 0},
    ],
    "categories": [{"id": 90, "name": "toothbrush"}, {"id": 1, "name": "person"}],
}
VOC = """<annotation><folder>VOC2007</folder><filename>{name}.jpg</filename>
<size><width>500</width><height>375</height><depth>3</depth></size>{objects}</annotation>"""
DOG = """<object><name>dog</name><pose>Left</pose><truncated>1</truncated><difficult>{difficult}</difficult>
<bndbox><xmin>{xmin}</xmin><ymin>240</ymin><xmax>195</xmax><ymax>371</ymax></bndbox></object>"""


@pytest.fixture
def coco(tmp_path):
    path = tmp_path / "instances_val2017.json"

    def write(content=CONTENT):
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


@pytest.fixture
def voc(tmp_path):
    def write(objects):
        for path, text in (
            ("ImageSets/Main/val.txt", "000007\n"),
            ("Annotations/000007.xml", VOC.format(name="000007", objects=objects)),
        ):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return tmp_path

    return write


def test_coco_boxes_become_corners_and_classes_count_from_1_by_id(coco):
    read = read_coco(coco())
    first, second = read.images
    assert read.names == ("person", "toothbrush")
    assert (first.file, first.objects[0]) == ("000000000009.jpg", ((10.5, 20.0, 40.5, 60.25), 2, False))
    assert (second.width, second.height, second.objects) == (100, 200, ())


def test_padded_leaves_out_crowds_and_boxes_without_an_area_and_scales_the_rest(coco):
    boxes, classes = read_coco(coco()).padded(side=64)
    assert classes.tolist() == [[2], [0]]
    np.testing.assert_allclose(boxes[0, 0], [1.05, 20 * 64 / 480, 4.05, 60.25 * 64 / 480], rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("{", "not JSON"),
        ("[]", "no list 'categories'"),
        ({"annotations": [{"id": 1}]}, "has no 'image_id'"),
        ({"annotations": [CONTENT["annotations"][0] | {"image_id": 4}]}, "not both there"),
        ({"annotations": [CONTENT["annotations"][0] | {"bbox": [1, 2, -3, 4]}]}, "not four numbers"),
        ({"images": [CONTENT["images"][0] | {"width": 0}]}, "size of 0 by 480"),
    ],
)
def test_damaged_coco_files_are_refused(coco, change, found):
    with pytest.raises(DataError, match=found):
        read_coco(coco(change if isinstance(change, str) else CONTENT | change))


def test_voc_pixels_count_from_1_and_include_the_last(voc):
    (image,) = read_voc(voc(DOG.format(difficult=0, xmin=48)), "val").images
    assert (image.file, image.width, image.height) == ("000007.jpg", 500, 375)
    assert image.objects == (((47, 239, 195, 371), VOC_CLASSES.index("dog") + 1, False),)


@pytest.mark.parametrize(
    ("objects", "found"),
    [
        (DOG.format(difficult=0, xmin=0), "pixels 0 to 195"),
        (DOG.format(difficult=0, xmin="x"), "not a number"),
        (DOG.format(difficult=0, xmin=48).replace("dog", "unicorn"), "no class of VOC"),
        ("<object>", "not XML"),
        ("<!-- -->", "declaration"),
    ],
)
def test_damaged_voc_files_are_refused(voc, objects, found):
    with pytest.raises(DataError, match=found):
        read_voc(voc(objects), "val")


def test_a_voc_folder_without_the_split_is_missing(voc):
    with pytest.raises(MissingError, match="no such file"):
        read_voc(voc(""), "train")
