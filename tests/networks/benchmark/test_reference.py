"""Results are compared with the reference before they are measured: relative to each tensor's size."""

from dataclasses import replace

import numpy as np
import onnx.parser
import pytest

from levelbench.errors import UsageError
from levelbench.networks.benchmark.reference import (
    Reference,
    ReferenceFacts,
    compare,
    kept,
    load,
    make,
    save,
    tensor_of,
)
from levelbench.records.networks import NetworkCase

ALLOWED = (1e-4, 1e-3)


def reference(**tensors):
    named = {name.replace("_", " "): tensor_of(np.asarray(each)) for name, each in tensors.items()}
    return Reference(ReferenceFacts(4, "numpy"), named)


def found(**tensors):
    return {name.replace("_", " "): tensor_of(np.asarray(each)) for name, each in tensors.items()}


def test_equal_results_are_right():
    finding = compare(reference(output_0=[1.0, 2.0]), found(output_0=[1.0, 2.0]), ALLOWED)
    assert finding.wrong == ""
    assert finding.errors == {"output": 0.0}
    assert finding.checked == "against numpy on 4 rows, within 0.0001 of each tensor's size"


@pytest.mark.parametrize(("off", "right"), [(5e-5, True), (3e-4, False)])
def test_an_error_counts_relative_to_the_largest_of_its_tensor(off, right):
    finding = compare(reference(output_0=[2.0, 0.0]), found(output_0=[2.0, 2 * off]), ALLOWED)
    assert (finding.wrong == "") == right
    assert finding.errors["output"] == pytest.approx(off)


def test_gradients_have_their_own_tolerance():
    wanted = reference(loss=1.0, gradient_of_w=[1.0])
    assert compare(wanted, found(loss=1.0, gradient_of_w=[1.0005]), ALLOWED).wrong == ""
    assert compare(wanted, found(loss=1.0005, gradient_of_w=[1.0]), ALLOWED).wrong.startswith("loss is off")


def test_a_gradient_with_a_wrong_sign_is_caught():
    finding = compare(reference(gradient_of_w=[0.5, -1.0]), found(gradient_of_w=[-0.5, 1.0]), ALLOWED)
    assert finding.wrong.startswith("gradient of w is off by 2")


def test_a_gradient_that_is_zero_up_to_rounding_is_compared_with_the_largest():
    wanted = reference(gradient_of_w=[1.0], gradient_of_b=[1e-9])
    assert compare(wanted, found(gradient_of_w=[1.0], gradient_of_b=[-3e-9]), ALLOWED).wrong == ""
    assert compare(wanted, found(gradient_of_w=[1.0], gradient_of_b=[1e-4]), ALLOWED).wrong


def moved(by, **tensors):
    """A reference whose tensors are moved that much by rounding."""
    wanted = reference(**tensors)
    return replace(wanted, tensors={name: replace(each, moved=by) for name, each in wanted.tensors.items()})


def test_errors_that_rounding_the_inputs_explains_are_accepted_with_a_note():
    wanted = moved(0.1, output_0=[1.0, 2.0])
    near = compare(wanted, found(output_0=[1.0, 2.2]), ALLOWED)
    assert near.wrong == ""
    assert near.checked.endswith("; output off by 0.1, as rounding alone explains")
    assert compare(wanted, found(output_0=[1.0, 2.5]), ALLOWED).wrong.startswith("output 0 is off by 0.25")


def test_a_relu_that_switches_changes_a_few_elements_but_hardly_the_norm():
    gradient = np.ones(10_000)
    turned = gradient.copy()
    turned[0] = 1.09
    assert compare(reference(gradient_of_w=gradient), found(gradient_of_w=turned), ALLOWED).wrong == ""


def test_the_largest_effect_of_rounding_on_any_gradient_counts_for_all():
    wanted = moved(0.0, gradient_of_v=[1.0], gradient_of_w=[1.0])
    shaken = replace(wanted.tensors["gradient of v"], moved=0.01)
    wanted = replace(wanted, tensors={**wanted.tensors, "gradient of v": shaken})
    assert compare(wanted, found(gradient_of_v=[1.0], gradient_of_w=[1.03]), ALLOWED).wrong == ""
    assert compare(wanted, found(gradient_of_v=[1.0], gradient_of_w=[1.05]), ALLOWED).wrong


def test_gradients_of_other_parameters_are_not_compared():
    wanted = reference(loss=1.0, gradient_of_w=[1.0])
    assert compare(wanted, found(loss=1.0), ALLOWED).wrong == ""
    assert compare(wanted, found(loss=1.0, gradient_of_w=[9.0]), (1e-4, None)).wrong == ""


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ([1.0], "has shape (1,), expected (2,)"),
        ([float("nan"), 2.0], "NaN where the reference does not"),
        ([float("inf"), 2.0], "off by inf"),
    ],
)
def test_impossible_results_are_wrong_with_the_reason(other, said):
    assert said in compare(reference(output_0=[1.0, 2.0]), found(output_0=other), ALLOWED).wrong


def test_a_missing_output_is_wrong():
    assert compare(reference(output_0=[1.0]), {}, ALLOWED).wrong == "an output is missing"


def test_infinities_and_nan_at_the_same_places_are_right():
    strange = [float("inf"), float("nan"), -float("inf"), 1.0]
    assert compare(reference(output_0=strange), found(output_0=strange), ALLOWED).wrong == ""


def test_an_integer_must_be_equal():
    finding = compare(reference(output_0=[1, 2, 3, 4]), found(output_0=[1, 2, 3, 5]), ALLOWED)
    assert finding.wrong == "25.00% of an integer result differ"


def test_three_of_many_wrong_tensors_are_named():
    names = [f"output_{at}" for at in range(5)]
    wanted = reference(**dict.fromkeys(names, 1.0))
    finding = compare(wanted, found(**dict.fromkeys(names, 2.0)), ALLOWED)
    assert finding.wrong.count("off by") == 3
    assert finding.wrong.endswith("; and 2 more")


def test_evenly_spaced_elements_of_a_large_tensor_are_kept_including_both_ends():
    values = kept(np.arange(1_000_000, dtype=np.float32))
    assert len(values) == 2**16
    assert (values[0], values[-1]) == (0, 999_999)


def test_the_largest_is_that_of_all_elements_not_of_those_kept():
    array = np.zeros(1_000_001, np.float32)
    array[1] = 7.0
    tensor = tensor_of(array)
    assert 7.0 not in tensor.values
    assert tensor.largest == 7.0


def test_a_reference_is_read_back_as_it_was_saved(tmp_path):
    wanted = reference(output_0=[[1.0, 2.0]], output_1=[3])
    save(wanted, tmp_path / "r.npz")
    again = load(tmp_path / "r.npz")
    assert (again.facts.rows, again.facts.by) == (4, "numpy")
    assert again.tensors["output 0"].shape == (1, 2)
    assert again.tensors["output 1"].values.tolist() == [3]
    assert again.tensors["output 0"].moved == 0.0


def test_a_reference_without_tensors_keeps_its_reason(tmp_path):
    save(Reference(ReferenceFacts(reason="it has no Foo"), {}), tmp_path / "r.npz")
    assert load(tmp_path / "r.npz").facts.reason == "it has no Foo"


def test_inputs_that_cannot_be_drawn_are_said_with_how_to_give_them(make_specification, tmp_path):
    path = tmp_path / "shaped.onnx"
    onnx.save(
        onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]> shaped (float[N, 6] x, int64[2] shape)
        => (float[A, B] y) { y = Reshape(x, shape) }"""),
        path,
    )
    case = NetworkCase("shaped", "file", 2, path=str(path))
    with pytest.raises(UsageError) as raised:
        make(make_specification(case=case))
    assert raised.value.asked == "network shaped on numpy"
    assert raised.value.found.startswith("with drawn inputs it raises ValueError: ")
    assert raised.value.do == "levelbench check FILE --inputs VALUES.npz runs it on given ones"
