"""Mean average precision: against a plain computation of its definition, and what counts as found."""

import sys

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from levelbench.errors import DataError, MissingError
from levelbench.training.precision import MeanAveragePrecision, average_precision, kept


@pytest.fixture
def coco():
    return pytest.importorskip("pycocotools")


def shares(boxes, others):
    low, high = np.maximum(boxes[:, None, :2], others[:, :2]), np.minimum(boxes[:, None, 2:], others[:, 2:])
    shared = (high - low).clip(0).prod(axis=2)
    areas = [(each[:, 2:] - each[:, :2]).prod(axis=1) for each in (boxes, others)]
    return shared / (areas[0][:, None] + areas[1] - shared)


def plain_precision(found, truth):
    """The definition: greedy matching by probability, then precision at 101 levels of recall, interpolated."""
    means = []
    for kind in sorted({each[4] for rows in truth for each in rows}):
        wanted = [rows[rows[:, 4] == kind] for rows in truth]
        ranked = sorted(
            ((-row[5], image, tuple(row[:4])) for image, rows in enumerate(found) for row in rows if row[4] == kind)
        )
        for threshold in np.linspace(0.5, 0.95, 10):
            taken = [set() for _ in wanted]
            hits = []
            for _, image, box in ranked:
                near = shares(np.array([box]), wanted[image][:, :4])[0]
                free = [at for at in range(len(near)) if at not in taken[image] and near[at] >= threshold]
                best = max(free, key=lambda at: near[at], default=None)
                hits.append(best is not None)
                if best is not None:
                    taken[image].add(best)
            right = np.cumsum(hits)
            recall, precision = right / sum(map(len, wanted)), right / np.arange(1, len(hits) + 1)
            levels = [precision[recall >= level - 1e-12].max(initial=0.0) for level in np.linspace(0, 1, 101)]
            means.append(np.mean(levels))
    return np.mean(means)


def scene(seed, images=12):
    """Objects of three classes, none in every fourth image, and detections near some of them and elsewhere."""
    draws, found, truth = np.random.default_rng(seed), [], []
    for image in range(images):
        count = 0 if image % 4 == 0 else int(draws.integers(1, 5))
        corner, size = draws.uniform(0, 40, (count, 2)), draws.uniform(8, 24, (count, 2))
        boxes = np.concatenate([corner, corner + size], axis=1)
        kinds = draws.integers(1, 4, count)
        truth.append(np.column_stack([boxes, kinds]))
        near = boxes + draws.normal(0, 1.5, boxes.shape)
        noise = draws.uniform(0, 30, (3, 2))
        all_ = np.concatenate([near, np.concatenate([noise, noise + 12], axis=1)])
        classes = np.concatenate([np.where(draws.random(count) < 0.8, kinds, 1), draws.integers(1, 4, 3)])
        found.append(np.column_stack([all_, classes, draws.random(count + 3)]))
    return found, truth


@pytest.mark.parametrize("seed", range(3))
def test_it_is_what_the_definition_says(coco, seed):
    found, truth = scene(seed)
    value = average_precision(found, truth)
    assert 0.05 < value < 0.95
    assert value == pytest.approx(plain_precision(found, truth), abs=1e-9)


def test_what_is_found_in_an_empty_image_counts_against_it(coco):
    truth = [np.array([[0.0, 0, 9, 9, 1]]), np.empty((0, 5))]
    found = [np.array([[0.0, 0, 9, 9, 1, 0.6]]), np.array([[0.0, 0, 9, 9, 1, 0.9]])]
    assert average_precision([found[0], np.empty((0, 6))], truth) == pytest.approx(1.0)
    assert average_precision(found, truth) == pytest.approx(0.5)


def test_finding_nothing_is_0_and_a_split_without_objects_is_refused(coco):
    assert average_precision([np.empty((0, 6))], [np.array([[0.0, 0, 9, 9, 1]])]) == 0.0
    with pytest.raises(DataError, match="no image has an object"):
        average_precision([np.empty((0, 6))], [np.empty((0, 5))])


def test_without_pycocotools_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycocotools.coco", None)
    with pytest.raises(MissingError, match=r"levelbench\[detection\]"):
        average_precision([np.empty((0, 6))], [np.empty((0, 5))])


@pytest.mark.parametrize("seed", range(3))
def test_suppression_keeps_what_onnxs_does(seed):
    draws = np.random.default_rng(seed)
    corner = draws.uniform(0, 20, (60, 2))
    boxes = np.concatenate([corner, corner + draws.uniform(5, 15, (60, 2))], axis=1).astype(np.float32)
    scores = np.sort(draws.random(60).astype(np.float32))[::-1].copy()
    node = helper.make_node("NonMaxSuppression", ["b", "s", "m", "t"], ["y"])
    (chosen,) = ReferenceEvaluator(node).run(
        None, {"b": boxes[None], "s": scores[None, None], "m": np.array([60]), "t": np.array([0.5], np.float32)}
    )
    ours = kept(boxes.astype(np.float64), np.ones(60), 0.5)
    assert 5 < ours.sum() < 60
    assert np.flatnonzero(ours).tolist() == sorted(chosen[:, 2].tolist())


def test_detections_are_likely_finite_and_not_background():
    boxes = np.array([[0.0, 0, 5, 5], [9, 9, 20, 20], [30, 30, 40, 40], [np.inf, 0, 1, 1], [50, 50, 60, 60]])
    scores = np.array([[0.0, 5, 0], [0, 0, 9], [9, 0, 0], [0, 9, 0], [np.nan, 0, 0]])
    found = MeanAveragePrecision(target=0.5).detections(boxes, scores)
    assert found[:, 4].tolist() == [2, 1]
    assert found[:, :4].tolist() == boxes[[1, 0]].tolist()
