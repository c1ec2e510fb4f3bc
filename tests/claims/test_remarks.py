"""What a report or a leaderboard shows beside a figure."""

from tests.claims.run_store import specification, write_runs

from levelbench.claims.remarks import remarks_on_runs
from levelbench.records import Store


def test_clean_runs_have_nothing_beside_them(tmp_path):
    (found,) = remarks_on_runs(Store(write_runs(tmp_path)).records())
    assert (found.lines, found.words(), found.title) == ([], "nothing found", "digits")
    assert found.not_stated > 0


def test_a_line_belongs_to_the_group_that_it_is_about(tmp_path):
    write_runs(tmp_path)
    write_runs(tmp_path, start=20, spec=specification(framework="torch"), synthetic=True)
    (found,) = remarks_on_runs(Store(tmp_path).records())
    assert [(each.code, each.side, each.page) for each in found.lines] == [
        ("LB126", "digits[framework=torch]", "rules/LB126.md")
    ]
    assert found.words("digits[framework=torch]") == "LB126"
    assert found.words("digits[framework=numpy]") == "nothing found"


def test_runs_of_the_store_that_a_report_leaves_out_are_said_of_the_whole(tmp_path):
    store = Store(write_runs(tmp_path))
    (found,) = remarks_on_runs(store.records("digits[seed=0]"), store.rows())
    assert ("LB103", "") in [(each.code, each.side) for each in found.lines]
    assert "LB103" in found.words("digits")
