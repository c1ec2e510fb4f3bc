import numpy as np
import pytest

from levelbench.errors import UnknownNameError, UsageError
from levelbench.networks.executor import LiveArrays


def live():
    return LiveArrays({"w": np.ones((2, 2), np.float32), "b": np.zeros(2, np.float32)})


def replaced_by_or(arrays, value):
    arrays |= {"w": value}


WRITES = pytest.mark.parametrize(
    "write",
    [
        lambda arrays, value: arrays.__setitem__("w", value),
        lambda arrays, value: arrays.update({"w": value}),
        replaced_by_or,
    ],
    ids=["item", "update", "or"],
)


@WRITES
def test_every_way_to_write_keeps_the_dtype(write):
    arrays = live()
    write(arrays, np.full((2, 2), 5.0))
    assert arrays["w"].tolist() == [[5, 5], [5, 5]]
    assert arrays["w"].dtype == np.float32
    assert list(arrays) == ["w", "b"]


@WRITES
def test_an_array_of_another_shape_is_refused_and_not_stretched(write):
    arrays = live()
    with pytest.raises(UsageError, match=r"parameter 'w': it is \(2, 2\), and the new array \(1,\)"):
        write(arrays, np.ones(1, np.float32))
    assert arrays["w"].shape == (2, 2)


def test_an_unknown_name_is_refused():
    with pytest.raises(UnknownNameError, match="parameter 'weight'"):
        live()["weight"] = np.ones(1)
    with pytest.raises(UnknownNameError, match="parameter 'weight'"):
        live().setdefault("weight", np.ones(1))


@pytest.mark.parametrize(
    "remove",
    [lambda arrays: arrays.__delitem__("w"), lambda arrays: arrays.pop("w"), lambda arrays: arrays.clear()],
    ids=["del", "pop", "clear"],
)
def test_nothing_can_be_removed(remove):
    arrays = live()
    with pytest.raises(UsageError, match="the network needs it"):
        remove(arrays)
    assert len(arrays) == 2


def test_assigning_the_current_array_keeps_the_object():
    arrays = live()
    held = arrays["w"]
    arrays["w"] -= 1
    assert arrays["w"] is held
    assert not held.any()


def test_one_array_assigned_to_two_names_is_copied():
    arrays, given = live(), np.arange(2, dtype=np.float32)
    arrays["b"] = given
    given += 1
    assert arrays["b"].tolist() == [0, 1]
