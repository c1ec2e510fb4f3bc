"""B169: an entry of the closed division is the task's own recipe, except for what its rules let it change."""

import msgspec
import pytest

from levelbench.competition.checks import MachineLimits
from levelbench.competition.checks.identity import NOT_IN_RECIPES
from levelbench.competition.rivals import doubts_at_rank
from levelbench.competition.rulesets import Division, ruleset
from levelbench.records.schema import Distribution, Specification

RECIPE = {"hidden": 128, "lr": 0.1}


def found(clean, settings, *, recipe=RECIPE, kind="training", codes=("B169",), **changes):
    entry = clean.make(kind, {"division": "closed", "settings": settings, **changes})
    limits = None if recipe is ... else lambda each: MachineLimits(recipe=recipe, version="0.1.0")
    findings = clean.find(entry, limits=limits)
    return [(each.code, each.severity, each.field) for each in findings if each.code in codes]


@pytest.mark.parametrize("settings", [RECIPE, {**RECIPE, "lr": 9.0}, {**RECIPE, "device": "cuda"}])
def test_the_tasks_own_recipe_is_closed_and_may_have_another_learning_rate(clean, settings):
    assert found(clean, settings) == []


def test_what_the_rules_do_not_name_may_not_change(clean):
    assert found(clean, {**RECIPE, "hidden": 64}) == [("B169", "error", "settings.hidden")]


def test_a_setting_that_is_not_stated_is_for_the_reviewer(clean):
    assert found(clean, {"lr": 0.1}) == [("B169", "warning", "settings.hidden")]


def test_a_setting_that_the_recipe_does_not_have_is_for_the_reviewer(clean):
    beside = {"recipe": "mlp", "device": "cpu", "budget_epochs": 60.0, "flops_per_sample": 1e5}
    assert found(clean, {**RECIPE, **beside, "pretrained": True}) == [("B169", "warning", "settings.pretrained")]


def test_a_recipe_that_the_task_has_not_is_open(clean):
    assert found(clean, {**RECIPE, "recipe": "mine"}, recipe={}) == [("B169", "error", "settings.recipe")]


def test_an_entry_that_states_no_recipe_is_reported(clean):
    entry = clean.make("training", {"division": "closed", "settings": {}})
    (finding,) = [each for each in clean.find(entry, limits=lambda each: MachineLimits(recipe={}, version="0.1.0"))
                  if each.code == "B169"]  # fmt: skip
    assert (finding.severity, finding.found) == ("error", "it is not stated")


@pytest.mark.parametrize("planted", [
    {"evaluate_every": "1 step"}, {"scheme": "topk"}, {"scheme.ratio": 0.01}, {"ranks": 8}, {"budget_s": 1.0},
])  # fmt: skip
def test_when_is_evaluated_who_trains_together_and_what_ends_a_run_are_the_recipes(clean, planted):
    recipe = {**RECIPE, "evaluate_every": "1 epoch"}
    (name,) = planted
    assert found(clean, {**recipe, **planted}, recipe=recipe) == [("B169", "error", f"settings.{name}")]
    assert found(clean, {**recipe, "ranks": 1}, recipe=recipe) == []


def test_every_word_of_a_team_and_every_budget_but_that_of_epochs_is_looked_at():
    words = Distribution(2, "all-reduce", {}, "slurm[nodes=2]", "gloo").words()
    budgets = {name for name in Specification.__struct_fields__ if name.startswith("budget_")}
    assert {*words, *budgets, "plateau"} - {"budget_epochs"} == NOT_IN_RECIPES


def test_of_another_version_whose_recipe_may_have_been_another_it_is_for_the_reviewer(clean):
    older = {"provenance.version": "0.0.9"}
    assert found(clean, {**RECIPE, "hidden": 64}, **older) == [("B169", "warning", "settings.hidden")]
    assert found(clean, {"recipe": "mine"}, recipe={}, **older) == [("B169", "warning", "settings.recipe")]


ORIGIN = {"format": "mlperf-mllog", "file": "result_0.txt"}


def test_an_origin_excuses_no_change_of_a_recipe_of_ours(clean):
    changed = {**RECIPE, "hidden": 64}
    assert found(clean, changed, origin=ORIGIN) == [("B169", "error", "settings.hidden")]
    assert found(clean, changed, kind="olympic", origin=ORIGIN)[-1] == ("B169", "error", "settings.hidden")


@pytest.mark.parametrize(("kind", "format", "severities"), [
    ("olympic", "mlperf-mllog", []), ("inference", "loadgen", ["warning"]), ("training", "mlperf-mllog", ["warning"]),
])  # fmt: skip
def test_another_systems_file_names_no_recipe_of_ours(clean, kind, format, severities):
    said = found(clean, {"batch": 64}, kind=kind, recipe={}, origin={**ORIGIN, "format": format})
    assert [severity for _, severity, _ in said] == severities


@pytest.mark.parametrize("more", [{"division": "open"}, {"recipe": None}, {"recipe": ...}])
def test_the_open_division_and_a_task_that_is_unknown_are_not_asked(clean, more):
    assert found(clean, {"hidden": 64}, **more) == []


@pytest.mark.parametrize(("value", "severity"), [
    (0.1, None), (0.2, "note"), (9.0, "note"), (0.002, "note"),
    (99.0, "warning"), (1e-5, "warning"), ("magic", "warning"), (None, "warning"),
])  # fmt: skip
def test_a_setting_that_may_change_is_reported_and_one_far_from_the_recipe_or_left_out_is_a_warning(
    clean, value, severity
):
    expected = [] if severity is None else [("B167", severity, "settings.lr")]
    settings = {name: each for name, each in {**RECIPE, "lr": value}.items() if each is not None}
    assert found(clean, settings, codes=("B167", "B169")) == expected


def own(*divisions):
    rules = ruleset("levelbench-1.0")
    return msgspec.structs.replace(rules, id="own-1.0", name="own", version="1.0", divisions=list(divisions))


@pytest.mark.parametrize(("changed", "codes"), [("lr", set()), ("hidden", {"B169"})])
def test_a_division_of_any_name_says_which_settings_it_may_change(clean, changed, codes):
    settings = {**RECIPE, changed: RECIPE[changed] / 2}
    entry = clean.make(changes={"ruleset": "own-1.0", "division": "small models", "settings": settings})
    rules = own(Division("small models", ["lr"]), Division("open"))
    limits = {"limits": lambda each: MachineLimits(recipe=RECIPE, version="0.1.0"), "known": {"own-1.0": rules}}
    assert clean.codes(entry, **limits) & {"B123", "B169"} == codes


@pytest.mark.parametrize("divisions", [(), (Division("closed"), Division("open"))])
def test_in_a_closed_division_that_lists_no_settings_nothing_may_change(clean, divisions):
    limits = {"limits": lambda each: MachineLimits(recipe=RECIPE, version="0.1.0")}
    changes = {"ruleset": "own-1.0", "division": "closed"}
    tuned, plain = (
        clean.make(changes={**changes, "settings": settings}) for settings in ({**RECIPE, "lr": 99.0}, RECIPE)
    )
    assert "B169" in clean.codes(tuned, known={"own-1.0": own(*divisions)}, **limits)
    assert "B169" not in clean.codes(plain, known={"own-1.0": own(*divisions)}, **limits)


@pytest.mark.parametrize(
    ("rules", "division", "refused"),
    [
        (own(Division("small models")), "small models", False),
        (own(Division("small models")), "open", True),
        (own(), "open", False),
        (own(), "small models", True),
    ],
)
def test_an_entry_is_in_a_division_that_its_rules_have(clean, rules, division, refused):
    entry = clean.make(changes={"ruleset": "own-1.0", "division": division})
    assert ("B123" in clean.codes(entry, known={"own-1.0": rules})) == refused


def test_a_setting_that_an_own_division_may_change_is_told_with_its_name_and_not_that_of_the_closed_one(clean):
    entry = clean.make(changes={"ruleset": "own-1.0", "division": "small models", "settings": {**RECIPE, "lr": 0.2}})
    rules = own(Division("small models", ["lr"]), Division("open"))
    findings = clean.find(
        entry, limits=lambda each: MachineLimits(recipe=RECIPE, version="0.1.0"), known={"own-1.0": rules}
    )
    (said,) = doubts_at_rank([each for each in findings if each.code == "B167"])
    assert "small models" in said
    assert "closed" not in said
