"""The house is kept: imports point one way, nothing heavy is imported to look, names are what they are said to be."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import levelbench
from levelbench.cli import VERBS

SOURCE = Path(levelbench.__file__).parent
BASE = {"errors", "plugins", "__init__", "__main__"}
CHAIN = ["measure", "records", "operators", "networks", "training", "distributed"]
MAY_IMPORT = {
    **{room: set(CHAIN[: CHAIN.index(room)]) for room in CHAIN},
    "frameworks": set(CHAIN),
    "tasks": set(CHAIN),
    "runner": {*CHAIN, "frameworks", "tasks"},
    "analysis": {"measure", "records"},
    "claims": {"measure", "records"},
    "report": {"measure", "records"},
    "cli": {*CHAIN, "frameworks", "tasks", "runner", "analysis", "claims", "report"},
}
FILES = sorted(SOURCE.rglob("*.py"))
ROOM_FILES = [path for path in FILES if path.parent != SOURCE]


@cache
def parsed(path):
    return ast.parse(path.read_text())


def name_of(path):
    return str(path.relative_to(SOURCE))


def imported(tree):
    """The modules that a module imports, wherever in it."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module} if node.module != "levelbench" else {f"levelbench.{a.name}" for a in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


@cache
def imported_by(path):
    return imported(parsed(path))


def rooms(names):
    """The rooms of levelbench among the names of modules."""
    return {name.split(".")[1] for name in names if name.startswith("levelbench.")}


@pytest.mark.parametrize("path", ROOM_FILES, ids=name_of)
def test_imports_point_one_way(path):
    room = path.relative_to(SOURCE).parts[0]
    wrong = rooms(imported_by(path)) - MAY_IMPORT[room] - {room} - BASE - {"__version__"}
    assert not wrong, f"{room} must not import {sorted(wrong)}"


def test_an_import_against_the_direction_would_be_seen():
    assert rooms(imported(ast.parse("def f():\n    from levelbench.cli import x"))) == {"cli"}
    assert "cli" not in MAY_IMPORT["measure"]


@pytest.mark.parametrize("path", [path for path in ROOM_FILES if "measure" in path.parts], ids=name_of)
def test_measure_imports_numpy_at_most(path):
    roots = {name.split(".")[0] for name in imported_by(path)}
    # NVML's binding is the one optional exception: it reads a counter and is imported only where it is used.
    assert roots <= set(sys.stdlib_module_names) | {"numpy", "levelbench", "pynvml"}


@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow", "onnxruntime"])
def test_a_framework_is_imported_only_in_its_own_room(framework):
    for path in FILES:
        if path.is_relative_to(SOURCE / "frameworks" / framework):
            continue
        assert framework not in {name.split(".")[0] for name in imported_by(path)}, name_of(path)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_module_says_what_it_is_for(path):
    assert ast.get_docstring(parsed(path))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_and_functions_stay_short(path):
    text = path.read_text()
    assert text.count("\n") <= 300
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
            lines = (node.end_lineno or 0) - body[0].lineno + 1
            assert lines <= 50, f"{node.name} has {lines} lines"


def test_the_public_names_are_at_most_25_and_all_there():
    assert len(levelbench.__all__) <= 25
    assert levelbench.__all__ == sorted(levelbench.__all__, key=lambda name: (name.islower(), name))
    assert all(getattr(levelbench, name) is not None for name in levelbench.__all__)


def test_an_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = levelbench.nothing_like_it


def modules_after(code):
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sorted(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split("\n")[-2].split())


HEAVY = {"numpy", "torch", "onnx", "matplotlib", "rich", "msgspec", "jax", "sqlite3"}


def test_help_imports_nothing_heavy():
    loaded = modules_after("from levelbench.cli import cli\ncli.main(['--help'], standalone_mode=False)")
    assert not loaded & HEAVY


@pytest.mark.parametrize("verb", list(VERBS))
def test_help_of_a_verb_imports_no_framework(verb):
    loaded = modules_after(f"from levelbench.cli import cli\ncli.main(['{verb}', '--help'], standalone_mode=False)")
    assert not loaded & {"torch", "onnx", "matplotlib", "numpy"}


def test_importing_levelbench_imports_nothing_heavy():
    assert not modules_after("import levelbench") & (HEAVY | {"click"})


def test_looking_whether_a_framework_is_there_does_not_import_it():
    code = "from levelbench import plugins\n[plugins.load('framework', n).lacks() for n in plugins.names('framework')]"
    assert "torch" not in modules_after(code)


def test_a_run_on_numpy_never_imports_torch():
    code = (
        "from levelbench.runner.request import Options, resolve\n"
        "resolve('digits', {}, Options(framework='numpy'))\nimport levelbench.runner.child"
    )
    assert "torch" not in modules_after(code)
