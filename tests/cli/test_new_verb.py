"""What `levelbench new` writes passes the real check as it is, and faults that are put into it are found."""

import json
import re

import pytest

from levelbench.cli import main
from levelbench.cli.new_verb import KINDS


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def call(capsys):
    """The exit code and the output of a command."""

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        shown = capsys.readouterr()
        return ended.value.code, shown.out + shown.err

    return run


OPTIONS = {
    "task": ("--framework", "numpy", "--seconds", "20"),
    "operator": ("--repeat", "3"),
    "optimizer": ("--framework", "numpy"),
    "scheme": ("--ranks", "2"),
    "engine": (),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_file_passes_the_check_as_it_is(kind, call):
    assert call("new", kind, f"first_{kind}")[0] == 0
    code, shown = call("check", f"first_{kind}.py", *OPTIONS[kind])
    assert code == 0, shown
    assert "nothing found wrong" in shown


FAULTS = {
    "operator": ("self.beta * outputs[0]", "outputs[0] * 2", ("--repeat", "3"), "gradient"),
    "optimizer": ("state *= self.momentum", "state *= self.momentum / 2", ("--framework", "numpy"), "reference"),
    "scheme": ("gradients[name] * self.share", "gradients[name] / 2", ("--ranks", "2"), "gradients"),
    "engine": (
        '"Mul": lambda node, a, b: a * b',
        '"Mul": lambda node, a, b: a + b',
        ("--operator", "Mul"),
        "node tests",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_that_is_put_into_it_is_found(kind, call, tmp_path):
    right, wrong, options, probe = FAULTS[kind]
    call("new", kind, f"wrong_{kind}")
    file = tmp_path / f"wrong_{kind}.py"
    assert right in file.read_text()
    file.write_text(file.read_text().replace(right, wrong))
    code, shown = call("check", file.name, *options)
    assert code == 1
    assert re.search(rf"^ +(\d+\. )?{probe}\b", shown, re.MULTILINE)


def test_the_task_trains_to_its_target(call):
    call("new", "task", "trained_task")
    code, shown = call("run", "trained_task.py", "--framework", "numpy", "-n", "1", "--no-report")
    assert code == 0, shown
    assert "reached in" in shown


def test_the_commands_that_come_next_are_printed(call):
    code, shown = call("new", "task", "my_first")
    assert (code, shown) == (
        0,
        "wrote my_first.py\nnext: levelbench check my_first.py\nthen: levelbench run my_first.py -n 5\n",
    )


def test_json_names_the_file_and_the_commands(call):
    _, shown = call("new", "operator", "my_first", "--json")
    assert json.loads(shown) == {
        "kind": "operator",
        "file": "my_first.py",
        "next": ["levelbench check my_first.py", "levelbench operator my_first.py"],
    }


def test_classes_are_named_after_the_file(call, tmp_path):
    call("new", "scheme", "ring_of_two")
    text = (tmp_path / "ring_of_two.py").read_text()
    assert "class RingOfTwo(Scheme)" in text
    assert 'name: ClassVar[str] = "ring-of-two"' in text


def test_an_existing_file_is_left_alone(call, tmp_path):
    (tmp_path / "mine.py").write_text("x = 1\n")
    code, shown = call("new", "task", "mine")
    assert code == 2
    assert "mine.py exists already" in shown
    assert (tmp_path / "mine.py").read_text() == "x = 1\n"


@pytest.mark.parametrize("name", ["my-task", "1st", "a/b", "../up", "class", "_", ""])
def test_what_is_no_name_is_refused(name, call, tmp_path):
    code, shown = call("new", "task", name)
    assert code == 2
    assert "letters, digits and underscores" in shown
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "name", "found"),
    [
        ("task", "digits", "there is a task 'digits' already"),
        ("scheme", "all_reduce", "there is a scheme 'all-reduce' already"),
        ("engine", "torch", "there is a framework 'torch' already"),
        ("optimizer", "random", "a module or class of that name"),
        ("operator", "cost", "a module or class of that name"),
    ],
)
def test_a_name_that_means_something_already_is_refused(kind, name, found, call, tmp_path):
    code, shown = call("new", kind, name)
    assert code == 2
    assert found in shown
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_kind_is_answered_with_the_known_ones(call):
    code, shown = call("new", "optimiser", "mine")
    assert code == 2
    assert "optimizer" in shown


def test_records_need_an_installed_engine_and_say_how_to_declare_it(call):
    call("new", "engine", "my_engine")
    code, shown = call("operator", "Relu", "--shape", "X=4x4", "--framework", "my_engine.py", "-n", "2")
    assert code == 2
    assert "levelbench.frameworks" in shown
