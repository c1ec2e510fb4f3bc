"""``levelbench analyze batch-size``: the runs that it makes, what it reads, prints and writes, and what it refuses."""

import contextlib
import csv
import json

import pytest
from tests.cli.conftest import specification, write_run
from tests.report.pages import needs_matplotlib

QUICK = ("--framework", "numpy", "--target", "0.8", "--epochs", "4", "--noise", "0")
SAMPLES = {32: (1, 2), 128: (2, 2), 512: (3, 4)}


@pytest.fixture
def store(tmp_path):
    """Runs at three batch sizes that reach their target after so many epochs; one at the largest misses it."""
    import msgspec

    folder = tmp_path / "store"
    for size, epochs in SAMPLES.items():
        spec = msgspec.structs.replace(specification(), settings={"batch": size, "lr": 0.001 * size})
        for seed in range(3):
            climb = [0.9] * epochs[seed % 2] + [0.962, 0.965]
            qualities = [0.9] * 8 if (size, seed) == (512, 2) else climb
            write_run(folder, spec, seed, f"{size:04d}000{seed}", qualities, minute=seed, batch=size)
    return folder


@pytest.fixture
def made(tmp_path):
    return "analyze", "batch-size", "digits", "--sizes", "32,128", "-n", "2", *QUICK, "--store", tmp_path / "made"


@pytest.mark.slow
def test_runs_are_made_at_each_size_with_a_scaled_rate_and_not_made_again(call, made):
    code, out, err = call(*made, "--json")
    assert code == 0
    found = json.loads(out)
    assert [(point["size"], point["rate"]) for point in found["points"]] == [(32, 0.025), (128, 0.1)]
    assert "learning rate linear in the batch size, 0.05 at 64" in err
    assert found["rule"] == "linear in the batch size, 0.05 at 64"
    assert all(point["group"]["n"] == 2 for point in found["points"])
    _, _, again = call(*made, "--json")
    assert "4 wanted · 4 done · 0 to go" in again


@pytest.mark.slow
def test_fewer_runs_than_the_store_has_are_no_missing_runs(call, made):
    more = [*made[: made.index("-n")], "-n", "3", *made[made.index("-n") + 2 :]]
    call(*more)
    _, out, _ = call(*made, "--wide")
    assert "2/2" in out
    assert "were asked for by one command" not in out


@pytest.mark.slow
def test_the_rate_is_tuned_on_a_seed_that_is_not_measured(call, made):
    code, out, err = call(*made, "--tune", "2", "--rule", "none", "--json")
    assert code == 0
    found = json.loads(out)
    assert "tuning: 2 trials at each of 2 batch sizes, a factor of 2 apart, seed 2" in err
    assert [[trial["rate"] for trial in each["trials"]] for each in found["tuned"]] == [[0.05, 0.1]] * 2
    assert [point["rate"] for point in found["points"]] == [each["rate"] for each in found["tuned"]]
    assert "tuned at each size: 2 trials a size, of one run each, around 0.05 at every size" in found["rule"]
    assert all(point["group"]["n"] == 2 for point in found["points"])


@pytest.mark.slow
def test_trials_of_tuning_are_no_runs_and_what_is_read_is_what_was_measured(call, made):
    command = (*made, "--tune", "2", "--rule", "none", "--json")
    _, out, err = call(*command)
    assert "left out" not in err
    _, again, said = call(*command)
    assert said.count(" 4 done · 0 to go") == 2
    code, read, note = call("analyze", "batch-size", "digits", *made[-2:], "--json")
    assert code == 0
    assert "4 trials of tuning left out" in note
    measured, repeated, found = (json.loads(each) for each in (out, again, read))
    for name in ("points", "largest", "fastest", "critical"):
        assert found[name] == repeated[name] == measured[name]
    assert found["rule"].count("tuned (2 trials)") == 2
    assert "linear" not in found["rule"]
    winner = f"digits[batch=128,lr={found['points'][1]['rate']}]"
    _, stable, note = call("analyze", "stability", winner, *made[-2:])
    assert "2/2" in stable
    assert "1 trial of tuning left out" in note


@pytest.mark.slow
def test_trials_of_tuning_that_was_interrupted_are_no_runs_either(call, made, tmp_path, monkeypatch):
    from levelbench.experiments.training import launch
    from levelbench.records import Store
    from levelbench.records.searches import trial_ids

    jobs = []

    def interrupted(job, *rest, **others):
        jobs.append(job)
        if len(jobs) > 3:
            raise KeyboardInterrupt
        return launch(job, *rest, **others)

    monkeypatch.setattr("levelbench.experiments.training.launch", interrupted)
    with contextlib.suppress(KeyboardInterrupt):
        call(*made, "--tune", "2", "--rule", "none")
    store = Store(tmp_path / "made")
    done = {record.header.id for record in store.records() if record.status == "done"}
    assert len(done) == 3
    assert trial_ids(store.searches()) == done


@pytest.mark.slow
def test_the_noise_scale_is_measured_on_runs_of_their_own(call, made, tmp_path):
    words = [*made[:-4], "--noise", "2", *made[-2:]]
    code, out, _ = call(*words, "--json")
    assert code == 0
    found = json.loads(out)
    assert found["noise"]["value"]["n"] == 2
    assert found["noise"]["value"]["value"] > 1
    _, listed, _ = call("list", "runs", "--store", tmp_path / "made", "--json")
    assert len(json.loads(listed)) == 4
    _, again, err = call(*words, "--json")
    assert "2 wanted · 2 done · 0 to go" in err
    assert json.loads(again)["noise"] == found["noise"]


def test_runs_that_are_there_are_read_with_those_that_missed_censored(call, store):
    code, out, _ = call("analyze", "batch-size", "digits", "--store", store, "--json")
    assert code == 0
    found = json.loads(out)
    assert [point["size"] for point in found["points"]] == [32, 128, 512]
    assert found["critical"]["fit"]["censored"] == 1
    assert found["critical"]["fit"]["n"] == 9
    assert found["largest"] == 512


def test_the_answer_is_printed_first_then_tables_then_what_is_missing(call, store):
    code, out, _ = call("analyze", "batch-size", "--store", store, "--wide")
    assert code == 0
    places = [out.index(word) for word in ("shortest time", "Batch size of digits", "How far a larger batch")]
    assert places == sorted(places)
    assert "the largest batch size that still converges: 512, where 2/3 [21, 94 %]" in out


@needs_matplotlib
def test_files_have_the_table_the_critical_size_and_the_figure(call, store, tmp_path):
    words = ("--csv", tmp_path / "b.csv", "--markdown", tmp_path / "b.md", "--plot", tmp_path / "b.svg")
    code, _, _ = call("analyze", "batch-size", "--store", store, *words)
    assert code == 0
    with (tmp_path / "b.csv").open() as file:
        assert [row["batch"] for row in csv.DictReader(file)] == ["32", "128", "512"]
    assert "critical batch size" in (tmp_path / "b-critical.csv").read_text()
    assert "critical batch size" in (tmp_path / "b.md").read_text()
    assert (tmp_path / "b.svg").read_text().startswith("<?xml")


def test_runs_that_all_miss_get_an_answer_and_no_number(call, store):
    code, out, _ = call("analyze", "batch-size", "--store", store, "--target", "0.99")
    assert code == 4
    assert "no run of 9 reached the target, so there is no critical batch size" in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("digits", "--sizes", "64"), "it takes two sizes or more"),
        (("digits", "--sizes", "64,64"), "it takes two sizes or more"),
        (("digits", "--sizes", "64,big"), "'big' is not a batch size"),
        (("digits", "--sizes", "0,64"), "'0' is not a batch size"),
        (("--sizes", "32,64"), "none is named"),
        (("digits", "spam", "--sizes", "32,64"), "2 are named"),
        (("digits", "--tune", "3"), "--tune without --sizes"),
        (("digits", "--sizes", "32,64", "--batch-setting", "size"), "no setting 'size'"),
        (("digits", "--sizes", "32,64", "--lr-setting", "rate"), "no setting 'rate'"),
        (("digits", "--sizes", "32,64", "--plot", "a.doc"), ".svg"),
    ],
)
def test_words_that_cannot_be_meant_are_refused_before_anything_runs(call, tmp_path, words, said):
    code, _, err = call("analyze", "batch-size", *words, "--store", tmp_path / "none")
    assert code == 2
    assert said in " ".join(err.split())
    assert not (tmp_path / "none").exists()


def test_runs_of_one_size_are_told_how_to_vary_it(call, store):
    code, _, err = call("analyze", "batch-size", "digits[batch=32]", "--store", store)
    assert code == 2
    assert "analyze batch-size digits --sizes" in " ".join(err.split())
