"""An operator that is written in Python runs on PyTorch's own memory, and under a name of its own."""

import ml_dtypes
import numpy as np
import pytest
from tests.frameworks.torch_operators import leaf

from levelbench.operators.custom import CustomOperator, Spec

torch = pytest.importorskip("torch")

from levelbench.frameworks.torch import custom  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_numpy_runs_on_the_tensors_own_memory(dtype):
    seen = []

    class Look(CustomOperator):
        def infer(self, x):
            return Spec((1,), np.dtype("f8"))

        def forward(self, x):
            seen.append((x.ctypes.data, x.dtype))
            return np.zeros(1)

    x = torch.ones(5, dtype=dtype)
    custom.function(Look())(x)
    known = {torch.bfloat16: np.dtype(ml_dtypes.bfloat16)}
    assert seen == [(x.data_ptr(), known.get(dtype, np.dtype(str(dtype).removeprefix("torch."))))]


def test_an_output_that_is_an_input_is_copied():
    class Same(CustomOperator):
        array_api = True

        def forward(self, x):
            return x

    x = torch.ones(3)
    assert custom.function(Same())(x).data_ptr() != x.data_ptr()


def test_results_of_one_call_never_share_memory():
    class Shared(CustomOperator):
        array_api = True
        outputs = ("a", "b")

        def infer(self, x, y):
            return x, x

        def forward(self, x, y):
            total = x + y
            return total, total

        def backward(self, gradients, inputs, outputs):
            slope = gradients[0] + gradients[1]
            return slope, slope

    x, y = leaf(3), leaf(3, seed=1)
    a, b = custom.function(Shared)(x, y)
    assert a.data_ptr() != b.data_ptr()
    (a.sum() + b.sum()).backward()
    x.grad.mul_(0.5)
    assert y.grad.tolist() == [2, 2, 2]


@pytest.mark.parametrize("first", [0, 1])
def test_the_name_of_a_backward_is_nobody_elses(first):
    def forward(self, x):
        return x * self.factor

    def backward(self, gradients, inputs, outputs):
        return gradients[0] * self.factor

    names = [f"Reserved{first}", f"Reserved{first}_backward"]
    made = [
        type(name, (CustomOperator,), {"factor": at + 2, "forward": forward, "backward": backward})
        for at, name in enumerate(names)
    ]
    functions = {at: custom.function(made[at]) for at in (first, 1 - first)}
    for at in range(2):
        x = leaf(2)
        (slope,) = torch.autograd.grad(functions[at](x).sum(), x)
        assert slope.tolist() == [at + 2] * 2


def test_a_class_that_is_defined_anew_takes_effect():
    def define(step):
        class Step(CustomOperator):
            def forward(self, x):
                return x + np.float32(step)

        return custom.function(Step)

    first, second = define(1), define(2)
    x = torch.zeros(1)
    assert (first(x).item(), second(x).item()) == (1, 2)
