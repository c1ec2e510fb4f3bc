"""``levelbench run`` for real: small trainings in processes of their own.

A training takes seconds, and what is said of its record does not: the trainings are made once (``made``,
``fixed_length``), and each test that reads them gets a copy of their store, so that a run it adds is its own.
"""

import json
import re
import shutil

import pytest

from levelbench.training import datasets

pytestmark = [pytest.mark.sampled(3), pytest.mark.usefixtures("undrawn")]

PROMISED = (
    "id task recipe framework seed status reached time_to_accuracy_s epochs_to_target samples_to_target "
    "time_per_step_s phases_s quality peak_memory_bytes energy_j environment"
)
BOTH = ("run", "digits[framework=numpy]", "digits[framework=torch]")


@pytest.fixture(scope="module")
def needs_torch(warm_torch):
    pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture(scope="module")
def made(call_once, tmp_path_factory):
    """A store in which ``digits`` ran twice on NumPy, and what the command ended in."""
    store = tmp_path_factory.mktemp("made")
    return store, call_once(
        "run", "digits", "--framework", "numpy", "-n", "2", "--store", store, "--json", "--no-report"
    )


@pytest.fixture
def store(made, tmp_path):
    """A copy of the store with two runs on NumPy."""
    return shutil.copytree(made[0], tmp_path / "store")


@pytest.fixture(scope="module")
def compared(call_once, made, tmp_path_factory, needs_torch):
    """A copy of ``made`` to which two runs on another framework came, and what the command ended in."""
    store = shutil.copytree(made[0], tmp_path_factory.mktemp("compared") / "store")
    return store, call_once(*BOTH, "-n", "2", "--store", store)


@pytest.fixture(scope="module")
def fixed_length(call_once, made, tmp_path_factory):
    """A copy of ``made`` to which two runs of a schedule of fixed length came, and what that command ended in."""
    store = shutil.copytree(made[0], tmp_path_factory.mktemp("fixed") / "store")
    return store, call_once("run", "digits[recipe=onecycle]", "--framework", "numpy", "-n", "2", "--store", store)


def test_two_frameworks_are_compared_in_one_command(compared):
    tmp_path, (code, out, _) = compared
    assert code == 0
    assert "4 wanted · 2 done · 2 to go" in out
    table = [line for line in out.splitlines() if not line.startswith(("1/2", "2/2"))]  # those tell of the progress
    assert sum(line.count("2/2") for line in table) == 2
    assert "digits[framework=torch] takes " in out
    assert "n = 2 + 2" in out
    assert "why: " in out
    (report,) = tmp_path.glob("report-digits-mlp-????????.html")
    assert f"report: {report}" in out
    assert "digits[framework=torch]" in report.read_text()


def reports(store):
    return [path.name for path in sorted(store.glob("report-*.html"))]


def test_the_reports_of_two_recipes_do_not_overwrite_each_other(call, fixed_length, tmp_path):
    store = shutil.copytree(fixed_length[0], tmp_path / "store")
    call("run", "digits", "--framework", "numpy", "-n", "2", "--store", store)
    assert [name.rpartition("-")[0] for name in reports(store)] == ["report-digits-mlp", "report-digits-onecycle"]


def test_the_same_comparison_again_writes_the_same_report(call, fixed_length, tmp_path):
    store = shutil.copytree(fixed_length[0], tmp_path / "store")
    (before,) = reports(store)
    call("run", "digits[recipe=onecycle]", "--framework", "numpy", "-n", "2", "--store", store)
    assert reports(store) == [before]


def test_as_json_each_run_has_what_is_promised(call, compared, tmp_path):
    store = shutil.copytree(compared[0], tmp_path / "store")
    code, out, _ = call(*BOTH, "-n", "2", "--store", store, "--json", "--no-report")
    found = json.loads(out)
    assert code == 0
    assert [run["seed"] for run in found["runs"]] == [0, 1, 0, 1]
    for run in found["runs"]:
        assert set(PROMISED.split()) <= set(run)
        assert run["reached"] is True
        assert run["status"] == "done"
        assert run["time_to_accuracy_s"] == pytest.approx(sum(run["phases_s"].values()))
        assert run["samples_to_target"] == run["epochs_to_target"] * 1079
        assert set(run["quality"]) == {"validation", "test"}
        assert run["peak_memory_bytes"] > 1e6
    assert found["comparisons"][0]["attribution"]["samples_ratio"] == pytest.approx(1)


def test_the_same_command_again_runs_nothing_and_says_the_same(call, made):
    words = ("run", "digits", "--framework", "numpy", "-n", "2", "--store", made[0], "--json", "--no-report")
    first, again = json.loads(made[1][1]), json.loads(call(*words)[1])
    assert (first["plan"]["run"], again["plan"]["run"]) == (2, 0)
    assert first["runs"] == again["runs"] != []


def test_more_runs_add_to_those_that_are_done(call, store):
    words = ("run", "digits", "--framework", "numpy", "--store", store, "--json", "--no-report")
    found = json.loads(call(*words, "-n", "3")[1])
    assert found["plan"] == {"wanted": 3, "done_before": 2, "run": 1}
    assert [run["seed"] for run in found["runs"]] == [0, 1, 2]


def test_a_missed_target_ends_in_1_and_is_shown_as_missed(call, tmp_path):
    code, out, _ = call(
        "run", "digits", "--framework", "numpy", "-n", "1", "--target", "0.999", "--epochs", "2", "--store", tmp_path
    )
    assert code == 1
    assert "0/1" in out
    assert re.search(r"missed after [\d.]+ s \(all epochs done\)", out)


def test_one_run_gives_a_number_and_no_verdict(call, compared, tmp_path):
    store = shutil.copytree(compared[0], tmp_path / "store")
    code, out, _ = call(*BOTH, "-n", "1", "--store", store, "--no-report")
    assert code == 0
    assert "a verdict needs 3 or more of each" in out
    assert not any(verdict in out for verdict in ("FASTER", "SLOWER", "SAME"))


def test_a_schedule_of_fixed_length_is_tested_over_its_runs(fixed_length):
    out = fixed_length[1][1]
    assert "at the end is" in out
    assert "one-sided t test" in out


def test_recipes_can_be_listed_with_commas(call, fixed_length):
    words = ("run", "digits", "--recipe", "mlp,onecycle", "--framework", "numpy", "-n", "2", "--no-report")
    out = call(*words, "--store", fixed_length[0])[1]
    assert "4 wanted · 4 done · 0 to go" in out
    assert "digits[recipe=onecycle" in out
    assert "n = 2 + 2" in out


@pytest.fixture
def adding(tmp_path, monkeypatch):
    """A file that adds recipes of the given names to digits, a task of this process."""
    from levelbench.tasks import digits

    for name in ("_recipes", "_factors"):
        monkeypatch.setattr(digits.task, name, dict(getattr(digits.task, name)))

    def make(*names):
        path = tmp_path / "my_recipes.py"
        recipes = (
            f"@task.recipe\ndef {name}(lr: float = 0.02) -> Recipe:\n    return mlp(16, 64, lr)\n" for name in names
        )
        path.write_text("from levelbench.tasks.digits import Recipe, mlp, task\n\n" + "\n".join(recipes))
        return path

    return make


@pytest.mark.slow
def test_the_recipes_that_a_file_adds_are_what_is_run_and_their_label_says_so(call, adding, tmp_path):
    words = ("--framework", "numpy", "-n", "1", "--epochs", "1", "--store", tmp_path / "s", "--no-report", "--json")
    path = adding("wide", "slim")
    one = json.loads(call("run", path, "--recipe", "wide", *words)[1])
    assert [group["label"] for group in one["groups"]] == ["digits[recipe=wide]"]
    all_of_them = json.loads(call("run", path, *words)[1])
    assert [run["recipe"] for run in all_of_them["runs"]] == ["wide", "slim"]
    assert all_of_them["plan"]["done_before"] == 1


@pytest.mark.slow
def test_a_budget_in_seconds_ends_a_run(call, tmp_path):
    words = ("run", "digits", "--framework", "numpy", "-n", "1", "--target", "1.0", "--budget", "0.02")
    found = json.loads(call(*words, "--store", tmp_path, "--json", "--no-report")[1])
    assert found["runs"][0]["reached"] is False
    assert found["runs"][0]["given_up_s"] > 0.02


def test_without_the_plot_extra_the_report_is_written_all_the_same(call, store, tmp_path, monkeypatch):
    from levelbench.report import run_figures as figures

    monkeypatch.setattr(figures, "can_draw", lambda: False)
    call("run", "digits", "--framework", "numpy", "-n", "2", "--store", store, "--report", tmp_path / "r.html")
    assert "levelbench[plot]" in (tmp_path / "r.html").read_text()


def test_a_report_that_cannot_be_written_loses_neither_the_table_nor_the_json(call, store, tmp_path):
    (tmp_path / "file").write_text("")
    words = ("run", "digits", "--framework", "numpy", "-n", "2", "--store", store)
    words += ("--report", tmp_path / "file" / "r.html")
    code, out, err = call(*words)
    assert code == 3
    assert "2/2" in out
    assert "error: write" in err
    code, out, _ = call(*words, "--json")
    found = json.loads(out)
    assert code == found["error"]["exit_code"] == 3
    assert len(found["runs"]) == 2


@pytest.mark.slow
def test_what_the_task_raised_is_shown_under_debug(call, tmp_path):
    path = tmp_path / "late.py"
    path.write_text(
        "import sys\n"
        "from levelbench.tasks.digits import task\n"
        "if sys.argv[0].endswith('child.py'):\n    raise RuntimeError('too late')\n"
    )
    words = ("run", path, "--framework", "numpy", "-n", "1", "--store", tmp_path / "s", "--debug")
    code, _, err = call(*words)
    assert code == 2
    assert "too late" in err
    assert 'experiments/child.py", line' in err


def test_as_json_a_schedule_of_fixed_length_has_its_test(call, fixed_length):
    words = ("run", "digits[recipe=onecycle]", "--framework", "numpy", "-n", "2", "--store", fixed_length[0])
    (group,) = json.loads(call(*words, "--json", "--no-report")[1])["groups"]
    assert group["final_test"]["n"] == 2
    assert 0 <= group["final_test"]["p_value"] <= 1


def test_a_corrupt_dataset_is_an_error_in_three_parts(call, tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    for name in (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    ):
        (folder / name).write_bytes(b"\x00\x00\x08\x03 not an image")
    code, _, err = call("run", "fashion-mnist", "--framework", "numpy", "--data", folder, "--store", tmp_path / "s")
    assert code == 3
    assert [line.split(":")[0].strip() for line in err.strip().splitlines()[-3:]] == ["error", "found", "do"]
    assert "Traceback" not in err


def test_a_dataset_that_is_nowhere_names_the_three_ways_to_get_it(call, tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELBENCH_OFFLINE", "1")
    monkeypatch.setenv("LEVELBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LEVELBENCH_DATA", raising=False)
    monkeypatch.setattr(datasets.fashion_mnist, "_packaged", tmp_path / "nowhere")
    code, _, err = call("run", "fashion-mnist", "--framework", "numpy", "--store", tmp_path / "s")
    assert code == 3
    assert "--data" in err
    assert "dataset-fashion-mnist" in err


@pytest.mark.slow
def test_fashion_mnist_trains_for_real(call, tmp_path, needs_torch, monkeypatch):
    monkeypatch.setenv("LEVELBENCH_OFFLINE", "1")  # a test downloads nothing
    if lacking := datasets.fashion_mnist.lacks():
        pytest.skip(lacking)
    words = ("run", "fashion-mnist[recipe=cnn,channels=2,hidden=16]", "--framework", "torch", "-n", "1")
    found = json.loads(
        call(
            *words,
            "--epochs",
            "1",
            "--crossing",
            "first",
            "--target",
            "0.75",
            "--store",
            tmp_path,
            "--json",
            "--no-report",
        )[1]
    )
    (run,) = found["runs"]
    assert run["reached"] is True
    assert run["samples_to_target"] == 50_000
    assert 0.75 < run["quality"]["test"] < 0.95


def test_another_clock_reads_the_runs_there_are_and_makes_none(call, store):
    words = ("run", "digits", "--framework", "numpy", "-n", "2", "--store", store, "--json", "--no-report")
    found = json.loads(call(*words, "--clock", "dawnbench")[1])
    assert found["plan"]["run"] == 0
    for run in found["runs"]:
        assert run["clock"] == "dawnbench"
        assert run["excluded_s"]["evaluate"] > 0
        whole = run["time_to_accuracy_s"] + sum(run["excluded_s"].values())
        assert whole == pytest.approx(sum(run["phases_s"].values()))


@pytest.mark.slow
def test_until_clear_goes_on_until_the_verdict_is_clear_and_says_how_it_stands(call, tmp_path):
    words = ("run", "digits[lr=0.1]", "digits[lr=0.0005]", "--framework", "numpy", "--target", "0.8", "--no-report")
    code, out, err = call(*words, "--until-clear", "--store", tmp_path / "store", "--json")
    assert code == 0
    verdict = json.loads(out)["comparisons"][0]["verdict"]
    assert verdict["kind"] == "SLOWER"
    assert verdict["n_a"] == verdict["n_b"] >= 5
    assert verdict["level"] > 0.95
    assert "after 5 runs each: digits[lr=0.0005]" in err


@pytest.mark.slow
def test_a_verdict_that_is_still_unclear_when_the_budget_is_spent_is_exit_code_4(call, tmp_path):
    arms = ("digits[lr=0.1,hidden=64]", "digits[lr=0.1,hidden=65]")
    words = ("--framework", "numpy", "--target", "0.5", "--no-report", "--store", tmp_path, "--budget", "0.01")
    for more, expected in (((), 4), (("--fail-on", "missed"), 0)):
        code, out, _ = call("run", *arms, *words, "--until-clear", *more)
        assert ("UNCLEAR" in out, code) == (True, expected)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("digits", "--until-clear"), "a verdict compares two"),
        (("digits", "--effect", "0.1"), "add --until-clear"),
        (("digits", "digits[lr=0.2]", "--until-clear", "-n", "5"), "leave -n out"),
        (("digits", "digits[lr=0.2]", "--until-clear", "--effect", "0"), "not above zero"),
        (("digits", "digits[lr=0.2]", "--until-clear", "--budget", "soon"), "impossible time"),
    ],
)
def test_until_clear_asks_for_what_it_needs(call, tmp_path, words, found):
    code, _, err = call("run", *words, "--store", tmp_path)
    assert code == 2
    assert found in err.lower() or found in err


ENDS_ITSELF = """
import os
import signal
import time
from pathlib import Path

from levelbench.networks import zoo
from levelbench.tasks.digits import task
from levelbench.training import Momentum, Recipe, Shuffled

ONCE = Path(__file__).with_name("once")
SLOW = []


class Ends(Momentum):
    def update(self, parameter, gradient, state, step, lr):
        if step == 50 and not ONCE.exists():
            ONCE.touch()
            SLOW.append(step)
            time.sleep(3.0)
        if step == 60 and SLOW:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().update(parameter, gradient, state, step, lr)


@task.recipe
def ends(epochs: int = 60) -> Recipe:
    return Recipe(zoo.mlp(64, 128, 10), Shuffled(64), Ends(0.02, 0.9), epochs=epochs)
"""


@pytest.mark.slow
def test_a_run_that_was_killed_and_made_again_in_less_time_is_a_doubt(call, adding, store, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "ends.py").write_text(ENDS_ITSELF)
    words = (
        "run",
        "digits",
        tmp_path / "mine" / "ends.py",
        "-n",
        "3",
        "--framework",
        "numpy",
        "--store",
        store,
        "--no-report",
    )
    call(*words)
    out = call(*words)[1]
    assert "1 run of digits[recipe=ends" in out
    assert "was interrupted and not counted" in out


@pytest.mark.parametrize(
    ("item", "option"),
    [
        ("digits[framework=numpy]", ("--framework", "nmpy")),
        ("digits[recipe=mlp]", ("--recipe", "onecycle")),
        ("digits[target=0.9]", ("--target", "0.8")),
    ],
)
def test_an_option_that_the_brackets_of_all_tasks_overrule_is_refused(call, tmp_path, item, option):
    code, _, err = call("run", item, *option, "-n", "1", "--store", tmp_path)
    assert code == 2
    assert f"error: {' '.join(option)}" in err
    assert "in brackets" in err


@pytest.mark.parametrize(
    ("variables", "engine"),
    [
        ({"TORCHELASTIC_RUN_ID": "x", "RANK": "1", "WORLD_SIZE": "2"}, "torchrun"),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, "mpi"),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "mpi"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "scale"])
def test_a_launcher_that_starts_the_command_once_for_each_rank_is_refused(
    call, tmp_path, monkeypatch, verb, variables, engine
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    code, _, err = call(verb, "digits", "--store", tmp_path)
    assert code == 2
    assert f"levelbench {verb} as rank 1 of 2" in err
    assert f"levelbench {verb} ... --ranks 2 --engine {engine}" in err
    assert list(tmp_path.rglob("*.jsonl")) == []


@pytest.mark.parametrize(("tasks", "found"), [("2", "3 ranks on 2 nodes"), ("3", "levelbench run as rank 0 of 3")])
def test_srun_may_start_the_command_once_on_each_node_of_torchrun(call, tmp_path, monkeypatch, tasks, found):
    pytest.importorskip("torch")
    for name, value in {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": tasks}.items():
        monkeypatch.setenv(name, value)
    engine = "torchrun[nodes=2,rendezvous=node1:29400]"
    code, _, err = call("run", "digits", "--ranks", "3", "--engine", engine, "--store", tmp_path)
    assert code == 2
    assert f"error: {found}" in err


def test_a_launcher_of_one_rank_and_a_clusters_names_for_machines_are_fine(call, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "1")
    _, _, err = call("run", "digits", "-n", "1", "--framework", "numpy", "--epochs", "1", "--store", tmp_path)
    assert "as rank" not in err
    assert len(list(tmp_path.rglob("*.jsonl"))) == 1


@pytest.mark.slow
def test_fewer_runs_than_another_command_asked_for_are_no_missing_runs(call, tmp_path):
    words = ("--framework", "numpy", "--store", tmp_path, "--no-report")
    call("run", "digits[lr=0.3]", "-n", "3", *words)
    _, out, _ = call("run", "digits[lr=0.3]", "digits[lr=0.4]", "-n", "2", *words)
    assert "2 wanted" not in out
    assert "runs were asked for by one command" not in out


@pytest.mark.parametrize("window", [("-n", "1"), ("--seed", "1", "-n", "1")])
def test_a_part_of_the_runs_that_there_are_is_a_doubt(call, store, window):
    words = ("run", "digits", "--framework", "numpy", "--store", store, "--no-report")
    assert "1 of 2 runs of digits was selected: select all of them" in call(*words, *window)[1]
    assert "selected" not in call(*words, "-n", "2")[1]


@pytest.mark.slow
def test_a_verdict_on_a_part_of_the_runs_that_there_are_carries_the_doubt(call, tmp_path):
    words = ("run", "digits[lr=0.3]", "digits[lr=0.4]", "--framework", "numpy", "--store", tmp_path, "--no-report")
    assert "selected" not in call(*words, "-n", "2")[1] + call(*words, "-n", "4")[1]
    found = json.loads(call(*words, "--seed", "1", "-n", "3", "--json")[1])
    assert found["plan"]["run"] == 0
    (comparison,) = found["comparisons"]
    assert "3 of 4 runs of digits[lr=0.3] were selected" in json.dumps(comparison)


def test_epochs_in_brackets_and_others_as_an_option_are_refused(call, tmp_path):
    words = ("--epochs", "5", "--framework", "numpy", "-n", "1", "--store", tmp_path)
    code, _, err = call("run", "digits[epochs=1]", *words)
    assert code == 2
    assert "digits has epochs=1 in brackets" in err
    assert call("run", "digits[epochs=5]", *words)[0] in (0, 1)
