"""Profiles of steps and rooflines of real work: what a process finds, in this process."""

import numpy as np
import pytest

from levelbench.errors import DefinitionError, UsageError
from levelbench.experiments import profiling, roofline
from levelbench.experiments.request import Options, resolve
from levelbench.measure.roofs import MemoryLevel, RoofRates
from levelbench.networks import zoo
from levelbench.operators.frameworks import open_framework
from levelbench.operators.node import operator_node


@pytest.fixture
def job():
    specification = resolve("digits", {"framework": "numpy"}, Options()).specification
    return profiling.ProfileJob("digits", specification, "", 0, budget_s=0.0)


def test_a_profile_has_the_operators_of_both_passes_and_the_step_as_it_is(job):
    found = profiling.measure_profile(job)
    assert found.steps >= 8
    assert found.forward.keys() == found.backward.keys() == {"Gemm", "Relu", "SoftmaxCrossEntropyLoss"}
    assert min(found.forward_s, found.backward_s, *found.forward.values(), *found.backward.values()) > 0


def test_another_source_than_that_of_the_runs_is_refused(job):
    other = profiling.ProfileJob("digits", job.specification, "0" * 64, 0)
    with pytest.raises(DefinitionError, match="source has changed"):
        profiling.measure_profile(other)


def test_the_sides_take_turns(job, monkeypatch):
    other = profiling.ProfileJob("digits", job.specification, "", 1)
    made = []
    monkeypatch.setattr(profiling, "_profiled", lambda given: made.append(given.seed) or given.seed)
    assert profiling.profile_sides((job, other), 4) == ([0] * 4, [1] * 4)
    assert made == [0, 1, 1, 0, 0, 1, 1, 0]


def test_one_profile_a_side_is_refused(job):
    with pytest.raises(UsageError, match="no spread"):
        profiling.profile_sides((job, job), 1)


@pytest.fixture
def roofs(monkeypatch):
    """Roofs of known rates, at once."""
    levels = (MemoryLevel("L1", 65536.0), MemoryLevel("memory", float("inf")))
    rates = RoofRates({"float32": 1e15}, {"L1": 1e15, "memory": 1e14}, levels)

    class Known:
        def __init__(self, gemms, cores):
            self.levels = levels

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def measure(self):
            return rates

    monkeypatch.setattr(roofline, "Roofs", Known)


@pytest.mark.usefixtures("roofs")
def test_the_shares_of_a_step_are_its_costs_under_the_roofs(job):
    found = roofline.measure_roofline(roofline.RooflineJob(step=job, budget_s=0.0))
    rows = {(row.name, row.direction): row for row in found.rows}
    gemm = rows["Gemm", "forward"]
    # 64 rows, 64 -> 128 -> 10: two operations a multiply-add.
    assert gemm.flops == 2 * 64 * (64 * 128 + 128 * 10)
    # No gradient flows into the examples.
    assert rows["Gemm", "backward"].flops == 2 * 64 * (64 * 128 + 2 * 128 * 10)
    assert gemm.share == pytest.approx(gemm.flops / 1e15 / gemm.time_s, rel=0.2)
    step = rows["training step", "both"]
    assert step.flops == rows["forward pass", "forward"].flops + rows["backward pass", "backward"].flops
    assert 0 < step.share < 1


@pytest.mark.usefixtures("roofs")
def test_steps_follow_each_other_between_two_roofs_as_in_a_run(job, monkeypatch):
    events, known, trained = [], roofline.Roofs, roofline.trainer_of

    class Told(known):
        def measure(self):
            events.append("roofs")
            return super().measure()

    def told(given):
        trainer = trained(given)
        step = trainer.stepper.step
        monkeypatch.setattr(trainer.stepper, "step", lambda *taken: events.append("step") or step(*taken))
        return trainer

    monkeypatch.setattr(roofline, "Roofs", Told)
    monkeypatch.setattr(roofline, "trainer_of", told)
    monkeypatch.setattr(roofline, "_STRETCH_S", 10.0)
    monkeypatch.setattr(roofline, "_MOST_STEPS", 6)
    roofline.measure_roofline(roofline.RooflineJob(step=job, budget_s=0.0))
    between = " ".join(events).split("roofs")
    assert {each.split().count("step") for each in between[2:-1]} == {6}


def test_the_first_half_of_a_row_does_not_count():
    times = iter([9.0, 8.0, *[1.0] * 1000])
    assert roofline._in_a_row(lambda: {"step": next(times)}) == {"step": 1.0}


def test_work_that_takes_long_is_not_repeated(monkeypatch):
    monkeypatch.setattr(roofline, "_STRETCH_S", 0.0)
    times = iter([9.0, 1.0])
    assert roofline._in_a_row(lambda: {"step": next(times)}) == {"step": 9.0}


def test_a_transpose_of_no_cost_is_seen_and_one_that_copies_is_not():
    backend = open_framework("numpy", "cpu")
    node = operator_node("Transpose", ["X"], perm=[1, 0])
    assert roofline._is_view_here(backend, node, (8, 4), "float32")
    copying = operator_node("Neg", ["X"])
    assert not roofline._is_view_here(backend, copying, (8, 4), "float32")


def test_views_are_those_of_the_network_and_of_the_framework():
    network = zoo.build("lenet5") if "lenet5" in zoo.names() else zoo.build(sorted(zoo.names())[0])
    views = roofline.views_of(network, open_framework("numpy", "cpu"), 2)
    named = {network.nodes[at].op_type for at in views}
    assert named <= {"Flatten", "Reshape", "Identity", "Squeeze", "Unsqueeze", "Dropout", "Transpose", "Slice", "Split"}
    assert np.all([why.startswith("a view") for why in views.values()])
