"""A task fixes what must not change; a recipe is one way to reach its target.

A recipe is a function whose keyword arguments, with their defaults, are its settings. What a user gives
(``digits[lr=0.05]``) is checked against them, and the full set goes into the specification, so that leaving a default
out and writing it down are the same run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, overload

from levelbench import plugins
from levelbench.errors import DefinitionError, LevelbenchError, UnknownNameError
from levelbench.measure.policies import policy
from levelbench.networks import losses  # noqa: F401  # imported here, so that no clock is running
from levelbench.training.datasets.base import DatasetSource
from levelbench.training.quality import Quality
from levelbench.training.recipe import Recipe
from levelbench.training.stopping import Evaluate

__all__ = ["Evaluate", "Recipe", "Setting", "Task"]

Setting = int | float | str | bool
RecipeFunction = Callable[..., Recipe]
RESERVED = (
    *("recipe", "framework", "device", "target"),
    *("ranks", "scheme", "engine", "communicator", "scaling", "lr_scale"),
)


class Task:
    """What is fixed: the data with its split, the quality and its target, when to evaluate, which clock counts."""

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
        """``also`` are figures to record beside the quality; their targets are not looked at."""
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

        ``DefinitionError`` where another module has defined one of that name: a recipe's name says what was run.
        ``factors`` names settings that an analysis may switch off, each with the value that means off:
        ``@task.recipe(factors={"label_smoothing": 0.0})``.
        """
        if function is None:
            return partial(self._register, factors=dict(factors or {}))
        return self._register(function, {})

    def factors(self, recipe: str) -> dict[str, Setting]:
        """The settings of a recipe that can be switched off, with their values when they are."""
        self.recipe_function(recipe)
        return dict(self._factors[recipe])

    def _register(self, function: RecipeFunction, factors: dict[str, Setting]) -> RecipeFunction:
        self._refuse_taken(function)
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name in RESERVED:
                raise DefinitionError(
                    f"recipe {function.__name__!r} of task {self.name!r}",
                    f"{parameter.name!r} is not a setting: levelbench gives it a meaning of its own",
                    f"call it otherwise ({', '.join(RESERVED)} are taken)",
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

    def _refuse_taken(self, function: RecipeFunction) -> None:
        """Refuse the name of another module's recipe. A module that is run again replaces its own."""
        taken = self._recipes.get(function.__name__)
        if taken is None or taken.__module__ == function.__module__:
            return
        raise DefinitionError(
            f"recipe {function.__name__!r} of task {self.name!r}",
            f"the task has one of that name already, of {inspect.getsourcefile(inspect.unwrap(taken))}",
            f"give yours another name (taken: {', '.join(self._recipes)})",
        )

    @property
    def recipes(self) -> tuple[str, ...]:
        """Names of the recipes, the default one first."""
        if not self._recipes:
            raise DefinitionError(f"task {self.name!r}", "it has no recipe", "decorate a function with @task.recipe")
        return tuple(self._recipes)

    def describe_recipe(self, recipe: str) -> str:
        """The first line of the recipe's docstring."""
        return (inspect.getdoc(self.recipe_function(recipe)) or "").partition("\n")[0]

    def settings(self, recipe: str, given: Mapping[str, Setting] | None = None) -> dict[str, Setting]:
        """All settings of a recipe: its defaults, replaced by what was ``given``, each of its default's type."""
        parameters = inspect.signature(self.recipe_function(recipe)).parameters
        result: dict[str, Setting] = {name: each.default for name, each in parameters.items()}
        for name, value in (given or {}).items():
            if name not in result:
                what = f"setting of {self.name}'s recipe {recipe!r}"
                raise UnknownNameError(what, name, [*result, *RESERVED])
            asked = f"{self.name}[recipe={recipe},{name}={value}]"
            result[name] = plugins.typed_setting(asked, name, value, result[name])
        return result

    def assemble(self, recipe: str, settings: Mapping[str, Setting]) -> Recipe:
        """Call the recipe with its settings."""
        try:
            made: Any = self.recipe_function(recipe)(**settings)
        except LevelbenchError:
            raise
        except Exception as error:  # a recipe is a user's code and may raise anything
            given = ", ".join(f"{name}={value}" for name, value in settings.items())
            raise DefinitionError(
                f"recipe {recipe!r} of task {self.name!r} with {given}",
                f"it raised {type(error).__name__}: {error}",
                "correct the recipe, or give other settings",
            ) from error
        if not isinstance(made, Recipe):
            raise DefinitionError(
                f"recipe {recipe!r} of task {self.name!r}", f"it returned a {type(made).__name__}", "return a Recipe"
            )
        return made

    def recipe_function(self, recipe: str) -> Callable[..., Recipe]:
        """The function of that name, or an error that names the nearest."""
        if recipe not in self.recipes:
            raise UnknownNameError(f"recipe of task {self.name!r}", recipe, self.recipes)
        return self._recipes[recipe]
