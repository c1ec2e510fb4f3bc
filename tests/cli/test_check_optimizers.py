import json
from pathlib import Path

import pytest

from levelbench.cli.check_training import check_optimizers
from levelbench.errors import DefinitionError, UnknownNameError, UsageError
from levelbench.training.optimizers import SGD, Momentum
from levelbench.training.probes.optimizer_files import load_optimizers

MOMENTUM = """
from dataclasses import dataclass
from levelbench.training.optimizers import UpdateRule
from levelbench.training.optimizers.arrays import zeros_like

@dataclass(frozen=True)
class Mine(UpdateRule):
    momentum: float = 0.9

    def init(self, parameter):
        return zeros_like(parameter)

    def update(self, parameter, gradient, state, step, lr):
        velocity = self.momentum * state + SHARE * gradient
        return parameter - lr * velocity, velocity
"""
RIGHT = MOMENTUM.replace("SHARE * ", "") + '\nreference = "momentum"\n'
WRONG = MOMENTUM.replace("SHARE", "(1 - self.momentum)") + '\nreference = "momentum"\n'


@pytest.fixture
def write(tmp_path):
    def add(text):
        path = tmp_path / "mine.py"
        path.write_text(text)
        return path

    return add


def check(path, reference="", framework="numpy", plot=None, as_json=False, timeout=300.0):
    return check_optimizers(
        path, reference=reference, framework=framework, plot=plot, seed=0, as_json=as_json, timeout=timeout
    )


TORCHS = """
import torch

class Mine(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                velocity = self.state[parameter].setdefault("velocity", torch.zeros_like(parameter))
                parameter -= group["lr"] * velocity.mul_(0.9).add_(parameter.grad)

reference = "momentum"
"""


@pytest.mark.slow
def test_a_class_of_pytorchs_kind_is_checked_with_the_usual_rate(write, capsys):
    pytest.importorskip("torch", reason="needs PyTorch")
    assert check(write(TORCHS)) == 0
    assert "Mine: nothing found wrong, in up to 1,000 steps alongside the reference" in capsys.readouterr().out


@pytest.mark.slow
def test_the_rate_of_a_class_of_pytorchs_kind_is_halved_too(write, capsys):
    pytest.importorskip("torch")
    assert check(write(TORCHS), as_json=True) == 0
    assert "a factor of 0.5 equals half the rate" in capsys.readouterr().out
    fixed = TORCHS.replace('group["lr"]', "self.rate").replace("super()", "self.rate = lr\n        super()")
    assert check(write(fixed), as_json=True) == 1
    assert "a factor of 0.5 is not half the rate" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(("name", "suggested"), [("Lion", "lion"), ("Rprop", "torch.optim.Rprop"), ("Mine", "adam")])
def test_without_a_reference_its_namesake_is_suggested(write, capsys, name, suggested):
    check(write(RIGHT.replace('reference = "momentum"', "").replace("Mine", name)), as_json=True)
    assert f'or --reference {suggested}"' in capsys.readouterr().out


@pytest.mark.slow
def test_a_state_that_pytorch_does_not_save_is_found(write, capsys):
    pytest.importorskip("torch", reason="needs PyTorch")
    assert check(write(TORCHS.replace("self.state[parameter]", "self.__dict__.setdefault(parameter, {})"))) == 1
    assert "PyTorch in `self.state[parameter]`" in capsys.readouterr().out


@pytest.mark.slow
def test_an_optimizer_of_pytorchs_with_its_settings_is_checked(write, capsys):
    pytest.importorskip("torch", reason="needs PyTorch")
    given = "from functools import partial\nimport torch\noptimizer = partial(torch.optim.SGD, lr=0.1, momentum=0.9)\n"
    assert check(write(given), reference="momentum") == 0
    assert "optimizer: nothing found wrong" in capsys.readouterr().out


def test_a_right_optimizer_ends_with_0(write, capsys):
    assert check(write(RIGHT)) == 0
    assert "Mine: nothing found wrong, in up to 1,000 steps alongside the reference" in capsys.readouterr().out


@pytest.mark.slow
def test_a_wrong_one_ends_with_1_and_says_from_which_step(write, capsys):
    assert check(write(WRONG)) == 1
    assert "first step: the very first step differs: first at step 1" in capsys.readouterr().out


@pytest.mark.slow
def test_an_optimizer_that_hangs_is_stopped_and_the_check_is_named(write, capsys):
    text = RIGHT.replace("        velocity = self", "        while True: pass\n        velocity = self")
    assert check(write(text), timeout=20) == 1
    assert "its process ended in the check 'shapes': it did not end within 20 s" in capsys.readouterr().out


def test_an_optimizer_that_ends_its_process_is_a_finding(write, capsys):
    text = RIGHT.replace("        velocity = self", "        import os; os.abort()\n        velocity = self")
    assert check(write(text)) == 1
    assert "SIGABRT" in capsys.readouterr().out


@pytest.mark.slow
def test_a_reference_of_the_command_line_wins(write):
    assert check(write(RIGHT), reference="sgd") == 1


@pytest.mark.slow
def test_json_has_every_finding_and_every_step_and_the_divergence_is_drawn_beside(write, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert check(write(WRONG), as_json=True, plot=tmp_path / "way.svg") == 1
    out, err = capsys.readouterr()
    assert "<svg" in Path(tmp_path / "way.svg").read_text()
    assert "way.svg" in err
    found = json.loads(out)
    assert not found["passed"]
    (report,) = found["reports"]
    assert report["name"] == "Mine"
    assert {"probe", "status", "found", "do", "case"} == set(report["findings"][0])
    steps = {each["problem"]: len(each["linf"]) for each in report["divergences"]}
    assert (steps["long"], steps["quadratic"], steps["schedule"], steps["step 1,001"]) == (1000, 100, 100, 11)


def test_a_figure_without_a_reference_is_refused(write, tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(UsageError, match="--reference"):
        check(write(RIGHT.replace("reference =", "other =")), plot=tmp_path / "way.svg")


def test_an_ending_that_is_no_figures_is_refused_before_anything_runs(tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(UsageError, match=r"\.txt"):
        check(tmp_path / "not-there.py", plot=tmp_path / "way.txt")


def test_an_unknown_reference_is_refused(write):
    with pytest.raises(UnknownNameError, match="momentum"):
        check(write(RIGHT), reference="momentun")


class TestFiles:
    def test_what_is_called_optimizer_is_taken(self, write):
        text = "from levelbench.training.optimizers import *\nother = SGD(0.1)\noptimizer = Momentum(0.2)\n"
        assert load_optimizers(write(text)) == ({"Momentum": Momentum(0.2)}, None)

    def test_else_all_that_are_made(self, write):
        text = "from levelbench.training.optimizers import *\na = SGD(0.1)\nb = SGD(0.2)\nreference = SGD(0.3)\n"
        assert load_optimizers(write(text)) == ({"a": SGD(0.1), "b": SGD(0.2)}, SGD(0.3))

    def test_else_its_own_rules_with_their_defaults(self, write):
        found, reference = load_optimizers(write(RIGHT))
        assert (list(found), found["Mine"].lr, reference) == (["Mine"], 0.01, "momentum")

    @pytest.mark.parametrize(
        ("text", "error", "message"),
        [
            ("x = 1\n", DefinitionError, "defines no optimizer"),
            ("x = 1\ny = x / 0\n", DefinitionError, "ZeroDivisionError: division by zero at line 2"),
            ("x = (\n", DefinitionError, "SyntaxError.*at line 1"),
            (RIGHT.replace("float = 0.9", "float"), DefinitionError, "momentum have no default"),
            (RIGHT.replace('"momentum"', "3"), DefinitionError, "it is of type int"),
        ],
    )
    def test_what_is_wrong_with_a_file_is_told(self, write, text, error, message):
        with pytest.raises(error, match=message):
            load_optimizers(write(text))

    def test_a_file_that_is_not_there_is_told(self, tmp_path):
        with pytest.raises(UsageError, match="no such file"):
            load_optimizers(tmp_path / "gone.py")


@pytest.mark.slow
def test_a_named_optimizer_is_compared_with_another_of_its_name_that_takes_its_settings(call):
    pytest.importorskip("torch", reason="needs PyTorch")
    code, out, _ = call("check", "torch.optim.SGD[momentum=0.9]")
    assert (code, "nothing found wrong, in up to 1,000 steps alongside the reference" in out) == (0, True)


@pytest.mark.parametrize("name", ["torch.optim.Adan", "adam[beta=1]"])
def test_a_name_or_setting_of_no_optimizer_is_refused_with_those_there_are(name, call):
    code, _, said = call("check", name)
    assert (code, "beta1" in said or "torch.optim.Adam" in said) == (2, True)
