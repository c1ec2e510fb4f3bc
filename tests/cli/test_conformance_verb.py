"""levelbench conformance: a row an operator, a column a framework, and an exit code."""

import json

import pytest

from levelbench.operators.conformance import Result, tally, try_case
from levelbench.operators.frameworks import open_framework

pytestmark = pytest.mark.usefixtures("warm_node_cases")


@pytest.fixture
def in_this_process(monkeypatch):
    """The node tests without the process of their own, in which ONNX would make all of them again (10 s)."""

    def run(framework, cases, device, tell):
        return tally(framework, [try_case(case, open_framework(framework, device)) for case in cases])

    monkeypatch.setattr("levelbench.operators.conformance.run_conformance", run)


def test_a_row_an_operator_and_the_totals_are_printed(call, golden, in_this_process):
    code, out, _ = call("conformance", "--framework", "numpy", "--operator", "Relu,Add")
    assert code == 0
    golden("conformance", out)


def test_json_has_each_result_and_the_counts(call, monkeypatch):
    def run(framework, cases, device, tell):
        return tally(framework, [Result(case.name, case.operator, "passed", "") for case in cases])

    monkeypatch.setattr("levelbench.operators.conformance.run_conformance", run)
    code, out, _ = call("conformance", "--framework", "numpy", "--match", "relu_expanded", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["frameworks"][0]["total"]["passed"] == found["cases"] == len(found["frameworks"][0]["results"])


@pytest.fixture
def faulty(monkeypatch):
    def run(framework, cases, device, tell):
        return tally(
            framework,
            [Result("test_a", "Add", "wrong", "shape (1,)"), Result("test_b", "Add", "unsupported", "no such dtype")],
        )

    monkeypatch.setattr("levelbench.operators.conformance.run_conformance", run)


def test_a_wrong_answer_is_named_and_ends_in_1(call, faulty):
    code, out, _ = call("conformance", "--framework", "numpy", "--summary")
    assert code == 1
    assert "numpy wrong: test_a: shape (1,)" in out
    assert "test_b" not in out


def test_verbose_says_why_a_test_is_unsupported(call, faulty):
    assert "numpy unsupported: test_b: no such dtype" in call("conformance", "--framework", "numpy", "-v")[1]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--operator", "Convv"], 2, "Conv"),
        (["--framework", "nump"], 2, "numpy"),
        (["--framework", ","], 2, "names no framework"),
        (["--match", "no such test"], 2, "there is none"),
        (["--framework", "numpy", "--device", "cuda"], 3, "cpu only"),
    ],
)
def test_what_cannot_be_meant_is_refused(call, words, code, says):
    found, _, err = call("conformance", *words)
    assert found == code
    assert says in err


def test_an_option_of_several_names_may_be_given_several_times(call, in_this_process):
    together = call("conformance", "--framework", "numpy", "--operator", "Relu,Add")
    assert call("conformance", "--framework", "numpy", "--operator", "Relu", "--operator", "Add") == together
