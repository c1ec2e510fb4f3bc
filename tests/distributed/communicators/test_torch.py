import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from levelbench.distributed import traffic
from levelbench.distributed.probes.communicators import check_communicator
from levelbench.distributed.sweep import DTYPES, OPERATIONS, require_right
from levelbench.errors import CommunicationError, UnsupportedError, UsageError
from levelbench.measure.clocks import HOST
from levelbench.operators.frameworks import open_framework

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
if not dist.is_gloo_available():
    pytest.skip("this build of PyTorch has no gloo", allow_module_level=True)


def gloo_ranks(size, work: Callable, timeout_s=120.0):
    """``work(communicator)`` on real gloo ranks, each a thread of this process; the results by rank."""
    from levelbench.frameworks.torch.communicator import TorchCommunicator

    store, results, errors, connected = dist.HashStore(), [None] * size, [], threading.Barrier(size)

    def run(rank):
        options = dist.ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=timeout_s)
        options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
        options._threads = 2
        communicator = TorchCommunicator(
            dist.ProcessGroupGloo(store, rank, size, options), "gloo", torch.device("cpu"), timeout_s
        )
        # A rank that ends before another is connected would break that one's connection.
        connected.wait(120)
        try:
            results[rank] = work(communicator)
            communicator.close()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)
            communicator.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if errors:
        raise errors[0]
    return results


@pytest.mark.parametrize("size", [1, 3])
def test_gloo_is_a_communicator(size):
    found = gloo_ranks(size, lambda communicator: check_communicator(communicator, ("numpy", "torch")))
    assert [each for findings in found for each in findings if each.status != "passed"] == []
    assert all(findings for findings in found)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64"])
def test_a_sum_of_each_dtype_is_in_the_tensor_that_was_given(dtype):
    def work(communicator):
        tensor = torch.arange(5).to(getattr(torch, dtype)) + communicator.rank
        assert communicator.all_reduce(tensor) is tensor
        return tensor.double().tolist()

    assert gloo_ranks(3, work) == [[3.0, 6.0, 9.0, 12.0, 15.0]] * 3


@pytest.mark.parametrize("dtype", DTYPES)
def test_gloo_reduces_each_dtype_in_each_way(dtype):
    names = [each for each in OPERATIONS.values() if each.op and not ("int" in dtype and each.op == "mean")]
    backend = open_framework("torch", "cpu")
    gloo_ranks(3, lambda each: [require_right(name, each, backend, 1000, dtype) for name in names])


@pytest.mark.parametrize("dtype", ["int16", "uint16", "bool", "complex64", "float8_e4m3fn"])
def test_gloo_transfers_dtypes_that_it_cannot_add(dtype):
    def work(communicator):
        tensor = torch.tensor([communicator.rank, 1.0, 0.0]).to(getattr(torch, dtype))
        gathered = communicator.all_gather(tensor)
        broadcast = communicator.broadcast(tensor, root=1)
        return [each.to(torch.complex64).real.tolist() for each in (*gathered, broadcast)], tensor.dtype

    expected = [[0.0, 1.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 0.0]], getattr(torch, dtype)
    assert gloo_ranks(2, work) == [expected] * 2


def test_a_sum_that_gloo_lacks_is_refused():
    with pytest.raises(UnsupportedError, match="int16"):
        gloo_ranks(2, lambda communicator: communicator.all_reduce(torch.ones(2, dtype=torch.int16)))


def test_a_transposed_tensor_is_reduced_in_place():
    def work(communicator):
        tensor = torch.arange(6.0).view(2, 3).t()
        assert communicator.all_reduce(tensor) is tensor
        parameter = torch.nn.Parameter(torch.ones(2, 2))
        assert communicator.broadcast(parameter, 0) is parameter
        return tensor.tolist()

    assert gloo_ranks(2, work) == [[[0.0, 6.0], [2.0, 8.0], [4.0, 10.0]]] * 2


def test_numpy_and_jax_arrays_come_back_as_the_same_type():
    jax = pytest.importorskip("jax")

    def work(communicator):
        plain = np.ones((2, 2))[:, ::-1]
        assert communicator.all_reduce(plain) is plain
        frozen = np.ones(2)
        frozen.flags.writeable = False
        half = np.ones(2, ml_dtypes.bfloat16)
        assert communicator.all_reduce(half) is half
        found = communicator.all_reduce(jax.numpy.ones(3))
        return plain.tolist(), communicator.all_reduce(frozen).tolist(), half.tolist(), type(found), found.tolist()

    jax_array = type(jax.numpy.ones(3))
    assert gloo_ranks(2, work) == [([[2.0, 2.0]] * 2, [2.0, 2.0], [2.0, 2.0], jax_array, [2.0, 2.0, 2.0])] * 2


def loopback_bytes():
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split(":")[1].split()[0]) for line in lines if line.strip().startswith("lo:"))


@pytest.mark.skipif(not Path("/proc/net/dev").exists(), reason="the system does not count loopback traffic")
def test_what_gloo_sends_is_what_the_closed_forms_say():
    size, elements = 3, 1 << 17
    operations = {
        "all_reduce": lambda communicator, tensor: communicator.all_reduce(tensor),
        "reduce_scatter": lambda communicator, tensor: communicator.reduce_scatter(tensor),
        "all_gather": lambda communicator, tensor: communicator.all_gather(tensor),
        "broadcast": lambda communicator, tensor: communicator.broadcast(tensor),
        "gather": lambda communicator, tensor: communicator.gather(tensor),
        "all_to_all": lambda communicator, tensor: communicator.all_to_all([tensor] * size),
    }

    def work(communicator):
        found, tensor = {}, torch.zeros(elements)
        for name, operation in operations.items():
            sent = []
            for _ in range(5):
                communicator.barrier()
                before = loopback_bytes()
                communicator.barrier()
                operation(communicator, tensor)
                communicator.barrier()
                sent.append(loopback_bytes() - before)
                communicator.barrier()
            # Other traffic on this machine only adds to it.
            found[name] = min(sent)
        return found

    found = gloo_ranks(size, work)[0]
    for name in operations:
        predicted = sum(getattr(traffic, name)(elements, 4, size, rank).sent_bytes for rank in range(size))
        # Packets have headers, and barriers are messages.
        assert predicted <= found[name] <= 1.08 * predicted + 20_000, name


def test_many_operations_in_progress_end_in_any_order():
    def work(communicator):
        other = 1 - communicator.rank
        sums = [communicator.start_all_reduce(torch.full((1000,), float(at))) for at in range(8)]
        sent = [communicator.start_send(torch.full((1000,), float(at)), other, tag=at) for at in range(4)]
        received = [communicator.start_receive(torch.empty(1000), other, tag=at) for at in range(4)]
        found = [float(each.wait()[0]) for each in reversed(received)]
        found += [float(each.wait()[0]) for each in reversed(sums)]
        for each in sent:
            each.wait()
        return found

    assert gloo_ranks(2, work) == [[3.0, 2.0, 1.0, 0.0, *(2.0 * at for at in reversed(range(8)))]] * 2


def test_polling_a_receive_tells_when_it_is_done():
    def work(communicator):
        if communicator.rank == 0:
            handle = communicator.start_receive(torch.empty(2), 1)
            assert not handle.done()
            communicator.send(torch.ones(1), 1)
            found = handle.wait()
            assert handle.done()
            return found.tolist()
        communicator.receive(torch.empty(1), 0)
        communicator.send(torch.full((2,), 7.0), 0)
        return None

    assert gloo_ranks(2, work)[0] == [7.0, 7.0]


@pytest.mark.slow
def test_waiting_for_a_missing_rank_is_an_error_that_names_the_operation():
    late = threading.Event()

    def work(communicator):
        if communicator.rank == 0:
            with pytest.raises(CommunicationError, match=r"receive from 1 of rank 0 of 2 over gloo.*timeout is 2 s"):
                communicator.receive(torch.empty(2), 1)
            late.set()
            raise KeyError
        assert late.wait(120)
        raise KeyError

    with pytest.raises(KeyError):
        gloo_ranks(2, work, timeout_s=2.0)


def test_a_rank_that_aborts_ends_the_others_and_their_operations():
    def work(communicator):
        if communicator.rank == 1:
            communicator.receive(torch.empty(1), 0)
            communicator.start_all_reduce(torch.ones(1))
            raise KeyError("the first to fail")
        communicator.send(torch.ones(1), 1)
        with pytest.raises(CommunicationError, match="lost"):
            communicator.receive(torch.empty(1), 1)

    began = HOST.now_ns()
    with pytest.raises(KeyError, match="the first to fail"):
        gloo_ranks(2, work)
    assert HOST.now_ns() - began < 5e9


def test_an_invalid_rank_or_tag_is_refused():
    def work(communicator):
        with pytest.raises(UsageError, match="ranks 0 to 0"):
            communicator.send(torch.ones(1), 1)
        with pytest.raises(UsageError, match="itself"):
            communicator.send(torch.ones(1), 0)
        with pytest.raises(UsageError, match="tag -1"):
            communicator.receive_any(torch.ones(1), tag=-1)

    gloo_ranks(1, work)


def test_a_closed_communicator_says_so():
    def work(communicator):
        communicator.close()
        with pytest.raises(UsageError, match="closed"):
            communicator.barrier()

    gloo_ranks(2, work)


class _Work:
    def wait(self):
        return True


class _NcclGroup:
    """Records the calls that a communicator makes of a process group over NCCL."""

    def __init__(self):
        self.calls = []

    def rank(self):
        return 0

    def size(self):
        return 3

    def __getattr__(self, name):
        def call(*_):
            self.calls.append(name)
            return _Work()

        return call


def over_nccl():
    from levelbench.frameworks.torch.communicator import TorchCommunicator

    group = _NcclGroup()
    return TorchCommunicator(group, "nccl", torch.device("cpu"), 5.0), group


@pytest.mark.parametrize("name", ["start_send", "start_receive"])
def test_messages_that_would_wait_for_each_other_are_refused_over_nccl(name):
    communicator, group = over_nccl()
    with pytest.raises(UnsupportedError, match="over nccl"):
        getattr(communicator, name)(torch.zeros(3), 1)
    assert group.calls == []


def test_an_exchange_over_nccl_is_one_group():
    communicator, group = over_nccl()
    communicator.exchange(torch.zeros(3), [1, 2])
    assert group.calls == ["_start_coalescing", "send", "send", "recv", "recv", "_end_coalescing"]


def test_a_rank_can_send_over_nccl_to_one_that_receives():
    communicator, group = over_nccl()
    communicator.send(torch.zeros(3), 1)
    assert group.calls == ["send"]
