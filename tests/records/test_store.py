"""A store finds, orders and reads its runs, whatever other files are there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from tests.records.stores import resealed, seeds

from levelbench.errors import MissingError, RecordError, StoreError, UnknownNameError, UsageError
from levelbench.records import Store, read_folder, read_record
from levelbench.records.searches import Search, SearchedSide


def test_a_store_that_does_not_exist_is_empty_and_is_not_made(tmp_path):
    store = Store(tmp_path / "none")
    assert store.rows() == []
    assert store.records() == []
    assert not store.path.exists()


def test_a_store_that_is_a_file_is_a_clear_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="is a file, not a folder"):
        Store(tmp_path / "file")


def test_records_come_oldest_first_over_folders(fill):
    assert seeds(fill(5).records()) == [0, 1, 2, 3, 4]


def test_summaries_agree_with_rows(fill):
    store = fill(3)
    for summary, row in zip(store.summaries(), store.rows(), strict=True):
        for name in (
            "path",
            "id",
            "key",
            "seed",
            "status",
            "reached",
            "task",
            "settings",
            "target",
            "started",
            "wall_s",
        ):
            assert getattr(summary, name) == getattr(row, name), name
        assert summary.time_to_accuracy_s == row.time_to_accuracy_s
        assert summary.quality == {"validation": row.validation, "test": row.test}


@pytest.fixture
def searched(fill):
    """Four runs, of which the first was a trial of a search, and its id."""
    store = fill(4)
    trial = store.records("digits[seed=0]")[0].header.id
    search = Search("digits", "random", 0, 1, None, [1, 2, 3], [SearchedSide("digits", [], [trial], 1.0)])
    path = search.path_in(store.path, "abc")
    path.parent.mkdir()
    path.write_bytes(search.as_text())
    return store, trial


def test_a_trial_of_a_search_is_not_counted_with_other_runs(searched):
    store, trial = searched
    assert seeds(store.each_counted("digits")) == [1, 2, 3]
    assert store.left_out == {trial}
    assert [run.seed for run in store.summaries()] == [1, 2, 3]
    assert [run.seed for run in store.group("digits").runs] == [1, 2, 3]
    assert seeds(store.records("digits")) == seeds(store.rows("digits")) == [0, 1, 2, 3]


def test_a_trial_of_a_search_is_counted_if_it_is_named_or_alone(searched):
    store, trial = searched
    for word in (trial, f"digits[id={trial}]", str(store.records(trial)[0].path), "digits[seed=0]"):
        assert seeds(store.each_counted(word)) == [0], word
    assert not store.left_out


@pytest.mark.parametrize(
    "word", ["copy", "copy/digits", "copy/digits/DAY", "copy[framework=numpy]", "latest:9", "digits"]
)
def test_a_trial_stays_one_wherever_its_store_was_copied_to(searched, tmp_path, monkeypatch, word):
    store, _ = searched
    shutil.copytree(store.path, tmp_path / "big" / "copy")
    word = word.replace("DAY", store.records()[0].path.parent.name)
    monkeypatch.chdir(tmp_path / "big")
    for around in (tmp_path / "big", tmp_path / "none"):
        if around.exists() or word.startswith("copy"):
            found = seeds(Store(around).each_counted(f"./{word}" if word.startswith("copy") else word))
            assert set(found) == ({1} if "2026" in word else {1, 2, 3})


def test_a_trial_stays_one_where_its_store_is_linked_to(searched, tmp_path):
    store, _ = searched
    (tmp_path / "big").mkdir()
    (tmp_path / "big" / "link").symlink_to(store.path)
    assert seeds(Store(tmp_path / "none").each_counted(f"{tmp_path}/big")) == [1, 2, 3]
    assert seeds(Store(tmp_path / "big").each_counted("digits")) == [1, 2, 3]


def test_a_search_next_to_a_path_counts_only_if_it_names_the_task(searched, tmp_path):
    store, _ = searched
    (store.path / "searches" / "notes.json").write_text("{}")
    found = Store(tmp_path / "none").searches(f"{store.path}/digits/")
    assert [search.task for search in found] == ["digits"]


def test_a_damaged_record_of_a_store_that_was_copied_into_another_is_not_passed_over(fill, tmp_path):
    store = fill(3)
    shutil.copytree(store.path, store.path / "copy")
    path = next((store.path / "copy").rglob("*.jsonl"))
    path.write_bytes(path.read_bytes()[:-40] + b"}\n")
    with pytest.raises(RecordError, match=f"copy.*{path.name}"):
        store.group("digits")
    store.records()
    store.require_readable("other")


def test_a_folder_without_records_is_not_taken_for_the_store(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="the folder empty has no records, and there are no runs in"):
        Store("none").find("empty")
    with pytest.raises(UsageError, match=r"latest.*: there are no runs in none"):
        Store("none").find("latest")


def test_rows_are_selected_ordered_and_limited(fill):
    fill(3, task="other")
    store = fill(6)
    assert seeds(store.rows("digits", order_by="time_to_accuracy_s", limit=2)) == [5, 4]
    assert seeds(store.rows("digits[seed=2]")) == [2]
    assert seeds(store.rows("latest:2")) == [5, 4]
    assert seeds(store.records("latest:2")) == [4, 5]
    assert seeds(store.rows("digits", order_by="seed", descending=True, limit=1)) == [5]
    with pytest.raises(UnknownNameError, match="time_to_accuracy_s"):
        store.rows(order_by="time_to_accuracy")


def test_runs_without_the_figure_to_order_by_come_last(fill, make_header, make_events, make_run):
    store = fill(2)
    make_run(store.path, make_header(seed=9), make_events((0.1,)))
    assert seeds(store.rows(order_by="time_to_accuracy_s")) == [1, 0, 9]
    assert seeds(store.rows(order_by="time_to_accuracy_s", descending=True)) == [0, 1, 9]


def test_an_unreadable_record_never_hides_the_others(fill):
    store = fill(3)
    broken = store.path / "digits" / "2026-03-01" / "broken.jsonl"
    broken.write_text("nonsense\n")
    later = store.path / "later.jsonl"
    later.write_text('{"kind":"header","schema":99}\n')
    assert len(store.records()) == 3
    assert len(store.problems) == 2
    assert all(isinstance(problem, RecordError) for problem in store.problems)
    assert len(store.summaries()) == len(store.rows()) == 3
    records, problems = read_folder(store.path)
    assert (len(records), len(problems)) == (3, 2)
    broken.unlink()
    later.unlink()
    assert store.rows()
    assert store.problems == []


def test_a_nonsensical_record_is_a_problem_and_not_a_crash(fill):
    store = fill(2)
    (path, identity), *_ = [(record.path, record.header.id) for record in store.records()]
    raw = path.read_text()
    path.with_name("clock.jsonl").write_text(raw.replace('"clock":"wall"', '"clock":"moon"', 1))
    path.with_name("large.jsonl").write_text(raw.replace('"seed":0', '"seed":' + "9" * 40, 1))
    path.with_name("huge.jsonl").write_text(raw.replace('"forward":', '"forward":' + "9" * 400, 1))
    os.mkfifo(path.with_name("pipe.jsonl"))
    (path.parent / os.fsdecode(b"caf\xe9.jsonl")).write_bytes(resealed(raw.replace(identity, "cafe0001", 1).encode()))
    assert len(store.rows()) == 3
    assert len(store.problems) == 3


def test_one_returns_the_only_selected_run(fill):
    store = fill(3)
    newest = store.one("latest")
    assert newest.header.seed == 2
    assert store.one(newest.header.id).path == newest.path
    with pytest.raises(UsageError, match="selects 3 runs"):
        store.one("digits")
    assert store.one(str(newest.path)).header == newest.header


def test_a_path_may_be_inside_or_outside_of_the_store(fill, tmp_path):
    inside = fill(2)
    elsewhere = Store(tmp_path / "elsewhere")
    assert len(elsewhere.find(str(inside.path))) == 2
    assert len(elsewhere.find(f"{inside.path}/digits[seed=1]")) == 1
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(RecordError, match="no such file"):
        elsewhere.find("./absent.jsonl")


@pytest.mark.parametrize("count", [1, 2])
def test_a_folder_of_damaged_records_is_named_with_the_reason(fill, tmp_path, count):
    store = fill()
    folder = tmp_path / "moved"
    folder.mkdir()
    for path in [*store.path.rglob("*.jsonl")][:count]:
        (folder / path.name).write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    which = f"{'none of the 2 records' if count > 1 else 'the only record'} in {folder} can"
    with pytest.raises(RecordError, match=f"{which}.*line 1 is damaged: it has no checksum"):
        store.find(f"{folder}/")


def test_finding_nothing_names_close_matches(fill, tmp_path):
    store = fill(1)
    with pytest.raises(UnknownNameError, match="close: digits"):
        store.find("digist")
    with pytest.raises(UnknownNameError, match="close: framework"):
        store.find("digits[framewrk=torch]")
    with pytest.raises(UsageError, match="the only run does not match"):
        store.find("digits[framework=torch]")
    with pytest.raises(UsageError, match="there are no runs"):
        Store(tmp_path / "none").find("latest")


@pytest.mark.parametrize("selector", ["digits", "digits[status=done]"])
def test_a_side_whose_only_run_was_interrupted_says_so_and_what_to_do(tmp_path, make_header, make_run, selector):
    make_run(tmp_path, make_header(), [])
    with pytest.raises(UsageError, match="its only run was interrupted before it had finished") as error:
        Store(tmp_path).group(selector)
    assert "repeat the command that started it" in error.value.do


def test_a_side_of_which_no_run_has_finished_counts_those_that_were_interrupted(tmp_path, make_header, make_run):
    for seed in range(2):
        make_run(tmp_path, make_header(seed=seed), [])
    with pytest.raises(UsageError, match="none of its 2 runs has finished: 2 were interrupted"):
        Store(tmp_path).group("digits")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("digits[framework=numpy]", 0.1),
        ("digits[framework=numpy,hidden=128]", 0.1),
        ("digits[framework=numpy,lr=0.2]", 0.2),
        ("digits[framework=torch]", 0.3),
        ("digits[hidden=128]", None),
        ("[framework=numpy]", None),
        ("latest:3", None),
    ],
)
def test_what_the_words_of_one_side_do_not_set_has_its_default(tmp_path, make_header, make_run, words, meant):
    kinds = [("numpy", 0.1, []), ("numpy", 0.2, ["lr"]), ("torch", 0.3, [])]
    for seed, (framework, lr, chosen) in enumerate(kinds):
        settings = {"lr": lr, "hidden": 128}
        make_run(tmp_path, make_header(seed=seed, framework=framework, settings=settings, chosen=chosen))
    if meant is None:
        with pytest.raises(UsageError, match="kinds"):
            Store(tmp_path).group(words)
    else:
        assert Store(tmp_path).group(words).specification.settings["lr"] == meant


def test_runs_that_differ_in_when_they_are_evaluated_are_selected_by_the_names_that_the_refusal_gives(
    tmp_path, make_header, make_run
):
    for seed, every in enumerate(("1 epoch", "2 epochs")):
        make_run(tmp_path, make_header(seed=seed, evaluate_every=every))
    with pytest.raises(UsageError, match="kinds") as refused:
        Store(tmp_path).group("digits")
    for every in ("1 epoch", "2 epochs"):
        name = f"digits[evaluate_every={every}]"
        assert name in str(refused.value.found)
        assert Store(tmp_path).group(name).specification.evaluate_every == every
    assert Store(tmp_path).group("digits[evaluate_every=1 epoch,budget_s=none]").n == 1


def test_merging_two_stores_is_copying(fill, make_header, make_run, tmp_path):
    store = fill(2)
    assert len(store.rows()) == 2
    make_run(tmp_path / "other", make_header(seed=8))
    shutil.copytree(tmp_path / "other", store.path, dirs_exist_ok=True)
    assert len(store.rows()) == 3


def test_importing_records_imports_neither_numpy_nor_sqlite():
    program = "import sys, levelbench.records; print(sorted({'numpy', 'sqlite3'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_folder_that_cannot_be_listed_is_a_problem_without_an_index_as_well(fill, monkeypatch):
    store = fill(3)

    def closed(folder):
        if str(folder).endswith("2026-03-02"):
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", closed)
    records, problems = read_folder(store.path)
    assert seeds(records) == [0, 1]
    assert ["permission is denied" in str(each) for each in problems] == [True]


def test_a_filter_by_an_unknown_setting_is_refused_with_close_matches(fill):
    store = fill(settings={"lr": 0.1, "hidden": 128})
    with pytest.raises(UnknownNameError, match="hidden"):
        store.require_known("digits[hiden=128]")
    store.require_known("digits[hidden=7]")
    store.require_known("unheard[hiden=7]")


def test_superseded_runs_of_another_folder_are_listed_with_it(tmp_path, make_run, make_header):
    path, _ = make_run(tmp_path / "other", make_header()), make_run(tmp_path / "other", make_header(seed=1))
    Store(tmp_path / "other").supersede([path])
    store = Store(tmp_path / "store")
    assert len(store.rows(str(tmp_path / "other"))) == 1
    assert len(store.rows(str(tmp_path / "other"), with_superseded=True)) == 2


def test_every_copy_of_a_superseded_run_is_superseded(tmp_path, make_run, make_header):
    path, other = make_run(tmp_path / "store", make_header()), make_run(tmp_path / "store", make_header(seed=1))
    identity, left = (read_record(each).header.id for each in (path, other))
    merged = tmp_path / "store" / "merged" / path.name
    merged.parent.mkdir()
    shutil.copy(path, merged)
    store = Store(tmp_path / "store")
    assert {row.id for row in store.rows()} == {identity, left}
    store.supersede([path])
    assert [row.id for row in store.rows()] == [left]
    assert [record.header.id for record in store.records()] == [left]
    assert [record.header.id for record in store.records(str(tmp_path / "store"))] == [left]
    assert store.records(str(merged.parent)) == []
    assert [record.header.id for record in store.superseded()] == [identity]


def test_links_to_folders_are_followed_unless_they_lead_back(fill, tmp_path):
    store = fill(3)
    elsewhere = tmp_path / "disk" / "digits"
    elsewhere.parent.mkdir()
    (store.path / "digits").rename(elsewhere)
    (store.path / "digits").symlink_to(elsewhere, target_is_directory=True)
    (elsewhere / "round").symlink_to(elsewhere.parent, target_is_directory=True)
    (store.path / "back").symlink_to(store.path, target_is_directory=True)
    assert seeds(store.records()) == seeds(store.rows()) == seeds(read_folder(store.path)[0]) == [0, 1, 2]


def test_to_pandas_has_a_column_for_each_setting(fill):
    pytest.importorskip("pandas")
    store = fill(3)
    table, summaries = store.to_pandas("digits"), store.summaries("digits")
    assert list(table["id"]) == [each.id for each in summaries]
    assert list(table["time_to_accuracy_s"]) == [each.time_to_accuracy_s for each in summaries]
    assert list(table["quality.test"]) == [each.quality["test"] for each in summaries]
    for name, value in summaries[0].settings.items():
        assert table[f"setting.{name}"][0] == value


def test_to_arrow_makes_a_setting_of_two_types_text(fill):
    pytest.importorskip("pyarrow")
    fill(1, settings={"hidden": 3})
    store = fill(1, task="other", settings={"hidden": "auto"})
    assert sorted(store.to_arrow().column("setting.hidden").to_pylist()) == ["3", "auto"]


def test_without_pandas_the_error_says_what_to_install(fill, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingError, match="pandas is not installed"):
        fill(1).to_pandas()
