"""A run as CSV."""

import csv

import pytest

from levelbench.errors import StoreError
from levelbench.training.observers.files import Tables


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_evaluations_are_rows_with_quality_loss_and_phases(trained, tmp_path):
    trained(Tables(tmp_path / "new", "run"))
    found = rows(tmp_path / "new" / "run-evaluations.csv")
    assert [row["step"] for row in found] == ["3", "6", "9"]
    assert [row["samples"] for row in found] == ["96", "192", "288"]
    assert all(0 <= float(row["validation"]) <= 1 and float(row["loss"]) > 0 for row in found)
    phases = [key for key in found[0] if key.endswith("_s") and key != "time_s"]
    assert len(phases) == 10
    for row in found:
        assert sum(float(row[key]) for key in phases) == pytest.approx(float(row["time_s"]))


def test_each_step_is_a_row_with_its_time(trained, tmp_path):
    trained(Tables(tmp_path, "run"))
    found = rows(tmp_path / "run-steps.csv")
    assert [int(row["step"]) for row in found] == list(range(1, 10))
    assert all(float(row["time_s"]) > 0 for row in found)
    assert [row["epoch"] for row in found] == ["1.0"] * 3 + ["2.0"] * 3 + ["3.0"] * 3


def test_an_interrupted_run_leaves_whole_evaluations_and_a_draft_of_its_steps(trained, tmp_path):
    class Stops(Tables):
        def on_end(self, progress):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(Stops(tmp_path, "run"))
    assert sorted(each.name for each in tmp_path.iterdir()) == [".run-steps.csv.part", "run-evaluations.csv"]
    assert len(rows(tmp_path / "run-evaluations.csv")) == 3
    assert len(rows(tmp_path / ".run-steps.csv.part")) == 9


def test_a_folder_that_cannot_be_made_is_an_error_before_the_first_step(trained, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"an observer.s file"):
        trained(Tables(tmp_path / "file", "run"))
