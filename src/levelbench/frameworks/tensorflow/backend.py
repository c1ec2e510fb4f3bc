"""TensorFlow on the CPU: makes operators and executors, converts arrays, seeds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

# TensorFlow writes a line for each operation that it refuses.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf
from numpy.typing import NDArray

from levelbench.errors import DataError, UnsupportedError
from levelbench.frameworks import Float32Backend, keras_on
from levelbench.frameworks.tensorflow import TensorFlowFramework
from levelbench.frameworks.tensorflow.arrays import TensorArray, from_numpy
from levelbench.frameworks.tensorflow.executor import TensorFlowExecutor, TensorFlowModel
from levelbench.frameworks.tensorflow.operator import TensorFlowOperator
from levelbench.frameworks.tensorflow.operators import find
from levelbench.measure.ceilings import GemmMaker
from levelbench.networks.executor import Executor
from levelbench.networks.native import NativeModel
from levelbench.networks.network import Network
from levelbench.operators.contract import Array, Operator
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode


def lacking_device(name: str) -> str | None:
    """``None`` for the CPU, else the reason."""
    return None if name == "cpu" else f"this adapter runs on cpu, not on {name!r}"


def gemm(dtype: str) -> GemmMaker:
    """Makes a product of two n x n matrices of ``dtype`` on the CPU: 2 n^3 operations per call."""

    def make(n: int) -> tuple[Callable[[], object], float]:
        rng = np.random.default_rng(0)
        a, b = (tf.constant(rng.standard_normal((n, n)).astype(dtype)) for _ in range(2))
        return lambda: tf.matmul(a, b), 2.0 * n**3

    return make


class TensorFlowBackend(Float32Backend):
    """TensorFlow on the CPU, with deterministic kernels.

    Opening it configures the process: accelerators are hidden from TensorFlow, which would place kernels there, and it
    takes as many threads as ``OMP_NUM_THREADS`` says, which it does not read by itself.
    """

    modes = TensorFlowFramework.modes
    slices_are_views = False

    def __init__(self, device: str = "cpu") -> None:
        self._name = device
        tf.config.experimental.enable_op_determinism()
        try:
            if threads := os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip():
                tf.config.threading.set_intra_op_parallelism_threads(int(threads))
                tf.config.threading.set_inter_op_parallelism_threads(int(threads))
            if tf.config.get_visible_devices("GPU"):
                tf.config.set_visible_devices([], "GPU")
        except (RuntimeError, ValueError) as error:
            raise UnsupportedError("TensorFlow on the CPU", str(error), "open it before TensorFlow is used") from error
        self._generator = tf.random.Generator.from_seed(0, alg="philox")

    def executor_of(
        self, network: Network, parameters: Mapping[str, NDArray[Any]], mode: str, trains: bool
    ) -> Executor:
        return TensorFlowExecutor(self, network, parameters, mode=mode, trains=trains)

    def native(
        self, model: NativeModel, mode: str | None = None, *, precision: str = "float32", channels_last: bool = False
    ) -> Executor:
        """A Keras model as an executor."""
        self.refuse_other_numbers(precision, channels_last)
        return TensorFlowModel(model.on("tensorflow"), mode=self.chosen_mode(mode))

    def building(self, seed: int) -> AbstractContextManager[None]:
        return keras_on("tensorflow")

    def operator(self, node: OperatorNode) -> Operator:
        if node.domain == CUSTOM_DOMAIN:
            raise UnsupportedError(f"{node.title} on tensorflow", "custom operators do not run there yet", "use jax")
        return TensorFlowOperator(node, find(node), self.draw)

    def array(self, host: NDArray[Any]) -> Array:
        return from_numpy(host)

    def host(self, array: Array) -> NDArray[Any]:
        return np.array(array)

    def seed(self, seed: int) -> None:
        """Restart the sequence of random draws."""
        self._generator.reset_from_seed(seed)

    def draw(self) -> Any:
        """The seed of the next draw: two integers. In a graph, each call draws anew."""
        return self._generator.make_seeds(1)[:, 0]

    def draws(self) -> NDArray[Any]:
        """The state of the generator."""
        return np.array(self._generator.state.numpy(), np.int64).view(np.uint8)

    def restore_draws(self, state: NDArray[Any]) -> None:
        """Continue from this state; ``DataError`` if it is invalid."""
        if state.dtype != np.uint8 or len(state) != 24:
            raise DataError("the state of TensorFlow's draws", f"it has {len(state)} bytes, not 24", "restart the run")
        self._generator.reset(state.view(np.int64).copy())

    def take(self, array: Array, indices: Array) -> Array:
        return TensorArray(tf.gather(array.tensor, indices.tensor))

    def normalise(self, array: Array, shift: Array, scale: Array) -> Array:
        return TensorArray((tf.cast(array.tensor, tf.float32) - shift.tensor) * scale.tensor)

    def stepper(self, rule: Any, parameters: MutableMapping[str, Array]) -> Any | None:
        """Updates all arrays in one graph."""
        from levelbench.frameworks.tensorflow.optimizers import make_stepper

        return make_stepper(rule, self, parameters)

    def packer(self, arrays: Mapping[str, Array]) -> Any | None:
        """Refused, because no test compares distributed training on TensorFlow with that of one process yet."""
        raise UnsupportedError("distributed training on tensorflow", "it is not tested yet", "use torch, jax or numpy")

    def mean(self, scalars: Sequence[Array]) -> float:
        return float(np.mean([np.float64(each) for each in scalars]))

    def describe(self) -> dict[str, Any]:
        chosen = int(tf.config.threading.get_intra_op_parallelism_threads())
        chosen = chosen or int(os.environ.get("TF_NUM_INTRAOP_THREADS") or 0)
        allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return {
            "name": "tensorflow",
            "version": str(tf.__version__),
            "device": self._name,
            # Zero means as many as the process may use.
            "threads": chosen or allowed,
            "deterministic": True,
        }
