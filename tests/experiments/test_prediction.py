"""What runs that were made say about a step: how much of it shrinks with a rank's part of the batch."""

from types import SimpleNamespace

import pytest

pytest.importorskip("greenlet")

from levelbench.distributed.simulation.model import Compute
from levelbench.distributed.simulation.networks import Interconnect, collective_s
from levelbench.distributed.sweep import SweepPoint
from levelbench.experiments import prediction
from levelbench.experiments.prediction import ToPredict, _with_fixed_part, with_measured_links
from levelbench.experiments.request import Options, resolve
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


def alone(step_ns):
    """A run of one process, whose steps are all forward and backward."""
    return SimpleNamespace(
        header=SimpleNamespace(specification=SimpleNamespace(distribution=None)),
        status="done",
        samples={"step_time": Samples("step_time", "ns", [step_ns] * 5)},
        evaluations=[SimpleNamespace(phases_ns={"forward": 1, "backward": 2})],
    )


def measured_by_two_ranks(monkeypatch, factor):
    """What is asked of two ranks, and the network and times that follow from their collectives.

    A collective of n bytes takes 2 or 1 times alpha + n / 2 / beta, times ``factor(operation, nbytes)``; a scheme 5 ms,
    and a step of one process 8 ms, of which each of 8 ranks computes an eighth before it.
    """
    asked = []

    def measure(job, engine, ranks, on_point, options):
        asked.append((job.communicator, engine.name, ranks, options, [each.before_s for each in job.encodings]))
        messages = {"all-reduce": 2, "all-gather": 1, "all-to-all": 1}
        points = [
            SweepPoint(each, nbytes, (factor(each, nbytes) * messages[each] * (1e-4 + nbytes / 2e8),) * 10, 0, "", "")
            for each in job.operations
            for nbytes in job.sizes
        ]
        own = [SweepPoint(each.operation, each.ranks, (5e-3, 4e-3, 6e-3), 0, "", "") for each in job.encodings]
        return [*points, *own]

    monkeypatch.setattr(prediction, "measure_communicator", measure)
    arm = resolve("digits", {}, Options(framework="numpy"))
    distribution = Distribution(4, "all-reduce", {}, "hosts[rate=1gbit]", "gloo")
    wanted = ToPredict([("top-k", {"ratio": 0.1})], [8], Interconnect(1.0, 1.0, topology="ring"))
    return asked, with_measured_links(wanted, arm, distribution, [alone(8_000_000)], 60.0)


def test_links_are_those_that_two_ranks_measure(monkeypatch):
    asked, found = measured_by_two_ranks(monkeypatch, lambda operation, nbytes: 1.0)
    assert asked == [("gloo", "hosts", 2, {"rate": "1gbit"}, [pytest.approx(1e-3)])]
    assert (found.network.alpha_s, found.network.beta) == (pytest.approx(1e-4), pytest.approx(1e8))
    assert found.network.topology == "ring"
    assert found.links[1].low <= found.network.beta <= found.links[1].high


def test_a_collective_takes_as_long_at_each_size_as_two_ranks_measure(monkeypatch):
    _, found = measured_by_two_ranks(monkeypatch, lambda operation, nbytes: 1.0 + (operation == "all-gather") * nbytes)
    for nbytes in (1 << 10, 1 << 16):
        expected = (1 + nbytes) * (1e-4 + nbytes / 2e8)
        assert collective_s(found.network, "all_gather", nbytes / 2, 2) == pytest.approx(expected)


def test_what_a_scheme_computes_is_what_two_ranks_measure_at_the_same_time(monkeypatch):
    _, found = measured_by_two_ranks(monkeypatch, lambda operation, nbytes: 1.0)
    assert [(name, ranks, each.value) for (name, ranks), each in found.encodings.items()] == [
        ("encoding top-k[ratio=0.1]", 8, 5e-3)
    ]
