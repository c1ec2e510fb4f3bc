"""The section on ranks of a report."""

import dataclasses
import re
from types import SimpleNamespace

import msgspec
import pytest

from levelbench.cli.reporting import scalings_of
from levelbench.records.schema import Distribution, Samples
from levelbench.records.summary import group_runs
from levelbench.report import run_figures as figures
from levelbench.report.page import report_page, write_csv, write_markdown


def with_ranks(record, ranks, scheme="all-reduce"):
    """The record as one of a team."""
    team = Distribution(ranks, scheme, {}, "process", "gloo")
    specification = msgspec.structs.replace(record.header.specification, distribution=team)
    header = msgspec.structs.replace(record.header, specification=specification, key=f"{ranks}{record.header.key}"[:40])
    steps = Samples("step_time", "ns", [1e6, 2e6])
    talk = Samples("communicate_time", "ns", [2e5, 2e5])
    stale = Samples("staleness", "updates", [0, 1])
    observed = {"step_time": steps, "communicate_time": talk, "staleness": stale}
    return dataclasses.replace(record, header=header, ranks=dict.fromkeys(range(ranks), observed))


@pytest.fixture
def alone(make):
    return [make(seed=seed) for seed in (1, 2)]


@pytest.fixture
def teams(make):
    return [with_ranks(make(seed=seed, speed_s=0.03), 2) for seed in (1, 2, 3)]


def shown(records, monkeypatch=None):
    groups = [(group, [each for each in records if each.header.key == group.key]) for group in group_runs(records)]
    return report_page(groups, [], scalings=scalings_of([group for group, _ in groups], records))


def test_a_report_on_one_process_says_nothing_of_ranks(alone, monkeypatch):
    monkeypatch.setattr(figures, "can_draw", lambda: False)
    assert "<h2>Ranks</h2>" not in shown(alone)


def test_runs_on_two_numbers_of_ranks_have_efficiencies_and_the_table_of_their_ranks(alone, teams, monkeypatch):
    monkeypatch.setattr("levelbench.report.page.can_draw", lambda: False)
    monkeypatch.setattr(figures, "can_draw", lambda: False)
    section = re.search(r"<h2>Ranks</h2>.*?</section>", shown([*alone, *teams]), re.DOTALL)[0]
    for text in ("Scaling of digits", "Parallel efficiency", "efficiency to accuracy", "What the ranks did", "worker"):
        assert text in section
    assert "the run with the median time of 3" in section
    assert section.count("<p>Staleness: updates") == 1


def test_the_tables_of_ranks_are_among_the_files_too(alone, teams, tmp_path):
    records = [*alone, *teams]
    groups = [(group, [each for each in records if each.header.key == group.key]) for group in group_runs(records)]
    paths = {path.name: path for path in write_csv(groups, tmp_path)}
    assert {"digits-ranks.csv", "digits-staleness.csv"} <= paths.keys()
    assert len(paths["digits-ranks.csv"].read_text().splitlines()) == 3
    text = write_markdown(groups, [], tmp_path / "report.md").read_text()
    section = text.split("### Ranks of ")[1]
    typical = sorted(teams, key=lambda each: each.end.t_ns)[1].header
    assert f"Run {typical.id[:8]}, seed {typical.seed}, the run with the median time." in section
    assert "| worker |" in section
    assert text.count("### Ranks of ") == 1


def test_runs_on_one_number_of_ranks_have_no_efficiency(teams, monkeypatch):
    monkeypatch.setattr(figures, "can_draw", lambda: False)
    page = shown(teams)
    assert "<h2>Ranks</h2>" in page
    assert "Parallel efficiency" not in page


def test_what_differs_in_more_than_its_ranks_is_no_scaling(make, teams):
    assert scalings_of(group_runs([make(framework="torch", seed=1), *teams]), teams) == []


def test_the_figure_is_a_drawing_of_the_page(alone, teams):
    pytest.importorskip("matplotlib")
    from levelbench.report.page import scaling_figure

    records = [*alone, *teams]
    (scaled,) = scalings_of(group_runs(records), records)
    drawn = scaling_figure(scaled, "scaling-0")
    assert drawn.svg.startswith("<svg")
    assert "var(--series-0)" in drawn.svg
    assert not re.search(r"(fill|stroke): #0101", drawn.svg)
    assert "2 ranks" in drawn.alt
    warned = SimpleNamespace(title="t", points=(), warnings=("crowded",))
    assert "none is claimed" in scaling_figure(warned, "scaling-1").alt
