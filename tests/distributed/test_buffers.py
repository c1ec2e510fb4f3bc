import ml_dtypes
import numpy as np
import pytest

from levelbench.distributed.packing import dtype_name, elements, is_floating, new, put, view
from levelbench.errors import UnsupportedError


def test_the_view_of_a_numpy_array_is_itself():
    array = np.ones((2, 3))
    assert view(array) is array


def test_a_numpy_scalar_can_be_viewed_and_comes_back_as_an_array():
    seen = view(np.float32(3))
    assert (seen.shape, seen.dtype) == ((), np.float32)
    found = put(np.array(4, np.float32), np.float32(3))
    assert isinstance(found, np.ndarray)
    assert found == 4


def test_a_result_is_written_into_the_array_if_possible():
    base = np.zeros(6)
    like = base[::2]
    assert put(np.arange(3.0), like) is like
    assert base.tolist() == [0, 0, 1, 0, 2, 0]


def test_a_result_for_a_read_only_array_is_a_new_array():
    like = np.zeros(2)
    like.flags.writeable = False
    result = np.ones(2)
    found = put(result, like)
    assert found.tolist() == [1, 1]
    assert like.tolist() == [0, 0]
    assert not np.shares_memory(found, result)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bfloat16"])
def test_a_torch_tensor_is_viewed_and_written_in_place(dtype):
    torch = pytest.importorskip("torch")
    tensor = torch.ones(2, 3, dtype=getattr(torch, dtype))
    seen = view(tensor)
    assert (seen.shape, dtype_name(tensor), seen.dtype.name) == ((2, 3), dtype, dtype)
    seen[0, 0] = 5
    assert tensor[0, 0] == 5
    assert put(np.full((2, 3), 2, seen.dtype), tensor) is tensor
    assert (tensor == 2).all()
    fresh = new(np.full(4, 3, seen.dtype), tensor)
    assert (fresh.dtype, fresh.tolist()) == (tensor.dtype, [3] * 4)


def test_a_torch_parameter_can_be_viewed_despite_autograd():
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.zeros(3))
    view(parameter)[:] = 1
    assert parameter.tolist() == [1, 1, 1]
    assert parameter.requires_grad


@pytest.mark.parametrize("dtype", ["float32", "int32", "bfloat16"])
def test_a_jax_array_has_a_read_only_view_and_new_results(dtype):
    jnp = pytest.importorskip("jax.numpy")
    array = jnp.ones((2, 3), dtype)
    seen = view(array)
    assert not seen.flags.writeable
    result = np.full((2, 3), 2, seen.dtype)
    found = put(result, array)
    result[:] = 7
    assert (found.dtype, found.device, found.tolist()) == (array.dtype, array.device, [[2] * 3] * 2)
    assert array.tolist() == [[1] * 3] * 2


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda torch: torch.ones(2).to(torch.float8_e5m2), "Float8"),
        (lambda torch: torch.ones(2, device="meta"), "where its memory is"),
        (lambda torch: torch.ones(2).to_sparse(), "Sparse"),
    ],
)
def test_arrays_that_numpy_cannot_view_are_refused_with_the_reason(make, why):
    torch = pytest.importorskip("torch")
    with pytest.raises(UnsupportedError, match=why):
        view(make(torch))


def test_device_memory_is_refused_with_the_devices_name():
    class OnDevice:
        dtype, device = "float32", "cuda:3"

        def __dlpack_device__(self):
            return (2, 3)

    with pytest.raises(UnsupportedError, match="cuda:3"):
        view(OnDevice())


def test_floating_point_dtypes_have_a_mean():
    floats = [np.ones(1, each) for each in ("float16", "float32", "complex64", ml_dtypes.bfloat16)]
    assert all(is_floating(each) for each in floats)
    assert not any(is_floating(np.ones(1, each)) for each in ("int64", "bool", "uint8"))


def test_elements_of_an_array_without_dimensions():
    assert [elements(np.zeros(shape)) for shape in ((), (0, 3), (2, 3))] == [1, 0, 6]
