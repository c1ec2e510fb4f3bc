import numpy as np
import pytest

from levelbench.operators.node import OPSETS, operator_node


def make(op_type, inputs, outputs=None, opset=OPSETS[-1], **attributes):
    """The operator on NumPy; an input that is None is left out."""
    from levelbench.frameworks.numpy.operator import NumpyOperator

    names = ["" if each is None else f"x{at}" for at, each in enumerate(inputs)]
    return NumpyOperator(operator_node(op_type, names, outputs, opset=opset, **attributes))


@pytest.fixture
def run():
    """run("Relu", x, opset=..., **attributes) -> the output, or a tuple of those that ``outputs`` names.

    The answer must be our own, unless ``reference`` says that it is ONNX's.
    """

    def call(op_type, *inputs, outputs=None, reference=False, **options):
        operator = make(op_type, inputs, outputs, **options)
        found = operator.forward(*inputs)
        assert (operator._fallback is not None) == reference
        assert all(isinstance(each, np.ndarray) for each in found)
        return found if outputs else found[0]

    return call


@pytest.fixture
def pull():
    """pull("Relu", x, gradient=g) -> the gradients of all inputs by ``backward``, checked to equal those of ``vjp``."""

    def call(op_type, *inputs, gradient, outputs=None, **options):
        operator = make(op_type, inputs, outputs, **options)
        gradients = gradient if isinstance(gradient, tuple) else (gradient,)
        found = operator.backward(gradients, inputs, operator.forward(*inputs))
        again = operator.vjp(*inputs)[1](*gradients)
        assert len(found) == len(again) == len(inputs)
        for first, second in zip(found, again, strict=True):
            assert (first is None) == (second is None)
            if first is not None:
                np.testing.assert_array_equal(first, second)
        return found

    return call


@pytest.fixture
def same_as_torch(run, pull):
    """Compares outputs and gradients of all real inputs with those of a function of torch tensors, in float64."""
    torch = pytest.importorskip("torch")

    def check(reference, op_type, *inputs, outputs=None, rtol=1e-9, **options):
        tensors = [None if each is None else torch.from_numpy(np.array(each)) for each in inputs]
        real = [at for at, each in enumerate(tensors) if each is not None and each.is_floating_point()]
        for at in real:
            tensors[at].requires_grad_()
        expected = reference(*tensors)
        expected = expected if isinstance(expected, tuple | list) else (expected,)
        found = run(op_type, *inputs, outputs=outputs, **options)
        found = found if outputs else (found,)
        gradients = []
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.shape == tuple(theirs.shape)
            np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=rtol, atol=1e-12)
            smooth = theirs.is_floating_point()
            gradients.append(np.random.default_rng(7).normal(size=ours.shape) if smooth else None)
        pairs = [(y, g) for y, g in zip(expected, gradients, strict=True) if g is not None and y.requires_grad]
        torch.autograd.backward([y for y, _ in pairs], [torch.from_numpy(np.array(g)) for _, g in pairs])
        pulled = pull(op_type, *inputs, gradient=tuple(gradients), outputs=outputs, **options)
        for at, (ours, tensor) in enumerate(zip(pulled, tensors, strict=True)):
            if at not in real or tensor.grad is None:
                assert ours is None, f"a gradient of input {at}"
                continue
            assert ours.dtype == inputs[at].dtype
            assert ours.shape == inputs[at].shape
            np.testing.assert_allclose(ours, tensor.grad.numpy(), rtol=rtol, atol=1e-12, err_msg=f"input {at}")

    return check
