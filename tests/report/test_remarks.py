"""What a report shows of the linter: a mark beside every figure, and the findings below."""

import csv

import pytest

from levelbench.report.page import report_page, write_csv, write_markdown
from levelbench.report.remarks import Remark, Remarks, lint_lines, lint_section, lint_words
from levelbench.report.runs import groups_table


def remark(code="LB126", side="", found="the data of <b>'numpy'</b> is made up", severity="error"):
    return Remark(code, "synthetic-data", severity, found, "train on the task's data", "", side, "")


def remarks(title="digits", task="digits", sides=(), lines=(), not_stated=0):
    return Remarks(title, task, list(sides), list(lines), not_stated)


ABOUT = [
    remarks(sides=["numpy", "torch"], lines=[remark(side="torch"), remark("LB103", side="")]),
    remarks(title="charlm", task="charlm", sides=["jax"]),
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
    assert remarks(lines=[remark(side="a"), remark(side="b"), remark("LB103")]).words() == "LB126, LB103"


def test_a_line_names_rule_figure_evidence_and_remedy():
    (line,) = lint_lines([remarks(lines=[remark(side="torch", found="it is made up")])])
    assert line == "LB126 synthetic-data (error), torch: It is made up. Train on the task's data."


def test_the_section_escapes_what_was_found_and_counts_what_is_not_stated():
    text = lint_section([remarks(lines=[remark()], not_stated=3)])
    assert "&lt;b&gt;" in text
    assert "<b>'numpy'" not in text
    assert "3 facts are not stated" in text


def test_a_claim_without_a_finding_is_said_to_have_none():
    assert "No error and no warning." in lint_section([remarks(not_stated=1)])
    assert "1 fact is not stated" in lint_section([remarks(not_stated=1)])


def test_the_main_table_has_the_mark_only_where_the_linter_was_asked(two_arms):
    groups = [group for group, _ in two_arms]
    assert "lint" not in [each.key for each in groups_table(groups).columns]
    table = groups_table(groups, [remarks(sides=[groups[0].label], lines=[remark(side=groups[0].label)])])
    assert [row[-1].text for row in table.rows] == ["LB126", "nothing found"]


def test_the_page_has_the_findings_after_the_doubts(one_missed, monkeypatch):
    monkeypatch.setattr("levelbench.report.run_figures.can_draw", lambda: False)
    text = report_page(one_missed, [], linted=[remarks(lines=[remark()])])
    assert text.index("<h2>Failures</h2>") < text.index("<h2>Lint</h2>") < text.index("<h2>Environment</h2>")
    assert "<h2>Lint</h2>" not in report_page(one_missed, [])


def test_markdown_has_the_mark_in_its_table_and_the_findings_above(two_arms, tmp_path):
    label = two_arms[0][0].label
    about = [remarks(sides=[label], lines=[remark(side=label)], not_stated=2)]
    text = write_markdown(two_arms, [], tmp_path / "r.md", linted=about).read_text(encoding="utf-8")
    above, _, table = text.partition("### Time to accuracy")
    assert "LB126 synthetic-data (error), digits" in above
    assert "2 facts are not stated" in above
    marks = [row.rsplit(" | ", 1)[1] for row in table.splitlines() if row.startswith("| ")]
    assert marks[:4] == ["lint |", ":--- |", "LB126 |", "nothing found |"]


def test_csv_has_the_mark_as_a_column_only_where_the_linter_was_asked(two_arms, tmp_path):
    label = two_arms[0][0].label
    for about, marks in (
        ([remarks(sides=[label], lines=[remark(side=label)])], ["LB126", "nothing found"]),
        ([], None),
    ):
        paths = {path.name: path for path in write_csv(two_arms, tmp_path, linted=about)}
        rows = list(csv.DictReader(paths["digits-groups.csv"].read_text(encoding="utf-8").splitlines()))
        assert [row.get("lint") for row in rows] == (marks or [None, None])
