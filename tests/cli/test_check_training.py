"""``levelbench check FILE`` on tasks and recipes."""

import json

import pytest

RECIPE = '''
"""A wider network: 97 % of digits."""
from levelbench.networks import zoo
from levelbench.experiments.request import load_task
from levelbench.training import Momentum, Recipe, Shuffled

task = load_task("digits")


@task.recipe
def wide(hidden: int = 32, lr: float = 0.05) -> Recipe:
    """Wider, at a constant rate."""
    return Recipe(zoo.mlp(64, hidden, 10), Shuffled(64), Momentum(lr), epochs=20)
'''
TASK = '''
"""mine: 95 % of digits."""
from levelbench.networks import zoo
from levelbench.training import Momentum, Recipe, Shuffled, Task, Top1, datasets

task = Task("mine", data=datasets.digits, quality=Top1(target=0.95), description="digits again")


@task.recipe
def small(lr: float = 0.05) -> Recipe:
    """A small one."""
    return Recipe(zoo.mlp(64, 16, 10), Shuffled(64), Momentum(lr), epochs=20)
'''
EASY = TASK.replace("target=0.95", "target=0.02")
NUMPY = ("--framework", "numpy", "--seconds", "2")


@pytest.fixture
def check(call, tmp_path, monkeypatch):
    """Write a file and check it."""
    # A file that adds recipes to a bundled task adds them to the one of this process.
    from levelbench.tasks import digits

    monkeypatch.setattr(digits.task, "_recipes", dict(digits.task._recipes))
    monkeypatch.setattr(digits.task, "_factors", dict(digits.task._factors))

    def run(text, *words, name="mine.py"):
        path = tmp_path / name
        path.write_text(text)
        return call("check", path, *words)

    return run


def test_the_recipes_that_a_file_adds_are_checked_alone(check):
    code, out, _ = check(RECIPE, *NUMPY)
    assert code == 0
    assert "digits[recipe=wide] on numpy: nothing found wrong; not tried: reference" in out
    assert "recipe=mlp" not in out


def test_a_task_of_ones_own_is_checked_with_its_recipes(check):
    code, out, _ = check(TASK, *NUMPY)
    assert code == 0
    assert "mine: nothing found wrong" in out
    assert "mine[recipe=small] on numpy: nothing found wrong" in out


def test_a_recipe_that_is_refused_keeps_no_other_from_its_check(check):
    refused = """

@task.recipe
def broken(lr: float = 0.05) -> Recipe:
    \"\"\"With a loss that does not exist.\"\"\"
    return Recipe(zoo.mlp(64, 16, 10), Shuffled(64), Momentum(lr), epochs=20, loss="no-such-loss")
"""
    first = TASK.index("\n\n@task.recipe")
    code, out, err = check(TASK[:first] + refused + TASK[first:], *NUMPY)
    assert code == 2
    assert "mine[recipe=small] on numpy: nothing found wrong" in out
    assert "no-such-loss" in err


def test_a_finding_is_exit_code_1_with_what_to_do(check):
    code, out, _ = check(EASY, *NUMPY)
    assert code == 1
    assert "untrained: without a step of training" in out
    assert "do: choose a target that needs training" in out


def test_findings_are_json(check):
    code, out, _ = check(EASY, *NUMPY, "--json")
    found = json.loads(out)
    assert (code, found["passed"]) == (1, False)
    assert [report["name"] for report in found["reports"]] == ["mine", "mine[recipe=small] on numpy"]
    (wrong,) = [each for each in found["reports"][1]["findings"] if each["status"] == "failed"]
    assert wrong["probe"] == "untrained"
    assert wrong["do"]


def test_a_bundled_task_is_checked_by_its_name_with_one_recipe_and_settings(call):
    code, out, _ = call("check", "digits[lr=0.02]", "--recipe", "onecycle", *NUMPY)
    assert code == 0
    assert "digits[recipe=onecycle] on numpy: nothing found wrong" in out
    assert "recipe=mlp" not in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "words", "code", "says"),
    [
        (TASK, ["--recipe", "smal"], 2, "close: small"),
        (TASK, ["--framework", "nunpy"], 2, "close: numpy"),
        (TASK, ["--heatmap", "x.png"], 2, "holds a task or recipes"),
        (TASK, ["--batch", "3"], 2, "holds a task or recipes"),
        (TASK, ["--reference", "torch"], 2, "holds a task or recipes"),
        (TASK, ["--plot", "x.svg"], 2, "holds a task or recipes"),
        (TASK.replace("task = Task", "task = 1 / 0 or Task"), [], 2, "ZeroDivisionError"),
        (TASK.replace('"mine", data', '"mine", dat'), [], 2, "dat"),
        ("x = 1\n", [], 2, "it defines no operator, optimizer, scheme, engine, task or recipe"),
    ],
)
def test_what_cannot_be_checked_is_said_with_what_to_do(check, text, words, code, says):
    found, _, err = check(text, *words)
    assert found == code
    assert says in err


def test_a_setting_that_there_is_not_is_refused(call):
    code, _, err = call("check", "digits[lrr=0.02]", *NUMPY)
    assert code == 2
    assert "close: lr" in err


def test_operators_and_a_task_in_one_file_are_refused_without_running_it(check):
    mixed = "from levelbench.operators.custom import CustomOperator\nclass A(CustomOperator): pass\n" + TASK
    code, _, err = check(mixed + "\nraise RuntimeError('it was run')\n")
    assert code == 2
    assert "it defines operators and a task or recipe" in err
    assert "it was run" not in err


@pytest.mark.parametrize("option", ["--recipe", "--plot"])
def test_an_option_of_training_is_refused_for_a_network(call, option):
    code, _, err = call("check", "lenet5", option, "x.svg")
    assert code == 2
    assert "is a network" in err
