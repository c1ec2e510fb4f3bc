import numpy as np
import pytest

from levelbench.errors import UnknownNameError, UsageError
from levelbench.networks import Draw, GraphBuilder
from levelbench.networks.executor import checked_parameters, require_inputs


def build():
    g = GraphBuilder("scaled")
    weight = g.parameter("weight", (2, 3), Draw("normal", 1.0))
    g.parameter("mean", (3,), Draw("constant", 0.0), trainable=False)
    g.output(g.node("MatMul", g.input("x", ("batch", 2)), weight), "y")
    return g.build()


def test_parameters_of_any_dtype_are_returned_in_the_networks_order():
    network = build()
    given = {name: each.astype(np.float64) for name, each in reversed(network.initialise().items())}
    found = checked_parameters(network, given)
    assert list(found) == ["weight", "mean"]
    assert all(found[name] is given[name] for name in found)


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"weight": None}, UsageError, "the parameters of scaled: missing: weight"),
        ({"weight": None, "wieght": np.zeros((2, 3))}, UnknownNameError, "parameter 'wieght'.*close: weight"),
        ({"weight": None, "other": np.zeros((2, 3))}, UsageError, "missing: weight"),
        ({"weight": np.zeros(7)}, UsageError, r"'weight' is \(2, 3\), and the array for it \(7,\)"),
        ({"mean": np.zeros((1, 3))}, UsageError, r"'mean' is \(3,\), and the array for it \(1, 3\)"),
    ],
)
def test_parameters_that_do_not_fit_the_network_are_refused_by_name(changes, error, says):
    network = build()
    given = {name: each for name, each in (network.initialise() | changes).items() if each is not None}
    with pytest.raises(error, match=says):
        checked_parameters(network, given)


def test_a_part_of_a_network_takes_the_parameters_of_the_whole():
    network = build()
    assert set(checked_parameters(network, network.initialise() | {"head": np.zeros(2)})) == {"weight", "mean"}


def test_a_call_with_the_right_number_of_inputs_is_accepted():
    require_inputs(["x", "labels"], 2, TypeError("no kernel"))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_call_with_a_wrong_number_of_inputs_is_refused_with_their_names(count):
    cause = TypeError("missing")
    with pytest.raises(UsageError, match=rf"there are 2 \(x, labels\), and {count} were given") as caught:
        require_inputs(["x", "labels"], count, cause)
    assert caught.value.__cause__ is cause


def test_only_the_first_of_many_inputs_are_named():
    with pytest.raises(UsageError, match=r"there are 7 \(0, 1, 2, 3, 4 and 2 more\), and 1 were given"):
        require_inputs(list("0123456"), 1)
