"""PyTorch's own data parallelism, on two real ranks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.scheme import Worker
from levelbench.errors import (
    CommunicationError,
    DefinitionError,
    UnknownNameError,
    UnsupportedError,
    UsageError,
)
from levelbench.frameworks.torch.distributed.schemes import DistributedDataParallel, FullyShardedDataParallel
from levelbench.networks import zoo
from levelbench.operators.frameworks import open_framework
from levelbench.training.optimizers.layerwise import Muon
from levelbench.training.optimizers.rules import SGD
from levelbench.training.optimizers.wrappers import Native

torch = pytest.importorskip("torch")
if not torch.distributed.is_gloo_available():
    pytest.skip("this build of PyTorch has no gloo", allow_module_level=True)


NETWORK = zoo.mlp(3, 4, 2).with_loss("cross-entropy").training()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """The results of each of two ranks, by scheme and optimizer."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, str(Path(__file__).with_name("yardstick_rank.py")), str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert ended.returncode == 0, ended.stderr
    return [json.loads((folder / f"result-{rank}.json").read_text()) for rank in range(2)]


started = pytest.mark.slow
"""Tests that need the two ranks, which take seconds to start."""

CONSISTENT = [
    *(f"{name}, momentum" for name in ("all-reduce", "ddp", "ddp-buckets", "ddp-static", "ddp-unused", "fsdp2")),
    *("fsdp2-reshard, momentum", "ddp, adam", "fsdp2, adam", "ddp-native, momentum"),
    *("all-reduce-buckets, momentum", "all-reduce-buckets-native, momentum"),
]


@started
@pytest.mark.parametrize("name", CONSISTENT)
def test_two_ranks_with_parts_of_different_size_are_one_process(ranks, name):
    for found in ranks:
        assert found[name]["distance"] < 1e-6
        assert found[name]["finite"]


@started
@pytest.mark.parametrize("name", [*CONSISTENT, "ddp-fp16, momentum", "ddp-power-sgd, momentum"])
def test_the_ranks_hold_the_same_bits(ranks, name):
    assert all(found[name]["agree"] for found in ranks)


@started
@pytest.mark.parametrize(("name", "most"), [("ddp-fp16, momentum", 1e-2), ("ddp-power-sgd, momentum", 1.0)])
def test_a_hook_changes_the_gradients_and_not_where_they_lead(ranks, name, most):
    assert 1e-6 < ranks[0][name]["distance"] < most
    assert ranks[0][name]["losses"][-1] < 10 * ranks[0]["ddp, momentum"]["losses"][-1]


@started
def test_the_hook_for_bfloat16_is_refused_over_gloo(ranks):
    kind, text = ranks[0]["ddp-bf16, momentum"]["error"]
    assert kind == "UnsupportedError"
    assert "fp16" in text


@started
@pytest.mark.parametrize("name", ["ddp", "fsdp2"])
def test_they_go_on_from_their_state_bit_by_bit(ranks, name):
    assert [found[f"{name}, right"] for found in ranks] == ["", ""]


@started
@pytest.mark.parametrize("name", ["ddp, nothing", "fsdp2, nothing", "fsdp2, of another"])
def test_the_check_finds_that_they_go_on_from_no_state_or_from_that_of_another_rank(ranks, name):
    assert all("in fresh ranks resumed after step 5" in found[name] for found in ranks)


@started
def test_the_state_of_ddp_is_the_same_on_all_ranks(ranks):
    assert [found["ddp, of another"] for found in ranks] == ["", ""]


@pytest.mark.slow
def test_ddp_with_power_sgd_says_why_it_cannot_be_kept():
    from levelbench.frameworks.torch.distributed.steppers import DdpStepper

    stepper = object.__new__(DdpStepper)
    stepper._hook = "none"
    assert stepper.unkept is None
    stepper._hook = "power-sgd"
    assert "does not expose its error feedback" in stepper.unkept


@started
def test_a_peer_that_does_not_come_is_reported_as_a_lost_rank(ranks):
    for kind, text in ranks[0]["lost"]:
        assert kind == "CommunicationError"
        assert "pass through PyTorch's data parallelism" in text
        assert "a rank was lost" in text


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:9", CommunicationError),
        ("mat1 and mat2 shapes cannot be multiplied (4x3 and 2x1)", RuntimeError),
    ],
)
def test_only_what_the_library_says_of_its_peers_is_a_lost_rank(said, kind):
    # It imports PyTorch's compiler, which takes seconds; every worker would do so during collection.
    from levelbench.frameworks.torch.distributed.steppers import WrappedExecutor

    def passing(*inputs):
        raise RuntimeError(said)

    backend = open_framework("torch")
    executor = WrappedExecutor(backend.executor(NETWORK, NETWORK.initialise(0)), passing, {}, lambda: 1.0)
    with pytest.raises(kind) as raised:
        executor.forward()
    assert said in str(raised.value)


def test_whole_parameters_have_no_memory_while_ranks_train_on_shards():
    from levelbench.frameworks.torch.distributed.steppers import WholeArrays, WrappedExecutor

    inner = open_framework("torch").executor(NETWORK, NETWORK.initialise(0))
    whole = WholeArrays(inner.parameters, inner.trained)
    shapes = [each.shape for each in inner.parameters.values()]
    # A tensor of whose memory NumPy has a view cannot be resized.
    views = [each.numpy() for each in inner.parameters.values()]
    executor = WrappedExecutor(inner, lambda: torch.zeros(()), {}, lambda: 1.0, whole=whole)
    executor.forward()
    assert {each.untyped_storage().nbytes() for each in inner.parameters.values()} == {0}
    with pytest.raises(UsageError, match="between evaluations"):
        dict(executor.parameters)
    with pytest.raises(UsageError, match="between evaluations"):
        executor.infer(torch.zeros(1, 3))
    whole.hold()
    executor.parameters.update({name: torch.ones(each.shape) for name, each in executor.parameters.items()})
    assert [each.shape for each in inner.trained.values()] == shapes
    assert all(torch.equal(each, torch.ones_like(each)) for each in inner.trained.values())
    assert len(views) == len(shapes)


@pytest.mark.parametrize("scheme", [DistributedDataParallel(), FullyShardedDataParallel()])
def test_they_are_refused_over_what_is_not_pytorchs(scheme):
    def work(communicator):
        with pytest.raises(UnsupportedError, match="--communicator gloo"):
            scheme.start(Worker(communicator, None, None, SGD(0.1)))

    run_ranks(1, work)


@pytest.mark.parametrize("optimizer", [Muon(0.1), Native("torch.optim.Muon", lr=0.1)])
def test_an_optimizer_that_looks_across_a_parameter_is_refused_by_fsdp2(optimizer):
    from levelbench.frameworks.torch.distributed.steppers import _require_elementwise

    _require_elementwise(SGD(0.1))
    _require_elementwise(Native("torch.optim.AdamW", lr=0.1))
    with pytest.raises(UnsupportedError, match="elementwise"):
        _require_elementwise(optimizer)


def test_settings_that_is_invalid_are_refused():
    with pytest.raises(UnknownNameError, match="fp16"):
        DistributedDataParallel(hook="fp61")
    with pytest.raises(DefinitionError, match="bucket_mb"):
        DistributedDataParallel(bucket_mb=0.0)
    with pytest.raises(DefinitionError, match="PowerSGD"):
        DistributedDataParallel(hook="power-sgd", power_start=1)


def test_ddp_with_a_hook_is_not_one_process():
    assert DistributedDataParallel().consistent
    assert not DistributedDataParallel(hook="fp16").consistent


SHAPES = {"w": (6, 4), "b": (6,), "s": ()}


def test_traffic_is_that_of_a_ring_over_all_gradients():
    plain = DistributedDataParallel().traffic(SHAPES, 4, 2, 0)
    half = DistributedDataParallel(hook="fp16").traffic(SHAPES, 4, 2, 0)
    assert plain.sent_bytes == pytest.approx(31 * 4, abs=4)
    assert half.sent_bytes == pytest.approx(31 * 2, abs=2)
    # 24 elements as factors of 6 + 4, less than half.
    assert DistributedDataParallel(hook="power-sgd").traffic(SHAPES, 4, 2, 0).sent_bytes == pytest.approx(17 * 4, abs=4)
    small = DistributedDataParallel(bucket_mb=62 / 2**20)
    assert small.traffic(SHAPES, 4, 2, 0).messages == 2 * plain.messages


def test_fsdp2_gathers_and_scatters_padded_parts():
    once = FullyShardedDataParallel().traffic(SHAPES, 4, 4, 0)
    twice = FullyShardedDataParallel(reshard=True).traffic(SHAPES, 4, 4, 0)
    part = 2 * 4 + 2 + 1
    assert once.sent_bytes == 2 * 3 * part * 4
    assert twice.sent_bytes == 3 * 3 * part * 4


def test_fsdp2_over_gloo_sends_an_all_reduce_where_it_should_reduce_and_scatter():
    part = 2 * 4 + 2 + 1
    assert FullyShardedDataParallel().traffic_over("gloo", SHAPES, 4, 4, 0).sent_bytes == (1 + 2) * 3 * part * 4
