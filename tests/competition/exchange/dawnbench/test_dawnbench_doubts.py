"""What DAWNBench's own CI refused, and what it accepted."""

import pytest

from levelbench.competition.exchange.dawnbench import failed_checks, read_entry
from levelbench.competition.exchange.dawnbench.entries import TASKS

CIFAR10, IMAGENET, SQUAD = TASKS
HEAD = "epoch\thours\ttop1Accuracy\n"


def doubts(path, kind):
    return [each for each in read_entry(path).origin.doubts if each.startswith(f"{kind}:")]


def test_a_good_entry_passes_all_checks(clone, pod):
    assert failed_checks(clone.training(), CIFAR10, "train") == []
    assert failed_checks(clone.inference(), CIFAR10, "inference") == []
    assert failed_checks(pod, IMAGENET, "train") == []


GUILTY = {
    "train-json": lambda c: (c.write("CIFAR10/train/a", b"\xef\xbb\xbf{}", HEAD), CIFAR10, "train"),
    "inference-json": lambda c: (c.write("CIFAR10/inference/a", b"{"), CIFAR10, "inference"),
    "train-fields": lambda c: (c.training(version="v1.1"), CIFAR10, "train"),
    "inference-fields": lambda c: (c.inference(latency="absent"), CIFAR10, "inference"),
    "cifar10-tsv": lambda c: (c.training(curve=HEAD.replace("\n", "\tloss\n") + "1\t1\t94\t1\n"), CIFAR10, "train"),
    "imagenet-tsv": lambda c: (c.training(task="ImageNet"), IMAGENET, "train"),
    "squad-tsv": lambda c: (c.training(task="SQuAD"), SQUAD, "train"),
    "cifar10-train-threshold": lambda c: (c.training(curve=HEAD + "1\t1\t93.99\n"), CIFAR10, "train"),
    "imagenet-train-threshold": lambda c: (
        c.training(curve="epoch\thours\ttop1Accuracy\ttop5Accuracy\n1\t1\t70\t92.99\n", task="ImageNet"),
        IMAGENET,
        "train",
    ),
    "squad-train-threshold": lambda c: (
        c.training(curve="epoch\thours\tf1Score\n1\t1\t0.73\n", task="SQuAD"),
        SQUAD,
        "train",
    ),
    "cifar10-inference-threshold": lambda c: (c.inference(top1Accuracy=93.9), CIFAR10, "inference"),
    "imagenet-inference-threshold": lambda c: (c.inference(task="ImageNet", top5Accuracy=92), IMAGENET, "inference"),
    "squad-inference-threshold": lambda c: (c.inference(task="SQuAD", f1Score=0.7), SQUAD, "inference"),
    "squad-f1-range": lambda c: (c.training(curve="epoch\thours\tf1Score\n1\t1\t76\n", task="SQuAD"), SQUAD, "train"),
}


@pytest.mark.parametrize("name", GUILTY)
def test_each_check_fails_for_what_it_asks(clone, name):
    path, task, mode = GUILTY[name](clone)
    assert name in {each.partition(":")[0] for each in failed_checks(path, task, mode)}


def test_there_are_fourteen_checks():
    assert len(GUILTY) == 14


def test_what_the_competition_let_through_passes_its_checks(clone):
    """Per cent for a share in SQuAD's inference, an unpadded day, NaN beside a good value, an empty curve of SQuAD."""
    assert not failed_checks(clone.inference(task="SQuAD", f1Score=82.52), SQUAD, "inference")
    assert not failed_checks(clone.training(timestamp="2019-6-27"), CIFAR10, "train")
    assert not failed_checks(clone.training(curve=HEAD + "1\t1\tnan\n2\t2\t94\n"), CIFAR10, "train")
    path = clone.training(curve="epoch\thours\tf1Score\n", task="SQuAD")
    assert [each.partition(":")[0] for each in failed_checks(path, SQUAD, "train")] == ["squad-train-threshold"]


def test_a_failed_check_is_a_doubt_that_names_the_ci_and_is_not_repeated(clone):
    path = clone.training(curve=HEAD + "1\t1\t93\n")
    assert doubts(path, "CI") == ["CI: cifar10-train-threshold: the best is 93, below 94"]
    assert not doubts(path, "threshold")


def test_a_threshold_that_the_ci_asked_of_one_version_alone_is_our_doubt_for_another(clone):
    path = clone.training(curve=HEAD + "1\t1\t93\n", version="v2.0")
    assert [each.split(": ")[1] for each in doubts(path, "CI")] == ["train-fields"]
    assert doubts(path, "threshold")


def test_falling_below_the_target_again_is_reported_with_both_times(pod):
    assert doubts(pod, "flapping") == ["flapping: at the target after 1843.00 s, for good only after 2097.00 s"]


def test_a_curve_that_ends_below_its_target_is_reported(clone):
    (said,) = doubts(clone.training(curve=HEAD + "1\t1\t94\n2\t2\t93.9\n"), "flapping")
    assert "below it again at the end" in said


def test_a_curve_that_stays_at_its_target_does_not_flap(clone):
    assert not doubts(clone.training(), "flapping")


def test_a_curve_that_ends_where_it_crosses_is_censored_and_one_row_more_is_not(clone):
    assert doubts(clone.training(curve=HEAD + "1\t1\t93\n2\t2\t94\n"), "censored")
    assert not doubts(clone.training(curve=HEAD + "1\t1\t93\n2\t2\t94\n3\t3\t94\n"), "censored")


@pytest.mark.parametrize(("rows", "said"), [("1\t2\t93\n2\t2\t94\n", "hours"), ("1\t1\t93\n1\t2\t94\n", "epoch")])
def test_a_column_that_does_not_increase_is_reported_with_its_row(clone, rows, said):
    assert doubts(clone.training(curve=HEAD + rows), "curve") == [f"curve: {said} does not increase in row 2"]


def test_a_quality_above_a_hundred_per_cent_is_reported(clone):
    assert doubts(clone.training(curve=HEAD + "1\t1\t940\n"), "scale")


def test_a_cost_that_is_latency_times_price_is_not_doubted(clone):
    """One K80 at 0.90 USD an hour: 28.688 ms cost 7.172e-6 USD."""
    assert not doubts(clone.inference(costPerHour=0.90), "cost")
    assert doubts(clone.inference(costPerHour=0.92), "cost")


def test_code_without_a_commit_is_doubted_and_code_with_one_is_not(clone):
    assert doubts(clone.training(codeURL="absent"), "code") == ["code: no link"]
    assert doubts(clone.training(codeURL="https://example.org/x/tree/master"), "code")
    assert not doubts(clone.training(), "code")


def test_a_latency_of_nothing_is_reported(clone):
    assert doubts(clone.inference(latency=0), "latency")


def test_a_file_called_otherwise_is_reported(clone):
    assert doubts(clone.training("basenet"), "name")
    assert not doubts(clone.training(), "name")


def test_an_evaluation_without_the_excluded_images_is_reported_and_one_with_them_is_not(clone):
    assert doubts(clone.training(usedBlacklist=True), "data")
    assert not doubts(clone.training(usedBlacklist=False), "data")
