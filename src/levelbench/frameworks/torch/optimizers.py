"""Many tensors as one array, so that an update rule runs through all of them in a few calls.

An operator on the list is one call of a ``torch._foreach`` function, which loops in C++ on the CPU and needs one kernel
for many tensors on a GPU; the rule is the one that serves a single array. A list of one is called by PyTorch's plain
functions, which cost a tenth of that to call.
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
    """Tensors that answer to the operators and functions of :mod:`levelbench.training.optimizers.arrays` together."""

    __slots__ = ("value",)
    table: ClassVar[Table]
    """How to add, multiply, ... what ``value`` is."""

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
        """Tensors of their own with the same values."""
        return type(self)(self.table["copy"](self.value))

    def copy_(self, other: Tensors) -> None:
        """Take over the values of others."""
        self.table["copy_"](self.value, other.value)


_THREE: Table = {
    "add_product": lambda target, left, right: left * right,
    "add_quotient": lambda target, upper, lower: upper / lower,
    "add_scaled": lambda target, array: array,
    "mix": lambda target, array: array - target,
}
"""What is added to the target, times a factor that is an array."""


def _root(value: Tensor) -> Tensor:
    """The square root, to a unit or two in the last place on the CPU; 0 of 0.

    ``torch.sqrt`` is MKL's there, which takes up to ten times as long for zeros and forty times for subnormal numbers,
    and a moment is full of those where a gradient is always zero, as in the padding of a convolution.
    """
    return torch.sqrt(value) if value.device.type != "cpu" else torch.rsqrt(value).reciprocal_()


def _roots(value: list[Tensor]) -> list[Tensor]:
    if any(each.device.type != "cpu" for each in value):
        return list(torch._foreach_sqrt(value))
    found = list(torch._foreach_rsqrt(value))
    torch._foreach_reciprocal_(found)
    return found


class TensorList(Tensors):
    """A list of tensors."""

    __slots__ = ()
    table: ClassVar[Table] = {
        "abs": torch._foreach_abs,
        "add": torch._foreach_add,
        "add_product": lambda target, left, right, factor: torch._foreach_addcmul_(target, left, right, value=factor),
        "add_quotient": lambda target, upper, lower, factor: torch._foreach_addcdiv_(
            target, upper, lower, value=factor
        ),
        "add_scaled": lambda target, array, factor: torch._foreach_add_(target, array, alpha=factor),
        "copy": lambda value: [each.clone() for each in value],
        "copy_": torch._foreach_copy_,
        "div": torch._foreach_div,
        "iadd": torch._foreach_add_,
        "idiv": torch._foreach_div_,
        "imul": torch._foreach_mul_,
        "isub": torch._foreach_sub_,
        "maximum": torch._foreach_maximum,
        "minimum": torch._foreach_minimum,
        "mix": torch._foreach_lerp_,
        "mul": torch._foreach_mul,
        "neg": torch._foreach_neg,
        "pow": torch._foreach_pow,
        "rdiv": lambda value, other: [other / each for each in value],
        "rpow": lambda value, other: torch._foreach_pow(other, value),
        "sign": torch._foreach_sign,
        "sqrt": _roots,
        "sub": torch._foreach_sub,
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
        "abs": torch.abs,
        "add": torch.add,
        "add_product": lambda target, left, right, factor: target.addcmul_(left, right, value=factor),
        "add_quotient": lambda target, upper, lower, factor: target.addcdiv_(upper, lower, value=factor),
        "add_scaled": lambda target, array, factor: target.add_(array, alpha=factor),
        "copy": torch.clone,
        "copy_": Tensor.copy_,
        "div": torch.div,
        "iadd": Tensor.add_,
        "idiv": Tensor.div_,
        "imul": Tensor.mul_,
        "isub": Tensor.sub_,
        "maximum": _extremum(torch.maximum, "min"),
        "minimum": _extremum(torch.minimum, "max"),
        "mix": Tensor.lerp_,
        "mul": torch.mul,
        "neg": torch.neg,
        "pow": torch.pow,
        "rdiv": lambda value, other: other / value,
        "rpow": lambda value, other: other**value,
        "sign": torch.sign,
        "sqrt": _root,
        "sub": torch.sub,
        "zeros_like": torch.zeros_like,
    }


def together(tensors: Sequence[Tensor]) -> Tensors:
    """At least one tensor, as one array."""
    return OneTensor(tensors[0]) if len(tensors) == 1 else TensorList(list(tensors))


class TorchOptimStepper(Stepper):
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
        maker = self._native.made or getattr(torch.optim, self._native.name.removeprefix("torch.optim."), None)
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


TILE = 1 << 18
"""Elements of a tile on the CPU, at most: a megabyte an array in float32, so that Adam's five stay in the last cache.

Each call on a tile costs its own time, and with several threads a wait for the slowest of them, so tiles that fit a
core's own cache cost more calls than they save.
"""

_LINE = 64
"""Elements that parts of a tensor are made of: whole cache lines, whatever the type."""


def make_stepper(rule: Any, backend: Backend, parameters: MutableMapping[str, Tensor]) -> Stepper | None:
    """What applies ``rule`` to these tensors faster than one after another; ``None`` if there is no such thing."""
    if isinstance(rule, Native):
        return TorchOptimStepper(rule, backend, parameters) if rule.framework == "torch" else None
    if not isinstance(rule, UpdateRule):
        return None
    if isinstance(rule, AveragingRule):
        averaging = AveragingForeachStepper if rule.elementwise else _AveragingLoop
        return averaging(rule, backend, parameters)
    return (ForeachStepper if rule.elementwise else _Loop)(rule, backend, parameters)


class _Loop(RuleStepper):
    """One tensor after another, outside of autograd."""

    def step(self, gradients: Mapping[str, Tensor], step: int, factor: float) -> None:
        with torch.no_grad():
            super().step(gradients, step, factor)


class _AveragingLoop(_Loop, AveragingStepper):
    """The same for a rule that averages."""


class _Tile(NamedTuple):
    """A piece of all parameters: the places that it takes (which tensor, which part of it), and views of those."""

    places: tuple[tuple[int, int], ...]
    parameters: Tensors


class ForeachStepper(_Loop):
    """An elementwise rule, tile by tile. State is kept by parameter, and tiles are views of it."""

    def __init__(self, rule: UpdateRule, backend: Backend, parameters: MutableMapping[str, Tensor]) -> None:
        super().__init__(rule, backend, parameters)
        self._forget()

    def _forget(self) -> None:
        self._tiles: list[_Tile] = []
        self._tile_states: list[State] = []
        self._held: dict[str, Tensor] = {}
        self._formats: list[torch.memory_format | None] = []

    def step(self, gradients: Mapping[str, Tensor], step: int, factor: float) -> None:
        """All parameters that have a gradient; where those are others than before, tiles are laid anew."""
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
        """As that of the plain loop: a run may go on with either."""
        self._gather()
        return super().state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Tiles are laid anew at the next step."""
        self._forget()
        super().restore(state)

    def _fits(self, gradients: Mapping[str, Tensor]) -> bool:
        held, parameters = self._held, self._parameters
        if not held or held.keys() != gradients.keys():
            return False
        return all(parameters[name] is tensor for name, tensor in held.items())

    def _lay(self, names: list[str]) -> bool:
        """Cut these parameters and their states into tiles; False where their states' numbers differ."""
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
        """Take over the numbers of the tiles' states; what is an array is there already."""
        names = list(self._held)
        for tile, state in zip(self._tiles, self._tile_states, strict=True):
            for tensor, _ in tile.places:
                self._states[names[tensor]] = _with_numbers(self._states[names[tensor]], state)

    def _written(self, held: State, new: State) -> State:
        """``held`` with the values of ``new``: what the rule did not change in place is copied."""
        if new is held or (type(new) is type(held) is tuple and len(new) == len(held) and all(map(is_, new, held))):
            return held
        before, after = _leaves(held), _leaves(new)
        if [type(each) for each in before] != [type(each) for each in after]:
            raise DefinitionError(
                f"{type(self._rule).__name__}",
                "the state that it returns is not of the kind that it began with",
                "return arrays where `init` has arrays, and numbers where it has numbers",
            )
        moved = [(old, each) for old, each in zip(before, after, strict=True) if old is not each]
        lists = [(old, each) for old, each in moved if isinstance(old, Tensors)]
        if any(each is old for _, each in lists for old in before):
            # Two that change places would overwrite one another.
            lists = [(old, each.clone()) for old, each in lists]
        for old, each in lists:
            old.copy_(each)
        return _with_numbers(held, new)


class AveragingForeachStepper(ForeachStepper, AveragingStepper):
    """The same for a rule that averages."""

    def averaged(self) -> Mapping[str, Tensor]:
        """The averages of all parameters that were updated."""
        self._gather()
        with torch.no_grad():
            return super().averaged()


def _format(tensor: Tensor, state: State) -> torch.memory_format | None:
    """The layout in which a tensor and all of its state are one dense run of elements; ``None``: not to be cut."""
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
    """A tensor whole, or views of its elements in the order of memory: alike in size, and none above ``TILE``."""
    if layout is None:
        return (tensor,)
    dense = tensor.contiguous(memory_format=layout)
    if layout is torch.channels_last:
        dense = dense.permute(0, 2, 3, 1)
    size = -(-tensor.numel() // -(-tensor.numel() // TILE))
    pieces: Sequence[Tensor] = dense.view(-1).split(min(TILE, -(-size // _LINE) * _LINE))
    return pieces


def _grouped(sizes: Sequence[Sequence[int]], every: bool) -> Iterator[tuple[tuple[int, int], ...]]:
    """(tensor, part) of all parts, the large ones alone and the small ones together; all in one where ``every`` is set.

    Plain functions serve a large part, and what lies in between two of them does not keep small ones from each other.
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
    """The numbers of a state, and its structure: an array counts as ``None``."""
    return [each if isinstance(each, int | float) else type(each) for each in _leaves(state)]


def _mapped(states: Sequence[State], function: Callable[[Sequence[State]], State]) -> State:
    """A state of the structure of all of ``states``, each leaf made of theirs."""
    if isinstance(states[0], tuple):
        return tuple(_mapped(each, function) for each in zip(*states, strict=True))
    return function(states)


def _joined(
    states: Sequence[State], places: Sequence[tuple[int, int]], formats: Sequence[torch.memory_format | None]
) -> State:
    """The states of the parts of a tile as one: lists of views where there are arrays."""

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
