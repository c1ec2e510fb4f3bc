"""Every planted fault is found by the probe that it is for, and no right task, quality or recipe is accused."""

import pytest
from tests.training.probes.planted_tasks import BY, FAULTY, NOTED, RIGHT

from levelbench.operators.frameworks import open_framework
from levelbench.training.probes.recipe import check_recipe
from levelbench.training.probes.task import check_task


def cases(of):
    """The names; PyTorch's own networks train for as long as they may."""
    return [
        pytest.param(name, marks=[pytest.mark.slow] if case.framework == "torch" else []) for name, case in of.items()
    ]


def findings(case):
    if case.framework == "torch":
        pytest.importorskip("torch")
    task = case.task()
    data = task.data.load()
    backend = open_framework(case.framework, "cpu")
    # Steps of a small network are limited in number long before, also on a busy machine.
    seconds = 1.0 if case.framework == "torch" else 60.0
    reports = (
        check_task(task, data, again=task.data.load),
        check_recipe(task, "planted", data, backend, framework=case.framework, seconds=seconds),
    )
    return [each for report in reports for each in report.findings]


def failures(case):
    found = [each for each in findings(case) if each.status == "failed"]
    assert all(each.do for each in found)
    return {each.probe: each.found for each in found}


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
@pytest.mark.parametrize("name", cases(FAULTY))
def test_a_fault_is_found(name):
    assert BY[name] in failures(FAULTY[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(RIGHT))
def test_what_is_right_is_not_accused(name):
    assert failures(RIGHT[name]) == {}


@pytest.mark.parametrize("name", cases(NOTED))
def test_what_may_be_meant_is_noted(name):
    found = findings(NOTED[name])
    assert any("keeps what was drawn from the seed" in each.found for each in found if each.status == "noted")
    assert not [each for each in found if each.status == "failed"]
