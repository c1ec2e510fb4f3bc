"""Real TensorBoard; stand-ins for Weights & Biases and MLflow that record their calls."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from levelbench.errors import UsageError
from levelbench.records.schema import Evaluation
from levelbench.training.observers.trackers import figures


def test_metrics_have_names_and_exclude_nan():
    evaluation = Evaluation(2_000_000_000, 3, 1.0, 96, {"validation": 0.5, "validation.top5": float("nan")}, None, {})
    assert figures(evaluation, [1_000_000, 3_000_000]) == {
        "quality/validation": 0.5,
        "epoch": 1.0,
        "samples": 96.0,
        "time_s": 2.0,
        "step_time_s": pytest.approx(0.002),
    }


def test_tensorboard_reads_back_what_was_written(trained, specification, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from levelbench.training.observers.trackers import TensorBoard

    trained(TensorBoard(tmp_path, "run", specification))
    events = EventAccumulator(str(tmp_path / "run"))
    events.Reload()
    assert {"quality/validation", "loss", "phase_s/forward", "epoch"} <= set(events.Tags()["scalars"])
    assert [each.step for each in events.Scalars("loss")] == [3, 6, 9]
    assert [each.value for each in events.Scalars("epoch")] == [1.0, 2.0, 3.0]
    (found,) = events.Tensors("specification")
    assert b'"task": "toy"' in found.tensor_proto.string_val[0]


@pytest.fixture
def wandb(monkeypatch):
    """A stand-in for wandb."""
    calls = []
    run = SimpleNamespace(
        log=lambda values, step: calls.append(("log", step, values)), finish=lambda: calls.append(("finish",))
    )

    def init(**given):
        calls.append(("init", given))
        return run

    module = ModuleType("wandb")
    module.init = init
    module.__spec__ = SimpleNamespace(name="wandb")
    monkeypatch.setitem(sys.modules, "wandb", module)
    return calls


def test_weights_and_biases_gets_a_run_offline_unless_its_own_settings_say_otherwise(
    trained, specification, wandb, monkeypatch
):
    from levelbench.training.observers.trackers import WeightsAndBiases

    monkeypatch.delenv("WANDB_MODE", raising=False)
    trained(WeightsAndBiases("project", "run", specification))
    (first, given), *logs, last = wandb
    assert (first, given["project"], given["name"], given["mode"]) == ("init", "project", "run", "offline")
    assert given["config"]["settings"] == {"lr": 0.05}
    assert [(each[0], each[1]) for each in logs] == [("log", 3), ("log", 6), ("log", 9)]
    assert all("quality/validation" in each[2] for each in logs)
    assert last == ("finish",)
    monkeypatch.setenv("WANDB_MODE", "online")
    trained(WeightsAndBiases("project", "run", specification))
    assert [each[1]["mode"] for each in wandb if each[0] == "init"] == ["offline", "online"]


class Client:
    """A stand-in for MLflow's client."""

    calls: list[tuple] = []  # noqa: RUF012

    def __init__(self, tracking_uri):
        self.calls.append(("client", tracking_uri))

    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name):
        self.calls.append(("experiment", name))
        return "7"

    def create_run(self, experiment, run_name):
        self.calls.append(("run", experiment, run_name))
        return SimpleNamespace(info=SimpleNamespace(run_id="r"))

    def log_param(self, run, key, value):
        self.calls.append(("param", key, value))

    def log_metric(self, run, key, value, timestamp, step):
        self.calls.append(("metric", key, step))

    def set_terminated(self, run):
        self.calls.append(("end", run))


def test_mlflow_gets_parameters_metrics_and_an_end(trained, specification, monkeypatch):
    from levelbench.training.observers.trackers import MLflow

    module, tracking = ModuleType("mlflow"), ModuleType("mlflow.tracking")
    module.__spec__ = SimpleNamespace(name="mlflow")
    tracking.MlflowClient = Client
    monkeypatch.setitem(sys.modules, "mlflow", module)
    monkeypatch.setitem(sys.modules, "mlflow.tracking", tracking)
    Client.calls.clear()
    trained(MLflow("sqlite:///runs.db", "run", specification))
    assert Client.calls[:3] == [("client", "sqlite:///runs.db"), ("experiment", "toy"), ("run", "7", "run")]
    assert ("param", "settings.lr", 0.05) in Client.calls
    assert ("param", "target.threshold", 0.9) in Client.calls
    assert [each[2] for each in Client.calls if each[:2] == ("metric", "quality/validation")] == [3, 6, 9]
    assert Client.calls[-1] == ("end", "r")


def test_a_tracker_that_cannot_be_opened_is_an_error_before_the_first_step(trained, specification, wandb, monkeypatch):
    from levelbench.training.observers.trackers import WeightsAndBiases

    def refuse(**given):
        raise RuntimeError("no such project")

    monkeypatch.setattr(sys.modules["wandb"], "init", refuse)
    with pytest.raises(UsageError, match="no such project"):
        trained(WeightsAndBiases("project", "run", specification))


def test_a_tracker_that_fails_later_is_dropped_with_one_warning(trained, specification, wandb, monkeypatch):
    from levelbench.training.observers.trackers import WeightsAndBiases

    def fail(values, step):
        raise ConnectionError("the server is gone")

    run = SimpleNamespace(log=fail, finish=lambda: None)
    monkeypatch.setattr(sys.modules["wandb"], "init", lambda **given: run)
    with pytest.warns(RuntimeWarning, match="was dropped: ConnectionError: the server is gone") as seen:
        trainer = trained(WeightsAndBiases("project", "run", specification))
    assert len(seen) == 1
    assert trainer.progress.step == 9
