"""What the verbs print: JSON that is UTF-8, errors that steer no terminal."""

import json
import os
import re
from importlib import import_module

import click
import pytest

from levelbench.cli.list_verb import KINDS
from levelbench.cli.options import OPTION_GROUPS, emit_json, emit_json_list, say, say_error
from levelbench.errors import DataError


def test_a_long_list_is_printed_in_parts_as_the_same_json(capsys):
    for values in ([], [1], [{"a": [n, "x\ny"], "b": {}} for n in range(1201)]):
        emit_json(values)
        whole = capsys.readouterr().out
        emit_json_list(iter(values))
        assert capsys.readouterr().out == whole


def test_json_of_a_name_that_is_not_utf_8_has_escapes(capsys):
    name = os.fsdecode(b"data-\xff")
    emit_json({"path": name, name: [name, float("nan"), 1], 3: None})
    shown = r"data-\udcff"
    assert json.loads(capsys.readouterr().out) == {"path": shown, shown: [shown, None, 1], "3": None}


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\rb\x08\x7f\x9b", r"a\rb\x08\x7f\x9b"),
        ("left\u202eright", r"left\u202eright"),
        ("caf\udcff", r"caf\udcff"),
        ("naïve \u00a0 日本", "naïve \u00a0 日本"),
    ],
)
def test_an_error_steers_no_terminal(capsys, said, shown):
    say_error(DataError(said, said, said), debug=False)
    assert capsys.readouterr().err == f"error: {shown}\nfound: {shown}\n   do: {shown}\n"


@pytest.mark.parametrize("verb", ["run", "scale", "infer", "check"])
def test_the_help_of_a_verb_with_many_options_shows_each_once_in_groups(call, verb):
    code, out, _ = call(verb, "--help")
    assert code == 0
    headings = [line.rstrip(":") for line in out.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings[0] == "Options"
    assert headings[-1] == "Output"
    assert len(headings) > 3
    command = import_module(f"levelbench.cli.{verb}_verb").command
    for option in command.params:
        if isinstance(option, click.Option):
            shown = [line for line in out.splitlines() if re.match(rf"  (-\w, )?{option.opts[-1]}\b(?!-)", line)]
            assert len(shown) == 1, option.opts


def test_groups_name_only_options_that_some_verb_has():
    modules = [import_module(f"levelbench.cli.{verb}_verb") for verb in ("run", "scale", "report", "compare")]
    known = {option.name for module in modules for option in module.command.params}
    assert {name for names in OPTION_GROUPS.values() for name in names.split()} <= known


def test_a_time_limit_of_a_program_is_not_listed_as_one_of_distributed_training(call):
    out = call("time", "--help")[1]
    assert "--timeout" in out
    assert "Distributed training" not in out


def test_the_kinds_of_list_are_not_broken_within_a_word(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = call("list", "--help")[1]
    assert all(kind in re.findall(r"[a-z]+", out.partition("KIND: ")[2]) for kind in KINDS)


def test_a_name_longer_than_the_terminal_is_broken_between_its_settings(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    say(f"  doubt: digits[{','.join(f'setting{at}=1' for at in range(6))}] is slow")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 40
    assert all(line.endswith((":", ",", "]")) for line in lines[:-1])
    assert "".join(lines).replace(" ", "").endswith("setting5=1]isslow")


@pytest.mark.parametrize("words", [("analyze",), ("board",), ("board", "keys")])
def test_no_summary_of_a_subcommand_is_cut_at_80_columns(call, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "80")
    commands = call(*words, "--help")[1].partition("Commands:")[2].splitlines()
    assert len(commands) > 2
    assert not [line for line in commands if line.endswith("...")]
