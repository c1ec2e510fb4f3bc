"""Executes networks and JAX functions on JAX, as one XLA program or operator by operator, with JAX's gradients.

A lowered network is a pure function of arrays, so the compiled mode is ``jax.jit`` of it, the same program as for a
hand-written function, called with one flat list of arrays. Loss and gradients are one program, too:
:meth:`JaxExecutor.forward` runs it, and :meth:`JaxExecutor.backward` returns the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import onnx
from jax import Array
from jax.stages import Wrapped
from numpy.typing import NDArray

from levelbench.errors import UnknownNameError, UnsupportedError, UsageError
from levelbench.frameworks import no_forward
from levelbench.frameworks.jax.operator import Draw
from levelbench.frameworks.jax.operators import find
from levelbench.frameworks.shared.operators import expandable
from levelbench.measure.clocks import HOST
from levelbench.networks.codegen import Lowered
from levelbench.networks.executor import (
    Executor,
    LiveMapping,
    OperatorTime,
    collected_times,
    require_inputs,
    require_shape,
)
from levelbench.networks.inspect import all_nodes
from levelbench.networks.network import Network
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode
from levelbench.operators.program import Scope

if TYPE_CHECKING:
    from levelbench.frameworks.jax.backend import JaxBackend
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import numpy as np

from levelbench.errors import DefinitionError
from levelbench.frameworks.jax.arrays import is_differentiable
from levelbench.networks.native import NativeModel
from levelbench.operators.contract import Function

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


class JaxExecutor(Executor):
    """A network on JAX. ``parameters[name] = array`` takes effect at once; the caller's arrays are never donated.

    Each set of shapes is compiled at its first call, or by :meth:`compile`. Mode ``eager`` dispatches operators one by
    one, each compiled separately. Calls are asynchronous (``Backend.finish`` waits).
    """

    network: Network

    def __init__(
        self, backend: JaxBackend, network: Network, parameters: Mapping[str, NDArray[Any]], *, mode: str, trains: bool
    ) -> None:
        """Raises ``UnsupportedError`` for an unsupported operator."""
        self.network, self.mode = network, mode
        self._backend, self._trains = backend, trains
        arrays = {each.name: backend.array(parameters[each.name]) for each in network.parameters}
        trained = {each.name for each in network.parameters if each.trainable}
        names = list(arrays)
        slots = list(arrays.values())
        places = {name: at for at, name in enumerate(names)}
        self.parameters = ReplaceableArrays(
            slots, {name: at for name, at in places.items() if name in trained}, backend.array
        )
        self.buffers = ReplaceableArrays(
            slots, {name: at for name, at in places.items() if name not in trained}, backend.array
        )
        self._slots, self._places = slots, places
        self._random = is_random(network)
        inference = network.for_inference
        self._lowered = self.lower(inference, [each.name for each in inference.outputs])
        # The arrays that the function reads, in its order; the whole list if that is the same.
        self._read = self._reader(self._lowered.arrays)
        self._infer = self._compiled(self._lowered.function, is_random(inference))
        self._training: _Training | None = None

    def infer(self, *inputs: Array) -> tuple[Array, ...]:
        try:
            found: tuple[Any, ...] = self._infer(*inputs, *self._read())
        except _VALUE_NEEDED as error:
            raise self._untraceable(error) from error
        except TypeError as error:
            require_inputs(self._lowered.inputs, len(inputs), error)
            raise
        return found

    def forward(self, *inputs: Array) -> Array:
        """The loss; in mode ``jit`` the same program computes its gradients."""
        training = self._training or self._ready_to_train()
        try:
            return training.forward(inputs)
        except _VALUE_NEEDED as error:
            raise self._untraceable(error) from error

    def backward(self) -> Mapping[str, Array]:
        """The gradients of the last forward pass; zero for a parameter that the loss does not depend on."""
        gradients = self._training.backward() if self._training else None
        if gradients is None:
            raise no_forward()
        return gradients

    def compile(self, *inputs: Array) -> None:
        """Compile :meth:`infer` for inputs of these shapes and types, without computing anything.

        In mode ``eager`` there is nothing to compile in advance.
        """
        if self.mode == "eager":
            return
        try:
            self._infer.lower(*inputs, *self._read()).compile()  # type: ignore[attr-defined]
        except _VALUE_NEEDED as error:
            raise self._untraceable(error) from error
        except TypeError as error:
            require_inputs(self._lowered.inputs, len(inputs), error)
            raise

    def operator_times(self, *inputs: Array, repeats: int = 1) -> list[OperatorTime]:
        """The time of each operator, waiting for each; mode ``eager`` only, because XLA fuses operators."""
        if self.mode != "eager":
            raise UnsupportedError(
                f"the time of each operator in mode {self.mode!r}", "XLA fuses them", "use mode eager"
            )
        require_inputs(self._lowered.inputs, len(inputs))
        arrays = self._read()
        # One warm-up run, to compile.
        self._lowered.run_timed(inputs, arrays, HOST, self._backend.finish)
        runs = [self._lowered.run_timed(inputs, arrays, HOST, self._backend.finish) for _ in range(repeats)]
        return collected_times(self._lowered.steps, runs)

    def lower(self, network: Network, outputs: Sequence[str]) -> Lowered:
        """Values of the network as a function, made of bare operators if it will be compiled as a whole."""
        return Lowered(network, self._backend, outputs=outputs, call=None if self.mode == "eager" else self._bare)

    def _reader(self, names: Sequence[str]) -> Callable[[], list[Array]]:
        """A function that returns the current arrays of these names."""
        slots, places = self._slots, [self._places[name] for name in names]
        return (lambda: slots) if places == list(range(len(slots))) else (lambda: [slots[at] for at in places])

    def _compiled(self, function: Function, random: bool) -> Function:
        """The function, compiled if the mode says so; random draws follow the backend's seed in both modes."""
        backend = self._backend
        if self.mode == "eager":
            return function
        if not random:
            return _placed(jax.jit(function), backend) if not self._arguments() else jax.jit(function)

        def drawing(draw: Draw, *arguments: Array) -> Array:
            with backend.drawing(draw):
                return function(*arguments)

        return Drawn(jax.jit(drawing), backend)

    def _arguments(self) -> bool:
        """Whether there is any argument whose device tells JAX where to compute."""
        return bool(self._slots or self.network.inputs)

    def _ready_to_train(self) -> _Training:
        if self._training is None:
            if not self.network.loss:
                raise UsageError(f"training {self.network.name}", "it has no loss", "add one with network.with_loss()")
            if not self._trains:
                raise UsageError(f"training {self.network.name}", "its executor is for inference", "use trains=True")
            self._training = _Training(self, self._reader, self._compiled)
        return self._training

    def _bare(self, node: OperatorNode) -> Function | None:
        """A node's function for tracing, not compiled separately."""
        if node.domain == CUSTOM_DOMAIN:
            return None
        try:
            entry = find(node)
        except UnsupportedError:
            return None
        if entry.random:
            return None
        function = entry.make(node)
        return expandable(function, node, Scope(self._backend, self.network.opsets))

    def _untraceable(self, error: Exception) -> UnsupportedError:
        found = f"a shape or a branch depends on values ({str(error).splitlines()[0][:120]})"
        if self.mode == "eager":
            return UnsupportedError(f"{self.network.name} on jax in mode 'eager'", found, "use numpy or torch")
        return UnsupportedError(f"{self.network.name} compiled as a whole on jax", found, "use mode eager")


class _Training:
    """Computes the loss of a network, its gradients, and the new values of its buffers."""

    def __init__(
        self,
        executor: JaxExecutor,
        reader: Callable[[Sequence[str]], Callable[[], list[Array]]],
        compiled: Callable[[Function, bool], Function],
    ) -> None:
        network = executor.network
        self._executor, self._buffers = executor, tuple(network.updates)
        lowered = executor.lower(network, [network.loss, *network.updates.values()])
        names = [each.name for each in network.inputs]
        self._names = names
        self._taken = [names.index(name) for name in lowered.inputs]
        self._read = reader(lowered.arrays)
        count = len(lowered.inputs)
        self._places = [count + at for at, name in enumerate(lowered.arrays) if name in executor.parameters]
        self._reached = [name for name in lowered.arrays if name in executor.parameters]
        self._unreached = [name for name in executor.parameters if name not in self._reached]
        self._eager = executor.mode == "eager"
        self._in_order = self._taken == list(range(len(names)))
        self._found: Sequence[Any] | None = None
        self._pull: Callable[[], Sequence[Any]] | None = None

        def objective(*arguments: Array) -> tuple[Array, Sequence[Array]]:
            loss, *updates = lowered.function(*arguments)
            return loss, updates

        self._objective = objective
        both = jax.value_and_grad(objective, tuple(self._places), has_aux=True) if self._places else None
        self._step = compiled(both or (lambda *arguments: (objective(*arguments), ())), is_random(network))

    def forward(self, inputs: Sequence[Array]) -> Array:
        """The loss; also computes the gradients or, in mode ``eager``, prepares them."""
        if len(inputs) != len(self._names):
            require_inputs(self._names, len(inputs))
        if not self._in_order:
            inputs = [inputs[at] for at in self._taken]
        if self._eager:
            loss, updates, self._pull = self._recorded([*inputs, *self._read()])
        else:
            (loss, updates), self._found = self._step(*inputs, *self._read())
        if updates:
            buffers = self._executor.buffers
            for name, value in zip(self._buffers, updates, strict=True):
                buffers[name] = value
        return loss

    def backward(self) -> dict[str, Array] | None:
        """The gradients by name, once; ``None`` without a forward pass before."""
        if self._pull is not None:
            pull, self._pull = self._pull, None
            self._found = pull()
        found, self._found = self._found, None
        if found is None:
            return None
        gradients = dict(zip(self._reached, found, strict=True))
        if self._unreached:
            parameters = self._executor.parameters
            gradients |= {name: jnp.zeros_like(parameters[name]) for name in self._unreached}
        return gradients

    def _recorded(self, arguments: list[Array]) -> tuple[Array, Array, Callable[[], Sequence[Array]]]:
        """Runs one operator after another; each records its pullback."""

        def narrowed(*trained: Array) -> tuple[Array, Sequence[Array]]:
            full = list(arguments)
            for at, value in zip(self._places, trained, strict=True):
                full[at] = value
            return self._objective(*full)

        loss, pullback, updates = jax.vjp(narrowed, *(arguments[at] for at in self._places), has_aux=True)
        return loss, updates, lambda: pullback(jnp.ones_like(loss))


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
            loss = _cross_entropy(_arrays(found, self._model.name)[0], self._model.smoothing, *rest)
        if not hasattr(loss, "shape") or loss.shape:
            raise DefinitionError(f"the loss of {self._model.name!r}", "it is not a scalar array", "return the mean")
        return loss, fresh


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") or isinstance(leaf, bool | int | float | complex)


def _arrays(found: Any, name: str) -> list[Array]:
    arrays = [each for each in jax.tree_util.tree_leaves(found) if hasattr(each, "dtype")]
    if not arrays:
        raise DefinitionError(f"the result of {name!r}", f"there is no array in a {type(found).__name__}", "return one")
    return arrays


def _cross_entropy(logits: Array, smoothing: float, labels: Array) -> Array:
    """The mean of -log softmax(logits)[label]: classes on the last axis up to rank 3, on axis 1 for images."""
    axis = logits.ndim - 1 if logits.ndim <= 3 else 1
    scores = jax.nn.log_softmax(logits, axis)
    if labels.ndim == logits.ndim:
        own = (labels * scores).sum(axis)
    else:
        own = jnp.take_along_axis(scores, jnp.expand_dims(labels, axis), axis).squeeze(axis)
    return -((1 - smoothing) * own + smoothing * scores.mean(axis)).mean()
