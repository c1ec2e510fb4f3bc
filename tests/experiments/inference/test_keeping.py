"""``levelbench run --keep-model``: an ordinary run whose network ``levelbench infer`` finds."""

import pytest

from levelbench.experiments.child import boundary
from levelbench.experiments.inference import making
from levelbench.experiments.inference.making import TrainingRun, kept_model
from levelbench.experiments.inference.models import basis_of
from levelbench.experiments.jobs import Job
from levelbench.experiments.request import Options, load_task, resolve
from levelbench.measure.environment import capture
from levelbench.records import Store
from levelbench.records.inference import runs_for_inference


@pytest.fixture
def job(tmp_path):
    arm = resolve("digits", {"framework": "numpy", "hidden": 4}, Options(budget_epochs=1.0))
    return Job(arm.reference, arm.specification, arm.key, 3, "aaaa0003", str(tmp_path), keep_model=True)


def test_the_network_of_a_run_is_kept_and_the_run_remains_an_ordinary_one(tmp_path):
    arm = resolve("digits", {"framework": "numpy", "hidden": 4}, Options(budget_epochs=1.0))
    job = Job(arm.reference, arm.specification, arm.key, 3, "aaaa0003", str(tmp_path), keep_model=True)
    assert boundary(job, lambda message: None) == 0
    task = load_task("digits")
    network = task.assemble(arm.specification.recipe, arm.specification.settings).network
    basis = basis_of(arm.specification, capture()["libraries"], network, task.data.load(None).checksums)
    kept = kept_model(tmp_path, TrainingRun("digits", arm.specification, arm.key, 3, arm.source.digest, basis))
    (run,) = Store(tmp_path).records()
    assert kept is not None
    assert (kept.facts.run, kept.facts.quality) == (run.header.id, run.end.quality)
    assert runs_for_inference(tmp_path) == frozenset()


def test_an_error_of_onnx_does_not_fail_the_run(job, tmp_path, monkeypatch):
    def broken(*given):
        raise TypeError("a field of another kind")

    monkeypatch.setattr(making, "save", broken)
    told = []
    assert boundary(job, told.append) == 3
    asked, found, do = told[-1].error
    assert asked == "the trained network of digits, seed 3"
    assert "TypeError: a field of another kind" in found
    assert "task" not in do
    (run,) = Store(tmp_path).records()
    assert run.status == "done"
