"""levelbench import: from another tool's log to a table, and to what can be said of two sides."""

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


def test_files_of_hyperfine_are_a_table_of_commands(call, tmp_path):
    for name in ("before", "after"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"results": [{"command": "make", "times": [1.0, 1.1, 1.2]}]}))
    code, out, _ = call("import", tmp_path / "before.json", tmp_path / "after.json", "--store", tmp_path / "s")
    assert code == 0
    assert "make at after" in out
    assert "not interleaved" in out


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
