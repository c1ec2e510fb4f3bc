"""tract, an inference engine in Rust, on the CPU, by its ONNX importer."""

from __future__ import annotations

from levelbench.frameworks.engines import OnnxEngine, Run


class Tract(OnnxEngine):
    """Computes on one thread."""

    name = "tract"
    title = "tract"
    package = "tract"
    distribution = "tract"

    @staticmethod
    def load(path: str) -> Run:
        import tract

        runnable = tract.onnx().load(path).into_model().into_runnable()
        return lambda inputs: [each.to_numpy() for each in runnable.run(list(inputs.values()))]


framework = Tract()
