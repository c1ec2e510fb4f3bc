"""What a notebook shows of our objects."""

import dataclasses
import subprocess
import sys
from importlib import import_module
from types import SimpleNamespace

import msgspec
import pytest

import levelbench
from levelbench.analysis.comparison import compare
from levelbench.analysis.stability import stability
from levelbench.analysis.why import explain
from levelbench.measure.verdict import verdict
from levelbench.records.summary import group_runs, summarise
from levelbench.report import notebook
from levelbench.report.tables import listing


@pytest.fixture
def groups(make):
    """Two sides of four runs that took turns."""
    made = [make(framework=framework, seed=seed) for framework in ("numpy", "torch") for seed in (1, 2, 3, 4)]
    # Made-up records have no digests.
    return group_runs([msgspec.structs.replace(summarise(each), contradictions=[]) for each in made])


def shown(thing):
    """Its HTML, by the function that is registered for its type."""
    return notebook.SHOWN[type(thing).__module__, type(thing).__name__](thing)


def test_every_type_that_is_registered_exists():
    for module, name in notebook.SHOWN:
        assert isinstance(getattr(import_module(module), name), type)


def test_a_comparison_shows_its_verdict_its_reasons_and_both_sides(groups):
    html = shown(compare(*groups))
    outcome, *_ = compare(*groups).lines()
    assert outcome.split(" [")[0].split("/")[0] in html
    assert "doubt" in html or "why" in html
    assert all(group.label.split("[")[0] in html for group in groups)


def test_a_run_shows_its_facts_phases_and_doubts(make):
    html = shown(summarise(make(suspect=["the machine was busy"])))
    assert "time to accuracy" in html or "reached in" in html
    assert "backward" in html
    assert "doubt: the machine was busy" in html


def test_a_tracked_run_shows_its_record(tmp_path):
    with levelbench.track("mine", target={"accuracy": 0.9}, store=tmp_path, quiet=True) as run:
        run.evaluate(0.5)
    assert "accuracy at least 0.9" in shown(run)


def test_a_record_shows_its_curve_where_it_can_be_drawn(make):
    pytest.importorskip("matplotlib")
    assert "<svg" in shown(make())


def test_without_matplotlib_a_record_shows_its_tables(make, undrawn):
    html = shown(make())
    assert "<svg" not in html
    assert "backward" in html


@pytest.mark.parametrize(
    ("analyse", "says"),
    [
        (lambda groups: stability(groups[0]), "variation"),
        (lambda groups: explain(*groups), "as long as"),
    ],
    ids=["stability", "why"],
)
def test_an_analysis_shows_its_tables_what_it_lacks_and_its_figure(groups, analyse, says):
    pytest.importorskip("matplotlib")
    found = analyse(groups)
    html = shown(found)
    assert says in html
    assert "<svg" in html
    assert all(line.split("'")[0].split("<")[0] in html for line in found.lacks)


def test_a_verdict_shows_its_ratio():
    assert "SLOWER" in shown(verdict([1.0, 1.01, 0.99, 1.0], [2.0, 2.01, 1.99, 2.0]))


def test_no_name_becomes_markup(groups):
    group = dataclasses.replace(groups[0], label="<script>")
    assert "<script>" not in shown(group)
    assert "<script>" not in shown(compare(group, groups[1]))
    assert "<script>" not in shown(listing("t", "<script>", ["a"], [["<script>"]]))


def test_the_types_are_registered_with_a_running_shell(monkeypatch):
    registered = {}
    html = SimpleNamespace(for_type_by_name=lambda module, name, show: registered.update({(module, name): show}))
    shell = SimpleNamespace(display_formatter=SimpleNamespace(formatters={"text/html": html}))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    notebook.register()
    assert registered == notebook.SHOWN


def test_outside_of_a_notebook_nothing_of_a_report_is_imported():
    code = "import sys, levelbench; print('levelbench.report' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_ipython_that_is_imported_and_does_not_run_is_left_alone():
    code = (
        "import sys, types; m = types.ModuleType('IPython'); m.get_ipython = lambda: None; sys.modules['IPython'] = m"
    )
    subprocess.run([sys.executable, "-c", f"{code}; import levelbench"], check=True)
