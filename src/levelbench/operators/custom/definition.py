"""The base class of custom operators: with a forward, and a backward if networks are trained through it.

The class says what is computed, independent of the framework. Shapes and dtypes of outputs depend only on those of
inputs (``infer``), so that compilers can trace it without running it. A node of the domain ``levelbench.custom`` finds
its class by name.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any, ClassVar, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import CheckFailedError, DefinitionError, UnknownNameError, UnsupportedError, UsageError
from levelbench.operators.contract import Array
from levelbench.operators.cost import Cost as Cost
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode

Attribute = int | float | str | list[int] | list[float] | list[str]
"""The value of an attribute: what an ONNX node can hold."""


class Spec(NamedTuple):
    """The shape and dtype of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes of its elements."""
        return self.size * self.dtype.itemsize


class CustomOperator(ABC):
    """A user's operator; keyword arguments of its constructor are the attributes of its ONNX node.

    ``name`` is the ``op_type`` of the node in the domain ``levelbench.custom``; by default the name of the class.
    ``inputs`` defaults to the parameters of ``forward``, ``outputs`` to ``("output",)``.
    ``array_api`` declares that forward and backward use only the Array API standard (``namespace(x)``). They then run
    natively on the arrays of PyTorch and JAX. Otherwise every framework passes them NumPy arrays.
    ``same_as`` is the ONNX operator that computes the same with the same inputs and attributes, to be measured with in
    the frameworks' own implementations; by default the one of its name, if there is one.

    Inputs must not be changed, outputs must be new arrays, and no state may be kept between calls.
    """

    name: ClassVar[str] = ""
    inputs: ClassVar[tuple[str, ...]] = ()
    outputs: ClassVar[tuple[str, ...]] = ("output",)
    array_api: ClassVar[bool] = False
    same_as: ClassVar[str] = ""
    has_backward: ClassVar[bool] = False
    has_reference: ClassVar[bool] = False
    attributes: Mapping[str, Attribute]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        for flag, method in (("has_backward", "backward"), ("has_reference", "reference")):
            if method in cls.__dict__ and flag not in cls.__dict__:
                setattr(cls, flag, True)
        if cls.forward is CustomOperator.forward:
            return
        if not cls.__dict__.get("name"):
            cls.name = cls.__name__
        if not (cls.name.isidentifier() and cls.name.isascii()):
            do = "use ASCII letters, digits and underscores, as ONNX and PyTorch do"
            raise DefinitionError(f"custom operator {cls.name!r}", "its name is not an identifier", do)
        if not cls.inputs:
            cls.inputs = _parameters(cls)
        for kind, names in (("inputs", cls.inputs), ("outputs", cls.outputs)):
            if not isinstance(names, tuple) or not names or len(set(names)) < len(names):
                found = f"its {kind} are {names!r}"
                raise DefinitionError(f"custom operator {cls.name!r}", found, "give a tuple of different names")

    def __new__(cls, *positional: Any, **attributes: Any) -> CustomOperator:
        """Store the attributes, with their defaults."""
        self = super().__new__(cls)
        self.attributes = MappingProxyType(_bound(cls, positional, attributes))
        return self

    def infer(self, *inputs: Spec) -> tuple[Spec, ...] | Spec:
        """Shapes and dtypes of the outputs (default: of the first input); raise ``ValueError`` if inputs do not fit."""
        return (inputs[0],) * len(self.outputs)

    @abstractmethod
    def forward(self, *inputs: Array) -> Array | tuple[Array, ...]:
        """One array, or a tuple with one per output."""

    def backward(
        self, gradients: Sequence[Array], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> Array | tuple[Array | None, ...]:
        """A tuple of gradients, one per input (``None``: it has none), of the inputs' shapes and dtypes.

        ``gradients`` has one per output, ``None`` for an output that is not floating-point.
        """
        raise UnsupportedError(f"the gradient of {self.name}", "it has no backward", "write one")

    def reference(self, *inputs: NDArray[Any]) -> Array | tuple[Array, ...]:
        """The same as ``forward`` on NumPy arrays, written as simply as possible, for checks to compare with."""
        raise UnsupportedError(f"the reference of {self.name}", "it has none", "write one")

    def examples(self, random: np.random.Generator) -> Iterator[tuple[NDArray[Any], ...]]:
        """Inputs to check it with, of several shapes; none by default."""
        yield from ()

    def cost(self, *inputs: Spec) -> Cost | None:
        """Operations and bytes of a forward on such inputs; ``None`` if unknown."""
        return None

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.attributes.items())})"


def _parameters(cls: type[CustomOperator]) -> tuple[str, ...]:
    """The names of forward's parameters."""
    found = list(inspect.signature(cls.forward).parameters.values())[1:]
    if any(each.kind not in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in found):
        what = f"{cls.__name__}.forward{inspect.signature(cls.forward)} does not name its inputs one by one"
        raise DefinitionError(f"custom operator {cls.__name__!r}", what, 'set inputs = ("x", ...) in the class')
    return tuple(each.name for each in found)


def _bound(
    cls: type[CustomOperator], positional: Sequence[Attribute], given: Mapping[str, Attribute]
) -> dict[str, Attribute]:
    """Attributes by name, with the constructor's defaults."""
    if cls.__init__ is object.__init__:
        if positional or given:
            raise UnknownNameError(f"attribute of {cls.name}", next(iter(given), repr(positional)), ())
        return {}
    initialiser = inspect.signature(cls.__init__)
    signature = initialiser.replace(parameters=list(initialiser.parameters.values())[1:])
    try:
        bound = signature.bind(*positional, **given)
    except TypeError as error:
        known = [each.name for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        unknown = [name for name in given if name not in known]
        if unknown:
            raise UnknownNameError(f"attribute of {cls.name}", unknown[0], known) from None
        raise UsageError(f"custom operator {cls.name}", str(error), f"its attributes are {', '.join(known)}") from None
    bound.apply_defaults()
    values = dict(bound.arguments)
    for each in signature.parameters.values():
        if each.kind is each.VAR_KEYWORD:
            values.update(values.pop(each.name, {}))
    return {name: _attribute(cls, name, value) for name, value in values.items()}


def _attribute(cls: type[CustomOperator], name: str, value: object) -> Attribute:
    """The value in a form that ONNX can hold: Python numbers, strings, and lists of one kind."""
    if isinstance(value, bool | np.bool_ | int | np.integer) and -(2**63) <= value < 2**63:
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value)
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        items: list[Any] = [_attribute(cls, name, each) for each in value]
        kinds = {type(each) for each in items}
        if kinds == {int, float}:
            return [float(each) for each in items]
        if len(kinds) < 2 and not any(isinstance(each, list) for each in items):
            return items
    found = f"{name} is {value!r}"
    do = "give a 64-bit int, a float, a str or a list of one of these"
    raise UsageError(f"custom operator {cls.name}", found, do)


def as_array(operator: CustomOperator, value: Array) -> NDArray[Any]:
    """An input as a NumPy array; ``UsageError`` for a list or a number, whose dtype would be a guess."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.generic) or hasattr(value, "__array__"):
        return np.asarray(value)
    raise UsageError(
        f"{operator.name} of a {type(value).__name__}", "it takes arrays", "give it np.asarray(value, dtype)"
    )


def count_inputs(operator: CustomOperator, given: int) -> None:
    """Raise ``UsageError`` for a wrong number of inputs."""
    if given != len(operator.inputs):
        found = f"it takes {len(operator.inputs)}: {', '.join(operator.inputs)}"
        raise UsageError(f"{operator.name} of {given} inputs", found, "give that many")


def spec_of(array: NDArray[Any]) -> Spec:
    """Shape and dtype of a NumPy array."""
    return Spec(array.shape, array.dtype)


def differentiable(spec: Spec) -> bool:
    """Whether such an array can have a gradient: a floating-point dtype, including those of ``ml_dtypes``."""
    # ml_dtypes registers its floating-point types with kind V, NumPy's own have kind f.
    return spec.dtype.kind == "f" or (spec.dtype.kind == "V" and "float" in spec.dtype.name)


def infer_outputs(operator: CustomOperator, inputs: Sequence[Spec]) -> tuple[Spec, ...]:
    """The result of ``infer``, as a tuple with one per output.

    Raises ``UsageError`` if ``infer`` refuses the inputs with a ``ValueError``, and ``CheckFailedError`` if it returns
    anything but one spec per output.
    """
    try:
        found: Any = operator.infer(*inputs)
    except ValueError as error:
        raise UsageError(f"{operator.name} of {_listed(inputs)}", str(error), "give inputs that fit") from error
    specs: tuple[Any, ...] = (
        (found,) if isinstance(found, Spec) or not isinstance(found, tuple | list) else tuple(found)
    )
    if len(specs) == len(operator.outputs) and all(isinstance(each, tuple) and len(each) == 2 for each in specs):
        # Dimensions are not converted to int, as they may be a compiler's symbols. Invalid shapes and dtypes raise.
        with contextlib.suppress(TypeError):
            return tuple([Spec(tuple(shape), np.dtype(dtype)) for shape, dtype in specs])
    what = f"it returns {found!r} for the outputs {', '.join(operator.outputs)}"
    raise CheckFailedError(f"infer of {operator.name}", what, "return one Spec(shape, dtype) per output")


def _listed(specs: Sequence[Spec]) -> str:
    return ", ".join(f"{spec.dtype}[{','.join(map(str, spec.shape))}]" for spec in specs)


# Custom operators by name: what nodes of the domain ``levelbench.custom`` mean in this process.


Class = TypeVar("Class", bound=type[CustomOperator])

_REGISTERED: dict[str, type[CustomOperator]] = {}
_REFERENCES: WeakKeyDictionary[type[CustomOperator], object] = WeakKeyDictionary()


def register(cls: Class) -> Class:
    """Make the class known by its name; may be used as a decorator.

    A class replaces one of the same name that comes from the same file (a file may be loaded again) or that it derives
    from. Raises ``DefinitionError`` if an unrelated class of another file has the name.
    """
    if not (isinstance(cls, type) and issubclass(cls, CustomOperator)) or inspect.isabstract(cls):
        found = "it is not a class with a forward"
        raise DefinitionError(f"custom operator {cls!r}", found, "register a CustomOperator")
    known = _REGISTERED.get(cls.name)
    if known is not None and not _related(known, cls) and _origin(known) != _origin(cls):
        found = f"{_origin(known)} already has an operator of that name"
        raise DefinitionError(f"custom operator {cls.name!r} of {_origin(cls)}", found, "set another `name`")
    _REGISTERED[cls.name], _REFERENCES[cls] = cls, cls.reference
    return cls


def has_other_reference(cls: type[CustomOperator]) -> bool:
    """Whether its reference is not the one that it was registered with."""
    return bool(_REFERENCES.get(cls, cls.reference) != cls.reference)


def _related(one: type[CustomOperator], other: type[CustomOperator]) -> bool:
    return issubclass(one, other) or issubclass(other, one)


def _origin(cls: type[CustomOperator]) -> str:
    """The file of a class, else its module."""
    source = getattr(cls, "source", None)
    try:
        # A class derived from a compiled one comes from its own file, not from the C++ file.
        return str(inspect.getfile(cls) if source is None or "source" not in cls.__dict__ else source)
    except (TypeError, OSError):
        return cls.__module__


def names() -> list[str]:
    """The registered names."""
    return sorted(_REGISTERED)


def find(name: str) -> type[CustomOperator]:
    """The class of that name; ``UnknownNameError`` with similar names if there is none."""
    if name not in _REGISTERED:
        do = "load its file first: levelbench.operators.custom.load_file(path)"
        raise UnknownNameError("custom operator", name, _REGISTERED, do)
    return _REGISTERED[name]


def create(node: OperatorNode) -> CustomOperator:
    """The operator that a node describes.

    Raises ``UnknownNameError`` for an unknown name or attribute, and ``UsageError`` for a wrong number of inputs or
    outputs or an attribute of the wrong type.
    """
    cls = find(node.op_type)
    for kind, given, known in (("inputs", node.inputs, cls.inputs), ("outputs", node.outputs, cls.outputs)):
        if len(given) != len(known) or not all(given):
            found = f"the node has {sum(map(bool, given))} {kind}, the operator {len(known)}: {', '.join(known)}"
            raise UsageError(node.title, found, "give that many")
    return cls(**node.attributes)


def node_of(operator: CustomOperator) -> OperatorNode:
    """The ONNX node of an operator, with the names of its inputs and outputs."""
    return OperatorNode(operator.name, operator.inputs, operator.outputs, dict(operator.attributes), CUSTOM_DOMAIN, 1)


def namespace(*arrays: Array) -> ModuleType:
    """The functions of the Array API standard for arrays of any framework.

    An operator begins with ``xp = namespace(x)``. Numbers are ignored. Raises ``UnsupportedError`` for anything that is
    not an array of the standard.
    """
    # Imported here, because few operators use it.
    from array_api_compat import array_namespace

    given = [each for each in arrays if not isinstance(each, bool | int | float | complex | None)]
    try:
        found: ModuleType = array_namespace(*given or [np.empty(0)])
    except TypeError as error:
        kinds = " and a ".join(dict.fromkeys(type(each).__name__ for each in given))
        has = f"a {kinds} has no namespace of the Array API standard"
        raise UnsupportedError("namespace(...)", has, "give arrays of numpy, torch or jax") from error
    return found
