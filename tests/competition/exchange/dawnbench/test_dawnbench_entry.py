"""Reading one entry: units, scales, the quirks of real files, and fields that are kept."""

from datetime import date

import pytest

from levelbench.competition.exchange.dawnbench import read_entry
from levelbench.errors import LevelbenchError, RecordError

TODAY = date(2026, 1, 1)


def kinds(entry):
    return {each.partition(":")[0] for each in entry.origin.doubts}


def test_hours_become_seconds_and_per_cent_a_share_without_rounding_twice(clone):
    curve = read_entry(clone.training(curve="epoch\thours\ttop1Accuracy\n1\t0.1\t94.09\n")).runs[0].curve
    assert (curve.time_s, curve.quality) == ([360.0], [0.9409])


def test_the_target_and_the_rules_are_those_of_the_version(pod):
    entry = read_entry(pod)
    assert (entry.ruleset, entry.task, entry.target.metric, entry.target.threshold) == (
        "dawnbench-1.0",
        "imagenet",
        "top5",
        0.93,
    )
    assert (entry.clock, entry.crossing, entry.mode) == ("dawnbench", "first", "training")


def test_the_second_metric_of_imagenet_is_a_further_column_on_the_same_scale(pod):
    assert read_entry(pod).runs[0].curve.others["top1"][0] == 0.6594


def test_an_f1_is_a_share_already_and_its_columns_may_come_in_any_order(clone):
    curve = "epoch\tf1Score\thours\n6\t0.7448651315214382\t0.7191634705555556\n"
    read = read_entry(clone.training(curve=curve, task="SQuAD")).runs[0].curve
    assert (read.quality, read.time_s) == ([0.7448651315214382], [2588.988494])


def test_milliseconds_become_seconds_and_the_rules_say_how_many_answers(clone):
    measured = read_entry(clone.inference()).inference[0]
    assert (measured.mean_latency_s, measured.cost_usd, measured.quality) == (0.028688, 7.172e-6, 0.9497)
    assert (measured.scenario, measured.queries, measured.batch) == ("dawnbench", 10000, 1)


@pytest.mark.parametrize(
    "curve",
    [
        b"\xef\xbb\xbfepoch\thours\ttop1Accuracy\n1\t0.1\t94.0\n",
        b"epoch\thours\ttop1Accuracy\r\n1\t0.1\t94.0\r\n",
        b"epoch\thours\ttop1Accuracy\n1\t0.1\t94.0",
    ],
    ids=["byte-order-mark", "crlf", "no-final-newline"],
)
def test_a_quirk_of_the_tsv_is_survived_and_reported(clone, curve):
    entry = read_entry(clone.training(curve=curve))
    assert entry.runs[0].curve.quality == [0.94]
    assert "format" in kinds(entry)


@pytest.mark.parametrize("epoch", ["0", "150.144"])
def test_an_epoch_may_be_zero_or_a_fraction(clone, epoch):
    entry = read_entry(clone.training(curve=f"epoch\thours\ttop1Accuracy\n{epoch}\t0.1\t94.0\n"))
    assert entry.runs[0].curve.epoch == [float(epoch)]


def test_a_price_of_null_is_no_price_and_differs_from_one_that_is_absent(clone):
    null, absent = (read_entry(clone.training(costPerHour=each)) for each in (None, "absent"))
    assert (null.price, absent.price) == (None, None)
    assert "costPerHour" in null.origin.fields
    assert "costPerHour" not in absent.origin.fields


@pytest.mark.parametrize("price", [0, -1.5, "3.06"])
def test_an_invalid_price_is_kept_and_doubted(clone, price):
    entry = read_entry(clone.training(costPerHour=price))
    assert entry.price is None
    assert entry.origin.fields["costPerHour"] == price
    assert "price" in kinds(entry)


def test_a_day_without_leading_zeros_is_read_and_reported(clone):
    entry = read_entry(clone.training(timestamp="2019-6-27"))
    assert entry.submitted == "2019-06-27"
    assert "date" in kinds(entry)


def test_a_day_in_the_future_is_doubted(clone):
    path = clone.training(timestamp="2026-01-02")
    assert "date" in kinds(read_entry(path, today=TODAY))
    assert "date" not in kinds(read_entry(path, today=date(2026, 1, 2)))


def test_text_beyond_ascii_stays_what_it_is(clone):
    said = "pct_start = 0.41， max=0.0052"
    assert read_entry(clone.training(misc={"cycle": said})).settings["cycle"] == said


def test_single_values_of_misc_are_settings_and_the_rest_is_kept_by_name(pod):
    entry = read_entry(pod)
    assert entry.settings == {"momentum": 0.9}
    assert entry.origin.fields["misc.schedule:json"] == '[{"learning_rate": 0.0, "epochs": 1}]'


def test_what_the_format_does_not_have_is_kept_and_reported(clone):
    entry = read_entry(clone.training(usedBlacklist=True))
    assert entry.origin.fields["usedBlacklist"] is True
    assert any("usedBlacklist" in each for each in entry.origin.doubts)


def test_an_f1_in_per_cent_is_brought_to_the_scale_and_reported(clone):
    entry = read_entry(clone.inference(task="SQuAD", f1Score=82.52, top1Accuracy="absent"))
    assert entry.inference[0].quality == 0.8252
    assert "scale" in kinds(entry)


def test_an_accuracy_as_a_share_is_brought_to_the_scale_and_reported(clone):
    entry = read_entry(clone.inference(top1Accuracy=0.9497))
    assert entry.inference[0].quality == 0.9497
    assert "scale" in kinds(entry)


def test_the_key_that_a_readme_had_is_read_and_reported(clone):
    entry = read_entry(clone.inference(top1Accuracy="absent", accuracy=94.5))
    assert entry.inference[0].quality == 0.945
    assert "fields" in kinds(entry)


def test_the_commit_is_taken_from_its_field_or_from_the_link(clone):
    linked = read_entry(clone.training())
    stated = read_entry(clone.training(codeURL=" https://example.org/x", commitHash="8678e0bcc72e6b72"))
    assert linked.code.commit == "a" * 40
    assert (stated.code.url, stated.code.commit) == ("https://example.org/x", "8678e0bcc72e6b72")


def test_a_name_beyond_200_characters_is_cut_and_kept_whole(clone):
    entry = read_entry(clone.training(author="A" * 300))
    assert len(entry.author.name) == 200
    assert entry.origin.fields["author"] == "A" * 300


@pytest.mark.parametrize("key", ["CIFAR10", "elsewhere"])
def test_task_and_mode_follow_from_the_folder_or_else_from_the_keys(clone, tmp_path, key):
    clone.training()
    files = clone.root / "CIFAR10" / "train"
    folder = files if key == "CIFAR10" else files.rename(tmp_path / "elsewhere")
    entry = read_entry(next(folder.glob("*.json")))
    assert (entry.task, entry.mode) == ("cifar10", "training")


FAULTS = {
    "no curve": ({}, None, "no TSV"),
    "no rows": ({}, "epoch\thours\ttop1Accuracy\n", "no rows"),
    "no quality": ({}, "epoch\thours\n1\t0.1\n", "top1Accuracy"),
    "nan": ({}, "epoch\thours\ttop1Accuracy\n1\t0.1\tnan\n", "line 2"),
    "short row": ({}, "epoch\thours\ttop1Accuracy\n1\t0.1\n", "line 2"),
    "huge": ({}, "epoch\thours\ttop1Accuracy\n1\t1e999999999\t94\n", "hours"),
    "column twice": ({}, "epoch\thours\thours\n1\t0.1\t0.1\n", "header"),
    "no model": ({"model": "absent"}, "epoch\thours\ttop1Accuracy\n1\t0.1\t94\n", "model"),
    "no day": ({"timestamp": "27 June"}, "epoch\thours\ttop1Accuracy\n1\t0.1\t94\n", "timestamp"),
    "latin-1": ({}, b"epoch\thours\ttop1Accuracy\n1\t0.1\t94\n" + b"\xe9", "UTF-8"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_cannot_be_an_entry_is_an_error_that_says_where(clone, name):
    more, curve, said = FAULTS[name]
    with pytest.raises(RecordError, match=said):
        read_entry(clone.training(curve=curve, **more))


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (b"[1]", "list"),
        (b'{"model": 1, "model": 2}', "twice"),
        (b'{"model": NaN}', "finite"),
        (b'{"model": "\\ud800"}', "surrogate"),
        (b"[" * 100_000, "deeper"),
        (b'{"x": ' + b"9" * 70 + b"}", "64 bits"),
        (b'"' + b"a" * (2 << 20) + b'"', "larger"),
    ],
    ids=["no object", "key twice", "nan", "half a pair", "deep", "beyond 64 bits", "large"],
)
def test_json_that_is_not_an_entry_is_an_error_before_anything_is_built_of_it(clone, record, said):
    with pytest.raises(RecordError, match=said):
        read_entry(clone.write("CIFAR10/train/a", record, "epoch\thours\ttop1Accuracy\n1\t0.1\t94\n"))


def test_a_link_that_leads_out_of_the_folder_is_not_followed(clone, tmp_path):
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    place = clone.root / "CIFAR10" / "train"
    place.mkdir(parents=True)
    (place / "a.json").symlink_to(secret)
    with pytest.raises(LevelbenchError, match="leads out"):
        read_entry(place / "a.json", root=clone.root)
