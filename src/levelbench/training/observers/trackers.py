"""Sends metrics to TensorBoard, Weights & Biases and MLflow.

A tracker that fails is dropped with a warning, and the run goes on. Nothing leaves the machine unless the user's own
settings of the tracker say so: Weights & Biases starts offline unless ``WANDB_MODE`` is set.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import msgspec

from levelbench.errors import LevelbenchError, MissingError, UsageError
from levelbench.measure.clocks import utc_now
from levelbench.records.schema import Evaluation, Specification
from levelbench.training.observers import Observer, Progress, ready

if TYPE_CHECKING:
    from levelbench.training.observers import Context


class Exporter(Observer):
    """Sends the metrics of each evaluation to a tracker's run of that name and specification.

    A tracker that cannot be opened is an error before the first step. One that fails later is dropped with a warning: a
    run must not be lost because somebody else's disk or server is full.
    """

    package: ClassVar[str]
    """The package to install, which is also its kind in ``--observe`` and the name of its extra."""

    def __init__(self, place: str | Path, name: str, specification: Specification) -> None:
        self.place, self.name, self.specification = place, name, specification
        self.asked = f"--observe {self.package}={place}"
        self._gone = False
        require(self.package, self.asked)

    def on_prepared(self, context: Context) -> None:
        try:
            self._open(self.name, msgspec.to_builtins(self.specification))
        except LevelbenchError:
            raise
        except Exception as error:  # a third-party package may raise anything
            found = f"it raised {type(error).__name__}: {error}"
            raise UsageError(self.asked, found, "choose another place, or leave the observer out") from error

    def on_evaluation(self, progress: Progress, evaluation: Evaluation, step_times_ns: list[int]) -> None:
        self._try(lambda: self._send(evaluation.step, figures(evaluation, step_times_ns)))

    def on_end(self, progress: Progress) -> None:
        self._try(self._close)

    def _try(self, what: Callable[[], None]) -> None:
        if self._gone:
            return
        try:
            what()
        except Exception as error:  # noqa: BLE001  # a third-party package may raise anything
            self._gone = True
            warnings.warn(f"{self.asked} was dropped: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=2)

    @abstractmethod
    def _open(self, name: str, specification: Mapping[str, object]) -> None:
        """Start a run of that name; ``specification`` is in JSON types."""

    @abstractmethod
    def _send(self, step: int, values: Mapping[str, float]) -> None:
        """Send the metrics of a step."""

    @abstractmethod
    def _close(self) -> None:
        """Flush everything and finish the run."""


def figures(evaluation: Evaluation, step_times_ns: list[int]) -> dict[str, float]:
    """The metrics of an evaluation by name, without those that are missing or not finite."""
    found: dict[str, float] = {
        **{f"quality/{name}": value for name, value in evaluation.quality.items()},
        "epoch": evaluation.epoch,
        "samples": float(evaluation.samples),
        "time_s": evaluation.t_ns * 1e-9,
        **{f"phase_s/{name}": ns * 1e-9 for name, ns in evaluation.phases_ns.items()},
    }
    if evaluation.loss is not None:
        found["loss"] = evaluation.loss
    if step_times_ns:
        found["step_time_s"] = sum(step_times_ns) * 1e-9 / len(step_times_ns)
    return {name: value for name, value in found.items() if math.isfinite(value)}


def require(package: str, asked: str) -> None:
    """``MissingError`` unless the package is installed; it is not imported to find out."""
    if importlib.util.find_spec(package) is None:
        raise MissingError(asked, f"the package {package} is not installed", f'pip install "levelbench[{package}]"')


@final
class TensorBoard(Exporter):
    """Event files in ``FOLDER/RUN``, for ``tensorboard --logdir FOLDER``."""

    package = "tensorboard"
    _writer: Any

    def _open(self, name: str, specification: Mapping[str, object]) -> None:
        from tensorboard.compat.proto import tensor_pb2, tensor_shape_pb2, types_pb2
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder = ready(Path(self.place) / name)
        self._writer = EventFileWriter(str(folder))
        text = tensor_pb2.TensorProto(
            dtype=types_pb2.DT_STRING,
            string_val=[f"```\n{json.dumps(specification, indent=2)}\n```".encode()],
            tensor_shape=tensor_shape_pb2.TensorShapeProto(),
        )
        plugin = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        self._add(0, Summary(value=[Summary.Value(tag="specification", tensor=text, metadata=plugin)]))

    def _send(self, step: int, values: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._add(step, Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]))

    def _add(self, step: int, summary: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.add_event(Event(wall_time=utc_now().timestamp(), step=step, summary=summary))
        # Evaluations are rare, and viewers should see them at once.
        self._writer.flush()

    def _close(self) -> None:
        self._writer.close()


@final
class WeightsAndBiases(Exporter):
    """A run in the project of that name: ``--observe wandb=PROJECT``."""

    package = "wandb"
    _run: Any

    def _open(self, name: str, specification: Mapping[str, object]) -> None:
        import wandb

        mode = os.environ.get("WANDB_MODE") or "offline"
        self._run = wandb.init(project=self.place, name=name, config=specification, mode=mode)

    def _send(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def _close(self) -> None:
        self._run.finish()


@final
class MLflow(Exporter):
    """A run at a tracking address: ``--observe mlflow=sqlite:///mlflow.db``, or a server's.

    The experiment is named after the task. The specification's entries become parameters of the run, including
    settings.
    """

    package = "mlflow"
    _client: Any
    _run: str

    def _open(self, name: str, specification: Mapping[str, object]) -> None:
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(tracking_uri=self.place)
        experiment = self._client.get_experiment_by_name(specification["task"])
        identity = experiment.experiment_id if experiment else self._client.create_experiment(specification["task"])
        self._run = self._client.create_run(identity, run_name=name).info.run_id
        for key, value in _flatten(specification).items():
            self._client.log_param(self._run, key, value)

    def _send(self, step: int, values: Mapping[str, float]) -> None:
        now_ms = round(utc_now().timestamp() * 1000)
        for key, value in values.items():
            self._client.log_metric(self._run, key, value, timestamp=now_ms, step=step)

    def _close(self) -> None:
        self._client.set_terminated(self._run)


def _flatten(value: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Nested entries, by dotted names."""
    found: dict[str, object] = {}
    for key, each in value.items():
        found.update(_flatten(each, f"{prefix}{key}.") if isinstance(each, Mapping) else {f"{prefix}{key}": each})
    return found
