"""A folder of entries is imported as far as possible, and its leaderboard is the published one."""

import os
from collections import Counter

import pytest

from levelbench.competition.exchange.dawnbench import (
    hours_minutes_seconds,
    leaderboard,
    read_entry,
    read_folder,
    shown,
    value_of,
)
from levelbench.errors import RecordError
from levelbench.measure.crossing import find_crossing

HEAD = "epoch\thours\ttop1Accuracy\n"


def test_a_broken_file_is_a_sentence_with_its_name_and_the_rest_is_imported(clone):
    clone.training()
    clone.write("CIFAR10/train/broken", b"{", HEAD)
    entries, problems = read_folder(clone.root)
    assert len(entries) == 1
    assert len(problems) == 1
    assert problems[0].startswith("CIFAR10/train/broken.json: it is not JSON")


def test_a_curve_without_its_json_is_a_sentence(clone):
    clone.training().unlink()
    entries, problems = read_folder(clone.root)
    assert (entries, len(problems)) == ([], 1)
    assert "no JSON of that name" in problems[0]


@pytest.mark.parametrize("part", ["", "CIFAR10", "CIFAR10/train", "CIFAR10/train/a_resnet9_1v100_pytorch.json"])
def test_a_clone_a_task_a_mode_or_one_file_may_be_given(clone, part):
    clone.training()
    entries, problems = read_folder(clone.root / part)
    assert ([each.task for each in entries], problems) == (["cifar10"], [])


def test_the_other_files_of_a_clone_are_not_entries(clone):
    clone.training()
    (clone.root / "package.json").write_text("{}")
    (clone.root / "CIFAR10" / "train" / "README.md").write_text("no entry")
    entries, problems = read_folder(clone.root)
    assert (len(entries), problems) == (1, [])


def test_a_name_that_is_not_unicode_is_shown_as_escapes(clone):
    path = clone.training()
    for each in (path, path.with_suffix(".tsv")):
        each.rename(each.with_name(os.fsdecode(b"a_\xff_c_d") + each.suffix))
    (entry,), problems = read_folder(clone.root)
    assert (entry.origin.file, problems) == ("CIFAR10/train/a_\\udcff_c_d.json", [])


def test_a_folder_without_entries_is_an_error(clone):
    clone.root.mkdir()
    with pytest.raises(RecordError, match="no entries"):
        read_folder(clone.root)


def test_two_entries_of_one_curve_are_doubted_and_the_first_is_named(clone):
    clone.training("a_m_h_f")
    clone.training("b_m_h_f")
    first, second = read_folder(clone.root)[0]
    assert not any("duplicate" in each for each in first.origin.doubts)
    assert "duplicate: the same curve as CIFAR10/train/a_m_h_f.json" in second.origin.doubts


def test_a_cost_is_compared_with_the_price_that_another_entry_states_for_the_same_hardware(clone):
    """One K80 at 0.90 USD an hour: 28.688 ms cost 7.172e-6 USD."""
    clone.training(hardware="1 K80", costPerHour=0.90)
    clone.inference("consistent_m_h_f", hardware="1 K80")
    clone.inference("not_m_h_f", hardware="1 K80", cost=8e-6)
    doubted = {each.origin.file for each in read_folder(clone.root)[0] if any("cost:" in d for d in each.origin.doubts)}
    assert doubted == {"CIFAR10/inference/not_m_h_f.json"}


def test_two_prices_of_one_hardware_are_reported_on_both(clone):
    clone.training("a_m_h_f", costPerHour=3.06)
    clone.training("b_m_h_f", HEAD + "1\t1\t95\n2\t2\t95\n", costPerHour=2.0)
    assert all(
        "price: entries with the same hardware" in " ".join(each.origin.doubts) for each in read_folder(clone.root)[0]
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(9.42877, "0:00:10"), (10.0, "0:00:10"), (1842.9984, "0:30:43"), (3599.5, "1:00:00"), (370087.79, "102:48:08")],
)
def test_seconds_are_rounded_up(seconds, text):
    assert hours_minutes_seconds(seconds) == text


def test_a_cost_of_inference_is_shown_for_ten_thousand_answers():
    """ResNet50 on a c5.2xlarge: 1.64e-06 USD an image, published as 0.02 USD."""
    assert shown(1.64e-06, "inference-cost") == "$0.02"


def test_time_counts_to_the_first_evaluation_at_exactly_the_target(pod):
    entry = read_entry(pod)
    curve = entry.runs[0].curve
    sustained = find_crossing(curve.quality, 0.93, rule="sustained", x=curve.time_s)
    assert value_of(entry, "time") == pytest.approx(0.5119444444444444 * 3600, abs=1e-9)
    assert sustained.position == 0.5825 * 3600
    (row,) = leaderboard([entry], "time")
    assert (row.rank, row.text) == (1, "0:30:43")


def test_squads_threshold_is_that_of_the_competitions_test(clone):
    curve = (
        "epoch\tf1Score\thours\n6\t0.7448651315214382\t0.7191634705555556\n7\t0.75448099553263\t0.8391646158333333\n"
    )
    entry = read_entry(clone.training(curve=curve, task="SQuAD"))
    assert value_of(entry, "time") == pytest.approx(0.8391646158333333 * 3600, abs=1e-9)


def test_an_entry_without_a_figure_is_on_no_board(clone):
    entry = read_entry(clone.training(costPerHour="absent"))
    assert len(leaderboard([entry], "time")) == 1
    assert leaderboard([entry], "cost") == leaderboard([entry], "latency") == []


PUBLISHED = {
    "apple_resnet9_8v100_pytorch": (9.43, None),
    "ajay_resnet9_4v100_pytorch": (10.66, None),
    "kakaobrain_custom-resnet9_4v100-braincloud_pytorch": (27.98, None),
    "BAIDU-USA-GAIT_BaiduNet9P_8GV100_pytorch": (44.44, 0.1050),
    "kakaobrain_custom-resnet9_1v100-braincloud_pytorch": (57.05, None),
    "BAIDU-USA-GAIT_BaiduNet9_1GV100_pytorch": (71.82, 0.0212),
    "ajay_resnet9_1v100_pytorch": (73.75, None),
    "davidcpage_resnet9_1v100-ec2_pytorch": (74.04, 0.0629),
    "lambda_BaiduNet9_lambda_cloud_single_pytorch": (101.85, 0.0424),
    "fastai_pytorch": (173.96, 1.1829),
    "basenet": (340.63, 0.2895),
    "fastai_pytorch_single_volta": (404.08, 0.2582),
    "KRes34_1GTX1080Ti_pytorch": (2136.18, None),
    "diux_cifar_p3": (4075.00, 3.4638),
    "dawn_resnet164_nb_1p100-dawn_pytorch": (9101.47, None),
    "dawn_resnet164_b_1k80-ec2_pytorch": (33391.45, 8.3479),
    "dawn_resnet164_b_16vCPUs-gc_tensorflow": (370087.79, 54.7936),
}
"""Seconds and dollars to 94 % of CIFAR10."""


@pytest.fixture(scope="module")
def imported(real):
    return read_folder(real)


def test_every_real_entry_is_read(imported):
    entries, problems = imported
    assert Counter(each.mode for each in entries) == {"training": 31, "inference": 21}
    assert problems == []


def test_the_published_times_and_costs_are_reproduced(imported):
    by_name = {each.origin.file: each for each in imported[0] if each.runs}
    for name, (time_s, cost_usd) in PUBLISHED.items():
        entry = by_name[f"CIFAR10/train/{name}.json"]
        assert round(value_of(entry, "time"), 2) == time_s
        cost = value_of(entry, "cost")
        assert (None if cost is None else round(cost, 4)) == cost_usd


def test_the_published_order_is_reproduced(imported):
    rows = leaderboard(imported[0], "time")
    names = [row.entry.origin.file.split("/")[-1].removesuffix(".json") for row in rows]
    assert [name for name in names if name in PUBLISHED] == list(PUBLISHED)
    assert [row.text for row in rows[:4]] == ["0:00:10", "0:00:11", "0:00:28", "0:00:45"]
    assert [row.text for row in leaderboard(imported[0], "cost", 3)] == ["$0.02", "$0.04", "$0.06"]
    assert [row.text for row in leaderboard(imported[0], "latency", 3)] == ["0.1345 ms", "0.683 ms", "0.828 ms"]


def test_the_real_doubts_are_those_that_were_counted_by_hand(imported):
    kinds = Counter(kind for each in imported[0] if each.runs for kind in {d.split(":")[0] for d in each.origin.doubts})
    assert (kinds["flapping"], kinds["censored"], kinds["single-run"], kinds["CI"]) == (10, 6, 31, 0)
    marks = [each for each in imported[0] if any("byte-order" in d for d in each.origin.doubts)]
    assert [each.origin.file for each in marks] == ["CIFAR10/train/KRes34_1GTX1080Ti_pytorch.json"]
