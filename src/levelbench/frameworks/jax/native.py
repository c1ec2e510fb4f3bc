"""A JAX function as an executor: the user's own function of arrays, jitted as a whole or dispatched as it is written.

Nothing is converted, so what is measured is what the user wrote, also in its types: JAX computes in 32 bits unless its
user says otherwise, so the function is traced in that mode, whatever the rest of the process needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from levelbench.errors import DefinitionError, UnsupportedError, UsageError
from levelbench.frameworks.jax.arrays import is_differentiable
from levelbench.frameworks.jax.executor import ReplaceableArrays
from levelbench.frameworks.shared.registry import Function
from levelbench.networks.executor import Executor
from levelbench.networks.native import NativeModel

if TYPE_CHECKING:
    from levelbench.frameworks.jax.backend import JaxBackend

__all__ = ["JaxFunction"]

_WIDE = {"float64": jnp.float32, "int64": jnp.int32, "uint64": jnp.uint32, "complex128": jnp.complex64}


class JaxFunction(Executor):
    """``f(parameters, *inputs)``, or ``f(*inputs)`` without parameters. Mode ``jit`` or ``eager``.

    ``parameters`` has the floating-point leaves of the user's nest of arrays, by their paths (``layers.0.w``), and
    ``buffers`` the others and those of the state, which a training step replaces by what the function returns. If a
    leaf has 64 bits the function runs in JAX's 64-bit mode, otherwise in its usual one, in which inputs of 64 bits are
    narrowed to 32.
    """

    network = None

    def __init__(self, model: NativeModel, backend: JaxBackend, *, mode: str = "jit") -> None:
        """``DefinitionError`` if the model is no function, or its parameters are no arrays."""
        if not callable(model.model):
            found = f"it is a {type(model.model).__name__}"
            raise DefinitionError(f"the model {model.name!r} on jax", found, "return a function of JAX's arrays")
        self.mode, self._model, self._backend = mode, model, backend
        leaves, self._tree = jax.tree_util.tree_flatten_with_path(model.parameters)
        names = [jax.tree_util.keystr(path, simple=True, separator=".") or "parameters" for path, _ in leaves]
        kept, self._state_tree = jax.tree_util.tree_flatten_with_path(model.state)
        self._count = len(leaves)
        names += [f"state.{jax.tree_util.keystr(path, simple=True, separator='.')}" for path, _ in kept]
        leaves += kept
        strange = [name for name, (_, each) in zip(names, leaves, strict=True) if not _is_array(each)]
        if strange:
            found = f"{strange[0]} is no array"
            raise DefinitionError(f"the parameters of {model.name!r}", found, "return arrays in lists and dictionaries")
        kinds = [str(getattr(each, "dtype", "")) for _, each in leaves]
        typed = [name for name, kind in zip(names, kinds, strict=True) if kind.startswith("key<")]
        if typed:
            found = f"{typed[0]} is a typed random key, which no checkpoint can hold"
            raise DefinitionError(f"the state of {model.name!r}", found, "use jax.random.PRNGKey, which is an array")
        self._slots = [backend.array(np.asarray(each)) for _, each in leaves]
        trained = {name: at for at, name in enumerate(names[: self._count]) if is_differentiable(self._slots[at].dtype)}
        self.parameters = ReplaceableArrays(self._slots, trained, backend.array)
        rest = {name: at for at, name in enumerate(names) if name not in trained}
        self.buffers = ReplaceableArrays(self._slots, rest, backend.array)
        self._trained = trained
        self._narrow = not any(each.dtype.name in _WIDE for each in self._slots)
        self._infer = self._ready(
            lambda inputs, leaves: tuple(_arrays(self._answer(inputs, leaves, training=False)[0], model.name))
        )
        self._step = self._ready(self._loss_and_gradients)
        self._gradients: Sequence[Any] | None = None

    def infer(self, *inputs: Array) -> tuple[Array, ...]:
        """The arrays in the function's answer, in the order in which they lie in tuples and dictionaries."""
        found: tuple[Any, ...] = self._call(self._infer, inputs)
        return found

    def forward(self, *inputs: Array) -> Array:
        """The loss. Takes the function's inputs, then what the loss takes besides its answer.

        The gradients are computed along with it: in mode ``jit`` by the same program.
        """
        (loss, self._slots[self._count :]), self._gradients = self._call(self._step, inputs)
        return loss

    def backward(self) -> Mapping[str, Array]:
        """The gradients of the last forward; zero for a parameter that the loss does not depend on."""
        gradients, self._gradients = self._gradients, None
        if gradients is None:
            raise UsageError("the gradients of a loss", "no forward came before", "call forward first, once for each")
        return dict(zip(self._trained, gradients, strict=True))

    def compile(self, *inputs: Array) -> None:
        """Compile :meth:`infer` for inputs of these shapes and types; in mode ``eager`` there is nothing to compile."""
        if self.mode == "jit":
            self._call(self._infer.lower, inputs).compile()  # type: ignore[attr-defined]

    def _call(self, function: Function, inputs: Sequence[Array]) -> Array:
        try:
            return function(inputs, self._slots)
        except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
            found = f"it needs the value of an array while it is traced ({str(error).splitlines()[0][:120]})"
            raise UnsupportedError(f"{self._model.name} compiled on jax", found, "use mode eager") from error

    def _ready(self, function: Function) -> Function:
        """The function as the mode has it."""

        def narrowed(inputs: Sequence[Array], leaves: Sequence[Array]) -> Array:
            # Entered while the function is traced; the compiled program knows nothing of it, and pays nothing.
            with self._width():
                return function([self._narrowed(each) for each in inputs], leaves)

        return narrowed if self.mode == "eager" else jax.jit(narrowed)

    def _width(self) -> AbstractContextManager[Any]:
        found: AbstractContextManager[Any] = jax.enable_x64(False) if self._narrow else nullcontext()
        return found

    def _narrowed(self, array: Array) -> Array:
        wide = _WIDE.get(array.dtype.name) if self._narrow else None
        return array if wide is None else array.astype(wide)

    def _answer(self, inputs: Sequence[Array], leaves: Sequence[Array], *, training: bool) -> tuple[Any, list[Array]]:
        """What the function returns, and the leaves of its state from then on."""
        if self._model.parameters is None:
            return self._model.model(*inputs), []
        parameters = jax.tree_util.tree_unflatten(self._tree, leaves[: self._count])
        if self._model.state is None:
            return self._model.model(parameters, *inputs), []
        state = jax.tree_util.tree_unflatten(self._state_tree, leaves[self._count :])
        found = self._model.model(parameters, state, *inputs, training=training)
        what = f"the answer of {self._model.name!r}"
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise DefinitionError(what, "it is no pair", "return the outputs and the new state")
        fresh, tree = jax.tree_util.tree_flatten(found[1])
        if training and tree != self._state_tree:
            raise DefinitionError(what, f"its new state is {tree}, not {self._state_tree}", "return all of the state")
        return found[0], fresh

    def _loss_and_gradients(self, inputs: Sequence[Array], leaves: Sequence[Array]) -> Any:
        """The loss with the leaves of the new state, then the gradients."""
        places = list(self._trained.values())

        def objective(trained: Sequence[Array]) -> tuple[Array, list[Array]]:
            full = list(leaves)
            for at, value in zip(places, trained, strict=True):
                full[at] = value
            return self._loss(inputs, full)

        return jax.value_and_grad(objective, has_aux=True)([leaves[at] for at in places])

    def _loss(self, inputs: Sequence[Array], leaves: Sequence[Array]) -> tuple[Array, list[Array]]:
        # A model that draws its own inputs does not say how many there are: all but the labels.
        count = len(self._model.inputs) or len(inputs) - 1
        (found, fresh), rest = self._answer(inputs[:count], leaves, training=True), inputs[count:]
        own = self._model.loss
        if callable(own):
            loss = own(found, *rest)
        else:
            loss = _cross_entropy(_arrays(found, self._model.name)[0], self._model.smoothing, *rest)
        if not hasattr(loss, "shape") or loss.shape:
            raise DefinitionError(f"the loss of {self._model.name!r}", "it is no scalar array", "return the mean")
        return loss, fresh


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") or isinstance(leaf, bool | int | float | complex)


def _arrays(found: Any, name: str) -> list[Array]:
    arrays = [each for each in jax.tree_util.tree_leaves(found) if hasattr(each, "dtype")]
    if not arrays:
        raise DefinitionError(f"the answer of {name!r}", f"there is no array in a {type(found).__name__}", "return one")
    return arrays


def _cross_entropy(logits: Array, smoothing: float, labels: Array) -> Array:
    """The mean of -log softmax(logits)[label]: classes on the last axis up to rank 3, on axis 1 of images."""
    axis = logits.ndim - 1 if logits.ndim <= 3 else 1
    scores = jax.nn.log_softmax(logits, axis)
    if labels.ndim == logits.ndim:
        own = (labels * scores).sum(axis)
    else:
        own = jnp.take_along_axis(scores, jnp.expand_dims(labels, axis), axis).squeeze(axis)
    return -((1 - smoothing) * own + smoothing * scores.mean(axis)).mean()
