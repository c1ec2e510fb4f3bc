"""Threads of an arm: set so that the framework uses them, and compared with what it reports."""

import os
import subprocess
import sys

import pytest

from levelbench.errors import CheckFailedError, UsageError
from levelbench.experiments.inference.processes import check_cores, check_threads, limit_cores, with_threads
from levelbench.measure.environment import capture
from levelbench.records.inference import InferenceArm


def test_another_number_of_threads_makes_other_records():
    now = capture()
    torch, jax = InferenceArm("torch", threads=3), InferenceArm("jax", threads=1)
    assert with_threads(now, torch)["threads"]["settings"]["OMP_NUM_THREADS"] == "3"
    assert with_threads(now, torch)["machine"] == now["machine"]
    assert with_threads(now, jax)["machine"]["cores_allowed"] == 1


def test_only_frameworks_that_count_cores_get_restricted_cores():
    before = os.sched_getaffinity(0)
    try:
        limit_cores(InferenceArm("numpy", threads=1))
        limit_cores(InferenceArm("jax"))
        assert os.sched_getaffinity(0) == before
        limit_cores(InferenceArm("jax", threads=1))
        assert len(os.sched_getaffinity(0)) == 1
    finally:
        os.sched_setaffinity(0, before)
    with pytest.raises(UsageError, match="a thread per core"):
        check_cores(InferenceArm("jax", threads=len(before) + 1))


def test_a_framework_with_a_wrong_number_of_threads_fails():
    check_threads(InferenceArm("torch", threads=2), {"threads": 2})
    check_threads(InferenceArm("torch"), {"threads": 2})
    with pytest.raises(CheckFailedError, match="2 instead of 1"):
        check_threads(InferenceArm("torch", threads=1), {"threads": 2})


@pytest.mark.parametrize("module", ["inference.processes", "networks"])
def test_a_process_that_measures_an_import_starts_without_numeric_libraries(module):
    code = (
        f"import sys, levelbench.experiments.{module}\nprint(sorted({{'numpy', 'onnx', 'torch'}} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
