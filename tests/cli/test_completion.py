"""What a shell is told that a word may go on with, asked as a shell asks it."""

import os
import shlex
import shutil
import subprocess
import sys

import msgspec
import pytest
from tests.cli.conftest import specification, write_run

ASK = "from levelbench.cli import main; main()"


@pytest.fixture
def complete(tmp_path):
    """The completions of the last word of a command."""

    def ask(*words):
        asked = {"COMP_WORDS": shlex.join(["levelbench", *words]), "COMP_CWORD": str(len(words))}
        environment = {**os.environ, **asked, "_LEVELBENCH_COMPLETE": "bash_complete"}
        done = subprocess.run(
            [sys.executable, "-c", ASK], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.stderr == ""
        return [line.partition(",")[2] for line in done.stdout.splitlines() if line.startswith("plain,")]

    return ask


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("ru",), ["run"]),
        (("run", "--fr"), ["--framework", "--fresh"]),
        (("run", "dig"), ["digits"]),
        (("run", "digits[hid"), ["digits[hidden="]),
        (("run", "digits[lr=0.1,ba"), ["digits[lr=0.1,batch="]),
        (("run", "digits[framework=num"), ["digits[framework=numpy"]),
        (("run", "digits", "--framework", "torch,num"), ["torch,numpy"]),
        (("run", "digits", "--recipe", ""), ["mlp", "onecycle"]),
        (("run", "digits", "--recipe", "mlp,"), ["mlp,onecycle"]),
        (("run", "digits", "--framework", "op"), []),
        (("infer", "digits", "--framework", "o"), ["onnxruntime", "onnxruntime-training", "openvino"]),
        (("run", "digits", "--clock", "m"), ["mlperf"]),
        (("scale", "digits", "--engine", "tor"), ["torchrun"]),
        (("lint", "--explain", "LB103"), ["LB103"]),
        (("list", "set"), ["settings"]),
        (("network", "resnet15"), ["resnet152", "resnet152-v1"]),
        (("operator", "ConvT"), ["ConvTranspose"]),
        (("board", "che"), ["check"]),
        (("run", "no-such-task"), []),
        (("run", "digits", "--framework=nu"), ["--framework=numpy"]),
        (("run", "digits", "--framework", "=", "nu"), ["numpy"]),
        (("run", "digits", "--framework", "="), ["jax", "numpy", "onnxruntime-training", "tensorflow", "torch"]),
        (("run", "digits[framework", "=", "nu"), ["numpy"]),
        (("run", "digits[lr", "=", "0.1,ba"), ["0.1,batch="]),
        (("run", "digits[lr", "=", "0.1,framework", "=", "nu"), ["numpy"]),
        (("run", "digits[framework", "="), ["jax", "numpy", "onnxruntime-training", "tensorflow", "torch"]),
        (("optimizer", "AdaG"), ["AdaGrad"]),
        (("analyze", "roofline", "dig"), ["digits"]),
        (("data", "stat", "cifar100"), ["cifar100"]),
        (("new", "task", "dig"), []),
        (("board", "build", "x", "--ruleset", "dawnbench-1"), ["dawnbench-1.0"]),
    ],
)
def test_a_word_is_completed_by_what_is_known(complete, words, found):
    assert complete(*words) == found


def test_runs_are_completed_by_the_ids_and_tasks_of_the_store(complete, tmp_path):
    assert complete("show", "") == ["latest"]
    write_run(tmp_path / "levelbench-results", specification(), 0, "aaaa0001bbbb", [0.5, 0.6])
    assert complete("show", "") == ["latest", "digits", "aaaa0001"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("ne",), ["network", "new"]),
        (("new", "o"), ["operator", "optimizer"]),
        (("list", "settings", "dig"), ["digits"]),
        (("run", "digits", "--scheme", "all-"), ["all-reduce"]),
        (("check", "top"), ["top-k"]),
        (("lint", "lat"), ["latest"]),
        (("compare", "digits[hid"), ["digits[hidden="]),
        (("show", "digits[framework=num"), ["digits[framework=numpy"]),
        (("run", "digits[framework=open"), []),
        (("run", "digits", "--crossing", "inter"), []),
        (("compare", "a", "b", "--crossing", "inter"), ["interpolated"]),
        (("check", "digits[hid"), ["digits[hidden="]),
        (("list", "networks", "resnet11"), ["resnet110"]),
    ],
)
def test_more_words_are_completed(complete, words, found):
    assert complete(*words) == found


FISH = """
_LEVELBENCH_COMPLETE=fish_source levelbench | source
complete -C 'levelbench list clo'
"""
BASH = r"""
eval "$(_LEVELBENCH_COMPLETE=bash_source levelbench)"
COMP_WORDS=(levelbench list clo); COMP_CWORD=2
_levelbench_completion levelbench
echo "${COMPREPLY[@]}"
"""
ZSH = r"""
compdef() { }
compadd() { print -r -- "$@" }
eval "$(_LEVELBENCH_COMPLETE=zsh_source levelbench)"
words=(levelbench run "'digits[fr"); CURRENT=3
_levelbench_completion
"""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_is_given_a_script_that_asks_for_completions(shell):
    done = _source(shell)
    assert done.returncode == 0
    assert f"_LEVELBENCH_COMPLETE={shell}_complete" in done.stdout


def _source(shell):
    environment = {**os.environ, "_LEVELBENCH_COMPLETE": f"{shell}_source"}
    return subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(("shell", "own", "script"), [("bash", "--norc", BASH), ("fish", "--no-config", FISH)])
def test_a_shell_itself_completes_a_word_after_the_documented_line(tmp_path, shell, own, script):
    done = _in_shell(tmp_path, shell, own, script)
    # fish also shows what it is for.
    assert done.stdout.split()[:1] == ["clocks"], done.stderr


def test_zsh_puts_no_space_after_the_name_of_a_setting(tmp_path):
    done = _in_shell(tmp_path, "zsh", "-f", ZSH)
    assert "-U -S  -V unsorted -- digits[framework=" in done.stdout, done.stderr


def _in_shell(folder, shell, own, script):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    program = folder / "levelbench"
    program.write_text(f"#!{sys.executable}\n{ASK}\n")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run([shell, own, "-c", script], env=environment, capture_output=True, text=True)


def test_completion_of_a_run_imports_no_framework(tmp_path):
    asked = {"COMP_WORDS": "levelbench run digits[", "COMP_CWORD": "2", "_LEVELBENCH_COMPLETE": "bash_complete"}
    look = "import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); " + ASK
    done = subprocess.run(
        [sys.executable, "-c", look], env={**os.environ, **asked}, cwd=tmp_path, capture_output=True, text=True
    )
    assert "digits[hidden=" in done.stdout
    assert not {"torch", "jax", "tensorflow", "onnxruntime"} & set(done.stderr.split())


def test_runs_are_described_by_what_distinguishes_them(tmp_path):
    for at, lr in enumerate((0.1, 0.2)):
        write_run(
            tmp_path / "levelbench-results",
            msgspec.structs.replace(specification(), settings={"lr": lr}),
            at,
            f"aaaa000{at}bbbb",
            [0.5, 0.6],
            minute=at,
        )
    asked = {"COMP_WORDS": "levelbench show ", "COMP_CWORD": "2", "_LEVELBENCH_COMPLETE": "zsh_complete"}
    done = subprocess.run([sys.executable, "-c", ASK], env={**os.environ, **asked}, cwd=tmp_path, capture_output=True)
    told = done.stdout.decode().splitlines()
    assert told[told.index("aaaa0000") + 1] == "digits[lr=0.1], seed 0, done"
    assert told[told.index("aaaa0001") + 1] == "digits[lr=0.2], seed 1, done"
