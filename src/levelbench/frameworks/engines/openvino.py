"""OpenVINO, on the CPU, by its ONNX importer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from levelbench.frameworks.engines import OnnxEngine, Run

_WARM_UP = 3


class OpenVino(OnnxEngine):
    """Computes in float32: by default it takes bfloat16 where the processor has it."""

    name = "openvino"
    title = "OpenVINO"
    package = "openvino"
    distribution = "openvino"
    operator_clock = "OpenVINO's own clock: means in whole microseconds"

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

    @staticmethod
    def operator_times(path: str, inputs: Mapping[str, Any], repeats: int) -> list[tuple[str, str, float]]:
        """From the request's counters, which hold the mean of all calls since the model was compiled."""
        import openvino

        # As in load, which reports take over as it stands, so that the two can share nothing.
        options: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", "PERF_COUNT": True}
        if threads := os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip():
            options["INFERENCE_NUM_THREADS"] = threads
        core = openvino.Core()
        compiled = core.compile_model(core.read_model(path), "CPU", options)
        request = compiled.create_infer_request()
        names = [each.names for each in compiled.inputs]
        values = {name: value for name, value in inputs.items() if any(name in each for each in names)}
        given = values if len(names) < len(inputs) else list(inputs.values())

        def sums(calls: int, of_all: int) -> dict[tuple[str, str], float]:
            for _ in range(calls):
                request.infer(given)
            executed = [each for each in request.get_profiling_info() if each.status == each.Status.EXECUTED]
            return {(each.node_name, each.node_type): of_all * each.real_time.total_seconds() for each in executed}

        # The first calls pack weights and take a hundred times as long, so they are taken from the sum.
        before = sums(_WARM_UP, _WARM_UP)
        after = sums(repeats, _WARM_UP + repeats)
        return [(*key, max(0.0, whole - before.get(key, 0.0)) / repeats) for key, whole in after.items()]


framework = OpenVino()
