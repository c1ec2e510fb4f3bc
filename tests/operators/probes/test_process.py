"""Operators that change their process, each right in what it returns, and honest ones that may look like them."""

import ctypes
import gc
import locale
import logging
import os
import platform
import random
import signal
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest

from levelbench.operators.custom import CustomOperator
from levelbench.operators.probes import process
from levelbench.operators.probes.forward import Oracle
from levelbench.operators.probes.judging import Setting
from levelbench.operators.probes.process import process_state
from levelbench.operators.probes.subject import subject_of

X = np.random.default_rng(4).standard_normal((3, 4)).astype(np.float32)


def found_of(change, *, deterministic=True, backward=None, above=0):
    """What the probe finds in twice the input, whose forward calls ``change`` first."""

    class Twice(CustomOperator):
        def forward(self, x):
            if x.size >= above:
                change()
            return 2 * x

        def backward(self, gradients, inputs, outputs):
            if backward is not None:
                backward()
            return (2 * gradients[0],)

    Twice.deterministic = deterministic
    subject = subject_of(Twice)
    setting = Setting(subject, Oracle(lambda x: 2 * x), True, (), 0, 3)
    return "; ".join(
        each.found for each in process_state(setting, [X], np.random.default_rng(0)) if each.status == "failed"
    )


def torch_sets(name, value):
    def change():
        import torch

        getattr(torch, name)(getattr(torch, str(value), value))

    return change


def rounds(mode):
    return lambda: ctypes.CDLL(None).fesetround(mode)


CHANGES = [
    *[("the processor's rounding", rounds(mode)) for mode in (0x400, 0x800, 0xC00)],
    ("NumPy's random generator", lambda: np.random.seed(0)),
    ("NumPy's random generator", np.random.random),
    ("Python's random generator", lambda: random.seed(0)),
    ("PyTorch's random generator", torch_sets("manual_seed", 0)),
    ("the current folder", lambda: os.chdir("/")),
    ("the environment variables", lambda: os.environ.update(LEVELBENCH_PLANTED="1")),
    ("NumPy's handling of floating-point errors", lambda: np.seterr(all="ignore")),
    ("NumPy's print options", lambda: np.set_printoptions(precision=3)),
    ("the environment variables", lambda: ctypes.CDLL(None).setenv(b"LEVELBENCH_PLANTED", b"1", 1)),
    ("the C library's random generator", lambda: ctypes.CDLL(None).srand(7)),
    ("the folders of imports", lambda: sys.path.append("/")),
    ("the level of logging", lambda: logging.disable(logging.ERROR)),
    ("the locale", lambda: locale.setlocale(locale.LC_ALL, "C.UTF-8")),
    ("handlers of signals", lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN)),
    ("the mask of new files", lambda: os.umask(0)),
    ("the blocked signals", lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})),
    ("the filters of warnings", lambda: warnings.simplefilter("error", FutureWarning)),
    ("the recursion limit", lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1)),
    ("garbage collection", gc.disable),
    ("standard output or error", lambda: setattr(sys, "stdout", sys.__stderr__)),
    ("PyTorch's default dtype", torch_sets("set_default_dtype", "float64")),
    ("PyTorch's autograd mode", torch_sets("set_grad_enabled", False)),
    ("PyTorch's number of threads", torch_sets("set_num_threads", 7)),
    ("PyTorch's precision of matrix products", torch_sets("set_float32_matmul_precision", "medium")),
]


@pytest.mark.parametrize(("what", "change"), CHANGES)
def test_a_call_that_changes_its_process_is_caught_and_the_change_put_back(what, change):
    if "rounding" in what and platform.machine() != "x86_64":
        pytest.skip("other processors number the modes in another way")
    if what.startswith("PyTorch"):
        pytest.importorskip("torch")
    found = found_of(change)
    assert found.startswith("a forward changes")
    assert what in found
    assert what in found_of(lambda: None, backward=change)


def test_a_change_for_large_inputs_only_is_caught():
    assert "garbage collection" in found_of(gc.disable, above=1000)


def test_setting_a_generator_is_caught_in_a_random_operator_too():
    assert "NumPy's random generator" in found_of(lambda: np.random.seed(0), deterministic=False)


def test_a_random_operator_may_draw_from_a_generator():
    assert found_of(lambda: np.random.random(9), deterministic=False) == ""


def test_what_is_put_back_within_the_call_is_not_accused():
    def honest():
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            before, folder = np.random.get_state(), Path.cwd()
            np.random.seed(0)
            os.chdir("/")
            np.random.set_state(before)
            os.chdir(folder)

    assert found_of(honest) == ""


def test_a_generator_of_its_own_is_not_accused():
    assert found_of(lambda: np.random.default_rng(0).random(3)) == ""


def test_a_signal_that_the_c_library_takes_for_its_threads_is_not_accused(monkeypatch):
    masks = iter(["SigCgt:\t0000000000000002", *["SigCgt:\t0000000180000002"] * 99])
    monkeypatch.setattr(process, "_status", lambda *names: [next(masks)])
    before = process._caught()
    assert process._caught() == before == [2]


def test_a_file_that_each_call_leaves_is_caught(tmp_path):
    assert "the file" in found_of(lambda: tempfile.mkstemp(dir=tmp_path))


def test_a_file_that_the_first_call_writes_or_that_is_removed_is_not_accused(tmp_path):
    cache = tmp_path / "cache"

    def honest():
        if not cache.exists():
            cache.write_text("plan")
        with tempfile.NamedTemporaryFile(dir=tmp_path) as scratch:
            scratch.write(b"0")

    assert found_of(honest) == ""


def test_a_call_that_imports_a_library_and_sets_it_is_caught(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.delitem(sys.modules, "torch")

    def call():
        sys.modules["torch"] = torch
        torch.set_grad_enabled(False)

    try:
        assert "PyTorch's autograd mode" in found_of(call)
    finally:
        torch.set_grad_enabled(True)


def test_what_the_import_of_a_library_sets_is_not_accused(tmp_path, monkeypatch):
    (tmp_path / "planted_late.py").write_text("import os\nos.environ['LEVELBENCH_LATE'] = '1'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("LEVELBENCH_LATE", raising=False)
    monkeypatch.delitem(sys.modules, "planted_late", raising=False)
    assert found_of(lambda: __import__("planted_late")) == ""
    monkeypatch.delitem(sys.modules, "planted_late", raising=False)
