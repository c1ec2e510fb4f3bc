"""``levelbench tune``: trials under one budget, the winners on fresh seeds, what the store and a claim know of it.

The training itself is replaced by its records: the time depends on the settings as a valley in the learning rate.
"""

import json
import math
import os
import signal
import subprocess
import sys
import time

import msgspec
import pytest
from tests.cli.test_analyze_verb import MS, record_of

from levelbench.experiments.training import Finished
from levelbench.measure.environment import capture
from levelbench.records import RecordWriter, Store
from levelbench.records.searches import find_searches, trial_ids

TASK = '''
"""Two ways to train, to be tuned."""
from levelbench.networks import zoo
from levelbench.training import Adam, Momentum, Recipe, Shuffled, Task, Top1, datasets

task = Task("study", data=datasets.digits, quality=Top1(target=0.9))


@task.recipe
def momentum(lr: float = 0.05, momentum: float = 0.9) -> Recipe:
    """Small."""
    return Recipe(zoo.mlp(64, 8, 10), Shuffled(64), Momentum(lr, momentum), epochs=60)


@task.recipe
def adam(lr: float = 0.001) -> Recipe:
    """Small."""
    return Recipe(zoo.mlp(64, 8, 10), Shuffled(64), Adam(lr), epochs=60)
'''


@pytest.fixture(scope="module")
def machine():
    return capture()


@pytest.fixture
def study(tmp_path, monkeypatch, machine):
    path = tmp_path / "study.py"
    path.write_text(TASK)
    jobs = []

    def launch(job, on_progress=None, starter=None):
        jobs.append(job)
        settings = job.specification.settings
        valley = -2 if job.specification.recipe == "adam" else -1
        seconds = launch.factor[job.specification.recipe] * (1 + abs(math.log10(settings["lr"]) - valley))
        luck = 1 + 0.2 * math.sin(5 * job.seed + settings["lr"] * 1e4 * (job.seed == 0)) + 0.004 * math.cos(seconds)
        return Finished(record_of(job, round(seconds * luck * 1000) * MS, machine), None)

    launch.factor = {"adam": 6.0, "momentum": 10.0}
    monkeypatch.setattr("levelbench.experiments.training.launch", launch)
    words = ("tune", f"{path}[recipe=momentum]", "--space", "lr=log(1e-4,1)", "--framework", "numpy")
    return path, jobs, launch, (*words, "--store", tmp_path / "s", "--trials", 8, "-n", 3)


def against(path):
    return "--against", f"{path}[recipe=adam]"


@pytest.mark.slow
def test_both_sides_get_as_many_trials_in_turns_and_the_winners_meet_on_fresh_seeds(study, call):
    path, jobs, _, words = study
    code, out, _ = call(*words, *against(path), "--json")
    found = json.loads(out)
    assert code == 0
    trials, fresh = jobs[:16], jobs[16:]
    assert {job.seed for job in trials} == {0}
    assert [
        {a.specification.recipe, b.specification.recipe} for a, b in zip(trials[::2], trials[1::2], strict=True)
    ] == [{"adam", "momentum"}] * 8
    assert sorted({job.seed for job in fresh}) == [1, 2, 3]
    assert len(fresh) == 6
    for side in found["sides"]:
        assert len(side["trials"]) == 8
        assert side["best"]["time_s"] == min(trial["time_s"] for trial in side["trials"])
        winner = side["best"]["settings"]["lr"]
        assert winner in {job.specification.settings["lr"] for job in fresh}
    assert found["comparison"]["verdict"]["kind"] == "FASTER"


@pytest.mark.slow
def test_the_answer_states_budget_trials_settings_and_time(study, call):
    path, _, _, words = study
    _, out, _ = call(*words, *against(path), "--budget", "10min")
    assert "FASTER" in out
    assert "budget of each side: 8 trials, or 600 s" in out
    assert "objective: time to the target" in out
    assert "on fresh seeds" in out
    assert out.count("lr=log(0.0001,1.0)") >= 2


@pytest.mark.slow
def test_one_side_is_tuned_alone(study, call):
    _, jobs, _, words = study
    code, out, _ = call(*words)
    assert code == 0
    assert len(jobs) == 8 + 3
    assert "reached the target in 3 of 3 runs on fresh seeds" in out
    assert all(f"trial {number}/8 " in out for number in range(1, 9))


@pytest.mark.slow
def test_the_same_command_makes_no_trial_twice_and_more_trials_go_on(study, call):
    path, jobs, _, words = study
    _, before, _ = call(*words, *against(path), "--json")
    call(*words, *against(path))
    assert len(jobs) == 22
    _, after, _ = call(*words, *against(path), "--trials", 10, "--json")
    assert len(jobs) in (26, 29, 32)  # new trials, and the runs of winners that are new
    first, second = json.loads(before)["sides"][0]["trials"], json.loads(after)["sides"][0]["trials"]
    assert second[:8] == first


@pytest.mark.slow
def test_a_budget_in_seconds_ends_each_side_when_its_own_is_spent(study, call):
    path, _, launch, words = study
    launch.factor = {"adam": 10.0, "momentum": 30.0}
    _, out, _ = call(*words, *against(path), "--budget", "90", "--json")
    found = json.loads(out)
    for side in found["sides"]:
        if side["ended"] == "budget":
            assert side["spent_s"] >= 90
            assert side["spent_s"] - side["trials"][-1]["spent_s"] < 90
        else:
            assert len(side["trials"]) == 8
    assert found["sides"][0]["ended"] == "budget"


@pytest.mark.slow
def test_where_no_trial_arrives_the_final_quality_decides_and_nothing_is_claimed(study, call):
    _, jobs, _, words = study
    code, out, _ = call(*words, "--target", 0.99)
    assert code == 4
    assert "none of the 8 trials" in out
    assert len(jobs) == 11


@pytest.mark.slow
def test_the_claim_knows_the_budget_and_all_trials(study, call, tmp_path):
    path, _, _, words = study
    call(*words, *against(path))
    (search,) = find_searches(tmp_path / "s")
    assert [len(side.trials) for side in search.sides] == [8, 8]
    assert {each.header.id for each in Store(tmp_path / "s").records()} >= {*search.sides[0].trials}
    _, out, _ = call("lint", "study", "--store", tmp_path / "s", "--select", "LB103,LB132", "--json")
    (claim,) = json.loads(out)["claims"]
    assert [each for each in claim["findings"] if "source" not in each["field"]] == []


@pytest.mark.slow
def test_runs_beside_the_search_are_still_hidden_tuning(study, call, tmp_path):
    path, _, _, words = study
    call(*words)
    for lr in range(1, 10):
        call("run", f"{path}[recipe=momentum,lr=0.7{lr}]", "--framework", "numpy", "--store", tmp_path / "s", "-n", 1)
    winner = next(find_searches(tmp_path / "s")).sides[0].winner
    _, out, _ = call("lint", f"study[key={winner}]", "--store", tmp_path / "s", "--select", "LB103")
    assert "LB103" in out
    assert "9 runs" in out
    assert "besides the 8 trials of tuning" in out


@pytest.mark.slow
@pytest.mark.parametrize("words", [("analyze", "stability"), ("compare",), ("report", "--json")])
def test_the_trial_that_won_does_not_count_as_a_run_of_the_winner(study, call, tmp_path, words):
    call(*study[3])
    side = next(find_searches(tmp_path / "s")).sides[0]
    runs = f"study[key={side.winner}]"
    lost = next(each for each in Store(tmp_path / "s").records() if each.header.key != side.winner)
    _, out, err = call(*words, runs, f"study[id={lost.header.id}]", "--store", tmp_path / "s")
    assert "4/4" not in out
    assert "note: 1 trial of tuning left out" in err
    assert {run.seed for run in Store(tmp_path / "s").summaries(runs)} == {1, 2, 3}


@pytest.mark.slow
def test_run_makes_the_seed_of_the_trial_that_won_and_the_search_still_finds_the_trial(study, call, tmp_path):
    path, jobs, _, words = study
    _, before, _ = call(*words, "--json")
    best = json.loads(before)["sides"][0]["best"]
    again = f"{path}[recipe=momentum,lr={best['settings']['lr']}]"
    _, out, _ = call("run", again, "--framework", "numpy", "--store", tmp_path / "s", "-n", 4)
    assert "4 wanted · 3 done · 1 to go" in out
    _, after, _ = call(*words, "--json")
    assert json.loads(after)["sides"][0]["trials"] == json.loads(before)["sides"][0]["trials"]
    assert len(jobs) == 8 + 3 + 1


@pytest.mark.slow
def test_a_search_makes_its_own_trial_of_settings_that_ran_before_and_those_stay_runs(study, call, tmp_path):
    path, jobs, _, words = study
    space = ("tune", f"{path}[recipe=momentum]", "--space", "lr=choice(0.05,0.1)", *words[4:], "--trials", 2)
    runs = f"{path}[recipe=momentum,lr=0.05]"
    call("run", runs, "--framework", "numpy", "--store", tmp_path / "s", "-n", 3)
    call(*space)
    assert [job.seed for job in jobs] == [0, 1, 2, 0, 0, 1, 2, 3]
    tried = trial_ids(list(find_searches(tmp_path / "s")))
    assert tried == {job.id for job in jobs[3:5]}
    assert {run.seed for run in Store(tmp_path / "s").summaries("study[lr=0.05]")} == {0, 1, 2}


@pytest.mark.slow
def test_a_run_on_a_fresh_seed_stays_one_when_a_later_search_tries_its_seed(study, call, tmp_path):
    path, jobs, _, words = study
    space = ("tune", f"{path}[recipe=momentum]", "--space", "lr=choice(0.05,0.1)", *words[4:], "--trials", 2)
    call(*space)
    fresh = {job.id for job in jobs[2:]}
    call(*space, "--seed", 1)
    assert not fresh & trial_ids(list(find_searches(tmp_path / "s")))
    made = len(jobs)
    call(*space)
    assert len(jobs) == made


@pytest.mark.slow
def test_runs_say_with_which_seed_their_command_began_and_which_are_trials(study, call):
    _, jobs, _, words = study
    call(*words)
    assert [job.first for job in jobs[:8]] == [{"first_seed": 0, "trial": True}] * 8
    assert [job.first for job in jobs[8:]] == [{"first_seed": 1}] * 3


@pytest.mark.slow
def test_an_interrupted_attempt_at_a_trial_that_was_made_is_no_run_that_was_left_out(study, call, tmp_path):
    _, jobs, _, words = study
    _, before, _ = call(*words, "--json")
    best = json.loads(before)["sides"][0]["best"]
    won = next(job for job in jobs if job.specification.settings["lr"] == best["settings"]["lr"])
    store = Store(tmp_path / "s")
    trial = next(each for each in store.records() if each.header.id == won.id)
    attempt = msgspec.structs.replace(trial.header, id="0" * 16)
    with RecordWriter.create(store.path, attempt):
        pass
    call(*words)
    assert attempt.id in trial_ids(list(find_searches(store.path)))
    runs = f"study[key={won.key}]"
    _, out, _ = call("lint", runs, "--store", store.path)
    assert "not counted" not in out
    assert {run.seed for run in store.summaries(runs)} == {1, 2, 3}


@pytest.mark.slow
def test_a_failed_trial_is_an_outcome_and_is_not_repeated(study, call, monkeypatch):
    path, jobs, launch, words = study
    from levelbench.errors import LevelbenchError
    from levelbench.records import SCHEMA, End, Header, RecordWriter
    from levelbench.records.schema import Source

    def failing(job, on_progress=None, starter=None):
        if job.specification.settings["lr"] < 1e-2 and job.seed == 0:
            jobs.append(job)
            header = Header(
                SCHEMA, job.id, job.key, 0, "2026-01-02T03:00:05.000+00:00", job.specification, {},
                Source("study", job.source, path.read_text()), "0",
            )  # fmt: skip
            with RecordWriter.create(Store(job.store).path, header) as writer:
                writer.append(End("failed", MS, {"forward": MS}, {}, error="ValueError"))
            return Finished(writer.path, LevelbenchError("a run", "it broke", "fix it"))
        return launch(job)

    monkeypatch.setattr("levelbench.experiments.training.launch", failing)
    code, out, _ = call(*words, "--json")
    trials = json.loads(out)["sides"][0]["trials"]
    assert code == 0
    assert {trial["failed"] for trial in trials} == {True, False}
    made = len(jobs)
    call(*words)
    assert len(jobs) == made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--trials", 1), "at least two"),
        (("--space", "speed=log(1,2)"), "speed"),
        (("--space", "momentum=uniform(0,2)"), "does not accept momentum=2"),
        (("--space-against", "lr=log(1,2)"), "no other side"),
        (("--against", "digits"), "they aim at"),
        (("--against", "digits", "--against", "charlm"), "name one: two sides are compared at a time"),
        (("--budget", "soon"), "impossible time"),
        (("--sampler", "grid"), "sampler"),
    ],
)
def test_what_cannot_be_a_search_is_refused_before_a_run(study, call, words, found):
    _, jobs, _, command = study
    code, _, err = call(*command, *words)
    assert code == 2
    assert found in err
    assert jobs == []


@pytest.mark.slow
def test_two_equal_sides_and_a_space_smaller_than_the_trials_are_refused(study, call):
    path, jobs, _, words = study
    code, _, err = call(*words, "--against", f"{path}[recipe=momentum]")
    assert (code, "both are the same" in err) == (2, True)
    code, _, err = call("tune", path, "--space", "lr=choice(0.1,0.2)", "--framework", "numpy", "--trials", 3)
    assert (code, "has 2 settings" in err) == (2, True)
    assert jobs == []


@pytest.mark.slow
def test_tables_and_the_figure_are_written(study, call, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    path, _, _, words = study
    files = {name: tmp_path / f"t.{name}" for name in ("csv", "md", "svg")}
    call(*words, *against(path), "--csv", files["csv"], "--markdown", files["md"], "--plot", files["svg"])
    assert len((tmp_path / "t-trials.csv").read_text().splitlines()) == 17
    assert "| trial |" in files["md"].read_text()
    assert "<svg" in files["svg"].read_text()


@pytest.mark.slow
def test_killed_it_goes_on_without_a_trial_lost_or_doubled(tmp_path):
    command = [
        sys.executable, "-m", "levelbench", "tune", "digits", "--space", "lr=log(1e-3,0.1)", "--trials", "4", "-n", "1",
        "--framework", "numpy", "--epochs", "3", "--store", str(tmp_path), "--json",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    for _ in range(2400):
        if sum(row.status == "done" for row in Store(tmp_path).rows()) >= 2:
            break
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    done = {row.id for row in Store(tmp_path).rows() if row.status == "done"}
    again = subprocess.run(command, capture_output=True, timeout=240, check=False)
    trials = json.loads(again.stdout)["sides"][0]["trials"]
    rows = [row for row in Store(tmp_path).rows() if row.status == "done"]
    assert done <= {row.id for row in rows}
    assert sum(row.seed == 0 for row in rows) == len(trials) == 4
    assert len({str(trial["settings"]) for trial in trials}) == 4
