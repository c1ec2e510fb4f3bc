"""Tensors to run custom operators of PyTorch on."""

import pytest

torch = pytest.importorskip("torch")


def leaf(*shape, seed=0, dtype=None):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=random, dtype=dtype or torch.float64).requires_grad_()
