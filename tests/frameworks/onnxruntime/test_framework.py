import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np
import pytest

from levelbench.errors import MissingError
from levelbench.frameworks.onnxruntime import framework
from levelbench.operators.node import operator_node


def test_it_does_not_train():
    assert framework.name == "onnxruntime"
    assert not framework.trains


def test_a_package_that_does_not_exist_is_lacking(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install" in framework.lacks()
    with pytest.raises(MissingError, match="not installed"):
        framework.open()


def test_looking_for_it_does_not_import_it():
    code = "from levelbench.frameworks.onnxruntime import framework; framework.lacks()\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "onnxruntime" not in done.stdout.split()


@pytest.mark.parametrize("device", ["tpu", "cuda:x", "cpu:0"])
def test_a_device_it_does_not_know_is_lacking(backend, device):
    assert device in framework.lacks(device)
    with pytest.raises(MissingError, match="--device cpu"):
        framework.open(device)


def test_cuda_is_lacking_where_the_build_has_no_provider_for_it(backend, monkeypatch):
    import onnxruntime

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    assert "onnxruntime-gpu" in framework.lacks("cuda")


def test_cuda_is_there_where_the_build_has_a_provider_for_it(backend, monkeypatch):
    import onnxruntime

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    assert framework.lacks("cuda:1") is None


@pytest.mark.parametrize(("asked", "expected"), [("3", 3), ("2,1", 2)])
def test_threads_are_those_of_the_environment(backend, monkeypatch, asked, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert backend.describe()["threads"] == expected


@pytest.mark.parametrize("asked", ["", "none", "0"])
def test_threads_are_at_least_one_where_the_environment_says_nothing(backend, monkeypatch, asked):
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert backend.describe()["threads"] >= 1


@pytest.mark.parametrize(("policy", "spins"), [("", True), ("PASSIVE", False), ("active", True)])
def test_idle_threads_spin_unless_the_environment_forbids_it(backend, monkeypatch, policy, spins):
    monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    assert backend.describe()["spins"] is spins


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core has no idle threads")
def test_passive_threads_free_the_cores_for_other_work(backend, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    x = backend.array(np.ones((256, 256), np.float32))
    product = backend.operator(operator_node("MatMul"))
    spent = []
    for _ in range(5):
        product.forward(x, x)
        before = time.process_time()
        time.sleep(0.01)
        spent.append(time.process_time() - before)
    assert statistics.median(spent) < 0.005


def test_its_description_is_json(backend):
    assert json.loads(json.dumps(backend.describe()))["name"] == "onnxruntime"
