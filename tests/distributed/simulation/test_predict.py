"""What a prediction says, of what, and how sure it is."""

import numpy as np
import pytest

from levelbench.distributed.schemes.all_reduce import AllReduce
from levelbench.distributed.schemes.compressed import SparseTopK
from levelbench.distributed.schemes.gossip import Gossip
from levelbench.distributed.schemes.neighbours import Neighbours
from levelbench.distributed.schemes.parameter_server import AsynchronousParameterServer, ParameterServer
from levelbench.distributed.schemes.periodic import LocalSGD
from levelbench.distributed.simulation import predict as predicting
from levelbench.distributed.simulation import running
from levelbench.distributed.simulation.model import Calibrated, Compute, ModelShape, Uncertain
from levelbench.distributed.simulation.networks import Interconnect
from levelbench.distributed.simulation.predict import predict
from levelbench.distributed.simulation.running import simulate, trace_of, work
from levelbench.errors import UsageError

pytest.importorskip("greenlet")

ALPHA, BETA = 1e-5, 1e9
NETWORK = Interconnect(ALPHA, BETA)
MODEL = ModelShape({f"weight {at}": (250, 1000) for at in range(16)})
N = MODEL.nbytes
STEP = Compute(0.1)


def test_a_prediction_says_that_it_is_one_and_how_sure_it_is():
    uncertain = Uncertain(
        Calibrated(0.1, 0.09, 0.12), Calibrated(ALPHA, ALPHA / 2, ALPHA * 2), Calibrated(BETA, 8e8, 1.1e9)
    )
    told = predict(AllReduce(), 8, MODEL, Compute(0.1, batch=32), NETWORK, batch=256, uncertain=uncertain)
    sure = predict(AllReduce(), 8, MODEL, Compute(0.1, batch=32), NETWORK, batch=256)
    assert told.predicted is True
    assert told.step_s.interval.low < told.step_s.value < told.step_s.interval.high
    assert sure.step_s.interval.low == sure.step_s.value == sure.step_s.interval.high
    assert told.sent_bytes == AllReduce().traffic(MODEL.parameters, 4, 8, 0).sent_bytes
    assert 0 < told.efficiency.value < 1


def test_draws_without_replay_spread_too():
    uncertain = Uncertain(compute_s=Calibrated(0.1, 0.09, 0.12))
    scheme = AsynchronousParameterServer()
    told = predict(scheme, 4, MODEL, STEP, NETWORK, batch=3, uncertain=uncertain, draws=8, steps=3)
    assert told.step_s.interval.low < told.step_s.value < told.step_s.interval.high


def test_strong_scaling_shares_the_batch_and_weak_scaling_multiplies_it():
    compute = Compute(0.1, batch=64, fixed_s=0.02)
    strong = predict(AllReduce(), 4, MODEL, compute, Interconnect(0, 1e15), batch=64, draws=0)
    weak = predict(AllReduce(), 4, MODEL, compute, Interconnect(0, 1e15), batch=64, scaling="weak", draws=0)
    assert (strong.batch, weak.batch) == (16, 64)
    assert strong.step_s.value == pytest.approx(0.02 + 0.08 / 4, rel=1e-3)
    assert weak.step_s.value == pytest.approx(0.1, rel=1e-3)
    assert weak.examples_per_s.value == pytest.approx(4 * 64 / 0.1, rel=1e-3)


def test_efficiency_counts_what_more_ranks_do_not_share():
    compute = Compute(0.1, batch=64, update_s=0.02)
    told = predict(AllReduce(), 4, MODEL, compute, Interconnect(0, 1e15), batch=64, draws=0)
    assert told.efficiency.value == pytest.approx(0.12 / (4 * (0.1 / 4 + 0.02)), rel=1e-3)


def test_a_server_is_a_rank_that_efficiency_counts():
    told = predict(ParameterServer(), 2, MODEL, STEP, Interconnect(0, 1e15), batch=8, draws=0)
    assert told.efficiency.value == pytest.approx(0.5, rel=1e-3)


def test_time_to_target_follows_from_the_examples_that_were_given():
    told = predict(
        AllReduce(), 2, MODEL, Compute(0.1, batch=50), Interconnect(0, 1e15), batch=100, examples_to_target=1e6, draws=0
    )
    assert told.time_to_target_s.value == pytest.approx(1e6 / 100 * 0.1, rel=1e-3)


def test_more_ranks_than_examples_are_refused():
    with pytest.raises(UsageError, match="have no example"):
        predict(AllReduce(), 64, MODEL, STEP, NETWORK, batch=32)


@pytest.mark.parametrize(
    "scheme", [AllReduce(bucket_mb=4), LocalSGD(period=2), SparseTopK()], ids=lambda each: each.name
)
def test_where_all_do_the_same_a_few_are_played_and_it_comes_to_the_same(scheme):
    compute = Compute(0.1, 0.02, update_s=0.003)
    run = simulate(scheme, 40, MODEL, compute, NETWORK, steps=4, seed=3)
    trace = trace_of(scheme, 40, MODEL, compute, NETWORK, steps=4)
    assert trace.actions == run.trace.actions
    told = predict(scheme, 40, MODEL, compute, NETWORK, batch=1, scaling="weak", steps=4, draws=0, seed=3)
    assert told.step_s.value == pytest.approx(run.step_s, rel=1e-12)
    assert told.communicate_share == pytest.approx(run.communication_share, rel=1e-6)


@pytest.mark.parametrize(
    "scheme", [AsynchronousParameterServer(), ParameterServer(), Gossip(), Neighbours()], ids=lambda each: each.name
)
def test_where_ranks_send_to_one_another_all_are_played(scheme):
    assert trace_of(scheme, 40, MODEL, STEP, NETWORK, steps=2) is None


@pytest.mark.parametrize("scheme", [AllReduce(), SparseTopK()], ids=lambda each: each.name)
def test_hundreds_of_ranks_cost_no_more_than_a_few_and_their_times(scheme, monkeypatch):
    played = []
    monkeypatch.setattr(
        running, "work", lambda communicator, *rest: played.append(communicator) or work(communicator, *rest)
    )
    told = predict(scheme, 300, MODEL, Compute(0.1, 0.01), NETWORK, batch=1, scaling="weak", steps=2)
    assert len(played) == 8
    assert told.step_s.interval.low < told.step_s.value < told.step_s.interval.high


def test_draws_that_cannot_be_replayed_are_fewer_and_say_so(monkeypatch):
    monkeypatch.setattr(predicting, "_DRAWN_RANK_STEPS", 1)
    uncertain = Uncertain(compute_s=Calibrated(0.1, 0.09, 0.12))
    told = predict(AsynchronousParameterServer(), 4, MODEL, STEP, NETWORK, batch=3, uncertain=uncertain, steps=2)
    assert told.step_s.n == 3
    assert told.step_s.interval.method.startswith("3 draws")
    assert told.efficiency.low < told.efficiency.value < told.efficiency.high


@pytest.mark.parametrize("draws", [3, 8])
def test_the_interval_of_few_draws_holds_another_as_often_as_it_says(draws):
    generator = np.random.default_rng(0)
    held = 0
    for _ in range(500):
        central, another, *drawn = np.exp(0.1 * generator.standard_normal(2 + draws))
        held += another in predicting._estimate([central, *drawn]).interval
    assert held / 500 > 0.93
