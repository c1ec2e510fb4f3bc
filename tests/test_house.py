"""The house is kept: imports point one way, nothing heavy is imported to look, names are what they are said to be."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import levelbench
from levelbench.cli import VERBS

SOURCE = Path(levelbench.__file__).parent
ROOT = Path(__file__).parents[1]
BASE = {"errors", "plugins", "__init__", "__main__"}
CHAIN = ["measure", "records", "checks", "operators", "networks", "training", "distributed"]
MAY_IMPORT = {
    **{room: set(CHAIN[: CHAIN.index(room)]) for room in CHAIN},
    "frameworks": set(CHAIN),
    "tasks": set(CHAIN),
    "experiments": {*CHAIN, "frameworks", "tasks", "importing"},
    "analysis": {"measure", "records"},
    "report": {"measure", "records", "analysis"},
    "importing": {"measure", "records"},
    "claims": {"measure", "records", "importing", "analysis", "report"},
    "competition": {"measure", "records", "analysis", "report", "claims"},
    "cli": {*CHAIN, "frameworks", "tasks", "experiments", "importing", "analysis", "claims", "report", "competition"},
}
# Planted parts are files as users write them, which checks execute and no module imports.
FILES = sorted(path for path in SOURCE.rglob("*.py") if path.parent.name != "planted")
ROOMS = sorted({path.relative_to(SOURCE).parts[0] for path in FILES if path.parent != SOURCE})


def name_of(path):
    return str(path.relative_to(SOURCE))


def imported(nodes):
    """The modules that a module imports, wherever in it."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module} if node.module != "levelbench" else {f"levelbench.{a.name}" for a in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


class Facts(NamedTuple):
    """What is asked of a file: its docstring, imports, and (name, lines without the docstring) of functions."""

    documented: bool
    imports: set[str]
    functions: list[tuple[str, int]]


@cache
def facts(path):
    """Read once for all tests, for there are a thousand files."""
    text = path.read_text()
    tree = ast.parse(text)
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    functions = []
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node, clean=False) and len(node.body) > 1 else node.body
            functions.append((node.name, (node.end_lineno or 0) - body[0].lineno + 1))
    return Facts(bool(ast.get_docstring(tree)), imported(statements), functions)


def imported_by(path):
    return facts(path).imports


def rooms(names):
    """The rooms of levelbench among the names of modules."""
    return {name.split(".")[1] for name in names if name.startswith("levelbench.")}


def files_of(room):
    """The files of a room; a test takes a room and not a file, of which there are a thousand."""
    found = [path for path in FILES if path.parts[len(SOURCE.parts)] == room]
    assert found
    return found


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_one_way(room):
    allowed = MAY_IMPORT[room] | {room, "__version__"} | BASE
    wrong = {name_of(path): rooms(imported_by(path)) - allowed for path in files_of(room)}
    assert {path: names for path, names in wrong.items() if names} == {}, f"{room} must not import these"


@pytest.fixture(scope="module")
def house():
    spec = importlib.util.spec_from_file_location("house", Path(__file__).parents[1] / "tools" / "house.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.mark.slow
def test_no_modules_import_each_other(house):
    assert house.import_circles() == []


@pytest.mark.slow
def test_no_two_public_classes_have_one_name(house):
    assert house.names_of_several_classes() == {}


def test_a_circle_of_imports_would_be_seen(house):
    assert house.circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_no_docstring_begins_with_a_formula():
    assert [name_of(path) for path in FILES if "The one idea:" in path.read_text()] == []


def test_an_import_against_the_direction_would_be_seen():
    assert rooms(imported(ast.walk(ast.parse("def f():\n    from levelbench.cli import x")))) == {"cli"}
    assert "cli" not in MAY_IMPORT["measure"]


def test_measure_imports_numpy_at_most():
    # NVML's binding is the one optional exception: it reads a counter and is imported only where it is used.
    allowed = set(sys.stdlib_module_names) | {"numpy", "levelbench", "pynvml"}
    for path in files_of("measure"):
        assert {name.split(".")[0] for name in imported_by(path)} <= allowed, name_of(path)


@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow", "onnxruntime"])
def test_a_framework_is_imported_only_in_its_own_room(framework):
    for path in FILES:
        if path.is_relative_to(SOURCE / "frameworks" / framework):
            continue
        assert framework not in {name.split(".")[0] for name in imported_by(path)}, name_of(path)


def test_every_module_says_what_it_is_for():
    assert [name_of(path) for path in FILES if not facts(path).documented] == []


@pytest.fixture(scope="module")
def classes():
    """All classes at the top of a module, by name."""
    found = {}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
    return found


def bases_of(node):
    """The names of a class's bases, without their modules and parameters."""
    plain = (each.value if isinstance(each, ast.Subscript) else each for each in node.bases)
    return [each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in plain]


def undocumented(node, classes):
    """The public methods of a class that neither it nor a base of it describes."""

    def described(name, method, seen):
        for each in () if name in seen else classes.get(name, ()):
            for part in each.body:
                attribute = isinstance(part, ast.AnnAssign) and getattr(part.target, "id", "") == method
                if attribute or (isinstance(part, ast.FunctionDef) and part.name == method and ast.get_docstring(part)):
                    return True
            if any(described(base, method, {*seen, name}) for base in bases_of(each)):
                return True
        return False

    methods = [each for each in node.body if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")]
    overloads = {each.name for each in methods if any("overload" in ast.unparse(d) for d in each.decorator_list)}
    silent = [each.name for each in methods if not ast.get_docstring(each) and each.name not in overloads]
    return [name for name in silent if not any(described(base, name, {node.name}) for base in bases_of(node))]


@pytest.mark.slow
def test_a_public_method_says_what_it_does_unless_its_base_has(classes):
    public = [(name, each) for name, found in classes.items() for each in found if not name.startswith("_")]
    # The attributes of a protocol are written as properties, and its class describes them.
    public = [(name, each) for name, each in public if "Protocol" not in bases_of(each)]
    assert [(name, method) for name, each in public for method in undocumented(each, classes)] == []


def test_a_silent_method_would_be_seen(classes):
    (silent,) = ast.parse("class A(Scheme):\n    def start(self, worker): ...\n    def go(self): ...").body
    assert undocumented(silent, classes) == ["go"]


@pytest.mark.parametrize("room", [*ROOMS, "the root"])
def test_functions_fit_on_two_screens(room):
    paths = [path for path in FILES if path.parent == SOURCE] if room == "the root" else files_of(room)
    long = [(name_of(path), *each) for path in paths for each in facts(path).functions if each[1] > 80]
    assert long == [], "functions of more than 80 lines"


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


def test_help_of_a_verb_imports_no_framework():
    """All in one process, which is told of the first verb that imports one."""
    code = (
        "import sys\nfrom levelbench.cli import cli\n"
        f"for verb in {list(VERBS)}:\n"
        "    cli.main([verb, '--help'], standalone_mode=False)\n"
        "    loaded = {'torch', 'onnx', 'matplotlib', 'numpy', 'msgspec'} & set(sys.modules)\n"
        "    assert not loaded, (verb, loaded)\n"
    )
    assert "click" in modules_after(code)


def test_importing_levelbench_imports_nothing_heavy():
    assert not modules_after("import levelbench") & (HEAVY | {"click"})


def test_looking_whether_a_framework_is_there_does_not_import_it():
    code = "from levelbench import plugins\n[plugins.load('framework', n).lacks() for n in plugins.names('framework')]"
    assert "torch" not in modules_after(code)


def test_a_run_on_numpy_never_imports_torch():
    code = (
        "from levelbench.experiments.request import Options, resolve\n"
        "resolve('digits', {}, Options(framework='numpy'))\nimport levelbench.experiments.child"
    )
    assert "torch" not in modules_after(code)


_COUNTING = """
import os, sys
log = os.open(os.environ["LOADED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def note(event, given):
    if event == "exec" and given[0].co_name == "<module>":
        os.write(log, (given[0].co_filename + "\\n").encode())
sys.addaudithook(note)
"""


def test_a_run_on_numpy_loads_at_most_150_of_our_modules_in_both_processes(tmp_path):
    """The command and the process of its run united; the report's linter has a file a rule, and is left out."""
    (tmp_path / "sitecustomize.py").write_text(_COUNTING)
    words = ["run", "digits[framework=numpy]", "-n", "1", "--epochs", "1", "--no-report", "--store", tmp_path / "store"]
    environment = {**os.environ, "LOADED": str(tmp_path / "loaded"), "PYTHONPATH": f"{tmp_path}:{SOURCE.parent}"}
    done = subprocess.run(
        [sys.executable, "-c", "from levelbench.cli import main\nmain()", *map(str, words)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stderr
    paths = {Path(line) for line in (tmp_path / "loaded").read_text().splitlines()}
    ours = {name_of(path) for path in paths if path.is_relative_to(SOURCE)}
    assert {"cli/run_verb.py", "training/trainer.py", "frameworks/numpy/backend.py"} <= ours
    assert len(ours) <= 150, sorted(ours)


WORKFLOWS = [(ROOT / ".github" / "workflows" / name).read_text() for name in ("ci.yml", "newest.yml")]
STEPS = re.findall(r"^ *-? *run: (.*)$", "".join(WORKFLOWS), re.MULTILINE)


def test_the_workflows_call_each_part_of_ci_and_nothing_else():
    parts = re.findall(r"^(\w+)\(\) \{$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert [step.split() for step in STEPS] == [[".ci/run", part] for part in parts if part != "extras"]


def test_ci_executes_each_step_of_the_workflow_in_its_order(tmp_path):
    """The script as it is, in a folder whose workflow has other steps."""
    for name in (".ci", ".github/workflows"):
        (tmp_path / name).mkdir(parents=True)
    script = tmp_path / ".ci" / "run"
    script.write_text((ROOT / ".ci" / "run").read_text())
    workflow = "    steps:\n      - name: one\n        run: echo 3 passed in 1.0s >> seen\n      - run: cat seen\n"
    (tmp_path / ".github" / "workflows" / "ci.yml").write_text(workflow)
    done = subprocess.run(["bash", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "cat seen: 3 passed in 1.0s"
    (tmp_path / ".github" / "workflows" / "ci.yml").write_text(workflow.replace("cat seen", "false"))
    assert subprocess.run(["bash", script], capture_output=True).returncode != 0
