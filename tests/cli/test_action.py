"""The GitHub Action's own script, executed as a runner would, in a repository with two commits."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ACTION = (Path(__file__).parents[2] / "action.yml").read_text()
SCRIPT = textwrap.dedent(re.search(r"run: \|\n((?: {8}.*\n)+)", ACTION)[1])


def git(folder, *words):
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    subprocess.run(["git", *words], cwd=folder, env={**os.environ, **who}, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    """Two commits of a program, the second of which sleeps longer."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    for seconds in (0.01, 0.6):
        (folder / "work.sh").write_text(f"sleep {seconds}\n")
        git(folder, "add", "work.sh")
        git(folder, "commit", "-q", "-m", "work")
    return folder


def gate(repository, tmp_path, **inputs):
    here = tmp_path / "bin"
    here.mkdir(exist_ok=True)
    (here / "levelbench").write_text(f'#!/bin/sh\nexec {sys.executable} -m levelbench "$@"\n')
    (here / "levelbench").chmod(0o755)
    given = {"BASE": "HEAD~1", "SETUP": "", "EFFECT": "0.5", "BUDGET": "2min", "FAIL_ON": "slower", **inputs}
    places = {"RUNNER_TEMP": str(tmp_path), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    environment = {**os.environ, "PATH": f"{here}:{os.environ['PATH']}", "COMMAND": "sh work.sh", **places, **given}
    return subprocess.run(["bash", "-e", "-c", SCRIPT], cwd=repository, env=environment, capture_output=True, text=True)


def test_a_slower_head_fails_and_the_summary_says_so(repository, tmp_path):
    done = gate(repository, tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "SLOWER" in (tmp_path / "summary.md").read_text()


def test_a_slower_head_passes_where_nothing_is_to_fail(repository, tmp_path):
    done = gate(repository, tmp_path, FAIL_ON="never")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_revision_that_is_not_there_fails_without_a_summary(repository, tmp_path):
    done = gate(repository, tmp_path, BASE="nowhere")
    assert done.returncode != 0
    assert "nowhere" in done.stderr
    assert not (tmp_path / "summary.md").exists()


def test_each_input_reaches_the_script_through_its_environment():
    """An expression inside of a script would let a branch's name execute words of its own."""
    assert "${{" not in SCRIPT
    names = set(re.findall(r"^  ([a-z-]+):$", ACTION.split("runs:")[0], re.MULTILINE)) - {"comment"}
    assert names == set(re.findall(r"inputs\.([a-z-]+)", ACTION)) - {"comment"}
