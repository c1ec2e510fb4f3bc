"""PyTorch's own optimizers at work on live parameters."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelbench.errors import DataError, DefinitionError
from levelbench.networks.executor import Backend
from levelbench.training.optimizers.base import Stepper
from levelbench.training.optimizers.wrappers import Native

__all__ = ["NativeStepper"]


class NativeStepper(Stepper):
    """An optimizer of ``torch.optim``. It counts its steps itself, and knows parameters by their order."""

    def __init__(self, native: Native, backend: Backend, parameters: MutableMapping[str, Tensor]) -> None:
        self._native, self._backend = native, backend
        self._tensors = dict(parameters)
        try:
            self._optimizer: Any = self._made()
        except (TypeError, ValueError, RuntimeError) as error:
            raise DefinitionError(
                f"{native.name}({', '.join(f'{key}={value}' for key, value in native.settings)})",
                f"{type(error).__name__}: {error}",
                "give the arguments that PyTorch's documentation has for it, and parameters that it takes",
            ) from error

    def _made(self) -> Any:
        maker = getattr(torch.optim, self._native.name.removeprefix("torch.optim."), None)
        if maker is None:
            raise TypeError(f"PyTorch {torch.__version__} has no such optimizer")
        return maker(list(self._tensors.values()), lr=self._native.lr, **dict(self._native.settings))

    def step(self, gradients: Mapping[str, Tensor], step: int, factor: float) -> None:
        """One step of the framework's own; a parameter without a gradient is left as it is."""
        for name, tensor in self._tensors.items():
            tensor.grad = gradients.get(name)
        for group in self._optimizer.param_groups:
            group["lr"] = self._native.lr * factor
        self._optimizer.step()
        for tensor in self._tensors.values():
            # The gradients belong to the executor.
            tensor.grad = None

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays and numbers of each parameter: ``NAME/exp_avg``."""
        result: dict[str, NDArray[Any]] = {}
        for name, tensor in self._tensors.items():
            for key, value in self._optimizer.state.get(tensor, {}).items():
                if value is not None:
                    result[f"{name}/{key}"] = (
                        self._backend.host(value) if isinstance(value, Tensor) else np.array(value)
                    )
        return result

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from there; ``DataError`` where a name or a shape is none of these parameters'."""
        at = {name: index for index, name in enumerate(self._tensors)}
        kept: dict[int, dict[str, Any]] = {}
        for full, value in state.items():
            name, _, key = full.rpartition("/")
            if name not in at:
                raise DataError(
                    f"the state of {self._native.name}",
                    f"{full!r} belongs to no parameter here",
                    "go on with the network and the optimizer that it was saved with",
                )
            kept.setdefault(at[name], {})[key] = torch.from_numpy(np.array(value))
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": kept, "param_groups": groups})
        for name, tensor in self._tensors.items():
            loaded = self._optimizer.state[tensor]
            for key, value in kept.get(at[name], {}).items():
                # PyTorch gives all of a state the dtype of its parameter; NAdam keeps a product in float32.
                loaded[key] = value.to(loaded[key].device)
