"""levelbench import: from another tool's log to a table, and to what can be said of two sides."""

import gzip
import json

import pytest
from tests.importing.conftest import BEGAN_S, curve, mlflow_folder  # noqa: F401


@pytest.fixture
def sides(mlflow_folder, tmp_path):  # noqa: F811
    """Two folders of MLflow's, of four runs each."""
    for name, tau, offset_s in (("adam", 2.0, 0), ("sgd", 3.0, 50)):
        for seed in range(4):
            points = curve(tau, 1 + seed / 100)
            began_s = BEGAN_S + 100 * seed + offset_s
            mlflow_folder(f"{name}{seed}", points, {"seed": seed}, began_s=began_s, top=tmp_path / name)
    return tmp_path / "adam", tmp_path / "sgd"


WORDS = ("--target", "accuracy=0.9", "--metric", "val/acc", "--task", "cifar")


def test_each_place_is_a_side_with_its_times_and_nothing_is_imported_twice(call, sides, tmp_path):
    code, out, _ = call("import", *sides, *WORDS, "--store", tmp_path / "s", "--csv", tmp_path / "out.csv")
    assert code == 0
    assert "8 of 8 runs imported" in out
    assert "cifar[recipe=sgd]" in out
    assert "some do not say which machine they ran on" in out
    assert (tmp_path / "out.csv").read_text().count("cifar[") == 2
    assert "0 of 8 runs imported" in call("import", *sides, *WORDS, "--store", tmp_path / "s")[1]
    listed = json.loads(call("list", "runs", "cifar[recipe=adam]", "--store", tmp_path / "s", "--json")[1])
    assert len(listed) == 4


def test_folders_whose_names_differ_after_a_dot_are_two_sides(call, sides, tmp_path):
    for old, new in zip(sides, ("lr0.1-s0", "lr0.05-s0"), strict=True):
        old.rename(tmp_path / new)
    words = (*WORDS, "--store", tmp_path / "s", "--json")
    found = json.loads(call("import", tmp_path / "lr0.1-s0", tmp_path / "lr0.05-s0", *words)[1])
    assert {each["recipe"] for each in found["runs"]} == {"lr0.1-s0", "lr0.05-s0"}


def test_a_folder_that_the_store_lies_in_is_imported_again_without_a_complaint(call, sides, tmp_path):
    call("import", *sides, *WORDS, "--store", tmp_path / "s")
    call("list", "runs", "--store", tmp_path / "s")
    assert list((tmp_path / "s").glob(".*.sqlite"))
    code, out, _ = call("import", tmp_path, *WORDS, "--recipe", "adam", "--store", tmp_path / "s")
    assert (code, "not imported" in out) == (0, False)


def test_they_are_compared_where_the_user_says_that_the_machine_is_one(call, sides, tmp_path):
    call("import", *sides, *WORDS, "--store", tmp_path / "s")
    code, out, _ = call(
        "compare", "cifar[recipe=adam]", "cifar[recipe=sgd]", "--across-machines", "--store", tmp_path / "s"
    )
    assert code == 1
    assert "SLOWER" in out
    assert "it was imported" in out


def test_a_run_that_cannot_be_imported_is_told_and_the_others_are_imported(call, sides, tmp_path):
    path = next((tmp_path / "sgd").rglob("acc"))
    path.rename(path.with_name("other"))
    code, out, _ = call("import", *sides, *WORDS, "--store", tmp_path / "s", "--json")
    found = json.loads(out)
    assert code == 4
    assert len(found["runs"]) == 7
    assert "it logs val/other" in found["problems"][0]


def test_a_damaged_log_is_told_and_the_others_are_imported(call, sides, tmp_path):
    for path in (next((tmp_path / "adam").rglob("acc")), *(tmp_path / "sgd").rglob("acc")):
        path.write_text("no time\n")
    code, out, _ = call("import", *sides, *WORDS, "--store", tmp_path / "s", "--json")
    found = json.loads(out)
    assert (code, len(found["runs"]), len(found["problems"])) == (4, 3, 2)
    assert all("is not a time, a value and a step" in each for each in found["problems"])
    assert call("import", tmp_path / "sgd", *WORDS, "--store", tmp_path / "s")[0] == 3


def test_the_last_value_of_a_run_can_be_what_counts(call, mlflow_folder, tmp_path):  # noqa: F811
    place = mlflow_folder("a", [(1.0, 1, 0.5), (2.0, 2, 0.95)])
    (before,) = json.loads(call("import", place, *WORDS, "--store", tmp_path / "s", "--json")[1])["runs"]
    words = (*WORDS, "--crossing", "final", "--store", tmp_path / "s", "--json")
    (after,) = json.loads(call("import", place, *words)[1])["runs"]
    assert (before["reached"], after["reached"], after["time_to_accuracy_s"]) == (False, True, 2.0)


def test_runs_that_did_not_end_by_themselves_are_counted(call, sides, tmp_path):
    metas = sorted((tmp_path / "sgd").rglob("meta.yaml"))
    for path, status in zip(metas, (1, 4, 5), strict=False):
        path.write_text(path.read_text().replace("status: 3", f"status: {status}"))
    code, out, _ = call("import", *sides, *WORDS, "--store", tmp_path / "s")
    assert code == 0
    assert "8 of 8 runs imported" in out
    assert "(1 failed, 2 interrupted)" in out
    shown = call("compare", "cifar[recipe=adam]", "cifar[recipe=sgd]", "--store", tmp_path / "s")[1]
    assert "interrupted and not counted: import the complete logs of them" in " ".join(shown.split())


def test_files_of_hyperfine_are_a_table_of_commands(call, tmp_path):
    for name in ("before", "after"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"results": [{"command": "make", "times": [1.0, 1.1, 1.2]}]}))
    code, out, _ = call("import", tmp_path / "before.json", tmp_path / "after.json", "--store", tmp_path / "s")
    assert code == 0
    assert "make at after" in out
    assert "not interleaved" in out


def test_benchmarks_of_several_files_are_compared_by_name(call, tmp_path):
    for file, factor in (("before", 1.0), ("after", 2.0)):
        suite = [
            {
                "metadata": {"name": name},
                "runs": [
                    # In turns, so that there is a verdict.
                    {"values": [wall_s], "metadata": {"date": f"2026-01-01 12:{3 * at + round(factor):02}:00"}}
                    for at, wall_s in enumerate([factor * slow, factor * slow * 1.01, factor * slow * 0.99] * 3)
                ],
            }
            for name, slow in (("add", 1.0), ("mul", 100.0))
        ]
        (tmp_path / f"{file}.json.gz").write_bytes(gzip.compress(json.dumps({"benchmarks": suite}).encode()))
    words = ("import", tmp_path / "before.json.gz", tmp_path / "after.json.gz", "--store", tmp_path / "s")
    code, out, _ = call(*words, "--json")
    found = json.loads(out)["entries"]
    assert code == 0
    assert [each["name"] for each in found] == ["add at before", "add at after", "mul at before", "mul at after"]
    ratios = [each["verdict"] and each["verdict"]["ratio"] for each in found]
    assert ratios == [None, pytest.approx(2.0), None, pytest.approx(2.0)]
    assert "mul at after" in call(*words)[1]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("x.json", "logs"), "some are benchmarks in JSON"),
        (("x.json", "--target", "accuracy=0.9"), "a benchmark has no quality"),
        (("logs",), "the quality to reach is not stated"),
        (("logs", "--target", "accuracy=0.9"), "it does not exist"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(call, tmp_path, words, found):
    code, _, err = call("import", *words, "--store", tmp_path)
    assert code == 2
    assert found in err
