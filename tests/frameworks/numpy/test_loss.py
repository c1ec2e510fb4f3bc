import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

SHAPES = [(5, 4), (3, 4, 2), (2, 4, 3, 2), (2, 4, 1, 2, 3)]
WEIGHT = np.array([0.3, 1.0, 2.0, 0.7])
NEVER = -12345


def problem(shape, dtype=np.float64):
    generator = np.random.default_rng(shape)
    scores = generator.normal(size=shape).astype(dtype)
    return scores, generator.integers(0, shape[1], (shape[0], *shape[2:]))


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("ignored", [None, 2, -1, -100])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cross_entropy_and_its_gradient_match_torch(shape, ignored, reduction, same_as_torch):
    scores, target = problem(shape)
    attributes = {"reduction": reduction}
    if ignored is not None:
        attributes["ignore_index"] = ignored
        target.reshape(-1)[::3] = ignored

    def likelihood(x, target):
        return F.nll_loss(x, target, reduction=reduction, ignore_index=NEVER if ignored is None else ignored)

    def cross_entropy(x, target):
        return likelihood(F.log_softmax(x, 1), target)

    def with_log_prob(x, target):
        return cross_entropy(x, target), F.log_softmax(x, 1)

    same_as_torch(likelihood, "NegativeLogLikelihoodLoss", scores, target, **attributes)
    same_as_torch(cross_entropy, "SoftmaxCrossEntropyLoss", scores, target, **attributes)
    outputs = ["loss", "log_prob"]
    same_as_torch(with_log_prob, "SoftmaxCrossEntropyLoss", scores, target, outputs=outputs, **attributes)


def weighted_likelihood(x, target, weight, reduction, ignored):
    """PyTorch's definition, written with operators that have a gradient for the weights."""
    kept = target != ignored
    place = torch.where(kept, target, 0)
    scale = torch.where(kept, weight[place], 0.0)
    loss = -x.gather(1, place.unsqueeze(1)).squeeze(1) * scale
    return {"none": loss, "sum": loss.sum(), "mean": loss.sum() / scale.sum()}[reduction]


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("ignored", [None, 2, -1])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_weights_of_classes_count_as_torchs_and_have_a_gradient(shape, ignored, reduction, same_as_torch):
    scores, target = problem(shape)
    attributes = {"reduction": reduction}
    if ignored is not None:
        attributes["ignore_index"] = ignored
        target.reshape(-1)[::3] = ignored
    index = NEVER if ignored is None else ignored

    def likelihood(x, target, weight):
        return weighted_likelihood(x, target, weight, reduction, index)

    np.testing.assert_allclose(
        likelihood(*map(torch.from_numpy, (scores, target, WEIGHT))),
        F.nll_loss(*map(torch.from_numpy, (scores, target, WEIGHT)), reduction=reduction, ignore_index=index),
    )
    same_as_torch(likelihood, "NegativeLogLikelihoodLoss", scores, target, WEIGHT, **attributes)
    same_as_torch(
        lambda x, *rest: likelihood(F.log_softmax(x, 1), *rest),
        "SoftmaxCrossEntropyLoss",
        scores,
        target,
        WEIGHT,
        **attributes,
    )


def test_a_mean_over_nothing_is_no_number(run):
    scores, target = problem((3, 4))
    found = run("SoftmaxCrossEntropyLoss", scores, np.full_like(target, 1), ignore_index=1)
    assert np.isnan(found)


def test_what_is_ignored_counts_nothing_even_if_it_is_infinite(run, pull):
    log_prob = np.array([[-np.inf, 0.0], [0.0, -np.inf]])
    target = np.array([0, 0])
    found = run("NegativeLogLikelihoodLoss", log_prob, target, np.array([0.0, 1.0]), reduction="sum")
    assert found == 0


@pytest.mark.parametrize("labels", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("name", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
def test_a_loss_keeps_the_dtype_of_its_scores(name, dtype, labels, run, pull):
    scores, target = problem((6, 4), dtype)
    found = run(name, scores, target.astype(labels))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, run(name, scores.astype(np.float32), target).astype(dtype))
    assert pull(name, scores, target, gradient=found)[0].dtype == dtype


def test_large_scores_do_not_overflow(run):
    found = run("SoftmaxCrossEntropyLoss", np.array([[1e4, 0.0]], np.float32), np.array([1]))
    assert found == np.float32(1e4)


def test_the_gradient_of_the_log_probabilities_is_log_softmaxs(pull):
    scores, target = problem((3, 4))
    gradient = np.random.default_rng(1).normal(size=(3, 4))
    outputs = ["loss", "log_prob"]
    found = pull("SoftmaxCrossEntropyLoss", scores, target, gradient=(None, gradient), outputs=outputs)[0]
    np.testing.assert_allclose(found, pull("LogSoftmax", scores, gradient=gradient, axis=1)[0])
