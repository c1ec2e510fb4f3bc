"""What ``check_operator`` reports besides faults: what it noted, what it did not try, and why."""

import ml_dtypes
import numpy as np
import pytest

from levelbench.errors import CheckFailedError, UnsupportedError, UsageError
from levelbench.operators.custom import CustomOperator, Spec
from levelbench.operators.probes import check_forward, check_operator

pytestmark = pytest.mark.sampled(3)

X = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)


def double(x):
    return 2 * x


def found(report, check):
    return [(each.status, each.found) for each in report.findings if each.probe == check]


def test_a_correct_operator_has_no_failures_and_nothing_is_raised():
    report = check_operator(double, [[X]], reference=double)
    report.raise_for_findings()
    assert report.to_dict()["passed"] is True


def test_a_failure_is_raised_with_its_check_its_case_and_the_number_of_others():
    with pytest.raises(CheckFailedError, match=r"check 'forward' on float32\[3,5\].*more findings"):
        check_operator(lambda x: 3 * x, [[X]], reference=double).raise_for_findings()


def test_without_a_reference_the_checks_that_need_one_are_not_tried():
    report = check_operator(double, [[X]])
    assert found(report, "forward") == [("not tried", "there is no reference to compare with")]
    assert found(report, "NaN and infinity")[0][0] == "not tried"
    assert "its own float64" in found(report, "dtypes")[0][1]


def test_without_a_backward_gradients_are_not_tried():
    assert found(check_operator(double, [[X]]), "gradient")[0][0] == "not tried"


def test_every_example_is_checked_and_the_one_that_fails_is_named():
    def faulty(x):
        return 2 * x if x.shape[0] != 4 else 3 * x

    report = check_operator(faulty, [[X], [np.ones((4, 2), np.float32)]], reference=double)
    assert [each.case for each in report.failed if each.probe == "forward"] == ["float32[4,2]"]


def test_layouts_are_tried_in_the_example_with_the_most_axes():
    def faulty(x):
        return 2 * x if x.ndim < 2 or x.flags.c_contiguous else 3 * x

    assert "strides" in {each.probe for each in check_operator(faulty, [[X[0]], [X]], reference=double).failed}


def test_a_reference_that_numpy_promotes_from_bfloat16_does_not_accuse():
    class Product(CustomOperator):
        def infer(self, a, b):
            if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
                raise ValueError("the shapes do not fit")
            return Spec((a.shape[0], b.shape[1]), a.dtype)

        def forward(self, a, b):
            return (a.astype(np.float64) @ b.astype(np.float64)).astype(a.dtype)

    x = X.astype(ml_dtypes.bfloat16)
    check_forward(Product, [x, x.T.copy()], lambda a, b: a @ b)


def test_probes_are_announced_before_they_run_and_findings_passed_on_as_they_come():
    begun, heard = [], []
    report = check_operator(double, [[X]], tell=begun.append, hear=heard.append)
    assert begun[:2] == ["process on float32[3,5]", "forward on float32[3,5]"]
    assert {each.probe for each in heard} == {each.probe for each in report.findings}


def test_a_requested_dtype_that_is_refused_is_reported():
    def narrow(x):
        if x.dtype != np.float32:
            raise UnsupportedError(f"double of {x.dtype}", "float32 only", "convert")
        return 2 * x

    report = check_operator(narrow, [[X]], reference=double, dtypes=["float32", "float64"])
    assert ("not tried", "it does not accept float64: double of float64: float32 only") in found(report, "dtypes")


def test_an_operator_may_declare_that_it_returns_views():
    def transposed(x):
        return x.T

    transposed.aliases = True
    assert not check_operator(transposed, [[X]], reference=lambda x: x.T).failed
    assert check_operator(transposed, [[X]], aliases=False).failed


def test_another_order_of_summation_is_noted_but_not_a_fault():
    flips = iter(range(10**6))

    def restless(x):
        return x.sum(-1) if next(flips) % 2 else x[..., ::-1].cumsum(-1)[..., -1]

    report = check_operator(restless, [[np.random.default_rng(1).standard_normal((64, 99)).astype(np.float32)]])
    assert found(report, "determinism")[0][0] == "noted"
    assert not [each for each in report.failed if each.probe in {"determinism", "state", "strides"}]


def test_a_shape_that_is_refused_with_a_reason_is_not_a_fault():
    def even(x):
        if x.shape[-1] % 5:
            raise UsageError("double", "the last axis must be a multiple of 5", "pad it")
        return 2 * x

    report = check_operator(even, [[X]], reference=double)
    assert not report.failed
    assert any("multiple of 5" in detail for status, detail in found(report, "shapes") if status == "not tried")


def test_an_exception_of_the_operator_is_a_finding():
    def broken(x):
        raise RuntimeError("out of luck")

    report = check_operator(broken, [[X]], reference=double)
    assert [each.probe for each in report.failed] == ["forward"]
    assert "out of luck" in report.failed[0].found


def test_a_wrong_shape_inference_is_a_finding():
    class Halved(CustomOperator):
        def infer(self, x):
            return Spec((x.shape[0], x.shape[1] // 2), x.dtype)

        def forward(self, x):
            return x[:, ::2].copy()

    report = check_operator(Halved, [[X]])
    assert "infer says float32[3, 2], forward returns float32[3,3]" in found(report, "shape inference")[0][1]


def test_warnings_of_the_operator_are_not_failures():
    report = check_operator(lambda x: x.mean(axis=0), [[X]], reference=lambda x: x.mean(axis=0))
    assert not [each for each in report.failed if "Warning" in each.found]


def test_integer_operators_are_checked_too():
    values = np.arange(12).reshape(3, 4)
    assert not check_operator(lambda x: x + 1, [[values]], reference=lambda x: x + 1).failed
    assert check_operator(lambda x: x - 1, [[values]], reference=lambda x: x + 1).failed


def test_there_must_be_inputs():
    with pytest.raises(UsageError, match="no inputs"):
        check_operator(double, [])


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_gives_the_same_report(seed):
    reports = [check_operator(double, [[X]], reference=double, seed=seed) for _ in range(2)]
    assert reports[0] == reports[1]


class Dropout(CustomOperator):
    """Half of the input, chosen at random, and where: right in everything but values, which cannot be compared."""

    deterministic = False
    outputs = ("y", "kept")
    narrow = False

    def infer(self, x):
        return x, Spec(x.shape, np.dtype(bool))

    def forward(self, x):
        kept = np.random.random(x.shape) < 0.5
        return np.where(kept, 2 * x, 0).astype(np.float32 if self.narrow else x.dtype), kept

    def backward(self, gradients, inputs, outputs):
        return np.where(outputs[1], 2 * gradients[0], 0).astype(inputs[0].dtype)

    def reference(self, x):
        return x, np.ones(x.shape, bool)


@pytest.mark.parametrize("compared", [True, False])
def test_the_values_of_a_random_operator_are_not_compared(compared):
    report = check_operator(Dropout, [[X], [X[0]]], reference=Dropout().reference if compared else None)
    assert not report.failed
    assert found(report, "gradient") == [("not tried", "it is declared random")]


def test_the_dtype_of_a_random_operator_is_compared():
    class Narrow(Dropout):
        narrow = True

    report = check_operator(Narrow, [[X]], reference=Narrow().reference)
    assert {each.probe for each in report.failed} >= {"dtypes"}


@pytest.mark.parametrize("fault", ["same zeros at each call", None])
def test_an_operator_that_is_declared_random_and_is_not_is_compared(fault):
    class Sure(Dropout):
        def forward(self, x):
            return (np.zeros_like(x) if fault else x), np.ones(x.shape, bool)

    report = check_operator(Sure, [[X]], reference=Sure().reference)
    assert ("forward" in {each.probe for each in report.failed}) is (fault is not None)
