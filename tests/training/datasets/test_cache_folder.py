"""Where downloads are kept, and whether they are allowed."""

import pytest

from levelbench.training.datasets.places import cache_folder, offline


def test_the_environment_sets_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("LEVELBENCH_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "shared"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("LEVELBENCH_CACHE")
    assert cache_folder() == tmp_path / "shared" / "levelbench"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == tmp_path / "home" / ".cache" / "levelbench"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / "home" / ".cache" / "levelbench"


@pytest.mark.parametrize(("value", "is_offline"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_offline_is_a_switch(monkeypatch, value, is_offline):
    monkeypatch.setenv("LEVELBENCH_OFFLINE", value)
    assert offline() is is_offline
