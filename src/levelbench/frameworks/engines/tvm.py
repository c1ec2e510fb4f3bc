"""Apache TVM, on the CPU, by its ONNX importer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from levelbench.frameworks.engines import OnnxEngine, Run


class Tvm(OnnxEngine):
    """Compiles with its default schedules: nothing is tuned."""

    name = "tvm"
    title = "TVM"
    package = "tvm"
    distribution = "apache-tvm"

    @staticmethod
    def load(path: str) -> Run:
        import onnx
        import tvm
        from tvm import relax
        from tvm.relax.frontend.onnx import from_onnx

        # The importer wants the shapes of the outputs, too.
        model = onnx.shape_inference.infer_shapes(onnx.load(path), data_prop=True)
        compiled = tvm.compile(from_onnx(model), target="llvm")
        machine, device = relax.VirtualMachine(compiled, tvm.cpu()), tvm.cpu()

        def run(inputs: Mapping[str, Any]) -> list[Any]:
            found = machine["main"](*[tvm.runtime.tensor(each, device) for each in inputs.values()])
            return [each.numpy() for each in ([found] if hasattr(found, "numpy") else found)]

        return run


framework = Tvm()
