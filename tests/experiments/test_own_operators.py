"""Operators of a file as problems: what is measured, on which inputs, and beside which of ONNX's operators."""

import numpy as np
import pytest

from levelbench.errors import DefinitionError, UnknownNameError, UsageError
from levelbench.experiments.own_operators import describe, file_and_name, own_operators
from levelbench.operators.benchmark.measuring import read_inputs
from levelbench.operators.custom import definition
from levelbench.operators.node import CUSTOM_DOMAIN

HEAD = """
import numpy as np
from levelbench.operators.custom import CustomOperator, namespace
"""
RELU = """
class Relu(CustomOperator):
    def forward(self, x):
        return np.maximum(x, 0)

    def examples(self, random):
        for shape in ((4, 8), (4, 8), (0, 3)):
            yield (random.standard_normal(shape),)
"""
SCALE = """
class Scale(CustomOperator):
    def __init__(self, by: float = 2.0) -> None:
        self.by = by

    def forward(self, x):
        return x * self.by

    def examples(self, random):
        yield (np.ones(3, np.float32),)
"""


@pytest.fixture
def described(tmp_path, monkeypatch):
    """What the process that loads the file says, without that process."""
    monkeypatch.setattr(definition, "_REGISTERED", {})

    def say(text, name="", **more):
        path = tmp_path / "own.py"
        path.write_text(HEAD + text)
        request = {"path": str(path), "name": name, "folder": str(tmp_path), "shapes": {}, "attributes": {}}
        said = []
        describe({**request, "opset": None, **more}, said.append)
        return said[-1]

    return say


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("my_operator.py", ("my_operator.py", "")),
        ("folder/my.py:Gelu", ("folder/my.py", "Gelu")),
        ("fast.cpp:Gelu", ("fast.cpp", "Gelu")),
        ("Relu", None),
        ("model.onnx", None),
    ],
)
def test_a_word_names_a_file_of_operators_or_none(word, expected):
    found = file_and_name(word)
    assert expected == (None if found is None else (str(found[0]), found[1]))


def test_examples_are_problems_and_onnxs_operator_of_the_name_gets_the_same(described, tmp_path):
    found = described(RELU)
    assert [each["name"] for each in found["problems"]] == ["Relu x=4x8:float64 (1)", "Relu x=4x8:float64 (2)"]
    assert list(found["notes"]) == ["Relu: 1 of 3 examples are empty: left out"]
    own, beside = found["problems"][1], found["beside"][1]
    assert (own["domain"], beside["domain"], beside["operator"]) == (CUSTOM_DOMAIN, "", "Relu")
    assert own["tensors"] == beside["tensors"]
    assert own["name"] == beside["name"]


def test_the_process_that_measures_reads_the_examples_of_another(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(HEAD + RELU)
    found = own_operators(path, "Relu", tmp_path)
    random = np.random.default_rng(0)
    wanted = [random.standard_normal((4, 8)) for _ in range(2)]
    for at, expected in enumerate(wanted):
        (given,) = read_inputs(found.problems[at], at, 0, tmp_path)
        np.testing.assert_array_equal(given, expected)


def test_given_shapes_replace_the_examples(described):
    found = described(RELU, shapes={"x": [[2, 3], "bfloat16"]})
    (tensor,) = found["problems"][0]["tensors"]
    assert (tensor["shape"], tensor["dtype"], tensor["fill"]) == ((2, 3), "bfloat16", "normal")
    assert len(found["problems"]) == len(found["beside"]) == 1


def test_an_operator_of_another_function_is_not_measured_beside(described):
    found = described(RELU.replace("np.maximum(x, 0)", "np.maximum(x, 0) * 1.01"))
    assert not found["beside"]
    assert "does not compute the same as yours" in found["notes"][-1]


def test_an_operator_that_onnx_lacks_says_how_to_name_the_one_that_computes_the_same(described):
    found = described(SCALE)
    assert not found["beside"]
    assert "same_as" in found["notes"][-1]


def test_same_as_names_onnxs_operator(described):
    text = RELU.replace("class Relu(CustomOperator):", "class Mine(CustomOperator):\n    same_as = 'Relu'\n")
    assert described(text)["beside"][0]["operator"] == "Relu"
    with pytest.raises(UnknownNameError, match="Relu"):
        described(text.replace("'Relu'", "'Rely'"))


def test_attributes_that_onnxs_operator_lacks_leave_nothing_to_measure_beside(described):
    found = described(SCALE.replace("Scale", "Relu"))
    assert not found["beside"]
    assert "other inputs or attributes" in found["notes"][-1]


def test_the_digest_follows_what_the_file_imports(tmp_path, monkeypatch):
    (tmp_path / "own_helper_of_tests.py").write_text("FACTOR = 1\n")
    path = tmp_path / "own.py"
    path.write_text(HEAD + "from own_helper_of_tests import FACTOR\n" + RELU)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    first = own_operators(path, "", tmp_path).source
    assert own_operators(path, "", tmp_path).source == first
    (tmp_path / "own_helper_of_tests.py").write_text("FACTOR = 2\n")
    assert own_operators(path, "", tmp_path).source != first


@pytest.mark.parametrize(
    ("text", "words", "error", "says"),
    [
        (RELU, {"name": "Rely"}, UnknownNameError, "Relu"),
        (RELU, {"attributes": {"beta": 1}}, UsageError, "--attr"),
        (RELU, {"shapes": {"y": [[2], "float32"]}}, UnknownNameError, "x"),
        (RELU, {"shapes": {"x": [[0], "float32"]}}, UsageError, "empty"),
        (RELU + SCALE, {"shapes": {"x": [[2], "float32"]}}, UsageError, "own.py:Relu"),
        (RELU.replace("def examples", "def other"), {}, UsageError, "--shape x="),
        (RELU.replace("(4, 8)", "(0, 8)"), {}, UsageError, "examples are empty"),
        (RELU.replace("standard_normal(shape),)", "standard_normal(shape), 1)"), {}, DefinitionError, "one array"),
        ("print(1)", {}, DefinitionError, "no operator"),
    ],
)
def test_what_does_not_fit_the_file_is_refused(described, text, words, error, says):
    with pytest.raises(error) as refused:
        described(text, **words)
    assert says in str(refused.value)


def test_a_file_that_ends_its_process_is_a_refusal(tmp_path):
    path = tmp_path / "own.py"
    path.write_text("import os\nos._exit(3)\n")
    with pytest.raises(DefinitionError, match="exit code 3"):
        own_operators(path, "", tmp_path)
