"""The linter on real claims finds what was checked by hand, no more and no less."""

import pytest
from tests.claims.checked import ARTICLES, DAWNBENCH, MLPERF
from tests.claims.results import PAGE, articles, counted, dawnbench, mlperf, precision, shared, table

ENTRIES = 31
"""Of training; each has the same finding, LB122."""


@pytest.fixture(scope="module")
def data():
    found = shared()
    if found is None or not (found / "dawnbench").is_dir():
        pytest.skip("no real results are here, which are not ours to ship: LEVELBENCH_SHARED/data")
    return found


def test_the_figures_of_articles_have_the_findings_that_were_checked():
    assert counted(articles()) == set(ARTICLES)


def test_the_entries_of_dawnbench_have_the_findings_that_were_checked(data):
    found = counted(dawnbench(data))
    assert {each for each in found if each[1] != "LB122"} == set(DAWNBENCH)
    assert sum(code == "LB122" and count == 1 for _, code, count in found) == ENTRIES


def test_the_logs_of_mlperf_have_the_findings_that_were_checked(data):
    if not (data / "mlperf-training-v0.6.tar.gz").is_file():
        pytest.skip(f"there is no archive of MLPerf's logs in {data}")
    assert counted(mlperf(data)) == set(MLPERF)


def test_nine_of_ten_findings_are_right_without_the_one_that_all_entries_have_too():
    assert precision(DAWNBENCH, MLPERF, ARTICLES, more_right=ENTRIES) == (63, 66)
    right, of = precision(DAWNBENCH, MLPERF, ARTICLES)
    assert (right, of) == (32, 35)
    assert right / of >= 0.9


def test_the_page_has_the_table_of_what_is_found(data):
    assert table(data) in PAGE.read_text(encoding="utf-8"), "python -m tests.claims.results writes it"
