"""What a shell is told that a word may go on with, asked as a shell asks it."""

import os
import shlex
import subprocess
import sys

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
        (("run", "digits", "--clock", "m"), ["mlperf"]),
        (("scale", "digits", "--engine", "tor"), ["torchrun"]),
        (("lint", "--explain", "LB103"), ["LB103"]),
        (("list", "set"), ["settings"]),
        (("network", "resnet15"), ["resnet152", "resnet152-v1"]),
        (("operator", "ConvT"), ["ConvTranspose"]),
        (("board", "che"), ["check"]),
        (("run", "no-such-task"), []),
    ],
)
def test_a_word_is_completed_by_what_is_known(complete, words, found):
    assert complete(*words) == found


def test_runs_are_completed_by_the_ids_and_tasks_of_the_store(complete, tmp_path):
    assert complete("show", "") == ["latest"]
    write_run(tmp_path / "levelbench-results", specification(), 0, "aaaa0001bbbb", [0.5, 0.6])
    assert complete("show", "") == ["latest", "digits", "aaaa0001"]
