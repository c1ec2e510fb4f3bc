"""``levelbench check FILE`` on operators that are right, wrong, crash, hang, or cannot be read."""

import json
import re
import shutil

import pytest

pytestmark = pytest.mark.sampled(3)

RIGHT = """
import numpy as np
from levelbench.operators.custom import CustomOperator

class Square(CustomOperator):
    def forward(self, x):
        return x * x

    def backward(self, gradients, inputs, outputs):
        return (2 * gradients[0] * inputs[0],)

    def reference(self, x):
        return x ** 2

    def examples(self, random):
        yield (random.standard_normal((3, 5)).astype("float32"),)
"""
PLAIN = RIGHT.replace("    def examples(self, random):", "    def unused(self, random):")
HANGS = RIGHT.replace("return x * x", "import time\n        while True: time.sleep(1)")
CRASHES = RIGHT.replace("return x * x", "import ctypes; ctypes.string_at(0)\n        return x * x")
WRONG = RIGHT.replace("2 * gradients", "gradients")
OFF = RIGHT.replace("return x * x", "y = x * x; y[..., -1:] += 1; return y")
BEYOND = """
#include <levelbench.h>
using namespace levelbench;
struct Beyond {
  static constexpr auto inputs = "x";
  static constexpr auto outputs = "y";
  static constexpr auto examples = "4x8";
  template <class T> void forward(const Forward& call) const {
    auto x = call.input<T>(0);
    auto y = call.output<T>(0);
    for (int64_t i = 0; i <= x.size(); ++i) y[i] = 2 * x[i % x.size()];
  }
};
LEVELBENCH_OPERATOR(Beyond, float)
"""


@pytest.fixture
def check(call, tmp_path):
    """Write an operator's file and check it."""

    def run(text, *words, name="operator.py"):
        path = tmp_path / name
        path.write_text(text)
        return call("check", path, *words)

    return run


@pytest.fixture(scope="module")
def right(call_once, tmp_path_factory):
    """A check of an operator that is right, once for the tests that only look at it."""
    path = tmp_path_factory.mktemp("right") / "operator.py"
    path.write_text(RIGHT)
    return call_once("check", path, "--repeat", "20")


def test_a_right_operator_passes(right):
    code, out, _ = right
    assert code == 0
    assert "Square on numpy: nothing found wrong" in out


def test_a_wrong_gradient_is_a_finding_and_exit_code_1(check):
    code, out, _ = check(WRONG)
    assert code == 1
    assert "the gradient of input 0 'x' is wrong" in out


@pytest.mark.slow
def test_findings_are_json_and_the_deviation_is_drawn_beside(check, tmp_path):
    pytest.importorskip("matplotlib")
    code, out, err = check(OFF, "--json", "--heatmap", tmp_path / "map.png")
    found = json.loads(out)
    assert (code, found["passed"]) == (1, False)
    assert {each["probe"] for each in found["reports"][0]["findings"] if each["status"] == "failed"} >= {"forward"}
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert "map.png" in err


def test_a_crash_is_a_finding_that_names_the_signal_and_the_check(check):
    code, out, _ = check(CRASHES, "--dtype", "float32")
    assert code == 1
    assert "its process ended in the check 'process': SIGSEGV" in out


@pytest.mark.slow
def test_an_operator_that_does_not_end_is_a_finding(check):
    code, out, _ = check(HANGS, "--timeout", "2")
    assert code == 1
    assert "did not end within 2 s" in out


@pytest.mark.slow
def test_a_write_beyond_the_end_in_cpp_is_a_finding(check):
    if shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler")
    code, out, _ = check(BEYOND, name="beyond.cpp")
    assert code == 1
    assert "4 bytes beyond its end" in out


def test_one_operator_of_a_cpp_file_is_named_after_it(call, tmp_path):
    (tmp_path / "beyond.cpp").write_text(BEYOND)
    code, _, err = call("check", f"{tmp_path / 'beyond.cpp'}:Byond")
    if shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler")
    assert code == 2
    assert "close: Beyond" in err


def test_a_reference_of_ones_own_is_compared_with(check, tmp_path):
    (tmp_path / "cube.py").write_text("def cube(x):\n    return x ** 3\n")
    code, out, _ = check(RIGHT, "--reference", tmp_path / "cube.py:cube")
    assert code == 1
    assert "forward" in out


def test_shapes_stand_in_for_examples(check):
    code, out, _ = check(PLAIN, "--shape", "x=4x3")
    assert code == 0
    assert "forward" in out


def test_without_examples_and_shapes_it_is_said_what_to_give(check):
    code, _, err = check(PLAIN)
    assert code == 2
    assert "--shape x=8x16" in err


@pytest.mark.slow
def test_pytorch_runs_the_same_checks(check, warm_torch):
    pytest.importorskip("torch")
    code, out, _ = check(RIGHT, "--framework", "torch", "--dtype", "float32,float64")
    assert code == 0
    assert "Square on torch: nothing found wrong" in out


@pytest.mark.parametrize(
    ("text", "words", "code", "says"),
    [
        ("x = 1\n", [], 2, "defines no operator"),
        ("raise SystemExit(3)\n", [], 2, "SystemExit"),
        ("import os; os._exit(7)\n", [], 2, "exit code 7"),
        (RIGHT, ["--operator", "Squares"], 2, "close: Square"),
        (RIGHT, ["--shape", "y=3"], 2, "no input of Square"),
        (RIGHT, ["--shape", "x=3xx"], 2, "it is not NAME=SIZES"),
        (RIGHT, ["--shape", "x=100000x100000"], 2, "2^24"),
        (RIGHT, ["--dtype", "float31"], 2, "close: float32"),
        (RIGHT, ["--framework", ","], 2, "it names no framework"),
        (RIGHT, ["--reference", "here"], 2, "FILE.py:function"),
        (RIGHT, ["--reference", "none.py:f"], 3, "there is no file"),
        (RIGHT, ["--heatmap", "map.txt"], 2, ".png or .svg"),
    ],
)
def test_what_cannot_be_checked_is_said_with_what_to_do(check, text, words, code, says):
    found, _, err = check(text, *words)
    assert found == code
    assert says in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import torch\nclass A(torch.autograd.Function): pass\n", "with torch.autograd.gradcheck"),
        ("from torch import nn\nclass A(nn.Module): pass\n", "write it as a CustomOperator"),
    ],
)
def test_a_file_with_only_classes_of_pytorchs_is_told_what_checks_them(check, text, says):
    pytest.importorskip("torch")
    code, _, err = check(text)
    assert code == 2
    assert says in err


@pytest.mark.parametrize("name", ["none.py", "none.py:Scheme", "none.py[lr=1]", "none.cpp", "none.onnx", "here/none"])
def test_a_file_that_is_not_there_is_not_taken_for_one_of_operators(call, tmp_path, name):
    code, _, err = call("check", tmp_path / name)
    assert code == 2
    assert "there is no such file" in err
    assert "operator" not in err


def test_a_folder_is_said_to_be_one(call, tmp_path):
    code, _, err = call("check", tmp_path)
    assert code == 2
    assert f"{tmp_path} is a folder" in err


@pytest.mark.parametrize("text", ["def (", "x = 1\n"])
def test_a_file_that_tells_nothing_is_a_file_and_none_of_operators(check, text):
    code, _, err = check(text)
    assert code == 2
    assert "error: the file " in err


SCALED = """
import numpy as np
from levelbench.operators.custom import CustomOperator, Spec

class Pick(CustomOperator):
    def __init__(self, scale):
        self.scale = scale

    def infer(self, x, index):
        return Spec((*index.shape, *x.shape[1:]), x.dtype)

    def forward(self, x, index):
        return np.take(x, index, axis=0, mode="clip") * x.dtype.type(self.scale)

    def reference(self, x, index):
        return np.take(x, index, axis=0, mode="clip") * self.scale
"""


def test_an_attribute_and_a_whole_number_input_can_be_given(check):
    words = ("--shape", "x=9x4", "--shape", "index=5:int64", "--dtype", "float32")
    code, out, _ = check(SCALED, *words, "--attr", "scale=0.5")
    assert (code, "nothing found wrong" in out) == (0, True)
    code, _, err = check(SCALED, *words)
    assert code == 2
    assert "--attr" in err


def test_a_dtype_of_a_shape_that_does_not_exist_answers_with_the_nearest(check):
    code, _, err = check(RIGHT, "--shape", "x=3:int46")
    assert code == 2
    assert "int64" in err


NOISY = RIGHT.replace(
    "return x * x",
    "return x * x * np.asarray(1 + 2e-7 * (np.random.default_rng().random(x.shape) > 0.5), x.dtype)",
)


def test_runs_that_differ_in_the_last_bits_are_noted_with_how_far_and_where(check):
    _, out, _ = check(NOISY, "--repeat", "20", "--dtype", "float32", "--json")
    findings = [each for each in json.loads(out)["reports"][0]["findings"] if each["probe"] == "repeatability"]
    found = next(each for each in findings if each["status"] == "noted")
    assert "of 20 calls agree bit for bit" in found["found"]
    assert "ULP" in found["found"]
    assert "output 0, index" in found["found"]


def test_calls_that_agree_bit_for_bit_are_said_to(right):
    assert re.search(r"repeatability +passed +bit for bit", right[1])


@pytest.mark.parametrize("words", [("--timeout", "-1"), ("--repeat", "0"), ("--seed", "-1")])
def test_a_number_that_cannot_be_meant_is_refused(check, words):
    code, _, err = check(RIGHT, *words)
    assert code == 2
    assert words[0] in err
