"""TensorFlow on the CPU, as graphs of ``tf.function``, compiled by XLA, or eager; imported only when it is opened."""

from __future__ import annotations

from levelbench.frameworks import PackagedFramework


class TensorFlowFramework(PackagedFramework):
    """Devices: ``cpu``."""

    name = "tensorflow"
    title = "TensorFlow"
    backend_class = "TensorFlowBackend"
    imports = ("levelbench.frameworks.tensorflow.backend",)
    modes = ("compiled", "eager", "xla")
    gemm_types = ("float32",)


framework = TensorFlowFramework()
