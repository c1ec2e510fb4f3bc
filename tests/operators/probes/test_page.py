"""The page on validation is right: its example runs, and its counts are those of the tests."""

import re
from pathlib import Path

import pytest

from levelbench.operators.probes.check import CHECKS

PAGE = (Path(__file__).parents[3] / "docs" / "guides" / "validation.md").read_text()
CHECKED = (Path(__file__).parents[3] / "docs" / "reference" / "check-operator.md").read_text()
JUDGED = (Path(__file__).parents[3] / "docs" / "explanation" / "validation.md").read_text()


def test_the_example_runs():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(compile(code, "validation.md", "exec"), {})


@pytest.mark.parametrize("check", [*(name for name, _, _ in CHECKS), "state", "bounds", "sanitizers"])
def test_every_check_is_explained(check):
    table = "\n".join(line.split("|")[1] for line in CHECKED.splitlines() if line.startswith("| "))
    assert check in table


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("test_planted_forward_faults.py", r"plant (\d+) faults in forwards"),
        ("test_planted_gradient_faults.py", r"and (\d+) in backwards"),
    ],
)
def test_the_counts_of_planted_faults_are_those_of_the_tests(file, pattern):
    text = (Path(__file__).parent / file).read_text()
    table = text[text.index("FAULTS = [") : text.index("]  # fmt: skip")]
    (said,) = re.findall(pattern, " ".join(JUDGED.split()))
    assert int(said) == len(re.findall(r'^    \("', table, flags=re.MULTILINE))
