"""A package that is installed next to levelbench adds a task, a scheme and a framework through entry points."""

import json
import os
import subprocess
import sys

import pytest

MODULE = '''\
"""What the package brings."""

from dataclasses import dataclass
from typing import ClassVar

from levelbench.distributed.schemes.all_reduce import AllReduce
from levelbench.frameworks.numpy import NumpyFramework
from levelbench.networks import zoo
from levelbench.training import Momentum, Recipe, Shuffled, Task, Top1, datasets

task = Task("acme-digits", data=datasets.digits, quality=Top1(target=0.8))


@task.recipe
def small(epochs: int = 5) -> Recipe:
    """One hidden layer."""
    return Recipe(zoo.mlp(64, 32, 10), Shuffled(64), Momentum(0.1), epochs=epochs)


@dataclass(frozen=True)
class Whole(AllReduce):
    """All gradients of a step in one message."""

    name: ClassVar[str] = "acme-whole"


class AcmeFramework(NumpyFramework):
    """NumPy under another name."""

    name = "acme-numpy"


framework = AcmeFramework()
'''
ENTRY_POINTS = """\
[levelbench.tasks]
acme-digits = acme:task
[levelbench.schemes]
acme-whole = acme:Whole
[levelbench.frameworks]
acme-numpy = acme:framework
"""


@pytest.fixture(scope="module")
def levelbench(tmp_path_factory):
    """The command, beside the package and its metadata as an installer leaves them."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "acme.py").write_text(MODULE)
    metadata = folder / "acme-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    environment = {**os.environ, "PYTHONPATH": str(folder), "LEVELBENCH_STORE": str(folder / "store")}

    def command(*words):
        done = subprocess.run(
            [sys.executable, "-m", "levelbench", *words], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return command


@pytest.mark.parametrize(
    ("kind", "name"), [("tasks", "acme-digits"), ("schemes", "acme-whole"), ("frameworks", "acme-numpy")]
)
def test_each_is_listed_like_ours(levelbench, kind, name):
    assert name in json.dumps(json.loads(levelbench("list", kind, "--json")))


@pytest.mark.slow
def test_the_task_is_trained_on_the_framework_to_its_target(levelbench):
    levelbench("run", "acme-digits", "--framework", "acme-numpy", "-n", "1")
    shown = levelbench("list", "runs")
    assert "acme-digits" in shown
    assert "acme-numpy" in shown


@pytest.mark.slow
def test_the_framework_is_measured_and_held_against_the_reference(levelbench):
    assert "acme-numpy" in levelbench("operator", "Relu", "--shape", "X=4x4", "--framework", "acme-numpy", "-n", "2")


@pytest.mark.slow
def test_the_scheme_joins_ranks(levelbench):
    pytest.importorskip("torch")
    assert "acme-whole" in levelbench("check", "acme-whole")
    levelbench("run", "acme-digits", "--ranks", "2", "--scheme", "acme-whole", "--framework", "torch", "-n", "1")
    assert "acme-whole" in levelbench("list", "runs")
