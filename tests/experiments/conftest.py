import sys
import textwrap

import pytest
from tests.experiments.campaigns import NUMPY

from levelbench.cli import main
from levelbench.experiments.request import load_task, resolve
from levelbench.records import Store, read_record

TASK = '''
"""A task of a user's own."""
from levelbench.networks import zoo
from levelbench.training import Momentum, Recipe, Shuffled, Task, Top1, datasets

task = Task("mine", data=datasets.digits, quality=Top1(target=0.9))


@task.recipe
def small(hidden: int = 16, lr: float = 0.05, epochs: int = 10) -> Recipe:
    """Small."""
    return Recipe(zoo.mlp(64, hidden, 10), Shuffled(64), Momentum(lr), epochs=epochs)
'''


LOADED = """from levelbench import load_task
task = load_task("digits")"""


@pytest.fixture(scope="session")
def task_text():
    return TASK


@pytest.fixture
def task_file(tmp_path, task_text):
    path = tmp_path / "my_task.py"
    path.write_text(task_text)
    return path


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def arm(task_file):
    return resolve(str(task_file), {}, NUMPY)


@pytest.fixture
def adding(tmp_path, monkeypatch):
    """A file that adds recipes of the given names to digits, a task of this process."""
    digits = load_task("digits")
    for name in ("_recipes", "_factors"):
        monkeypatch.setattr(digits, name, dict(getattr(digits, name)))

    def make(*names):
        text = TASK.replace('task = Task("mine", data=datasets.digits, quality=Top1(target=0.9))', LOADED)
        start, recipe = text.split("@task.recipe")
        path = tmp_path / "my_recipes.py"
        path.write_text(start + "".join(f"@task.recipe{recipe.replace('def small', f'def {name}')}" for name in names))
        return str(path)

    return make


@pytest.fixture
def time_program(tmp_path, monkeypatch, capsys):
    """Runs a program under ``levelbench time``, and returns its exit code and record."""

    def call(text, *words):
        (tmp_path / "program.py").write_text("import levelbench, os, sys, time\n" + textwrap.dedent(text))
        monkeypatch.chdir(tmp_path)
        command = f"{sys.executable} program.py"
        words = [*words] or ["--target", "accuracy=0.9"]
        with pytest.raises(SystemExit) as ended:
            main(["time", command, *words, "-n", "1", "--task", "mine", "--store", str(tmp_path / "store")])
        capsys.readouterr()
        (path,) = (tmp_path / "store").glob("*/*/*.jsonl")
        return ended.value.code, read_record(path)

    return call


@pytest.fixture
def task_with(tmp_path, task_text):
    """The path of a task's file with more code at its end."""

    def make(more, name="with_more.py"):
        path = tmp_path / name
        path.write_text(task_text + more)
        return str(path)

    return make
