"""Whole campaigns in processes of their own: resumed, interleaved, killed."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter

import msgspec
import pytest
from tests.warm import WARM

from levelbench.errors import LevelbenchError, UsageError
from levelbench.measure.environment import capture
from levelbench.records import Store, new_id, read_record, summarise
from levelbench.runner.campaign import Extras, carry_out
from levelbench.runner.jobs import Job
from levelbench.runner.launch import launch
from levelbench.runner.plan import Step, make_plan
from levelbench.runner.request import Options, resolve
from levelbench.training.checkpoints import checkpoint_of

HERE = capture()
NUMPY = Options(framework="numpy")


class Quiet:
    def __init__(self):
        self.order = []

    def started(self, step, arm):
        self.order.append((step.arm, step.seed))

    def progress(self, events, elapsed_s, phase):
        pass

    def finished(self, step, arm, finished, record):
        pass


def plan_of(arms, seeds, store, environment=HERE, **options):
    return make_plan(arms, seeds, store, environment, **options)


def losses(record):
    return [each.loss for each in record.evaluations]


@pytest.fixture
def arm(task_file):
    return resolve(str(task_file), {}, NUMPY)


@pytest.fixture(scope="module")
def done_once(tmp_path_factory, task_text):
    """A task's file, and a store with its run of seed 0: a run takes a second, and to look at it takes none."""
    folder = tmp_path_factory.mktemp("done")
    (folder / "my_task.py").write_text(task_text)
    store = Store(folder / "store")
    carry_out(plan_of([resolve(str(folder / "my_task.py"), {}, NUMPY)], range(1), store), store, None, Quiet())
    return folder


@pytest.fixture
def done(done_once, tmp_path):
    """That task's file, and a copy of its store."""
    return done_once / "my_task.py", Store(shutil.copytree(done_once / "store", tmp_path / "store"))


def test_runs_of_two_arms_are_interleaved_and_share_their_seeds(task_file, store):
    arms = [resolve(str(task_file), {"lr": lr}, NUMPY) for lr in (0.05, 0.1)]
    steps = plan_of(arms, range(4), store).steps
    assert [(step.arm, step.seed) for step in steps] == [(0, 0), (1, 0), (1, 1), (0, 1), (0, 2), (1, 2), (1, 3), (0, 3)]


def test_the_same_run_twice_in_one_command_is_refused(arm, store):
    with pytest.raises(UsageError, match="same specification"):
        plan_of([arm, arm], range(2), store)


def test_what_is_done_is_not_run_again(done):
    task_file, store = done
    arm = resolve(str(task_file), {}, NUMPY)
    first = carry_out(plan_of([arm], range(2), store), store, None, Quiet())
    plan = plan_of([arm], range(3), store)
    assert [step.seed for step in plan.steps] == [2]
    assert {place: record.header.id for place, record in plan.done.items()} == {
        place: record.header.id for place, record in first.items()
    }
    assert plan.lines() == ["3 wanted · 2 done · 1 to go"]


def test_fresh_runs_everything_again(done):
    task_file, store = done
    arm = resolve(str(task_file), {}, NUMPY)
    assert plan_of([arm], range(1), store).steps == ()
    assert len(plan_of([arm], range(1), store, fresh=True).steps) == 1


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"machine": {"id": "another"}}, "recorded on another machine"),
        ({"malloc": {"MALLOC_ARENA_MAX": "1"}}, "recorded with other MALLOC_* settings"),
        (
            {"threads": {"settings": {"OMP_NUM_THREADS": "7"}}},
            "recorded with other settings of threads (OMP_NUM_THREADS and the like)",
        ),
        (
            {"libraries": {**HERE["libraries"], "numpy": "9.9"}},
            f"recorded with numpy {HERE['libraries']['numpy']}, and this is 9.9",
        ),
    ],
)
def test_a_run_made_elsewhere_or_otherwise_does_not_count_and_the_plan_says_why(done, changed, why):
    task_file, store = done
    plan = plan_of([resolve(str(task_file), {}, NUMPY)], range(1), store, environment={**HERE, **changed})
    assert plan.steps == (Step(0, 0, why),)
    assert plan.lines()[1] == f"  again: 1 run (seed 0): {why}"


def test_another_clock_is_another_reading_and_no_new_run(done):
    task_file, store = done
    other = resolve(str(task_file), {}, Options(framework="numpy", clock="dawnbench"))
    assert plan_of([other], range(1), store).steps == ()


class Enough(Exception):
    """What was to be seen has been seen."""


def test_a_run_that_another_process_is_at_is_not_made_twice(arm, store):
    slow = resolve(arm.reference, {"epochs": 100_000, "target": 0.999}, NUMPY)

    def look(events, elapsed_s, phase):
        if phase != "start":
            with pytest.raises(UsageError, match="another process is at this run"):
                plan_of([slow], range(1), store)
            raise Enough

    with pytest.raises(Enough):
        launch(Job(slow.reference, slow.specification, slow.key, 0, new_id(), str(store.path)), look)


def test_a_task_file_that_changes_while_the_runs_are_made_ends_the_campaign(arm, store, task_file):
    plan = plan_of([arm], range(1), store)
    task_file.write_text(task_file.read_text() + "\n# edited\n")
    with pytest.raises(LevelbenchError, match="changed while the runs were made"):
        carry_out(plan, store, None, Quiet())


def test_a_task_that_leaves_with_code_0_has_not_done_its_run(arm, store, task_file):
    task_file.write_text(
        task_file.read_text().replace(
            "return Recipe(",
            "import os, sys\n    if os.getppid() != 1 and 'child' in "
            "' '.join(sys.orig_argv):\n        sys.exit(0)\n    return Recipe(",
        )
    )
    arm = resolve(str(task_file), {}, NUMPY)
    with pytest.raises(LevelbenchError, match="before the run was done"):
        carry_out(plan_of([arm], range(1), store), store, None, Quiet())


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
def test_a_run_does_not_outlive_a_parent_that_is_killed(arm, store, tmp_path):
    slow = resolve(arm.reference, {"epochs": 100_000, "target": 0.999}, NUMPY)
    job = Job(slow.reference, slow.specification, slow.key, 0, new_id(), str(store.path))
    (tmp_path / "job.json").write_bytes(msgspec.json.encode(job))
    code = (
        "import msgspec, sys\nfrom levelbench.runner.jobs import Job\nfrom levelbench.runner.launch import launch\n"
        "launch(msgspec.json.decode(open(sys.argv[1], 'rb').read(), type=Job))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "job.json")])
    for _ in range(400):
        if store.rows():
            break
        time.sleep(0.05)
    assert store.rows()[0].status == "running"
    parent.kill()
    parent.wait()
    for _ in range(400):
        if store.rows()[0].status == "interrupted":
            break
        time.sleep(0.05)
    assert store.rows()[0].status == "interrupted"


def test_a_changed_task_file_is_run_again_and_the_plan_says_why(arm, store, task_file):
    carry_out(plan_of([arm], range(1), store), store, None, Quiet())
    task_file.write_text(task_file.read_text() + "\n# changed\n")
    changed = resolve(str(task_file), {}, NUMPY)
    assert changed.key == arm.key
    assert plan_of([changed], range(1), store).steps[0].why == "the task's source has changed since"


def test_a_run_leaves_everything_a_reader_needs(done):
    task_file, store = done
    (record,) = store.records()
    assert (record.status, record.header.seed, record.header.source.text) == ("done", 0, task_file.read_text())
    assert set(record.end.quality) == {"validation", "test"}
    assert record.end.dataset.sizes == {"train": 1079, "validation": 359, "test": 359}
    assert len(record.samples["step_time"].values) == record.evaluations[-1].step
    assert sum(record.end.phases_ns.values()) == record.end.t_ns
    assert record.header.environment["framework"]["name"] == "numpy"
    names = {each.name for each in record.measurements}
    assert {"peak_memory", "energy"} <= names
    assert all(each.value is not None or each.reason for each in record.measurements)


def test_a_fixed_schedule_that_a_budget_cut_short_has_not_reached_whatever_its_last_evaluation(store):
    options = Options(framework="numpy", budget_s=0.3)
    arm = resolve("digits", {"recipe": "onecycle", "epochs": 5000, "target": 0.0}, options)
    record = carry_out(plan_of([arm], [0], store), store, None, Quiet())[0, 0]
    assert record.end.stopped_by == "budget of 0.3 s spent"
    assert record.evaluations[-1].quality["validation"] > 0.05
    run = summarise(record)
    assert (run.reached, run.hopeless) == (False, False)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_equal_seeds_give_equal_bits(task_file, store, framework, warm_torch):
    if framework == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    arm = resolve(str(task_file), {}, Options(framework=framework))
    once = carry_out(plan_of([arm], [3], store), store, None, Quiet())[0, 3]
    # Hashes have another seed in a process that is not forked.
    with WARM.cold():
        again = carry_out(plan_of([arm], [3], store, fresh=True), store, None, Quiet())[0, 3]
    assert once.header.id != again.header.id
    assert losses(once) == losses(again) != []
    assert once.end.quality == again.end.quality


def test_a_recipe_that_raises_is_a_recorded_failure_and_an_error_in_three_parts(task_file, store):
    task_file.write_text(
        task_file.read_text()
        + "\n\n@task.recipe\ndef bad(when: str = 'parts'):\n"
        + "    import os\n    if os.environ.get('LEVELBENCH_TEST_RAISE'):\n        raise KeyError('gone')\n"
        + "    return small()\n"
    )
    arm = resolve(str(task_file), {"recipe": "bad"}, NUMPY)
    os.environ["LEVELBENCH_TEST_RAISE"] = "1"
    try:
        with pytest.raises(LevelbenchError, match="KeyError: 'gone'"):
            carry_out(plan_of([arm], [0], store), store, None, Quiet())
    finally:
        del os.environ["LEVELBENCH_TEST_RAISE"]
    (record,) = store.records()
    assert record.status == "failed"
    assert "KeyError" in record.end.error
    assert plan_of([arm], [0], store).steps[0].why == "the run before failed"


@pytest.mark.usefixtures("cold")
def test_a_run_killed_from_outside_is_told_as_such_and_can_be_resumed(arm, store):
    def kill(events, elapsed_s, phase):
        subprocess.run(["pkill", "-KILL", "-P", str(os.getpid()), "-f", "levelbench.runner.child"], check=False)

    class Killer(Quiet):
        progress = staticmethod(kill)

    slow = resolve(arm.reference, {"epochs": 100_000, "target": 0.999}, NUMPY)
    with pytest.raises(LevelbenchError, match="killed by signal 9") as caught:
        carry_out(plan_of([slow], [0], store), store, None, Killer())
    assert "resume" in caught.value.do
    assert caught.value.exit_code == 3


@pytest.mark.slow
def test_killed_at_random_instants_a_run_loses_nothing_and_resumes_to_the_same_result(task_file, store):
    arm = resolve(str(task_file), {"epochs": 250, "target": 0.999}, NUMPY)
    whole = carry_out(plan_of([arm], [5], store), store, None, Quiet())[0, 5]
    generator, statuses = random.Random(0), Counter()
    for _ in range(6):
        job = Job(arm.reference, arm.specification, arm.key, 5, new_id(), str(store.path))
        _kill_after(job, generator.uniform(-0.2, 0.3))
        for record in store.records(job.id) if _exists(store, job.id) else []:
            statuses[record.status] += 1
            seen = len(record.evaluations)
            # Every whole event is a prefix of the uninterrupted run, bit for bit.
            assert losses(record) == losses(whole)[:seen]
            assert [each.quality for each in record.evaluations] == [e.quality for e in whole.evaluations[:seen]]
    assert statuses["interrupted"] >= 3
    assert store.problems == []
    again = carry_out(plan_of([arm], [5], store, fresh=True), store, None, Quiet())[0, 5]
    assert losses(again) == losses(whole)
    assert again.end.quality == whole.end.quality


def _exists(store, identity):
    return any(row.id == identity for row in store.rows())


def _kill_after(job, seconds):
    """Kill the run so many seconds after its record is there; below zero so many after its start."""
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "levelbench.runner.child", str(write)], stdin=subprocess.PIPE, pass_fds=(write,)
    )
    os.close(write)
    process.stdin.write(msgspec.json.encode(job))
    process.stdin.close()
    if seconds >= 0:
        assert os.read(read, 1)
    time.sleep(abs(seconds))
    process.send_signal(signal.SIGKILL)
    process.wait()
    os.close(read)


def test_a_run_that_was_killed_goes_on_from_its_checkpoint_to_the_same_result(task_file, store):
    arm = resolve(str(task_file), {"epochs": 60, "target": 0.999}, NUMPY)
    extras = Extras(checkpoint="1 epoch")
    job = Job(arm.reference, arm.specification, arm.key, 6, new_id(), str(store.path), checkpoint="1 epoch")
    _kill_after_evaluations(job, store, 3)
    plan = plan_of([arm], [6], store)
    assert [step.resume is not None for step in plan.steps] == [True]
    assert "goes on from its checkpoint" in plan.lines()[1]
    resumed = carry_out(plan, store, None, Quiet(), extras)[0, 6]
    straight = carry_out(plan_of([arm], [6], store, fresh=True), store, None, Quiet(), extras)[0, 6]
    assert not checkpoint_of(straight.path).exists()
    assert losses(resumed) == losses(straight)
    assert resumed.end.quality == straight.end.quality
    assert any("went on from a checkpoint" in doubt for doubt in resumed.end.suspect)
    assert len(resumed.samples["step_time"].values) == resumed.evaluations[-1].step
    assert not list(store.path.rglob("*.npz"))


def _kill_after_evaluations(job, store, count):
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "levelbench.runner.child", str(write)], stdin=subprocess.PIPE, pass_fds=(write,)
    )
    os.close(write)
    process.stdin.write(msgspec.json.encode(job))
    process.stdin.close()
    while True:
        found = list(store.records(job.id)) if _exists(store, job.id) else []
        if found and len(found[0].evaluations) >= count and checkpoint_of(found[0].path).exists():
            break
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    os.close(read)


def test_two_campaigns_on_one_store_lose_nothing(task_file, store):
    arms = [resolve(str(task_file), {"lr": lr}, NUMPY) for lr in (0.05, 0.1)]
    jobs = [
        Job(arm.reference, arm.specification, arm.key, seed, new_id(), str(store.path))
        for arm in arms
        for seed in range(2)
    ]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        finished = list(pool.map(launch, jobs))
    assert all(each.error is None for each in finished)
    assert {record.header.id for record in store.records()} == {job.id for job in jobs}
    assert all(read_record(each.path).status == "done" for each in finished)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_nothing_is_imported_on_the_clock(store, framework):
    if framework == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    arm = resolve("digits", {}, Options(framework=framework))
    job = Job(arm.reference, arm.specification, arm.key, 0, new_id(), str(store.path))
    code = (
        "import msgspec, sys\nfrom levelbench.runner import execution as child\n"
        "job = msgspec.json.decode(sys.stdin.buffer.read(), type=child.Job)\nrun, before = child.Trainer.run, set()\n"
        "start = child.Timeline.__init__\n"
        "def init(self, *a, **k): before.update(sys.modules); start(self, *a, **k)\n"
        "def last(self): out = run(self); print(*sorted(set(sys.modules) - before)); return out\n"
        "child.Timeline.__init__, child.Trainer.run = init, last\nchild.execute(job, lambda message: None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=msgspec.json.encode(job), capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().split() == []
