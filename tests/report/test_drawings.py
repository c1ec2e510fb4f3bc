"""Drawings are made whatever a group is called and whatever it took."""

import dataclasses
import re
import warnings
from xml.etree import ElementTree as ET

import pytest
from tests.report.pages import PAYLOADS, Page, needs_matplotlib

from levelbench.report.run_figures import draw_phases, draw_times


@needs_matplotlib
@pytest.mark.parametrize("draw", [draw_phases, draw_times])
def test_no_label_becomes_markup_of_a_drawing(draw, make, group):
    ((only, _),) = group([make(seed=seed) for seed in (1, 2)])
    hostile, plain = (
        Page(draw("drawing", [dataclasses.replace(only, label=label) for label in labels]))
        for labels in (PAYLOADS, ["digits"] * len(PAYLOADS))
    )
    assert hostile.unbalanced == []
    assert {name for name, _ in hostile.elements} ^ {name for name, _ in plain.elements} <= {"tspan"}
    assert {key for _, each in hostile.elements for key in each} <= {key for _, each in plain.elements for key in each}
    assert not re.search(r"[\x00-\x08\x0b-\x1f\ud800-\udfff\u202e]", "".join(hostile.text))


@needs_matplotlib
# The longest label leaves the least room: each scale is drawn beside it, each label beside one scale.
@pytest.mark.parametrize(
    ("label", "scale"),
    [("x", 1.0), ("fashion-mnist", 1.0)]
    + [("fashion-mnist[framework=torch,device=cuda,lr=0.1,a=b]", scale) for scale in (1e-6, 1.0, 40.0, 1e5)],
)
def test_a_single_group_is_drawn_whatever_its_label_and_times(make, group, label, scale, recwarn):
    ((only, _),) = group([make(seed=seed, speed_s=0.045 * scale) for seed in (1, 2)])
    only = dataclasses.replace(only, label=label)
    for drawing in (draw_phases("phases", [only]), draw_times("times", [only])):
        ET.fromstring(drawing)
    assert not recwarn.list


@needs_matplotlib
def test_a_warning_while_drawing_fails_no_report(two_arms, monkeypatch):
    def warns(*_, **__):
        warnings.warn("the axes are too small", UserWarning, stacklevel=1)

    monkeypatch.setattr("levelbench.report.run_figures._rows", warns)
    assert "<svg" in draw_times("times", [two_arms[0][0]])


@pytest.mark.parametrize(
    "title",
    [
        "a training step of digits[recipe=mlp] on numpy, n = 6 processes; bars and bands: 95 % intervals of it",
        "digits[" + ",".join(f"setting_{at}=0.{at}" for at in range(12)) + "]",
        "two lines\nof which the second is one that does not fit into the width of the figure, whatever is done",
    ],
)
def test_a_title_is_broken_into_lines_that_fit_and_loses_no_word(title):
    pytest.importorskip("matplotlib")
    from levelbench.report.drawing import picture

    kept = []

    def onto(figure):
        kept.extend(figure.subplots(1, 2))
        kept[0].set_title(title, loc="left", fontsize=10)
        kept[1].set_title("short")
        figure.suptitle(2 * title)
        kept.append(figure)

    picture(".svg", "x", (6.4, 4.2), onto)
    axes, other, figure = kept
    figure.draw_without_rendering()
    (shown,) = (each for each in axes.get_children() if getattr(each, "get_text", str)() == axes.get_title("left"))
    assert shown.get_window_extent().width <= axes.get_window_extent().width + 1
    (above,) = figure.texts
    assert above.get_window_extent().width <= figure.bbox.width
    assert "".join(axes.get_title("left").split()) == "".join(title.split())
    assert other.get_title() == "short"
