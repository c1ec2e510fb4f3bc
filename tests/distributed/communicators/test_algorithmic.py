import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.distributed import traffic
from levelbench.distributed.communicators import collectives
from levelbench.distributed.communicators.algorithmic import FIRST_TAG, Algorithmic
from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.communicators.wrapping import Delays
from levelbench.distributed.packing import pieces, view
from levelbench.distributed.traffic import ALGORITHMS, Algorithms
from levelbench.errors import UnsupportedError, UsageError

CHOICES = [(operation, algorithm) for operation, known in ALGORITHMS.items() for algorithm in known]
TREES = Algorithms("tree", "scatter-gather", "direct", "bruck", "binomial", "binomial", "pairwise", "direct")
REDUCES = ALGORITHMS["all_reduce"]

sizes, lengths, roots = st.integers(1, 9), st.integers(0, 50), st.integers(0, 8)


pytestmark = [pytest.mark.sampled(3), pytest.mark.usefixtures("small")]


def given_by(rank, length):
    return np.arange(length, dtype=np.float32) % 7 + 10 * rank


def perform(talk, operation, length, root):
    """What the operation gives, as a list of arrays."""
    own = given_by(talk.rank, length)
    match operation:
        case "all_reduce" | "reduce_scatter" | "all_gather":
            found = getattr(talk, operation)(own)
        case "broadcast" | "gather":
            found = getattr(talk, operation)(own, root)
        case "scatter":
            arrays = [given_by(rank, length) for rank in range(talk.size)] if talk.rank == root else None
            found = talk.scatter(arrays, np.empty(length, np.float32), root)
        case "all_to_all":
            found = talk.all_to_all([own + 100 * to for to in range(talk.size)])
        case _:
            found = talk.barrier()
    return [] if found is None else [found] if isinstance(found, np.ndarray) else list(found)


def expected(operation, size, rank, length, root):
    all_ = [given_by(each, length) for each in range(size)]
    bounds = pieces(length, size)
    return {
        "all_reduce": [sum(all_)],
        "reduce_scatter": [sum(all_)[bounds[rank] : bounds[rank + 1]]],
        "all_gather": all_,
        "broadcast": [all_[root]],
        "gather": all_ if rank == root else [],
        "scatter": [all_[rank]],
        "all_to_all": [each + 100 * rank for each in all_],
        "barrier": [],
    }[operation]


def closed_form(operation, algorithm, size, rank, length, root):
    if operation == "barrier":
        return traffic.barrier(size, rank, algorithm)
    places = (root,) if operation in ("broadcast", "gather", "scatter") else ()
    return getattr(traffic, operation)(length, 4, size, rank, *places, algorithm)


@pytest.mark.parametrize(("operation", "algorithm"), CHOICES)
@settings(max_examples=10, deadline=None)
@given(sizes, lengths, roots)
def test_every_algorithm_gives_the_right_result_and_sends_what_its_closed_form_says(
    operation, algorithm, size, length, root
):
    root %= size

    def work(communicator):
        talk = Algorithmic(communicator, Algorithms(**{operation: algorithm}))
        return perform(talk, operation, length, root), talk.sent

    for rank, (found, sent) in enumerate(run_ranks(size, work)):
        wanted = expected(operation, size, rank, length, root)
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)
        assert sent == closed_form(operation, algorithm, size, rank, length, root)
        assert isinstance(sent.sent_bytes, int)


@pytest.mark.parametrize("algorithm", REDUCES)
@settings(max_examples=6, deadline=None)
@given(sizes, st.integers(1, 40), st.sampled_from(["sum", "mean"]))
def test_a_sum_has_the_same_bits_on_all_ranks_and_is_right_to_rounding(algorithm, size, length, op):
    values = np.random.default_rng([size, length]).standard_normal((size, length)) * 10.0 ** np.arange(size)[:, None]

    def work(communicator):
        return Algorithmic(communicator, algorithm).all_reduce(values[communicator.rank].copy(), op)

    found = run_ranks(size, work)
    assert len({each.tobytes() for each in found}) == 1
    exact = values.sum(0) / (size if op == "mean" else 1)
    assert np.abs(found[0] - exact).max() <= 1e-14 * np.abs(values).sum(0).max()


@pytest.mark.parametrize("algorithm", REDUCES)
@pytest.mark.parametrize("op", ["sum", "max", "min"])
def test_signs_of_zeros_and_bits_of_nans_are_the_same_on_all_ranks(algorithm, op):
    special = np.array([0x0000_0000, 0x8000_0000, 0x7FC0_0001, 0xFFC0_0002], np.uint32).view(np.float32)

    def work(communicator):
        own = np.tile(np.roll(special, communicator.rank), 9)
        return Algorithmic(communicator, algorithm).all_reduce(own, op).tobytes()

    assert len(set(run_ranks(4, work))) == 1


@pytest.mark.parametrize("algorithms", [Algorithms("halving-doubling"), TREES], ids=["usual", "trees"])
def test_a_communicator_of_algorithms_keeps_its_contract(algorithms, keeps_its_contract):
    keeps_its_contract(5, lambda each: Algorithmic(each, algorithms))


def test_random_delays_change_nothing(keeps_its_contract):
    keeps_its_contract(3, lambda each: Algorithmic(each, "halving-doubling"), delays=Delays(seed=1, most_s=0.0001))


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_native_arrays_come_back_as_the_same_type(framework, keeps_its_contract):
    pytest.importorskip(framework)
    keeps_its_contract(3, Algorithmic, [framework])


@pytest.mark.parametrize("algorithms", [Algorithms(), TREES, *map(Algorithms, REDUCES[1:])], ids=str)
def test_tensors_that_numpy_cannot_view_are_processed_in_place(algorithms, monkeypatch, keeps_its_contract):
    torch = pytest.importorskip("torch")

    def blind(array):
        if isinstance(array, torch.Tensor):
            raise UnsupportedError("a NumPy view", "as if it were on a device", "keep it there")
        return view(array)

    monkeypatch.setattr(collectives, "view", blind)
    keeps_its_contract(3, lambda each: Algorithmic(each, algorithms), ["torch"])


def test_a_parameter_on_a_device_is_written_in_place_despite_autograd(monkeypatch):
    torch = pytest.importorskip("torch")

    def blind(array):
        raise UnsupportedError("a NumPy view", "as if it were on a device", "keep it there")

    def work(communicator):
        parameter = torch.nn.Parameter(torch.full((3, 2), communicator.rank + 1.0).t())
        assert Algorithmic(communicator).all_reduce(parameter) is parameter
        return parameter.tolist()

    monkeypatch.setattr(collectives, "view", blind)
    assert run_ranks(2, work) == [[[3.0] * 3] * 2] * 2


@pytest.mark.parametrize("algorithm", REDUCES)
def test_a_sum_that_overflows_is_infinite_without_a_warning(algorithm):
    found = run_ranks(3, lambda each: Algorithmic(each, algorithm).all_reduce(np.full(4, 3e38, np.float32)))
    assert all(np.isinf(each).all() for each in found)


def test_waiting_for_a_message_advances_a_sum_that_others_wait_for():
    def work(communicator):
        talk = Algorithmic(communicator)
        under_way = talk.start_all_reduce(np.ones(6))
        if talk.rank == 0:
            talk.receive(np.zeros(1), 1)
        total = under_way.wait()
        if talk.rank == 1:
            talk.send(np.zeros(1), 0)
        return total.tolist()

    assert run_ranks(3, work) == [[3.0] * 6] * 3


def test_an_exchange_advances_a_sum_that_others_wait_for():
    def work(communicator):
        talk = Algorithmic(communicator)
        under_way = talk.start_all_reduce(np.ones(6))
        if talk.rank == 1:
            under_way.wait()
        if talk.rank < 2:
            talk.exchange(np.zeros(1), [1 - talk.rank])
        return under_way.wait().tolist() if talk.rank != 1 else [3.0] * 6

    assert run_ranks(3, work) == [[3.0] * 6] * 3


def test_tags_of_the_algorithms_are_refused_for_users():
    with pytest.raises(UsageError, match=f"0 to {FIRST_TAG - 1}"):
        run_ranks(1, lambda each: Algorithmic(each).send(np.zeros(1), 0, FIRST_TAG))


def test_algorithms_may_use_others_whose_tags_begin_later():
    def work(communicator):
        talk = Algorithmic(Algorithmic(communicator, "tree", first_tag=1 << 20))
        neighbours = [each for each in (talk.rank - 1, talk.rank + 1) if 0 <= each < talk.size]
        talk.exchange(np.zeros(1), neighbours)
        return talk.all_reduce(np.ones(6)).tolist()

    assert run_ranks(3, work) == [[3.0] * 6] * 3


def test_a_binomial_scatter_of_different_sizes_is_refused():
    def work(communicator):
        arrays = [np.zeros(rank) for rank in range(2)]
        return Algorithmic(communicator, TREES).scatter(arrays, np.zeros(communicator.rank), communicator.rank)

    with pytest.raises(UsageError, match="only the root knows them"):
        run_ranks(2, work)


def test_a_direct_scatter_supports_different_sizes():
    def work(communicator):
        arrays = [np.full(rank, 1.0 * rank) for rank in range(3)] if communicator.rank == 0 else None
        return Algorithmic(communicator).scatter(arrays, np.zeros(communicator.rank)).tolist()

    assert run_ranks(3, work) == [[], [1.0], [2.0, 2.0]]
