"""Files of reference convergence points, also read by the official checker."""

import json
import statistics
from pathlib import Path

import pytest

from levelbench.competition.exchange.mlperf import read_points
from levelbench.competition.rulesets.scores import ReferencePoint, judge, prune
from levelbench.errors import RecordError
from levelbench.measure.statistics import arithmetic_mean, coefficient_of_variation


def write(path, *records):
    path.write_text(json.dumps({f"ref_{number}": record for number, record in enumerate(records)}))
    return path


def test_points_are_read_by_benchmark(tmp_path):
    path = write(
        tmp_path / "rcps.json",
        {"Benchmark": "resnet", "BS": 1632, "Hyperparams": {}, "Epochs to converge": [34, 35, 35.5]},
        {"Benchmark": "unet3d", "BS": 32, "samples to converge": [1] * 9},
    )
    assert read_points(path) == {
        "resnet": [ReferencePoint(1632, (34.0, 35.0, 35.5))],
        "unet3d": [ReferencePoint(32, (1.0,) * 9, drop=4)],
    }


@pytest.mark.parametrize(
    ("record", "found"),
    [
        ([], "not an object"),
        ({"Benchmark": "resnet"}, "no BS"),
        ({"Benchmark": "resnet", "BS": 0, "Epochs to converge": [1]}, "no BS"),
        ({"Benchmark": "resnet", "BS": 1}, "no values"),
        ({"Benchmark": "resnet", "BS": 1, "Epochs to converge": [1, "2"]}, "not a number"),
    ],
)
def test_a_record_that_is_not_a_point_is_an_error_with_its_name(tmp_path, record, found):
    with pytest.raises(RecordError, match=f"ref_0: .*{found}"):
        read_points(write(tmp_path / "rcps.json", record))


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 9999])
def test_a_file_without_points_is_an_error(tmp_path, text):
    (tmp_path / "rcps.json").write_text(text)
    with pytest.raises(RecordError, match="reference points"):
        read_points(tmp_path / "rcps.json")


@pytest.fixture(scope="module")
def official():
    pytest.importorskip("scipy")
    return pytest.importorskip("mlperf_logging.rcp_checker.rcp_checker")


FILES = ["retinanet", "llama31_8b", "llama2_70b_lora", "llama31_405b", "rgat", "dlrm_dcnv2"]


@pytest.mark.parametrize("name", FILES)
def test_official_points_have_the_same_least_mean_and_the_same_survive(official, name):
    """Theirs bisects to 1e-4 and ours is closed, so no more than that is between them."""
    path = Path(official.__file__).parent / "training_5.1.0" / f"rcps_{name}.json"
    points = read_points(path)[name]
    theirs = official.RCP_Checker("training", "5.1.0", name, False)
    by_size = {point.batch_size: point for point in points}
    for record in theirs.rcp_data.values():
        ours = by_size[record["BS"]].at(theirs.submission_runs)
        assert ours.mean == pytest.approx(record["RCP Mean"])
        assert ours.deviation == pytest.approx(record["RCP Stdev"])
        assert ours.least == pytest.approx(record["Min Epochs"], abs=1e-4)
    assert [point.batch_size for point in prune(points)] == [each["BS"] for each in theirs.pruned_rcp_data.values()]


TABLE = {
    "llama31_405b": {
        1152: (313344, 11657.42037, 0.04),
        2304: (368640, 11657.42037, 0.03),
        4608: (488448, 15421.31761, 0.03),
    },
    "llama2_70b_lora": {
        8: (3187.2, 307.7048483, 0.10),
        16: (4051.2, 422.0323759, 0.10),
        128: (11289.6, 866.7465118, 0.08),
    },
    "rgat": {4096: (0.79, 0.0347926187, 0.04), 16384: (0.86, 0.04472135955, 0.05), 262144: (2.465, 0.1170919567, 0.05)},
    "dlrm_dcnv2": {32768: (0.7066666667, 0.02170862427, 0.03), 160000: (0.9575, 0.03725799102, 0.04)},
    "retinanet": {256: (4, 0, 0.00), 320: (4.15, 0.3663475485, 0.09), 4096: (15.13333333, 0.5163977795, 0.03)},
    "llama31_8b": {
        16: (161587.2, 4501.678676, 0.03),
        64: (226713.6, 10899.96237, 0.05),
        128: (345907.2, 24984.89317, 0.07),
    },
}
"""Mean, sample standard deviation and their ratio, as the rules' guide to choosing a number of runs prints them."""


@pytest.mark.parametrize("name", TABLE)
def test_the_published_table_of_variation_is_reproduced(official, name):
    path = Path(official.__file__).parent / "training_5.1.0" / f"rcps_{name}.json"
    values = {point.batch_size: point.values for point in read_points(path)[name]}
    for batch_size, (mean, deviation, variation) in TABLE[name].items():
        assert arithmetic_mean(values[batch_size]) == pytest.approx(mean, rel=1e-9)
        assert statistics.stdev(values[batch_size]) == pytest.approx(deviation, rel=1e-9)
        assert round(coefficient_of_variation(values[batch_size]), 2) == variation


@pytest.mark.parametrize("batch_size", [32, 128, 256, 300, 4096, 9999])
@pytest.mark.parametrize("share", [0.8, 0.99, 1.2])
def test_the_official_checker_comes_to_the_same_outcome(official, tmp_path, make_lines, text_of, batch_size, share):
    path = Path(official.__file__).parent / "training_5.1.0" / "rcps_retinanet.json"
    points = read_points(path)["retinanet"]
    nearest = min(points, key=lambda point: abs(point.batch_size - batch_size))
    epochs = [round(nearest.at(5).mean * share) + step for step in (0, 0, 0, 1, 1)]
    for number, epoch in enumerate(epochs):
        lines = make_lines(benchmark="retinanet", values=(0.34,))
        for line in lines:
            line["metadata"] = {name: each for name, each in line["metadata"].items() if name != "samples_count"}
            if line["key"] == "eval_accuracy":
                line["metadata"]["epoch_num"] = epoch
            if line["key"] == "global_batch_size":
                line["value"] = batch_size
        (tmp_path / f"result_{number}.txt").write_text(text_of(lines))
    passed, _, scale = official.check_directory(
        str(tmp_path), "training", "5.1.0", False, False, rcp_pass="pruned_rcps"
    )
    ours = judge(points, batch_size, epochs)
    assert ours.passed is passed
    if passed:
        assert ours.scale == pytest.approx(scale)
