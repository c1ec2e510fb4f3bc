"""The documentation is true: its examples run, its links lead somewhere, its commands exist."""

import importlib.util
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import click
import pytest

from levelbench.errors import UnknownNameError
from tests.browsing import launched, served, wrong_on

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])


def example(page, path):
    """The first Python file of a page, written to ``path``."""
    code, *_ = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), flags=re.DOTALL)
    path.write_text(code)
    return str(path)


@pytest.mark.parametrize(
    ("page", "framework"),
    [
        ("guides/own-task.md", "numpy"),
        ("guides/check-training.md", "numpy"),
        ("reference/recipes.md", "torch"),
        pytest.param("evidence/studies.md", "torch", marks=pytest.mark.slow),
    ],
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


@pytest.mark.slow
def test_the_task_of_ones_own_runs_as_it_is_written(tmp_path):
    example("guides/own-task.md", tmp_path / "my_task.py")
    command = [sys.executable, "-m", "levelbench", "run", "my_task.py", "--framework", "numpy", "-n", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2/2" in done.stdout


@pytest.mark.slow
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


OUTSIDE_EVIDENCE = [page for page in PAGES if "evidence" not in page.parts and page.name != "CHANGELOG.md"]
MARK = re.compile(r"<!-- not run(?: (\d+(?:, \d+)*))?: (.+) -->")
"""Before a block: why it is not run, or which of its commands are not, counted from 1."""


class Command(NamedTuple):
    """A line of a shell that calls levelbench, and the reason why no test runs it."""

    text: str
    reason: str | None


def commands_of(page):
    """The commands of a page's code blocks, in their order."""
    found, commands, fenced, reasons = [], [], False, {}
    lines = iter([*page.read_text().splitlines(), ""])
    for line in lines:
        marked = MARK.fullmatch(line)
        fence = line.startswith("```")
        code = not fence and (fenced or line.startswith("    "))
        fenced ^= fence
        if code and re.match(r"\s*(\$ )?levelbench ", line):
            while line.endswith("\\"):
                line = line[:-1] + next(lines).strip()
            commands.append(line.strip().removeprefix("$ "))
        elif marked:
            reasons |= dict.fromkeys(map(int, marked[1].split(", ")) if marked[1] else [None], marked[2])
        elif not code and (line or commands) and not (fence and fenced):
            unknown = {*reasons} - {None, *range(1, len(commands) + 1)} if commands else set()
            assert not unknown, f"{page.name}: no command {unknown} below the mark"
            found += [Command(each, reasons.get(at, reasons.get(None))) for at, each in enumerate(commands, 1)]
            commands, reasons = [], {}
    return found


def calls(command):
    """The words of each call of levelbench in a line of a shell."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;>")
    lexer.whitespace_split = True
    call = []
    for word in [*lexer, ";"]:
        if re.fullmatch("[|&;>]+", word):
            if call[:1] == ["levelbench"]:
                yield call[1:]
            call = []
        else:
            call.append(word)


def parse(words):
    """What click says about ``words``, without carrying anything out."""
    from levelbench.cli import cli

    command, context = cli, click.Context(cli, info_name="levelbench")
    while isinstance(command, click.Group):
        name, *words = words
        below = command.get_command(context, name)
        assert below is not None, f"no command {name}"
        command, context = below, click.Context(below, parent=context, info_name=name)
    given, left, _ = command.make_parser(context).parse_args(list(words))
    assert left == [], f"too many arguments: {left}"
    for parameter in command.params:
        value = given.get(parameter.name)
        if not isinstance(parameter.type, click.Path) and isinstance(value, str):
            parameter.type.convert(value, parameter, context)
        if isinstance(parameter, click.Argument) and parameter.required:
            assert value not in (None, (), []), f"{parameter.name} is missing"


@pytest.mark.parametrize("page", OUTSIDE_EVIDENCE, ids=lambda page: page.name)
def test_every_command_of_a_page_is_one_that_the_program_accepts(page):
    for command, _ in commands_of(page):
        for words in calls(command):
            try:
                parse(words)
            except (AssertionError, click.UsageError) as error:
                pytest.fail(f"{command}: {error}")


@pytest.mark.parametrize(
    "wrong", ["run digits --seed", "run digits --quick", "shwo latest", "board build a b", "run digits -n many"]
)
def test_a_command_that_the_program_refuses_is_noticed(wrong):
    with pytest.raises((AssertionError, click.UsageError, UnknownNameError)):
        parse(wrong.split())


def test_the_readme_takes_a_screen_and_a_half():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 66


def test_the_tests_that_a_mark_names_exist():
    for page in OUTSIDE_EVIDENCE:
        for name in re.findall(
            r"tests/[a-z_/.]*[a-z]", " ".join(reason for _, reason in MARK.findall(page.read_text()))
        ):
            assert (ROOT / name).exists(), f"{page.name} names {name}"


FILES = {
    "guides/check-optimizer.md": ["my_optimizer.py"],
    "guides/check-scheme.md": ["my_scheme.py"],
    "guides/custom-operators.md": ["gelu_bias.py", "gelu_bias.cpp", "fused.py"],
    "start/tutorial.md": ["my_optimizer.py"],
    "guides/own-task.md": ["my_task.py"],
}
"""By page: what its commands need, in the order of its first code blocks."""
WALKS = [["guides/leaderboard.md", "reference/board-checks.md", "guides/publish-leaderboard.md"]]
"""Pages that go on where another has ended."""
RECORDED = {"README.md", "index.md", "explanation/which-clock.md", "reference/lint.md", "guides/levelbench.skill.md"}
"""Pages that speak of runs which a reader has: they begin with a few of `digits`."""
YOURS = {
    "README.md": ["a.py", "b.py", "my_optimizer.py", "my_model.py"],
    "index.md": ["my_optimizer.py"],
    "guides/claims.md": ["README.md"],
    "guides/levelbench.skill.md": ["a.py", "b.py", "my_optimizer.py", "README.md"],
    "guides/review.md": ["page.md"],
    "guides/time.md": ["a.py", "b.py", "train", "train.py"],
    "reference/lint.md": ["claim.toml"],
}
"""Files that a page calls the reader's own."""
PAGE = "| Method | Time to 94 % (s) |\n|---|---|\n| ours | 2.59 |\n| theirs | 3.1 |\n"
PROGRAM = "for step in range(3):\n    print(f'step {step} val_loss={3.4 - step / 5} accuracy={0.94 + step / 50}')\n"


MODEL = """import torch


def build():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 7, 4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
"""


def name_of(page):
    docs = ROOT / "docs"
    return page.relative_to(docs if page.is_relative_to(docs) else ROOT).as_posix()


RUN = {name_of(page): page for page in OUTSIDE_EVIDENCE if any(reason is None for _, reason in commands_of(page))}


def provide(file):
    """Write a file of the reader's own."""
    if file.name == "my_optimizer.py":
        subprocess.run([sys.executable, "-m", "levelbench", "new", "optimizer", file.stem], cwd=file.parent, check=True)
    elif file.name == "my_model.py":
        file.write_text(MODEL)
    elif file.suffix == ".md":
        file.write_text(PAGE)
    elif file.name == "claim.toml":
        file.write_text((ROOT / "docs" / "evidence" / "claims" / "kakaobrain-33-of-50.toml").read_text())
    else:
        file.write_text("#!/bin/sh\nexit 0\n" if file.name == "train" else PROGRAM)
        file.chmod(0o755)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A store with three runs of `digits` at each of two learning rates."""
    place = tmp_path_factory.mktemp("recorded")
    words = ["run", "digits[lr=0.1]", "digits[lr=0.2]", "--framework", "numpy", "-n", "3", "--no-report"]
    done = subprocess.run([sys.executable, "-m", "levelbench", *words], cwd=place, capture_output=True, check=False)
    assert done.returncode in (0, 1, 4), done.stderr
    return place / "levelbench-results"


READS = {"list", "data", "lint", "show", "compare", "new", "rm"}
"""Verbs that start nothing: they run in this process, which saves their start."""


def ended(command, folder, environment, capsys):
    """The exit code of ``command`` in ``folder``, and what it printed."""
    every = list(calls(command))
    if len(every) == 1 and every[0][0] in READS:
        from levelbench.cli import main

        with pytest.raises(SystemExit) as exit_of:
            main(every[0])
        shown = capsys.readouterr()
        return exit_of.value.code, shown.err + shown.out
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr + done.stdout


@pytest.mark.parametrize(
    "walk",
    [
        pytest.param(walk, marks=[] if walk[0] == "README.md" else pytest.mark.slow, id=walk[0])
        for walk in [*WALKS, *([name] for name in RUN if not any(name in walk for walk in WALKS))]
    ],
)
def test_the_commands_of_a_page_run_unless_it_says_why_not(walk, tmp_path, monkeypatch, capsys, request):
    environment = levelbench_on_path(tmp_path)
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LEVELBENCH_STORE", raising=False)
    # Other tests may have loaded files of the names that the commands here write, or left their folders.
    for name in [each for each in sys.modules if each.startswith("my_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if not each.startswith(str(tmp_path.parent))])
    for name in walk:
        if name in RECORDED:
            shutil.copytree(request.getfixturevalue("recorded"), tmp_path / "levelbench-results")
        for file in YOURS.get(name, ()):
            provide(tmp_path / file)
        code = re.findall(r"```(?:python|cpp)\n(.*?)```", RUN[name].read_text(), flags=re.DOTALL)
        for file, text in zip(FILES.get(name, []), code, strict=False):
            (tmp_path / file).write_text(text)
        for command in (text for text, reason in commands_of(RUN[name]) if reason is None):
            status, printed = ended(command, tmp_path, environment, capsys)
            if status == 3:
                pytest.skip(f"{command}: {printed.splitlines()[0]}")
            # 1 is a finding or a worse verdict, 4 an unclear one.
            assert status in (0, 1, 4), f"{name}: {command}\n{printed}"


def with_claims(folder):
    """The claims from articles and a page, as a repository of someone who publishes them."""
    shutil.copytree(ROOT / "docs" / "evidence" / "claims", folder / "claims")
    (folder / "README.md").write_text(PAGE)


def levelbench_on_path(folder):
    """An environment in which the program is called as a user calls it."""
    program = folder / "bin" / "levelbench"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m levelbench "$@"\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}


def test_the_steps_of_the_workflow_for_claims_annotate_and_write_sarif(tmp_path):
    with_claims(tmp_path)
    steps = re.findall(r"run: (levelbench .*)", (ROOT / "docs/guides/claims.md").read_text())
    environment = levelbench_on_path(tmp_path)
    first, second = (
        subprocess.run(
            ["bash", "-e", "-c", step], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        for step in steps
    )
    lines = first.stdout.splitlines()
    assert first.returncode == 1
    assert any(re.match(r"::error file=claims/[\w.-]+\.toml,line=\d+,title=LB\d+ ", line) for line in lines)
    assert [line for line in lines if not re.match(r"::(error|warning|notice) file=", line)] == []
    assert second.returncode == 0
    (run,) = json.loads((tmp_path / "claims.sarif").read_text())["runs"]
    assert {each["level"] for each in run["results"]} >= {"error", "warning"}


def test_the_hook_for_pre_commit_lints_the_claim_files_of_a_commit(tmp_path):
    with_claims(tmp_path)
    hook = dict(re.findall(r"^  (\w+): (.+)$", (ROOT / ".pre-commit-hooks.yaml").read_text(), flags=re.MULTILINE))
    changed = ["README.md", "lint.toml", "claims/airbench-2.59-s.toml", "claims/deep/er.toml", "a.claim.toml"]
    given = [each for each in changed if re.search(hook["files"], each)]
    assert given == ["claims/airbench-2.59-s.toml", "a.claim.toml"]
    shutil.copy(tmp_path / given[0], tmp_path / given[1])
    command = [*shlex.split(hook["entry"]), "--fail-on", "warning", *given]
    environment = levelbench_on_path(tmp_path)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "LB204" in done.stdout


def test_the_page_for_reviewers_asks_about_every_rule_once():
    from levelbench.claims.rules import shipped_rules

    asked = re.findall(r"LB\d{3}", (ROOT / "docs/guides/review.md").read_text())
    assert sorted(asked) == sorted(rule.code for rule in shipped_rules())


def test_no_sentence_of_the_tutorials_outputs_runs_out_of_the_page():
    page = (ROOT / "docs/start/tutorial.md").read_text()
    shown = "\n".join(re.findall(r"```console\n\$ .*?\n(.*?)```", page, re.DOTALL)).splitlines()
    assert len(shown) > 100
    assert max(map(len, shown)) <= 100


def test_a_guide_has_at_most_800_words_and_the_site_40_000_outside_of_reference_and_evidence():
    words = {
        page: len(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL).split())
        for page in (ROOT / "docs").glob("**/*.md")
    }
    assert {page.name: n for page, n in words.items() if page.parent.name == "guides" and n > 800} == {}
    assert sum(n for page, n in words.items() if not {"reference", "evidence"} & set(page.parts)) <= 40_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_script_that_a_page_names_exists(page):
    for script in re.findall(r"benchmarks/[a-z_/]+\.py", page.read_text()):
        assert (ROOT / script).exists(), f"{page.name} names {script}"


def test_the_gallery_shows_every_exhibit_with_the_commands_that_its_script_runs():
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "tools" / "gallery.py")
    gallery = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gallery)
    page = (ROOT / "docs" / "gallery" / "index.md").read_text()
    shown = {target.split("/")[0] for target in re.findall(r"\]\(([^)]+)\)", page)}
    assert shown == set(gallery.EXHIBITS) == {each.name for each in gallery.GALLERY.iterdir()} - {"index.md"}
    ran = {command for commands in gallery.EXHIBITS.values() for command in commands}
    assert set(re.findall(r"`(levelbench [^`]+)`", page)) == ran


evidence = SimpleNamespace(**runpy.run_path(str(ROOT / "benchmarks" / "evidence.py")))
MEASURED_NOW = {"eta.md", "generalization.md", "overhead.md", "programs.md", "thresholds.md"}
"""Pages whose tables are not yet kept as JSON."""
WITH_TESTS = {"lint-results.md", "precision-and-layout.md"}
"""One table is held to the linter by tests/claims, the other is of single measurements that no command repeats."""


@pytest.mark.parametrize("page", sorted(evidence.EVIDENCE.glob("*.md")), ids=lambda page: page.name)
def test_the_tables_of_evidence_are_what_the_json_beside_the_page_makes(page):
    text = page.read_text()
    assert evidence.written(text, page) == text, "python benchmarks/evidence.py"
    unmarked = evidence.TABLE.findall(evidence.PLACE.sub("", text))
    assert unmarked == [] or page.name in MEASURED_NOW | WITH_TESTS
    for name, table in evidence.kept_beside(page).items():
        assert f"<!-- table: {name} -->" in text
        assert all(table[fact] for fact in ("date", "commit", "sources"))
        assert [source for source in table["sources"] if evidence.checksum_now(source) is None] == []


def test_a_page_of_evidence_says_in_the_site_which_source_has_changed_since(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Before.\n\n<!-- table: speeds -->\n<!-- end of table -->\n\nAfter.\n")
    now = {source: evidence.checksum_now(source) for source in ("pyproject.toml", "src/levelbench/measure")}
    table = {"date": "2026-11-26", "commit": "abc", "command": "true", "columns": ["a", "b"], "rows": [["x", "1.5"]]}
    page.with_suffix(".json").write_text(json.dumps({"speeds": {**table, "sources": now}}))
    shown = evidence.with_changes(page.read_text(), page)
    assert "| a | b |\n|---|--:|\n| x | 1.5 |" in shown
    assert "Changed" not in shown
    assert shown == evidence.written(page.read_text(), page) == evidence.written(shown, page)
    page.with_suffix(".json").write_text(json.dumps({"speeds": {**table, "sources": {**now, "pyproject.toml": "0"}}}))
    assert "Changed since then: `pyproject.toml`.*" in evidence.with_changes(page.read_text(), page)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site."""
    for needed in ("mkdocs", "material", "mkdocstrings"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed (make docs)")
    place = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)]
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


@pytest.fixture(scope="module")
def address(site):
    """Where a server has the site."""
    with served(site) as found:
        yield found


@pytest.fixture(scope="module")
def browser():
    yield from launched()


KINDS = [
    "index.html",
    "guides/own-task.html",
    "reference/samplers.html",
    "evidence/bandwidth.html",
    "notebooks/judge-a-claim.html",
    "gallery/index.html",
    "gallery/board/digits_levelbench-1.0.html",
]
"""A page of each kind, and of those the short ones: what axe takes grows with a page. The other ones are for
``python -m tests.browsing build/site``."""


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_axe_finds_nothing_on_a_page_of_the_site_in_any_size_and_colour_scheme(address, browser, name):
    assert wrong_on(browser, address, name) == []


@pytest.mark.slow
def test_a_violation_on_any_page_of_a_site_is_found(tmp_path):
    (tmp_path / "guides").mkdir()
    good = "<!doctype html><html lang=en><title>A</title><link rel=icon href=data:,><main><h1>A</h1></main>"
    (tmp_path / "index.html").write_text(good)
    (tmp_path / "guides" / "a.html").write_text(f"{good[:-7]}<img src='data:,'></main>")
    # In a process of its own, since this one may have a browser open.
    words = [sys.executable, "-m", "tests.browsing", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    *found, last = done.stdout.splitlines()
    assert {each.partition(":")[0] for each in found} == {"guides/a.html"}
    assert all("image-alt" in each for each in found)
    assert last == "2 pages, 1 with violations"


def test_the_site_has_every_verb_every_public_name_and_a_search(site):
    import levelbench
    from levelbench.cli import VERBS

    commands = (site / "reference" / "cli.html").read_text()
    assert [verb for verb in VERBS if f"levelbench-{verb}" not in commands] == []
    names = (site / "reference" / "python.html").read_text()
    assert [name for name in levelbench.__all__ if f".{name}" not in names] == []
    assert re.findall(r":[a-z]+:<code>[^<]*", names) == []
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
