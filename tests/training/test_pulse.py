"""How far a run is, seen from elsewhere: the steps that the trainer counts, through a file that both have."""

import pytest

from levelbench.training.pulse import Pulse


def test_before_the_first_step_there_is_nothing_to_say():
    pulse = Pulse()
    pulse.counts[1] = 100
    assert pulse.text == ""


def test_what_one_counts_another_with_the_same_file_sees(tmp_path):
    own, other = Pulse.at(tmp_path / "steps"), Pulse.at(tmp_path / "steps")
    own.counts[0], own.counts[1] = 812, 4292
    assert other.text == "step 812/4,292"


@pytest.mark.parametrize("place", ["missing/steps", "folder"])
def test_where_nothing_can_be_shared_a_run_still_counts(tmp_path, place):
    (tmp_path / "folder").mkdir()
    pulse = Pulse.at(tmp_path / place)
    pulse.counts[0] = 1
    assert pulse.text == "step 1/0"


def test_a_link_is_not_followed(tmp_path):
    target = tmp_path / "precious"
    target.write_text("text")
    (tmp_path / "steps").symlink_to(target)
    Pulse.at(tmp_path / "steps").counts[0] = 1
    assert target.read_text() == "text"
