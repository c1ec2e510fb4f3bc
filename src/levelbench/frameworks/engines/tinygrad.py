"""tinygrad, on the CPU, by its ONNX importer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

from levelbench.frameworks.engines import OnnxEngine, Run


class Tinygrad(OnnxEngine):
    """Compiles kernels with clang, which it finds on the path, or the compiler of ``CC``."""

    name = "tinygrad"
    title = "tinygrad"
    package = "tinygrad"
    distribution = "tinygrad"

    def lacks(self, device: str = "cpu") -> str | None:
        lacking, compiler = super().lacks(device), os.environ.get("CC") or "clang"
        if lacking is None and shutil.which(compiler) is None:
            return f"{compiler}, which tinygrad compiles with, is not installed: apt install clang"
        return lacking

    @staticmethod
    def load(path: str) -> Run:
        from tinygrad import Tensor, TinyJit
        from tinygrad.nn.onnx import OnnxRunner

        runner = OnnxRunner(path)
        compute = TinyJit(lambda **values: [each.contiguous().realize() for each in runner(values).values()])

        def run(inputs: Mapping[str, Any]) -> list[Any]:
            # What was compiled writes to the same memory at each call. A scalar is a constant to it, its copy is not.
            return [
                each.numpy().copy()
                for each in compute(**{name: Tensor(value).clone().realize() for name, value in inputs.items()})
            ]

        return run


framework = Tinygrad()
