"""TensorFlow on the CPU, as graphs of ``tf.function``, compiled by XLA, or eager; imported only when it is opened."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from levelbench.frameworks import PackagedFramework


@contextmanager
def greetings_held_back() -> Iterator[None]:
    """Inside, what libraries write to standard error is kept, and shown only if an import fails."""
    try:
        before = os.dup(2)
    except OSError:
        yield  # there is no standard error
        return
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.seek(0)
            os.write(before, kept.read())
            raise
        finally:
            os.dup2(before, 2)
            os.close(before)


class TensorFlowFramework(PackagedFramework):
    """Devices: ``cpu``."""

    name = "tensorflow"
    title = "TensorFlow"
    backend_class = "TensorFlowBackend"
    imports = ("levelbench.frameworks.tensorflow.backend",)
    modes = ("compiled", "eager", "xla")
    gemm_types = ("float32",)

    def lacks_custom(self) -> tuple[str, str] | None:
        return "custom operators do not run there yet", "use torch or jax"

    def _module(self) -> Any:
        # TensorFlow greets at its import whatever TF_CPP_MIN_LOG_LEVEL says; who sets it wants to see that.
        if "tensorflow" in sys.modules or "TF_CPP_MIN_LOG_LEVEL" in os.environ:
            return super()._module()
        with greetings_held_back():
            return super()._module()


framework = TensorFlowFramework()
