"""Boxes in photographs, read strictly from the files of COCO and of Pascal VOC.

COCO (Lin et al. 2014, https://cocodataset.org/#format-data) has a JSON file a split, with boxes as left, top, width and
height. Pascal VOC (Everingham et al. 2010) has an XML file an image, with the first and the last pixel of each box,
counted from 1. Here a box is left, top, right, bottom in pixels from the upper left corner of the image.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, final
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DataError
from levelbench.training.datasets.reading import read_bytes, read_text
from levelbench.training.datasets.scenes import padded_boxes

VOC_CLASSES: Final = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog"),
    *("horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
_MOST_XML_BYTES = 1 << 20

Box = tuple[float, float, float, float]


Object = tuple[Box, int, bool]
"""A box, its class from 1, and whether it does not count: a crowd in COCO, a difficult object in VOC."""


@final
@dataclass(frozen=True)
class BoxedImage:
    """An image's file, its size in pixels, and its objects."""

    file: str
    width: int
    height: int
    objects: tuple[Object, ...]


@final
@dataclass(frozen=True)
class BoxedImages:
    """The images of a split, also those without an object, and the name of each class, of which the first is 1."""

    images: tuple[BoxedImage, ...]
    names: tuple[str, ...]

    def padded(self, side: float) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Boxes (n, most, 4) as if all images were resized to ``side`` by ``side``, and classes (n, most).

        ``most`` is that of the image with the most objects, at least 1. What does not count is left out, and so are
        boxes without an area. Rows are filled up with zeros.
        """
        boxes: list[Box] = []
        classes, counts = [], []
        for image in self.images:
            x, y, before = side / image.width, side / image.height, len(boxes)
            for (left, top, right, bottom), kind, apart in image.objects:
                if not apart and left < right and top < bottom:
                    boxes.append((left * x, top * y, right * x, bottom * y))
                    classes.append(kind)
            counts.append(len(boxes) - before)
        rows = np.array(boxes, np.float32).reshape(-1, 4)
        return padded_boxes(rows, np.array(classes, np.int64), np.array(counts), max([1, *counts]))


def read_coco(path: Path) -> BoxedImages:
    """The images of an ``instances_*.json``, in the file's order; classes are in the order of their ids.

    :raises MissingError: when there is no such file.
    :raises DataError: when it is not JSON, or a part is missing, of the wrong type, or names what is not there.
    """

    def fail(found: str) -> NoReturn:
        raise DataError(f"reading {path} as COCO's annotations", found, "Fetch the file again")

    def items(key: str, *needed: str) -> list[Mapping[str, Any]]:
        rows = content.get(key) if isinstance(content, dict) else None
        if not isinstance(rows, list):
            fail(f"it has no list {key!r}")
        for row in rows:
            if lacking := [each for each in needed if not isinstance(row, dict) or each not in row]:
                fail(f"an item of {key!r} has no {lacking[0]!r}")
        return rows

    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        fail(f"it is not JSON ({error})")
    categories = {
        row["id"]: row["name"] for row in sorted(items("categories", "id", "name"), key=lambda row: row["id"])
    }
    numbers = {each: at for at, each in enumerate(categories, 1)}
    found: dict[int, list[Object]] = {}
    images = items("images", "id", "file_name", "width", "height")
    for row in images:
        if row["id"] in found:
            fail(f"two images have the id {row['id']!r}")
        if not all(isinstance(row[each], int) and row[each] > 0 for each in ("width", "height")):
            fail(f"image {row['id']!r} has a size of {row['width']!r} by {row['height']!r}")
        found[row["id"]] = []
    for row in items("annotations", "id", "image_id", "category_id", "bbox"):
        where = f"annotation {row['id']!r}"
        if row["image_id"] not in found or row["category_id"] not in numbers:
            fail(
                f"{where} is of image {row['image_id']!r} and category {row['category_id']!r}, which are not both there"
            )
        box = row["bbox"]
        if not (isinstance(box, list) and len(box) == 4 and all(_is_length(each) for each in box)):
            fail(f"{where} has the box {box!r}, not four numbers from 0")
        left, top, width, height = box
        corners = (left, top, left + width, top + height)
        found[row["image_id"]].append((corners, numbers[row["category_id"]], bool(row.get("iscrowd", 0))))
    made = (BoxedImage(row["file_name"], row["width"], row["height"], tuple(found[row["id"]])) for row in images)
    return BoxedImages(tuple(made), tuple(categories.values()))


def read_voc(folder: Path, split: str) -> BoxedImages:
    """The images that ``ImageSets/Main/SPLIT.txt`` in a folder such as ``VOC2007`` lists, from ``Annotations``.

    :raises MissingError: when one of the files is not there.
    :raises DataError: when one is damaged, or has an object of no class of VOC, or a box that leaves its image.
    """
    listed = read_text(folder / "ImageSets" / "Main" / f"{split}.txt").split()
    return BoxedImages(tuple(_voc_image(folder / "Annotations" / f"{name}.xml") for name in listed), VOC_CLASSES)


def _voc_image(path: Path) -> BoxedImage:
    def fail(found: str) -> NoReturn:
        raise DataError(f"reading {path} as Pascal VOC's annotation", found, "Fetch the file again")

    def text(item: ElementTree.Element, place: str) -> str:
        if (value := item.findtext(place)) is None or not value.strip():
            fail(f"a {item.tag} has no {place}")
        return value.strip()

    def number(item: ElementTree.Element, place: str) -> float:
        try:
            value = float(text(item, place))
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            fail(f"{place} of a {item.tag} is {text(item, place)!r}, not a number")
        return value

    content = read_bytes(path, _MOST_XML_BYTES)
    # No file of VOC declares entities, which could make a small file grow without limit.
    if b"<!" in content:
        fail("it has a declaration")
    try:
        root = ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        fail(f"it is not XML ({error})")
    width, height = (int(number(root, f"size/{each}")) for each in ("width", "height"))
    if min(width, height) < 1:
        fail(f"its size is {width} by {height}")
    found = []
    for item in root.iter("object"):
        name = text(item, "name")
        if name not in VOC_CLASSES:
            fail(f"an object is a {name!r}, which is no class of VOC")
        first_x, first_y, last_x, last_y = (number(item, f"bndbox/{each}") for each in ("xmin", "ymin", "xmax", "ymax"))
        if not (1 <= first_x <= last_x <= width and 1 <= first_y <= last_y <= height):
            fail(f"a {name} has pixels {first_x:g} to {last_x:g} by {first_y:g} to {last_y:g} of {width} by {height}")
        corners = (first_x - 1, first_y - 1, last_x, last_y)
        found.append((corners, VOC_CLASSES.index(name) + 1, item.findtext("difficult", "0").strip() == "1"))
    return BoxedImage(text(root, "filename"), width, height, tuple(found))


def _is_length(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
