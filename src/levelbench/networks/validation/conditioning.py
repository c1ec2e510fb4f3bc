"""How far roundings of its inputs move a network: what no implementation can be held to.

The one idea: parameters and inputs are known to a rounding only. The reference is run again with each of them moved by
one, up or down at random; a deviation that is as large as what that does is no fault. It is asked only when a tensor
is beyond its limit, so that networks that are well conditioned, which is most, cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from levelbench.errors import LevelbenchError
from levelbench.networks.network import Network
from levelbench.networks.validation.judging import Moved
from levelbench.networks.validation.running import Arrays, Runner
from levelbench.operators.validation.metrics import difference
from levelbench.operators.validation.tolerances import is_float, unit_roundoff

__all__ = ["Conditioning"]

_TIMES = 3
_FACTOR = 8.0


class Conditioning:
    """Runs a network under small changes of its parameters and inputs; answers what each tensor moved by.

    The largest deviation of three runs is taken eight times: roundings happen at each operator, not at the inputs only.
    """

    def __init__(self, network: Network, parameters: Arrays, inputs: Arrays, runner: Runner, dtype: Any) -> None:
        self._network, self._parameters, self._inputs, self._runner = network, parameters, inputs, runner
        self._roundoff = unit_roundoff(dtype)

    def of_output(self, name: str, base: Any) -> Moved | None:
        """What roundings do to an output whose value is ``base``; ``None`` where that cannot be told."""
        return _moved([each.get(name) for each in self._outputs], base)

    def of_gradient(self, name: str, base: Any) -> Moved | None:
        """As :meth:`of_output`, for the gradient of a parameter."""
        return _moved([each.get(name) for each in self._gradients], base)

    @cached_property
    def _outputs(self) -> list[dict[str, Any]]:
        return self._runs(lambda parameters, inputs: self._runner.outputs(self._network, parameters, inputs))

    @cached_property
    def _gradients(self) -> list[dict[str, Any]]:
        return self._runs(lambda parameters, inputs: self._runner.gradients(self._network, parameters, inputs)[1])

    def _runs(self, run: Any) -> list[dict[str, Any]]:
        found = []
        for seed in range(_TIMES):
            random = np.random.default_rng(seed)
            try:
                found.append(run(self._shaken(self._parameters, random), self._shaken(self._inputs, random)))
            except LevelbenchError:
                return []
        return found

    def _shaken(self, arrays: Arrays, random: np.random.Generator) -> Mapping[str, Any]:
        return {name: self._shake(value, random) for name, value in arrays.items()}

    def _shake(self, value: Any, random: np.random.Generator) -> Any:
        if not is_float(value.dtype):
            return value
        step = max(self._roundoff, unit_roundoff(value.dtype))
        moved = value.astype(np.float64) * (1 + step * random.choice([-1.0, 1.0], value.shape))
        return moved.astype(value.dtype)


def _moved(runs: list[Any], base: Any) -> Moved | None:
    others = [each for each in runs if each is not None and each.shape == base.shape]
    if not others:
        return None
    flips = np.zeros(base.shape, np.bool_)
    most = 0.0
    for other in others:
        apart = difference(other, base)
        exact = not is_float(base.dtype)
        flips |= apart > 0 if exact else ~np.isfinite(apart)
        most = max(most, 0.0 if exact else float(np.where(np.isfinite(apart), apart, 0.0).max(initial=0.0)))
    return Moved(_FACTOR * most, flips)
