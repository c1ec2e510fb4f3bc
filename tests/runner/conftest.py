import pytest
from tests.runner.campaigns import NUMPY

from levelbench.records import Store
from levelbench.runner.request import resolve

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
