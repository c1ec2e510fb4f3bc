"""A framework's own model: a PyTorch module, a JAX function, a Keras model, from a user's file, without conversion.

A native model defines its computation, and declares its inputs as an ONNX graph would: name, dtype and shape. So
everything that is measured of a network can be measured of it too.

A file has a function that makes the model (``my_model.py:build``), which may return

- a ``torch.nn.Module``, or ``(module, inputs)``;
- a Keras model, or ``(model, inputs)``, on the backend that Keras was imported with;
- for JAX a function ``f(*inputs)``, ``(f, parameters)`` with ``f(parameters, *inputs)``, or
  ``(f, parameters, inputs)``, where ``parameters`` are arrays in nested lists and dictionaries, or ``None``;
- a :class:`NativeModel`, which declares everything.

``inputs`` is a dictionary of shapes by name, ``{"images": ("batch", 3, 32, 32)}``, in the order of the arguments.
Dtypes other than float32 are stated, and integers need an exclusive upper bound:
``{"ids": (("batch", 16), "int64", 1000)}``. Or it is a function that makes the NumPy arrays of a batch, as a dictionary
or in order: ``def inputs(batch): ...``. If the function returns only the model, ``inputs`` of the file is used. The
file's ``loss``, if defined, is a function of the model's outputs and the labels; without one, training uses
cross-entropy on the first output.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from levelbench.errors import (
    DefinitionError,
    LevelbenchError,
    MissingError,
    UnknownNameError,
    UsageError,
)
from levelbench.networks.values import Shape, Value, dtype_of, make_inputs

_Arrays = Mapping[str, NDArray[Any]] | Sequence[NDArray[Any]]
_HOW = 'return (model, {"images": ("batch", 3, 32, 32)}), or define inputs in the file'


@dataclass(frozen=True)
class NativeModel:
    """A model in a framework's own form.

    ``inputs`` are tensors whose open sizes have names, ``fills`` the exclusive upper bounds of integer inputs and
    ``sizes`` the values of sizes other than ``batch``; instead, ``draw`` may make the arrays of a batch. ``loss`` is a
    function of the outputs and the labels, or ``cross-entropy``: the mean of -log softmax(outputs[0])[label], with
    classes on the last axis up to rank 3 and on axis 1 for images, as in
    :meth:`levelbench.networks.Network.with_loss`. ``smoothing`` is the share of each label that cross-entropy spreads
    over all classes. Instead of class numbers, labels may be shares of classes, with the shape of the outputs.
    """

    name: str
    framework: str
    """``torch``, ``jax`` or ``tensorflow``."""
    model: Any
    """A ``torch.nn.Module``, or a function."""
    inputs: tuple[Value, ...] = ()
    parameters: Any = None
    """For JAX: nested arrays, the function's first argument; ``None`` if it takes none. A module has its own.

    For TensorFlow: the values of a Keras model's trainable variables by name, and in ``state`` those of the others.
    """
    state: Any = None
    """For JAX: nested arrays that are not trained, such as running statistics and random keys.

    With a state the function is ``f(parameters, state, *inputs, training=...)`` and returns its outputs and the new
    state, which is kept only after a training step.
    """
    draw: Callable[[int], _Arrays] | None = None
    fills: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    loss: Callable[..., Any] | str = "cross-entropy"
    smoothing: float = 0.0

    def on(self, framework: str) -> NativeModel:
        """Itself; ``UsageError`` for a Keras model on another of Keras's backends."""
        if self.framework == framework or not (is_keras(self.model) or isinstance(self.model, KerasFunction)):
            return self
        do = f"use framework={self.framework}; or import keras in the function that builds it, with KERAS_BACKEND"
        found = f"Keras's backend is {self.framework}"
        raise UsageError(f"the model {self.name!r} on {framework}", found, f"{do}={framework} or unset")

    def make_inputs(
        self, batch: int = 1, seed: int = 0, sizes: Mapping[str, int] = MappingProxyType({})
    ) -> dict[str, NDArray[Any]]:
        """Arrays by name, in the order of the arguments: random ones, or those of the user's function.

        ``DefinitionError`` if that function raises or returns anything but arrays.
        """
        if self.draw is None:
            return make_inputs(self.inputs, batch, seed, {**self.sizes, **sizes}, self.fills)
        what = f"inputs of {self.name}"
        found = _attempt(what, lambda: self.draw(batch) if self.draw else ())
        named = found.items() if isinstance(found, Mapping) else zip(_numbered(found, what), found, strict=True)
        arrays = {str(name): each for name, each in named}
        strange = [name for name, each in arrays.items() if not isinstance(each, np.ndarray)]
        if strange:
            found = f"{strange[0]} is a {type(arrays[strange[0]]).__name__}"
            raise DefinitionError(what, found, "return NumPy arrays")
        return arrays

    def make_labels(self, logits: Sequence[int], seed: int = 0) -> NDArray[np.int64]:
        """Random labels for cross-entropy on logits of this shape; ``UsageError`` if it has no classes."""
        if len(logits) < 2:
            raise UsageError(f"labels for {self.name}", f"its first output has shape {tuple(logits)}", "define a loss")
        axis = len(logits) - 1 if len(logits) <= 3 else 1
        shape = [size for at, size in enumerate(logits) if at != axis]
        return Generator(PCG64([seed, 1])).integers(0, logits[axis], shape)


@dataclass(frozen=True)
class NativeNetwork:
    """Builds a framework's own network, for a recipe: holds no arrays and imports no framework.

    ``build`` returns a ``torch.nn.Module``, for JAX ``(f, parameters)`` with ``f(parameters, *inputs)`` or
    ``(f, parameters, state)`` as in :class:`NativeModel`, or a Keras model. It is called with the run's seed if
    it has a parameter ``seed``, and otherwise without arguments, with PyTorch's generators seeded. ``loss`` is a
    function of the network's outputs and the labels; ``None`` means the recipe's cross-entropy.
    """

    build: Callable[..., Any]
    loss: Callable[..., Any] | None = None
    smoothing: float = 0.0

    @property
    def has_loss(self) -> bool:
        """Whether it has a loss of its own, whose truth says nothing: a module may have no or a zero length."""
        return self.loss is not None

    @property
    def name(self) -> str:
        """The name used in messages."""
        inner = getattr(self.build, "func", self.build)
        found = str(getattr(inner, "__name__", type(inner).__name__))
        return "of the recipe" if found == "<lambda>" else found

    def with_loss(self, kind: str, *, smoothing: float = 0.0) -> NativeNetwork:
        """The same with cross-entropy; the labels' shape tells whether they are class numbers or shares of classes."""
        return replace(self, loss=None, smoothing=smoothing)

    def training(self) -> NativeNetwork:
        """Itself: an executor puts a module in training mode."""
        return self

    def model(self, seed: int) -> NativeModel:
        """A new model, with weights drawn from ``seed`` if ``build`` takes it.

        ``DefinitionError`` if it raises, or returns neither a module nor a function.
        """
        try:
            takes = "seed" in inspect.signature(self.build).parameters
        except (TypeError, ValueError):
            takes = False
        what = f"the network {self.name}"
        made = _attempt(what, (lambda: self.build(seed=seed)) if takes else self.build)
        model, *rest = _parts(made, what)
        if is_keras(made):
            refuse_own_training(made, what)
        torch = _is_torch(model)
        if not callable(model) or len(rest) > (0 if torch else 2) or isinstance(model, type):
            found = f"its function returns {'nothing' if made is None else f'a {type(made).__name__}'}"
            raise DefinitionError(what, found, "return a torch.nn.Module, or (function, parameters) for JAX")
        parameters, state = (*rest, None, None)[:2]
        return NativeModel(
            self.name,
            _framework_of(model),
            model,
            parameters=parameters,
            state=state,
            loss="cross-entropy" if self.loss is None else self.loss,
            smoothing=self.smoothing,
        )


def is_keras(model: object) -> bool:
    """Whether it is a Keras model, determined without importing Keras."""
    return hasattr(model, "stateless_call") and not isinstance(model, type)


def keras_arguments(model: Any) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """How a Keras model takes its inputs: one after another, or in its own list or dictionary, in the order of that."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    takes = inspect.signature(getattr(model, "call", model)).parameters
    places = [each for name, each in takes.items() if each.kind in kinds and name not in ("training", "mask")]
    if len(places) != 1 or places[0].kind == inspect.Parameter.VAR_POSITIONAL:
        return lambda inputs: inputs
    try:
        nest = model.input
    except AttributeError:
        nest = None  # a model that is a class of its own
    if isinstance(nest, Mapping):
        return lambda inputs: (dict(zip(nest, inputs, strict=True)),)
    return lambda inputs: inputs if len(inputs) == 1 else (list(inputs),)


class KerasFunction:
    """A Keras model as a function of its trainable and its other variables.

    Variables are named by position, because the paths of a second model with the same layers differ.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.parameters, self.state = (
            {f"{at}/{each.name}": each.value for at, each in enumerate(some)}
            for some in (model.trainable_variables, model.non_trainable_variables)
        )
        self._names = tuple(self.parameters), tuple(self.state)
        self._given = keras_arguments(model)
        self._trains = False

    def __call__(
        self, parameters: Mapping[str, Any], state: Mapping[str, Any], *inputs: Any, training: bool
    ) -> tuple[Any, Any]:
        """The outputs and the new state."""
        import keras

        held = self.model.trainable_variables, self.model.non_trainable_variables
        # JAX sorts the keys of dictionaries.
        pairs = [
            (each, values[name])
            for some, names, values in zip(held, self._names, (parameters, state), strict=True)
            for each, name in zip(some, names, strict=True)
        ]
        # Not its stateless_call, which leaves out what a call does: its layers would not be told that it trains.
        with keras.StatelessScope(state_mapping=pairs, collect_losses=training) as scope:
            before = [scope.get_current_value(each) for each in held[0]]
            outputs = self.model(*self._given(inputs), training=training)
            if training and not self._trains:
                refuse_own_training(self.model, "a Keras model")
                after = [scope.get_current_value(each) for each in held[0]]
                _refuse_assigned(
                    [each.path for each, *both in zip(held[0], before, after, strict=True) if both[0] is not both[1]]
                )
                self._trains = True
        fresh = [scope.get_current_value(each) for each in held[1]]
        return outputs, dict(zip(self._names[1], fresh, strict=True))


def _parts(made: Any, what: str) -> tuple[Any, ...]:
    """A module, or a function with its parameters and its state if it has them."""
    if not is_keras(made):
        return made if isinstance(made, tuple) and made else (made,)
    if not getattr(made, "built", True):
        raise DefinitionError(what, "its layers have no weights yet", "call the model once, or give it a keras.Input")
    if _is_torch(made):
        return (made,)
    function = KerasFunction(made)
    return function, function.parameters, function.state


def refuse_own_training(model: Any, what: str) -> None:
    """``DefinitionError`` for a Keras model that trains by more than a recipe's loss and optimizer.

    What a layer adds in its call (``add_loss``) is known after the call only.
    """
    for name in ("train_step", "compute_loss"):
        owner = next((each for each in type(model).__mro__ if name in vars(each)), object)
        if not owner.__module__.startswith(("keras.", "builtins")):
            found = f"its class {owner.__name__} has a {name} of its own, which a recipe does not call"
            raise DefinitionError(f"training {what}", found, "leave it out, and write loss= of the recipe")
    if getattr(model, "losses", ()):
        found = "its layers add losses of their own (regularizers, add_loss), which a recipe's loss does not contain"
        do = "leave them out, or write loss= of the recipe and decay in its optimizer"
        raise DefinitionError(f"training {what}", found, do)


def _refuse_assigned(paths: Sequence[str]) -> None:
    """``DefinitionError`` for layers that assign to what an optimizer trains, which would keep its old value."""
    if paths:
        found = f"a layer, such as SpectralNormalization, assigns to {paths[0]}, which the optimizer trains"
        raise DefinitionError("training a Keras model", found, "leave it out, or use KERAS_BACKEND=torch")


def leaves_in_order(found: Any, others: Callable[[Any], Sequence[Any]]) -> list[Any]:
    """What nested sequences and dictionaries hold, these in their own order, which JAX and TensorFlow would sort.

    ``others`` opens what is neither.
    """
    if isinstance(found, Mapping | tuple | list):
        parts = found.values() if isinstance(found, Mapping) else found
        return [leaf for part in parts for leaf in leaves_in_order(part, others)]
    return list(others(found))


def _framework_of(model: object) -> str:
    if _is_torch(model):
        return "torch"
    kind = type(model.model if isinstance(model, KerasFunction) else model)
    return "tensorflow" if any(each.__module__.startswith("tensorflow.") for each in kind.__mro__) else "jax"


def is_module(value: object) -> bool:
    """Whether it is an instance of ``torch.nn.Module``, determined without importing torch."""
    return not isinstance(value, type) and _is_torch(value)


def load_native(word: str, options: Mapping[str, Any] = MappingProxyType({})) -> NativeModel:
    """The model of ``FILE.py:function``, called with ``options`` by keyword.

    The file is imported under a unique name; it can import modules next to it. Raises ``UsageError`` for a malformed
    word, ``MissingError`` if the file does not exist, ``UnknownNameError`` for an unknown function or option, and
    ``DefinitionError`` with the line if the file raises or returns something wrong.
    """
    build, path, module = _builder(word)
    with _folder_on_path(path):
        _check_options(build, options, word)
        made = _attempt(f"{word}()", lambda: build(**options), path)
    name = word.rpartition(":")[2]
    return _model(made, module, path.stem if name == "build" else f"{path.stem}.{name}", word)


def load_builder(word: str) -> Callable[[], Any]:
    """The function or class of ``FILE.py:function``, to be called without arguments.

    Raises the errors of :func:`load_native`, also when it is called.
    """
    build, path, _ = _builder(word)

    def call() -> Any:
        with _folder_on_path(path):
            return _attempt(f"{word}()", build, path)

    return call


def _builder(word: str) -> tuple[Callable[..., Any], Path, ModuleType]:
    """The function that a word names, with its file and module."""
    place, colon, name = word.rpartition(":")
    path = Path(place)
    if not colon or path.suffix != ".py" or not name.isidentifier():
        raise UsageError(f"native model {word!r}", "it does not name a function in a file", "write FILE.py:function")
    if not path.is_file():
        raise MissingError(f"native model {word!r}", f"there is no file {place}", "give the path of a .py file")
    path = path.resolve()
    with _folder_on_path(path):
        module = _import(path)
    build = getattr(module, name, None)
    if not callable(build):
        known = [each for each, value in vars(module).items() if inspect.isfunction(value)]
        raise UnknownNameError(f"function of {path.name}", name, known)
    return build, path, module


def _model(made: Any, module: ModuleType, name: str, word: str) -> NativeModel:
    """The result of the user's function as a native model."""
    if isinstance(made, NativeModel):
        return made
    model, *rest = made if isinstance(made, tuple) and made else (made,)
    kept: list[Any] = []
    if is_keras(model):
        model, *kept = _parts(model, f"{word}()")
    whole = _is_torch(model) or bool(kept)
    if not callable(model):
        returns = "it returns nothing" if made is None else f"it returns a {type(model).__name__}"
        raise DefinitionError(f"{word}()", returns, "return a torch.nn.Module, or a function of JAX arrays")
    if len(rest) > (1 if whole else 2):
        shape = "(module, inputs)" if whole else "(function, parameters, inputs)"
        raise DefinitionError(f"{word}()", f"it returns {len(rest) + 1} values", f"return {shape}")
    parameters, state = (*kept, None, None)[:2] if whole else (rest[0] if rest else None, None)
    given = rest[-1] if len(rest) == (1 if whole else 2) else getattr(module, "inputs", None)
    if given is None:
        raise DefinitionError(f"{word}()", "the model's inputs are not declared", _HOW)
    drawn = callable(given)
    declared = {} if drawn else _declared(given, word)
    return NativeModel(
        name=name,
        framework=_framework_of(model),
        model=model,
        inputs=tuple(value for value, _ in declared.values()),
        parameters=parameters,
        state=state,
        draw=given if drawn else None,
        fills={each: high for each, (_, high) in declared.items() if high is not None},
        loss=getattr(module, "loss", "cross-entropy"),
    )


def _is_torch(model: object) -> bool:
    """Whether it is a ``torch.nn.Module``, determined without importing torch."""
    return any(each.__name__ == "Module" and each.__module__.startswith("torch.") for each in type(model).__mro__)


def _declared(given: Any, word: str) -> dict[str, tuple[Value, int | None]]:
    if not isinstance(given, Mapping) or not given:
        raise DefinitionError(f"inputs of {word}", f"they are a {type(given).__name__}", _HOW)
    return {str(name): _value(str(name), each, word) for name, each in given.items()}


def declared_inputs(given: Any, word: str) -> tuple[Value, ...]:
    """The inputs that a user declares for the model ``word``, as shapes by name."""
    return tuple(value for value, _ in _declared(given, word).values())


def _value(name: str, given: Any, word: str) -> tuple[Value, int | None]:
    """``shape``, ``(shape, dtype)`` or ``(shape, dtype, high)``."""
    if isinstance(given, Value):
        return given, None
    nested = isinstance(given, Sequence) and bool(given) and isinstance(given[0], list | tuple)
    parts: list[Any] = list(given) if nested else [given]
    defaults: list[Any] = ["float32", None]
    shape, dtype, high, *more = parts + defaults[len(parts) - 1 :]
    sizes = isinstance(shape, list | tuple) and all(isinstance(each, int | str) for each in shape)
    if more or not sizes or not isinstance(dtype, str) or not isinstance(high, int | None):
        found = f"it is {given!r}"
        raise DefinitionError(f"input {name!r} of {word}", found, "give (sizes) or ((sizes), dtype, bound)")
    dtype_of(dtype)
    fixed: Shape = tuple(shape)
    return Value(name, dtype, fixed), high


def _numbered(found: Any, what: str) -> list[str]:
    if not isinstance(found, list | tuple):
        raise DefinitionError(what, f"they are a {type(found).__name__}", "return a dictionary or a list of arrays")
    return [f"input{at}" for at in range(len(found))]


def _check_options(build: Callable[..., Any], options: Mapping[str, Any], word: str) -> None:
    known = inspect.signature(build).parameters
    if any(each.kind == each.VAR_KEYWORD for each in known.values()):
        return
    for option in options:
        if option not in known:
            raise UnknownNameError(f"option of {word}", option, known)


@contextmanager
def _folder_on_path(path: Path) -> Iterator[None]:
    """Inside, modules in the file's folder can be imported; the folder comes last, so they hide no others."""
    folder = str(path.parent)
    sys.path.append(folder)
    try:
        yield
    finally:
        # It may no longer be the last entry: the user's file may have appended its own.
        del sys.path[len(sys.path) - 1 - sys.path[::-1].index(folder)]


def _import(path: Path) -> ModuleType:
    """The module of a file, under a name that is unique to its path."""
    name = f"levelbench_model_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise DefinitionError(f"the model file {path}", "Python cannot import it", "give a .py file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        # Not with the loader, which would write a cache next to the user's file.
        _attempt(f"the model file {path}", lambda: exec(compile(path.read_bytes(), path, "exec"), vars(module)), path)
    except LevelbenchError:
        sys.modules.pop(name, None)
        raise
    return module


def _attempt(what: str, call: Callable[[], Any], path: Path | None = None) -> Any:
    """The result of a user's code; any exception becomes an error with its line."""
    try:
        return call()
    except LevelbenchError:
        raise
    except (Exception, SystemExit) as error:
        raise DefinitionError(what, f"it raised {_place(error, path)}", "correct the file") from error


def _place(error: BaseException, path: Path | None) -> str:
    """The error, with the line of the user's file that raised it (without a path: of the innermost frame)."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [each.lineno for each in frames if path is None or each.filename == str(path)]
    line = error.lineno if isinstance(error, SyntaxError) else (lines[-1] if lines else None)
    return f"{type(error).__name__}: {error}" + (f" at line {line}" if line else "")
