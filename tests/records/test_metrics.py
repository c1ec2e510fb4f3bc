"""What the name of a metric says about it."""

import pytest

from levelbench.records.schema import better_of, is_share


@pytest.mark.parametrize(
    "metric",
    [
        *("val_loss", "valLoss", "eval_wer", "top1_err", "test_err", "xent", "RMSLE", "logloss", "cross_entropy"),
        *("nll", "fid", "word error rate", "perplexity", "accuracy_loss", "bpc"),
    ],
)
def test_lower_is_better(metric):
    assert (better_of(metric), is_share(metric)) == ("lower", False)


@pytest.mark.parametrize(
    "metric", ["accuracy", "val/acc", "acc@1", "top5", "R2", "mAP", "map50", "eval_f1", "valAccuracy"]
)
def test_it_is_a_share_and_higher_is_better(metric):
    assert (better_of(metric), is_share(metric)) == ("higher", True)


@pytest.mark.parametrize("metric", ["bleu", "psnr", "log_likelihood", "episode_return"])
def test_higher_is_better(metric):
    assert (better_of(metric), is_share(metric)) == ("higher", False)


@pytest.mark.parametrize("metric", ["quality", "confidence", "score", "neg_mean_squared_error", "x", ""])
def test_its_name_does_not_say(metric):
    assert (better_of(metric), is_share(metric)) == (None, False)
