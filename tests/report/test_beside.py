"""What a report shows of the linter: a mark beside every figure, and the findings below."""

import csv

import pytest
from msgspec import Struct

from levelbench.report.page import report_page, write_csv, write_markdown
from levelbench.report.remarks import all_words, lint_lines, lint_section, lint_words
from levelbench.report.runs import groups_table


class Remark(Struct):
    code: str = "LB126"
    name: str = "synthetic-data"
    severity: str = "error"
    found: str = "the data of <b>'numpy'</b> is made up"
    do: str = "train on the task's data"
    side: str = ""


class Linted(Struct):
    title: str = "digits"
    task: str | None = "digits"
    sides: list[str] = []
    lines: list[Remark] = []
    not_stated: int = 0


ABOUT = [
    Linted(sides=["numpy", "torch"], lines=[Remark(side="torch"), Remark("LB103", side="")]),
    Linted(title="charlm", task="charlm", sides=["jax"]),
]


@pytest.mark.parametrize(
    ("label", "task", "words"),
    [
        ("torch", "digits", "LB126, LB103"),
        ("numpy", "digits", "LB103"),
        ("jax", "charlm", "nothing found"),
        # A point of a study is no side: what is said of the whole is said of it.
        ("4 ranks", "digits", "LB103"),
        ("numpy", "spam", "LB103"),
        ("other", "spam", ""),
    ],
)
def test_a_figure_has_what_is_said_of_it_and_of_its_claim(label, task, words):
    assert lint_words(ABOUT, label, task) == words


def test_the_words_of_a_whole_claim_name_each_rule_once():
    assert all_words(Linted(lines=[Remark(side="a"), Remark(side="b"), Remark("LB103")])) == "LB126, LB103"


def test_a_line_names_rule_figure_evidence_and_remedy():
    (line,) = lint_lines([Linted(lines=[Remark(side="torch", found="it is made up")])])
    assert line == "LB126 synthetic-data (error), torch: It is made up. Train on the task's data."


def test_the_section_escapes_what_was_found_and_counts_what_is_not_stated():
    text = lint_section([Linted(lines=[Remark()], not_stated=3)])
    assert "&lt;b&gt;" in text
    assert "<b>'numpy'" not in text
    assert "3 facts are not stated" in text


def test_a_claim_without_a_finding_is_said_to_have_none():
    assert "No error and no warning." in lint_section([Linted(not_stated=1)])
    assert "1 fact is not stated" in lint_section([Linted(not_stated=1)])


def test_the_main_table_has_the_mark_only_where_the_linter_was_asked(two_arms):
    groups = [group for group, _ in two_arms]
    assert "lint" not in [each.key for each in groups_table(groups).columns]
    table = groups_table(groups, [Linted(sides=[groups[0].label], lines=[Remark(side=groups[0].label)])])
    assert [row[-1].text for row in table.rows] == ["LB126", "nothing found"]


def test_the_page_has_the_findings_after_the_doubts(one_missed, monkeypatch):
    monkeypatch.setattr("levelbench.report.run_figures.can_draw", lambda: False)
    text = report_page(one_missed, [], linted=[Linted(lines=[Remark()])])
    assert text.index("<h2>Failures</h2>") < text.index("<h2>Lint</h2>") < text.index("<h2>Environment</h2>")
    assert "<h2>Lint</h2>" not in report_page(one_missed, [])


def test_markdown_has_the_mark_in_its_table_and_the_findings_above(two_arms, tmp_path):
    label = two_arms[0][0].label
    about = [Linted(sides=[label], lines=[Remark(side=label)], not_stated=2)]
    text = write_markdown(two_arms, [], tmp_path / "r.md", linted=about).read_text(encoding="utf-8")
    above, _, table = text.partition("### Time to accuracy")
    assert "LB126 synthetic-data (error), digits" in above
    assert "2 facts are not stated" in above
    marks = [row.rsplit(" | ", 1)[1] for row in table.splitlines() if row.startswith("| ")]
    assert marks[:4] == ["lint |", ":--- |", "LB126 |", "nothing found |"]


def test_csv_has_the_mark_as_a_column_only_where_the_linter_was_asked(two_arms, tmp_path):
    label = two_arms[0][0].label
    for about, marks in (([Linted(sides=[label], lines=[Remark(side=label)])], ["LB126", "nothing found"]), ([], None)):
        paths = {path.name: path for path in write_csv(two_arms, tmp_path, linted=about)}
        rows = list(csv.DictReader(paths["digits-groups.csv"].read_text(encoding="utf-8").splitlines()))
        assert [row.get("lint") for row in rows] == (marks or [None, None])
