"""Another optimizer for some of the parameters, chosen by their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from numpy.typing import NDArray

from levelbench.errors import DataError, DefinitionError, nearest
from levelbench.networks.executor import Array, Backend
from levelbench.training.optimizers.base import Optimizer, Stepper

__all__ = ["Groups"]


@dataclass(frozen=True)
class Groups(Optimizer):
    """``Groups(AdamW(1e-3), {"*.bias": Adam(1e-3)})``: the first pattern that matches a parameter's name takes it.

    Patterns are those of a shell (``*``, ``?``, ``[abc]``); what none matches is left to ``default``. Each optimizer
    has its own rate, and a schedule multiplies them all. ``lr`` is that of ``default``.
    """

    default: Optimizer
    others: Mapping[str, Optimizer]
    lr: float = field(init=False)

    def __post_init__(self) -> None:
        # The dataclass is frozen, and the rate is not for the caller to choose.
        object.__setattr__(self, "lr", self.default.lr)

    def members(self, names: Mapping[str, Any]) -> dict[str, list[str]]:
        """The names that each pattern takes, in the order of the patterns, and last those of the default under ``""``.

        Raises ``DefinitionError`` for a pattern that takes none.
        """
        result: dict[str, list[str]] = {pattern: [] for pattern in self.others}
        result[""] = []
        for name in names:
            first = next((pattern for pattern in self.others if fnmatchcase(name, pattern)), "")
            result[first].append(name)
        for pattern, taken in result.items():
            if pattern and not taken:
                late = any(fnmatchcase(name, pattern) for name in names)
                close = nearest(pattern.strip("*"), names) or list(names)[:3]
                raise DefinitionError(
                    f"the group {pattern!r} of parameters",
                    "patterns before it take all that it matches" if late else "it matches no parameter's name",
                    "put it first" if late else f"parameters are called {', '.join(close)}",
                )
        return result

    def start(self, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        """Go to work on these live parameters, each optimizer on its own."""
        chosen = {**self.others, "": self.default}
        steppers = [
            (names, chosen[pattern].start(backend, _Some(parameters, names)))
            for pattern, names in self.members(parameters).items()
            if names
        ]
        return _GroupsStepper(steppers, parameters)


class _Some(MutableMapping[str, Array]):
    """Some of the live parameters: what is put here is put there."""

    def __init__(self, parameters: MutableMapping[str, Array], names: list[str]) -> None:
        self._parameters, self._names = parameters, dict.fromkeys(names)

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(name)
        return self._parameters[name]

    def __setitem__(self, name: str, array: Array) -> None:
        self._parameters[name] = array

    def __delitem__(self, name: str) -> None:
        raise TypeError("parameters of a network are not deleted")

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class _GroupsStepper(Stepper):
    """One stepper a group."""

    def __init__(self, groups: list[tuple[list[str], Stepper]], parameters: Mapping[str, Array]) -> None:
        self._groups, self._parameters = groups, parameters

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        for names, stepper in self._groups:
            stepper.step({name: gradients[name] for name in names if name in gradients}, step, factor)

    def state(self) -> dict[str, NDArray[Any]]:
        """The states by the number of their group: ``0:NAME``."""
        return {
            f"{at}:{name}": array for at, (_, each) in enumerate(self._groups) for name, array in each.state().items()
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        parts: list[dict[str, NDArray[Any]]] = [{} for _ in self._groups]
        for name, array in state.items():
            number, _, rest = name.partition(":")
            if not number.isdigit() or int(number) >= len(parts):
                raise DataError(
                    "the state of groups of parameters",
                    f"{name!r} belongs to none of {len(parts)} groups",
                    "go on with the groups that it was saved with",
                )
            parts[int(number)][rest] = array
        for (_, stepper), part in zip(self._groups, parts, strict=True):
            stepper.restore(part)

    def averaged(self) -> Mapping[str, Array] | None:
        found = [stepper.averaged() for _, stepper in self._groups]
        if all(each is None for each in found):
            return None
        result = dict(self._parameters)
        for each in found:
            result.update(each or {})
        return result
