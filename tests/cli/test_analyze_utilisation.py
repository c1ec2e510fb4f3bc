"""``levelbench analyze utilisation``: published entries against datasheets, and runs against measured peaks."""

import dataclasses
import json
import os
from pathlib import Path

import msgspec
import pytest
from tests.competition.test_ceilings import head
from tests.competition.test_ceilings import write as write_heads
from tests.report.pages import needs_matplotlib

from levelbench.experiments.child import execute
from levelbench.experiments.jobs import Job
from levelbench.experiments.request import Options, resolve
from levelbench.records import Store, group_runs, new_id

TPU = {
    "version": "v1.0",
    "author": "Google Cloud TPU",
    "authorEmail": "cloud-tpu-dawnbench@googlegroups.com",
    "framework": "TensorFlow v1.8rc1",
    "codeURL": "https://github.com/tensorflow/tpu/blob/9de6656a779e73ac61995bd87044af21b3f37951/models",
    "model": "ResNet50",
    "hardware": "GCP n1-standard-2, Cloud TPU",
    "costPerHour": 6.595,
    "timestamp": "2018-04-19",
}
"""An entry of DAWNBench (ImageNet/train/google_resnet50_tpu_tensorflow18), whose target was reached at epoch 81."""
CURVE = (
    "epoch\thours\ttop1Accuracy\ttop5Accuracy\n"
    "30\t3.3110\t54.28\t79.46\n60\t6.5870\t70.20\t89.84\n81\t8.8757\t76.13\t93.01\n"
)


def publish(folder, name, facts, curve=CURVE):
    place = folder / "ImageNet" / "train"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}.json").write_text(json.dumps(facts))
    (place / f"{name}.tsv").write_text(curve)


def shares(out):
    return {each["label"]: each["share"] and each["share"]["value"] for each in json.loads(out)["shares"]}


def test_dawnbenchs_tpu_has_the_45_percent_of_the_analysis(call, tmp_path):
    """Coleman et al. 2019: "a utilization of 45 % for the ResNet-50 model"."""
    publish(tmp_path, "tpu", TPU)
    code, out, _ = call("analyze", "utilisation", tmp_path / "ImageNet", "--json")
    assert code == 0
    assert shares(out)["tpu"] == pytest.approx(0.45, abs=0.01)


@pytest.mark.parametrize(
    "change", [{"hardware": "one fast machine"}, {"model": "MyNet 5"}, {"timestamp": "2019-04-19"}]
)
def test_what_is_not_known_for_certain_has_no_share(call, tmp_path, change):
    publish(tmp_path, "tpu", TPU | change)
    code, out, _ = call("analyze", "utilisation", tmp_path / "ImageNet", "--json")
    assert code == 4
    assert shares(out) == {"tpu": None}


def test_the_round_of_2019_of_mlperf_used_a_quarter_of_its_peak(call, tmp_path):
    """Google's 1,024 chips: 72 epochs of 1,281,167 images in 76.9 s, 24.7 GFLOP each, of 126 PFLOP/s."""
    shared = os.environ.get("LEVELBENCH_SHARED", Path(__file__).parents[3] / "shared")
    archive = Path(shared) / "data" / "mlperf-training-v0.6.tar.gz"
    if not archive.exists():
        pytest.skip("no results of MLPerf Training v0.6 are here: LEVELBENCH_SHARED/data")
    call("board", "import", "mlperf", archive, "-o", tmp_path / "board")
    code, out, _ = call("analyze", "utilisation", tmp_path / "board", "--json")
    assert code == 0
    (share,) = shares(out).values()
    assert share == pytest.approx(72 * 1_281_167 / 76.9 * 24.7e9 / (1024 * 123e12), rel=0.02)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store with two real runs of digits, and a peak of their machine."""
    folder = tmp_path_factory.mktemp("made")
    arm = resolve("digits", {"hidden": 16}, Options(framework="numpy", target=0.5, crossing="first"))
    for seed in (0, 1):
        execute(
            Job("digits", arm.specification, key=arm.key, seed=seed, id=new_id(), store=str(folder)), lambda _: None
        )
    return folder


def test_runs_without_a_measured_peak_say_how_to_measure_one(call, made):
    code, out, _ = call("analyze", "utilisation", "--store", made, "--wide")
    assert code == 4
    assert "those of doctor and analyze roofline are not kept" in out
    assert "to record one: levelbench operator MatMul" in out


def test_the_peak_has_its_unit_and_the_note_says_that_its_spread_is_left_out(call, made, tmp_path):
    write_heads(made, {**head(1e12), "environment": Store(made).summaries()[0].environment})
    call("analyze", "utilisation", "--store", made, "--markdown", tmp_path / "u.md")
    out = (tmp_path / "u.md").read_text()
    assert "| peak GFLOP/s |" in out
    assert "How much that peak varied is in no interval" in out
    assert "Geometric means over the n runs; brackets: of fewer than six runs the lowest and the highest." in out


@needs_matplotlib
def test_runs_stand_against_the_peak_measured_in_their_store(call, made, tmp_path):
    runs = Store(made).summaries()
    write_heads(made, {**head(1e12), "environment": runs[0].environment})
    files = ("--csv", tmp_path / "u.csv", "--markdown", tmp_path / "u.md", "--plot", tmp_path / "u.svg")
    code, out, _ = call("analyze", "utilisation", "--store", made, "--json", *files)
    assert code == 0
    each = 2 * (2 * 64 * 16 + 3 * 16 * 10)
    wanted = [each * run.samples_to_target / run.time_to_accuracy_s / 1e12 for run in runs]
    assert shares(out)["digits"] == pytest.approx((wanted[0] * wanted[1]) ** 0.5)
    assert "of the measured peak" in (tmp_path / "u.svg").read_text()
    assert (tmp_path / "u.csv").read_text().startswith("label,share")
    assert "# Utilisation" in (tmp_path / "u.md").read_text()


def test_a_share_over_the_runs_that_reached_the_target_says_how_many(call, made, monkeypatch):
    def with_a_miss(store, words):
        (group,) = group_runs(store.summaries())
        first, second = group.runs
        missed = msgspec.structs.replace(second, reached=False, time_to_accuracy_s=None, samples_to_target=None)
        return [dataclasses.replace(group, runs=(first, missed))]

    write_heads(made, {**head(1e12), "environment": Store(made).summaries()[0].environment})
    monkeypatch.setattr("levelbench.cli.options.selected_groups", with_a_miss)
    _, out, _ = call("analyze", "utilisation", "--store", made, "--wide")
    assert "digits: over the 1 of 2 runs that reached their target" in out


def test_show_and_report_have_operations_and_reads(call, made, tmp_path):
    _, out, _ = call("show", "latest", "--store", made, "--json")
    found = json.loads(out)
    found = found[0] if isinstance(found, list) else found
    assert found["operations_per_example"] == {"float32": 2.0 * (2 * 64 * 16 + 3 * 16 * 10)}
    assert found["operations"]["to_target"] == found["operations_per_example"]["float32"] * found["samples_to_target"]
    _, out, _ = call("show", "latest", "--store", made)
    assert "operations" in out
    call("report", "--store", made, "-o", tmp_path / "r.html", "--markdown", tmp_path / "r.md")
    assert "Operations and input" in (tmp_path / "r.html").read_text()
    assert "GFLOP to target" in (tmp_path / "r.md").read_text()


def tracked(store, epochs, examples):
    """A loop of one's own that reaches its target in its fourth epoch, and how many examples a step of it says."""
    import levelbench

    with levelbench.track("own", target={"accuracy": 0.9}, settings={"lr": 0.1}, store=str(store)) as run:
        for epoch in run.epochs(epochs):
            run.step(examples)
            run.evaluate(0.95 if epoch >= 3 else 0.5)


@pytest.mark.parametrize(
    ("epochs", "examples", "said"),
    [
        (6, 32, "the operations of a program's own network are not counted: make it a task"),
        (6, 0, "the runs do not count examples"),
        (2, 32, "none of 1 runs reached its target"),
    ],
)
def test_a_loop_of_ones_own_gets_the_true_reason_and_what_to_do(call, tmp_path, epochs, examples, said):
    tracked(tmp_path, epochs, examples)
    code, out, _ = call("analyze", "utilisation", "own", "--store", tmp_path)
    assert code == 4
    assert said in " ".join(out.split())
    assert ("reached its target" in out) == (epochs == 2)


def test_runs_of_two_machines_have_a_share_each(call, write, tmp_path):
    for seed in range(4):
        write(seed, f"aaaa000{seed}", machine=f"m{seed % 2}")
    _, out, _ = call("analyze", "utilisation", "--store", tmp_path / "store", "--json")
    assert [each["label"][-6:] for each in json.loads(out)["shares"]] == ["1 of 2", "2 of 2"]


@needs_matplotlib
def test_no_figure_is_drawn_without_a_known_share(call, tmp_path):
    tracked(tmp_path, 2, 32)
    code, out, _ = call("analyze", "utilisation", "own", "--store", tmp_path, "--plot", tmp_path / "u.svg")
    assert code == 4
    assert "no plot: no share is known" in out
    assert not (tmp_path / "u.svg").exists()
