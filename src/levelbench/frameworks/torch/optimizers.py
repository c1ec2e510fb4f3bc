"""An update rule on all tensors of a network at once, and PyTorch's own optimizers.

Many tensors act as one array, so that a rule written for one array updates all of them in a few calls of
``torch._foreach`` functions, which loop in C++ on the CPU and use one kernel for many tensors on a GPU. A single tensor
uses PyTorch's plain functions, whose call overhead is a tenth.

Parameters of an elementwise rule may be split at will. A GPU takes all of them in one piece, so that a step is a few
kernels. A CPU takes tiles that stay in its cache: a rule passes over its arrays many times, and then only the first
pass reads memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from operator import is_
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelbench.errors import DataError, DefinitionError
from levelbench.networks.executor import Backend
from levelbench.operators.contract import Function
from levelbench.training.optimizers.base import RuleStepper, State, Stepper, UpdateRule
from levelbench.training.optimizers.rules import AveragingRule, AveragingStepper
from levelbench.training.optimizers.wrappers import Native

Table = dict[str, Function]
Operand: TypeAlias = "Tensors | Tensor | float"


class Tensors:
    """Tensors that support the operators and functions of :mod:`levelbench.training.optimizers.arrays` as one array."""

    __slots__ = ("value",)
    table: ClassVar[Table]
    """The functions that add, multiply, ... ``value``."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def _new(self, name: str, other: Operand) -> Self:
        return type(self)(self.table[name](self.value, other.value if isinstance(other, Tensors) else other))

    def _in_place(self, name: str, other: Operand) -> Self:
        self.table[name](self.value, other.value if isinstance(other, Tensors) else other)
        return self

    def __add__(self, other: Operand) -> Self:
        return self._new("add", other)

    __radd__ = __add__

    def __sub__(self, other: Operand) -> Self:
        return self._new("sub", other)

    def __rsub__(self, other: Operand) -> Self:
        return (-self)._in_place("iadd", other)

    def __mul__(self, other: Operand) -> Self:
        return self._new("mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Operand) -> Self:
        return self._new("div", other)

    def __rtruediv__(self, other: Operand) -> Self:
        return self._new("rdiv", other)

    def __pow__(self, other: Operand) -> Self:
        return self._new("pow", other)

    def __rpow__(self, other: float) -> Self:
        return self._new("rpow", other)

    def __iadd__(self, other: Operand) -> Self:
        return self._in_place("iadd", other)

    def __isub__(self, other: Operand) -> Self:
        return self._in_place("isub", other)

    def __imul__(self, other: Operand) -> Self:
        return self._in_place("imul", other)

    def __itruediv__(self, other: Operand) -> Self:
        return self._in_place("idiv", other)

    def __neg__(self) -> Self:
        return type(self)(self.table["neg"](self.value))

    def __abs__(self) -> Self:
        return type(self)(self.table["abs"](self.value))

    def __levelbench_function__(self, name: str, *others: Any) -> Self:
        """A function of :mod:`levelbench.training.optimizers.arrays` on all tensors."""
        if name not in _THREE:
            given = (each.value if isinstance(each, Tensors) else each for each in others)
            return type(self)(self.table[name](self.value, *given))
        *arrays, factor = others
        if isinstance(factor, int | float):
            self.table[name](self.value, *(each.value for each in arrays), factor)
            return self
        return self._in_place("iadd", _THREE[name](self, *arrays) * factor)

    def clone(self) -> Self:
        """A copy with its own memory."""
        return type(self)(self.table["copy"](self.value))

    def copy_(self, other: Tensors) -> None:
        """Copy the values of others."""
        self.table["copy_"](self.value, other.value)


_THREE: Table = {
    "add_product": lambda target, left, right: left * right,
    "add_quotient": lambda target, upper, lower: upper / lower,
    "add_scaled": lambda target, array: array,
    "mix": lambda target, array: array - target,
}
"""What is added to the target, multiplied by a factor that is an array."""


def _root(value: Tensor) -> Tensor:
    """The square root, accurate to one or two units in the last place on the CPU; the root of 0 is 0.

    On the CPU ``torch.sqrt`` is MKL's, which takes up to ten times as long for zeros and forty times as long for
    subnormal numbers. An optimizer's moments are full of these if gradients are always zero.
    """
    return torch.sqrt(value) if value.device.type != "cpu" else torch.rsqrt(value).reciprocal_()


def _roots(value: list[Tensor]) -> list[Tensor]:
    if any(each.device.type != "cpu" for each in value):
        return list(torch._foreach_sqrt(value))
    found = list(torch._foreach_rsqrt(value))
    torch._foreach_reciprocal_(found)
    return found


_PLAIN = ("abs", "add", "div", "mul", "neg", "pow", "sign", "sub")
_IN_PLACE = ("add", "div", "mul", "sub")


class TensorList(Tensors):
    """A list of tensors."""

    __slots__ = ()
    table: ClassVar[Table] = {
        **{name: getattr(torch, f"_foreach_{name}") for name in (*_PLAIN, "maximum", "minimum")},
        **{f"i{name}": getattr(torch, f"_foreach_{name}_") for name in _IN_PLACE},
        "add_product": lambda target, left, right, factor: torch._foreach_addcmul_(target, left, right, value=factor),
        "add_quotient": lambda target, upper, lower, factor: torch._foreach_addcdiv_(
            target, upper, lower, value=factor
        ),
        "add_scaled": lambda target, array, factor: torch._foreach_add_(target, array, alpha=factor),
        "copy": lambda value: [each.clone() for each in value],
        "copy_": torch._foreach_copy_,
        "mix": torch._foreach_lerp_,
        "rdiv": lambda value, other: [other / each for each in value],
        "rpow": lambda value, other: torch._foreach_pow(other, value),
        "sqrt": _roots,
        "zeros_like": lambda value: [torch.zeros_like(each) for each in value],
    }


def _extremum(function: Callable[[Tensor, Tensor], Tensor], limit: str) -> Callable[[Tensor, Tensor | float], Tensor]:
    def call(value: Tensor, other: Tensor | float) -> Tensor:
        if isinstance(other, Tensor):
            return function(value, other)
        return torch.clamp(value, **{limit: other})

    return call


class OneTensor(Tensors):
    """A list of one tensor."""

    __slots__ = ()
    table: ClassVar[Table] = {
        **{name: getattr(torch, name) for name in _PLAIN},
        **{f"i{name}": getattr(Tensor, f"{name}_") for name in _IN_PLACE},
        "add_product": lambda target, left, right, factor: target.addcmul_(left, right, value=factor),
        "add_quotient": lambda target, upper, lower, factor: target.addcdiv_(upper, lower, value=factor),
        "add_scaled": lambda target, array, factor: target.add_(array, alpha=factor),
        "copy": torch.clone,
        "copy_": Tensor.copy_,
        "maximum": _extremum(torch.maximum, "min"),
        "minimum": _extremum(torch.minimum, "max"),
        "mix": Tensor.lerp_,
        "rdiv": lambda value, other: other / value,
        "rpow": lambda value, other: other**value,
        "sqrt": _root,
        "zeros_like": torch.zeros_like,
    }


def together(tensors: Sequence[Tensor]) -> Tensors:
    """One or more tensors as one array."""
    return OneTensor(tensors[0]) if len(tensors) == 1 else TensorList(list(tensors))


class TorchOptimStepper(Stepper):
    """An optimizer of ``torch.optim``, which counts its steps itself and identifies parameters by their order."""

    def __init__(self, native: Native, backend: Backend, parameters: MutableMapping[str, Tensor]) -> None:
        self._native, self._backend = native, backend
        self._tensors = dict(parameters)
        try:
            self._optimizer: Any = self._made()
        except (TypeError, ValueError, RuntimeError) as error:
            raise DefinitionError(
                f"{native.name}({', '.join(f'{key}={value}' for key, value in native.settings)})",
                f"{type(error).__name__}: {error}",
                "give arguments and parameters that PyTorch's documentation allows",
            ) from error
        self._fresh = [_plain_values(group) for group in self._optimizer.param_groups]

    def _made(self) -> Any:
        maker = self._native.made or getattr(torch.optim, self._native.name.removeprefix("torch.optim."), None)
        if maker is None:
            raise TypeError(f"PyTorch {torch.__version__} has no such optimizer")
        return maker(list(self._tensors.values()), lr=self._native.lr, **dict(self._native.settings))

    def step(self, gradients: Mapping[str, Tensor], step: int, factor: float) -> None:
        """One step of PyTorch's optimizer; a parameter without a gradient is left unchanged."""
        for name, tensor in self._tensors.items():
            tensor.grad = gradients.get(name)
        for group in self._optimizer.param_groups:
            group["lr"] = self._native.lr * factor
        self._optimizer.step()
        for tensor in self._tensors.values():
            # The gradients belong to the executor.
            tensor.grad = None

    def state(self) -> dict[str, NDArray[Any]]:
        """The tensors of each parameter, ``NAME/exp_avg``, and its plain Python numbers, ``NAME/step#``.

        What an optimizer keeps for all parameters, in its ``param_groups``, is ``param_groups.0/d#``: numbers, and
        lists of them, that are no longer those that it was created with.
        """
        result: dict[str, NDArray[Any]] = {}
        for at, (group, fresh) in enumerate(zip(self._optimizer.param_groups, self._fresh, strict=True)):
            for key, value in _plain_values(group).items():
                if key not in fresh or fresh[key] != value:
                    result[f"{_GROUP}{at}/{key}{_PLAIN_VALUE}"] = np.array(value)
        for name, tensor in self._tensors.items():
            for key, value in self._optimizer.state.get(tensor, {}).items():
                if isinstance(value, Tensor):
                    result[f"{name}/{key}"] = self._backend.host(value)
                elif value is not None:
                    result[f"{name}/{key}{_PLAIN_VALUE}"] = np.array(value)
        return result

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from this state; ``DataError`` if a name does not belong to these parameters."""
        at = {name: index for index, name in enumerate(self._tensors)}
        kept: dict[int, dict[str, Any]] = {}
        groups = self._optimizer.state_dict()["param_groups"]
        for group, fresh in zip(groups, self._fresh, strict=True):
            for key in _plain_values(group).keys() - fresh.keys():
                del group[key]
            group.update(fresh)
        for full, value in state.items():
            name, _, key = full.rpartition("/")
            if name.startswith(_GROUP) and name.removeprefix(_GROUP) in map(str, range(len(groups))):
                groups[int(name.removeprefix(_GROUP))][key.removesuffix(_PLAIN_VALUE)] = value.tolist()
                continue
            if name not in at:
                raise DataError(
                    f"the state of {self._native.name}",
                    f"{full!r} does not belong to any parameter here",
                    "continue with the network and optimizer that it was saved with",
                )
            of = kept.setdefault(at[name], {})
            if key.endswith(_PLAIN_VALUE):
                # As a tensor, a count of steps would be rounded to the dtype of its parameter.
                of[key.removesuffix(_PLAIN_VALUE)] = value.tolist()
            else:
                of[key] = torch.from_numpy(np.array(value))
        self._optimizer.load_state_dict({"state": kept, "param_groups": groups})
        for name, tensor in self._tensors.items():
            loaded = self._optimizer.state[tensor]
            for key, value in kept.get(at[name], {}).items():
                # PyTorch casts a state to the dtype of its parameter, but NAdam keeps a product in float32.
                loaded[key] = value.to(loaded[key].device) if isinstance(value, Tensor) else value


def _plain_values(group: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a group of parameters, and lists of them, but for its rate, which each step is given."""
    return {
        key: list(value) if isinstance(value, list) else value
        for key, value in group.items()
        if key not in ("lr", "params", "param_names")
        and all(isinstance(each, int | float) for each in (value if isinstance(value, list) else [value]))
    }


_GROUP = "param_groups."
_PLAIN_VALUE = "#"
"""Ends the name of a state that is a Python number. Checkpoints of earlier versions hold all as tensors."""

TILE = 1 << 18
"""Maximum elements per tile on the CPU: a megabyte per float32 array, so that Adam's five fit the last-level cache.

Each call on a tile has an overhead, and with several threads waits for the slowest of them, so smaller tiles that fit a
core's own cache cost more than they save.
"""

_LINE = 64
"""Parts of a tensor are multiples of this many elements: whole cache lines for every type."""


def make_stepper(rule: Any, backend: Backend, parameters: MutableMapping[str, Tensor]) -> Stepper | None:
    """A stepper that applies ``rule`` faster than one tensor after another; ``None`` if there is none."""
    if isinstance(rule, Native):
        return TorchOptimStepper(rule, backend, parameters) if rule.framework == "torch" else None
    if not isinstance(rule, UpdateRule):
        return None
    if isinstance(rule, AveragingRule):
        averaging = AveragingForeachStepper if rule.elementwise else _AveragingLoop
        return averaging(rule, backend, parameters)
    return (ForeachStepper if rule.elementwise else _Loop)(rule, backend, parameters)


class _Loop(RuleStepper):
    """Updates one tensor after another, outside autograd."""

    def step(self, gradients: Mapping[str, Tensor], step: int, factor: float) -> None:
        with torch.no_grad():
            super().step(gradients, step, factor)


class _AveragingLoop(_Loop, AveragingStepper):
    """The same for a rule that averages."""


class _Tile(NamedTuple):
    """A tile of the parameters: its places as (tensor, part of the tensor), and views of these parts."""

    places: tuple[tuple[int, int], ...]
    parameters: Tensors


class ForeachStepper(_Loop):
    """Applies an elementwise rule tile by tile. State is kept by parameter, and tiles are views of it."""

    def __init__(self, rule: UpdateRule, backend: Backend, parameters: MutableMapping[str, Tensor]) -> None:
        super().__init__(rule, backend, parameters)
        self._forget()

    def _forget(self) -> None:
        self._tiles: list[_Tile] = []
        self._tile_states: list[State] = []
        self._held: dict[str, Tensor] = {}
        self._formats: list[torch.memory_format | None] = []

    def step(self, gradients: Mapping[str, Tensor], step: int, factor: float) -> None:
        """Update all parameters that have a gradient; new tiles are laid out if these have changed."""
        if not self._fits(gradients):
            self._gather()
            self._forget()
            with torch.no_grad():
                laid = self._lay(list(gradients))
            if not laid:
                super().step(gradients, step, factor)
                return
        update, lr = self._rule.update, self._rule.lr * factor
        states = self._tile_states
        with torch.no_grad():
            pieces = [_pieces(gradients[name], layout) for name, layout in zip(self._held, self._formats, strict=True)]
            for at, (places, parameters) in enumerate(self._tiles):
                gradient = together([pieces[tensor][part] for tensor, part in places])
                updated, state = update(parameters, gradient, states[at], step, lr)
                states[at] = self._written(states[at], state)
                if updated is not parameters:
                    parameters.copy_(updated)

    def state(self) -> dict[str, NDArray[Any]]:
        """The same as the plain loop's, so that a run can continue with either."""
        self._gather()
        return super().state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from this state; new tiles are laid out at the next step."""
        self._forget()
        super().restore(state)

    def _fits(self, gradients: Mapping[str, Tensor]) -> bool:
        held, parameters = self._held, self._parameters
        if not held or held.keys() != gradients.keys():
            return False
        return all(parameters[name] is tensor for name, tensor in held.items())

    def _lay(self, names: list[str]) -> bool:
        """Split these parameters and their states into tiles; False if the numbers in their states differ."""
        tensors = [self._parameters[name] for name in names]
        for name, tensor in zip(names, tensors, strict=True):
            if name not in self._states:
                self._states[name] = self._rule.init(tensor)
        states = [self._states[name] for name in names]
        if any(_numbers(state) != _numbers(states[0]) for state in states):
            return False
        self._held = dict(zip(names, tensors, strict=True))
        self._formats = [_format(tensor, state) for tensor, state in zip(tensors, states, strict=True)]
        cut = [_pieces(tensor, layout) for tensor, layout in zip(tensors, self._formats, strict=True)]
        every = not tensors or tensors[0].device.type != "cpu"
        for places in _grouped([[piece.numel() for piece in pieces] for pieces in cut], every):
            self._tiles.append(_Tile(places, together([cut[tensor][part] for tensor, part in places])))
            self._tile_states.append(_joined(states, places, self._formats))
        return True

    def _gather(self) -> None:
        """Store the numbers of the tiles' states; arrays are views, so they are up to date."""
        names = list(self._held)
        for tile, state in zip(self._tiles, self._tile_states, strict=True):
            for tensor, _ in tile.places:
                self._states[names[tensor]] = _with_numbers(self._states[names[tensor]], state)

    def _written(self, held: State, new: State) -> State:
        """``held`` with the values of ``new``: what the rule did not update in place is copied."""
        if new is held or (type(new) is type(held) is tuple and len(new) == len(held) and all(map(is_, new, held))):
            return held
        before, after = _leaves(held), _leaves(new)
        if [type(each) for each in before] != [type(each) for each in after]:
            raise DefinitionError(
                f"{type(self._rule).__name__}",
                "the state that it returns has a different structure than its initial state",
                "return arrays where `init` has arrays, and numbers where it has numbers",
            )
        moved = [(old, each) for old, each in zip(before, after, strict=True) if old is not each]
        lists = [(old, each) for old, each in moved if isinstance(old, Tensors)]
        if any(each is old for _, each in lists for old in before):
            # Two arrays that swap places would overwrite each other.
            lists = [(old, each.clone()) for old, each in lists]
        for old, each in lists:
            old.copy_(each)
        return _with_numbers(held, new)


class AveragingForeachStepper(ForeachStepper, AveragingStepper):
    """The same for a rule that averages."""

    def averaged(self) -> Mapping[str, Tensor]:
        self._gather()
        with torch.no_grad():
            return super().averaged()


def _format(tensor: Tensor, state: State) -> torch.memory_format | None:
    """The layout in which a tensor and all of its state are dense in memory; ``None``: do not split it."""
    arrays = [tensor, *(each for each in _leaves(state) if isinstance(each, Tensor))]
    if tensor.device.type != "cpu" or tensor.numel() <= TILE:
        return None
    for layout in (torch.contiguous_format, torch.channels_last):
        if all(
            each.shape == tensor.shape
            and (layout is torch.contiguous_format or each.ndim == 4)
            and each.is_contiguous(memory_format=layout)
            for each in arrays
        ):
            return layout
    return None


def _pieces(tensor: Tensor, layout: torch.memory_format | None) -> Sequence[Tensor]:
    """The whole tensor, or views of its elements in memory order, of similar size and not above ``TILE``."""
    if layout is None:
        return (tensor,)
    dense = tensor.contiguous(memory_format=layout)
    if layout is torch.channels_last:
        dense = dense.permute(0, 2, 3, 1)
    size = -(-tensor.numel() // -(-tensor.numel() // TILE))
    pieces: Sequence[Tensor] = dense.view(-1).split(min(TILE, -(-size // _LINE) * _LINE))
    return pieces


def _grouped(sizes: Sequence[Sequence[int]], every: bool) -> Iterator[tuple[tuple[int, int], ...]]:
    """Groups of (tensor, part): each large part by itself, small ones together; ``every``: all in one group.

    Large parts use the plain functions; small ones are grouped even if a large one lies between them.
    """
    places: list[tuple[int, int]] = []
    filled = 0
    for tensor, parts in enumerate(sizes):
        for part, size in enumerate(parts):
            if not every and 2 * size > TILE:
                yield ((tensor, part),)
                continue
            if places and not every and filled + size > TILE:
                yield tuple(places)
                places, filled = [], 0
            places.append((tensor, part))
            filled += size
    if places:
        yield tuple(places)


def _leaves(state: State) -> list[Any]:
    return [leaf for each in state for leaf in _leaves(each)] if isinstance(state, tuple) else [state]


def _numbers(state: State) -> list[Any]:
    """The numbers of a state and the types of its other leaves."""
    return [each if isinstance(each, int | float) else type(each) for each in _leaves(state)]


def _mapped(states: Sequence[State], function: Callable[[Sequence[State]], State]) -> State:
    """A state with the structure of ``states``, each leaf computed from theirs."""
    if isinstance(states[0], tuple):
        return tuple(_mapped(each, function) for each in zip(*states, strict=True))
    return function(states)


def _joined(
    states: Sequence[State], places: Sequence[tuple[int, int]], formats: Sequence[torch.memory_format | None]
) -> State:
    """The states of the parts of a tile as one: arrays become lists of views."""

    def join(leaves: Sequence[State]) -> State:
        if not isinstance(leaves[0], Tensor):
            return leaves[0]
        return together(
            [_pieces(leaf, formats[tensor])[part] for leaf, (tensor, part) in zip(leaves, places, strict=True)]
        )

    return _mapped([states[tensor] for tensor, _ in places], join)


def _with_numbers(held: State, new: State) -> State:
    """``held`` with the numbers of ``new``."""
    return _mapped([held, new], lambda leaves: leaves[1] if isinstance(leaves[1], int | float) else leaves[0])
