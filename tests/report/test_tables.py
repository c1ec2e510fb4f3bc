import csv
import io
import json
import math
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from levelbench.records.figures import CeilingShare
from levelbench.report.tables import (
    Absent,
    Column,
    ColumnKind,
    Number,
    Reached,
    Table,
    Text,
    cell_width,
    clean,
    lay_out,
    listing,
    print_table,
    share_cell,
    to_csv,
    to_json,
    to_markdown,
    to_text,
)

COLUMNS = (
    Column("group", "runs of"),
    Column("reached", "reached"),
    Column("time_s", "time to accuracy (wall)", ColumnKind.TIME_S),
    Column("memory_bytes", "peak memory", ColumnKind.BYTES),
    Column("energy_j", "energy", ColumnKind.ENERGY_J),
)
TABLE = Table(
    "groups",
    "Time to accuracy",
    COLUMNS,
    (
        (Text("digits[a=1]"), Reached(5, 5), Number(0.9123, 0.8513, 0.9812), Number(2.0**27), Absent("no counter")),
        (Text("digits[a=2]"), Reached(3, 5, 0.231, 0.882), Number(1.2), Number(2.0**28), Absent("no counter")),
    ),
    ("A note.",),
)

MANY = replace(TABLE, rows=TABLE.rows * 3)


def one_text_table(*texts):
    return Table("t", "t", (Column("a", "a"), Column("b", "b")), tuple((Text(text), Text(text)) for text in texts))


def test_every_row_must_have_a_cell_for_each_column():
    with pytest.raises(ValueError, match="5 columns and a row of 1"):
        Table("x", "x", COLUMNS, ((Text("a"),),))


def test_the_unit_of_a_column_stands_in_its_header_once():
    assert lay_out(TABLE).headers[2:] == ("time to accuracy (wall), s", "peak memory, MiB", "energy")


def test_the_same_reason_is_one_footnote():
    assert lay_out(TABLE).footnotes == (("1", "no counter"),)
    assert [row[4] for row in lay_out(TABLE).cells] == ["– (1)", "– (1)"]


def test_where_not_all_runs_reached_the_target_the_share_has_an_interval():
    assert [row[1] for row in lay_out(TABLE).cells] == ["5/5", "3/5 [23 %, 88 %]"]


def test_columns_without_content_are_dropped_and_those_with_a_reason_are_not():
    table = Table("x", "x", COLUMNS[:3], ((Text("a"), Text(""), Absent()),)).without_empty()
    assert [column.key for column in table.columns] == ["group"]
    assert len(TABLE.without_empty().columns) == 5


@given(st.integers(44, 120))
def test_plain_text_fits_its_width_and_loses_no_number(width):
    text = to_text(TABLE, width)
    assert all(cell_width(line) <= width and line == line.rstrip() for line in text.splitlines())
    for row in lay_out(TABLE).cells:
        assert all(part in text for cell in row for part in cell.replace(" [", "\n[").split("\n"))


def test_a_narrow_terminal_repeats_the_first_column_in_each_block():
    assert to_text(MANY, 60).count("digits[a=1]") > 1


def test_each_block_repeats_as_many_columns_as_tell_the_rows_apart():
    rows = [(side, source, "x" * 30, f"{side}{source}") for side in "ab" for source in ("seed", "order", "session")]
    table = listing("spread", "Spread", ["side", "source", "what", "told"], rows)
    second = to_text(table, 50).split("\n\n")[1]
    assert second.splitlines()[2:4] == ["a     seed     aseed", "a     order    aorder"]


def test_a_few_rows_that_do_not_fit_side_by_side_have_their_intervals_below_the_values():
    lines = to_text(replace(MANY, rows=MANY.rows[:3]), 60).splitlines()
    assert lines[:2] == ["Time to accuracy", "runs of            digits[a=1]   digits[a=2]   digits[a=1]"]
    assert sum(set(line) == {"─", " "} for line in lines) == 1
    at = next(at for at, line in enumerate(lines) if line.startswith("time to accuracy"))
    assert lines[at].split()[3:] == ["0.91", "1.20", "0.91"]
    assert lines[at + 1].split() == ["(wall),", "s", "[0.85,", "0.98]", "[0.85,", "0.98]"]


def test_a_table_that_is_too_wide_is_turned_where_its_few_rows_fit_side_by_side():
    too_narrow = max(map(cell_width, to_text(TABLE, 200).splitlines())) - 1
    turned = to_text(TABLE, too_narrow).splitlines()
    assert turned[0].split() == ["Time", "to", "accuracy", "digits[a=1]", "digits[a=2]"]
    assert [line.split("  ")[0] for line in turned[2:6]] == list(lay_out(TABLE).headers[1:])


def test_every_line_of_an_indented_name_is_indented():
    names = [["  layer1.0.conv1 with a name of several words", "1"], ["whole", "2"]]
    lines = to_text(listing("t", "Table", ["name", "n"], names), 80).splitlines()
    assert [line[:4] for line in lines if "layer1" in line or "words" in line] == ["  la", "  of"]


def test_a_word_longer_than_its_column_is_folded_and_not_cut():
    text = to_text(one_text_table("digits[" + "x" * 90 + "]"), 60)
    assert "".join(line.split("  ")[0].strip() for line in text.splitlines()[3:]).count("x") == 90


@given(st.text(max_size=60))
def test_no_control_character_of_a_name_reaches_terminal_markdown_or_csv(text):
    table = one_text_table(text)
    for shown in (to_text(table), to_markdown(table), to_csv(table).replace("\r\n", "")):
        assert not [each for each in shown if unicodedata.category(each) in ("Cc", "Cf", "Cs") and each != "\n"]


def test_an_escape_sequence_is_shown_and_not_sent():
    assert clean("\x1b[31mred\u202e") == "\\x1b[31mred\\u202e"


def test_a_terminal_gets_the_lines_of_the_plain_text_in_style():
    plain, styled = io.StringIO(), io.StringIO()
    print_table(TABLE, Console(file=plain, width=80))
    print_table(
        TABLE, Console(file=styled, width=80, force_terminal=True, color_system="standard", legacy_windows=False)
    )
    assert plain.getvalue() == to_text(TABLE.without_absent(), 80)
    assert "\x1b[1mTime to accuracy" in styled.getvalue()


def test_square_brackets_in_names_are_not_markup_for_the_terminal():
    out = io.StringIO()
    print_table(one_text_table("digits[bold]"), Console(file=out, width=80))
    assert "digits[bold]" in out.getvalue()


def test_csv_gives_base_units_bounds_and_reasons_at_full_precision():
    rows = list(csv.DictReader(io.StringIO(to_csv(TABLE))))
    assert rows[0] == {
        "group": "digits[a=1]", "reached": "5", "reached_n": "5", "reached_low": "", "reached_high": "",
        "time_s": "0.9123", "time_s_low": "0.8513", "time_s_high": "0.9812", "memory_bytes": "134217728",
        "energy_j": "", "energy_j_reason": "no counter",
    }  # fmt: skip
    assert rows[1]["reached_low"] == "0.231"


def test_json_has_the_columns_of_the_csv_with_numbers_as_numbers():
    shown = to_json(TABLE)
    first, *_ = csv.DictReader(io.StringIO(to_csv(TABLE)))
    assert list(shown["rows"][0]) == list(first)
    assert shown["rows"][0]["time_s"] == 0.9123
    assert shown["rows"][0]["energy_j"] is None
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown


def test_json_has_no_number_that_json_does_not_know():
    table = Table("t", "t", (Column("a", "a", ColumnKind.NUMBER),), ((Number(math.inf),), (Number(math.nan),)))
    assert [row["a"] for row in to_json(table)["rows"]] == [None, None]


@given(st.lists(st.tuples(st.text(max_size=12), st.floats(allow_nan=False, allow_infinity=False)), max_size=5))
def test_csv_is_read_back_with_every_number_equal(rows):
    table = Table(
        "t", "t", (Column("a", "a"), Column("b", "b", ColumnKind.NUMBER)), tuple((Text(a), Number(b)) for a, b in rows)
    )
    _, *read = csv.reader(io.StringIO(to_csv(table)))
    assert [float(number) for _, number in read] == [number for _, number in rows]


@pytest.mark.parametrize("formula", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_a_spreadsheet_does_not_run_a_name_as_a_formula(formula):
    assert f"'{formula}" in to_csv(one_text_table(formula))


def test_markdown_shows_every_mark_of_a_name_literally():
    text = to_markdown(one_text_table("a|b*c*<script>[x](y)"))
    assert r"a\|b\*c\*\<script\>\[x\](y)" in text
    assert all(line.count("|") - line.count(r"\|") == 3 for line in text.splitlines() if line.startswith("|"))


def test_names_of_csv_columns_are_no_formulas_and_hold_no_control_characters():
    table = Table("t", "t", (Column("=cmd\x1b", "t"),), ((Absent("@why"),),))
    assert to_csv(table) == "'=cmd\\x1b,'=cmd\\x1b_reason\r\n,'@why\r\n"


def test_columns_of_one_series_are_shown_in_one_unit():
    columns = (Column("a_s", "a", ColumnKind.TIME_S, series="s"), Column("b_s", "b", ColumnKind.TIME_S, series="s"))
    table = Table("t", "T", columns, ((Number(0.002), Number(2.0)),))
    assert lay_out(table).headers == ("a, s", "b, s")
    assert lay_out(table).cells == (("0.00200", "2"),)


def test_a_last_column_of_sentences_takes_the_room_that_is_left():
    rows = [("gradients", "passed", "a factor of 0 leaves all the parameters of a model as they were, for each dtype")]
    lines = to_text(listing("check", "Check", ("probe", "status", "seen"), rows), 60).splitlines()
    assert lines[1].split() == ["probe", "status", "seen"]
    assert max(map(len, lines)) <= 60


@pytest.mark.parametrize(("value", "shown"), [(0.5, True), (1.05, True), (2.82, False)])
def test_a_share_of_a_ceiling_that_is_exceeded_is_not_shown(value, shown):
    cell = share_cell(CeilingShare(value, "compute"))
    assert isinstance(cell, Number if shown else Absent)
    assert shown or "one of the two is wrong" in cell.reason
