"""Observers by the words of a command."""

import importlib.util

import pytest

from levelbench.errors import MissingError, UnknownNameError, UsageError
from levelbench.training.observers import KINDS, make, read, run_name


def test_words_are_kinds_and_places():
    assert read(["csv=logs,mistakes=wrong", "statistics=a,b"]) == (
        ("csv", "logs"),
        ("mistakes", "wrong"),
        ("statistics", "a,b"),
    )


def test_no_words_are_no_observers(specification):
    assert make([], specification, "s0-abc") == ()


def test_each_kind_that_needs_no_package_is_made_without_writing(specification, tmp_path):
    words = [f"{kind}={tmp_path / kind}" for kind in ("csv", "mistakes", "statistics")]
    names = [type(each).__name__ for each in make(words, specification, "s0-abc")]
    assert names == ["Tables", "Mistakes", "Statistics"]
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_kind_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="close: tensorboard"):
        read(["tensorbord=events"])


@pytest.mark.parametrize("word", ["csv", "csv=", "csv= "])
def test_a_kind_without_a_place_is_refused(word):
    with pytest.raises(UsageError, match="no place"):
        read([word])


def test_the_same_twice_is_refused():
    with pytest.raises(UsageError, match="twice"):
        read(["csv=logs", "csv=logs"])


@pytest.mark.parametrize("package", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_package_is_named_with_its_extra(package, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingError, match=rf"levelbench\[{package}\]"):
        read([f"{package}=place"])


def test_a_runs_name_is_safe_as_a_file_name(specification):
    import msgspec

    odd = msgspec.structs.replace(specification, task="../../etc/passwd", recipe=".hidden")
    assert run_name(odd, "s0-1") == "etc-passwd-hidden-numpy-s0-1"


def test_every_kind_says_what_its_place_means():
    assert all(":" in text for text in KINDS.values())
