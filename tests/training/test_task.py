import pytest

from levelbench.errors import DefinitionError, UnknownNameError, UsageError
from levelbench.networks import zoo
from levelbench.training import Momentum, Recipe, Shuffled, Task, Top1, datasets


def make_task():
    task = Task("toy", data=datasets.digits, quality=Top1(target=0.9))

    @task.recipe
    def mlp(hidden: int = 8, lr: float = 0.1, name: str = "x", wide: bool = False) -> Recipe:
        """A small one.

        With a second paragraph.
        """
        return Recipe(zoo.mlp(64, hidden, 10), Shuffled(32), Momentum(lr), epochs=2)

    return task


def test_missing_settings_get_their_defaults():
    assert make_task().settings("mlp", {"lr": 0.2}) == {"hidden": 8, "lr": 0.2, "name": "x", "wide": False}


def test_an_integer_is_accepted_for_a_float():
    assert make_task().settings("mlp", {"lr": 1})["lr"] == 1.0


@pytest.mark.parametrize("given", [{"hidden": 1.5}, {"hidden": "many"}, {"hidden": True}, {"wide": 1}, {"name": 3}])
def test_a_setting_of_another_type_is_refused(given):
    with pytest.raises(UsageError, match="must be"):
        make_task().settings("mlp", given)


def test_a_word_for_a_number_is_refused_in_words_that_need_no_programming():
    with pytest.raises(UsageError) as error:
        make_task().settings("mlp", {"lr": "abc"})
    assert error.value.found == "lr must be a number (its default is 0.1), not abc"
    assert error.value.do == "give a number, as in lr=0.1"


def test_an_unknown_setting_suggests_the_nearest_name():
    with pytest.raises(UnknownNameError, match="close: hidden"):
        make_task().settings("mlp", {"hiden": 3})


def test_an_unknown_recipe_suggests_the_nearest_name():
    with pytest.raises(UnknownNameError, match="close: mlp"):
        make_task().settings("mpl")


def test_a_recipe_whose_setting_has_no_default_is_refused_when_it_is_registered():
    task = make_task()
    with pytest.raises(DefinitionError, match="'hidden' has no default"):

        @task.recipe
        def bad(hidden):
            return None


@pytest.mark.parametrize("name", ["recipe", "framework", "device", "target"])
def test_a_setting_with_a_name_that_levelbench_uses_is_refused(name):
    namespace = {}
    exec(f"def bad({name}: str = 'x'):\n    return None", namespace)
    with pytest.raises(DefinitionError, match="uses this name itself"):
        make_task().recipe(namespace["bad"])


def test_a_recipe_that_raises_is_reported_with_its_settings():
    task = make_task()

    @task.recipe
    def bad(depth: int = 3):
        return 1 / 0

    with pytest.raises(DefinitionError, match=r"depth=4: it raised ZeroDivisionError"):
        task.assemble("bad", {"depth": 4})


def test_a_recipe_that_returns_something_else_is_refused():
    task = make_task()

    @task.recipe
    def bad():
        return "a recipe"

    with pytest.raises(DefinitionError, match="returned a str"):
        task.assemble("bad", {})


def test_a_task_without_recipes_says_how_to_add_one():
    with pytest.raises(DefinitionError, match=r"@task\.recipe"):
        _ = Task("empty", data=datasets.digits, quality=Top1(target=0.9)).recipes


@pytest.mark.parametrize("threshold", [1.5, -0.1, 97.0, float("nan")])
def test_a_target_off_the_metrics_scale_is_refused(threshold):
    with pytest.raises(UsageError, match="scale goes from 0 to 1"):
        Top1(target=0.9).as_target(threshold)


def test_a_target_in_percent_suggests_the_intended_fraction():
    with pytest.raises(UsageError, match=r"did you mean 0\.97\?"):
        Top1(target=0.9).as_target(97)


def recipe_of(module):
    def mlp(lr: float = 0.5) -> Recipe:
        """Another one."""
        raise NotImplementedError

    mlp.__module__ = module
    return mlp


def test_the_name_of_another_modules_recipe_is_refused_and_the_recipe_stays():
    task = make_task()
    with pytest.raises(DefinitionError, match="already has one of that name") as error:
        task.recipe(recipe_of("elsewhere"))
    assert "taken: mlp" in error.value.do
    assert task.settings("mlp")["lr"] == 0.1


def test_a_module_that_is_run_again_replaces_its_own_recipe():
    task = make_task()
    task.recipe(recipe_of(__name__))
    assert task.settings("mlp") == {"lr": 0.5}
