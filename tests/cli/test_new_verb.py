"""``levelbench new``: files to begin with, which pass ``levelbench check`` as they are."""

import json

import pytest

from levelbench.cli.new_verb import NEXT


@pytest.fixture
def new(call, tmp_path, monkeypatch):
    """``levelbench new ...`` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: call("new", *words)


@pytest.mark.parametrize("kind", list(NEXT))
def test_a_file_of_each_kind_passes_its_check_as_it_is(new, call, kind):
    code, out, _ = new(kind, f"my-{kind}")
    assert (code, out.splitlines()[0]) == (0, f"written: my_{kind}.py")
    quick = {"task": ("--seconds", "2"), "recipe": ("--seconds", "2"), "scheme": ("--ranks", "2")}
    code, out, err = call("check", f"my_{kind}.py", *quick.get(kind, ()))
    assert code == 0, out + err
    assert "nothing found wrong" in out


def test_a_fault_planted_in_a_written_operator_is_found(new, call, tmp_path):
    new("operator", "my-operator")
    file = tmp_path / "my_operator.py"
    text = file.read_text()
    assert "(1 - gate)" in text
    file.write_text(text.replace("(1 - gate)", "(1 + gate)"))
    assert call("check", "my_operator.py")[0] == 1


def test_the_next_commands_are_printed(new):
    assert "  levelbench check fast_digits.py\n" in new("task", "fast-digits")[1]
    said = json.loads(new("task", "other_digits", "--folder", "a folder", "--json")[1])
    assert said["commands"][0] == "levelbench check 'a folder/other_digits.py'"


def test_a_file_that_exists_is_not_overwritten(new, tmp_path):
    (tmp_path / "mine.py").write_text("precious")
    code, _, err = new("task", "mine")
    assert code == 2
    assert "mine.py exists" in err
    assert (tmp_path / "mine.py").read_text() == "precious"


@pytest.mark.parametrize(
    ("name", "proposal"),
    [("FastDigits", "fast-digits"), ("../up", "up"), ("3d", "d"), ("", "my-own"), ("class", "my-class")],
)
def test_a_name_that_is_not_made_of_lower_case_words_is_refused_with_one_that_is(new, tmp_path, name, proposal):
    code, _, err = new("operator", name)
    assert code == 2
    assert f"{proposal} would do" in err
    assert list(tmp_path.iterdir()) == []


def test_a_module_of_pythons_own_is_not_shadowed(new):
    assert "my-random would do" in new("optimizer", "random")[2]
