"""Weights & Biases and MLflow: figures sent to the trackers that people keep their experiments in.

The one idea: nothing leaves the machine unless the user's own settings of the tracker say so: Weights & Biases starts
in its offline mode where ``WANDB_MODE`` says nothing, and MLflow writes to the place that is given.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, final

from levelbench.measure.clocks import utc_now
from levelbench.records.schema import Specification
from levelbench.training.observers.exporting import Exporter, require

__all__ = ["MLflow", "WeightsAndBiases"]


@final
class WeightsAndBiases(Exporter):
    """A run in the project of that name: ``--observe wandb=PROJECT``."""

    def __init__(self, project: str, name: str, specification: Specification) -> None:
        super().__init__(f"--observe wandb={project}", name, specification)
        require("wandb", "wandb", self.asked)
        self._project = project
        self._run: Any = None

    def _open(self, name: str, specification: dict[str, Any]) -> None:
        import wandb

        mode = os.environ.get("WANDB_MODE") or "offline"
        self._run = wandb.init(project=self._project, name=name, config=specification, mode=mode)

    def _send(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def _close(self) -> None:
        self._run.finish()


@final
class MLflow(Exporter):
    """A run at a tracking address: ``--observe mlflow=sqlite:///mlflow.db``, or a server's.

    The experiment is named after the task. The specification's entries are parameters of the run, settings among them.
    """

    def __init__(self, address: str, name: str, specification: Specification) -> None:
        super().__init__(f"--observe mlflow={address}", name, specification)
        require("mlflow", "mlflow", self.asked)
        self._address = address
        self._client: Any = None
        self._run = ""

    def _open(self, name: str, specification: dict[str, Any]) -> None:
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(tracking_uri=self._address)
        experiment = self._client.get_experiment_by_name(specification["task"])
        identity = experiment.experiment_id if experiment else self._client.create_experiment(specification["task"])
        self._run = self._client.create_run(identity, run_name=name).info.run_id
        for key, value in _flat(specification).items():
            self._client.log_param(self._run, key, value)

    def _send(self, step: int, values: Mapping[str, float]) -> None:
        now_ms = round(utc_now().timestamp() * 1000)
        for key, value in values.items():
            self._client.log_metric(self._run, key, value, timestamp=now_ms, step=step)

    def _close(self) -> None:
        self._client.set_terminated(self._run)


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested entries by names with dots between."""
    found: dict[str, Any] = {}
    for key, each in value.items():
        found.update(_flat(each, f"{prefix}{key}.") if isinstance(each, Mapping) else {f"{prefix}{key}": each})
    return found
