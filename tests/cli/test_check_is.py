"""``levelbench check --is``: models in files against the zoo, exit codes, words that cannot be meant."""

import json

import pytest

from levelbench.networks import zoo
from levelbench.networks.files import save
from levelbench.operators.frameworks import load_framework

pytestmark = pytest.mark.skipif(load_framework("torch").lacks() is not None, reason="torch is not installed")

MODELS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, activation=nn.Tanh, classes=10):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 6, 5), activation(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), activation(), nn.AvgPool2d(2),
            nn.Flatten(), nn.Linear(400, 120), activation(), nn.Linear(120, 84),
            activation(), nn.Linear(84, classes),
        )

    def forward(self, x):
        return self.layers(x)

def build():
    return Net()

def other():
    return Net(nn.ReLU, 100)

def deciding():
    class Deciding(Net):
        def forward(self, x):
            return super().forward(x if x.sum() > 0 else -x)
    return Deciding()

def nothing():
    return 3

def failing():
    raise ValueError("no weights here")
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my_model.py"
    path.write_text(MODELS)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", ":build", ":Net"])
def test_the_same_network_ends_in_0(call, file, name):
    code, out, _ = call("check", f"{file}{name}", "--is", "lenet5-dense")
    assert code == 0
    assert "nothing found wrong: it is lenet5-dense" in out


def test_another_network_ends_in_1_and_says_why(call, file):
    code, out, _ = call("check", f"{file}:other", "--is", "lenet5-dense")
    assert code == 1
    assert "activation: ReLU instead of tanh" in out
    assert "classes: 100 instead of 10" in out


def test_options_of_the_reference_are_set(call, file):
    code, out, _ = call("check", f"{file}:other", "--is", "lenet5-dense", "--option", "classes=100", "--json")
    assert code == 1
    (report,) = json.loads(out)["reports"]
    assert {each["probe"] for each in report["findings"] if each["status"] == "failed"} == {"activation"}
    assert report["sizes"]["model"] == report["sizes"]["reference"]
    assert report["pairs"][0]["model"]["name"] == "layers.0"


def test_what_cannot_be_told_ends_in_4(call, file):
    code, out, _ = call("check", f"{file}:deciding", "--is", "lenet5-dense")
    assert code == 4
    assert "not tried" in out


def test_a_file_is_compared(call, tmp_path):
    network = zoo.build("resnet20")
    path = tmp_path / "model.onnx"
    save(network, path, network.initialise(0))
    assert call("check", path, "--is", "resnet20")[0] == 0
    code, out, _ = call("check", path, "--is", "resnet32")
    assert code == 1
    assert "6 residual blocks missing" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["my_model.py:build", "--is", "resnet51"], "resnet50"),
        (["my_model.py:built", "--is", "lenet5-dense"], "build"),
        (["my_model.py:nothing", "--is", "lenet5-dense"], "return a torch.nn.Module or a levelbench Network"),
        (["my_model.py:failing", "--is", "lenet5-dense"], "no weights here"),
        (["my_model.py:build", "--is", "lenet5-dense", "--batch", "4"], "--is compares layers"),
        (["my_model.py:build", "--is", "lenet5-dense", "--option", "color=3"], "option of lenet5-dense"),
        (["my_model.py", "--option", "classes=3"], "there is no --is"),
        (["missing.onnx", "--is", "resnet20"], "there is no such file"),
        (["resnet2000", "--is", "resnet20"], "resnet20"),
    ],
)
def test_words_that_cannot_be_meant_are_refused(call, file, monkeypatch, words, said):
    monkeypatch.chdir(file.parent)
    code, _, err = call("check", *words)
    assert code in (2, 3)
    assert said in err
