"""Which of the files that a task reads are its settings: a change of them makes its runs others."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np
import pytest
from tests.experiments.campaigns import NUMPY, Quiet, carry_out, plan_of

from levelbench.experiments import own_code
from levelbench.experiments.own_code import data_digests
from levelbench.experiments.request import resolve
from levelbench.records import group_runs
from levelbench.training import datasets

_RECIPE = """
import json
from pathlib import Path

HERE = Path(__file__).parent
AT_IMPORT


@task.recipe
def reading(epochs: int = 1):
    IN_RECIPE
    return Recipe(zoo.mlp(64, 8, 10), Shuffled(64), Momentum(0.05), epochs=epochs)
"""

_HISTORY = (
    """p = HERE / 'kept.json'; h = json.loads(p.read_text()); h['n'] = h.get('n', 0) + 1; p.write_text(json.dumps(h))"""
)
_ADDED = "f = (HERE / 'kept.json').open('a+'); f.seek(0); f.read(); f.write(' '); f.close()"
_IN_PLACE = "f = (HERE / 'kept.json').open('r+'); h = f.read(); f.write(' '); f.close()"
_MOVED = """p = HERE / 'kept.json'; (HERE / 'new').write_text(p.read_text() + ' '); (HERE / 'new').replace(p)"""
_DEFAULTS = """p = HERE / 'kept.json'; h = {'lr': 1, 'n': 2} | json.loads(p.read_text()); p.write_text(json.dumps(h))"""


@pytest.fixture
def arm(task_with):
    """The arm of a recipe that does more, or of a file that does."""

    def make(line, where="IN_RECIPE"):
        text = _RECIPE.replace(where, line).replace("AT_IMPORT", "").replace("IN_RECIPE", "pass")
        return resolve(task_with(text), {"recipe": "reading"}, NUMPY)

    return make


@pytest.fixture
def runs(store):
    """Runs of an arm, one seed after the other."""

    def make(arm, seeds=(0,)):
        return [carry_out(plan_of([arm], [seed], store), store, None, Quiet())[0, seed] for seed in seeds]

    return make


@pytest.mark.slow
@pytest.mark.parametrize("where", ["AT_IMPORT", "IN_RECIPE"])
@pytest.mark.parametrize("line", [_HISTORY, _ADDED, _IN_PLACE, _MOVED], ids=["history", "a+", "r+", "moved"])
def test_a_history_that_a_run_reads_and_adds_to_is_no_setting(arm, runs, tmp_path, line, where):
    (tmp_path / "kept.json").write_text("{}")
    assert len(group_runs(runs(arm(line, where), (0, 1)))) == 1


@pytest.mark.slow
def test_settings_that_a_run_writes_back_as_they_were_are_settings(arm, runs, store, tmp_path):
    settings = tmp_path / "kept.json"
    settings.write_text(json.dumps({"lr": 1, "n": 2}))
    mine = arm(_DEFAULTS)
    first = runs(mine)[0]
    assert list(first.end.environment_after["settings_files"]) == ["kept.json"]
    assert not plan_of([mine], range(1), store).to_go
    settings.write_text(json.dumps({"lr": 3, "n": 2}))
    assert any("has changed since: kept.json" in line for line in plan_of([mine], range(1), store).lines())


_TABLE = "lr = float((HERE / 'table.csv').read_text().split(',')[1])"


@pytest.mark.slow
def test_a_small_table_that_a_recipe_reads_is_a_setting_and_no_doubt(arm, runs, store, tmp_path):
    (tmp_path / "table.csv").write_text("f,0.2")
    mine = arm(_TABLE)
    first = runs(mine)[0]
    assert list(first.end.environment_after["settings_files"]) == ["table.csv"]
    assert not any("data were read" in each for each in first.end.suspect)
    (tmp_path / "table.csv").write_text("f,3.0")
    assert any("has changed since: table.csv" in line for line in plan_of([mine], range(1), store).lines())


@pytest.mark.slow
def test_a_large_table_that_a_recipe_reads_is_data(arm, runs, tmp_path):
    (tmp_path / "table.csv").write_text("f,0.2" + 70_000 * ",1")
    (first,) = runs(arm(_TABLE))
    assert "settings_files" not in first.end.environment_after
    assert any(
        "data were read while its recipe and network were made (table.csv)" in each for each in first.end.suspect
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("where", ["AT_IMPORT", "IN_RECIPE"])
@pytest.mark.parametrize("name", ["libk.so", "libk.so.1"])
def test_a_run_is_made_again_where_a_library_that_it_loads_was_built_anew(arm, runs, store, tmp_path, where, name):
    def build(value):
        text = f"const char padding[100000] = {{1}}; int k(void) {{ return {value}; }}"
        subprocess.run(["cc", "-shared", "-xc", "-", "-o", tmp_path / name], input=text.encode(), check=True)

    build(1)
    mine = arm(f"import ctypes; ctypes.CDLL(str(HERE / {name!r})).k()", where)
    first = runs(mine)[0]
    assert list(first.end.environment_after["settings_files"]) == [name]
    assert not plan_of([mine], range(1), store).to_go
    build(2)
    assert any(f"has changed since: {name}" in line for line in plan_of([mine], range(1), store).lines())


_POOLED = (
    "import concurrent.futures as f; pool = f.ThreadPoolExecutor(2); list(pool.map(open, [HERE / 'kept.json'] * 3))"
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_settings_that_other_threads_read_for_a_recipe_are_seen(arm, runs, tmp_path):
    (tmp_path / "kept.json").write_text("{}")
    (first,) = runs(arm(_POOLED))
    assert list(first.end.environment_after["settings_files"]) == ["kept.json"]


_FETCHING = """
import threading, time
from pathlib import Path

HERE = Path(__file__).parent


def fetch():
    for _ in range(200):
        (HERE / "label.txt").read_text()
        time.sleep(0.001)


class Fetching(datasets.DatasetSource):
    name = licence = attribution = split_rule = "fetched"

    def lacks(self, folder=None):
        return ""

    def load(self, folder=None):
        threading.Thread(target=fetch, daemon=True).start()
        return datasets.digits.load(folder)


task = Task("fetched", data=Fetching(), quality=Top1(target=0.9))


@task.recipe
def reading(epochs: int = 1):
    time.sleep(0.05)
    return Recipe(zoo.mlp(64, 8, 10), Shuffled(64), Momentum(0.05), epochs=epochs)
"""


_READS_DATA = """
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


def read():
    kept = np.load(HERE / "kept.npz")
    return kept["x"], kept["y"]


task = Task("reads", data=datasets.from_arrays("reads", read), quality=Top1(target=0.9))


@task.recipe
def reading(epochs: int = 1):
    np.load(HERE / "scales.npy")
    return Recipe(zoo.mlp(64, 8, 10), Shuffled(64), Momentum(0.05), epochs=epochs)
"""


@pytest.mark.slow
def test_data_files_that_a_recipe_reads_are_recorded_and_no_file_whose_inputs_are_known(task_with, runs, tmp_path):
    split = datasets.digits.load().train
    np.savez(tmp_path / "kept.npz", x=split.inputs, y=split.labels)
    np.save(tmp_path / "scales.npy", np.ones(9))
    (run,) = runs(resolve(task_with(_READS_DATA), {"recipe": "reading"}, NUMPY))
    assert [*run.end.environment_after["data_read"]] == ["scales.npy"]


@pytest.mark.slow
def test_what_threads_of_the_data_go_on_to_read_is_no_setting(task_with, runs, tmp_path):
    (tmp_path / "label.txt").write_text("7")
    (first,) = runs(resolve(task_with(_FETCHING), {"recipe": "reading"}, NUMPY))
    assert "settings_files" not in first.end.environment_after


def test_a_data_file_is_the_same_wherever_it_lies_and_another_once_a_byte_of_it_changes(tmp_path):
    for name, content in (("a/x.npz", b"1" * 5000), ("b/y.npz", b"1" * 5000), ("b/z.npz", b"1" * 4999 + b"2")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    found = data_digests([tmp_path / each for each in ("a/x.npz", "b/y.npz", "b/z.npz")], tmp_path / "a")
    assert [*found] == ["x.npz", "../b/y.npz", "../b/z.npz"]
    assert found["x.npz"] == found["../b/y.npz"] != found["../b/z.npz"]


def test_of_many_data_files_of_one_kind_the_same_choice_has_digests(tmp_path):
    def digests(count, content=b"1"):
        for at in range(count):
            (tmp_path / f"{at}.npy").write_bytes(content)
        return data_digests([*(tmp_path / f"{at}.npy" for at in range(count)), tmp_path / "more.npz"], tmp_path)

    (tmp_path / "more.npz").touch()
    first, fewer, other = digests(30), digests(28), digests(30, b"2")
    assert len(first) == len(fewer) == 21
    assert len(first.keys() & fewer.keys()) >= 19
    assert [*first] == [*other]
    assert {*first.values()} & {*other.values()} == {first["more.npz"]}


def test_of_a_folder_that_python_path_names_only_the_packages_installed_into_it_are_not_the_users(
    tmp_path, monkeypatch
):
    record = tmp_path / "heavy-1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("../bin/heavy,,\nheavy/__init__.py,sha256=x,1\nheavy_alone.py,,\nheavy-1.0.dist-info/RECORD,,\n")
    monkeypatch.setattr(own_code, "_OTHER_PLACES", (tmp_path,))
    names = ["heavy/deep/net.py", "heavy_alone.py", "mine.py", "mine/net.py"]
    assert [name for name in names if own_code.is_own(tmp_path / name)] == ["mine.py", "mine/net.py"]
