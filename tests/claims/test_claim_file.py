"""Claims that somebody wrote down: what is read, and how an error names the place."""

import re
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.claims.reading.claim_file import (
    DEPTH_LIMIT,
    FILE_LIMIT,
    lines_of,
    nearest_line,
    parse_claim,
    read_claim,
)
from levelbench.claims.reading.template import template
from levelbench.claims.view import Claim, Side
from levelbench.errors import RecordError

WHOLE = """\
title = "8-bit is 5 times faster"

[[sides]]
name = "ours"
time_s = 10
[sides.quality]
split = "test"
[[sides.runs]]
time_s = 9.5
curve = {time_s = [1.0, 2.0], quality = [0.5, 0.9]}
[[sides.runs]]
time_s = 10.5

[[sides]]
name = "theirs"
where = "their table 2"

[[comparisons]]
new = "ours"
base = "theirs"
interval = [4.5, 5.5]
"""


def uncommented(text):
    return re.sub(r"^#(?=\S)", "", text, flags=re.MULTILINE)


def test_a_claim_is_read_and_each_part_knows_its_line():
    claim = parse_claim(WHOLE, "c.toml")
    assert claim.sides[0].quality.split == "test"
    assert claim.comparisons[0].interval == (4.5, 5.5)
    assert [run.where for run in claim.sides[0].runs] == ["c.toml:8", "c.toml:11"]
    assert (claim.where, claim.sides[0].where, claim.comparisons[0].where) == ("c.toml", "c.toml:3", "c.toml:18")


def test_what_its_author_says_of_a_place_stays():
    assert parse_claim(WHOLE, "c.toml").sides[1].where == "their table 2"


@pytest.mark.parametrize(
    ("old", "new", "found", "do"),
    [
        ('split = "test"', 'splitt = "test"', "line 7: sides[0].quality has no field 'splitt'", "split"),
        ('split = "test"', 'split = "tset"', "line 7: sides[0].quality.split is 'tset'", "write 'test'"),
        ("time_s = 9.5", 'time_s = "fast"', "line 9: sides[0].runs[0].time_s is text ('fast')", "a number"),
        ("time_s = 10.5", "time_s = -1", "line 12: sides[0].runs[1].time_s is -1", "not negative"),
        ("time_s = 10.5", "time_s = nan", "line 12: sides[0].runs[1].time_s is nan", "finite"),
        ("time_s = 10\n", "runs_made = 100000000000000000000\n", "line 5: sides[0].runs_made is 1000", "finite"),
        ("time_s = 10\n", "clock.part_share = 40\n", "line 5: sides[0].clock.part_share is 40", "40 % is 0.4"),
        ("time_s = 10\n", "time_s = 2026-11-21\n", "line 5: sides[0].time_s is a date or time", "a number"),
        ('title = "8', 'tittle = "8', "line 1: the file has no field 'tittle'", "did you mean title"),
        ('name = "theirs"\n', "", "line 14: sides[1].name is missing", "add name"),
        ('name = "theirs"', 'name = "ours"', "line 15: two sides have the name 'ours'", "of its own"),
        ('base = "theirs"', 'base = "their"', "line 20: comparisons[0].base is 'their', and no side", "'theirs'"),
        ("[4.5, 5.5]", "[5.5, 4.5]", "line 21: comparisons[0].interval goes down", "lower end first"),
        ("[4.5, 5.5]", "[5.5]", "line 21: comparisons[0].interval is a list", "two numbers"),
        ("[0.5, 0.9]", "[0.5]", "line 10: the columns of sides[0].runs[0].curve differ", "one value an evaluation"),
        ("[sides.quality]", "[[sides.quality]]", "line 6: sides[0].quality is a list", "a table"),
    ],
)
def test_an_error_names_the_line_what_is_there_and_what_to_write(old, new, found, do):
    assert old in WHOLE
    with pytest.raises(RecordError) as error:
        parse_claim(WHOLE.replace(old, new, 1), "c.toml")
    assert error.value.found.startswith(found)
    assert do in error.value.do


def test_several_errors_are_all_said_and_the_first_line_is_named():
    with pytest.raises(RecordError, match=r"line 4: .*; also: "):
        parse_claim('title = "t"\n\n[[sides]]\nnam = "a"\nclok = 1\n')


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("title = ", "not TOML"),
        ('title = "a"\ntitle = "b"', "not TOML"),
        ("x = " + "[" * 5000, "nested deeper"),
        ("x = " + "[" * 20 + "]" * 20, "nested deeper"),
        (".".join("a" * 20) + " = 1", f"more than {DEPTH_LIMIT} parts"),
        ("x = {" + " . ".join(['"a"'] * 20) + " = 1}", f"more than {DEPTH_LIMIT} parts"),
        ("x = " + "1" * 5000, "not TOML"),
        ('title = "t"\n' + '[[sides]]\nname = "a"\n' * 1001, "sides has 1001 tables, more than 1000"),
        ("#" * (FILE_LIMIT + 1), "more than"),
    ],
)
def test_what_is_no_claim_within_the_limits_is_refused(text, found):
    with pytest.raises(RecordError, match=re.escape(found)):
        parse_claim(text)


@pytest.mark.parametrize("raw", [b"title = '\xff'", b"\x00"])
def test_bytes_that_are_no_text_are_refused(tmp_path, raw):
    (tmp_path / "c.toml").write_bytes(raw)
    with pytest.raises(RecordError):
        read_claim(tmp_path / "c.toml")


def test_a_folder_is_no_claim(tmp_path):
    with pytest.raises(RecordError):
        read_claim(tmp_path)


LINES = [*uncommented(template()).splitlines(), 'x = "', "[[sides.quality]]", "a.b.c = 1", "=", "[sides]", "name = 3"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(LINES), max_size=12).map("\n".join) | st.text(max_size=40))
def test_any_text_is_a_claim_or_a_record_error(text):
    try:
        read = parse_claim(text, "c.toml")
    except RecordError as error:
        read = error
    assert isinstance(read, Claim) or read.found


def places(value, path=""):
    """Every path of a parsed file, as rules write it."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from places(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for at, each in enumerate(value):
            yield from places(each, f"{path}[{at}]")
    else:
        yield path


@pytest.mark.parametrize("text", [WHOLE, uncommented(template())], ids=["whole", "template"])
def test_every_field_has_the_line_on_which_it_stands(text):
    lines, written = lines_of(text), text.splitlines()
    for field in places(tomllib.loads(text)):
        line = nearest_line(field, lines)
        assert line is not None
        assert re.split(r"[.\[]", field)[-1] in written[line - 1]


def test_a_key_in_a_long_text_is_no_field():
    lines = lines_of('title = """\nname = 1\n"""\n\n[[sides]]\nname = "a"\n')
    assert lines == {"title": 1, "sides": 5, "sides[0]": 5, "sides[0].name": 6}


@pytest.mark.parametrize("field", ["", "nothing", "nothing[3].here", "..", "[0]"])
def test_a_field_that_is_not_there_has_no_line(field):
    assert nearest_line(field, {"sides[0]": 1}) is None


def test_the_template_as_it_is_states_a_title_and_two_names():
    title = "What is claimed, in one sentence"
    assert parse_claim(template()) == Claim(title, [Side("ours"), Side("baseline")])
