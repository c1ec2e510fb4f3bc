"""Executes networks and JAX functions on JAX, as one XLA program or operator by operator, with JAX's gradients.

A lowered network is a pure function of arrays, so the compiled mode is ``jax.jit`` of it, the same program as for a
hand-written function, called with one flat list of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from jax import Array
from jax.stages import Wrapped

from levelbench.errors import DefinitionError, UnknownNameError, UnsupportedError
from levelbench.frameworks import no_forward
from levelbench.frameworks.jax.arrays import is_differentiable
from levelbench.frameworks.jax.operator import Draw
from levelbench.frameworks.jax.operators import find
from levelbench.frameworks.shared.executor import FunctionalExecutor, Reader, Recorded, cross_entropy
from levelbench.networks.executor import Executor, LiveMapping, require_inputs, require_shape
from levelbench.networks.inspect import all_nodes
from levelbench.networks.native import NativeModel, leaves_in_order
from levelbench.networks.network import Network
from levelbench.operators.contract import Function
from levelbench.operators.node import OperatorNode

if TYPE_CHECKING:
    from levelbench.frameworks.jax.backend import JaxBackend


class ReplaceableArrays(LiveMapping):
    """Some entries of ``slots``, by name. An assigned value is cast to the dtype of the entry.

    JAX arrays are immutable: ``parameters["w"] -= step`` creates a new array and assigns it here.
    """

    def __init__(self, slots: list[Array], places: Mapping[str, int], native: Callable[[Array], Array]) -> None:
        """``native`` converts a value that is not a JAX array, on the device."""
        self._slots, self._places, self._native = slots, dict(places), native

    def __getitem__(self, name: str) -> Array:
        return self._slots[self._places[name]]

    def __setitem__(self, name: str, value: Array) -> None:
        """Raises ``UnknownNameError`` for an unknown name, ``UsageError`` for another shape."""
        if name not in self._places:
            raise UnknownNameError("parameter", name, self._places)
        at = self._places[name]
        held = self._slots[at]
        if value is held:
            return
        if not hasattr(value, "weak_type"):
            value = self._native(value)
        require_shape(name, held.shape, value.shape)
        # A weak type would be a different type for the compiler and would be promoted differently.
        self._slots[at] = value.astype(held.dtype) if value.dtype != held.dtype or value.weak_type else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def list(self, names: Sequence[str]) -> list[Array]:
        """The arrays of these names."""
        return [self[name] for name in names]


class Drawn:
    """A compiled function whose first argument is a draw of the backend; a draw inside it would be a constant."""

    def __init__(self, function: Wrapped, backend: JaxBackend) -> None:
        self._function, self._backend = function, backend

    def __call__(self, *arguments: Array) -> Array:
        """One call with a new draw."""
        return self._function(self._backend.draw(), *arguments)

    def lower(self, *arguments: Array) -> Array:
        """JAX's own lowering."""
        return self._function.lower(self._backend.draw(), *arguments)


def is_random(network: Network) -> bool:
    """Whether any node of the network, of its subgraphs or functions, draws random numbers."""
    bodies = [network.model.graph.node, *(each.node for each in network.model.functions)]
    return any(_draws(node) for body in bodies for node in all_nodes(body))


def _draws(node: onnx.NodeProto) -> bool:
    # Dropout draws only in training mode, which is its third input.
    if node.op_type == "Dropout" and len(node.input) < 3:
        return False
    try:
        return find(OperatorNode(node.op_type, (), (), domain=node.domain)).random
    except UnsupportedError:
        return False


# JAX's errors for a trace that needs a value, for a shape or a branch.
_VALUE_NEEDED = (jax.errors.ConcretizationTypeError, jax.errors.JAXIndexError, jax.errors.TracerArrayConversionError)


class JaxExecutor(FunctionalExecutor):
    """A network on JAX. The caller's arrays are never donated; calls are asynchronous (``Backend.finish`` waits).

    Mode ``eager`` dispatches operators one by one, each compiled separately.
    """

    failures = (*_VALUE_NEEDED, TypeError)
    _backend: JaxBackend

    def held(self, arrays: dict[str, Array], trained: set[str]) -> tuple[ReplaceableArrays, ReplaceableArrays]:
        self._slots, self._places = list(arrays.values()), {name: at for at, name in enumerate(arrays)}
        chosen = {name: at for name, at in self._places.items() if name in trained}
        rest = {name: at for name, at in self._places.items() if name not in trained}
        native = self._backend.array
        return ReplaceableArrays(self._slots, chosen, native), ReplaceableArrays(self._slots, rest, native)

    def reader(self, names: Sequence[str]) -> Reader:
        # The whole list if that is the same.
        slots, places = self._slots, [self._places[name] for name in names]
        return (lambda: slots) if places == list(range(len(slots))) else (lambda: [slots[at] for at in places])

    def bare(self, node: OperatorNode) -> Function | None:
        entry = None if self.mode == "eager" else find(node)
        return None if entry is None or entry.random else entry.make(node)

    def compiled(self, function: Function, network: Network) -> Function:
        """Random draws follow the backend's seed in both modes."""
        backend = self._backend
        if self.mode == "eager":
            return function
        if not is_random(network):
            # An argument tells JAX where to compute.
            given = self._slots or self.network.inputs
            return jax.jit(function) if given else _placed(jax.jit(function), backend)

        def drawing(draw: Draw, *arguments: Array) -> Array:
            with backend.drawing(draw):
                return function(*arguments)

        return Drawn(jax.jit(drawing), backend)

    def recorded(self, objective: Function, places: Sequence[int], arguments: Sequence[Array]) -> Recorded:
        def narrowed(*trained: Array) -> tuple[Array, Sequence[Array]]:
            full = list(arguments)
            for at, value in zip(places, trained, strict=True):
                full[at] = value
            found: tuple[Array, Sequence[Array]] = objective(*full)
            return found

        loss, pullback, updates = jax.vjp(narrowed, *(arguments[at] for at in places), has_aux=True)
        return loss, updates, lambda: pullback(jnp.ones_like(loss))

    def zeros(self, array: Array) -> Array:
        return jnp.zeros_like(array)

    def compile(self, *inputs: Array) -> None:
        """Compile :meth:`infer` for inputs of these shapes and types, without computing anything.

        In mode ``eager`` there is nothing to compile in advance.
        """
        if self.mode == "eager":
            return
        try:
            self._infer.lower(*inputs, *self._read()).compile()  # type: ignore[attr-defined]
        except self.failures as error:
            require_inputs(self._lowered.inputs, len(inputs), error)
            if found := self.refused(error):
                raise found from error
            raise

    def refused(self, error: Exception) -> UnsupportedError | None:
        if not isinstance(error, _VALUE_NEEDED):
            return None
        found = f"a shape or a branch depends on values ({str(error).splitlines()[0][:120]})"
        if self.mode == "eager":
            return UnsupportedError(f"{self.network.name} on jax in mode 'eager'", found, "use numpy or torch")
        return UnsupportedError(f"{self.network.name} compiled as a whole on jax", found, "use mode eager")


def _placed(function: Function, backend: JaxBackend) -> Function:
    """A function without arguments, run on the backend's device."""

    def placed() -> Array:
        with jax.default_device(backend.device):
            return function()

    return placed


_WIDE = {"float64": jnp.float32, "int64": jnp.int32, "uint64": jnp.uint32, "complex128": jnp.complex64}


class JaxFunction(Executor):
    """A user's ``f(parameters, *inputs)``, or ``f(*inputs)`` without parameters, in mode ``jit`` or ``eager``.

    Nothing is converted, so what is measured is what the user wrote. ``parameters`` has the floating-point leaves of
    the user's pytree by path (``layers.0.w``); ``buffers`` has the others and those of the state, which a training step
    replaces. If a leaf has 64 bits, the function runs in JAX's 64-bit mode. Otherwise it runs in the default mode,
    whatever the rest of the process needs, and 64-bit inputs are narrowed to 32 bits.
    """

    network = None

    def __init__(self, model: NativeModel, backend: JaxBackend, *, mode: str = "jit") -> None:
        """``DefinitionError`` if the model is not a function, or its parameters are not arrays."""
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
            found = f"{strange[0]} is not an array"
            raise DefinitionError(f"the parameters of {model.name!r}", found, "return arrays in lists and dictionaries")
        kinds = [str(getattr(each, "dtype", "")) for _, each in leaves]
        typed = [name for name, kind in zip(names, kinds, strict=True) if kind.startswith("key<")]
        if typed:
            found = f"{typed[0]} is a typed random key, which a checkpoint cannot store"
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
        """The arrays that the function returns, in the order of its tuples and dictionaries."""
        found: tuple[Any, ...] = self._call(self._infer, inputs)
        return found

    def forward(self, *inputs: Array) -> Array:
        """The loss. Takes the function's inputs, then the loss's further arguments, such as labels.

        The gradients are computed with it, in mode ``jit`` by the same program.
        """
        (loss, self._slots[self._count :]), self._gradients = self._call(self._step, inputs)
        return loss

    def backward(self) -> Mapping[str, Array]:
        """The gradients of the last forward pass; zero for a parameter that the loss does not depend on."""
        gradients, self._gradients = self._gradients, None
        if gradients is None:
            raise no_forward()
        return dict(zip(self._trained, gradients, strict=True))

    def compile(self, *inputs: Array) -> None:
        """Compile :meth:`infer` for inputs of these shapes and types; in mode ``eager`` there is nothing to compile."""
        if self.mode == "jit":
            self._call(self._infer.lower, inputs).compile()  # type: ignore[attr-defined]

    def _call(self, function: Function, inputs: Sequence[Array]) -> Array:
        try:
            return function(inputs, self._slots)
        except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
            found = f"it needs the value of an array during tracing ({str(error).splitlines()[0][:120]})"
            raise UnsupportedError(f"{self._model.name} compiled on jax", found, "use mode eager") from error

    def _ready(self, function: Function) -> Function:
        """The function, compiled if the mode says so."""

        def narrowed(inputs: Sequence[Array], leaves: Sequence[Array]) -> Array:
            # Active during tracing only, so it costs the compiled program nothing.
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
        """What the function returns, and the leaves of its new state."""
        if self._model.parameters is None:
            return self._model.model(*inputs), []
        parameters = jax.tree_util.tree_unflatten(self._tree, leaves[: self._count])
        if self._model.state is None:
            return self._model.model(parameters, *inputs), []
        state = jax.tree_util.tree_unflatten(self._state_tree, leaves[self._count :])
        found = self._model.model(parameters, state, *inputs, training=training)
        what = f"the result of {self._model.name!r}"
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise DefinitionError(what, "it is not a pair", "return the outputs and the new state")
        fresh, tree = jax.tree_util.tree_flatten(found[1])
        if training and tree != self._state_tree:
            raise DefinitionError(what, f"its new state is {tree}, not {self._state_tree}", "return all of the state")
        return found[0], fresh

    def _loss_and_gradients(self, inputs: Sequence[Array], leaves: Sequence[Array]) -> Any:
        """((the loss, the leaves of the new state), gradients)."""
        places = list(self._trained.values())

        def objective(trained: Sequence[Array]) -> tuple[Array, list[Array]]:
            full = list(leaves)
            for at, value in zip(places, trained, strict=True):
                full[at] = value
            return self._loss(inputs, full)

        return jax.value_and_grad(objective, has_aux=True)([leaves[at] for at in places])

    def _loss(self, inputs: Sequence[Array], leaves: Sequence[Array]) -> tuple[Array, list[Array]]:
        # A model that draws its own inputs does not declare their number: all but the labels.
        count = len(self._model.inputs) or len(inputs) - 1
        (found, fresh), rest = self._answer(inputs[:count], leaves, training=True), inputs[count:]
        own = self._model.loss
        if callable(own):
            loss = own(found, *rest)
        else:
            logits = _arrays(found, self._model.name)[0]
            loss = cross_entropy(jnp, jax.nn.log_softmax, logits, self._model.smoothing, *rest)
        if not hasattr(loss, "shape") or loss.shape:
            raise DefinitionError(f"the loss of {self._model.name!r}", "it is not a scalar array", "return the mean")
        return loss, fresh


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") or isinstance(leaf, bool | int | float | complex)


def _arrays(found: Any, name: str) -> list[Array]:
    arrays = [each for each in leaves_in_order(found, jax.tree_util.tree_leaves) if hasattr(each, "dtype")]
    if not arrays:
        raise DefinitionError(f"the result of {name!r}", f"there is no array in a {type(found).__name__}", "return one")
    return arrays
