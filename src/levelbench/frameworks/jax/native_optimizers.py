"""optax's optimizers at work on live parameters, each step one compiled program."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, MutableMapping
from functools import reduce
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DataError, DefinitionError, MissingError
from levelbench.networks.executor import Backend
from levelbench.training.optimizers.base import Stepper
from levelbench.training.optimizers.wrappers import Native

__all__ = ["NativeStepper"]


class NativeStepper(Stepper):
    """A gradient transformation of optax. It counts its steps itself."""

    def __init__(self, native: Native, backend: Backend, parameters: MutableMapping[str, Any]) -> None:
        """Raises ``MissingError`` without optax, ``DefinitionError`` for settings that it does not take."""
        if importlib.util.find_spec("optax") is None:
            raise MissingError(native.name, "optax is not installed", 'pip install "levelbench[jax]"')
        self._optax: Any = importlib.import_module("optax")
        self._native, self._backend, self._parameters = native, backend, parameters
        try:
            self._state: Any = self._transformation(native.lr).init(dict(parameters))
        except (TypeError, ValueError, AttributeError) as error:
            raise DefinitionError(
                f"{native.name}({', '.join(f'{key}={value}' for key, value in native.settings)})",
                f"{type(error).__name__}: {error}",
                "give the arguments that optax's documentation has for it, and parameters that it takes",
            ) from error
        # The state is ours alone; some of it may be the parameters themselves, which are therefore not donated.
        self._program = jax.jit(self._updated)

    def _transformation(self, lr: Any) -> Any:
        make = reduce(getattr, self._native.name.split(".")[1:], self._optax)
        return make(learning_rate=lr, **dict(self._native.settings))

    def _updated(self, parameters: Any, gradients: Any, state: Any, lr: Any) -> tuple[Any, Any]:
        updates, after = self._transformation(lr).update(gradients, state, parameters)
        return self._optax.apply_updates(parameters, updates), after

    def step(self, gradients: Mapping[str, Any], step: int, factor: float) -> None:
        """One step of optax's own, which needs the gradients of all parameters."""
        lr = float(self._native.lr * factor)
        updated, self._state = self._program(dict(self._parameters), dict(gradients), self._state, lr)
        for name, array in updated.items():
            self._parameters[name] = array

    def averaged(self) -> Mapping[str, Any] | None:
        """The mean of a schedule-free one."""
        if "schedule_free" not in self._native.name:
            return None
        found: Mapping[str, Any] = self._optax.contrib.schedule_free_eval_params(self._state, dict(self._parameters))
        return found

    def state(self) -> dict[str, NDArray[Any]]:
        """The leaves of optax's state by their path: ``[0].mu['fc.weight']``."""
        return {name: self._backend.host(leaf) for name, leaf in self._leaves()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from there; ``DataError`` where a path is missing."""
        leaves = self._leaves()
        missing = [name for name, leaf in leaves if name not in state or np.shape(leaf) != state[name].shape]
        if missing or len(leaves) != len(state):
            raise DataError(
                f"the state of {self._native.name}",
                f"it lacks {missing[0]!r}" if missing else "it has parts that this optimizer has not",
                "go on with the network and the optimizer that it was saved with",
            )
        structure = jax.tree_util.tree_structure(self._state)
        self._state = jax.tree_util.tree_unflatten(structure, [self._backend.array(state[name]) for name, _ in leaves])

    def _leaves(self) -> list[tuple[str, Any]]:
        return [
            (jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(self._state)[0]
        ]
