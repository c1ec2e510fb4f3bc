"""board export: every format from one folder; what a format cannot say or refuses is said, and stops nothing."""

import csv
import json

import msgspec
import pytest

from levelbench.competition.entries import Author, Hardware, Inference, Submission, SubmittedCurve, SubmittedRun, encode
from levelbench.records.schema import Target


def submission(task="cifar10", quality=0.95, seeds=(0,), seconds=36.0):
    runs = [
        SubmittedRun(SubmittedCurve([seconds, 2 * seconds], [0.9, quality], [1.0, 2.0]), seed=seed) for seed in seeds
    ]
    return Submission(
        schema=1,
        ruleset="dawnbench-1.0",
        task=task,
        mode="training",
        author=Author("A. Author", "a@example.org"),
        submitted="2026-01-02",
        model="ResNet 9",
        framework="PyTorch",
        hardware=Hardware("1 V100"),
        target=Target("top1", 0.94, split="test"),
        clock="dawnbench",
        crossing="first",
        runs=runs,
    )


@pytest.fixture
def board(tmp_path):
    folder = tmp_path / "board"

    def add(name, entry):
        path = folder / entry.task / entry.mode / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(entry))
        return path

    add.folder = folder
    return add


def test_csv_has_a_row_an_entry_with_its_id(call, board, tmp_path):
    board("a", submission())
    board("b", submission("digits"))
    code, out, _ = call("board", "export", "csv", board.folder, "-o", tmp_path / "out")
    assert (code, "wrote 4 files" in out) == (0, True)
    with (tmp_path / "out" / "entries.csv").open(newline="") as file:
        assert [row["entry"] for row in csv.DictReader(file)] == ["cifar10/training/a", "digits/training/b"]


def test_parquet_has_every_point(call, board, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    board("a", submission(seeds=(0, 1)))
    assert call("board", "export", "parquet", board.folder, "-o", tmp_path / "out")[0] == 0
    assert parquet.read_table(tmp_path / "out" / "points.parquet").column("time_s").to_pylist() == [36.0, 72.0] * 2


def test_dawnbench_writes_its_layout_and_lists_what_it_cannot_say(call, board, tmp_path):
    board("a", submission())
    code, out, _ = call("board", "export", "dawnbench", board.folder, "-o", tmp_path / "out")
    stem = tmp_path / "out" / "CIFAR10" / "train" / "A.-Author_ResNet-9_1-V100_PyTorch"
    assert code == 0
    assert "cifar10/training/a: not in this format: runs.seed" in out
    assert json.loads(stem.with_name(f"{stem.name}.json").read_text())["timestamp"] == "2026-01-02"
    assert stem.with_name(f"{stem.name}.tsv").read_text().splitlines()[-1] == "2\t0.02\t95.0"


def test_an_entry_that_a_format_refuses_is_reported_and_the_others_are_written(call, board, tmp_path):
    board("a", submission())
    board("b", submission(quality=0.93))
    code, out, err = call("board", "export", "dawnbench", board.folder, "-o", tmp_path / "out")
    assert (code, "wrote 2 files" in out) == (1, True)
    assert "not written: cifar10/training/b: 0 of its 1 runs reached 0.94" in err


def test_entries_that_would_share_a_file_get_one_each(call, board, tmp_path):
    board("a", submission())
    board("b", submission(seconds=10.0))
    assert call("board", "export", "dawnbench", board.folder, "-o", tmp_path / "out")[0] == 0
    assert len(list((tmp_path / "out").rglob("*.tsv"))) == 2


@pytest.mark.parametrize("entries", [1, 2])
def test_mllog_writes_a_log_a_run_and_no_entry_over_another(call, board, tmp_path, entries):
    for name in "ab"[:entries]:
        board(name, submission(seeds=(0, 1)))
    code, _, err = call("board", "export", "mllog", board.folder, "-o", tmp_path / "out")
    assert (code, err) == (0, "")
    assert len(list((tmp_path / "out").rglob("result_*.txt"))) == 2 * entries


def test_one_submission_may_be_given(call, board, tmp_path):
    path = board("a", submission())
    board("b", submission())
    assert call("board", "export", "dawnbench", path, "-o", tmp_path / "out")[0] == 0
    assert len(list((tmp_path / "out").rglob("*.tsv"))) == 1


def test_a_broken_entry_is_reported_and_ends_in_1_and_the_others_are_written(call, board, tmp_path):
    board("a", submission())
    board("b", submission()).write_text("{")
    code, _, err = call("board", "export", "csv", board.folder, "-o", tmp_path / "out")
    assert code == 1
    assert "not written: cifar10/training/b" in err
    assert len((tmp_path / "out" / "entries.csv").read_text().splitlines()) == 2


def test_a_folder_without_submissions_is_an_error(call, tmp_path):
    code, _, err = call("board", "export", "csv", tmp_path, "-o", tmp_path / "out")
    assert code == 2
    assert "there are no submissions" in err


def test_json_lists_what_was_written_and_lost(call, board, tmp_path):
    board("a", submission())
    _, out, _ = call("board", "export", "dawnbench", board.folder, "-o", tmp_path / "out", "--json")
    found = json.loads(out)
    assert (len(found["written"]), found["problems"]) == (2, [])
    assert found["losses"] == {"cifar10/training/a": ["runs.seed"]}


def test_what_was_imported_is_exported_as_it_was(call, board, tmp_path):
    """Import, export, import: the second import finds nothing to write."""
    board("a", submission(seeds=(None,)))
    for step in ("1", "2"):
        call("board", "export", "dawnbench", board.folder, "-o", tmp_path / step)
        code, out, _ = call("board", "import", "dawnbench", tmp_path / step, "-o", tmp_path / "again")
        assert code == 0
    assert "wrote 0 entries" in out


@pytest.mark.parametrize("kind", ["mllog", "dawnbench"])
def test_what_a_format_has_no_place_for_is_skipped_and_is_not_a_failure(call, board, tmp_path, kind):
    board("a", submission())
    loaded = Inference("server", queries=100, samples=100, duration_s=1.0, throughput_per_s=100.0)
    board("b", msgspec.structs.replace(submission(), mode="inference", runs=[], inference=[loaded]))
    code, out, err = call("board", "export", kind, board.folder, "-o", tmp_path / "out")
    assert (code, err) == (0, "")
    assert "skipped 1 entry: " in out
    assert len([each for each in (tmp_path / "out").rglob("*") if each.suffix in (".txt", ".tsv")]) == 1


def test_a_board_without_any_entry_that_a_format_has_a_place_for_is_a_usage_error(call, board, tmp_path):
    board("a", submission("digits"))
    code, _, err = call("board", "export", "dawnbench", board.folder, "-o", tmp_path / "out")
    assert code == 2
    assert "DAWNBench has no task 'digits'" in err


def test_mllog_lists_what_its_time_means_and_what_it_cannot_say(call, board, tmp_path):
    entry = submission(seeds=(0, 1))
    board("a", msgspec.structs.replace(entry, clock="wall", crossing="confirmed", ruleset="levelbench-1.0"))
    _, out, _ = call("board", "export", "mllog", board.folder, "-o", tmp_path / "out")
    for lost in ("ruleset: levelbench-1.0", "clock: wall", "crossing: confirmed", "author.email"):
        assert f"cifar10/training/a: not in this format: {lost}" in out


def test_an_entry_comes_back_from_mllog_with_the_time_of_its_own_rule(call, board, tmp_path):
    curve = SubmittedCurve([1.0, 2.0, 3.0, 4.0], [0.5, 0.95, 0.95, 0.95])
    entry = msgspec.structs.replace(
        submission(), runs=[SubmittedRun(curve, seed=0, reached=True)], ruleset="levelbench-1.0", clock="wall"
    )
    board("a", msgspec.structs.replace(entry, crossing="confirmed"))
    call("board", "export", "mllog", board.folder, "-o", tmp_path / "out")
    call("board", "import", "mlperf", tmp_path / "out", "-o", tmp_path / "again")
    (path,) = (tmp_path / "again").rglob("*.json")
    again = json.loads(path.read_text())
    assert again["runs"][0]["time_to_target_s"] == 3.0
    assert (again["ruleset"], again["clock"], again["crossing"]) == ("levelbench-1.0", "wall", "confirmed")
