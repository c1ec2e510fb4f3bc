"""Whatever became of the runs, a page tells of them, and is not too large."""

import dataclasses
import math

import pytest
from msgspec import structs
from tests.report.pages import Page, compared

from levelbench.records.schema import Target
from levelbench.report.page import report_page


@pytest.mark.slow
def test_failures_and_misses_are_listed_with_their_reasons(one_missed):
    text = report_page(one_missed, [])
    listed = text[text.index("<h2>Failures</h2>") : text.index("<h2>Environment")]
    for expected in ("the loss is not a number", "did not reach the target", "interrupted"):
        assert expected in listed


def test_a_doubt_is_said_once_and_near_the_verdict(one_missed):
    text = report_page(one_missed, [])
    assert text.count("1.7 cores") == 1
    assert text.index("What to know before believing it") < text.index("1.7 cores") < text.index("<h2>Runs</h2>")


def test_what_the_gate_found_stands_below_the_verdict(make, group):
    groups = group([make(framework=name, seed=seed) for name in ("numpy", "torch") for seed in range(2)])
    text = report_page(groups, compared(groups), caveats=["note: not paired by seed"])
    assert text.index('class="verdict') < text.index("note: not paired by seed") < text.index("<h2>digits</h2>")


def test_the_page_of_two_groups_of_twenty_runs_is_below_a_megabyte(make, group):
    groups = group([make(framework=name, seed=seed) for name in ("numpy", "torch") for seed in range(20)])
    assert len(report_page(groups, compared(groups)).encode()) < 1_000_000


@pytest.mark.slow
def test_many_groups_with_long_curves_stay_below_a_megabyte(make, group):
    runs = [make(settings={"lr": lr / 100}, seed=seed, rate=0.01, epochs=120) for lr in range(9) for seed in range(5)]
    assert len(report_page(group(runs), []).encode()) < 1_000_000


def test_a_page_without_runs_is_a_page():
    assert "no runs" in report_page([], [])


def altered(record, **changes):
    return dataclasses.replace(
        record, evaluations=tuple(structs.replace(each, **changes) for each in record.evaluations)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda record: dataclasses.replace(record, evaluations=(), samples={}, measurements=()),
        lambda record: altered(record, quality={"validation": math.nan}),
        lambda record: altered(record, quality={"validation": 0.97}),
        lambda record: altered(record, phases_ns={}, t_ns=0),
        lambda record: altered(record, phases_ns={"unheard-of": 5 * 10**9}, t_ns=5 * 10**9),
        lambda record: dataclasses.replace(record, end=None, status="interrupted"),
    ],
    ids=["no evaluations", "diverged", "level", "no phases", "unknown phase", "interrupted"],
)
def test_a_strange_run_beside_a_good_one_still_makes_a_page(change, make, group):
    parsed = Page(report_page(group([make(seed=1), change(make(seed=2))]), []))
    assert parsed.unbalanced == []
    assert len(parsed.all("figure")) == 4


def test_a_target_that_is_reached_from_above_is_drawn_too(make, group):
    records = []
    for seed in (1, 2):
        record = make(seed=seed)
        target = Target("loss", 0.03, "lower", 0.0, 1.0)
        specification = structs.replace(record.header.specification, target=target)
        record = dataclasses.replace(record, header=structs.replace(record.header, specification=specification))
        records.append(altered(record, quality={"validation": 0.02 + seed / 100}))
    assert "at most 0.03" in report_page(group(records), [])


def test_two_tasks_have_their_own_tables_and_figures(make, group):
    groups = group([make(task=task, seed=seed) for task in ("digits", "fashion-mnist") for seed in (1, 2)])
    text = report_page(groups, [])
    parsed = Page(text)
    assert len(parsed.all("figure")) == 8
    identifiers = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))


def test_an_environment_that_differs_in_a_later_run_is_said(make, group, undrawn):
    later = {"machine": {"cpu": "Another CPU"}}
    text = report_page(group([make(seed=1), make(seed=2, environment=later)]), [])
    assert text.index("Differs between the runs of digits") < text.index("Another CPU")
