"""What may be proposed, and who proposes: the space of a search and its samplers."""

import math
import sys

import numpy as np
import pytest

from levelbench.errors import MissingError, UnknownNameError, UsageError
from levelbench.experiments.request import Options
from levelbench.experiments.search import check_space, proposer, read_space, space_size

SETTINGS = {"lr": 0.1, "momentum": 0.9, "batch": 64, "nesterov": True, "schedule": "cosine"}


def space(*words, fixed=None):
    return read_space(words, SETTINGS, fixed or {}, "digits[recipe=mlp]")


def drawn(words, name="random", seed=0, count=200):
    found = proposer(name, space(*words), seed)
    proposals = []
    for _ in range(count):
        proposals.append(found.propose())
        found.learn(abs(math.log10(proposals[-1].get("lr", 1.0)) + 2))
    return proposals


def test_a_log_space_is_even_in_the_logarithm():
    values = np.log10([each["lr"] for each in drawn(["lr=log(1e-4,1)"], count=2000)])
    assert (values.min(), values.max()) == pytest.approx((-4, 0), abs=0.02)
    assert np.histogram(values, 4)[0] == pytest.approx([500] * 4, abs=80)


def test_a_uniform_space_is_even_and_a_choice_takes_each():
    found = drawn(["momentum=uniform(0,0.99)", "batch=choice(32,64,128)"], count=900)
    assert np.histogram([each["momentum"] for each in found], 3)[0] == pytest.approx([300] * 3, abs=60)
    assert np.unique([each["batch"] for each in found], return_counts=True)[1] == pytest.approx([300] * 3, abs=60)


def test_values_have_the_type_of_the_setting():
    found = drawn(["batch=log(16,512)", "lr=choice(1,0.5)", "nesterov=choice(true,false)"], count=20)
    assert {type(each["batch"]) for each in found} == {int}
    assert {type(each["lr"]) for each in found} == {float}
    assert {each["nesterov"] for each in found} == {True, False}
    assert all(16 <= each["batch"] <= 512 for each in found)


def test_the_same_seed_proposes_the_same_and_another_seed_other_settings():
    words = ["lr=log(1e-4,1)", "batch=choice(32,64)"]
    assert drawn(words, count=20) == drawn(words, count=20)
    assert drawn(words, count=20) != drawn(words, seed=1, count=20)


def test_no_settings_are_proposed_twice():
    found = [tuple(each.items()) for each in drawn(["batch=choice(1,2,3)", "nesterov=choice(true,false)"], count=6)]
    assert len(set(found)) == 6
    assert space_size(space("batch=choice(1,2,3)", "nesterov=choice(true,false)")) == 6
    assert space_size(space("batch=uniform(1,10)")) == 10
    assert space_size(space("lr=log(1e-4,1)")) == math.inf


def test_a_space_without_more_settings_says_so():
    found = proposer("random", space("batch=choice(1,2)"), 0)
    found.propose()
    found.propose()
    with pytest.raises(UsageError, match="no more settings"):
        found.propose()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], "no space to search"),
        (["lr"], "it is no space"),
        (["lr=normal(0,1)"], "it is no space"),
        (["lr=log(1e-4,1)", "lr=uniform(0,1)"], "a space already"),
        (["lr=log(1,1e-4)"], "is empty"),
        (["lr=log(0,1)"], "no logarithm"),
        (["lr=uniform(1)"], "its ends"),
        (["lr=uniform(a,b)"], "its ends"),
        (["batch=uniform(1.5,8)"], "whole number"),
        (["batch=choice(32)"], "1 value to choose from"),
        (["batch=choice(32,32)"], "1 value to choose from"),
        (["batch=choice(32,many)"], "must be a whole number"),
        (["nesterov=uniform(0,1)"], "no number"),
        (["framework=choice(numpy,torch)"], "no setting of the recipe"),
    ],
)
def test_what_is_no_space_is_refused(words, found):
    with pytest.raises(UsageError, match=found):
        space(*words)


def test_an_unknown_setting_names_the_nearest():
    with pytest.raises(UnknownNameError, match="momentum"):
        space("momentun=uniform(0,1)")


def test_a_setting_in_the_brackets_is_not_searched():
    with pytest.raises(UsageError, match="fix lr"):
        space("lr=log(1e-4,1)", fixed={"lr": 0.1})


def test_a_space_beyond_what_the_recipe_accepts_is_refused():
    settings = {"lr": 0.05, "momentum": 0.9}
    wide = read_space(["momentum=uniform(0,1.5)"], settings, {}, "digits")
    with pytest.raises(UsageError, match=r"momentum=1\.5"):
        check_space(wide, "digits", {}, Options(framework="numpy"))
    check_space(
        read_space(["momentum=uniform(0,0.99)"], settings, {}, "digits"), "digits", {}, Options(framework="numpy")
    )


def test_without_optuna_tpe_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingError, match=r"levelbench\[tune\]"):
        proposer("tpe", space("lr=log(1e-4,1)"), 0)


def test_an_unknown_sampler_is_refused():
    with pytest.raises(UnknownNameError, match="tpe"):
        proposer("tpee", space("lr=log(1e-4,1)"), 0)


class TestTpe:
    @pytest.fixture(autouse=True)
    def _optuna(self):
        pytest.importorskip("optuna", reason="Optuna is not installed")

    def test_it_comes_closer_than_chance_and_repeats_by_seed(self):
        words = ["lr=log(1e-4,1)"]
        near = [abs(math.log10(each["lr"]) + 2) for each in drawn(words, "tpe", count=60)]
        chance = [abs(math.log10(each["lr"]) + 2) for each in drawn(words, count=60)]
        assert np.median(near[20:]) < 0.5 * np.median(chance[20:])
        assert drawn(words, "tpe", count=30) == drawn(words, "tpe", count=30)

    def test_a_small_space_is_tried_whole(self):
        found = drawn(["batch=choice(1,2,3)", "nesterov=choice(true,false)"], "tpe", count=6)
        assert len({tuple(each.items()) for each in found}) == 6
