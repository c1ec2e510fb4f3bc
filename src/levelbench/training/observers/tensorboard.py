"""TensorBoard: scalars and the specification as an event file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from levelbench.measure.clocks import utc_now
from levelbench.records.schema import Specification
from levelbench.training.observers.exporting import Exporter, require
from levelbench.training.observers.files import ready

__all__ = ["TensorBoard"]


@final
class TensorBoard(Exporter):
    """Event files in ``FOLDER/RUN``, to be seen with ``tensorboard --logdir FOLDER``."""

    def __init__(self, folder: Path, name: str, specification: Specification) -> None:
        super().__init__(f"--observe tensorboard={folder}", name, specification)
        require("tensorboard", "tensorboard", self.asked)
        self._folder = folder
        self._writer: Any = None

    def _open(self, name: str, specification: dict[str, Any]) -> None:
        from tensorboard.compat.proto import tensor_pb2, tensor_shape_pb2, types_pb2
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder = ready(self._folder / name)
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
        # One evaluation at a time is seldom, and who looks on wants to see it.
        self._writer.flush()

    def _close(self) -> None:
        self._writer.close()
