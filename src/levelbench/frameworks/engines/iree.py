"""IREE, on the CPU, by its ONNX importer and its LLVM compiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from levelbench.frameworks.engines import OnnxEngine, Run


class Iree(OnnxEngine):
    """Compiles for the processor that it runs on."""

    name = "iree"
    title = "IREE"
    package = "iree"
    distribution = "iree-base-compiler iree-base-runtime"

    @staticmethod
    def load(path: str) -> Run:
        import onnx
        from iree import compiler, runtime
        from iree.compiler.extras import onnx_importer
        from iree.compiler.ir import Context

        model = onnx.shape_inference.infer_shapes(onnx.load(path), data_prop=True)
        known = onnx_importer.ModelInfo(model)
        module = known.create_module(context=Context()).operation
        onnx_importer.NodeImporter.define_function(known.main_graph, module).import_all()
        options = ["--iree-llvmcpu-target-cpu=host"]
        ends = (*model.graph.input, *model.graph.output)
        if any(each.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE for each in ends):
            # By default it makes float32 of float64, as which it then reads the bytes of the inputs.
            options.append("--iree-input-demote-f64-to-f32=false")
        compiled = compiler.compile_str(
            str(module), input_type="onnx", target_backends=["llvm-cpu"], extra_args=options
        )
        loaded = runtime.load_vm_flatbuffer(compiled, driver="local-task")
        function = loaded[model.graph.name]

        types = [onnx.helper.tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type) for each in model.graph.output]

        def run(inputs: Mapping[str, Any]) -> list[Any]:
            found = function(*inputs.values())
            arrays = [each.to_host().copy() for each in (found if isinstance(found, (tuple, list)) else [found])]
            # Its integers have no sign, so that those of uint8 come back as int8; the model says which they are.
            return [
                each.view(dtype) if each.dtype.kind == "i" and dtype.kind == "u" else each
                for each, dtype in zip(arrays, types, strict=True)
            ]

        return run


framework = Iree()
