"""What a file defines, without running it."""

import numpy as np
import pytest

from levelbench.errors import DefinitionError
from levelbench.training.probes import alike
from levelbench.training.probes.contents import kind_of

OPERATOR = "from levelbench.operators.custom import CustomOperator\nclass Square(CustomOperator):\n    pass\n"
OPTIMIZER = "from levelbench.training import UpdateRule\nclass Mine(UpdateRule):\n    pass\n"
SCHEME = "from levelbench.distributed.scheme import Scheme\nclass Mine(Scheme):\n    pass\n"
TASK = "from levelbench.training import Task\ntask = Task('mine')\n"


@pytest.fixture
def kind(tmp_path):
    def of(text):
        path = tmp_path / "mine.py"
        path.write_text("raise RuntimeError('it was run')\n" + text)
        return kind_of(path)

    return of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OPERATOR, "operators"),
        ("import levelbench.operators.custom as c\nclass A(c.CustomOperator): pass\n", "operators"),
        ("import levelbench.operators\nclass A(levelbench.operators.custom.CustomOperator): pass\n", "operators"),
        ("from levelbench.operators.custom import *\nclass A(CustomOperator): pass\nclass B(A): pass\n", "operators"),
        ("try:\n    from levelbench.operators.custom import CustomOperator as O\nfinally:\n    pass\n"
         "if True:\n    class A(O): pass\n", "operators"),
        (OPTIMIZER, "optimizer"),
        ("from levelbench.training.optimizers import Momentum\nclass A(Momentum): pass\n", "optimizer"),
        ("from levelbench.training import Adam\noptimizer = Adam(0.1)\n", "optimizer"),
        (SCHEME, "scheme"),
        ("from levelbench.distributed.schemes.all_reduce import *\nscheme = AllReduce(2.0)\n", "scheme"),
        (OPTIMIZER + SCHEME, "scheme"),
        (TASK, "training"),
        ("import levelbench\ntask: object = levelbench.Task('mine')\n", "training"),
        ("from levelbench.experiments.request import load_task\ntask = load_task('digits')\n", "training"),
        ("from elsewhere import task\n@task.recipe\ndef mine(): pass\n", "training"),
        ("from elsewhere import task\n@task.recipe(factors={'mixup': 0.0})\ndef mine(): pass\n", "training"),
        (TASK + OPTIMIZER, "training"),
        ("from helper import make\ntask = make('mine')\n", "training"),
        ("x = 1\n", None),
        ("class CustomOperator: pass\nclass A(CustomOperator): pass\n", None),
        ("import torch\nclass Mine(torch.optim.Optimizer): pass\n", "optimizer"),
        ("from torch.optim import SGD\nclass Mine(SGD): pass\n", "optimizer"),
        ("import optax\noptimizer = optax.adam(0.1)\n", "optimizer"),
        ("def f(:\n", None),
    ],
)  # fmt: skip
def test_a_files_kind_follows_from_its_classes_and_objects(kind, text, expected):
    assert kind(text) == expected


def test_operators_beside_a_task_are_refused(kind):
    with pytest.raises(DefinitionError, match="operators and a task or recipe"):
        kind(OPERATOR + TASK)


def test_operators_beside_an_optimizer_are_refused(kind):
    with pytest.raises(DefinitionError, match="operators and an optimizer"):
        kind(OPERATOR + OPTIMIZER)


def test_operators_beside_a_scheme_are_refused(kind):
    with pytest.raises(DefinitionError, match="operators and a scheme"):
        kind(OPERATOR + SCHEME)


def test_a_nonexistent_file_is_left_to_the_caller(tmp_path):
    assert kind_of(tmp_path / "none.py") is None


@pytest.mark.parametrize("times", [1, 20])
def test_inputs_that_are_nearly_always_0_differ_between_splits_by_chance_and_a_unit_does_not(times):
    draws = np.random.default_rng(0)

    def split(examples):
        values = draws.random((examples, 2000), np.float32) * (draws.random((examples, 2000)) < 0.05)
        values[:, 7] = draws.standard_normal(examples)
        return values

    train, held = split(4000), split(500)
    held[:, 7] *= times
    found = alike._otherwise(train, None, held, "validation")
    assert ("input 7 varies 2" in found) is (times == 20)
    assert bool(found) is (times == 20)
