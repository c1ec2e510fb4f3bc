"""A package that is installed beside levelbench adds a rule through an entry point, without a fork."""

import os
import subprocess
import sys

import pytest

from levelbench.claims.rule import read_rule, rule_of_page
from levelbench.claims.rules import shipped_rules
from levelbench.errors import DefinitionError

PAGE = """\
# ACME101 no-title-in-capitals

*House style.* A claim that shouts is not read.

Capitals take longer to read, and say nothing.

## Sound practice

Write the title as a sentence.

## Examples

Guilty:

> TEN TIMES FASTER.

Innocent:

> Ten times faster on one machine.

## What it reads, and what it cannot see

It reads `title`. It cannot see how loud a talk is.

Source: ACME's guide.
"""
MODULE = """\
from pathlib import Path
from levelbench.claims.rule import Diagnostic, read_rule

def check(claim):
    if claim.title.isupper():
        yield Diagnostic("ACME101", "warning", "the title is in capitals", "write a sentence", "title")

rule = read_rule(Path(__file__).with_suffix(".md"), check)
"""
CLAIM = 'title = "FASTER"\n[[sides]]\nname = "ours"\ntime_s = 10.0\n'


@pytest.fixture
def package(tmp_path):
    """A folder with the package and its metadata, as an installer leaves them."""
    (tmp_path / "acme.py").write_text(MODULE)
    (tmp_path / "acme.md").write_text(PAGE)
    metadata = tmp_path / "acme-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[levelbench.rules]\nACME101 = acme:rule\n")
    (tmp_path / "claim.toml").write_text(CLAIM)
    return tmp_path


def lint(package, *words):
    return subprocess.run(
        [sys.executable, "-m", "levelbench", "lint", *words],
        cwd=package, env={**os.environ, "PYTHONPATH": str(package)}, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_it_is_listed_explained_and_asked_for_like_ours(package):
    assert "ACME101  no-title-in-capitals" in lint(package, "--rules").stdout
    assert "Capitals take longer to read" in lint(package, "--explain", "ACME101").stdout
    assert "title = " in (asked := lint(package, "--template", "toml").stdout)
    assert "ACME101" in asked


def test_it_finds_and_can_be_selected(package):
    done = lint(package, "claim.toml", "--select", "ACME")
    assert "warning ACME101 no-title-in-capitals at claim.toml:1, title" in done.stdout
    assert "1 rule: 0 errors, 1 warning" in done.stdout


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("acme:rule", "acme:check", "its entry point is a function, not a rule"),
        ("acme:rule", "acme:missing", "does not load"),
    ],
)
def test_an_entry_point_that_names_no_rule_is_an_error_that_names_it(package, old, new, said):
    path = package / "acme-1.0.dist-info" / "entry_points.txt"
    path.write_text(path.read_text().replace(old, new))
    done = lint(package, "claim.toml")
    assert done.returncode == 2
    assert "rule 'ACME101'" in done.stderr
    assert said in done.stderr


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise KeyError('x')", "its check fails on 'FASTER': KeyError: 'x'"),
        ("return None", "its check fails on 'FASTER': TypeError"),
        ('yield Diagnostic("LB101", "error", "found", "do")', "its check finds LB101 of severity 'error'"),
        ('yield Diagnostic("", "fatal", "found", "do")', "its check finds ACME101 of severity 'fatal'"),
    ],
)
def test_a_check_that_fails_or_finds_what_is_none_is_an_error_of_its_rule(package, body, said):
    head, _, tail = MODULE.partition("    if claim")
    module = f"{head}    {body}\n\nrule{tail.partition('rule')[2]}"
    (package / "acme.py").write_text(module)
    done = lint(package, "claim.toml")
    assert (done.returncode, "rule ACME101" in done.stderr, said in done.stderr) == (2, True, True)


def test_a_code_that_is_ours_is_refused(package):
    (package / "acme.md").write_text(PAGE.replace("ACME101", "LB101"))
    assert "its code LB101 is that of the rule accuracy-ignored-when-scaling" in lint(package, "claim.toml").stderr


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("# ACME101 ", "# ", "a title such as"),
        ("*House style.* ", "", "a first paragraph"),
        ("## Examples", "## Example", "its sections are not"),
        ("> TEN", "TEN", "'Guilty:'"),
        ("It reads `title`. ", "", "'It reads"),
        ("Source: ", "From ", "'Source: '"),
    ],
)
def test_a_page_that_lacks_a_part_is_refused_with_the_part(old, new, said):
    with pytest.raises(DefinitionError, match=said):
        rule_of_page(PAGE.replace(old, new), lambda claim: ())


def test_a_rule_without_a_page_is_refused_with_the_path(tmp_path):
    with pytest.raises(DefinitionError, match=r"acme\.md"):
        read_rule(tmp_path / "acme.md", lambda claim: ())


def test_each_of_ours_has_its_page_beside_it_and_one_title_for_each_way():
    abouts = {rule.about for rule in shipped_rules()}
    assert sorted(int(each.split()[1][:-1]) for each in abouts if each.startswith("way ")) == list(range(1, 13))
    assert all(rule.page.startswith(f"# {rule.code} {rule.name}\n") for rule in shipped_rules())
