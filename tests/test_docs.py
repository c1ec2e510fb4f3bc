"""The documentation is true: its examples run, its links lead somewhere, its commands exist."""

import importlib.util
import json
import os
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


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site."""
    for needed in ("mkdocs", "material", "mkdocstrings"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed (make docs)")
    place = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def test_no_page_of_the_site_asks_another_server_for_anything(site):
    asks = re.compile(
        r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\b(?:src|srcset)=[\"']?(?:https?:)?//[^\s\"'>]+"
        r"|<link\b(?![^>]*\brel=[\"']?canonical)[^>]*?\bhref=[\"']?(?:https?:)?//[^\s\"'>]+"
        r"|url\([\"']?(?:https?:)?//[^)]+"
        r"|@import\s[\"'](?:https?:)?//[^\"']+"
    )
    pages = [each for each in site.rglob("*") if each.suffix in {".html", ".css", ".svg"}]
    assert len(pages) > 80
    assert {f"{each.name}: {found}" for each in pages for found in asks.findall(each.read_text())} == set()


def test_the_site_has_every_verb_every_public_name_and_a_search(site):
    import levelbench
    from levelbench.cli import VERBS

    commands = (site / "reference" / "cli.html").read_text()
    assert [verb for verb in VERBS if f"levelbench-{verb}" not in commands] == []
    names = (site / "reference" / "python.html").read_text()
    assert [name for name in levelbench.__all__ if f".{name}" not in names] == []
    assert json.loads((site / "search" / "search_index.json").read_text())["docs"]


def test_the_schema_of_the_records_accepts_a_real_record_and_refuses_a_damaged_one(site, tmp_path):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    schema = json.loads((site / "reference" / "records.schema.json").read_text())
    words = [sys.executable, "-m", "levelbench", "run", "digits[epochs=1]", "--framework", "numpy", "-n", "1"]
    subprocess.run([*words, "--store", str(tmp_path)], cwd=tmp_path, capture_output=True, check=False)
    (record,) = tmp_path.rglob("*.jsonl")
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    check = jsonschema.Draft202012Validator({**schema, "anyOf": [{"$ref": "#/$defs/RunLine"}]})
    for line in lines:
        assert check.is_valid(line), line
    assert not check.is_valid({**lines[0], "seed": "one"})
    assert not check.is_valid({**lines[-1], "status": "perfect"})
