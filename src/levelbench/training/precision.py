"""Mean average precision of detections, as COCO defines it, by pycocotools.

What a network finds is made of its boxes and scores alone: those that are likely enough, without the ones that overlap
a likelier one of the same class. That is the same for all recipes of a task.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DataError, MissingError
from levelbench.networks.executor import Executor
from levelbench.training.quality import Quality

if TYPE_CHECKING:
    from levelbench.training.input import Held

_ROWS = 250
_CANDIDATES = 400
"""As in SSD's own code: an untrained network finds everything everywhere, and suppression takes the square of that."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MeanAveragePrecision(Quality):
    """COCO's AP: the mean over classes and over ten thresholds of overlap, 0.5 to 0.95, of the average precision.

    The network's outputs are boxes (n, boxes, 4), left, top, right, bottom, and scores (n, boxes, classes) before
    softmax, of which class 0 is the background; targets are boxes (n, most, 4) and classes (n, most), where 0 fills up.
    Detections are of the likeliest 400 of an image and have a probability of ``least`` or more; of two of one class
    that overlap by more than ``overlap`` the likelier one stays, and of an image the likeliest ``most``. Classes
    without an object are left out, and an image without one counts by what is found there.
    """

    least: float = 0.05
    overlap: float = 0.5
    most: int = 100
    metric: ClassVar[str] = "map"
    direction: ClassVar[Literal["higher", "lower"]] = "higher"
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0

    @property
    def signature(self) -> str:
        """The version of pycocotools, and what is taken for a detection."""
        _coco()
        version = importlib.metadata.version("pycocotools")
        return f"pycocotools {version}, probability {self.least:g}, overlap {self.overlap:g}, {self.most} an image"

    def lacks(self) -> str | None:
        return None if find_spec("pycocotools") else 'pycocotools is not installed: pip install "levelbench[detection]"'

    def measure(self, executor: Executor, held: Held) -> float:
        """Over the whole split at once; 0 if nothing is found.

        :raises DataError: when the split does not have a box in any image.
        """
        found, truth = [], []
        for *inputs, boxes, classes in held.batches(_ROWS):
            given, scores, *_ = (np.asarray(held.backend.host(each)) for each in executor.infer(*inputs))
            for rows in zip(given.astype(np.float64), scores.astype(np.float64), strict=True):
                found.append(self.detections(*rows))
            for each, kinds in zip(
                np.asarray(held.backend.host(boxes)), np.asarray(held.backend.host(classes)), strict=True
            ):
                truth.append(np.column_stack([each, kinds])[kinds > 0].astype(np.float64))
        return average_precision(found, truth, self.most)

    def detections(self, boxes: Floats, scores: Floats) -> Floats:
        """(found, 6): box, class and probability of what is found in an image, the likeliest first.

        ``boxes`` are (n, 4), ``scores`` (n, classes). What is not finite is not found.
        """
        level = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances = level / level.sum(axis=1, keepdims=True)
        likely = (chances >= self.least) & np.isfinite(boxes).all(axis=1, keepdims=True)
        likely[:, 0] = False
        at, kinds = np.nonzero(likely)
        order = np.argsort(-chances[at, kinds], kind="stable")[:_CANDIDATES]
        found = np.column_stack([boxes[at], kinds, chances[at, kinds]])[order]
        return found[kept(found[:, :4], found[:, 4], self.overlap)][: self.most]


def kept(boxes: Floats, classes: Floats, overlap: float) -> NDArray[np.bool_]:
    """Non-maximum suppression: which of ``boxes`` (n, 4), the best first, overlap no kept one of their class by more.

    Overlap is intersection over union.
    """
    low, high = boxes[:, :2].T[:, :, None], boxes[:, 2:].T[:, :, None]
    shared = np.prod(
        [(np.minimum(b, b.T) - np.maximum(a, a.T)).clip(0) for a, b in zip(low, high, strict=True)], axis=0
    )
    areas = np.diagonal(shared)
    near = (shared > overlap * (areas[:, None] + areas - shared)) & (classes[:, None] == classes)
    stay, later = np.ones(len(boxes), bool), np.triu(near, 1)
    for at in range(len(boxes)):
        if stay[at]:
            stay &= ~later[at]
    return stay


def average_precision(found: list[Floats], truth: list[Floats], most: int = 100) -> float:
    """COCO's AP of all images: ``found`` are (k, 6), box, class and probability, ``truth`` (k, 5), box and class.

    :raises DataError: when no image has an object.
    :raises MissingError: without pycocotools.
    """
    coco, evaluation = _coco()
    if not sum(map(len, truth)):
        raise DataError("measuring average precision", "no image has an object", "give a split with some")
    objects: list[dict[str, Any]] = []
    results: list[list[float]] = []
    for image, (those, these) in enumerate(zip(truth, found, strict=True), start=1):
        for left, top, right, bottom, kind in those.tolist():
            box = [left, top, right - left, bottom - top]
            known = {"image_id": image, "category_id": int(kind), "bbox": box, "area": box[2] * box[3], "iscrowd": 0}
            # An id of 0 would count as not matched.
            objects.append({"id": len(objects) + 1, **known})
        for left, top, right, bottom, kind, chance in these.tolist():
            results.append([image, left, top, right - left, bottom - top, chance, kind])
    if not results:
        return 0.0
    kinds = sorted({each["category_id"] for each in objects})
    # It prints what it does.
    with contextlib.redirect_stdout(io.StringIO()):
        known = coco()
        images = [{"id": image} for image in range(1, len(truth) + 1)]
        known.dataset = {"images": images, "annotations": objects, "categories": [{"id": each} for each in kinds]}
        known.createIndex()
        run = evaluation(known, known.loadRes(np.array(results)), "bbox")
        # The AP itself needs neither the areas nor the smaller limits that the other figures of its summary are of.
        run.params.areaRng, run.params.areaRngLbl, run.params.maxDets = [[0, 1e10]], ["all"], [most]
        run.evaluate()
        run.accumulate()
    precision = run.eval["precision"]
    return float(precision[precision > -1].mean())


def _coco() -> tuple[Any, Any]:
    try:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    except ImportError as error:
        found, do = f"pycocotools is not installed ({error})", 'pip install "levelbench[detection]"'
        raise MissingError("mean average precision", found, do) from None
    return COCO, COCOeval
