"""``levelbench.run``, ``compare`` and ``report`` from Python."""

import doctest
import subprocess
import sys
import tempfile

import pytest

import levelbench
from levelbench.cli import api
from levelbench.errors import MissingError, StoreError, UnknownNameError, UsageError

TASKS = ["digits[lr=0.1]", "digits[lr=0.2]"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("api") / "store"


@pytest.fixture(scope="module")
def measured(store, warm):
    """Two settings of a task, three runs each."""
    return levelbench.run(TASKS, n=3, framework="numpy", store=store, progress=False)


def test_a_run_ends_in_a_verdict_with_its_ratio(measured):
    assert [(group.label, group.n) for group in measured.groups] == [(task, 3) for task in TASKS]
    assert measured.verdict is measured.comparisons[0].verdict
    assert measured.ratio == measured.verdict.ratio > 0
    assert len(measured.runs) == 6


def test_it_is_what_the_command_prints(measured, store, call):
    _, out, _ = call("run", *TASKS, "-n", "3", "--framework", "numpy", "--store", store, "--no-report")
    printed = out[out.index(str(measured.verdict.kind)) :].rstrip()
    assert str(measured).split() == printed.split()


def test_the_runs_of_the_store_are_not_repeated(measured, store):
    again = levelbench.run(TASKS, n=3, framework="numpy", store=levelbench.Store(store), progress=False)
    assert [run.id for run in again.runs] == [run.id for run in measured.runs]


def test_tasks_may_be_given_one_by_one(measured, store):
    again = levelbench.run(*TASKS, n=3, framework="numpy", store=store, progress=False)
    assert [run.id for run in again.runs] == [run.id for run in measured.runs]
    assert repr(again.store) == f"Store({str(store)!r})"


@pytest.mark.slow
def test_progress_goes_to_standard_error_and_can_be_left_out(measured, store, capsys):
    for progress in (True, False):
        levelbench.run("digits[lr=0.1]", n=3, framework="numpy", store=store, progress=progress)
        out, err = capsys.readouterr()
        assert (out, bool(err)) == ("", progress)


@pytest.mark.slow
def test_several_frameworks_are_a_list_as_options_with_commas_are(measured, store):
    pytest.importorskip("torch")
    found = levelbench.run("digits", n=1, framework=["numpy", "torch"], store=store, progress=False)
    assert [group.specification.framework for group in found.groups] == ["numpy", "torch"]


def test_a_single_task_has_no_verdict_and_says_what_to_do(measured, store):
    found = levelbench.run("digits[lr=0.1]", n=3, framework="numpy", store=store, progress=False)
    with pytest.raises(UsageError, match="Name two tasks or settings"):
        found.verdict  # noqa: B018
    assert "3/3" in str(found)


def test_an_error_begins_its_advice_with_a_capital_letter_unless_that_is_a_command(tmp_path):
    with pytest.raises(UnknownNameError, match=r"\. levelbench list tasks shows them all\.$"):
        levelbench.run("digitz", store=tmp_path, progress=False)
    assert str(UsageError("n=-1", "it is negative", "give a count")) == "n=-1: it is negative. Give a count."


def test_a_notebook_shows_verdict_table_and_drawing_and_no_markup_from_outside(measured):
    html = measured._repr_html_()
    assert str(measured.verdict.kind) in html
    assert "<table" in html
    assert "<script" not in html


def test_a_comparison_of_selectors_is_that_of_the_run(measured, store):
    found = levelbench.compare(*TASKS, store=store)
    assert found.verdict == measured.verdict
    assert levelbench.compare(*TASKS, store=store, level=0.8).verdict.level == 0.8


def test_groups_are_compared_as_they_are(measured):
    assert levelbench.compare(*measured.groups).verdict == measured.verdict


def test_a_group_and_a_selector_are_not_compared(measured):
    with pytest.raises(UsageError, match="two selectors or two groups"):
        levelbench.compare(measured.groups[0], TASKS[1])


@pytest.mark.slow
def test_a_report_is_a_file_or_a_folder(measured, store, tmp_path):
    assert levelbench.report(store=store) == store / "report.html"
    assert levelbench.report(TASKS[0], path=tmp_path / "one.html", store=store).read_text().count("<h2>digits") == 1
    assert levelbench.report(store=store, folder=tmp_path / "all") == tmp_path / "all" / "index.html"
    assert measured.report(tmp_path / "measured.html").is_file()


def test_the_name_of_the_verb_is_still_that_of_the_package():
    from levelbench.report.tables import Table

    assert levelbench.report.tables.Table is Table


def test_runs_are_a_table_of_pandas(measured):
    pytest.importorskip("pandas")
    table = measured.to_pandas()
    assert list(table["id"]) == [run.id for run in measured.runs]
    assert {"time_to_accuracy_s", "setting.lr", "doubts"} <= set(table.columns)


def test_an_option_that_does_not_exist_names_the_nearest(store):
    with pytest.raises(UnknownNameError, match="close: framework"):
        levelbench.run("digits", frameworks="numpy", store=store)


@pytest.mark.parametrize("name", ["json", "no_report", "fail_on", "csv_path"])
def test_what_prints_or_ends_a_process_is_no_option(store, name):
    with pytest.raises(UnknownNameError, match=f"'{name}'"):
        levelbench.run("digits", store=store, **{name: True})


@pytest.mark.parametrize(
    ("options", "kind", "found"),
    [
        ({"n": 0}, UsageError, "at least one run"),
        ({"target": "high"}, UsageError, "not a valid float"),
        ({"fresh": "yes"}, UsageError, "True or False"),
        ({"n": 5, "until_clear": True}, UsageError, "itself decides the number of runs"),
        ({"device": "cuda:99"}, MissingError, "cuda:99"),
        ({"framework": "numpi"}, UnknownNameError, "close: numpy"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_impossible_values_are_the_commands_own_errors(store, options, kind, found):
    with pytest.raises(kind, match=found):
        levelbench.run("digits", store=store, progress=False, **options)


def test_a_store_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Choose a folder"):
        levelbench.run("digits", store=tmp_path / "file")


def test_a_report_on_nothing_and_on_a_history_is_refused(tmp_path):
    with pytest.raises(UsageError, match="Run something first"):
        levelbench.report(store=tmp_path / "none")
    with pytest.raises(UsageError, match="Call levelbench report --history"):
        levelbench.report(store=tmp_path, history=True)


@pytest.mark.slow
def test_the_examples_in_the_docstrings_are_right(warm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = doctest.testmod(api)
    assert (found.failed, found.attempted > 8) == (0, True)


def test_import_levelbench_loads_nothing_that_takes_time():
    code = "import sys, levelbench; print([n for n in sys.modules if n.split('.')[0] in ('numpy', 'click', 'msgspec')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_three_verbs_are_listed_among_the_public_names():
    assert {"run", "compare", "report"} <= set(dir(levelbench))
