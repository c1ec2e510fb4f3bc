"""What words for optimizers stand for, their check, and the recipes that train with them."""

import pytest

from levelbench.errors import UnknownNameError, UsageError
from levelbench.experiments.own_optimizers import (
    NamedOptimizer,
    check_subject,
    describe,
    listed,
    own_optimizers,
    recipes_file,
)
from levelbench.experiments.request import load_task
from levelbench.training.optimizers import Adam, Momentum

MINE = """
from dataclasses import dataclass

from levelbench.training.optimizers import Momentum

reference = "momentum"


@dataclass(frozen=True)
class Mine(Momentum):
    lr: float = 0.02
"""


def described(what, beside=(), file="", **settings):
    said = []
    request = {"file": str(file), "name": what, "settings": settings, "beside": [list(each) for each in beside]}
    describe(request, said.append)
    return said[-1]


def test_others_get_the_rate_of_the_first_and_their_own_defaults():
    found = described("adam", [("AdamW", {}), ("Adam", {"lr": 0.5})], lr=0.002)
    assert found["subject"]["name"] == "Adam"
    assert [each["settings"] for each in found["beside"]] == [{"lr": 0.002}, {"lr": 0.5}]
    assert [each["label"] for each in found["beside"]] == ["AdamW", "Adam[lr=0.5]"]


def test_a_frameworks_optimizer_runs_there_alone():
    pytest.importorskip("torch")
    found = described("Adam", [("torch.optim.AdamW", {"weight_decay": 0.1})])
    assert (found["subject"]["framework"], found["beside"][0]["framework"]) == ("", "torch")
    with pytest.raises(UnknownNameError, match="weight_decay"):
        described("Adam", [("torch.optim.AdamW", {"weight_decoy": 0.1})])


def test_an_optimizer_of_a_file_has_its_own_rate_and_a_digest(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    found = described("", [("SGD", {})], file=path)
    assert (found["subject"]["name"], found["subject"]["file"]) == ("Mine", str(path))
    assert found["beside"][0]["settings"] == {"lr": 0.02}
    path.write_text(f"{MINE}\n# changed\n")
    assert described("", file=path)["source"] != found["source"]


def test_one_of_several_optimizers_in_a_file_is_chosen_by_name(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(f"{MINE}\n\n@dataclass(frozen=True)\nclass Other(Mine):\n    pass\n")
    assert described("Other", file=path)["subject"]["label"] == "Other"
    with pytest.raises(UsageError, match=r"mine\.py:Mine"):
        described("", file=path)
    with pytest.raises(UnknownNameError, match="Other"):
        described("Another", file=path)


def test_an_unknown_name_or_setting_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="AdamW"):
        own_optimizers("AdmW", [])
    with pytest.raises(UnknownNameError, match="beta1"):
        described("Adam", beta_1=0.9)


def test_commas_in_brackets_do_not_separate():
    assert listed("Adam[lr=0.1,beta1=0.5], SGD") == ["Adam[lr=0.1,beta1=0.5]", "SGD"]
    with pytest.raises(UsageError):
        listed("Adam,,SGD")


@pytest.mark.slow
def test_the_check_of_a_wrong_optimizer_fails_and_of_a_right_one_does_not(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    right = NamedOptimizer("Mine", "Mine", {}, file=str(path))
    assert not check_subject(right, "", ("numpy",)).failed
    assert check_subject(right, "adam", ("numpy",)).failed
    ours = NamedOptimizer("Momentum", "Momentum", {"lr": 0.01})
    assert not check_subject(ours, "", ("numpy",)).failed


def test_recipes_differ_in_the_optimizer_alone(tmp_path, adding):
    """``adding`` takes the recipes away from digits afterwards."""
    own = tmp_path / "mine.py"
    own.write_text(MINE)
    arms = [
        NamedOptimizer("Mine", "Mine", {}, file=str(own)),
        NamedOptimizer("Adam[beta1=0.5]", "Adam", {"beta1": 0.5, "lr": 0.02}),
    ]
    path, names = recipes_file(tmp_path, "digits", "mlp", {"batch": 32}, arms, "abc")
    assert names == ["with_mine", "with_adam_beta1_0_5"]
    task = load_task(str(path))
    first, second = (task.assemble(name, {}) for name in names)
    assert isinstance(first.optimizer, Momentum)
    assert second.optimizer == Adam(0.02, beta1=0.5)
    assert first.sampler == second.sampler
    assert first.sampler.batch == 32
    assert task.assemble(names[0], {}).optimizer == first.optimizer


def test_the_same_words_have_the_same_file_and_a_changed_source_another(tmp_path):
    arms = [NamedOptimizer("Adam", "Adam", {"lr": 0.02})]
    first = recipes_file(tmp_path, "digits", "mlp", {}, arms, "abc")[0]
    assert recipes_file(tmp_path, "digits", "mlp", {}, arms, "abc")[0] == first
    assert recipes_file(tmp_path, "digits", "mlp", {}, arms, "abd")[0] != first
