"""Custom operators on ONNX Runtime, by the Python kernel of onnxruntime-extensions.

In processes of their own: the package keeps what it was given, and what goes wrong in its kernel ends a process.
"""

import subprocess
import sys

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxruntime_extensions")

BEGIN = """
import numpy as np
from levelbench.operators.custom import CustomOperator, register
from levelbench.operators.custom.definition import node_of
from levelbench.operators.frameworks import open_framework

backend = open_framework("onnxruntime")


@register
class Both(CustomOperator):
    outputs = ("sum", "difference")

    def __init__(self, scale=1.0):
        self.scale = scale

    def forward(self, x, y):
        return x + y, (x - y) * x.dtype.type(self.scale)


@register
class Same(CustomOperator):
    def forward(self, x):
        return x.copy()


@register
class Fails(CustomOperator):
    def forward(self, x):
        raise ValueError("it never works")


def run(operator, *hosts):
    made = operator if hasattr(operator, "vjp") else backend.operator(node_of(operator))
    return [backend.host(each) for each in made.forward(*map(backend.array, hosts))]


"""


def ended(code):
    return subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True, check=False)


def test_an_operator_with_attributes_and_several_outputs_is_called_by_a_session():
    found = ended("x = np.arange(3.0); print(*run(Both(scale=2.0), x, np.ones(3)))")
    assert (found.returncode, found.stdout) == (0, "[1. 2. 3.] [-2.  0.  2.]\n"), found.stderr


def test_values_of_all_types_and_shapes_arrive_unchanged():
    found = ended("""
same = backend.operator(node_of(Same()))
special = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-42, 1.1], np.float32)
arrays = [special, np.array(3.5), np.zeros((0, 3)), np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1)]
for name in ("bool", "uint8", "uint16", "uint32", "int8", "int16", "int32", "int64"):
    ends = [0, 1] if name == "bool" else [np.iinfo(name).min, np.iinfo(name).max]
    arrays.append(np.array([ends], name))
for given in (*arrays, *arrays):
    (back,) = run(same, given)
    assert (back.dtype, back.shape, back.tobytes()) == (given.dtype, given.shape, given.tobytes()), given
""")
    assert found.returncode == 0, found.stderr


def test_what_an_operator_raises_is_raised_and_others_go_on():
    found = ended("""
fails, x = backend.operator(node_of(Fails())), np.ones(2)
for at in range(20):
    run(Same(), x)
    try:
        run(fails, x)
    except ValueError as error:
        print(error)
""")
    assert (found.returncode, found.stdout) == (0, "it never works\n" * 20), found.stderr


def test_a_type_that_would_end_the_process_is_refused():
    found = ended("""
for name in ("float16", "uint64"):
    try:
        run(Same(), np.ones(2, name))
    except Exception as error:
        print(type(error).__name__, error.found)
""")
    says = "UnsupportedError onnxruntime-extensions does not pass this type on\n"
    assert (found.returncode, found.stdout) == (0, says * 2), found.stderr
