"""The roofline and the tables of a benchmark of operators."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from msgspec import structs

from levelbench.cli.operator_verb import _code as operator_code
from levelbench.errors import UsageError
from levelbench.measure.statistics import estimate
from levelbench.measure.verdict import verdict
from levelbench.records.benchmark_summary import BenchmarkSummary, Entry
from levelbench.records.benchmarks import Problem, Tensor
from levelbench.records.figures import ArmTotal, CeilingShare
from levelbench.report.drawing import draw
from levelbench.report.operators import (
    ceilings_line,
    details_table,
    problems_table,
    summary_lines,
)
from levelbench.report.optimizers import optimizers_table
from levelbench.report.roofline import RooflinePoint, roofline_points, write_roofline
from levelbench.report.tables import to_text

CEILINGS = {"flop_s": {"float32": {"value": 100e9}}, "bandwidth_b_s": {"triad": {"value": 10e9}}}


def problem(name):
    tensors = (Tensor("A", (8, 8), "float32"), Tensor("B", (8, 8), "float32"))
    return Problem(name, "Gemm", ("A", "B"), ("Y",), tensors, 21, note="a note")


def entry(time_s=1e-3, flops=2e7, moved=1e6, status="measured", reason="", against=None, error=1e-7):
    times = {} if time_s is None else {seed: time_s * (1 + 0.001 * seed) for seed in range(3)}
    return Entry(
        status=status,
        reason=reason,
        times_s=times,
        time=estimate(list(times.values())) if times else None,
        flops=flops,
        bytes=moved,
        errors={"relative": error, "linf": 2e-7} if times else {},
        checked="whole",
        share=CeilingShare(0.2, "compute") if times else None,
        verdict=verdict(list(against.times_s.values()), list(times.values())) if against and times else None,
    )


@pytest.fixture
def summary():
    first = entry()
    rows = (
        (problem("one"), (first, entry(0.5e-3, against=first))),
        (problem("two"), (first, entry(None, status="skipped", reason="a call takes 9 s"))),
        (problem("<three & more>"), (first, entry(2e-3, status="wrong", reason="off at (0, 1)", against=first))),
    )
    total = verdict([1.0, 1.01], [0.5, 0.51])
    return BenchmarkSummary(
        title="suite",
        frameworks=("torch", "jax"),
        rows=rows,
        totals=(
            ArmTotal("torch", {"measured": 3}),
            ArmTotal("jax", {"measured": 1}, 2, total, {"FASTER": 1, "SLOWER": 1}),
        ),
        ceilings=CEILINGS,
        processes=(3, 3),
        cache="hot",
        direction="forward",
        device="cpu",
        level=0.95,
        margin=0.02,
    )


def test_a_point_is_flops_a_byte_against_flops_a_second(summary):
    first = roofline_points(summary)[0]
    assert (first.series, first.name, first.intensity) == ("torch", "one", 20.0)
    assert first.flop_s == pytest.approx(2e10, rel=0.01)


def test_what_was_not_measured_or_is_wrong_is_no_point(summary):
    assert len(roofline_points(summary)) == 4


@pytest.mark.parametrize("ending", [".svg", ".png"])
def test_a_figure_is_written_whole(summary, tmp_path, ending):
    pytest.importorskip("matplotlib")
    path = write_roofline(summary, tmp_path / "new" / f"roof{ending}")
    assert path.stat().st_size > 1000
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_the_drawing_is_valid_shows_the_roofs_and_is_the_same_each_time(summary, tmp_path):
    pytest.importorskip("matplotlib")
    path = write_roofline(summary, tmp_path / "a.svg")
    text = path.read_text()
    ET.fromstring(text)
    assert "<!-- float32, 100 GFLOP/s -->" in text
    assert "<!-- memory, 10 GB/s -->" in text
    assert write_roofline(summary, tmp_path / "b.svg").read_text() == text


def test_names_of_near_points_and_roofs_cover_neither_each_other_nor_points(monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    from levelbench.report import roofline

    boxes, covered = [], []
    place = roofline.place_label

    def placed(axes, text, spots, taken, **style):
        before = list(taken)
        place(axes, text, spots, taken, **style)
        boxes.append(text)
        covered.extend((text, each) for each in before if taken[-1].overlaps(each))

    def onto(figure):
        axes = figure.add_subplot()
        points = [RooflinePoint("a", f"operator {at}", 4 * 1.2**at, 4e10 + 5e9 * at) for at in range(5)]
        roofs = {"float32": 4e10}, {"L1": 2e11, "memory": 2e10}
        roofline.draw_roofline(axes, "x", points, *roofs, ["a"])
        roofline._write_labels(figure, axes, points, *roofs, points)

    monkeypatch.setattr(roofline, "place_label", placed)
    draw(tmp_path / "a.svg", "x", (6.4, 4.4), onto)
    assert len(boxes) == 3 + 5
    assert not covered


def test_another_ending_is_refused(summary, tmp_path):
    with pytest.raises(UsageError, match=r"\.svg or \.png"):
        write_roofline(summary, tmp_path / "roof.pdf")


def test_without_a_point_there_is_no_figure(summary, tmp_path):

    empty = replace(summary, rows=summary.rows[:0])
    with pytest.raises(UsageError, match="no problem with known FLOPs"):
        write_roofline(empty, tmp_path / "roof.svg")
    assert not list(tmp_path.iterdir())


def test_a_row_a_problem_with_time_rate_share_error_and_verdict(summary):
    text = to_text(problems_table(summary), 400)
    row = next(line for line in text.splitlines() if line.startswith("one"))
    assert "FASTER 0.5" in row
    assert "20 c" in row
    assert "1.0e-07" in row


def test_what_was_skipped_says_why_below_the_table(summary):
    text = to_text(problems_table(summary), 400)
    assert "skipped: a call takes 9 s" in text


def test_a_time_of_a_wrong_result_is_shown_as_wrong(summary):
    text = to_text(problems_table(summary), 400)
    assert "WRONG" in next(line for line in text.splitlines() if line.startswith("<three"))
    assert "off at (0, 1)" in text


def test_notes_of_problems_are_told_once(summary):
    assert problems_table(summary).notes.count("a note") == 1


def test_every_error_and_what_was_compared_is_in_the_details(summary):
    table = details_table(summary)
    keys = [column.key for column in table.columns]
    assert {"l1", "l2", "linf", "relative", "ulp", "cosine", "flops", "bytes", "checked"} <= set(keys)
    assert len(table.rows) == 6


def test_a_line_a_framework_counts_and_gives_the_geometric_mean(summary):
    first, second = summary_lines(summary)
    assert first == "torch: 3 measured"
    assert "1 FASTER, 1 SLOWER; geometric mean over 2: " in second
    assert "jax takes 0.502 times as long as torch" in second


def test_a_result_that_nothing_was_compared_with_answers_nothing(summary):
    entries = [replace(each, status="unchecked") for each in summary.rows[0][1]]
    unchecked = replace(summary, rows=((summary.rows[0][0], tuple(entries)), *summary.rows[1:]))
    assert "unchecked" in to_text(problems_table(unchecked), 400)
    assert operator_code(summary) == 1
    only = replace(unchecked, rows=unchecked.rows[:1])
    assert operator_code(only) == 4


def test_the_ceilings_are_one_line():
    assert ceilings_line(CEILINGS) == "ceilings: float32 100 GFLOP/s, memory (triad) 10 GB/s"


def test_the_share_of_an_update_has_no_letter_that_reads_as_a_unit(summary):
    update = structs.replace(problem("update of W"), operator="update")
    entries = tuple(replace(entry(), share=CeilingShare(share, "memory")) for share in (0.057, 0.57))
    shown = to_text(optimizers_table(replace(summary, rows=((update, entries),))))
    assert " 5.7 " in shown
    assert " 57 " in shown
    assert "57 m" not in shown
