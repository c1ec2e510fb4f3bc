"""The figure of curves under a proposed target stands by itself."""

from tests.report.pages import needs_matplotlib

from levelbench.report.analyses import write_target
from levelbench.report.run_figures import AXES, curves_of


@needs_matplotlib
def test_its_colours_are_its_own_and_every_mark_is_named(make, group, tmp_path):
    ((only, records),) = group([make(seed=seed) for seed in range(1, 6)])
    path = write_target(curves_of(only, records, AXES[1]), only.specification, tmp_path / "curves.svg", "proposed")
    text = path.read_text()
    assert "var(" not in text
    assert "currentColor" not in text
    for label in ("proposed target: 0.97", "median of 5 runs", "the middle half of the runs", "(5 of 5 runs)"):
        assert label in text


@needs_matplotlib
def test_runs_that_did_not_confirm_the_target_are_counted(make, group, tmp_path):
    ((only, records),) = group([make(seed=seed, rate=0.01, epochs=1) for seed in (1, 2)])
    curves = curves_of(only, records, AXES[1])
    text = write_target(curves, only.specification, tmp_path / "c.svg", "the task's own").read_text()
    assert "target confirmed (0 of 2 runs)" in text
    assert "the task's own target: 0.97" in text
