"""``levelbench analyze composition``: which arms it makes, that it resumes, and what it says of them.

The training itself is replaced by its records: each factor has a gain, and the times say so.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from levelbench import __version__
from levelbench.experiments.training import Finished
from levelbench.measure.environment import capture
from levelbench.records import SCHEMA, End, Evaluation, Header, RecordWriter, Samples, Store, read_record
from levelbench.records.schema import Source

MS = 1_000_000
GAINS = {"momentum": (0.9, 0.5), "wide": (True, 0.8), "nesterov": (True, 0.9)}

TASK = '''
"""A task whose recipe says what off means."""
from levelbench.networks import zoo
from levelbench.training import Momentum, Recipe, Shuffled, Task, Top1, datasets

task = Task("study", data=datasets.digits, quality=Top1(target=0.9))


@task.recipe(factors={"wide": False, "momentum": 0.0})
def fast(wide: bool = True, momentum: float = 0.9, nesterov: bool = True, lr: float = 0.05) -> Recipe:
    """Small."""
    return Recipe(zoo.mlp(64, 32 if wide else 8, 10), Shuffled(64), Momentum(lr, momentum), epochs=60)


@task.recipe
def plain(lr: float = 0.05) -> Recipe:
    """Nothing to switch off."""
    return Recipe(zoo.mlp(64, 8, 10), Shuffled(64), Momentum(lr), epochs=60)
'''


@pytest.fixture(scope="module")
def machine():
    return capture()


@pytest.fixture
def study(tmp_path, monkeypatch, machine):
    """The task's file; runs write the record of a training that takes as long as its settings say."""
    path = tmp_path / "study.py"
    path.write_text(TASK)
    jobs = []

    def launch(job, on_progress=None, starter=None):
        jobs.append(job)
        settings = job.specification.settings
        seconds = 10.0 * np.prod([gain for name, (on, gain) in GAINS.items() if settings[name] == on])
        if launch.together and all(settings[name] == on for name, (on, _) in GAINS.items()):
            seconds *= launch.together
        # No two runs take the same time, whatever they differ in.
        own = 100 * settings["lr"] + ord(job.specification.framework[0])
        luck = 1 + 0.2 * np.sin(job.seed) + 0.002 * np.cos(7 * job.seed + 3 * seconds + own)
        return Finished(record_of(job, round(seconds * luck * 1000) * MS, machine), None)

    launch.together = None
    monkeypatch.setattr("levelbench.experiments.training.launch", launch)
    return path, jobs, launch


STEPS = 60


def record_of(job, t_ns, machine):
    started = f"2026-01-02T03:{job.seed:02d}:05.000+00:00"
    header = Header(
        schema=SCHEMA,
        id=job.id,
        key=job.key,
        seed=job.seed,
        started=started,
        specification=job.specification,
        environment={**machine, "time": started, **job.first},
        source=Source("study", job.source, Path(job.reference).read_text()),
        version=__version__,
    )
    with RecordWriter.create(Store(job.store).path, header) as writer:
        # Evaluated so often that ties at an evaluation hide little.
        each_ns = t_ns // STEPS
        for step in range(1, STEPS + 1):
            writer.append(Samples("step_time", "ns", [each_ns]))
            quality = {"validation": 0.95 if step > STEPS - 2 else 0.5}
            writer.append(
                Evaluation(step * each_ns, step, float(step), step, quality, 0.1, {"forward": step * each_ns})
            )
        total_ns = STEPS * each_ns
        writer.append(End("done", total_ns, {"forward": total_ns}, {"validation": 0.95, "test": 0.95}))
    return writer.path


@pytest.mark.slow
def test_the_declared_factors_are_switched_in_every_combination(study, call, tmp_path):
    path, jobs, _ = study
    code, out, _ = call("analyze", "composition", path, "--framework", "numpy", "-n", 3, "--store", tmp_path / "s")
    assert code == 0
    assert "4 arms of wide, momentum" in out
    assert "12 wanted · 0 done · 12 to go" in out
    tried = {(job.specification.settings["wide"], job.specification.settings["momentum"]) for job in jobs}
    assert tried == {(True, 0.9), (True, 0.0), (False, 0.9), (False, 0.0)}
    assert "COMPOSABLE  wide x momentum" in out
    assert "2.5 measured, 2.5 is the product" in out
    assert "shortens training" in out


@pytest.mark.slow
def test_a_combination_that_gains_less_is_sub_multiplicative(study, call, tmp_path):
    path, _, launch = study
    launch.together = 1.5
    _, out, _ = call("analyze", "composition", path, "--framework", "numpy", "-n", 3, "--store", tmp_path / "s")
    assert "SUB-MULTIPLICATIVE" in out
    assert "gain less together" in out


@pytest.mark.slow
def test_the_same_command_makes_no_run_twice_and_more_seeds_only_those(study, call, tmp_path):
    path, jobs, _ = study
    words = ("analyze", "composition", path, "--framework", "numpy", "--store", tmp_path / "s")
    call(*words, "-n", 2)
    _, out, _ = call(*words, "-n", 3)
    assert "12 wanted · 8 done · 4 to go" in out
    assert len(jobs) == 12
    assert {job.seed for job in jobs[8:]} == {2}


@pytest.mark.slow
def test_a_factor_of_the_users_own_says_what_off_is(study, call, tmp_path):
    path, jobs, _ = study
    words = ("--factor", "wide", "--factor", "momentum", "--factor", "nesterov=false", "--design", "one")
    code, out, _ = call(
        "analyze", "composition", path, *words, "--framework", "numpy", "-n", 3, "--store", tmp_path / "s", "--json"
    )
    found = json.loads(out)
    assert code == 0
    assert found["kind"] == "COMPOSABLE"
    assert [cell["on"] for cell in found["cells"]] == [
        [], ["wide"], ["momentum"], ["nesterov"], ["momentum", "nesterov", "wide"],
    ]  # fmt: skip
    assert found["predicted"] == pytest.approx(0.36, rel=0.02)
    assert found["effects"] == []
    assert len(found["groups"]) == 5
    assert len(jobs) == 15


@pytest.mark.slow
def test_one_run_an_arm_cannot_tell(study, call, tmp_path):
    path, _, _ = study
    code, out, _ = call("analyze", "composition", path, "--framework", "numpy", "-n", 1, "--store", tmp_path / "s")
    assert code == 4
    assert "UNCLEAR" in out
    assert "at least 3 of each arm" in out


@pytest.mark.slow
def test_tables_and_figure_are_written_where_they_are_wanted(study, call, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    path, _, _ = study
    plot, words = tmp_path / "c.svg", tmp_path / "c.md"
    call(
        "analyze", "composition", path, "--framework", "numpy", "-n", 3, "--store", tmp_path / "s",
        "--plot", plot, "--markdown", words,
    )  # fmt: skip
    assert "<svg" in plot.read_text()
    assert "product of these" in plot.read_text()
    assert "| momentum" in words.read_text()
    assert read_record(next((tmp_path / "s").rglob("*.jsonl"))).status == "done"


@pytest.mark.slow
@pytest.mark.parametrize("as_json", [False, True])
def test_where_no_arm_has_a_speed_up_there_is_no_figure_and_the_verdict_stands(study, call, tmp_path, as_json):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    path, _, _ = study
    code, out, _ = call(
        "analyze", "composition", path, "--framework", "numpy", "-n", 2, "--store", tmp_path / "s",
        "--target", 0.99, "--plot", tmp_path / "c.svg", *["--json"] * as_json,
    )  # fmt: skip
    assert code == 4
    assert not (tmp_path / "c.svg").exists()
    assert (json.loads(out)["no_plot"] if as_json else out.partition("no plot: ")[2]).startswith(
        "no arm has a speed-up"
    )


def test_a_figure_that_nothing_can_draw_is_refused_before_a_run(study, call, tmp_path, monkeypatch):
    path, jobs, _ = study
    monkeypatch.setattr("levelbench.report.run_figures.can_draw", lambda: False)
    words = ("--framework", "numpy", "--store", tmp_path / "s", "--plot", tmp_path / "c.svg")
    code, _, err = call("analyze", "composition", path, *words)
    assert (code, jobs) == (3, [])
    assert "matplotlib is not installed" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "words", "found"),
    [
        ("{}[recipe=plain]", (), "there are none"),
        ("{}", ("--factor", "wide"), "there is one"),
        ("{}", ("--factor", "wide", "--factor", "nesterov"), "it declares wide, momentum"),
        ("{}", ("--factor", "wide", "--factor", "speed=1"), "speed"),
        ("{}", ("--factor", "wide", "--factor", "recipe=other"), "recipe cannot be a factor"),
        ("{}", ("--factor", "momentum", "--factor", "lr=0.04", "--factor", "lr=0.05"), "lr is named twice"),
        ("{}", ("--factor", "momentum", "--factor", "lr=0.04,momentum=0.1"), "momentum is named twice"),
        ("{}[momentum=0.0]", (), "it is already off"),
        ("{}", ("--plot", "c.pdf"), "end it in .svg or .png"),
    ],
)
def test_what_cannot_be_a_study_is_refused_before_a_run(study, call, tmp_path, task, words, found):
    path, jobs, _ = study
    code, _, err = call(
        "analyze", "composition", task.format(path), *words, "--framework", "numpy", "--store", tmp_path / "s"
    )
    assert code == 2
    assert found in err
    assert jobs == []


def test_its_help_is_there_without_a_framework(call):
    code, out, _ = call("analyze", "composition", "--help")
    assert code == 0
    assert "--factor" in out


@pytest.mark.slow
def test_framework_and_ranks_are_factors(study, call, tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    path, jobs, _ = study
    words = ("--factor", "framework=numpy", "--factor", "momentum", "--factor", "ranks=1", "-n", 1)
    call("analyze", "composition", f"{path}[framework=torch,ranks=2]", *words, "--store", tmp_path / "s")
    made = {
        (
            job.specification.framework,
            job.specification.distribution is not None,
            job.specification.settings["momentum"],
        )
        for job in jobs
    }
    assert len(made) == len(jobs) == 8


FIVE_FACTORS = ("--factor", "wide", "--factor", "momentum", "--factor", "nesterov=false", "--factor", "lr=0.01")


@pytest.mark.slow
def test_a_lesion_leaves_out_one_factor_at_a_time(study, call, tmp_path):
    path, jobs, _ = study
    words = ("--framework", "numpy", "-n", 3, "--store", tmp_path / "s", "--design", "lesion")
    code, out, _ = call("analyze", "composition", path, *FIVE_FACTORS[:6], *words)
    assert code == 0
    assert len(jobs) == 4 * 3
    assert "FASTER  all against all but momentum" in out
    _, out, _ = call("analyze", "composition", path, *FIVE_FACTORS[:6], *words, "--json")
    gains = {each["factor"]: each["verdict"]["ratio"] for each in json.loads(out)["against"]}
    assert gains == pytest.approx({"wide": 0.8, "momentum": 0.5, "nesterov": 0.9}, rel=0.02)


@pytest.mark.slow
def test_a_fraction_states_its_resolution_and_generators(study, call, tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    path, jobs, _ = study
    words = ("--framework", "numpy", "-n", 3, "--store", tmp_path / "s", "--design", "fraction")
    code, _, err = call("analyze", "composition", path, *FIVE_FACTORS, *words)
    assert (code, jobs) == (2, [])
    assert "fractions are known for 5 to 11" in err
    words = ("-n", 3, "--store", tmp_path / "s", "--design", "fraction", "--factor", "framework=numpy")
    _, out, _ = call("analyze", "composition", f"{path}[framework=torch]", *FIVE_FACTORS, *words)
    # All and each alone are among the 16; none is added.
    assert len(jobs) == 3 * 17
    assert "2^(5-1) of resolution V (framework = wide x momentum x nesterov x lr)" in out


@pytest.mark.slow
def test_two_arms_of_the_same_runs_are_refused(study, call, tmp_path):
    path, jobs, _ = study
    words = ("--factor", "scheme=all-reduce", "--factor", "ranks=1", "--store", tmp_path / "s")
    code, _, err = call("analyze", "composition", f"{path}[framework=numpy,ranks=2,scheme=top-k]", *words)
    assert (code, jobs) == (2, [])
    assert "are the same runs" in err


def test_a_word_of_a_team_needs_several_ranks(study, call, tmp_path):
    path, _, _ = study
    words = ("--factor", "scheme=all-reduce", "--factor", "momentum", "--framework", "numpy")
    code, _, err = call("analyze", "composition", path, *words, "--store", tmp_path / "s")
    assert code == 2
    assert "of one process" in err
