"""Differences of any rank as an image, drawn or in characters."""

import numpy as np
import pytest

from levelbench.errors import UsageError
from levelbench.report.operators import fold, heatmap_text, write_heatmap


@pytest.mark.parametrize(
    ("shape", "image"),
    [
        ((), (1, 1)),
        ((5,), (1, 5)),
        ((3, 4), (3, 4)),
        ((4, 2, 3), (5, 7)),
        ((2, 3, 4, 5), (9, 17)),
        ((2, 2, 3, 4, 5), (19, 17)),
    ],
)
def test_any_rank_is_folded_to_two_axes(shape, image):
    assert fold(np.ones(shape)).image.shape == image


def test_every_value_is_in_the_image_once_and_gaps_are_no_numbers():
    values = np.arange(1.0, 121).reshape(2, 3, 4, 5)
    image = fold(values).image
    assert sorted(image[np.isfinite(image)]) == sorted(values.ravel())


def test_the_axes_are_named():
    folded = fold(np.ones((2, 3, 4, 5)))
    assert (folded.rows, folded.columns) == ("axes 0 | 2", "axes 1 | 3")


def test_an_error_at_a_border_is_seen_at_the_border():
    wrong = np.zeros((4, 10))
    wrong[:, -1] = 0.5
    lines = heatmap_text(wrong).splitlines()
    assert [line.rstrip()[-1] for line in lines[:4]] == ["."] * 4
    assert all(len(line) == 10 for line in lines[:4])


def test_one_error_in_a_large_array_is_not_lost():
    wrong = np.zeros((1000, 3000))
    wrong[777, 1234] = 1
    text = heatmap_text(wrong).splitlines()
    assert sum(line.count(".") + line.count("@") for line in text[:-2]) == 1


def test_larger_errors_have_darker_characters():
    assert heatmap_text(np.array([1e-6, 1e-3, 1.0])).splitlines()[0] == ".+@"


def test_what_is_not_finite_is_marked():
    assert heatmap_text(np.array([0.0, np.inf, 1.0])).splitlines()[0] == " !."


def test_no_difference_is_said():
    assert heatmap_text(np.zeros((3, 3)), "conv") == "conv\nno difference"


def test_an_empty_difference_is_said():
    assert "empty" in heatmap_text(np.zeros((0, 3)))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
@pytest.mark.parametrize("shape", [(), (4,), (3, 4), (2, 3, 4, 5)])
def test_a_picture_is_drawn_of_any_rank(tmp_path, ending, start, shape):
    pytest.importorskip("matplotlib")
    assert write_heatmap(np.ones(shape), tmp_path / "new" / f"map.{ending}", "ones").read_bytes().startswith(start)


@pytest.mark.parametrize("value", [0.0, np.inf, np.nan])
def test_a_picture_is_drawn_of_zeros_and_of_what_is_not_finite(tmp_path, value):
    pytest.importorskip("matplotlib")
    assert write_heatmap(np.full((3, 3), value), tmp_path / "map.png").is_file()


def test_an_empty_difference_has_no_picture(tmp_path):
    with pytest.raises(UsageError, match="empty"):
        write_heatmap(np.zeros((0, 3)), tmp_path / "map.png")


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"\.svg or \.png"):
        write_heatmap(np.ones((3, 3)), tmp_path / "map.jpg")
