"""Checks whether a recipe is right and well-formed, in seconds, on whatever framework it is to run on.

The one idea: a recipe that trains to a good figure can still be wrong (an evaluation that trains, a sampler that
repeats itself, a gradient that is off by a factor), and none of that shows in one run. Each is asked for by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from levelbench.networks.executor import Backend
from levelbench.training.datasets.base import Dataset
from levelbench.training.task import Setting, Task
from levelbench.training.validation import gradients, recipe_parts, recipe_runs
from levelbench.training.validation.bench import Bench
from levelbench.training.validation.probes import Probe, Report, merged, run_probes

__all__ = ["check_recipe"]

_NOTHING: Mapping[str, Setting] = MappingProxyType({})


def check_recipe(
    task: Task,
    name: str,
    dataset: Dataset,
    backend: Backend,
    *,
    framework: str = "",
    given: Mapping[str, Setting] = _NOTHING,
    reference: Backend | None = None,
    seed: int = 0,
    seconds: float = 10.0,
    tell: Callable[[str], None] = lambda _: None,
) -> Report:
    """Probe recipe ``name`` of a task on a backend, with settings ``given`` in the place of its defaults.

    ``reference`` is the backend to compare gradients with (``None``: none, as ``framework`` is the reference itself).
    ``seconds`` bounds each of the two trainings that it takes to see whether a batch, and the task, can be learnt.
    """
    settings = task.settings(name, given)
    title = f"{task.name}[recipe={name}]"
    head: list[Probe] = [("settings", lambda: recipe_parts.settings(task, name, settings))]
    found = run_probes(title, head, tell)
    if any(each.found.startswith("recipe") and "docstring" not in each.found for each in found.failed):
        return found
    recipe = task.assemble(name, settings)
    bench = Bench(recipe, dataset, backend, task.quality, task.also)
    parts: list[Probe] = [
        ("schedule", lambda: recipe_parts.schedule(recipe)),
        ("sampler", lambda: recipe_parts.sampler(recipe, dataset.train, seed)),
        ("augmentation", lambda: recipe_parts.augmentation(recipe, dataset, seed)),
        ("batches", lambda: recipe_parts.batches(bench, seed)),
        ("inputs", lambda: recipe_parts.fits(bench, seed)),
    ]
    # What does not fit cannot be run.
    fitting = run_probes(title, parts, tell)
    runs: list[Probe] = [
        ("untrained", lambda: recipe_runs.start(bench, seed)),
        ("gradient", lambda: gradients.differences(bench, seed)),
        ("reference", lambda: gradients.agreement(bench, seed, framework, reference)),
        ("precision", lambda: gradients.numbers(bench, seed)),
        ("accumulation", lambda: gradients.accumulation(bench, seed)),
        ("updates", lambda: recipe_runs.updates(bench, seed)),
        ("determinism", lambda: recipe_runs.determinism(bench, seed)),
        ("evaluation", lambda: recipe_runs.evaluation(bench, seed)),
        ("optimizer state", lambda: recipe_runs.checkpoint(bench, seed)),
        ("one batch", lambda: recipe_runs.one_batch(bench, seed, seconds)),
        ("learning", lambda: recipe_runs.learning(bench, seed, seconds)),
        ("phases", lambda: recipe_runs.phases(bench, seed)),
    ]
    stopped = any(each.probe in ("inputs", "schedule") for each in fitting.failed)
    worked = run_probes(title, [] if stopped else runs, tell)
    return merged(Report(title, (*found.findings, *fitting.findings, *worked.findings)))
