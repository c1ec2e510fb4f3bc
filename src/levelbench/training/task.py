"""A task fixes what must not change; a recipe is one way to reach its target.

A ``Recipe`` is a value: it names parts and holds no arrays, so it can be made again wherever it is needed, and equal
recipes train alike. It is made by a function whose keyword arguments are its settings, with their defaults. Settings
that a user gives (``digits[lr=0.05]``) are checked against them, and the full set goes into the specification, so
leaving out a default and writing it down are the same run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, overload

from numpy.typing import NDArray

from levelbench import plugins
from levelbench.errors import DefinitionError, LevelbenchError, UnknownNameError, UnsupportedError, UsageError
from levelbench.measure.policies import policy
from levelbench.networks import losses  # noqa: F401  # imported here, before any clock runs
from levelbench.networks.executor import Backend, Executor
from levelbench.networks.native import NativeNetwork, is_module
from levelbench.networks.network import Network
from levelbench.training.augmentation import Augmentation, Mixing
from levelbench.training.datasets.base import DatasetSource
from levelbench.training.optimizers.base import Optimizer
from levelbench.training.optimizers.wrappers import Native
from levelbench.training.quality import Quality
from levelbench.training.samplers import Sampler
from levelbench.training.schedules import Constant, Schedule
from levelbench.training.stopping import Evaluate

if TYPE_CHECKING:
    from levelbench.training.experience import Rollouts

_PRECISIONS = ("float32", "bfloat16")
_STATED = ("name", "licence", "attribution")
_SCHEDULE = (
    "give one of levelbench.training.schedules, such as Cosine(), or derive from Schedule: its factor(progress) is what"
    " the optimizer's rate is multiplied by; schedulers of a framework's own are not used"
)
_AUGMENT = "give a tuple of levelbench.training.augmentation's, or derive from Augmentation; () is none"
_MIX = "give one of levelbench.training.augmentation's, such as Mixup(), or derive from Mixing"


@dataclass(frozen=True)
class Recipe:
    """The parts of one way to train. It gives up after ``epochs``; with a schedule of fixed length it ends there.

    ``augment`` changes each training image by itself, in this order; ``mix`` mixes the images of a batch.
    ``label_smoothing`` is the share of each label that is spread over all classes. ``precision="bfloat16"`` uses it
    where it helps and keeps parameters in float32; ``channels_last`` is a memory layout of images; ``mode`` is the
    executor's (eager, compiled, jit). ``accumulate`` batches of the sampler make one update of the optimizer.
    ``workers`` threads make batches ahead if they need work on the host. With ``experience`` an epoch is what the
    network has just done in the dataset's environment, and the training split is not used.

    ``network`` may also be a function that builds a ``torch.nn.Module``, or for JAX ``(f, parameters)`` as in
    :class:`levelbench.networks.native.NativeNetwork`, with ``loss``, a function of its outputs and the labels, instead
        of cross-entropy; ``optimizer`` a class of ``torch.optim`` with its settings in a ``functools.partial``, or an
        optax transformation.
    """

    network: Network | NativeNetwork
    sampler: Sampler
    optimizer: Optimizer
    epochs: int
    schedule: Schedule = field(default_factory=Constant)
    augment: tuple[Augmentation, ...] = ()
    mix: Mixing | None = None
    label_smoothing: float = 0.0
    precision: str = "float32"
    channels_last: bool = False
    mode: str | None = None
    accumulate: int = 1
    workers: int = 0
    loss: Callable[..., Any] | None = None
    experience: Rollouts | None = None

    def __post_init__(self) -> None:
        self._wrap_native_parts()
        self._refuse_foreign_parts()
        for name in ("epochs", "accumulate", "workers"):
            if isinstance(value := getattr(self, name), bool) or not isinstance(value, Integral):
                raise DefinitionError(f"a recipe's {name}", f"it is {value!r}"[:200], "give a whole number")
        smoothing: Any = self.label_smoothing
        if not isinstance(smoothing, Real):
            raise DefinitionError("a recipe's label_smoothing", f"it is {smoothing!r}"[:200], "give a number")
        for fault, found, do in (
            (self.epochs < 1, f"epochs={self.epochs} trains nothing", "choose epochs >= 1"),
            (self.accumulate < 1, f"accumulate={self.accumulate}", "choose accumulate >= 1"),
            (self.workers < 0, f"workers={self.workers}", "choose workers >= 0"),
            (not 0 <= self.label_smoothing < 1, f"label_smoothing={self.label_smoothing}", "choose 0 <= share < 1"),
            (
                self.experience is not None and bool(self.augment or self.workers or not self.network.has_loss),
                "with experience, augment, workers or a loss of classes has no meaning",
                "leave out augment and workers, and give the network network.with_policy_loss()",
            ),
            (self.precision not in _PRECISIONS, f"precision={self.precision!r}", f"one of {', '.join(_PRECISIONS)}"),
        ):
            if fault:
                raise DefinitionError(f"a recipe for {self.network.name}", found, do)
        if self.network.has_loss and self.accumulate > 1:
            raise DefinitionError(
                f"a recipe for {self.network.name} with accumulate={self.accumulate}",
                "its network has its own loss, which may not be a mean over examples, as accumulation requires",
                "train on larger batches, or use only the network's outputs with the recipe's cross-entropy",
            )
        if self.network.has_loss and (self.label_smoothing or self.mix is not None):
            raise DefinitionError(
                f"a recipe for {self.network.name}",
                "its network has its own loss, and label_smoothing and mix need the recipe's",
                "give the network without a loss",
            )

    def _wrap_native_parts(self) -> None:
        """Wrap a framework's own network and optimizer in levelbench's types."""
        network: Any = self.network
        optimizer: Any = self.optimizer
        if is_module(network):
            do = f"give a function, so that a run can seed the weights: network=lambda: {type(network).__name__}(...)"
            raise DefinitionError("a recipe's network", "it is a module whose weights are already initialised", do)
        if not isinstance(network, Network | NativeNetwork):
            if not callable(network):
                found = f"it is a {type(network).__name__}"
                raise DefinitionError(
                    "a recipe's network", found, "give a levelbench network, or a function that builds yours"
                )
            network = NativeNetwork(network)
        if self.loss is not None:
            if isinstance(self.loss, type) or not callable(self.loss):
                name = self.loss.__name__ if isinstance(self.loss, type) else "CrossEntropyLoss"
                found = f"it is a class, {name}" if isinstance(self.loss, type) else f"{self.loss!r} is no function"
                do = f"give a function of the network's outputs and the labels, or an instance: loss={name}()"
                raise DefinitionError("a recipe's loss", found, do)
            if not isinstance(network, NativeNetwork):
                do = "use network.with_loss(...), or a native network of PyTorch or JAX"
                raise DefinitionError(
                    "a recipe's loss", "its network consists of ONNX operators, and so must its loss", do
                )
            network = replace(network, loss=self.loss)
        if not isinstance(optimizer, Optimizer):
            optimizer = Native.of(optimizer)
        # The dataclass is frozen.
        object.__setattr__(self, "network", network)
        object.__setattr__(self, "optimizer", optimizer)

    def _refuse_foreign_parts(self) -> None:
        augment: Any = self.augment
        # The dataclass is frozen.
        object.__setattr__(self, "augment", tuple(augment) if isinstance(augment, list | tuple) else (augment,))
        for name, part, kind, do in (
            ("sampler", self.sampler, Sampler, "give one of levelbench.training.samplers, such as Shuffled(64)"),
            ("schedule", self.schedule, Schedule, _SCHEDULE),
            *(("augment", each, Augmentation, _AUGMENT) for each in self.augment),
            ("mix", self.mix, Mixing | None, _MIX),
        ):
            if not isinstance(part, kind):
                found = f"it is {part.__name__}" if isinstance(part, type) else f"it is of type {type(part).__name__}"
                raise DefinitionError(f"a recipe's {name}", found, do)

    def onnx_network(self, purpose: str) -> Network:
        """The network if it consists of ONNX operators; ``UnsupportedError`` naming ``purpose`` otherwise."""
        if isinstance(self.network, NativeNetwork):
            found = f"its network {self.network.name} is native to a framework, and its operators are unknown"
            raise UnsupportedError(purpose, found, "use a recipe whose network consists of ONNX operators")
        return self.network

    def trained_network(self) -> Network | NativeNetwork:
        """The network in training mode, with the mean cross-entropy of its first output if it has no loss."""
        network = self.network
        if not network.has_loss:
            # Mixed labels are already shares of classes; the loss smooths them as well.
            kind = "soft-cross-entropy" if self.mix is not None else "cross-entropy"
            network = network.with_loss(kind, smoothing=self.label_smoothing)
        return network.training()

    def build(self, backend: Backend, drawn: Mapping[str, NDArray[Any]]) -> Executor:
        """The executor to train with, from the initial parameters ``drawn``."""
        precision, channels_last = self.precision, self.channels_last
        network = self.trained_network()
        return backend.build(network, drawn, mode=self.mode, precision=precision, channels_last=channels_last)


Setting = int | float | str | bool
RecipeFunction = Callable[..., Recipe]
RESERVED = (
    *("recipe", "framework", "device", "target"),
    *("ranks", "scheme", "engine", "communicator", "scaling", "lr_scale"),
)


class Task:
    """What is fixed: the data with its split, the quality and its target, when to evaluate, and which clock counts."""

    def __init__(
        self,
        name: str,
        *,
        data: DatasetSource,
        quality: Quality,
        also: Sequence[Quality] = (),
        evaluate_every: str = "1 epoch",
        clock: str = "wall",
        description: str = "",
    ) -> None:
        """``also`` are further qualities to record; their targets are ignored.

        ``DefinitionError`` where ``data`` is no whole dataset.
        """
        whole = isinstance(data, DatasetSource)
        if missing := [each for each in _STATED if not (whole and isinstance(getattr(data, each, None), str))]:
            found = f"the data is of type {type(data).__name__}, which " + (
                f"lacks {' and '.join(missing)}" if whole else "is not derived from datasets.DatasetSource"
            )
            do = "use datasets.from_arrays for arrays of your own, or derive from DatasetSource and state "
            raise DefinitionError(f"task {name!r}", found, do + ", ".join(_STATED))
        Evaluate.parse(evaluate_every)
        policy(clock)
        self.name = name
        self.data = data
        self.quality = quality
        self.also = tuple(also)
        self.evaluate_every = evaluate_every
        self.clock = clock
        self.description = description
        self._recipes: dict[str, Callable[..., Recipe]] = {}
        self._factors: dict[str, dict[str, Setting]] = {}

    @overload
    def recipe(self, function: RecipeFunction) -> RecipeFunction: ...

    @overload
    def recipe(self, *, factors: Mapping[str, Setting]) -> Callable[[RecipeFunction], RecipeFunction]: ...

    def recipe(
        self, function: RecipeFunction | None = None, *, factors: Mapping[str, Setting] | None = None
    ) -> RecipeFunction | Callable[[RecipeFunction], RecipeFunction]:
        """Register a recipe under its function's name. The first one is the task's default.

        ``DefinitionError`` if another module has defined a recipe of that name, because the name says what was run.
        ``factors`` names settings that an analysis may switch off, each with the value that means off:
        ``@task.recipe(factors={"label_smoothing": 0.0})``.
        """
        if function is None:
            return partial(self._register, factors=dict(factors or {}))
        return self._register(function, {})

    def factors(self, recipe: str) -> dict[str, Setting]:
        """The settings of a recipe that can be switched off, with their values when off."""
        self.recipe_function(recipe)
        return dict(self._factors[recipe])

    def _register(self, function: RecipeFunction, factors: dict[str, Setting]) -> RecipeFunction:
        self._refuse_taken_name(function)
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name in RESERVED:
                raise DefinitionError(
                    f"recipe {function.__name__!r} of task {self.name!r}",
                    f"{parameter.name!r} cannot be a setting: levelbench uses this name itself",
                    f"choose another name ({', '.join(RESERVED)} are taken)",
                )
            if not isinstance(parameter.default, int | float | str | bool):
                raise DefinitionError(
                    f"recipe {function.__name__!r} of task {self.name!r}",
                    f"setting {parameter.name!r} has no default of type int, float, str or bool",
                    "give it one",
                )
        self._recipes[function.__name__] = function
        self._factors[function.__name__] = {}
        for name, value in factors.items():
            typed = self.settings(function.__name__, {name: value})[name]
            self._factors[function.__name__][name] = typed
        return function

    def _refuse_taken_name(self, function: RecipeFunction) -> None:
        """Refuse the name of another module's recipe. A module that is run again replaces its own."""
        taken = self._recipes.get(function.__name__)
        if taken is None or taken.__module__ == function.__module__:
            return
        raise DefinitionError(
            f"recipe {function.__name__!r} of task {self.name!r}",
            f"the task already has one of that name, from {inspect.getsourcefile(inspect.unwrap(taken))}",
            f"give yours another name (taken: {', '.join(self._recipes)})",
        )

    @property
    def recipes(self) -> tuple[str, ...]:
        """Names of the recipes, the default one first."""
        if not self._recipes:
            raise DefinitionError(f"task {self.name!r}", "it has no recipe", "decorate a function with @task.recipe")
        return tuple(self._recipes)

    def settings(self, recipe: str, given: Mapping[str, Setting] | None = None) -> dict[str, Setting]:
        """All settings of a recipe: its defaults, replaced by those ``given``, each converted to its default's type."""
        parameters = inspect.signature(self.recipe_function(recipe)).parameters
        result: dict[str, Setting] = {name: each.default for name, each in parameters.items()}
        for name, value in (given or {}).items():
            if name not in result:
                what = f"setting of {self.name}'s recipe {recipe!r}"
                if name == "seed":
                    found = "a seed is no setting: the runs of one recipe and its settings differ by it"
                    raise UsageError(
                        f"{self.name}[seed={value}]", found, f"give the first one as an option: --seed {value}"
                    )
                raise UnknownNameError(what, name, [*result, *RESERVED], self._how_to_list("settings"))
            asked = f"{self.name}[recipe={recipe},{name}={value}]"
            result[name] = plugins.typed_setting(asked, name, value, result[name])
        return result

    def assemble(self, recipe: str, settings: Mapping[str, Setting]) -> Recipe:
        """Call the recipe with its settings."""
        try:
            made: Any = self.recipe_function(recipe)(**settings)
        except LevelbenchError as error:
            if type(error) is not DefinitionError:
                raise
            # A part says what is wrong with it, and not which setting of whose recipe it came from.
            changed = {name: value for name, value in settings.items() if value != self.settings(recipe).get(name)}
            given = ",".join(f"{name}={value}" for name, value in {"recipe": recipe, **changed}.items())
            raise DefinitionError(f"{self.name}[{given}]: {error.asked}", error.found, error.do) from error
        except Exception as error:  # a recipe is a user's code and may raise anything
            given = ", ".join(f"{name}={value}" for name, value in settings.items())
            raise DefinitionError(
                f"recipe {recipe!r} of task {self.name!r} with {given}",
                f"it raised {type(error).__name__}: {error}",
                "fix the recipe, or give other settings",
            ) from error
        if not isinstance(made, Recipe):
            raise DefinitionError(
                f"recipe {recipe!r} of task {self.name!r}", f"it returned a {type(made).__name__}", "return a Recipe"
            )
        return made

    def recipe_function(self, recipe: str) -> Callable[..., Recipe]:
        """The function of that name; the error for an unknown name suggests the nearest."""
        if recipe not in self.recipes:
            raise UnknownNameError(f"recipe of task {self.name!r}", recipe, self.recipes, self._how_to_list("recipes"))
        return self._recipes[recipe]

    def _how_to_list(self, kind: str) -> str:
        """The command that lists what this task has of ``kind``; nothing for a task that only its file has."""
        return f"levelbench list {kind} {self.name}" if self.name in plugins.names("task") else ""
