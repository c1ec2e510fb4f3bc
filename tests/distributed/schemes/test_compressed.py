"""Schemes with compressed gradients: ranks hold the same bits, lossless ones equal all-reduce, and they converge."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.communicators.wrapping import CountingCommunicator
from levelbench.distributed.scheme import Worker
from levelbench.distributed.schemes.all_reduce import AllReduce
from levelbench.distributed.schemes.compressed import BF16, FP16, QSGD, RandomK, Sign, SparseTopK, Threshold
from levelbench.distributed.schemes.power import PowerSGD
from levelbench.errors import DefinitionError, UnsupportedError
from levelbench.operators.frameworks import load_framework
from levelbench.training import Momentum
from levelbench.training.optimizers.rules import SGD

SCHEMES = {
    "top-k": SparseTopK(ratio=0.1),
    "top-k doubling": SparseTopK(ratio=0.1, exchange_by="doubling"),
    "top-k momentum": SparseTopK(ratio=0.1, momentum=0.9, warmup_steps=4),
    "random-k": RandomK(),
    "random-k with feedback": RandomK(error_feedback=True),
    "threshold": Threshold(),
    "qsgd": QSGD(),
    "qsgd pieces": QSGD(levels=15, bucket=64, pieces=True),
    "sign": Sign(),
    "sign means": Sign(scale="means", pieces=True),
    "sign vote": Sign(scale="vote", error_feedback=False),
    "fp16": FP16(),
    "fp16 narrow": FP16(narrow=True),
    "bf16": BF16(),
    "power-sgd": PowerSGD(rank=1),
    "power-sgd cold": PowerSGD(rank=2, warm_start=False, dense_steps=2),
}


@pytest.mark.parametrize("name", SCHEMES)
def test_all_ranks_hold_the_same_bits(training, name):
    results = training.together("numpy", training.network("mlp"), Momentum(0.1, 0.9), 6, SCHEMES[name], 3)
    for first, second in pairwise(results):
        for parameter, value in first.parameters.items():
            assert value.tobytes() == second.parameters[parameter].tobytes(), parameter


@pytest.mark.parametrize("name", ["top-k doubling", "threshold", "qsgd", "sign", "bf16", "power-sgd"])
def test_torch_tensors_hold_the_same_bits_on_all_ranks_too(training, name):
    pytest.importorskip("torch", reason="torch is not installed")
    results = training.together("torch", training.network("mlp"), SGD(0.1), 6, SCHEMES[name], 2)
    assert training.distance(results[0].parameters, results[1].parameters) == 0


@pytest.mark.parametrize(
    ("scheme", "tolerance"),
    [
        (SparseTopK(ratio=1.0), 1e-12),
        (SparseTopK(ratio=1.0, exchange_by="doubling"), 1e-12),
        (RandomK(ratio=1.0), 1e-12),
        (RandomK(ratio=1.0, error_feedback=True), 1e-12),
        (Threshold(threshold=0.0, expected=1.0), 1e-12),
        (Sign(bucket=1), 1e-12),
        (PowerSGD(rank=99, least_ratio=0.0), 1e-10),
        (PowerSGD(dense_steps=99), 1e-12),
        (QSGD(levels=1 << 15, bucket=8, error_feedback=True), 1e-4),
        (FP16(), 1e-3),
        (BF16(), 1e-2),
    ],
    ids=str,
)
def test_with_nothing_left_out_it_equals_one_process(training, scheme, tolerance):
    network = training.network("float64")
    expected = training.alone("numpy", network, Momentum(0.1, 0.9), 10)
    for result in training.together("numpy", network, Momentum(0.1, 0.9), 10, scheme, 3):
        assert training.distance(result.parameters, expected) < tolerance


def test_with_a_ratio_of_one_momentum_correction_is_plain_sgd(training):
    network = training.network("float64")
    # If everything is sent, every velocity is reset: plain SGD.
    expected = training.alone("numpy", network, SGD(0.1), 10)
    for result in training.together("numpy", network, SGD(0.1), 10, SparseTopK(ratio=1.0, momentum=0.9), 2):
        assert training.distance(result.parameters, expected) < 1e-12


def test_momentum_correction_is_that_of_deep_gradient_compression():
    size, ratio, momentum = 20, 0.25, 0.9
    gradients = np.random.default_rng(0).standard_normal((6, size))

    def work(communicator):
        executor = SimpleNamespace(parameters={"weight": np.zeros(size)}, buffers={})
        scheme = SparseTopK(ratio=ratio, momentum=momentum)
        stepper = scheme.start(Worker(communicator, load_framework("numpy").open(), executor, SGD(1.0)))
        for step, gradient in enumerate(gradients, 1):
            stepper.step({"weight": gradient.copy()}, step, 1.0)
        return executor.parameters["weight"]

    # Lin et al. 2018, algorithm 4, on one node.
    velocity, accumulated, weight = np.zeros(size), np.zeros(size), np.zeros(size)
    for gradient in gradients:
        velocity = momentum * velocity + gradient
        accumulated += velocity
        sent = np.abs(accumulated) >= np.sort(np.abs(accumulated))[-int(ratio * size)]
        weight -= np.where(sent, accumulated, 0)
        velocity, accumulated = np.where(sent, 0, velocity), np.where(sent, 0, accumulated)
    np.testing.assert_allclose(run_ranks(1, work)[0], weight, atol=1e-14)


def sent_a_step(training, scheme, ranks, framework="numpy"):
    """Bytes and messages of one step, by rank."""
    counts = []
    for steps in (0, 1):
        counting = {}

        def wrap(communicator, counting=counting):
            counting[communicator.rank] = CountingCommunicator(communicator)
            return counting[communicator.rank]

        training.together(framework, training.network("mlp"), SGD(0.1), steps, scheme, ranks, wrap=wrap)
        totals = [counting[rank].take() for rank in range(ranks)]
        counts.append(np.array([(each.sent_bytes, each.messages) for each in totals]))
    return counts[1] - counts[0]


@pytest.mark.parametrize(
    "name", sorted(set(SCHEMES) - {"threshold", "top-k doubling", "top-k momentum", "power-sgd cold"})
)
def test_a_step_sends_what_the_scheme_declares(training, name):
    ranks = 3
    shapes = {each: value.shape for each, value in training.network("mlp").initialise(0).items()}
    found = sent_a_step(training, SCHEMES[name], ranks)
    expected = [SCHEMES[name].traffic(shapes, 4, ranks, rank) for rank in range(ranks)]
    np.testing.assert_array_equal(found, [(each.sent_bytes, each.messages) for each in expected])


def test_compression_ratio_and_residual_norm_are_noted(training):
    network = training.network("mlp")
    noted = training.together("numpy", network, SGD(0.1), 5, SparseTopK(ratio=0.1), 2)[0].noted
    size = sum(value.size for value in network.initialise(0).values())
    assert noted["compression_ratio"] == ("1", [pytest.approx(size * 4 / (8 * np.ceil(0.1 * size)))])
    assert noted["residual_norm"][1][0] > 0
    without = training.together("numpy", network, SGD(0.1), 5, SparseTopK(error_feedback=False), 2)[0].noted
    assert "residual_norm" not in without
    # How much passes a threshold shows in what is sent.
    assert "compression_ratio" not in training.together("numpy", network, SGD(0.1), 5, Threshold(), 2)[0].noted


def test_compression_is_part_of_communication_and_the_update_is_not(training):
    result = training.together("numpy", training.network("mlp"), SGD(0.1), 2, Sign(), 2)[0]
    assert result.phases[1:] == [training.Phase.COMMUNICATE, training.Phase.UPDATE] * 2


@pytest.mark.parametrize("scheme", [SparseTopK(ratio=0.5), QSGD(), FP16()], ids=str)
def test_16_bit_gradients_are_widened_and_updated_in_their_own_type(scheme):
    def work(communicator):
        counting = CountingCommunicator(communicator)
        executor = SimpleNamespace(parameters={"weight": np.zeros(10, np.float16)}, buffers={})
        stepper = scheme.start(Worker(counting, load_framework("numpy").open(), executor, SGD(1.0)))
        counting.take()
        stepper.share = 0.5
        stepper.step({"weight": np.arange(10).astype(np.float16)}, 1, 1.0)
        return executor.parameters["weight"], counting.take().sent_bytes

    for weight, sent in run_ranks(2, work):
        assert weight.dtype == np.float16
        np.testing.assert_allclose(weight[-5:], -np.arange(5, 10), atol=0.2)
        assert sent == scheme.traffic({"weight": (10,)}, 2, 2, 0).sent_bytes


def test_the_share_falls_to_its_ratio_during_the_warmup():
    scheme = SparseTopK(ratio=0.01, warmup_steps=4)
    ratios = [scheme.exchange(step).compressor.ratio for step in range(1, 7)]
    np.testing.assert_allclose(ratios, [1, 0.01**0.25, 0.1, 0.01**0.75, 0.01, 0.01])


@pytest.mark.parametrize(
    "make",
    [
        lambda: SparseTopK(ratio=0.0),
        lambda: RandomK(ratio=1.5),
        lambda: SparseTopK(exchange_by="pigeon"),
        lambda: SparseTopK(momentum=0.9, error_feedback=False),
        lambda: Threshold(threshold=-1.0),
        lambda: QSGD(levels=0),
        lambda: QSGD(levels=1 << 16),
        lambda: QSGD(levels=7, bucket=512, error_feedback=True),
        lambda: Sign(scale="vote"),
        lambda: Sign(bucket=0),
        lambda: PowerSGD(rank=0),
    ],
)
def test_impossible_settings_are_refused(make):
    with pytest.raises(DefinitionError):
        make()


def test_a_sum_in_bfloat16_is_refused_on_numpy(training):
    with pytest.raises(UnsupportedError, match="narrow=False"):
        training.together("numpy", training.network("mlp"), SGD(0.1), 1, BF16(narrow=True), 2)


def test_digits_are_learnt_nearly_as_well_as_with_full_gradients(training):
    whole = training.accuracy(AllReduce(), 3, 32, 4)
    assert whole > 0.95
    for scheme in (
        SparseTopK(ratio=0.1),
        RandomK(),
        QSGD(levels=7),
        Sign(bucket=32, scale="means"),
        BF16(),
        PowerSGD(rank=2),
    ):
        assert training.accuracy(scheme, 3, 32, 4) > whole - 0.03, scheme
