"""Users' models are loaded from a file, with the inputs that it declares."""

import re
import sys
from pathlib import Path

import pytest

from levelbench.errors import DefinitionError, MissingError, UnknownNameError, UsageError
from levelbench.networks.native import NativeModel, load_native
from levelbench.networks.values import Value

FUNCTION = """
    def build():
        return lambda x: x
    inputs = {"x": ("batch", 3)}
"""


def test_a_function_gets_the_inputs_declared_in_its_file(write):
    model = load_native(write(FUNCTION))
    assert (model.name, model.framework, model.parameters) == ("my_model", "jax", None)
    assert model.inputs == (Value("x", "float32", ("batch", 3)),)
    assert model.make_inputs(2)["x"].shape == (2, 3)


def test_parameters_come_before_inputs(write):
    model = load_native(write('def build():\n    return (lambda w, x: x), [1.0], {"x": (2,)}'))
    assert (model.parameters, model.inputs) == ([1.0], (Value("x", "float32", (2,)),))


def test_a_function_without_parameters_can_bring_its_inputs(write):
    assert load_native(write('def build():\n    return (lambda x: x), None, {"x": (2,)}')).parameters is None


def test_an_input_declares_its_type_and_bound(write):
    text = 'def build():\n    return (lambda i, m: i), None, {"i": (("batch", 50), "int64", 9), "m": ((4,), "bool")}'
    model = load_native(write(text))
    assert [each.dtype for each in model.inputs] == ["int64", "bool"]
    assert model.make_inputs(3)["i"].max() == 8


def test_inputs_can_be_drawn_by_a_function_of_the_batch(write):
    text = """
        import numpy as np
        def inputs(batch): return [np.ones((batch, 2)), np.zeros(batch)]
        def build(): return lambda x, y: x
    """
    assert {name: each.shape for name, each in load_native(write(text)).make_inputs(5).items()} == {
        "input0": (5, 2),
        "input1": (5,),
    }


@pytest.mark.parametrize("returned", ["3", "[1, 2]", '{"x": 1}'])
def test_inputs_that_are_not_arrays_are_an_error(write, returned):
    model = load_native(write(f"def inputs(batch): return {returned}\ndef build(): return lambda x: x"))
    with pytest.raises(DefinitionError, match="inputs of my_model"):
        model.make_inputs()


def test_a_file_can_return_a_native_model(write):
    text = """
        from levelbench.networks.native import NativeModel
        def build(): return NativeModel("mine", "jax", abs)
    """
    assert load_native(write(text)) == NativeModel("mine", "jax", abs)


def test_options_are_given_by_keyword(write):
    word = write('def build(width=2):\n    return (lambda x: x), None, {"x": (width,)}')
    assert load_native(word, {"width": 7}).inputs[0].shape == (7,)
    with pytest.raises(UnknownNameError, match="widht"):
        load_native(word, {"widht": 7})


def test_another_function_gives_the_model_its_name(write):
    word = write(FUNCTION.replace("build", "deep")).replace(":build", ":deep")
    assert load_native(word).name == "my_model.deep"


def test_modules_next_to_the_file_can_be_imported_without_leaving_traces(write, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    write("def identity(x): return x", "beside_my_model.py")
    before = list(sys.path)
    load_native(write('from beside_my_model import identity\ndef build(): return identity, None, {"x": (2,)}'))
    assert sys.path == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["beside_my_model.py", "my_model.py"]
    del sys.modules["beside_my_model"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\nraise RuntimeError('no')", "RuntimeError: no at line 2"),
        ("x = 1\n\ny = (", "SyntaxError.*at line 3"),
        ("def build():\n    return 1 / 0", "ZeroDivisionError.*at line 2"),
        ("raise SystemExit(3)", "SystemExit: 3 at line 1"),
        ("def build(): pass", "it returns nothing"),
        ("def build(): return 3", "it returns a int"),
        ("def build(): return lambda x: x", "the model's inputs are not declared"),
        ("def build(): return abs, None, {'x': (2,)}, 4", "it returns 4 values"),
        ("def build(): return abs, None, {'x': 2.5}", "input 'x'"),
        ("def build(): return abs, None, {'x': ((2,), 'float33')}", "float33"),
        ("def build(): return abs, None, {'x': ((2,), 'int64', 3, 4)}", "input 'x'"),
        ("def build(): return abs, None, [3]", "they are a list"),
    ],
)
def test_an_unusable_file_is_an_error_with_its_place(write, text, says):
    with pytest.raises(DefinitionError, match=says):
        load_native(write(text))


def test_a_word_that_does_not_name_a_function_is_refused(write):
    with pytest.raises(UsageError, match=r"FILE\.py:function"):
        load_native("my_model.onnx")
    with pytest.raises(MissingError, match="no file"):
        load_native("not_here.py:build")
    with pytest.raises(UnknownNameError, match="build"):
        load_native(write(FUNCTION).replace(":build", ":biuld"))


def test_labels_are_classes_of_the_logits():
    model = NativeModel("x", "jax", abs)
    assert model.make_labels((64, 3)).shape == (64,)
    assert set(model.make_labels((64, 3)).tolist()) == {0, 1, 2}
    assert model.make_labels((2, 5, 7)).shape == (2, 5)
    assert model.make_labels((2, 5, 7, 8)).shape == (2, 7, 8)
    with pytest.raises(UsageError, match="Define a loss"):
        model.make_labels((3,))


def test_a_function_is_not_a_module(write):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from levelbench.frameworks.torch import framework

    with pytest.raises(DefinitionError, match="it is a function"):
        framework.open().native(load_native(write(FUNCTION)))


def test_the_examples_of_the_page_run_as_they_are_written(tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    page = (Path(__file__).parents[2] / "docs" / "reference" / "executors.md").read_text()
    training, model, native = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_model.py").write_text(model)
    trained, built = {}, {}
    exec(training, trained)
    exec(native, built)
    assert trained["logits"].shape == (32, 10)
    assert built["executor"].parameters["0.weight"].shape == (256, 64)
