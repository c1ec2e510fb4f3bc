"""Node tests with a framework: passed, wrong, unsupported, upstream, and a process that dies."""

import os

import pytest

from levelbench.errors import DefinitionError, UnknownNameError
from levelbench.operators import conformance
from levelbench.operators.conformance import Result, collect_cases, run_conformance, tally, try_case
from levelbench.operators.contract import known_upstream

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm_node_cases")]


def one(name):
    return next(each for each in collect_cases() if each.name == name)


def test_a_correct_result_passes(backend):
    assert try_case(one("test_relu"), backend).status == "passed"


def test_a_refusal_is_unsupported_with_its_reason(refusing):
    found = try_case(one("test_sin"), refusing(refused=["Sin"]))
    assert (found.status, found.operator) == ("unsupported", "Sin")
    assert "refused in this test" in found.detail


@pytest.fixture
def wrong(backend):
    make = backend.operator

    def operator(node):
        inner = make(node)

        class Negated:
            def forward(self, *inputs):
                return tuple(-each for each in inner.forward(*inputs))

        return Negated()

    backend.operator = operator
    return backend


def test_a_wrong_result_is_wrong_and_located(wrong):
    found = try_case(one("test_exp"), wrong)
    assert found.status == "wrong"
    assert "values differ, first at" in found.detail


def test_a_known_fault_is_upstream(wrong):
    wrong.known_faults = {"test_exp": "its sign"}
    assert try_case(one("test_exp"), wrong).status == "upstream"


def test_a_known_fault_names_the_versions_it_was_seen_in_and_the_installed_one_if_different(wrong):
    seen, newer = (known_upstream({"test_exp": "its sign"}, ["1.1", "1.2"], here) for here in ("1.2", "2.0"))
    assert seen == {"test_exp": "its sign; known upstream, seen in 1.1, 1.2"}
    assert newer == {"test_exp": "its sign; known upstream, seen in 1.1, 1.2; here 2.0"}
    wrong.known_faults = newer
    found = try_case(one("test_exp"), wrong)
    assert (found.status, found.detail.endswith("here 2.0)")) == ("upstream", True)


def test_a_fixed_known_fault_passes(backend):
    backend.known_faults = {"test_exp": "its sign"}
    assert try_case(one("test_exp"), backend).status == "passed"


def test_any_other_exception_is_wrong(backend):
    def operator(node):
        raise ZeroDivisionError("of an adapter")

    backend.operator = operator
    found = try_case(one("test_exp"), backend)
    assert (found.status, found.detail) == ("wrong", "ZeroDivisionError: of an adapter")


def test_an_operator_without_a_test_is_refused_with_similar_names():
    with pytest.raises(UnknownNameError, match="Conv"):
        collect_cases(["Convv"])


def test_results_are_counted_by_operator():
    found = tally(
        "torch", [Result("a", "Add", "passed"), Result("b", "Add", "wrong"), Result("c", "Abs", "unsupported")]
    )
    assert found.total == {"passed": 1, "wrong": 1, "unsupported": 1, "upstream": 0}
    assert list(found.by_operator) == ["Abs", "Add"]
    assert found.by_operator["Add"] == {"passed": 1, "wrong": 1, "unsupported": 0, "upstream": 0}


def test_a_framework_runs_in_its_own_process_and_results_come_in_order():
    cases = collect_cases(["Sign", "Relu", "Neg"])
    heard = []
    found = run_conformance("numpy", cases, tell=heard.append)
    assert [each.name for each in found.results] == [each.name for each in cases]
    assert len(heard) == len(cases)
    assert found.total["passed"] == len(cases)


def dies_at_relu(job, say):
    for name in job["names"]:
        say({"started": name})
        if name == "test_relu":
            os.abort()
        say({"name": name, "operator": "X", "status": "passed", "detail": ""})


def has_no_device(job, say):
    raise SystemExit("no such device")


def test_a_case_that_kills_its_process_is_wrong_and_the_others_continue(monkeypatch):
    monkeypatch.setattr(conformance, "_CHILD", f"{__name__}:dies_at_relu")
    found = run_conformance("numpy", collect_cases(["Neg", "Relu", "Sign"]))
    assert {each.name: each.status for each in found.results} == {
        "test_neg_example": "passed",
        "test_neg": "passed",
        "test_relu": "wrong",
        "test_relu_expanded_ver18": "passed",
        "test_sign": "passed",
    }
    assert "SIGABRT" in next(each.detail for each in found.results if each.status == "wrong")


def test_a_process_that_fails_before_the_first_case_is_an_error(monkeypatch):
    monkeypatch.setattr(conformance, "_CHILD", f"{__name__}:has_no_device")
    with pytest.raises(DefinitionError, match="no such device"):
        run_conformance("numpy", collect_cases(["Neg"]))
