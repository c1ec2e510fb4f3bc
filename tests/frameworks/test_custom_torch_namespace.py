"""The Array API on PyTorch's tensors is that of NumPy."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from levelbench.operators.custom import namespace  # noqa: E402

X = torch.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])
NAMESPACE = namespace(X)


@pytest.mark.parametrize(
    ("name", "arguments", "keywords"),
    [
        ("max", (), {"axis": -1, "keepdims": True}),
        ("min", (), {"axis": (0, 1)}),
        ("max", (), {}),
        ("sum", (), {"axis": (0, 1), "keepdims": True}),
        ("mean", (), {"axis": 0}),
        ("prod", (), {"axis": (0, 1)}),
        ("prod", (), {}),
        ("all", (), {"axis": 0}),
        ("any", (), {}),
        ("maximum", (0.0,), {}),
        ("minimum", (1.5,), {}),
        ("permute_dims", ((1, 0),), {}),
        ("matrix_transpose", (), {}),
        ("expand_dims", (), {"axis": 1}),
        ("flip", (), {}),
        ("cumulative_sum", (), {"axis": 1}),
        ("vecdot", (np.float32(2) * X.numpy(),), {}),
        ("tensordot", (X.numpy(),), {"axes": ((0,), (0,))}),
        ("take", (np.array([1, 0]),), {"axis": 1}),
        ("take_along_axis", (np.array([[0], [2]]),), {"axis": 1}),
        ("argmax", (), {"axis": 1}),
        ("std", (), {"axis": 0, "correction": 1}),
        ("exp", (), {}),
        ("sort", (), {"axis": 0}),
        ("argsort", (), {"axis": 1}),
    ],
)
def test_the_array_api_on_tensors_is_that_of_numpy(name, arguments, keywords):
    tensors = [torch.from_numpy(each) if isinstance(each, np.ndarray) else each for each in arguments]
    found = getattr(NAMESPACE, name)(X, *tensors, **keywords)
    expected = getattr(np, name)(X.numpy(), *arguments, **keywords)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


def test_sorting_is_stable_in_either_direction():
    x = torch.tensor([2.0, 1.0, 2.0, 3.0]).repeat(20)
    assert NAMESPACE.argsort(x).tolist() == sorted(range(80), key=lambda at: x[at])
    assert NAMESPACE.argsort(x, descending=True).tolist() == sorted(range(80), key=lambda at: -x[at])
    assert NAMESPACE.sort(x[None], descending=True)[0].tolist() == sorted(x.tolist(), reverse=True)


def test_types_are_told_apart_as_in_the_standard():
    assert NAMESPACE.isdtype(torch.float16, "real floating")
    assert NAMESPACE.isdtype(torch.uint8, ("bool", "integral"))
    assert not NAMESPACE.isdtype(torch.float32, torch.float64)
    assert NAMESPACE.astype(X, torch.int64).dtype == torch.int64
