"""JAX by name: looked for without being imported, opened on a device, described."""

import subprocess
import sys

import pytest

from levelbench.errors import MissingError, UnsupportedError
from levelbench.frameworks.jax import framework
from levelbench.operators.contract import Framework
from levelbench.operators.frameworks import load_framework
from levelbench.operators.node import OperatorNode


def test_it_is_found_by_name():
    found = load_framework("jax")
    assert isinstance(found, Framework)
    assert (found.name, found.trains) == ("jax", True)


def test_looking_for_it_does_not_import_it():
    code = "from levelbench.frameworks.jax import framework; framework.lacks(); import sys; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_where_it_is_not_installed_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install" in (framework.lacks() or "")


@pytest.mark.parametrize("device", ["cuda:99", "tpu", "cuda:x"])
def test_a_device_that_is_not_there_cannot_be_opened(device):
    pytest.importorskip("jax")
    with pytest.raises(MissingError, match="jax"):
        framework.open(device)


def test_it_describes_itself(backend):
    said = backend.describe()
    assert said["name"] == "jax"
    assert said["device"] == "cpu"
    assert said["deterministic"] is True
    assert said["threads"] >= 1


def test_its_clock_and_finish_wait_for_what_was_dispatched(backend):
    import numpy as np

    x = backend.array(np.ones((300, 300), np.float32))
    product = backend.operator(OperatorNode("MatMul", ("a", "b"), ("y",)))
    (y,) = product.forward(x, x)
    before = backend.clock().now_ns()
    assert y.is_ready()
    (y,) = product.forward(x, x)
    backend.finish([y])
    assert y.is_ready()
    assert backend.clock().now_ns() >= before


def test_its_gemm_is_a_product_of_square_matrices():
    pytest.importorskip("jax")
    ((name, make),) = framework.gemms()
    work, operations = make(8)
    assert name == "float32"
    assert operations == 2 * 8**3
    assert work().shape == (8, 8)


@pytest.mark.parametrize("operator", ["StringConcat", "RegexFullMatch", "ImageDecoder", "NoSuchOperator"])
def test_an_operator_that_it_has_not_is_refused_when_it_is_made(backend, operator):
    with pytest.raises(UnsupportedError, match=operator):
        backend.operator(OperatorNode(operator, ("x",), ("y",)))
