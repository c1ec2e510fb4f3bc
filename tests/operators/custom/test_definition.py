"""What a class declares, what nodes find by name, and what is verified about an operator."""

import itertools
import os
import sys

import numpy as np
import pytest

from levelbench.errors import CheckFailedError, DefinitionError, MissingError, UnknownNameError, UsageError
from levelbench.operators.custom import (
    CustomOperator,
    Spec,
    compiled,
    find,
    host,
    library,
    load_file,
    namespace,
    register,
)
from levelbench.operators.custom.definition import create, node_of
from levelbench.operators.custom.library import keep_code
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode

pytestmark = pytest.mark.usefixtures("empty_registry")


class Shift(CustomOperator):
    def __init__(self, by: float = 1.0, times: int = 1) -> None:
        self.by = by * times

    def forward(self, x):
        return x + np.asarray(self.by, x.dtype)


def test_names_come_from_the_class_and_its_forward():
    assert (Shift.name, Shift.inputs, Shift.outputs) == ("Shift", ("x",), ("output",))
    assert not Shift.has_backward
    assert not Shift.has_reference


def test_inputs_of_a_variadic_forward_must_be_named():
    with pytest.raises(DefinitionError, match="does not name its inputs"):

        class Any(CustomOperator):
            def forward(self, *inputs):
                return inputs[0]


@pytest.mark.parametrize("names", [("a", "a"), "ab", ()])
def test_outputs_must_be_different_names(names):
    with pytest.raises(DefinitionError, match="tuple of different names"):
        type("Bad", (Shift,), {"outputs": names})


def test_attributes_are_stored_with_their_defaults():
    assert dict(Shift().attributes) == {"by": 1.0, "times": 1}
    assert dict(Shift(2.5).attributes) == {"by": 2.5, "times": 1}
    assert repr(Shift(by=np.float32(0.5))) == "Shift(by=0.5, times=1)"


@pytest.mark.parametrize(
    ("attributes", "error", "text"),
    [({"bye": 1.0}, UnknownNameError, "close: by"), ({"by": object()}, UsageError, "by is <object")],
)
def test_an_attribute_that_a_node_cannot_hold_is_refused(attributes, error, text):
    with pytest.raises(error, match=text):
        Shift(**attributes)


def test_a_node_finds_its_operator_and_passes_its_attributes():
    register(Shift)
    node = OperatorNode("Shift", ("a",), ("b",), {"by": 3.0}, CUSTOM_DOMAIN)
    assert dict(create(node).attributes) == {"by": 3.0, "times": 1}
    assert node_of(Shift(times=2)).attributes == {"by": 1.0, "times": 2}


def test_an_unknown_name_is_refused_with_similar_ones():
    register(Shift)
    with pytest.raises(UnknownNameError, match="close: Shift"):
        find("Shiff")


def test_a_node_with_a_wrong_number_of_inputs_is_refused():
    register(Shift)
    with pytest.raises(UsageError, match="2 inputs, the operator 1: x"):
        create(OperatorNode("Shift", ("a", "b"), ("c",), {}, CUSTOM_DOMAIN))


def test_a_name_belongs_to_one_file(tmp_path):
    register(Shift)
    (tmp_path / "other.py").write_text(
        "from levelbench.operators.custom import CustomOperator\n"
        "class Shift(CustomOperator):\n    def forward(self, x):\n        return x\n"
    )
    with pytest.raises(DefinitionError, match="already has an operator of that name"):
        load_file(tmp_path / "other.py")


def test_a_python_file_is_loaded_and_may_be_loaded_again(tmp_path):
    path = tmp_path / "mine.py"
    text = (
        "from levelbench.operators.custom import CustomOperator, Spec\nVALUE = 1\n"
        "class Mine(CustomOperator):\n    def forward(self, x):\n        return x + VALUE\n"
    )
    path.write_text(text)
    (first,) = load_file(path)
    path.write_text(text.replace("VALUE = 1\n", "VALUE = 22\n"))
    (second,) = load_file(path)
    assert first.name == second.name == "Mine"
    assert find("Mine") is second
    assert second().forward(1) == 23


def test_code_that_is_kept_is_used_only_for_the_same_text(tmp_path, monkeypatch):
    path = tmp_path / "mine.py"
    text = (
        "from levelbench.operators.custom import CustomOperator\n"
        "class Mine(CustomOperator):\n    def forward(self, x):\n        return x + 1\n"
    )
    path.write_text(text)
    keep_code(str(path))
    with monkeypatch.context() as kept:
        kept.setattr(library._Loader, "source_to_code", None)
        (first,) = load_file(path)
    path.write_text(text.replace("+ 1", "+ 2"))
    (second,) = load_file(path)
    assert (first().forward(1), second().forward(1)) == (2, 3)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = 1\n", "it defines no operator"),
        ("x = 1\nx.y\n", "AttributeError.* at line 2"),
        ("def f(:\n", "SyntaxError.* at line 1"),
        ("raise SystemExit(3)\n", "SystemExit: 3 at line 1"),
        (
            "from levelbench.operators.custom import CustomOperator\nclass A(CustomOperator):\n    x = 1\n",
            "no operator",
        ),
    ],
)
def test_a_bad_python_file_is_a_definition_error_with_its_line(tmp_path, text, found):
    (tmp_path / "bad.py").write_text(text)
    with pytest.raises(DefinitionError, match=found):
        load_file(tmp_path / "bad.py")


def test_a_file_with_an_unknown_suffix_is_refused(tmp_path):
    (tmp_path / "x.txt").write_text("")
    with pytest.raises(DefinitionError, match=r"ends in .py, .cc, .cpp"):
        load_file(tmp_path / "x.txt")
    with pytest.raises(MissingError):
        load_file(tmp_path / "none.py")


def test_a_class_can_be_derived_from_a_cpp_file(cache):
    class Documented(compiled("operators.cpp", "Scale")):
        name = "Scale"

        def reference(self, x):
            return self.attributes["factor"] * x

    made = Documented(mode="bare", factor=3)
    assert Documented.has_reference
    assert not Documented.has_backward
    x = np.ones(3)
    np.testing.assert_array_equal(made.forward(x)[0], made.reference(x))
    with pytest.raises(UnknownNameError, match="close: Scale"):
        compiled("operators.cpp", "Skale")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda x: x[:1], r"float64\[1\], expected float64\[3\]"),
        (lambda x: x.astype(np.float32), r"float32\[3\], expected float64\[3\]"),
        (lambda x: (x, x), "returned 2 arrays"),
    ],
    ids=["shape", "dtype", "number"],
)
def test_an_operator_that_does_not_return_what_it_inferred_is_an_error(answer, text):
    class Wrong(CustomOperator):
        def forward(self, x):
            return answer(x)

    with pytest.raises(CheckFailedError, match=text):
        host.forward(Wrong(), (np.ones(3),))


def test_a_gradient_of_the_wrong_shape_is_an_error():
    class Wrong(CustomOperator):
        def forward(self, x, bias):
            return x + bias

        def backward(self, gradients, inputs, outputs):
            return gradients[0], gradients[0]

    inputs = np.ones((2, 3)), np.ones(3)
    with pytest.raises(CheckFailedError, match="gradient of bias of Wrong"):
        host.backward(Wrong(), (np.ones((2, 3)),), inputs, (np.ones((2, 3)),))


def test_an_output_that_is_a_view_of_an_input_is_copied():
    class View(CustomOperator):
        def forward(self, x):
            return x

    x = np.ones(3)
    (y,) = host.forward(View(), (x,))
    assert not np.may_share_memory(x, y)


def test_results_of_one_call_never_share_memory():
    class Shared(CustomOperator):
        outputs = ("a", "b", "c")

        def forward(self, x, y):
            both = np.stack([x, y])
            return both[0], both[0], both[1]

        def backward(self, gradients, inputs, outputs):
            slope = gradients[0] * 1
            return slope, slope

        def infer(self, x, y):
            return x, x, x

    inputs = np.zeros(3), np.ones(3)
    outputs = host.forward(Shared(), inputs)
    slopes = host.backward(Shared(), outputs, inputs, outputs)
    for found in (outputs, slopes):
        assert not any(np.shares_memory(one, other) for one, other in itertools.combinations(found, 2))
    np.testing.assert_array_equal(outputs, [inputs[0], inputs[0], inputs[1]])


@pytest.mark.parametrize("name", ["my-op", "my.op", "2nd", "größe", "two words"])
def test_a_name_must_be_an_identifier(name):
    with pytest.raises(DefinitionError, match="not an identifier"):
        type("Named", (Shift,), {"name": name})


def test_an_attribute_beyond_64_bits_is_refused():
    with pytest.raises(UsageError, match="64-bit"):
        Shift(times=2**70)


def test_two_operators_with_one_name_in_a_file_are_refused(tmp_path):
    (tmp_path / "twice.py").write_text(
        "from levelbench.operators.custom import CustomOperator\n"
        "class A(CustomOperator):\n    def forward(self, x):\n        return x\n"
        "class B(CustomOperator):\n    name = 'A'\n    def forward(self, x):\n        return -x\n"
    )
    with pytest.raises(DefinitionError, match="A more than once"):
        load_file(tmp_path / "twice.py")


def test_an_edit_of_the_same_size_within_a_second_takes_effect(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "quick.py"
    text = (
        "from levelbench.operators.custom import CustomOperator\n"
        "class Quick(CustomOperator):\n    def forward(self, x):\n        return x * %d\n"
    )
    for factor in (2, 3, 4):
        path.write_text(text % factor)
        os.utime(path, (1_700_000_000, 1_700_000_000))
        assert load_file(path)[0]().forward(1) == factor
    assert not (tmp_path / "__pycache__").exists()


def test_a_file_that_raises_leaves_no_module_behind(tmp_path):
    (tmp_path / "half.py").write_text("x = 1\nx.y\n")
    before = set(sys.modules)
    with pytest.raises(DefinitionError):
        load_file(tmp_path / "half.py")
    assert not [name for name in set(sys.modules) - before if "half" in name]


@pytest.mark.parametrize("answer", [None, 3, (np.float32,), (((2,), "no such type"),)])
def test_an_infer_that_returns_something_else_is_an_error(answer):
    class Vague(CustomOperator):
        def infer(self, x):
            return answer

        def forward(self, x):
            return x

    with pytest.raises(CheckFailedError, match="infer of Vague"):
        host.forward(Vague(), (np.ones(3),))


def test_sorting_is_stable_in_either_direction():
    x = np.tile([2.0, 1.0, 2.0, 3.0], 20)
    xp = namespace(x)
    assert xp.argsort(x).tolist() == sorted(range(80), key=lambda at: x[at])
    assert xp.argsort(x, descending=True).tolist() == sorted(range(80), key=lambda at: -x[at])
    assert xp.sort(x[None], descending=True)[0].tolist() == sorted(x, reverse=True)


def test_an_infer_that_returns_nonsense_is_an_error():
    class Nonsense(CustomOperator):
        def infer(self, x):
            return (3, 4)

        def forward(self, x):
            return x

    with pytest.raises(CheckFailedError, match="infer of Nonsense"):
        host.forward(Nonsense(), (np.ones(3),))


def test_the_namespace_is_that_of_the_arrays():
    assert namespace(np.ones(1), 2.0).tanh is np.tanh
    with pytest.raises(Exception, match="has no namespace"):
        namespace("text")


def test_a_spec_knows_its_size():
    assert (Spec((2, 3), np.dtype("f8")).size, Spec((2, 3), np.dtype("f8")).nbytes) == (6, 48)
