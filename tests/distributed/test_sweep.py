import ml_dtypes
import numpy as np
import pytest

from levelbench.distributed.communicator import REDUCTIONS
from levelbench.distributed.communicators.algorithmic import Algorithmic
from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.sweep import (
    DTYPES,
    OPERATIONS,
    How,
    Round,
    Timed,
    fit,
    fit_points,
    operands,
    overlap,
    parse_sizes,
    reduced,
    reducing_name,
    require_right,
    rounds_of,
    rule_for,
    sweep,
)
from levelbench.distributed.traffic import ALGORITHMS, Algorithms
from levelbench.errors import CheckFailedError, UnknownNameError, UsageError
from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.measure.clocks import FakeClock
from levelbench.measure.statistics import Estimate, Interval
from levelbench.measure.stopping import FixedCount

pytestmark = pytest.mark.sampled(3)


def swept(size, operations, sizes, clocks=None):
    def work(communicator):
        clock = {} if clocks is None else {"clock": clocks[communicator.rank]}
        return list(sweep(communicator, NumpyBackend(), operations, sizes, FixedCount(8), **clock))

    return run_ranks(size, work)


@pytest.mark.parametrize("size", [2, 3])
def test_every_operation_is_right_and_has_the_same_times_on_all_ranks(size):
    found = swept(size, list(OPERATIONS), [4, 100])
    assert all(each == found[0] for each in found)
    assert {each.operation for each in found[0]} == set(OPERATIONS)
    assert all(time > 0 for each in found[0] for time in each.times_s)


def test_the_slowest_ranks_time_counts():
    # A reading takes twice as long on rank 1's clock, and a measurement is two readings.
    found = swept(2, ["all-reduce"], [4], clocks=[FakeClock(tick_ns=1000), FakeClock(tick_ns=2000)])
    assert found[0][0].times_s == pytest.approx([2e-6] * 8)


def test_a_round_trip_counts_as_two_messages():
    found = swept(2, ["send-receive"], [4], clocks=[FakeClock(tick_ns=1000), FakeClock(tick_ns=1000)])
    assert found[0][0].times_s == pytest.approx([5e-7] * 8)


def test_sizes_are_those_of_the_whole_buffer():
    found = {each.operation: each.nbytes for each in swept(3, list(OPERATIONS), [40])[0]}
    assert found["all-reduce"] == found["broadcast"] == found["reduce-scatter"] == 40
    # Ten elements do not divide into three equal parts: four each.
    assert found["all-gather"] == found["all-to-all"] == found["gather"] == found["scatter"] == 48
    assert found["barrier"] == 0


def test_a_wrong_sum_is_not_timed():
    def work(communicator):
        right = communicator.start_all_reduce

        def wrong(array, op="sum"):
            array += 1.0
            return right(array, op)

        communicator.start_all_reduce = wrong
        require_right(OPERATIONS["all-reduce"], communicator, NumpyBackend(), 64)

    found = r"at 64 bytes of float32, rank \d got \[-?\d.* instead of \[.* from element 0 on"
    with pytest.raises(CheckFailedError, match=found):
        run_ranks(2, work)


REDUCING = [each for each in OPERATIONS.values() if each.op]
WHOLE = [each for each in DTYPES if "int" in each]


def changed(change, operation="all-reduce", dtype="float32", nbytes=64, size=3):
    """Check an all-reduce or reduce-scatter whose result went through ``change(result, op, own)``."""

    def work(communicator):
        for method in ("all_reduce", "reduce_scatter"):
            right = getattr(communicator, method)

            def wrong(array, op="sum", right=right):
                own = array.copy()
                return change(right(array, op), op, own)

            setattr(communicator, method, wrong)
        require_right(OPERATIONS[operation], communicator, NumpyBackend(), nbytes, dtype)

    run_ranks(size, work)


@pytest.mark.parametrize("algorithm", ALGORITHMS["all_reduce"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_algorithm_reduces_every_type_in_every_way(algorithm, dtype):
    algorithms = Algorithms(algorithm, reduce_scatter="direct" if algorithm == "direct" else "ring")

    def work(communicator):
        for each in REDUCING:
            if not (dtype in WHOLE and each.op == "mean"):
                require_right(each, Algorithmic(communicator, algorithms), NumpyBackend(), 100, dtype)

    run_ranks(5, work)


@pytest.mark.parametrize("operation", [each.name for each in REDUCING])
def test_a_rank_that_is_left_out_of_a_reduction_is_found(operation):
    op = OPERATIONS[operation].op

    def work(communicator):
        if communicator.size == 3:
            inner = communicator.start_all_reduce
            neutral = {"sum": 0, "mean": 0, "max": -9, "min": 9, "product": 1}[op]

            def without_the_last(array, op="sum"):
                return inner(array if communicator.rank < 2 else np.full_like(array, neutral), op)

            scatter = communicator.reduce_scatter
            communicator.start_all_reduce = without_the_last
            communicator.reduce_scatter = lambda array, op="sum": scatter(
                array if communicator.rank < 2 else np.full_like(array, neutral), op
            )
        require_right(OPERATIONS[operation], communicator, NumpyBackend(), 400, "float16")

    with pytest.raises(CheckFailedError, match=rf"{operation} on 3 ranks over threads.* at 400 bytes of float16"):
        run_ranks(3, work)


@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize("op", ["sum", "product"])
def test_whole_numbers_that_do_not_wrap_are_found(op, dtype):
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max

    def saturate(result, op, own):
        return np.where(result < (least + most) // 2, least, most).astype(dtype)

    with pytest.raises(CheckFailedError, match=f"of {dtype}"):
        changed(saturate, reducing_name("all-reduce", op), dtype)


def test_double_precision_that_went_through_single_is_found():
    with pytest.raises(CheckFailedError, match="float64"):
        changed(lambda result, op, own: result.astype(np.float32).astype(np.float64), "all-reduce-max", "float64")
    with pytest.raises(CheckFailedError, match="float64"):
        changed(lambda result, op, own: result * (1 + 1e-14), "all-reduce-product", "float64")


@pytest.mark.parametrize("operation", ["all-reduce", "all-reduce-max", "reduce-scatter-product"])
def test_a_result_that_is_no_number_is_found(operation):
    with pytest.raises(CheckFailedError, match="got \\[nan"):
        changed(lambda result, op, own: result * np.nan, operation)


def test_a_result_of_another_type_is_found():
    with pytest.raises(CheckFailedError, match=r"an array of float64 \(16,\) instead of float32 \(16,\)"):
        changed(lambda result, op, own: result.astype(np.float64))


@pytest.mark.parametrize("size", [2, 9, 40])
def test_roundings_in_any_order_are_no_fault(size):
    """Numbers of many ranks, joined in bfloat16 from the last to the first."""
    for op in REDUCTIONS:
        kind = np.dtype(ml_dtypes.bfloat16)
        given = [operands(op, kind, size, rank, 500) for rank in range(size)]
        found = given[-1].copy()
        for each in given[-2::-1]:
            found = getattr(np, REDUCTIONS[op])(found, each)
        if op == "mean":
            found = (found / kind.type(size)).astype(kind)
        right, room = reduced(op, kind, size, 500)
        assert (np.abs(found.astype(np.float64) - right) <= room).all(), op


def test_a_fault_at_one_size_is_found_there():
    def work(communicator):
        right = communicator.all_gather

        def wrong(array):
            found = right(array)
            if array.nbytes > 1000 and array.dtype == np.float32:
                found[1][-1] += 1
            return found

        communicator.all_gather = wrong
        return list(sweep(communicator, NumpyBackend(), ["all-gather"], [64, 4096], FixedCount(8)))

    with pytest.raises(CheckFailedError, match="at 4,096 bytes"):
        run_ranks(2, work)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_of_an_element_is_checked_and_timed(dtype):
    names = [each for each in OPERATIONS if not ("int" in dtype and each.endswith("-mean"))]

    def work(communicator):
        return list(sweep(communicator, NumpyBackend(), names, [64], FixedCount(8), how=How(dtype)))

    found = run_ranks(3, work)[0]
    assert [each.operation for each in found] == names
    assert {each.nbytes for each in found if each.operation == "all-reduce"} == {64}


def test_a_window_counts_its_64_messages():
    found = swept(2, ["window"], [4], clocks=[FakeClock(tick_ns=64_000), FakeClock(tick_ns=64_000)])
    assert found[0][0].times_s == pytest.approx([1e-6] * 8)


def test_out_of_place_leaves_the_argument_as_it_was():
    def work(communicator):
        kept = []
        whole = communicator.all_reduce

        def watched(array, op):
            kept.append(array)
            return whole(array, op)

        communicator.all_reduce = watched
        list(sweep(communicator, NumpyBackend(), ["all-reduce"], [64], FixedCount(8), how=How(copy=True)))
        # The first call is of the check; how many are timed depends on the warm-up.
        return len({id(each) for each in kept[1:]}) == len(kept[1:]) >= 8

    assert run_ranks(2, work) == [True, True]


def test_a_budget_is_shared_between_points():
    assert "0.5 s" in rule_for(5.0, 10).check(Progressed()).text


class Progressed:
    values = np.full(4, 1e-3)
    elapsed_s = 0.1


def test_an_unknown_operation_is_refused():
    with pytest.raises(UnknownNameError, match="all-reduce"):
        swept(1, ["all-reduc"], [4])


@pytest.mark.parametrize("operation", ["send-receive", "bidirectional", "window"])
def test_a_single_rank_cannot_send(operation):
    with pytest.raises(UsageError, match="two ranks"):
        swept(1, [operation], [4])


MS = 1_000_000


class Later:
    """A handle that is done a millisecond after it was made, or only after waiting that long."""

    def __init__(self, clock, hidden):
        self.clock, self.hidden, self.until_ns = clock, hidden, clock.now_ns() + MS

    def wait(self):
        self.clock.advance(max(0, self.until_ns - self.clock.now_ns()) if self.hidden else MS)


@pytest.mark.parametrize(("hidden", "share"), [(True, 1.0), (False, 0.0)])
def test_overlap_is_the_share_that_hides_behind_computation(hidden, share):
    clock = FakeClock()

    def work(communicator):
        return overlap(communicator, lambda: [Later(clock, hidden)], lambda: clock.advance(MS), clock)

    assert run_ranks(1, work)[0] == pytest.approx([share] * 30)


def test_overlap_is_measured_where_an_operation_can_be_begun_without_waiting():
    def work(communicator):
        how = How(overlap=True)
        return list(sweep(communicator, NumpyBackend(), ["all-reduce", "gather"], [64], FixedCount(8), how=how))

    beside = [each.overlap for each in run_ranks(2, work)[0]]
    assert (len(beside[0]), beside[1]) == (30, ())
    assert all(0 <= each <= 1 for each in beside[0])


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("4B:64B", [4, 8, 16, 32, 64]),
        ("1KiB:1MiB:32", [1024, 32768, 1048576]),
        ("4,1kB, 1MiB", [4, 1000, 1048576]),
        ("4B:7B", [4]),
        ("2 GiB", [2**31]),
    ],
)
def test_sizes_are_ranges_or_lists(text, sizes):
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize("text", ["", "2B", "4B:1B", "4B:8B:1", "4B:8B:2:2", "x", "4Q", "1.5KiB", "4B:8B:", "٤B"])
def test_other_texts_are_refused(text):
    with pytest.raises(UsageError, match="4B:64MiB"):
        parse_sizes(text)


SIZES = 4.0 * 2.0 ** np.arange(0, 25, 2)
ALPHA, BETA = 5e-5, 2e-10


def drawn(random, noise=0.05, alpha=ALPHA, beta=BETA, claimed=None):
    truth = alpha + SIZES * beta
    times = truth * (1 + noise * random.standard_normal(len(SIZES)))
    errors = truth * (noise if claimed is None else claimed)
    return [Timed(*each) for each in zip(SIZES.tolist(), times.tolist(), errors.tolist(), strict=True)]


def coverage(points_of, trials=600):
    random = np.random.default_rng(1)
    fits = [fit(points_of(random)) for _ in range(trials)]
    alpha = np.mean([ALPHA in each.alpha_interval for each in fits])
    beta = np.mean([BETA in each.beta_interval for each in fits])
    return alpha, beta


def test_a_line_without_noise_is_found_exactly():
    found = fit([Timed(n, ALPHA + n * BETA, 1e-7) for n in SIZES.tolist()])
    assert found.alpha_s == pytest.approx(ALPHA)
    assert found.beta_s_b == pytest.approx(BETA)
    assert found.time_s(1e6) == pytest.approx(ALPHA + 1e6 * BETA)
    assert found.bandwidth_b_s == pytest.approx(5e9)
    assert found.half_size_b == pytest.approx(250_000)
    assert found.relative < 1e-9


def test_intervals_have_their_nominal_coverage():
    alpha, beta = coverage(drawn)
    # Birge's ratio only widens, so they cover a little more than 95 % (standard error 0.9 %).
    assert 0.93 <= alpha <= 0.99
    assert 0.93 <= beta <= 0.99


def test_intervals_have_their_coverage_with_underestimated_errors():
    alpha, beta = coverage(lambda random: drawn(random, noise=0.05, claimed=0.01))
    assert 0.92 <= alpha <= 0.98
    assert 0.92 <= beta <= 0.98


def test_a_large_message_does_not_hide_the_latency():
    found = fit(drawn(np.random.default_rng(2), noise=0.02))
    assert found.alpha_s == pytest.approx(ALPHA, rel=0.05)


def test_a_change_of_protocol_shows_as_a_misfit():
    points = [Timed(n, (2 * ALPHA if n > 1e5 else ALPHA) + n * BETA, 0.01 * ALPHA) for n in SIZES.tolist()]
    assert fit(points).misfit > 3
    assert fit([Timed(n, ALPHA + n * BETA, 0.01 * ALPHA) for n in SIZES.tolist()]).misfit < 0.1


def test_no_parameter_is_below_zero():
    falling = [Timed(1.0, 3.0, 0.1), Timed(2.0, 2.5, 0.1), Timed(3.0, 2.0, 0.1)]
    found = fit(falling)
    assert found.beta_s_b == 0.0
    assert found.alpha_s == pytest.approx(2.5)
    steep = fit([Timed(1.0, 0.5, 0.1), Timed(2.0, 2.0, 0.1), Timed(3.0, 3.5, 0.1)])
    assert steep.alpha_s == 0.0
    assert steep.alpha_interval.low == 0.0
    assert steep.beta_s_b > 0


def test_two_points_are_refused():
    with pytest.raises(UsageError, match="three"):
        fit([Timed(1.0, 1.0, 0.1), Timed(2.0, 1.0, 0.1)])
    with pytest.raises(UsageError, match="two sizes"):
        fit([Timed(1.0, 1.0, 0.1)] * 3)


def test_a_medians_error_follows_from_its_interval():
    known = Estimate(1.0, Interval(0.9, 1.1, 0.95, "exact"), 10, "median")
    unknown = Estimate(1.0, None, 3, "median")
    sure = Estimate(1.0, Interval(1.0, 1.0, 0.95, "exact"), 10, "median")
    errors = [each.error_s for each in fit_points([(8.0, known), (8.0, unknown), (8.0, sure)])]
    assert errors == [pytest.approx(0.1 / 1.96, rel=1e-3), 0.1, 0.01]


def test_a_ring_has_two_times_p_minus_one_rounds():
    whole = fit([Timed(n, ALPHA + n * BETA, 1e-7) for n in SIZES.tolist()])
    assert rounds_of("all-reduce", 4) == Round(6, 0.25)
    alpha, beta = Round(6, 0.25).per_message(whole)
    assert 6 * (alpha + 1e6 / 4 * beta) == pytest.approx(whole.time_s(1e6))
    assert rounds_of("all-reduce-max", 4) == rounds_of("all-reduce", 4)
    assert rounds_of("all-gather", 4) == Round(3, 0.25)
    assert rounds_of("broadcast", 4) is None
    assert rounds_of("all-reduce", 1) is None


def test_a_parameter_cut_at_zero_keeps_its_uncertainty():
    found = fit([Timed(1.0, 0.5, 0.1), Timed(2.0, 2.0, 0.1), Timed(3.0, 3.5, 0.1)])
    assert found.alpha_s == 0.0
    assert found.alpha_interval.high > 0


def test_a_parameter_is_in_its_interval_if_the_other_is_cut_at_zero():
    sizes = np.linspace(1.0, 3.0, 30).tolist()
    for found in (fit([Timed(n, 1.5 * n - 1, 0.01) for n in sizes]), fit([Timed(n, 3.5 - n, 0.01) for n in sizes])):
        assert found.alpha_s in found.alpha_interval
        assert found.beta_s_b in found.beta_interval
