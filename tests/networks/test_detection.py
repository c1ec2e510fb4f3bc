"""Default boxes and SSD's loss: against a plain computation in NumPy, on every framework."""

import numpy as np
import onnx
import pytest

from levelbench import plugins
from levelbench.errors import DefinitionError
from levelbench.networks.builder import GraphBuilder
from levelbench.networks.detection import VARIANCES, decoded, default_boxes, with_detection_loss
from levelbench.networks.values import Draw

DEFAULTS = default_boxes(32, [(4, [(8, 8), (6, 12)]), (2, [(16, 16)])])
MOST, CLASSES = 3, 4


def head():
    """A network that predicts what it is given."""
    g = GraphBuilder("head")
    one = g.parameter("one", (1,), Draw("constant", 1.0))
    for name, width in (("offsets", 4), ("scores", CLASSES)):
        given = g.input(f"given_{name}", ("batch", len(DEFAULTS), width))
        made = g.node("Mul", given, one, name=name)
        g.output(made)
        if name == "offsets":
            g.output(decoded(g, made, DEFAULTS), "boxes")
    return g.build()


def test_the_loss_leaves_a_model_that_onnx_accepts():
    network = with_detection_loss(head(), DEFAULTS, most=MOST)
    onnx.checker.check_model(network.to_proto(), full_check=True)


def batch(seed=0):
    """Two images with objects, of which one is too small to share half with any box, and an empty one."""
    draws = np.random.default_rng(seed)
    offsets = draws.normal(0, 1, (3, len(DEFAULTS), 4)).astype(np.float32)
    scores = draws.normal(0, 1, (3, len(DEFAULTS), CLASSES)).astype(np.float32)
    boxes = np.zeros((3, MOST, 4), np.float32)
    boxes[0, 0], boxes[0, 1], boxes[1, 0] = (2, 3, 9, 14), (12, 14, 31, 30), (20, 20, 22, 23)
    return offsets, scores, boxes, np.array([[1, 3, 0], [2, 0, 0], [0, 0, 0]])


def loss_of(framework, *columns):
    backend, network = plugins.load("framework", framework).open(), with_detection_loss(head(), DEFAULTS, most=MOST)
    executor = backend.executor(network, network.initialise(0))
    return float(backend.host(executor.infer_and_backprop(*(backend.array(each) for each in columns))[0]))


def share(box, other):
    width, height = (max(0.0, min(box[at + 2], other[at + 2]) - max(box[at], other[at])) for at in (0, 1))
    areas = [(each[2] - each[0]) * (each[3] - each[1]) for each in (box, other)]
    return width * height / (sum(areas) - width * height)


def plain_loss(offsets, scores, boxes, classes, negatives=64, least=3):
    total, matches = 0.0, 0
    for o, s, b, c in zip(*(each.astype(np.float64) for each in (offsets, scores, boxes, classes)), strict=True):
        shares = np.array([[share(default, box) for box in b[c > 0]] for default in DEFAULTS]).reshape(
            len(DEFAULTS), -1
        )
        entropy = np.log(np.exp(s).sum(axis=1))[:, None] - s
        unmatched, own = [], 0
        for at, row in enumerate(shares):
            leads = [each for each in range(len(row)) if row[each] == shares[:, each].max() > 0]
            best = max(leads or range(len(row)), key=lambda each: row[each], default=None)
            if best is None or not (leads or row[best] >= 0.5):
                unmatched.append(entropy[at, 0])
                continue
            own += 1
            box, default = b[best], DEFAULTS[at].astype(np.float64)
            centre, size = (
                ((each[:2] + each[2:]) / 2 for each in (box, default)),
                [each[2:] - each[:2] for each in (box, default)],
            )
            true, reference = centre
            wanted = np.concatenate(
                [(true - reference) / size[1] / VARIANCES[0], np.log(size[0] / size[1]) / VARIANCES[1]]
            )
            away = np.abs(o[at] - wanted)
            total += np.where(away < 1, away**2 / 2, away - 0.5).sum() + entropy[at, int(c[best])]
        total += sum(sorted(unmatched, reverse=True)[: min(negatives, max(3 * own, least))])
        matches += own
    return total / max(matches, 1)


@pytest.mark.parametrize("framework", ["numpy", "torch", pytest.param("jax", marks=pytest.mark.slow)])
def test_the_loss_is_ssds(framework):
    if lacking := plugins.load("framework", framework).lacks():
        pytest.skip(lacking)
    columns = batch()
    assert loss_of(framework, *columns) == pytest.approx(plain_loss(*columns), rel=1e-5)


def test_an_empty_batch_has_a_loss_of_its_worst_backgrounds_alone():
    offsets, scores, boxes, classes = batch(1)
    loss = loss_of("numpy", offsets, scores, boxes * 0, classes * 0)
    assert loss == pytest.approx(plain_loss(offsets, scores, boxes * 0, classes * 0), rel=1e-5)
    assert loss == pytest.approx(loss_of("numpy", offsets + 9, scores, boxes * 0, classes * 0))


def test_offsets_of_zero_stand_for_the_default_boxes():
    backend = plugins.load("framework", "numpy").open()
    network = head()
    zeros = np.zeros((1, len(DEFAULTS), 4), np.float32), np.zeros((1, len(DEFAULTS), CLASSES), np.float32)
    boxes = backend.executor(network, network.initialise(0)).infer(*zeros)[1]
    np.testing.assert_allclose(boxes[0], DEFAULTS, atol=1e-5)


def test_default_boxes_are_centred_on_cells_with_the_shapes_of_their_map():
    assert len(DEFAULTS) == 4 * 4 * 2 + 2 * 2
    assert DEFAULTS[:3].tolist() == [[0, 0, 8, 8], [1, -2, 7, 10], [8, 0, 16, 8]]
    assert DEFAULTS[-1].tolist() == [16, 16, 32, 32]


def test_scores_for_another_number_of_boxes_are_refused():
    with pytest.raises(DefinitionError, match="for 3 default boxes"):
        with_detection_loss(head(), DEFAULTS[:3], most=MOST)
