"""What the name of a metric says about it."""

import pytest

from levelbench.records.schema import Target, better_of, scale_of


@pytest.mark.parametrize(
    "metric",
    [
        *("val_loss", "valLoss", "eval_wer", "top1_err", "test_err", "xent", "RMSLE", "logloss", "cross_entropy"),
        *("nll", "fid", "word error rate", "perplexity", "accuracy_loss", "bpc"),
    ],
)
def test_lower_is_better(metric):
    assert better_of(metric) == "lower"


@pytest.mark.parametrize("metric", ["accuracy", "val/acc", "acc@1", "top5", "mAP", "map50", "eval_f1", "valAccuracy"])
def test_it_is_a_share_and_higher_is_better(metric):
    assert (better_of(metric), scale_of(metric)) == ("higher", (0.0, 1.0))


@pytest.mark.parametrize("metric", ["bleu", "psnr", "log_likelihood", "episode_return", "R2"])
def test_higher_is_better(metric):
    assert better_of(metric) == "higher"


@pytest.mark.parametrize("metric", ["top1_err", "eval_wer", "cer", "perplexity", "rmse", "val_mae", "bpb", "bleu"])
def test_it_cannot_be_negative(metric):
    assert scale_of(metric) == (0.0, None)


@pytest.mark.parametrize("metric", ["r2", "val/R2", "r2_score"])
def test_a_coefficient_of_determination_ends_at_1_and_may_be_negative(metric):
    assert scale_of(metric) == (None, 1.0)


@pytest.mark.parametrize(
    "metric", ["val_loss", "nll", "elbo", "log_likelihood", "reward", "return", "score", "log_mse"]
)
def test_of_other_metrics_no_end_is_known(metric):
    assert scale_of(metric) == (None, None)


@pytest.mark.parametrize(("threshold", "best"), [(3.28, 0.0), (-2.0, None)])
def test_the_best_value_of_a_loss_is_0_as_far_as_its_target_is_above(threshold, best):
    assert Target("val_loss", threshold, "lower", None, None).best == best


@pytest.mark.parametrize("metric", ["quality", "confidence", "score", "neg_mean_squared_error", "x", ""])
def test_its_name_does_not_say(metric):
    assert (better_of(metric), scale_of(metric)) == (None, (None, None))
