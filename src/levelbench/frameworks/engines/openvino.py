"""OpenVINO, on the CPU, by its ONNX importer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from levelbench.frameworks.engines import OnnxEngine, Run


class OpenVino(OnnxEngine):
    """Computes in float32: by default it takes bfloat16 where the processor has it."""

    name = "openvino"
    title = "OpenVINO"
    package = "openvino"
    distribution = "openvino"

    @staticmethod
    def load(path: str) -> Run:
        import openvino

        options: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        if threads := os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip():
            options["INFERENCE_NUM_THREADS"] = threads
        core = openvino.Core()
        compiled = core.compile_model(core.read_model(path), "CPU", options)
        request = compiled.create_infer_request()

        outputs = compiled.outputs

        names = [each.names for each in compiled.inputs]

        def run(inputs: Mapping[str, Any]) -> list[Any]:
            # It drops an input that nothing depends on, and the name of one that becomes an output as it is.
            dropped = len(names) < len(inputs)
            values = {name: value for name, value in inputs.items() if any(name in each for each in names)}
            found = request.infer(values if dropped else list(inputs.values()))
            # The next call writes to the same memory.
            return [found[each].copy() for each in outputs]

        return run


framework = OpenVino()
