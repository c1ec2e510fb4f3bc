"""The tutorial on custom operators is right: its files compile and its code runs, as on the page."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from levelbench.operators.custom import host, load_file

PAGE = (Path(__file__).parents[3] / "docs" / "guides" / "custom-operators.md").read_text()
BLOCKS = re.findall(r"```(python|cpp)\n(.*?)```", PAGE, flags=re.DOTALL)


def block(words):
    """The one code block that holds ``words``."""
    (found,) = [text for _, text in BLOCKS if words in text]
    return found


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "gelu_bias.py").write_text(block("class GeluBias(CustomOperator)"))
    (tmp_path / "gelu_bias.cpp").write_text(block("struct FusedGeluBias"))
    return tmp_path


def run(folder, words):
    (folder / "run.py").write_text(block(words))
    done = subprocess.run([sys.executable, "run.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("words", ["class GeluBias(CustomOperator)", "struct FusedGeluBias"])
def test_the_operator_takes_under_60_lines(words):
    assert block(words).count("\n") < 60


@pytest.mark.slow
def test_the_two_agree_each_in_its_own_process(folder):
    run(folder, "run_isolated(")


@pytest.mark.slow
def test_the_check_finds_the_cpp_and_the_python_operator_equal(folder):
    (folder / "fused.py").write_text(block("class Fused(compiled"))
    (folder / "elsewhere").mkdir()
    words = [sys.executable, "-m", "levelbench", "check", "../fused.py"]
    done = subprocess.run(words, cwd=folder / "elsewhere", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^forward +passed", done.stdout, flags=re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
def test_a_network_learns_through_it(folder, name, empty_registry, monkeypatch, capsys):
    pytest.importorskip(name)
    # In this process, which has imported the frameworks already.
    monkeypatch.chdir(folder)
    exec(compile(block(f"levelbench.frameworks.{name}.custom"), "run.py", "exec"), {"__name__": "__main__"})
    said = capsys.readouterr().out
    losses = re.findall(r"^gelu_bias\.(?:py|cpp): ([\d.]+) to ([\d.]+)$", said, flags=re.MULTILINE)
    assert len(losses) == 2
    assert all(float(last) < float(first) / 4 for first, last in losses)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_cpp_operator_accepts_short_types_when_they_are_listed(folder, dtype, monkeypatch, request):
    monkeypatch.setenv("XDG_CACHE_HOME", str(request.config.cache.mkdir("levelbench")))
    path = folder / "short.cpp"
    text = block("struct FusedGeluBias").replace("FusedGeluBias", f"Gelu_{dtype}")
    path.write_text(text.replace("float, double)", f"levelbench::{dtype})"))
    [operator] = load_file(path)
    x, bias = (np.linspace(-2, 2, 12).reshape(s).astype(dtype) for s in ((3, 4), (12,)))
    (y,) = host.forward(operator(), (x, bias[:4]))
    z = x.astype("f8") + bias[:4].astype("f8")
    expected = z / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
    np.testing.assert_allclose(y.astype("f8"), expected, rtol=0.05, atol=0.05)
