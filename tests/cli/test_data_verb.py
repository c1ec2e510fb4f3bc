from __future__ import annotations

import json
import re

import numpy as np
import pytest

from levelbench.training import datasets
from levelbench.training.datasets import Split
from levelbench.training.datasets.base import Dataset
from levelbench.training.datasets.generated import Synthetic
from levelbench.training.datasets.places import FileSource

DIGITS_IMAGES = "359cd13f0f514122884198b78a131df597421cbf5e93a76678fa96fc548f0d96"


class Pets(FileSource):
    """A dataset of one file, which a folder has or a download brings."""

    name = "pets"
    licence = "MIT"
    attribution = "nobody"
    size = "1 file, 8 bytes"
    home = "a shop"
    ways = "buy them"

    def held(self, folder):
        return folder / "pets" if (folder / "pets").is_file() else None

    def download(self, progress):
        from levelbench.training.datasets.places import cache_folder

        path = cache_folder() / "pets" / "pets"
        path.parent.mkdir(parents=True)
        for done in (1, 8):
            progress(done, 8)
        path.write_bytes(bytes([0, 1, 0, 1, 0, 1, 0, 1]))
        return path

    def load(self, folder=None):
        labels = np.frombuffer(self.located(folder).held.read_bytes(), np.uint8).astype(np.int64)
        split = Split.of(np.arange(len(labels), dtype=np.float32)[:, None], labels)
        return Dataset("pets", split, split, split, 2, {"pets": "0" * 64}, "none", "MIT", "a shop")


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    monkeypatch.setenv("LEVELBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LEVELBENCH_DATA", raising=False)
    monkeypatch.delenv("LEVELBENCH_OFFLINE", raising=False)


@pytest.fixture
def pets(monkeypatch):
    monkeypatch.setattr(datasets, "source", lambda name: Pets())
    monkeypatch.setattr("levelbench.training.datasets.source", lambda name: Pets())


def test_list_says_of_each_dataset_whether_it_is_here_and_what_it_lacks(call):
    code, out, _ = call("data", "list", "--json")
    found = {row["name"]: row for row in json.loads(out)["datasets"]}
    assert code == 0
    assert set(found) == set(datasets.names())
    assert found["digits"] | {"here": "here", "lacks": None, "licence": "CC BY 4.0"} == found["digits"]
    assert found["cifar10"]["from"] == "https://www.cs.toronto.edu/~kriz/cifar.html"
    assert found["imagenet"]["here"] is None
    assert "data list imagenet" in found["imagenet"]["lacks"]
    assert found["synthetic"]["here"] == "made on demand"


def test_list_of_one_says_how_it_is_split_and_got(call):
    code, out, _ = call("data", "list", "imagenet")
    assert code == 0
    assert "ILSVRC2012_img_train.tar" in out
    assert "held" not in call("data", "list")[1].split("\n")[0]


def test_list_says_of_data_that_are_not_here_that_they_are_downloaded_when_they_are_used(call, pets):
    code, out, _ = call("data", "list", "pets")
    assert code == 0
    assert "its files: they are downloaded at first use" in out
    assert json.loads(call("data", "list", "pets", "--json")[1])["datasets"][0]["to_download"] == "1 file, 8 bytes"
    call("data", "get", "pets")
    assert "downloaded" not in call("data", "list", "pets")[1]


@pytest.mark.parametrize("action", ["check", "stat", "get"])
@pytest.mark.parametrize("here", [True, False])
def test_a_folder_that_was_named_is_never_replaced_by_another_copy(call, pets, tmp_path, action, here):
    call("data", "get", "pets")
    (tmp_path / "empty").mkdir()
    code, out, err = call("data", action, "pets", "--data", tmp_path / ("empty" if here else "nothing"))
    assert (code, out) == (3, "")
    assert ("its files are not there" if here else "no such file or folder") in err


def test_a_folder_for_data_that_are_bundled_is_refused(call, tmp_path):
    code, _, err = call("data", "check", "digits", "--data", tmp_path)
    assert code == 2
    assert "the folder would be ignored" in err


def test_check_prints_which_folder_it_checked(call, pets, tmp_path, monkeypatch):
    (tmp_path / "pets").write_bytes(bytes([0, 1]))
    assert f"checked: {tmp_path} (--data)\n" in call("data", "check", "pets", "--data", tmp_path)[1]
    call("data", "get", "pets")
    monkeypatch.setenv("LEVELBENCH_DATA", str(tmp_path / "nothing"))
    place = f"{tmp_path}/cache/pets (the cache); LEVELBENCH_DATA ({tmp_path}/nothing) does not have its files"
    assert f"checked: {place}\n" in call("data", "check", "pets")[1]
    assert json.loads(call("data", "check", "pets", "--json")[1])["place"] == place


def test_check_prints_the_checksums_and_says_that_all_is_right(call):
    code, out, _ = call("data", "check", "digits")
    assert code == 0
    assert f"{DIGITS_IMAGES}  digits-images-idx3-ubyte" in out
    assert "1,079 train, 359 validation, 359 test; files and content are correct" in out


def test_check_ends_in_1_where_a_class_is_empty(call, pets, tmp_path):
    (tmp_path / "pets").write_bytes(bytes(8))
    code, out, _ = call("data", "check", "pets", "--data", tmp_path)
    assert code == 1
    assert "fault: the train split has no example of class 1" in out
    code, out, _ = call("data", "check", "pets", "--data", tmp_path, "--json")
    assert (code, len(json.loads(out)["faults"])) == (1, 2)


def test_check_downloads_nothing(call, pets, tmp_path):
    code, _, err = call("data", "check", "pets")
    assert code == 3
    assert "buy them" in err.lower()
    assert not (tmp_path / "cache").exists()


def test_get_brings_the_files_and_says_how_far_it_is(call, pets):
    code, out, err = call("data", "get", "pets")
    assert (code, out) == (0, "pets: the cache\n")
    assert "pets: 0.0 of 0.0 MiB" in err
    assert call("data", "check", "pets")[0] == 0


def test_stat_shows_balance_moments_and_equal_inputs(call):
    code, out, _ = call("data", "stat", "digits")
    assert code == 0
    assert "8     " in out
    assert "chi-squared 0.3049, p = 1" in out
    assert "surplus 0 in train" in out


def test_stat_in_json_has_the_counts(call):
    found = json.loads(call("data", "stat", "digits", "--json")[1])
    assert sum(found["balance"]["train"]["counts"]) == 1079
    assert found["inputs"] == {"shape": [64], "dtype": "float32"}
    assert found["duplicates"]["across"]["train and test"] == 0
    assert not found["synthetic"]


def test_synthetic_data_is_marked(call, monkeypatch):
    small = Synthetic((1, 4, 4), 2, (20, 10, 10))
    monkeypatch.setattr("levelbench.training.datasets.source", lambda name: small)
    assert "synthetic, synthetic: inputs of 1x4x4 uint8" in call("data", "stat", "synthetic")[1]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["lst"], "action of data 'lst'"),
        (["get"], "it names no dataset"),
        (["check", "digit"], "close: digits"),
        (["list", "nothing"], "dataset 'nothing'"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(call, words, found):
    code, _, err = call("data", *words)
    assert code == 2
    assert found in err


def test_sentences_about_a_dataset_fit_a_terminal(call, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", call("data", "stat", "digits")[1]).splitlines()
    assert any(line.startswith("duplicate inputs") for line in lines)
    assert max(map(len, lines)) <= 80
