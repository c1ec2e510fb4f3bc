"""A framework for tests on NumPy arrays, which can be made to fail in the ways that frameworks do."""

import numpy as np
import pytest

from levelbench.errors import UnsupportedError
from levelbench.measure.clocks import HOST, FakeClock
from levelbench.operators.contract import Operator, OperatorBackend
from levelbench.operators.frameworks import open_framework
from levelbench.operators.suites.single import parse_problem


class FakeOperator(Operator):
    def __init__(self, node, backend):
        self.node, self._backend = node, backend
        self._inner = backend.reference(node)

    def forward(self, *inputs):
        self._backend.calls += 1
        if self._backend.raises is not None:
            raise self._backend.raises
        self._backend.step()
        return tuple(self._backend.change(each) for each in self._inner.forward(*inputs))

    def vjp(self, *inputs):
        outputs = self._inner.forward(*inputs)
        return outputs, lambda *gradients: self.backward(gradients, inputs, outputs)

    def backward(self, gradients, inputs, outputs):
        found = self._inner.backward(gradients, inputs, outputs)
        return tuple(None if each is None else self._backend.change(each) for each in found)


class FakeBackend(OperatorBackend):
    """``change`` is applied to every result; ``takes_s`` is the time of a call on the framework's own clock."""

    def __init__(self, change=lambda array: array, raises=None, refuses=False, takes_s=None):
        self.change, self.raises, self.refuses, self.takes_s = change, raises, refuses, takes_s
        self.reference = open_framework("numpy").operator
        self.fake = FakeClock()
        self.finished, self.calls = 0, 0

    def step(self):
        if self.takes_s is not None:
            self.fake.advance(round(self.takes_s * 1e9))

    def operator(self, node):
        if self.refuses:
            raise UnsupportedError("an operator", "this test refuses it", "nothing")
        return FakeOperator(node, self)

    def array(self, host):
        return host

    def host(self, array):
        return np.array(array)

    def describe(self):
        return {"name": "fake"}

    def clock(self, host=HOST):
        return host if self.takes_s is None else self.fake

    def finish(self, arrays):
        self.finished += 1


@pytest.fixture
def fake():
    return FakeBackend


@pytest.fixture
def reference():
    return open_framework("numpy").operator


@pytest.fixture
def gemm():
    return parse_problem("Gemm", ["A=16x24", "B=24x8"])
