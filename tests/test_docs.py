"""The documentation is true: its examples run, its links lead somewhere, its commands exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])


def example(page, path):
    """The one Python file of a page, written to ``path``."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), flags=re.DOTALL)
    path.write_text(code)
    return str(path)


@pytest.mark.parametrize(
    ("page", "framework"),
    [("guides/own-task.md", "numpy"), ("guides/check-training.md", "numpy"), ("reference/recipes.md", "torch")],
)
def test_our_own_check_finds_nothing_wrong_with_the_file_of_a_page(page, framework, tmp_path, capsys, monkeypatch):
    from levelbench.cli import main
    from levelbench.tasks import digits

    if framework == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    # The recipe of a page is added to the task of this process.
    monkeypatch.setattr(digits.task, "_recipes", dict(digits.task._recipes))
    monkeypatch.setattr(digits.task, "_factors", dict(digits.task._factors))
    with pytest.raises(SystemExit) as ended:
        main(["check", example(page, tmp_path / "mine.py"), "--framework", framework, "--seconds", "2"])
    assert ended.value.code == 0, capsys.readouterr().out


def test_the_task_of_ones_own_runs_as_it_is_written(tmp_path):
    example("guides/own-task.md", tmp_path / "my_task.py")
    command = [sys.executable, "-m", "levelbench", "run", "my_task.py", "--framework", "numpy", "-n", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2/2" in done.stdout


def test_the_loop_that_a_guide_measures_runs_as_it_is_written_and_its_sides_are_compared(tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    example("guides/track.md", tmp_path / "train.py")
    python = [sys.executable, "-m", "levelbench"]
    a, b = (f"{sys.executable} train.py --lr {lr}" for lr in ("0.05", "0.2"))
    words = [*python, "time", a, "--vs", b, "-n", "3", "--show-output", "--fail-on", "never"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("target 0.95 reached") == 6
    words = [*python, "compare", "my-digits[lr=0.05]", "my-digits[lr=0.2]"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "my-digits[lr=0.2] takes " in done.stdout, done.stdout + done.stderr
    assert "(n = 3 + 3); paired by seed" in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_to_one(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_verb_that_a_page_calls_exists(page):
    from levelbench.cli import VERBS

    called = set(re.findall(r"^ {4,}levelbench ([a-z]+)", page.read_text(), flags=re.MULTILINE))
    assert called <= set(VERBS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_script_that_a_page_names_exists(page):
    for script in re.findall(r"benchmarks/[a-z_/]+\.py", page.read_text()):
        assert (ROOT / script).exists(), f"{page.name} names {script}"
