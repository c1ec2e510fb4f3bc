"""B169: an entry of the closed division is the task's own recipe, but for what its rules let it change."""

import pytest

from levelbench.records.submissions.rules.ceilings import Limits

RECIPE = {"hidden": 128, "lr": 0.1}


def found(clean, settings, *, recipe=RECIPE, division="closed"):
    entry = clean.make("training", {"division": division, "settings": settings})
    limits = None if recipe is ... else lambda each: Limits(recipe=recipe)
    return [(each.code, each.severity, each.field) for each in clean.find(entry, limits=limits)]


@pytest.mark.parametrize("settings", [RECIPE, {**RECIPE, "lr": 9.0}, {**RECIPE, "device": "cuda"}])
def test_the_tasks_own_recipe_is_closed_and_may_have_another_learning_rate(clean, settings):
    assert found(clean, settings) == []


def test_what_the_rules_do_not_name_may_not_change(clean):
    assert found(clean, {**RECIPE, "hidden": 64}) == [("B169", "error", "settings.hidden")]


def test_a_setting_that_is_not_stated_is_for_the_reviewer(clean):
    assert found(clean, {"lr": 0.1}) == [("B169", "warning", "settings.hidden")]


def test_a_recipe_that_the_task_has_not_is_open(clean):
    assert found(clean, RECIPE, recipe={}) == [("B169", "error", "settings.recipe")]


@pytest.mark.parametrize("more", [{"division": "open"}, {"recipe": None}, {"recipe": ...}])
def test_the_open_division_and_a_task_that_nobody_knows_are_not_asked(clean, more):
    assert found(clean, {"hidden": 64}, **more) == []
