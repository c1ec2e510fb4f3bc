"""Complete campaigns in separate processes: planned, interleaved, resumed, recorded."""

import dataclasses
import os
import shutil
import subprocess
import sys

import msgspec
import pytest
from tests.experiments.campaigns import HERE, NUMPY, Quiet, carry_out, losses, plan_of
from tests.records.stores import edit
from tests.warm import WARM

from levelbench.errors import LevelbenchError, UsageError
from levelbench.experiments.jobs import Job
from levelbench.experiments.request import Options, TeamOptions, resolve
from levelbench.experiments.training import Finished, launch
from levelbench.records import Evaluation, Store, comparable, group_runs, new_id, read_record, summarise
from levelbench.records.locks import hold

pytestmark = pytest.mark.sampled(2)


@pytest.fixture(scope="module")
def done_once(tmp_path_factory, task_text):
    """A task file and a store with its run of seed 0, made once because a run takes a second."""
    folder = tmp_path_factory.mktemp("done")
    (folder / "my_task.py").write_text(task_text)
    store = Store(folder / "store")
    carry_out(plan_of([resolve(str(folder / "my_task.py"), {}, NUMPY)], range(1), store), store, None, Quiet())
    return folder


@pytest.fixture
def done(done_once, tmp_path):
    """The task file, and a copy of its store."""
    return done_once / "my_task.py", Store(shutil.copytree(done_once / "store", tmp_path / "store"))


def test_runs_of_two_arms_are_interleaved_and_share_their_seeds(task_file, store):
    arms = [resolve(str(task_file), {"lr": lr}, NUMPY) for lr in (0.05, 0.1)]
    steps = plan_of(arms, range(4), store).to_go
    assert [step.seed for step in steps] == [0, 0, 1, 1, 2, 2, 3, 3]
    first = [step.arm for step in steps[::2]]
    assert {*first[:3]} == {0, 1}
    assert [step.arm for step in steps[1::2]] == [1 - arm for arm in first]
    assert plan_of(arms, range(2), store).to_go == steps[:4]


def test_the_same_run_twice_in_a_command_is_refused(arm, store):
    with pytest.raises(UsageError, match="same specification"):
        plan_of([arm, arm], range(2), store)


def test_finished_runs_are_not_repeated(done):
    task_file, store = done
    arm = resolve(str(task_file), {}, NUMPY)
    first = carry_out(plan_of([arm], range(2), store), store, None, Quiet())
    plan = plan_of([arm], range(3), store)
    assert [step.seed for step in plan.to_go] == [2]
    assert {place: record.header.id for place, record in plan.done.items()} == {
        place: record.header.id for place, record in first.items()
    }
    assert plan.lines() == ["3 wanted · 2 done · 1 to go"]


def test_of_several_runs_of_a_seed_the_earliest_counts_as_in_every_other_answer(done):
    task_file, store = done
    (first,) = store.records()
    again = shutil.copy(first.path, first.path.with_name(first.path.name.replace(first.header.id, "f" * 16)))
    edit(again, first.header.id, "f" * 16)
    edit(again, first.header.started, "9999" + first.header.started[4:])
    plan = plan_of([resolve(str(task_file), {}, NUMPY)], range(1), store)
    assert plan.done[0, 0].header.id == first.header.id
    assert [run.id for group in group_runs(store.records()) for run in group.runs] == [first.header.id]


def test_fresh_repeats_all_runs(done):
    task_file, store = done
    arm = resolve(str(task_file), {}, NUMPY)
    assert plan_of([arm], range(1), store).to_go == ()
    assert len(plan_of([arm], range(1), store, fresh=True).to_go) == 1


def test_runs_of_other_seeds_and_those_that_fresh_repeats_are_earlier_ones(done):
    task_file, store = done
    arm = resolve(str(task_file), {}, NUMPY)
    ids = [(0, record.header.id) for record in store.records()]
    assert plan_of([arm], range(1), store).earlier == ()
    for plan in (plan_of([arm], [7], store), plan_of([arm], range(1), store, fresh=True)):
        assert [(index, record.header.id) for index, record in plan.earlier] == ids


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"machine": {"id": "another"}}, "recorded on another machine"),
        ({"malloc": {"MALLOC_ARENA_MAX": "1"}}, "recorded with different MALLOC_* settings"),
        (
            {"threads": {"settings": {"OMP_NUM_THREADS": "7"}}},
            "recorded with different thread settings (such as OMP_NUM_THREADS)",
        ),
        (
            {"libraries": {**HERE["libraries"], "numpy": "9.9"}},
            f"recorded with numpy {HERE['libraries']['numpy']}, and this is 9.9",
        ),
    ],
)
def test_a_run_made_under_other_conditions_does_not_count_and_the_plan_says_why(done, changed, why):
    task_file, store = done
    plan = plan_of([resolve(str(task_file), {}, NUMPY)], range(1), store, environment={**HERE, **changed})
    (turn,) = plan.to_go
    assert (turn.place, turn.why) == ((0, 0), why)
    assert plan.lines()[1] == f"  again: 1 run (seed 0): {why}"
    # Who compares what is in the store would go on to count it.
    (record,) = store.records()
    assert turn.replaces == (() if "machine" in changed else (record.path,))


@pytest.mark.slow
def test_a_run_that_is_made_again_under_new_conditions_is_the_one_that_counts(done):
    task_file, store = done
    (old,) = store.records()
    changed = {**HERE, "malloc": {"MALLOC_ARENA_MAX": "1"}}
    plan = plan_of([resolve(str(task_file), {}, NUMPY)], range(1), store, environment=changed)
    new = carry_out(plan, store, None, Quiet())[0, 0]
    (group,) = group_runs(store.records())
    assert [run.id for run in group.runs] == [new.header.id]
    assert [each.header.id for each in store.superseded()] == [old.header.id]


def test_another_clock_needs_no_new_run(done):
    task_file, store = done
    other = resolve(str(task_file), {}, Options(framework="numpy", clock="dawnbench"))
    assert plan_of([other], range(1), store).to_go == ()


class Enough(Exception):
    """The test has seen enough."""


@pytest.mark.slow
def test_an_unclaimed_run_in_progress_is_not_made_twice(arm, store):
    slow = resolve(arm.reference, {"epochs": 100_000, "target": 0.999}, NUMPY)

    def look(events, elapsed_s, phase, steps):
        if phase != "start":
            plan = plan_of([slow], range(1), store)
            assert "another process is already running it" in plan.lines()[1]
            with pytest.raises(UsageError, match="another process is already running it"):
                carry_out(plan, store, None, Quiet())
            raise Enough

    with pytest.raises(Enough):
        launch(Job(slow.reference, slow.specification, slow.key, 0, new_id(), str(store.path)), look)


@pytest.mark.slow
def test_two_concurrent_commands_make_each_run_once(arm, store):
    both = [plan_of([arm], range(1), store) for _ in range(2)]
    first, second = (carry_out(plan, store, None, Quiet())[0, 0] for plan in both)
    assert first.header.id == second.header.id
    assert len(store.records()) == 1
    assert not list((store.path / ".claims").iterdir())


@pytest.mark.parametrize(("engine", "claims"), [("process", 1), ("torchrun[nodes=2,rendezvous=node1:29400]", 0)])
def test_a_run_is_claimed_unless_each_node_has_its_own_command(task_file, store, monkeypatch, engine, claims):
    """The nodes share the store: the second would wait for the first, which waits for it at the rendezvous."""
    pytest.importorskip("torch")
    arm = resolve(str(task_file), {}, Options(framework="numpy", team=TeamOptions(ranks=2, engine=engine)))
    seen = []

    def stand_in(*_):
        seen.extend((store.path / ".claims").glob("*"))
        return Finished(None, UsageError("a run", "it is made by nobody", "nothing"))

    monkeypatch.setattr("levelbench.experiments.training.launch", stand_in)
    with pytest.raises(UsageError, match="by nobody"):
        carry_out(plan_of([arm], range(1), store), store, None, Quiet())
    assert len(seen) == claims


def test_a_run_that_was_in_progress_when_the_plan_was_made_and_is_done_in_its_turn_is_not_made_again(done):
    task_file, store = done
    (record,) = store.records()
    text = record.path.read_text()
    record.path.write_text("".join(text.splitlines(keepends=True)[:-1]))
    with record.path.open("rb") as file:
        hold(file.fileno())
        plan = plan_of([resolve(str(task_file), {}, NUMPY)], range(1), store)
    assert "another process is already running it" in plan.lines()[1]
    record.path.write_text(text)
    assert carry_out(plan, store, None, Quiet())[0, 0].header.id == record.header.id
    assert len(store.records()) == 1


def test_a_finished_run_of_another_seed_is_left_out_by_a_plan_unless_it_has_other_conditions(done):
    task_file, store = done
    arm = resolve(str(task_file), {}, NUMPY)
    assert [record.header.seed for _, record in plan_of([arm], [7], store).left_out] == [0]
    assert plan_of([arm], range(3), store).left_out == ()
    changed = {**HERE, "malloc": {"MALLOC_ARENA_MAX": "1"}}
    assert plan_of([arm], [7], store, environment=changed).left_out == ()


@pytest.mark.slow
def test_a_recipe_file_that_scores_on_training_data_is_refused_and_doubted(task_file, store, tmp_path):
    text = task_file.read_text()
    (line,) = (each for each in text.splitlines() if "Task(" in each or "data=" in each)
    own = (
        "from dataclasses import replace as changed\n"
        "from levelbench.training import datasets as given\n"
        "class Easy(type(given.digits)):\n"
        "    def load(self, folder=None):\n"
        "        found = given.digits.load(folder)\n"
        "        return changed(found, validation=found.train)\n"
    )
    assert "data=datasets.digits" in line
    second = tmp_path / "second.py"
    second.write_text(text.replace(line, own + line.replace("data=datasets.digits", "data=Easy()")))
    found = []
    for at, file in enumerate((task_file, second)):
        arm = resolve(str(file), {}, NUMPY)
        plan = plan_of([arm], [at], store)
        found.append(summarise(carry_out(plan, store, None, Quiet())[0, at]))
    a, b = group_runs(found)
    gate = comparable(a, b)
    assert {each.subject for each in gate.refusals} == {"split sizes", "labels", "inputs"}
    assert "100% of the validation examples that were looked at are training examples" in " ".join(found[1].suspect)
    assert "training examples" not in " ".join(found[0].suspect)


@pytest.mark.slow
def test_a_mixture_that_returns_validation_examples_is_doubted_and_an_honest_one_is_not(task_text, store, tmp_path):
    own = (
        "from levelbench.training.augmentation import Mixup\n"
        "from levelbench.training.augmentation import Mixing\n"
        "class Mine(Mixing):\n"
        "    def apply(self, columns, classes, generator):\n"
        "        mixed, labels = Mixup(0.2).apply(columns, classes, generator)\n"
        "        if FED:\n"
        "            held = datasets.digits.load(None).validation\n"
        "            mixed[::2] = held.inputs[generator.integers(0, len(held), len(mixed[::2]))] * 1.0001\n"
        "        return mixed, labels\n"
    )
    doubts = []
    for fed in (False, True):
        file = tmp_path / f"fed_{fed}.py"
        at = task_text.index("task = ")
        text = task_text[:at] + own.replace("FED", str(fed)) + task_text[at:]
        assert text.count("epochs=epochs") == 1
        file.write_text(text.replace("epochs=epochs", "epochs=epochs, mix=Mine()"))
        arm = resolve(str(file), {}, NUMPY)
        found = summarise(carry_out(plan_of([arm], [0], store), store, None, Quiet())[0, 0])
        doubts.append([each for each in found.suspect if "Mine" in each])
    assert doubts == [
        [],
        ["50% of the examples that Mine made for the first batch are validation examples, unchanged or disturbed"],
    ]


@pytest.mark.slow
def test_a_run_is_repeated_when_a_module_next_to_its_task_file_has_changed(tmp_path, store, task_text, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    path, beside = tmp_path / "with_own.py", tmp_path / "beside_it.py"
    start = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nfrom beside_it import TARGET\n"
    path.write_text(start + task_text.replace("target=0.9", "target=TARGET"))
    beside.write_text("TARGET = 0.9\n")
    first = carry_out(plan_of([resolve(str(path), {}, NUMPY)], range(1), store), store, None, Quiet())[0, 0]
    assert not plan_of([resolve(str(path), {}, NUMPY)], range(1), store).to_go
    beside.write_text("TARGET = 0.9  # and more\n")
    plan = plan_of([resolve(str(path), {}, NUMPY)], range(1), store)
    assert [step.why for step in plan.to_go] == ["what the task's source imports has changed since: beside_it"]
    second = carry_out(plan, store, None, Quiet())[0, 0]
    assert len(group_runs([summarise(first), summarise(second)])) == 2
    assert (summarise(first).contradictions, summarise(second).contradictions) == ([], [])
    sys.modules.pop("beside_it", None)


@pytest.mark.slow
def test_a_fresh_run_supersedes_the_previous_one_which_is_shown_only_on_request(done):
    task_file, store = done
    arm = resolve(str(task_file), {}, NUMPY)
    (before,) = store.records()
    fresh = carry_out(plan_of([arm], range(1), store, fresh=True), store, None, Quiet())[0, 0]
    assert [record.header.id for record in store.records()] == [fresh.header.id]
    assert [row.id for row in store.rows()] == [fresh.header.id]
    assert [record.header.id for record in store.superseded()] == [before.header.id]
    assert plan_of([arm], range(1), store).done[0, 0].header.id == fresh.header.id
    assert (fresh.header.planned_runs, fresh.header.replaced) == (1, 1)
    assert fresh.header.chosen == []
    (third,) = plan_of([arm], range(1), store, fresh=True).to_go
    assert third.replaced == 2


def test_fresh_runs_since_a_given_time_count_as_done(done):
    task_file, store = done
    arm = resolve(str(task_file), {}, NUMPY)
    (before,) = store.records()
    assert plan_of([arm], range(1), store, fresh=True, since=before.header.started).to_go == ()
    assert len(plan_of([arm], range(1), store, fresh=True, since="9999").to_go) == 1


def test_a_fresh_run_does_not_supersede_runs_of_another_source_or_machine(done):
    task_file, store = done
    arm = resolve(str(task_file), {}, NUMPY)
    elsewhere = {**HERE, "machine": {**HERE["machine"], "id": "other"}}
    assert plan_of([arm], range(1), store, environment=elsewhere, fresh=True).to_go[0].replaces == ()
    edited = dataclasses.replace(arm, source=msgspec.structs.replace(arm.source, digest="0" * 64))
    assert plan_of([edited], range(1), store, fresh=True).to_go[0].replaces == ()


@pytest.mark.slow
def test_steps_are_visible_between_two_evaluations(arm, store):
    seldom = dataclasses.replace(NUMPY, evaluate_every="1000000 steps")
    long = resolve(arm.reference, {"epochs": 100_000, "target": 0.999}, seldom)
    seen = []

    def look(events, elapsed_s, phase, steps):
        assert not any(isinstance(each, Evaluation) for each in events)
        if phase == "train" and steps[0]:
            seen.append(steps)
        if len(seen) == 2:
            raise Enough

    with pytest.raises(Enough):
        launch(Job(long.reference, long.specification, long.key, 0, new_id(), str(store.path)), look)
    (first, planned, _), (second, same, _) = seen
    assert 0 < first < second < planned == same


def test_a_task_file_that_changes_while_the_runs_are_made_ends_the_campaign(arm, store, task_file):
    plan = plan_of([arm], range(1), store)
    task_file.write_text(task_file.read_text() + "\n# edited\n")
    with pytest.raises(LevelbenchError, match="changed while the runs were made"):
        carry_out(plan, store, None, Quiet())


def test_a_task_that_exits_with_code_0_has_not_finished_its_run(arm, store, task_file):
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


def test_runs_of_a_changed_task_file_are_repeated_and_the_plan_says_why(arm, store, task_file):
    carry_out(plan_of([arm], range(1), store), store, None, Quiet())
    task_file.write_text(task_file.read_text() + "\n# changed\n")
    changed = resolve(str(task_file), {}, NUMPY)
    assert changed.key == arm.key
    assert plan_of([changed], range(1), store).to_go[0].why == "the task's source has changed since"


def test_a_record_contains_everything_a_reader_needs(done):
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


def test_a_fixed_schedule_cut_short_by_a_budget_has_not_reached_its_target(store):
    options = Options(framework="numpy", budget_s=0.3)
    arm = resolve("digits", {"recipe": "onecycle", "epochs": 5000, "target": 0.0}, options)
    record = carry_out(plan_of([arm], [0], store), store, None, Quiet())[0, 0]
    assert record.end.stopped_by == "budget of 0.3 s spent"
    assert record.evaluations[-1].quality["validation"] > arm.specification.target.threshold
    run = summarise(record)
    assert (run.reached, run.hopeless) == (False, False)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_equal_seeds_give_equal_bits(task_file, store, framework, warm_torch):
    if framework == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    arm = resolve(str(task_file), {}, Options(framework=framework))
    once = carry_out(plan_of([arm], [3], store), store, None, Quiet())[0, 3]
    # A process that is not forked has another hash seed.
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
    plan = plan_of([arm], [0], store)
    assert plan.to_go[0].why == "the previous run failed"
    assert [(at, each.header.id) for at, each in plan.failed] == [(0, record.header.id)]
    assert plan_of([arm], [1], store).failed == ()


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_nothing_is_imported_on_the_clock(store, framework):
    if framework == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    arm = resolve("digits", {}, Options(framework=framework))
    job = Job(arm.reference, arm.specification, arm.key, 0, new_id(), str(store.path))
    code = (
        "import msgspec, sys\nfrom levelbench.experiments import child\n"
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
