"""The GitHub Action's own script, executed as a runner would, in a repository with two commits."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ACTION = (Path(__file__).parents[2] / "action.yml").read_text()
INSTALL, SCRIPT, COMMENT = (textwrap.dedent(each) for each in re.findall(r"run: \|\n((?: {8}.*\n)+)", ACTION))


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


def put(path, text):
    """A command of these words."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def step(script, folder, **environment):
    """As GitHub's runner executes it."""
    words = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]
    return subprocess.run(words, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True)


def gate(repository, tmp_path, **inputs):
    put(tmp_path / "levelbench-python" / "bin" / "levelbench", f'exec {sys.executable} -m levelbench "$@"')
    given = {"BASE": "HEAD~1", "SETUP": "", "EFFECT": "0.5", "BUDGET": "2min", "FAIL_ON": "slower", **inputs}
    places = {"RUNNER_TEMP": str(tmp_path), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    return step(SCRIPT, repository, COMMAND="sh work.sh", **places, **given)


@pytest.mark.slow
def test_a_slower_head_fails_and_the_summary_says_so(repository, tmp_path):
    done = gate(repository, tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "SLOWER" in (tmp_path / "summary.md").read_text()
    assert "SLOWER" in (tmp_path / "levelbench-comment.md").read_text()


@pytest.mark.slow
def test_a_slower_head_passes_where_nothing_is_to_fail(repository, tmp_path):
    done = gate(repository, tmp_path, FAIL_ON="never")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_revision_that_is_not_there_fails_without_a_summary(repository, tmp_path):
    done = gate(repository, tmp_path, BASE="nowhere")
    assert done.returncode != 0
    assert "nowhere" in done.stderr
    assert not (tmp_path / "summary.md").exists()


def test_where_a_command_fails_the_table_of_one_before_is_not_shown(repository, tmp_path):
    (tmp_path / "levelbench.md").write_text("FORMER")
    (tmp_path / "levelbench-comment.md").write_text("FORMER")
    assert gate(repository, tmp_path, BASE="nowhere").returncode != 0
    assert not (tmp_path / "summary.md").exists()
    assert (tmp_path / "levelbench-comment.md").read_text() == "FORMER"


def test_each_input_reaches_the_script_through_its_environment():
    """An expression inside of a script would let a branch's name execute words of its own."""
    assert "${{" not in INSTALL + SCRIPT + COMMENT
    names = set(re.findall(r"^  ([a-z-]+):$", ACTION.split("runs:")[0], re.MULTILINE)) - {"comment"}
    assert names == set(re.findall(r"inputs\.([a-z-]+)", ACTION)) - {"comment"}


def test_it_is_installed_into_an_environment_that_the_command_does_not_see(tmp_path):
    put(tmp_path / "bin" / "python", 'mkdir -p "$3/bin" && cp "$0-of-venv" "$3/bin/python"')
    put(tmp_path / "bin" / "python-of-venv", 'echo "$0 $@" > "$RUNNER_TEMP/said"')
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = step(INSTALL, tmp_path, PATH=path, RUNNER_TEMP=str(tmp_path), GITHUB_ACTION_PATH="/the action")
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "said").read_text()
    assert said == f"{tmp_path}/levelbench-python/bin/python -m pip install --quiet /the action\n"


def test_the_table_is_the_comment_on_the_pull_request_and_there_is_none_without_it(tmp_path):
    put(tmp_path / "bin" / "gh", 'echo "$@" > "$RUNNER_TEMP/said"')
    given = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "RUNNER_TEMP": str(tmp_path), "NUMBER": "7"}
    assert step(COMMENT, tmp_path, **given).returncode == 0
    assert not (tmp_path / "said").exists()
    (tmp_path / "levelbench-comment.md").write_text("SAME")
    assert step(COMMENT, tmp_path, **given).returncode == 0
    said = (tmp_path / "said").read_text().split()
    assert said[:3] == ["pr", "comment", "7"]
    assert said[-2:] == ["--body-file", f"{tmp_path}/levelbench-comment.md"]
