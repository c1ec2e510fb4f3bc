"""A run's progress, seen by another process through a shared file."""

import pytest

from levelbench.training.observers import Pulse


def test_processes_with_the_same_file_share_the_count(tmp_path):
    own, other = Pulse.at(tmp_path / "steps"), Pulse.at(tmp_path / "steps")
    own.counts[0], own.counts[1], own.counts[2] = 812, 4292, 64
    assert other.steps == (812, 4292, 64)


@pytest.mark.parametrize("place", ["missing/steps", "folder"])
def test_a_run_counts_even_if_nothing_can_be_shared(tmp_path, place):
    (tmp_path / "folder").mkdir()
    pulse = Pulse.at(tmp_path / place)
    pulse.counts[0] = 1
    assert pulse.steps == (1, 0, 0)


def test_a_link_is_not_followed(tmp_path):
    target = tmp_path / "precious"
    target.write_text("text")
    (tmp_path / "steps").symlink_to(target)
    Pulse.at(tmp_path / "steps").counts[0] = 1
    assert target.read_text() == "text"


def test_only_a_run_that_trains_is_shown_as_evaluating():
    pulse = Pulse()
    assert pulse.stage("train") == "train"
    pulse.counts[3] = 1
    assert (pulse.stage("train"), pulse.stage("test")) == ("evaluate", "test")
