"""What runs that were made say about a step: how much of it shrinks with a rank's part of the batch."""

from types import SimpleNamespace

import pytest

pytest.importorskip("greenlet")

from levelbench.distributed.simulation.model import Compute
from levelbench.distributed.simulation.networks import Interconnect
from levelbench.distributed.sweep import SweepPoint
from levelbench.experiments import prediction
from levelbench.experiments.prediction import ToPredict, _with_fixed_part, with_measured_links
from levelbench.records import Distribution
from levelbench.records.schema import Samples


def team(workers, work_ns, talk_ns=100, suspect=()):
    found = {
        "step_time": Samples("step_time", "ns", [work_ns + talk_ns] * 5),
        "communicate_time": Samples("communicate_time", "ns", [talk_ns] * 5),
    }
    distribution = Distribution(workers, "all-reduce", {}, "process", "gloo")
    return SimpleNamespace(
        header=SimpleNamespace(specification=SimpleNamespace(distribution=distribution)),
        ranks=dict.fromkeys(range(workers), found),
        end=SimpleNamespace(suspect=list(suspect)),
        status="done",
    )


ONE = Compute(mean_s=1000e-9, batch=64)


def test_a_step_of_which_half_stays_when_the_batch_is_halved_is_told():
    """400 ns are fixed and 600 go with the examples: 700 remain of half of them."""
    assert _with_fixed_part(ONE, [team(2, 700)]).fixed_s == pytest.approx(400e-9)


def test_without_runs_on_several_ranks_nothing_is_taken_to_be_fixed():
    assert _with_fixed_part(ONE, []) == ONE


def test_workers_that_share_cores_say_nothing_about_it():
    crowded = team(4, 3000, suspect=["4 ranks share 2 cores, so its times say nothing about scaling"])
    assert _with_fixed_part(ONE, [crowded]) == ONE


def test_the_fixed_part_is_never_more_than_the_step_nor_less_than_nothing():
    assert _with_fixed_part(ONE, [team(2, 1500)]).fixed_s == ONE.mean_s
    assert _with_fixed_part(ONE, [team(2, 100)]).fixed_s == 0


def test_links_are_those_that_two_ranks_measure(monkeypatch):
    """An all-reduce of two ranks is two messages of half the bytes, an all-gather one: 2 alpha + n / beta, and half."""
    asked = []

    def measure(job, engine, ranks, on_point, options):
        asked.append((job.communicator, engine.name, ranks, options))
        messages = {"all-reduce": (2, 1e8), "all-gather": (1, 0.8e8), "all-to-all": (1, 0.5e8)}
        return [
            SweepPoint(each, nbytes, (messages[each][0] * (1e-4 + nbytes / 2 / messages[each][1]),) * 10, 0, "", "")
            for each in job.operations
            for nbytes in job.sizes
        ]

    monkeypatch.setattr(prediction, "measure_communicator", measure)
    distribution = Distribution(4, "all-reduce", {}, "hosts[rate=1gbit]", "gloo")
    wanted = ToPredict([], [8], Interconnect(1.0, 1.0, topology="ring"))
    found = with_measured_links(wanted, distribution, 60.0)
    assert asked == [("gloo", "hosts", 2, {"rate": "1gbit"})]
    assert (found.network.alpha_s, found.network.beta) == (pytest.approx(1e-4), pytest.approx(1e8))
    assert dict(found.network.reached) == {"all_gather": pytest.approx(0.8), "all_to_all": pytest.approx(0.5)}
    assert found.network.topology == "ring"
    assert found.links[1].low <= found.network.beta <= found.links[1].high
